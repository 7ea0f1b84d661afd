"""Whether a job restores a snapshot, for a snapshot, a jar, a description and a running job."""
