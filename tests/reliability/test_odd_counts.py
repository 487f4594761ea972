"""The same counts stored in odd ways give the same results; counts that are no longer counts are not read."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import scvi
import torch
from anndata import AnnData
from csr import doubled_entries
from fingerprint import weights_of
from mudata import MuData
from scipy import sparse
from small_cells import QUIET, SMALL, simulated_cells

from scdiffgen.model import TokenDiffusion

PLACES = ("X", "layer", "modality")


def backwards(x: np.ndarray) -> sparse.csr_matrix:
    """The entries of each cell in descending order of the genes."""
    parts = [(np.flatnonzero(row)[::-1], row[np.flatnonzero(row)[::-1]]) for row in x]
    ends = np.cumsum([0, *(len(genes) for genes, _ in parts)])
    genes, values = (np.concatenate(each) for each in zip(*parts, strict=True))
    return sparse.csr_matrix((values, genes, ends), shape=x.shape)


FORMS: dict[str, Callable[[np.ndarray], sparse.csr_matrix]] = {"twice": doubled_entries, "backwards": backwards}


def put(cells: AnnData | MuData, place: str, counts: Any) -> None:
    part = cells.mod["rna"] if isinstance(cells, MuData) else cells
    if place == "layer":
        part.layers["counts"] = counts
    else:
        part.X = counts


def registered(place: str, make: Callable[[np.ndarray], Any]) -> AnnData | MuData:
    cells = simulated_cells(40, 12)
    counts = make(cells.X)
    if place == "modality":
        other = AnnData(simulated_cells(40, 5, seed=3).X, obs=cells.obs[[]])
        cells = MuData({"rna": AnnData(counts, obs=cells.obs[[]], var=cells.var), "protein": other})
        cells.obs["cell_type"] = simulated_cells(40, 12).obs["cell_type"]
        TokenDiffusion.setup_mudata(cells, labels_key="cell_type")
        return cells
    put(cells, place, counts)
    TokenDiffusion.setup_anndata(cells, layer="counts" if place == "layer" else None, labels_key="cell_type")
    return cells


def trained(cells: AnnData | MuData) -> TokenDiffusion:
    scvi.settings.seed = 0
    model = TokenDiffusion(cells, **SMALL)
    model.train(1, batch_size=16, **QUIET)
    return model


def results(model: TokenDiffusion) -> list[np.ndarray]:
    read = [model.get_latent_representation(), model.get_token_activation(), model.get_normalized_expression()]
    return [np.asarray(each) for each in [*read, model.get_nll_bound(silent=True)]]


@cache
def plain(place: str) -> tuple[str, list[np.ndarray]]:
    """Weights and results of counts that are stored as usual."""
    model = trained(registered(place, sparse.csr_matrix))
    return weights_of(model), results(model)


@cache
def kept(place: str, container: Callable[[np.ndarray], Any]) -> TokenDiffusion:
    """A model to spoil the counts of, and mend them again."""
    return trained(registered(place, container))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("when", ["registered", "replaced afterwards"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", PLACES)
def test_how_entries_are_stored_does_not_matter(place: str, form: str, when: str) -> None:
    weights, expected = plain(place)
    make = FORMS[form] if when == "registered" else sparse.csr_matrix
    cells = registered(place, make)
    if when != "registered":
        put(cells, place, FORMS[form](simulated_cells(40, 12).X))
    model = trained(cells)
    assert weights_of(model) == weights
    for one, other in zip(results(model), expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("form", FORMS)
def test_the_matrix_that_was_given_stays_as_it_is(form: str) -> None:
    given = FORMS[form](simulated_cells(40, 12).X)
    before = [part.copy() for part in (given.data, given.indices, given.indptr)]
    registered("X", lambda _: given)
    for part, old in zip((given.data, given.indices, given.indptr), before, strict=True):
        np.testing.assert_array_equal(part, old)


SPOILT: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "fractional": lambda x: x * 0.3,
    "not finite": lambda x: np.where(x > 0, np.nan, x),
    "negative": lambda x: -x,
    "larger than 16,777,216": lambda x: x.astype(np.uint64) - np.uint64(2**20),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fault", SPOILT)
@pytest.mark.parametrize(
    ("place", "container"), [("X", sparse.csr_matrix), ("layer", np.asarray), ("modality", sparse.csr_matrix)]
)
def test_counts_that_were_replaced_are_neither_learned_from_nor_read(
    place: str, container: Callable[[np.ndarray], Any], fault: str
) -> None:
    model = kept(place, container)
    weights, counts = weights_of(model), simulated_cells(40, 12).X
    put(model.adata, place, container(SPOILT[fault](counts)))
    for act in (lambda: model.train(1, **QUIET), model.get_latent_representation, model.write_back):
        with pytest.raises(ValueError, match=rf"does not hold molecule counts: [\d,]+ {fault}.* in cell 'cell0'"):
            act()
    put(model.adata, place, container(counts))
    assert weights_of(model) == weights and model.is_trained_


def test_masked_counts_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`adata.X` .*masked values.*`counts.filled\(0\)`"):
        registered("X", lambda x: np.ma.masked_array(x, mask=x == 1))


@pytest.mark.parametrize("text", ["string[pyarrow]", "string[python]", "category"])
@pytest.mark.filterwarnings("ignore")
def test_labels_in_any_type_of_text_mean_the_same(text: str) -> None:
    pytest.importorskip("pyarrow") if "pyarrow" in text else None
    cells = simulated_cells(40, 12)
    cells.obs["cell_type"] = cells.obs["cell_type"].astype(text)
    TokenDiffusion.setup_anndata(cells, labels_key="cell_type")
    assert weights_of(trained(cells)) == weights_of(trained(registered("X", np.asarray)))


def test_training_under_no_grad_gives_the_same_weights() -> None:
    plain = trained(registered("X", np.asarray))
    with torch.no_grad():
        assert weights_of(trained(registered("X", np.asarray))) == weights_of(plain)
