"""The keys of many rows at a time, and their values as Python objects while the rows apply."""
