"""What the package must be able to do, by what users call and on tiny data: a short test for each requirement.

Requirements are numbered. If one of these tests has to go, users lose something. Longer tests are in other folders.
"""

import gc
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
import scvi
import sentence_encoder
import torch
from anndata import AnnData
from condition_rows import EVERYTHING, SLOTS, cells
from mudata import MuData
from mudata_cells import join, mosaic, paired
from scipy import stats
from small_cells import QUIET, SMALL, simulated_cells, simulated_shares, trained_model

from scdiffgen import datasets, metrics, pl, tl
from scdiffgen.model import GaussianOptions, LatentOptions, NetworkOptions, TokenDiffusion, open_cells

FAST: dict[str, Any] = {"n_steps": 4, "seed": 1, "silent": True}
TYPES: dict[str, Any] = {"labels_key": "cell_type"}


@pytest.fixture(scope="module", autouse=True)
def _sentence_encoder() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        sentence_encoder.install(patch)
        yield
    aged.cache_clear()
    gc.collect()


@pytest.fixture(scope="module")
def everything() -> TokenDiffusion:
    """A model of cells with every kind of condition."""
    return trained_model(cells(), 15, plan_kwargs={"lr": 1e-2}, **EVERYTHING)


@pytest.fixture(scope="module")
def typed() -> TokenDiffusion:
    """A model of two types without conditions, so that tokens have to tell them apart; cells have stored tokens."""
    model = trained_model(simulated_cells(150), 30, plan_kwargs={"lr": 1e-2})
    model.write_back(**FAST)
    return model


@pytest.fixture(scope="module")
def screen() -> TokenDiffusion:
    """A model of types, batches and two drugs at several doses, with features."""
    adata = datasets.simulate(600, 40, n_types=2, doses=(1.0, 10.0))
    adata.uns["vectors"] = {"A": [1.0, 0.0], "B": [0.0, 1.0], "C": [1.0, 0.1]}
    keys = {"perturbation_key": "perturbation", "dose_key": "dose", "perturbation_features_key": "vectors"}
    return trained_model(adata, 6, 128, layer="counts", labels_key="cell_type", batch_key="batch", **keys)


@cache
def aged(options: NetworkOptions, process: str = "thinning", epochs: int = 2) -> TokenDiffusion:
    """A model of types and ages with options of the network."""
    return trained_model(
        simulated_cells(60), epochs, network=options, process=process, continuous_covariate_keys=["age"], **TYPES
    )


def nll(model: TokenDiffusion, adata: AnnData | None = None, n_draws: int = 2) -> np.ndarray:
    """Bound of the likelihood of each cell, with the same random numbers for all cells that are asked."""
    return model.get_nll_bound(adata, n_draws=n_draws, seed=0, silent=True).iloc[:, 0].to_numpy()


def changed(model: TokenDiffusion, **columns: Any) -> AnnData:
    """The cells of a model with other conditions."""
    adata = model.adata.copy()
    adata.obs = adata.obs.assign(**columns)
    return adata


def shares(adata: AnnData) -> np.ndarray:
    total = np.asarray(adata.X.sum(0)).ravel()
    return total / total.sum()


def type_axis(n_genes: int = 20) -> np.ndarray:
    return np.diff(np.log(simulated_shares(n_genes=n_genes)), axis=0)[0]


# Rows 1 to 5: registration, results, modalities, tokens, diffusion.


def test_row_01_setup_anndata_registers_every_kind(everything: TokenDiffusion) -> None:
    kinds = {spec.name: spec.kind for spec in everything.module.specs}
    assert set(kinds.values()) == {"category", "set", "hierarchy", "number"} and len(kinds) == 7
    assert everything.is_trained and "<table>" in everything._repr_html_()  # as shown in Jupyter
    assert float(everything.history["validation_loss"].iloc[-1, 0]) < float(
        everything.history["validation_loss"].iloc[0, 0]
    )


def test_row_02_results_in_obsm_and_varm(typed: TokenDiffusion) -> None:
    adata = typed.adata
    assert adata.obsm["X_generated"].shape == adata.shape and adata.varm["token_loadings"].shape == (20, 2)
    library = np.asarray(adata.obsm["X_generated"].sum(1)).ravel()
    np.testing.assert_array_equal(library, adata.X.sum(1))
    sc.pl.ranking(adata, "varm", "token_loadings", indices=[0, 1], n_points=5, show=False)


