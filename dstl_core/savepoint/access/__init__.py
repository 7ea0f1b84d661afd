"""Ways to the state of a snapshot: in units of work, and by key."""
