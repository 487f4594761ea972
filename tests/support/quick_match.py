"""Match of genes on fewer cells: else it takes longer than all else in training small models."""

from functools import partialmethod

from scdiffgen.module import DiffusionModule


def draw_few_cells() -> None:
    """Draw 256 cells, a minibatch, and not 20,000; a call that says ``n_drawn`` decides for itself."""
    DiffusionModule.match_genes = partialmethod(DiffusionModule.match_genes, n_drawn=256)  # type: ignore[method-assign, assignment]
