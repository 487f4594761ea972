"""How much work a run of the perturbation benchmark does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Settings:
    """How much work a run does.

    Parameters
    ----------
    max_epochs
        Length of the training of every model; ``None`` is the default of each.
    max_cells
        Cells predicted and compared of each response.
    n_trees
        Trees of the forest that tells real from predicted cells.
    size
        Arguments of the model in place of its preset.
    train_cells
        Training cells of each response and context; ``None`` takes all.
    n_genes
        Genes; ``None`` takes all.
    """

    max_epochs: int | None = None
    max_cells: int = 500
    n_trees: int = 100
    size: Mapping[str, int] = field(default_factory=dict)
    train_cells: int | None = None
    n_genes: int | None = None


QUICK = Settings(2, 40, 20, {"n_tokens": 4, "token_dim": 16, "n_layers": 1}, 60, 150)
