"""The driver of a job: its tasks, its checkpoints and its history."""
