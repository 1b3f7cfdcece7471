"""How fast each part is, as a ratio to a bare limit measured in the same run: `python -m benchmarks`."""
