"""How much work a run of the perturbation benchmark does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Settings:
    """How much work a run does."""

    max_epochs: int | None = None  # length of the training of every model; None is the default of each
    max_cells: int = 500  # cells predicted and compared of each response
    n_trees: int = 100  # trees of the forest that tells real from predicted cells
    size: Mapping[str, int] = field(default_factory=dict)  # arguments of the model in place of its preset
    train_cells: int | None = None  # training cells of each response and context; None takes all
    n_genes: int | None = None  # genes; None takes all


QUICK = Settings(2, 40, 20, {"n_tokens": 4, "token_dim": 16, "n_layers": 1}, 60, 150)
