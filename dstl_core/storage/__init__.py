"""Access to file systems: locations, file IO, publish-once, the commit log."""
