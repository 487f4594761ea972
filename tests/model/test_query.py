"""A trained model on new cells: what it knew stays, what is new is learned."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from anndata import AnnData
from condition_rows import log_odds
from fingerprint import weights_of
from scipy import stats
from small_cells import QUIET, SMALL, simulated_cells, trained_model
from treated_cells import treated_cells

from scdiffgen.model import NetworkOptions, TokenDiffusion

TREATED = {"labels_key": "cell_type", "perturbation_key": "guide", "dose_key": "dose", "control": "ctrl"}


@pytest.fixture(scope="module")
def reference() -> TokenDiffusion:
    """Cells of types a and b in batches x and y."""
    return trained_model(simulated_cells(150), 8, labels_key="cell_type", batch_key="batch")


def new_cells(n_more_genes: int = 0) -> AnnData:
    """Types a and c in batch z; more genes, each a tenth of the molecules of the first one."""
    adata = simulated_cells(150, seed=5)
    adata.obs["cell_type"] = np.where(adata.obs["cell_type"] == "b", "c", "a")
    adata.obs["batch"] = "z"
    if not n_more_genes:
        return adata
    more = np.random.default_rng(0).poisson(3.0, (adata.n_obs, n_more_genes)).astype(np.float32)
    var = pd.DataFrame(index=[*adata.var_names, *(f"more{i}" for i in range(n_more_genes))])
    return AnnData(np.hstack([adata.X, more]), obs=adata.obs, var=var)


def said(model: TokenDiffusion, conditions: dict[str, Any]) -> np.ndarray:
    return model.generate(conditions, 30, n_steps=4, seed=0, library_size=80, silent=True).X.toarray()


def test_an_untrained_query_model_predicts_like_its_reference(reference: TokenDiffusion) -> None:
    before = weights_of(reference)
    query = TokenDiffusion.load_query_data(new_cells(), reference, accelerator="cpu")
    for known in ({"cell_type": "a", "batch": "x"}, {"cell_type": "b"}, {}):
        np.testing.assert_array_equal(said(query, known), said(reference, known))
    assert said(query, {"cell_type": "c", "batch": "z"}).shape == (30, 20)
    assert weights_of(reference) == before


def test_training_learns_what_is_new_and_keeps_what_was_known(reference: TokenDiffusion, tmp_path: Path) -> None:
    """Likelihood of the new cells rises; known conditions get the very cells that they got before."""
    cells = new_cells()
    reference.save(tmp_path / "reference")
    query = TokenDiffusion.load_query_data(cells, tmp_path / "reference", accelerator="cpu")
    before = query.get_nll_bound(cells, silent=True, seed=0)["nll"]
    query.train(max_epochs=15, batch_size=32, plan_kwargs={"lr": 0.02}, early_stopping=False, **QUIET)
    after = query.get_nll_bound(cells, silent=True, seed=0)["nll"]
    assert stats.ttest_rel(before, after, alternative="greater").pvalue < 0.01
    for known in ({"cell_type": "a", "batch": "x"}, {"cell_type": "b", "batch": "y"}):
        np.testing.assert_array_equal(said(query, known), said(reference, known))
    assert len(query.training_summary_["library"]) == cells.n_obs


def test_unfrozen_all_weights_are_trained(reference: TokenDiffusion) -> None:
    query = TokenDiffusion.load_query_data(new_cells(), reference, accelerator="cpu", unfrozen=True)
    query.train(max_epochs=1, batch_size=32, **QUIET)
    known = {"cell_type": "a", "batch": "x"}
    assert (said(query, known) != said(reference, known)).any()


def test_what_is_frozen_stays_frozen_in_a_file(reference: TokenDiffusion, tmp_path: Path) -> None:
    """Known conditions get the very cells that they got before, also from a query model that is loaded and trained."""
    cells = new_cells()
    query = TokenDiffusion.load_query_data(cells, reference, accelerator="cpu")
    query.train(max_epochs=1, batch_size=32, **QUIET)
    query.save(tmp_path / "query")
    loaded = TokenDiffusion.load(tmp_path / "query", cells, accelerator="cpu")
    before = weights_of(loaded)
    loaded.train(max_epochs=3, batch_size=32, plan_kwargs={"lr": 0.02}, early_stopping=False, **QUIET)
    assert weights_of(loaded) != before
    known = {"cell_type": "a", "batch": "x"}
    np.testing.assert_array_equal(said(loaded, known), said(reference, known))
    thawed = TokenDiffusion.load_query_data(new_cells(), loaded, accelerator="cpu", unfrozen=True)
    trained = [[w.requires_grad for w in model.module.denoiser.parameters()] for model in (thawed, reference)]
    assert trained[0] == trained[1]


def test_a_match_is_of_the_weights_and_genes_that_drew_it() -> None:
    """A truncated query that is frozen, and an unfrozen one whose cells lack genes, have none."""
    network = NetworkOptions(nested_tokens=True)
    reference = trained_model(simulated_cells(150), network=network, labels_key="cell_type", batch_key="batch")
    query = TokenDiffusion.load_query_data(new_cells(), reference, accelerator="cpu")
    query.train(max_epochs=1, batch_size=32, **QUIET)
    assert len(query.module.code.match.groups) == len(reference.module.code.match.groups) > 0
    assert not len(query.truncate_tokens(1).module.code.match.groups)
    cells = TokenDiffusion.prepare_query_anndata(new_cells()[:, :15].copy(), reference, inplace=False)
    lacking = TokenDiffusion.load_query_data(cells, reference, accelerator="cpu", unfrozen=True)
    lacking.train(max_epochs=1, batch_size=32, **QUIET)
    assert not len(lacking.module.code.match.groups)


def test_new_genes_start_as_frequent_as_they_are(reference: TokenDiffusion) -> None:
    """And the known genes keep their shares among themselves."""
    cells = new_cells(n_more_genes=3)
    query = TokenDiffusion.load_query_data(cells, reference, accelerator="cpu")
    made = query.generate({"cell_type": "a"}, 400, n_steps=8, seed=0, library_size=100, silent=True).X.toarray()
    share = made[:, 20:].sum() / made.sum()
    assert abs(share / (cells.X[:, 20:].sum() / cells.X.sum()) - 1) < 0.25
    before = reference.generate({"cell_type": "a"}, 400, n_steps=8, seed=0, library_size=100, silent=True).X.toarray()
    shares = [counts[:, :20].sum(0) / counts[:, :20].sum() for counts in (made, before)]
    assert np.corrcoef(*shares)[0, 1] > 0.95
    query.train(max_epochs=2, batch_size=32, **QUIET)
    assert query.generate({"cell_type": "c"}, 2, n_steps=2, seed=0).n_vars == 23


@pytest.mark.parametrize("vectors", [False, True])
def test_new_perturbations_are_learned(vectors: bool) -> None:
    setup = {**TREATED, **({"perturbation_features_key": "vectors"} if vectors else {})}
    cells, more = treated_cells(), treated_cells()
    model = trained_model(cells, **setup)
    more.obs["guide"] = more.obs["guide"].replace({"B": "C"})
    more.uns["vectors"]["C"] = [0.5, 0.5]
    query = TokenDiffusion.load_query_data(more, model, accelerator="cpu")
    if vectors:  # a new vector is all that there is of it
        with pytest.raises(ValueError, match=r"no new category or gene to learn.*unfrozen=True"):
            query.train(max_epochs=1, batch_size=32, **QUIET)
    else:
        query.train(max_epochs=1, batch_size=32, **QUIET)
    for guide in "ABC":
        made = query.generate({"guide": guide, "dose": 1.0}, 3, n_steps=2, seed=0)
        assert made.obs["guide"].tolist() == [guide] * 3
    known = {"guide": "B", "dose": 0.5, "cell_type": "a"}
    np.testing.assert_array_equal(said(query, known), said(model, known))


def treated_reference() -> TokenDiffusion:
    """Perturbations A and B, with doses; shaken, so that they differ."""
    model = trained_model(treated_cells(), **TREATED)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.module.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    return model


def test_what_the_reference_knows_of_doses_stays_when_new_cells_lack_it() -> None:
    """Also over two generations."""
    model = treated_reference()
    asked = {"guide": "B", "dose": 0.5, "cell_type": "a"}
    known = log_odds(model, asked)
    for unseen in ("C", "D"):
        cells = treated_cells()
        cells.obs["guide"] = cells.obs["guide"].replace({"B": unseen, "A": unseen})
        model = TokenDiffusion.load_query_data(cells, model)
        model.train(max_epochs=1, batch_size=32, **QUIET)
        np.testing.assert_allclose(log_odds(model, asked), known, rtol=1e-5, atol=1e-5)


def test_a_combination_of_known_perturbations_adds_no_weights() -> None:
    model, cells = treated_reference(), treated_cells()
    cells.obs["guide"] = cells.obs["guide"].replace({"B": "A+B"})
    cells.obs["dose"] = np.where(cells.obs["guide"] == "A+B", "1+1", cells.obs["dose"].astype(str))
    query = TokenDiffusion.load_query_data(cells, model)
    known, both = {"cell_type": "a", "guide": "B", "dose": 2.0}, {"guide": "A+B", "dose": "1+2"}
    np.testing.assert_array_equal(said(query, known), said(model, known))
    np.testing.assert_allclose(log_odds(query, both), log_odds(model, both), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="no new category or gene to learn"):
        query.train(max_epochs=1, batch_size=32, **QUIET)


def test_what_cannot_be_extended_is_named(reference: TokenDiffusion) -> None:
    with pytest.raises(ValueError, match=r"`adata` lacks 1 of the 20 genes of the reference \('gene3'\)"):
        cells = new_cells()
        TokenDiffusion.load_query_data(cells[:, cells.var_names != "gene3"].copy(), reference)
    with pytest.raises(ValueError, match="genes of the reference in another order"):
        TokenDiffusion.load_query_data(new_cells()[:, ::-1].copy(), reference)
    with pytest.raises(RuntimeError, match="not trained"):
        untrained = simulated_cells()
        TokenDiffusion.setup_anndata(untrained)
        TokenDiffusion.load_query_data(new_cells(), TokenDiffusion(untrained, **SMALL))


@pytest.mark.parametrize("vocabulary", ["hashed", "coded"])
def test_vocabularies_without_rows_of_categories_are_trained_as_a_whole(vocabulary: Any) -> None:
    model = trained_model(simulated_cells(), network=NetworkOptions(vocabulary=vocabulary), labels_key="cell_type")
    with pytest.raises(ValueError, match="unfrozen=True"):
        TokenDiffusion.load_query_data(new_cells(), model, accelerator="cpu").train(max_epochs=1, **QUIET)
    query = TokenDiffusion.load_query_data(new_cells(), model, accelerator="cpu", unfrozen=True)
    query.train(max_epochs=1, **QUIET)
    assert query.generate({"cell_type": "c"}, 2, n_steps=2, silent=True).obs["cell_type"].tolist() == ["c", "c"]


def test_weights_of_known_rows_get_no_gradient(reference: TokenDiffusion) -> None:
    query = TokenDiffusion.load_query_data(new_cells(), reference, accelerator="cpu")
    trained = {name: weight for name, weight in query.module.denoiser.named_parameters() if weight.requires_grad}
    assert trained and all("embed" in name for name in trained)
    sum(weight.square().sum() + weight.sum() for weight in trained.values()).backward()
    for name, weight in trained.items():
        on_device = torch.ones_like(weight, device="meta")  # of a weight that has moved to a GPU since
        assert all(hook(on_device).device.type == "meta" for hook in weight._backward_hooks.values())
        n_known = dict(reference.module.denoiser.named_parameters())[name].shape[0]
        assert not weight.grad[:n_known].any() and weight.grad[n_known:].all()


def test_cells_of_a_query_that_lacks_genes_have_its_depth_in_the_genes_that_it_has(tmp_path: Path) -> None:
    keys = {"labels_key": "cell_type", "batch_key": "batch"}
    reference = trained_model(simulated_cells(400, n_genes=100), 30, 64, plan_kwargs={"lr": 1e-2}, **keys)
    new, is_known = simulated_cells(600, n_genes=100, seed=5), np.arange(100) % 10 < 7
    new.obs["batch"] = "new"
    depth = new.X[:, is_known].sum(1).mean()
    cells = TokenDiffusion.prepare_query_anndata(new[:, is_known].copy(), reference, inplace=False)
    query = TokenDiffusion.load_query_data(cells, reference)
    query.train(10, batch_size=32, **QUIET)
    likelihood, scores, *_ = query.evaluate_held_out(n_steps=8, silent=True)  # in the genes that its cells have
    assert likelihood is None and scores.frame.loc[("overall", "generated"), "c2st_auc_forest_genes"] < 0.8
    query.save(tmp_path / "query")
    for model in (query, TokenDiffusion.load(tmp_path / "query", adata=False)):
        drawn = model.generate({"batch": "new"}, 300, seed=0, silent=True).X.toarray()
        assert drawn[:, is_known].sum(1).mean() == pytest.approx(depth, rel=0.06)
