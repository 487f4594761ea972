"""Data sets: bundled real counts, and simulated counts with known truth."""

from ._pbmc68k import pbmc68k
from ._simulate import simulate, simulate_cite, true_expression

__all__ = ["pbmc68k", "simulate", "simulate_cite", "true_expression"]
