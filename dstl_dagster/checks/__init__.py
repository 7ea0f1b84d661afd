"""Asset checks of pipelines and snapshots."""
