"""The ``_metadata`` file of a checkpoint or savepoint."""
