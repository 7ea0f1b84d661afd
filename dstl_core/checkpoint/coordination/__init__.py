"""How a checkpoint is triggered, acknowledged, completed or aborted, and restored."""
