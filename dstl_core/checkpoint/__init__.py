"""Agreement on checkpoints: coordinator, completed store, metadata files, retention."""
