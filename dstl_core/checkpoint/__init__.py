"""The checkpoint protocol: coordinator, completed checkpoints, metadata files, retention."""