@pytest.mark.parametrize("make", [paired, mosaic])
def test_row_03_mudata_with_missing_modalities(make: Any) -> None:
    mdata: MuData = make(60)
    model = trained_model(mdata, 2, labels_key="sort_of_cell")
    made = model.generate({"sort_of_cell": "a"}, 4, **FAST)
    assert made["rna"].shape == (4, 12) and made["prot"].shape == (4, 5)
    imputed = model.generate_modality(mdata, "rna", indices=[15, 20], **FAST)
    assert (imputed["prot"].X.sum(1) > 0).all()
    assert (imputed["rna"].X != mdata[[15, 20]]["rna"].X).sum() == 0


def test_row_03_rna_with_chromatin() -> None:
    mdata = paired(60)
    peaks = AnnData((mdata["rna"].X > 0).astype(np.float32), obs=mdata["rna"].obs)  # open or closed
    peaks.var_names = [f"chr1:{i}-{i + 9}" for i in range(12)]
    both = join({"rna": mdata["rna"], "atac": peaks})
    made = trained_model(both, 1).generate(n_cells=3, **FAST)
    assert made["atac"].var_names[0] == "chr1:0-9" and made["atac"].X.sum() > 0


def test_row_04_encoder_tokens_transformer_readout() -> None:
    adata = simulated_cells(30)
    TokenDiffusion.setup_anndata(adata)
    model = TokenDiffusion(adata, n_tokens=64, token_dim=256, n_layers=1)
    model.train(max_epochs=1, **QUIET)
    assert model.get_latent_representation(indices=[0, 1]).shape == (2, 64 * 256)
    parts = model.get_token_contributions(indices=[0, 1], silent=True)
    assert len(parts.uns["terms"]) == 64
    total = sum(parts.layers[name] for name in parts.uns["terms"]) + parts.var["baseline"].to_numpy()
    np.testing.assert_allclose(total, parts.X, atol=1e-3)  # the read-out is a sum over tokens


def test_row_05_diffusion_on_expression() -> None:
    made = {}
    for sampler in ("ancestral", "ddim", "dpm_solver"):
        options = GaussianOptions(prediction="eps", schedule="linear", sampler=sampler)
        model = trained_model(simulated_cells(60), 2, process=options, **TYPES)
        made[sampler] = model.generate({"cell_type": "a"}, 5, n_steps=10, seed=1, silent=True).X.toarray()
    assert all((counts >= 0).all() and counts.sum() > 0 for counts in made.values())
    assert all((made[a] != made[b]).any() for a, b in combinations(made, 2))
    levels = model.module.path.corrupt(torch.zeros(50, 3)).state.time
    assert len(levels.unique()) > 40  # each cell its own level
    assert model.generate({"cell_type": "a"}, 2, n_steps=1000, seed=1, silent=True).X.sum() > 0


# Rows 6 to 12: conditions.


@pytest.mark.parametrize("column", ["cell_type", "batch", "donor"])
def test_row_06_categories(everything: TokenDiffusion, column: str) -> None:
    values = everything.adata.obs[column].unique()
    first, other = (nll(everything, changed(everything, **{column: value})) for value in values[:2])
    assert np.abs(first - other).max() > 1e-3


def test_row_07_knock_out_drug_and_dose() -> None:
    model = trained_model(cells(), 4, **SLOTS)
    asked = {"gene": "K1", "gene_dose": 1.0, "drug": "D2", "drug_dose": 3.0}
    made = model.generate(asked, 3, **FAST)
    assert made.obs["gene"].tolist() == ["K1"] * 3 and made.obs["drug"].tolist() == ["D2"] * 3
    high, low = (nll(model, changed(model, gene="K1", gene_dose=1.0, drug="D2", drug_dose=x)) for x in (3.0, 0.5))
    assert np.abs(high - low).max() > 1e-6


