"""The main job: per-aircraft state of the flights that left New York in 2013."""
