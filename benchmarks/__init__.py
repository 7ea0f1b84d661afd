"""Side-by-side benchmarks: ``python -m benchmarks [NAME ..]``; results go to ``results/``."""