def test_row_08_sets_of_any_length(everything: TokenDiffusion) -> None:
    for guides, doses in ((["A+B", "B+A"], ["0.5+2.0", "2.0+0.5"]), (["A", "A+ctrl"], ["1.0", "1.0"])):
        one, same = (
            everything.generate({"guide": guide, "dose": dose}, 4, **FAST)
            for guide, dose in zip(guides, doses, strict=True)
        )
        assert (one.X != same.X).nnz == 0  # order and padding do not matter
    assert (everything.generate({"guide": "ctrl", "dose": "0"}, 4, **FAST).X != one.X).nnz  # the empty set does


def test_row_09_adaptive_layer_norm(everything: TokenDiffusion) -> None:
    name = "denoiser.network.trunk.transformer.blocks.0.modulation.weight"
    fresh = TokenDiffusion(everything.adata, **SMALL).module.state_dict()[name]
    assert not fresh.any() and everything.module.state_dict()[name].any()  # zero at first, trained


def test_row_10_hierarchy(everything: TokenDiffusion) -> None:
    lung = everything.generate({"organ": "lung"}, 10, **FAST)
    assert set(lung.obs["tissue"]) == {"lobe"}
    with pytest.raises(ValueError, match="lobe"):
        everything.generate({"organ": "blood", "tissue": "lobe"}, 1, **FAST)


def test_row_11_text_by_a_pretrained_encoder(everything: TokenDiffusion) -> None:
    made = everything.generate({"note": "a cell that nobody described"}, 3, **FAST)
    assert made.obs["note"].tolist() == ["a cell that nobody described"] * 3
    assert (made.X != everything.generate({"note": "a naive cell"}, 3, **FAST).X).nnz


def test_row_12_any_combination_of_conditions(everything: TokenDiffusion) -> None:
    values = {"cell_type": "b", "batch": "y", "donor": "d1", "organ": "lung", "note": "a naive cell"}
    for n in (0, 1, 3, 5):
        asked = dict([*values.items()][:n])
        obs = everything.generate(asked, 4, **FAST).obs
        assert all((obs[name] == value).all() for name, value in asked.items())
        drawn = set(obs["drawn_conditions"].iloc[0].split(", "))
        assert set(values) - set(asked) <= drawn and not drawn & set(asked)
        assert obs[[*values]].notna().to_numpy().all()


# Rows 13 to 16: how conditions and positions enter, attention across cells, numbers of tokens.


@pytest.mark.parametrize("kind", ["adaln", "cross_attention", "concat"])
def test_row_13_conditioning(kind: Any) -> None:
    model = aged(NetworkOptions(conditioning=kind))
    a, b = (nll(model, changed(model, cell_type=value)) for value in "ab")
    assert np.isfinite(a).all() and np.abs(a - b).max() > 1e-6


@pytest.mark.parametrize("kind", ["learned", "sinusoidal", "none"])
def test_row_14_positions_of_tokens(kind: Any) -> None:
    positions = aged(NetworkOptions(positions=kind)).module.state_dict()["denoiser.network.trunk.positions"]
    assert bool(positions.any()) == (kind != "none")
    assert np.isfinite(nll(aged(NetworkOptions(positions=kind)))).all()


def test_row_15_attention_across_cells(tmp_path: Path) -> None:
    model = aged(NetworkOptions(attention="across"), epochs=10)
    tokens = model.get_latent_representation(silent=True)
    order = np.random.default_rng(0).permutation(len(tokens))
    permuted = model.get_latent_representation(indices=order, silent=True)
    np.testing.assert_allclose(permuted, tokens[order], atol=1e-4)
    alone = model.get_latent_representation(indices=[0], silent=True)
    assert np.abs(alone - tokens[:1]).max() > 1e-3  # a cell depends on the cells beside it
    within = aged(NetworkOptions(), epochs=10)
    np.testing.assert_allclose(
        within.get_latent_representation(indices=[0]), within.get_latent_representation()[:1], atol=1e-4
    )
    made = model.generate({"cell_type": "a"}, 4, **FAST)
    assert (made.X != model.generate({"cell_type": "a"}, 4, batch_size=2, **FAST).X).nnz
    model.save(tmp_path / "model")
    loaded = TokenDiffusion.load(tmp_path / "model", model.adata, accelerator="cpu")
    assert (made.X != loaded.generate({"cell_type": "a"}, 4, **FAST).X).nnz == 0


