"""Where new perturbations of a query model start: as sparse combinations of those that it knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from scdiffgen._messages import listed
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.conditions import PerturbationSyntax
from scdiffgen.data import feature_table, field_state, sparse_combinations
from scdiffgen.module import DiffusionModule
from scdiffgen.nn import PartEmbedding, TableEmbedding

if TYPE_CHECKING:
    import pandas as pd

    from scdiffgen.data import Registry

ARGUMENT = "`perturbation_features`"


def check_new_features(registry: Registry, given: Any, category_embedding: str) -> None:
    """Raise if a model of this registry has no use for vectors that a user gives of new perturbations."""
    if given is None:
        return
    state = field_state(registry, REGISTRY_KEYS.PERTURBATION)
    if state is None:
        raise ValueError(f"{ARGUMENT}: the reference was registered without `perturbation_key`. Leave it out.")
    if state["features"] is not None:
        key = registry["setup_args"]["perturbation_features_key"]
        raise ValueError(
            f"{ARGUMENT}: the reference was registered with feature vectors and knows perturbations by them alone. "
            f"Leave it out, and put the vectors of the new ones into `adata.uns[{key!r}]`."
        )
    if category_embedding != "table":
        raise ValueError(
            f"{ARGUMENT}: the reference has `category_embedding={category_embedding!r}`, in which no perturbation has "
            "an embedding of its own to start from. Leave it out."
        )


def combinations_of_known(
    registry: Registry, n_known: int, given: Mapping[str, Any] | pd.DataFrame | None
) -> np.ndarray | None:
    """Coefficients ``(new, known)`` of the known perturbations in each new one, in the order of the query's registry.

    Vectors are ``given`` if none are registered; rows of zeros are of those without a vector, ``None`` is no vectors.
    """
    state = field_state(registry, REGISTRY_KEYS.PERTURBATION)
    if state is None or len(state["names"]) == n_known:
        return None
    names, vectors = [str(name) for name in state["names"]], state["features"]
    if given is not None:
        vectors = _in_order(names, n_known, given, PerturbationSyntax(tuple(state["control"]), state["separator"]))
    return None if vectors is None else sparse_combinations(vectors[n_known:], vectors[:n_known])


def start_as_combinations(module: DiffusionModule, name: str, combinations: np.ndarray) -> None:
    """Start the last perturbations of a condition as combinations ``(new, known)`` of the first ones.

    Their vectors, where a table has them, are sums with these coefficients; their half-maximal doses, as
    logarithms, the means weighted by how large the coefficients are. Rows of zeros leave what is there.
    """
    for denoiser in (module.denoiser, module.ema_denoiser):
        is_effect = name in denoiser.effect_names
        part = denoiser.effect_of(name) if is_effect else denoiser.embed.embedders[denoiser.embed.names.index(name)]
        embedding = next(inner for inner in part.modules() if isinstance(inner, PartEmbedding)).categories
        coefficients = torch.from_numpy(combinations).to(denoiser.missing)
        if isinstance(embedding, TableEmbedding):
            _combine(embedding.weight, coefficients)
        half_dose = getattr(part, "half_dose", None)
        if half_dose is not None:
            _combine(half_dose, nn.functional.normalize(coefficients.abs(), p=1.0))


@torch.no_grad()
def _combine(rows: Tensor, coefficients: Tensor) -> None:
    known = rows[: coefficients.shape[1]]
    resembling = coefficients.any(dim=1)
    new = rows[coefficients.shape[1] :]  # a view
    new[resembling] = coefficients[resembling] @ known


def _in_order(
    names: Sequence[str], n_known: int, given: Mapping[str, Any] | pd.DataFrame, syntax: PerturbationSyntax
) -> np.ndarray:
    """Vectors ``(names, features)``, zeros for those that have none."""
    table = feature_table(given, ARGUMENT, syntax)
    if not set(names[:n_known]) & set(table.index):
        raise ValueError(
            f"{ARGUMENT} has a vector of none of the perturbations of the reference ({listed(names[:n_known])}), of "
            "which the new ones are to be made. Pass theirs as well."
        )
    return table.reindex(names, fill_value=0.0).to_numpy(dtype=np.float64)
