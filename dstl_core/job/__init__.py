"""The engine of a job: one epoch applies one batch and is one checkpoint, on any runner."""