def test_row_16_numbers_of_tokens_compared() -> None:
    losses = {}
    for n_tokens in (1, 4):
        adata = simulated_cells(100)
        TokenDiffusion.setup_anndata(adata)
        scvi.settings.seed = 0
        model = TokenDiffusion(adata, **{**SMALL, "n_tokens": n_tokens})
        model.train(max_epochs=2, **QUIET)
        losses[n_tokens] = float(model.history["validation_loss"].iloc[-1, 0])
        assert model.get_token_loadings().shape == (20, n_tokens)
    assert losses[1] != losses[4] and all(1 < loss < 4 for loss in losses.values())  # nats; log(20) is 3


# Rows 17 to 21: what tokens mean, latent diffusion.


def test_row_17_gene_loadings(typed: TokenDiffusion) -> None:
    for method in ("regression", "readout", "gradient"):
        loadings = typed.get_token_loadings(method=method)
        r = [abs(stats.spearmanr(loadings[token], type_axis()).statistic) for token in loadings]
        assert max(r) > 0.6, method  # some token has the genes by which types differ
    assert loadings.attrs["explained"] == sorted(loadings.attrs["explained"], reverse=True)


def test_row_18_activations(typed: TokenDiffusion) -> None:
    activation = typed.get_token_activation(silent=True)
    is_b = typed.adata.obs["cell_type"] == "b"
    auc = [stats.mannwhitneyu(x[is_b], x[~is_b]).statistic / is_b.sum() / (~is_b).sum() for _, x in activation.items()]
    assert max(max(auc), 1 - min(auc)) > 0.9
    assert (tl.token_associations(typed.adata, "cell_type")["token"].nunique()) == 2


def test_row_19_enrichment_of_gene_sets(typed: TokenDiffusion) -> None:
    pytest.importorskip("decoupler")
    genes = typed.adata.var_names[np.argsort(type_axis())]
    sets = {"down": [*genes[:5]], "up": [*genes[-5:]], "neither": [*genes[::4]]}
    table = tl.enrich_tokens(typed.adata, sets)
    strongest = table.loc[table["score"].abs().idxmax()]
    assert strongest["gene_set"] in ("up", "down") and strongest["fdr"] < 0.05


def test_row_20_heat_map_umap_and_tsne_of_tokens(typed: TokenDiffusion) -> None:
    axis = pl.token_heatmap(typed.adata, "cell_type", show=False)
    assert axis.images[0].get_array().shape == (2, 2)
    tokens = typed.get_token_adata(n_neighbors=10, silent=True)
    sc.tl.tsne(tokens, use_rep="X", perplexity=10)
    sc.tl.umap(tokens, maxiter=20)
    for basis in ("tsne", "umap"):
        typed.adata.obsm[f"X_{basis}"] = tokens.obsm[f"X_{basis}"]
        (axis,) = pl.token_embedding(typed.adata, ["token_1"], basis, show=False)
        np.testing.assert_allclose(
            np.sort(axis.collections[0].get_offsets()[:, 0]), np.sort(tokens.obsm[f"X_{basis}"][:, 0])
        )


def test_row_21_latent_diffusion_on_tokens() -> None:
    model = trained_model(simulated_cells(80), 10, process=LatentOptions(latent_dim=3), **TYPES)
    assert model.get_latent_representation().shape == (80, 2 * 3)
    made = model.generate({"cell_type": "a"}, 5, **FAST)
    assert made.shape == (5, 20) and (made.X.sum(1) > 0).all()


# Rows 22 to 33: numbers, expression, vocabularies, nested tokens.


NUMBER_ROWS = {22: "sinusoidal", 23: "fourier", 24: "direct", 25: "learned", 26: "rotary", 27: "hybrid", 31: "wavelet"}


@pytest.mark.parametrize(("row", "kind"), NUMBER_ROWS.items())
def test_rows_22_to_27_and_31_numbers(row: int, kind: Any) -> None:
    """An embedding of ages is seen by the network, and is another than the default."""
    model = aged(NetworkOptions(number_embedding=kind, level_embedding=kind))
    now, later = nll(model), nll(model, changed(model, age=model.adata.obs["age"] + 15))
    assert np.isfinite(now).all() and np.abs(now - later).max() > 1e-6
    default = nll(aged(NetworkOptions()))
    assert (now == default).all() if row == 22 else (now != default).any()


