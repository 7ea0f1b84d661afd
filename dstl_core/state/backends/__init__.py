"""State backends, the state objects of functions, timers, and the changelog of a backend."""
