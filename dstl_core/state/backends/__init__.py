"""State backends, access objects, timers, the change log of a backend."""
