"""Of the ways to draw latents of scVI, tables show the one that does best, chosen in its favour on held-out cells."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

PRIORS = ("scVI, Gaussian of the label", "scVI, Gaussian mixture of the label")
METRIC = "auc_forest_genes"  # lower is better


def best_prior(scores: Mapping[str, Mapping[str, list[float]]]) -> dict[str, Mapping[str, list[float]]]:
    """Scores by method, without the priors of scVI that do worse than another by their median."""
    there = [name for name in PRIORS if name in scores and METRIC in scores[name]]
    best = min(there, key=lambda name: np.nanmedian(scores[name][METRIC]), default=None)
    return {name: values for name, values in scores.items() if name not in there or name == best}