def test_row_28_expression_embedded_per_gene() -> None:
    model = aged(NetworkOptions(expression_embedding="fourier"))
    assert any(name.endswith("encoder.functions.to_functions.weight") for name in model.module.state_dict())
    assert np.isfinite(nll(model)).all() and (nll(model) != nll(aged(NetworkOptions()))).any()


def test_row_29_numbers_rotate_attention() -> None:
    rotated, embedded = (
        aged(NetworkOptions(conditioning="cross_attention", attention_numbers=kind)) for kind in ("rotated", "embedded")
    )
    assert (nll(rotated) != nll(embedded)).any()
    now, later = nll(rotated), nll(rotated, changed(rotated, age=rotated.adata.obs["age"] + 15))
    assert np.abs(now - later).max() > 1e-6


def test_row_30_embeddings_compared_on_own_data() -> None:
    kinds = NUMBER_ROWS.values()
    forms = {kind: aged(NetworkOptions(number_embedding=kind, level_embedding=kind)) for kind in kinds}
    table = pd.Series({kind: float(model.history["validation_loss"].iloc[-1, 0]) for kind, model in forms.items()})
    assert table.between(1, 4).all() and table.is_unique


def test_row_32_vocabularies_of_many_categories(tmp_path: Path) -> None:
    adata = simulated_cells(300)
    adata.obs["well"] = [f"well_{i // 3}" for i in range(300)]
    n_weights = {}
    for vocabulary in ("table", "hashed", "coded"):
        sizes = []
        for column in ("well", "batch"):
            network = NetworkOptions(vocabulary=vocabulary)
            model = trained_model(adata.copy(), 1, network=network, categorical_covariate_keys=[column])
            sizes.append(sum(w.numel() for n, w in model.module.state_dict().items() if n.startswith("denoiser.embed")))
        n_weights[vocabulary] = sizes
        model.save(tmp_path / vocabulary)
        loaded = TokenDiffusion.load(tmp_path / vocabulary, False, accelerator="cpu")
        made = [each.generate({"batch": "x"}, 3, **FAST).X.toarray() for each in (model, loaded)]
        np.testing.assert_array_equal(*made)
    assert n_weights["table"][0] > n_weights["table"][1]
    assert n_weights["hashed"][0] == n_weights["hashed"][1] and n_weights["coded"][0] == n_weights["coded"][1]
    assert n_weights["coded"][0] < n_weights["table"][0]


def test_row_33_nested_tokens_truncated_after_training() -> None:
    adata = simulated_cells(60)
    TokenDiffusion.setup_anndata(adata, **TYPES)
    model = TokenDiffusion(adata, **{**SMALL, "n_tokens": 4}, network=NetworkOptions(nested_tokens=True))
    model.train(max_epochs=3, **QUIET)
    for n_tokens in (1, 3):
        cut = model.truncate_tokens(n_tokens)
        assert cut.get_token_loadings().shape == (20, n_tokens)  # each prefix decodes
        assert cut.generate({"cell_type": "a"}, 3, **FAST).shape == (3, 20) and np.isfinite(nll(cut)).all()
    np.testing.assert_array_equal(nll(model.truncate_tokens(4)), nll(model))


# Rows 34 to 40: vocabulary of queries, storage, precision, losses, unseen conditions, guidance.


def test_row_34_new_vocabulary_in_queries() -> None:
    reference = trained_model(simulated_cells(60), 1, labels_key="cell_type", batch_key="batch")
    new = simulated_cells(40, seed=5)
    new.obs["cell_type"] = np.where(new.obs["cell_type"] == "b", "new type", "a")
    with pytest.raises(ValueError, match="new type"):
        reference.get_nll_bound(new)
    query = TokenDiffusion.load_query_data(new, reference, accelerator="cpu")
    query.train(max_epochs=1, **QUIET)
    made = query.generate(pd.DataFrame({"cell_type": ["new type", "b"]}), **FAST)
    assert made.obs["cell_type"].tolist() == ["new type", "b"]


