"""The snapshots below a folder, and the folder of a job or a pipeline."""
