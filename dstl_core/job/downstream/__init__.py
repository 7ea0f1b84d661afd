"""The output of a job for tables behind it: what changed between two commits, and its merge."""