def test_row_35_compressed_storage(typed: TokenDiffusion, tmp_path: Path) -> None:
    stored = {}
    for dtype in ("float32", "float16"):
        adata = typed.adata.copy()
        typed.write_back(adata, keys=["X_tokens"], dtype=dtype)
        stored[dtype] = adata.obsm["X_tokens"]
    assert stored["float16"].nbytes * 2 == stored["float32"].nbytes
    np.testing.assert_allclose(stored["float16"], stored["float32"], rtol=1e-3, atol=1e-6)
    path = typed.generate_to(tmp_path / "cells.zarr", n_cells=6, chunk_size=3, **FAST)
    assert anndata.io.read_zarr(path).X.dtype == np.int32


def test_row_36_low_precision() -> None:
    adata = simulated_cells(60)
    TokenDiffusion.setup_anndata(adata, **TYPES)
    losses = []
    for precision in ("32-true", "bf16-mixed"):
        scvi.settings.seed = 0
        model = TokenDiffusion(adata, **SMALL)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("scdiffgen.train._plan.warn_of_slow_bfloat16", lambda *rates: None)
            model.train(max_epochs=3, precision=precision, **QUIET)
        losses.append(float(model.history["validation_loss"].iloc[-1, 0]))
        assert {weight.dtype for weight in model.module.parameters()} == {torch.float32}
    assert losses[1] == pytest.approx(losses[0], rel=0.02) and losses[0] != losses[1]


def test_row_37_losses_are_ordered_by_distance() -> None:
    model = trained_model(simulated_cells(150), 20, plan_kwargs={"lr": 1e-2}, **TYPES)
    means, random = [], np.random.default_rng(0)
    for share in (0.0, 0.3, 0.9):  # of the molecules that are moved to other genes
        adata = model.adata.copy()
        moved = random.binomial(adata.X.astype(int), share)
        to = np.stack([random.multinomial(n, np.full(20, 1 / 20)) for n in moved.sum(1)])
        adata.X = (adata.X - moved + to).astype(np.float32)
        means.append(nll(model, adata).mean())
    assert means[0] < means[1] < means[2]


def test_row_38_unseen_combinations_and_perturbations_by_features(screen: TokenDiffusion) -> None:
    controls = screen.adata[screen.adata.obs["perturbation"] == "control"].copy()
    both = screen.predict_perturbation(controls, {"perturbation": "A+B", "dose": "1.0+10.0"}, silent=True)
    assert both.shape == controls.shape and (both.X != controls.layers["counts"]).nnz
    unseen = screen.predict_perturbation(controls, {"perturbation": "C", "dose": "10.0"}, silent=True)
    like = screen.predict_perturbation(controls, {"perturbation": "A", "dose": "10.0"}, silent=True)
    before = np.log(shares(controls_as_counts(controls)) + 1e-4)
    change = [np.log(shares(each) + 1e-4) - before for each in (unseen, like)]
    assert np.corrcoef(*change)[0, 1] > 0.5  # C has nearly the features of A


def controls_as_counts(adata: AnnData) -> AnnData:
    return AnnData(adata.layers["counts"], adata.obs, adata.var)


def test_row_39_counterfactuals_and_doses(screen: TokenDiffusion) -> None:
    controls = screen.adata[screen.adata.obs["perturbation"] == "control"].copy()
    nothing = screen.predict_perturbation(controls, {"perturbation": "control", "dose": "0"}, silent=True)
    assert (nothing.X != controls.layers["counts"]).nnz == 0
    truth, doses = [], (1.0, 10.0)
    for dose in (0.0, *doses):
        drugs = controls.obs.assign(perturbation="A" if dose else "control", dose_A=dose, dose_B=0.0)
        truth.append(datasets.true_expression(screen.adata, drugs).mean(0))
    curve = screen.dose_response(controls, "A", doses, n_bootstrap=2, n_steps=4, silent=True)
    means = curve.pivot_table(index="dose", columns="gene", values="mean", sort=False)[controls.var_names].to_numpy()
    asked, expected = means[-1] - means[-2], np.log1p(1e4 * truth[-1]) - np.log1p(1e4 * truth[-2])
    assert np.corrcoef(asked, expected)[0, 1] > 0.5


