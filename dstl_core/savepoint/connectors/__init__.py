"""Where sources stand and what sinks have pending, and copies in which that is changed."""
