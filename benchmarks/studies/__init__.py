"""Studies behind single decisions, on parts of the training cells: by hand, not by ``python -m benchmarks``."""