def test_row_40_guidance_and_interpolation() -> None:
    model = trained_model(simulated_cells(150), 60, plan_kwargs={"lr": 1e-2}, **TYPES)
    axis = []
    for scale in (0.0, 1.0, 3.0):
        made = model.generate({"cell_type": "b"}, 60, guidance_scale=scale, **FAST)
        axis.append(shares(made) @ type_axis())
    assert axis[0] < axis[1] < axis[2]  # more typical of the type
    between = model.interpolate({"cell_type": "a"}, {"cell_type": "b"}, [0, 1], n_cells=5, **FAST)
    for weight, kind in ((0, "a"), (1, "b")):
        ends = between[between.obs["weight"] == weight].X
        assert (ends != model.generate({"cell_type": kind}, 5, **FAST).X).nnz == 0


# Rows 41 to 44: large data, augmentation, batches, life of a model.


def test_row_41_larger_than_memory_and_resumable(tmp_path: Path) -> None:
    simulated_cells(60).write_h5ad(tmp_path / "cells.h5ad")
    adata = open_cells(tmp_path / "cells.h5ad")
    assert not isinstance(adata.X, np.ndarray)  # counts stay on disk
    model = trained_model(adata, 1, **TYPES)
    whole = model.generate_to(tmp_path / "whole.h5ad", {"cell_type": "a"}, 9, chunk_size=3, **FAST)
    stopped = tmp_path / "stopped.h5ad"
    generate, n_chunks = type(model.module).generate, iter(range(10))

    def interrupted(*arguments: Any, **options: Any) -> torch.Tensor:
        if next(n_chunks) == 2:
            raise KeyboardInterrupt
        return generate(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model.module), "generate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.generate_to(stopped, {"cell_type": "a"}, 9, chunk_size=3, **FAST)
    assert (tmp_path / "stopped.h5ad.partial").exists() and not stopped.exists()
    model.generate_to(stopped, {"cell_type": "a"}, 9, chunk_size=3, **FAST)
    assert (anndata.read_h5ad(stopped).X != anndata.read_h5ad(whole).X).nnz == 0


def test_row_42_augmentation() -> None:
    real = simulated_cells(150)
    rare = real[(real.obs["cell_type"] == "a") | (np.arange(150) % 5 == 0)].copy()
    model = trained_model(rare, 20, plan_kwargs={"lr": 1e-2}, **TYPES)
    made = model.generate({"cell_type": "b"}, 60, **FAST)
    augmented = sc.concat({"real": rare, "generated": made}, label="source", index_unique="-")
    counts = augmented.obs["cell_type"].value_counts()
    assert counts["b"] > 60 and set(augmented.obs["source"]) == {"real", "generated"}
    true = simulated_shares()
    assert stats.pearsonr(np.log(shares(made) + 1e-3), np.log(true[1] + 1e-3)).statistic > 0.8


def test_row_43_batch_transfer(screen: TokenDiffusion) -> None:
    controls = screen.adata[screen.adata.obs["perturbation"] == "control"].copy()
    moved = screen.transfer_batch(controls, "batch_1", n_steps=4, silent=True)
    assert (moved.obs["batch"] == "batch_1").all()
    is_there = (controls.obs["batch"] == "batch_1").to_numpy()
    assert (moved.X[is_there] != controls.layers["counts"][is_there]).nnz == 0
    assert (moved.X[~is_there] != controls.layers["counts"][~is_there]).nnz
    np.testing.assert_array_equal(moved.X.sum(1), controls.layers["counts"].sum(1))


def test_row_44_query_mapping_hub_tuning_save_and_load(tmp_path: Path) -> None:
    model = aged(NetworkOptions())
    model.save(tmp_path / "model", save_anndata=True)
    made = [each.generate({"cell_type": "a"}, 3, **FAST).X for each in (model, TokenDiffusion.load(tmp_path / "model"))]
    assert (made[0] != made[1]).nnz == 0
    query = TokenDiffusion.load_query_data(simulated_cells(20, seed=4), model, accelerator="cpu")
    assert query.get_latent_representation().shape == (20, 16)
    pytest.importorskip("huggingface_hub")
    model.save_for_hub(tmp_path / "hub", title="Two types", license_info="mit")
    assert "TokenDiffusion" in (tmp_path / "hub/README.md").read_text()
    assert callable(pytest.importorskip("scvi.autotune", exc_type=ImportError).run_autotune)


# What only this package has.


