"""Groups of few cells, of which a model learns little: named when cells are registered, and when more are generated."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scvi.data import AnnDataManager

from scdiffgen._messages import LONGEST_LIST, counted, warn_user
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.data._perturbation_input import DOSE
from scdiffgen.data._registered import (
    Registry,
    condition_columns,
    condition_specs,
    field_state,
    registered_conditions,
    slot_codes,
)

FEWEST_CELLS = 20  # of a group, which is what a model keeps pseudobulks of, too
NOT_GROUPED = (REGISTRY_KEYS.BATCH, REGISTRY_KEYS.TEXT)


def warn_of_small_groups(manager: AnnDataManager) -> None:
    """Warn once of groups of registered cells (labels, hierarchy, covariates and treatments) that are small."""
    specs = [spec for spec in condition_specs(manager) if not spec.is_number and spec.registry_key not in NOT_GROUPED]
    if not specs:
        return
    known, obs = registered_conditions(manager), manager.adata.obs
    codes = pd.DataFrame(np.hstack([slot_codes(c, spec, c.ids.shape[1]) for spec in specs for c in [known[spec.name]]]))
    n_cells = codes.groupby(list(codes), sort=False).size().to_numpy()
    small = np.flatnonzero(n_cells < FEWEST_CELLS)
    if not len(small):
        return
    small = small[np.argsort(n_cells[small], kind="stable")]
    first = np.flatnonzero(~codes.duplicated())[small]
    warn_user(
        f"{counted(len(small), 'group')} of fewer than {FEWEST_CELLS} cells: "
        f"{in_words(obs.iloc[first][_compared(manager, obs)], n_cells[small])}. Little can be learned of so few, and "
        "a label of fewer than 5 comes out as its neighbours: merge groups, or judge what is generated with care."
    )


def warn_of_few_cells(table: pd.DataFrame, n_cells: np.ndarray, registry: Registry) -> None:
    """Warn once of requested groups with few training cells in all batches: ``n_cells``, but some."""
    groups = table[_compared(registry, table)]
    if groups.empty:
        return
    few = np.flatnonzero((n_cells > 0) & (n_cells < FEWEST_CELLS) & ~groups.duplicated())
    if len(few):
        warn_user(
            f"Cells are generated of {counted(len(few), 'group')} of fewer than {FEWEST_CELLS} training cells: "
            f"{in_words(groups.iloc[few], n_cells[few])}. They may be like cells of other "
            "groups."
        )


def _compared(registry: Registry | AnnDataManager, table: pd.DataFrame) -> list[str]:
    """Columns of a table by which groups differ: neither numbers, doses, batches nor descriptions."""
    doses = [DOSE, *(field_state(registry, REGISTRY_KEYS.PERTURBATION) or {}).get("dose_columns", [])]
    specs = [spec for spec in condition_specs(registry) if not spec.is_number and spec.registry_key not in NOT_GROUPED]
    columns = dict.fromkeys(column for spec in specs for column in condition_columns(registry, spec))
    return [column for column in columns if column in table and column not in doses]


def in_words(table: pd.DataFrame, n_cells: Sequence[int] | np.ndarray) -> str:
    """At most ten groups, by what is given of each, with their cells."""
    rows = zip(table.head(LONGEST_LIST).to_dict("records"), n_cells, strict=False)
    shown = [
        f"{' with '.join(f'{name} {value!r}' for name, value in row.items() if pd.notna(value))} ({counted(n, 'cell')})"
        for row, n in rows
    ]
    return "; ".join(shown) + (f"; ... ({len(table)} in all)" if len(table) > LONGEST_LIST else "")
