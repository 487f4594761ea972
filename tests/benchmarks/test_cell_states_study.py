"""The study of states, on identities whose treated means are no combination of those of the others."""

from __future__ import annotations

import numpy as np
from benchmarks.studies.cell_states import Cells, task_scores

N_CELLS, N_GENES = 400, 60


def simulated() -> Cells:
    """Identities are mixtures of two kinds of cells; the share of the kind that responds has another effect in each."""
    rng, parts, contexts, treated = np.random.default_rng(0), [], [], []
    for name, share in zip("abcd", (0.1, 0.3, 0.5, 0.9), strict=True):
        own = 0.3 * rng.normal(size=N_GENES)
        for state in (True, False):
            kind = rng.random(N_CELLS) < share
            level = 2 + own + 2.0 * kind[:, None] * (np.arange(N_GENES) < 20)
            level = level + state * kind[:, None] * (np.arange(N_GENES) >= 50) * 1.5
            parts.append(level + 0.2 * rng.normal(size=level.shape))
            contexts += [name] * N_CELLS
            treated += [state] * N_CELLS
    return Cells(np.concatenate(parts).astype(np.float32), np.array(contexts), np.array(treated))


def test_states_tell_what_means_do_not() -> None:
    cells = simulated()
    mean = task_scores(cells, inner=False).groupby("prediction").mean(numeric_only=True)["MSE, all"]
    assert mean["by state, 10 of stable genes"] < 0.3 * mean["similar contexts, falls in a ratio"]
    assert mean["nearest combination to the truth"] <= min(mean["similar"], mean["similar where genes respond"])
    inner = task_scores(cells, inner=True)
    assert set(inner["left_out"]) == set("abcd") and len(inner) == len(task_scores(cells, inner=False))