def test_row_own_likelihood_is_bounded_by_the_truth(typed: TokenDiffusion) -> None:
    counts, labels = typed.adata.X, (typed.adata.obs["cell_type"] == "b").to_numpy(int)
    exact = -stats.multinomial.logpmf(counts.astype(int), counts.sum(1).astype(int), simulated_shares()[labels])
    bound = nll(typed, n_draws=20)
    assert 0 < bound.mean() - exact.mean() < 0.2 * exact.mean()  # of the true distribution; no model is better


def test_row_own_deepen_and_denoise(typed: TokenDiffusion) -> None:
    counts = typed.adata.X
    deeper = typed.deepen(factor=2.0, **FAST).X.toarray()
    assert (deeper >= counts).all() and deeper.sum() == 2 * counts.sum()
    true = simulated_shares()[(typed.adata.obs["cell_type"] == "b").to_numpy(int)]
    denoised = typed.get_normalized_expression(return_numpy=True, silent=True)
    raw = counts / counts.sum(1, keepdims=True)
    assert np.square(denoised - true).sum() < 0.5 * np.square(raw - true).sum()


def test_row_own_additive_tokens_that_return(typed: TokenDiffusion) -> None:
    again = trained_model(simulated_cells(150), 30, plan_kwargs={"lr": 1e-2})  # the same cells, registered again
    again.write_back(keys=["token_loadings"], silent=True)
    similarity = tl.token_similarity(typed.adata, again.adata)
    assert len(similarity) and similarity.select_dtypes("number").abs().to_numpy().max() > 0.9
    held = typed.hold_tokens(["token_1", "token_2"])
    spread = [each.get_normalized_expression(return_numpy=True, silent=True).std(0).max() for each in (held, typed)]
    assert spread[0] < 0.3 * spread[1]  # without tokens, cells differ by their own molecules alone


def test_row_own_self_evaluation() -> None:
    model = trained_model(simulated_cells(200), 2, **TYPES)
    found = model.evaluate_held_out(n_steps=2, silent=True)
    assert "model" in str(found.likelihood) and len(found.scores.frame)


def test_row_own_simulated_experiment_and_power(typed: TokenDiffusion) -> None:
    planted = {"gene0": 2.0, "gene1": -2.0}
    design = {"n_donors": 3, "n_cells": 60, "donor_sd": 0.0, "sample_sd": 0.0}
    study = tl.simulate_experiment(typed, planted, **design, n_steps=4, silent=True)
    found = study.var["log2_fold_change"]
    assert found[[*planted]].to_dict() == planted and not found.drop([*planted]).any()
    arms = [shares(study[study.obs["arm"] == arm]) for arm in ("control", "treated")]
    ratio = pd.Series(np.log2(arms[1] / arms[0]), study.var_names)
    assert ratio["gene0"] - ratio["gene1"] == pytest.approx(4, abs=0.6)
    experiment = {"n_steps": 2, "donor_sd": 0.05, "sample_sd": 0.05}
    table = tl.power_analysis(
        typed, [1.0, -1.0], n_donors=[3], n_cells=[30], n_replicates=1, share_changed=0.4, experiment=experiment
    )
    assert table["power"].between(0, 1).all() and (table["depth_needed"] > 0).all()


def test_row_own_next_experiment(screen: TokenDiffusion) -> None:
    candidates = pd.DataFrame({"cell_type": ["type_0", "type_1"], "perturbation": "C", "dose": 1.0, "cost": [2.0, 1.0]})
    ranked = tl.rank_experiments(screen, candidates)
    assert ranked["cell_type"].tolist() == ["type_1", "type_0"] and ranked["error_left"].between(0, 1).all()
    assert len(pl.ranked_experiments(ranked, show=False).patches) == 2


def test_row_own_disclosure_risk() -> None:
    members, others = simulated_cells(150), simulated_cells(150, seed=9)
    others.obs_names = [f"other_{name}" for name in others.obs_names]
    copied = metrics.membership_inference(members, others, members.copy(), n_bootstrap=20)
    model = trained_model(members.copy(), 2, **TYPES)
    generated = model.generate(n_cells=150, **FAST)
    found = metrics.membership_inference(members, others, generated, n_bootstrap=20)
    attack = ("cell", "distance")
    assert copied.loc[attack, "auc"] == 1 and found.loc[attack, "auc"] < 0.75
