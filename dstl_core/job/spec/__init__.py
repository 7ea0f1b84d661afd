"""The declaration of a job: its operators, their types, and the identity of its inputs."""
