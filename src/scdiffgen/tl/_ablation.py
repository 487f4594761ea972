"""What a token is needed for: cells generated with it and without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import numpy as np
import pandas as pd
from anndata import AnnData

from scdiffgen._stored_tokens import annotation_column

PER_CELL = 1e4
PSEUDOCOUNT = 0.1  # molecules per 10,000

Model = TypeVar("Model", bound="TokenModel")


class TokenModel(Protocol):
    """A model whose tokens can be held, such as :class:`scdiffgen.model.TokenDiffusion`."""

    def hold_tokens(self: Model, levels: Mapping[str, float]) -> Model:
        """Return the model with tokens held at fixed activations."""
        ...

    def predict_perturbation(
        self, adata: AnnData | None, conditions: Mapping[str, Any], *, indices: np.ndarray, n_steps: int, seed: int
    ) -> AnnData:
        """Generate cells anew under their own conditions, with those given in their place."""
        ...


def ablate_token(
    model: TokenModel,
    token: str,
    adata: AnnData,
    groupby: str,
    *,
    level: float = 0.0,
    max_cells: int = 200,
    n_steps: int = 32,
    seed: int = 0,
) -> pd.DataFrame:
    """Generate cells with a token and without it: which genes change, in which groups of cells.

    Twins of measured cells are generated twice, with the same conditions, library sizes and seed: by the model, and by
    the model in which the token is held.

    Parameters
    ----------
    model
        The model.
    token
        Name of the token.
    adata
        Cells whose twins are generated, registered as those the model was made with.
    groupby
        Column of ``adata.obs``.
    level
        Activation at which the token is held, in standard deviations; 0 is the mean of the training cells. The mean
        activation of control cells shows what treated cells are without this token's response.
    max_cells
        Cells of each group to take, evenly spread.
    n_steps
        Evaluations of the network a cell.
    seed
        Same seed, same cells.

    Returns
    -------
    A row for each group and gene, in each group from the largest change on: ``group``, ``gene``, ``mean`` and
    ``mean_without`` (molecules per 10,000), ``log2_fold_change`` of the second over the first, with 0.1 added to both.

    Examples
    --------
    >>> changed = ablate_token(model, "token_1", adata, "cell_type", max_cells=5, n_steps=4)
    >>> changed.columns.tolist()
    ['group', 'gene', 'mean', 'mean_without', 'log2_fold_change']
    """
    column = annotation_column(adata, groupby)
    groups = {str(name): np.flatnonzero(column == name) for name in column.dropna().unique()}
    chosen = {name: cells[:: -(-len(cells) // max_cells)] for name, cells in groups.items()}
    indices = np.concatenate(list(chosen.values()))
    labels = np.repeat(list(chosen), [len(cells) for cells in chosen.values()])
    means = [
        _mean_per_10k(each.predict_perturbation(adata, {}, indices=indices, n_steps=n_steps, seed=seed), labels)
        for each in (model, model.hold_tokens({token: level}))
    ]
    table = pd.concat([means[0].stack().rename("mean"), means[1].stack().rename("mean_without")], axis=1)
    table = table.rename_axis(["group", "gene"]).reset_index()
    change = np.log2(table["mean_without"] + PSEUDOCOUNT) - np.log2(table["mean"] + PSEUDOCOUNT)
    table = table.assign(log2_fold_change=change, size=change.abs())
    table["group"] = pd.Categorical(table["group"], categories=list(chosen))
    table = table.sort_values(["group", "size"], ascending=[True, False], ignore_index=True)
    return table.drop(columns="size").astype({"group": str})


def _mean_per_10k(cells: AnnData, labels: np.ndarray) -> pd.DataFrame:
    """Molecules of each gene per 10,000 of all, ``(groups, genes)``."""
    counts = np.asarray(cells.X.toarray(), dtype=np.float64)
    totals = pd.DataFrame(counts, columns=cells.var_names).groupby(labels, sort=False).sum()
    return totals.div(totals.sum(axis=1), axis=0) * PER_CELL
