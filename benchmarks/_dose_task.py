"""Dose-response curves of simulated cells against the truth, at doses that were trained on, between and beyond them.

Training cells are of five doses of two perturbations, alone and together. Predictions start from control cells; what
they should be is known exactly at any dose, so no cells of other doses are needed.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
import scvi
from anndata import AnnData
from numpy.typing import NDArray

from benchmarks._dose_truth import true_mean
from benchmarks._perturbation_data import Settings
from benchmarks._perturbation_models import untrained_model
from scdiffgen.datasets import simulate, true_expression
from scdiffgen.metrics import pearson_delta
from scdiffgen.metrics.baselines import dose_shift
from scdiffgen.model import NetworkOptions, TokenDiffusion

TRANSFERRED_DOSE = "sinusoidal"  # the network beside whose rows transferred responses stand
NUMBER_KINDS = ("sinusoidal", "fourier", "direct", "learned", "rotary", "hybrid")
NETWORKS = {kind: NetworkOptions(number_embedding=kind) for kind in NUMBER_KINDS} | {
    "cross_attention": NetworkOptions(conditioning="cross_attention"),
    "cross_attention, rotated": NetworkOptions(conditioning="cross_attention", attention_numbers="rotated"),
}
TRAINED = (0.1, 0.3, 1.0, 3.0, 10.0)
SPANS = {"seen": (0.3, 3.0), "between": (0.17, 0.55, 1.7, 5.5), "beyond": (30.0,)}
DOSES = {dose: span for span, doses in SPANS.items() for dose in doses}
RESPONDING = 0.25  # smallest true change of mean log expression, at the largest dose, of a gene that responds

Curves = Mapping[float, NDArray[np.float64]]  # dose -> mean log expression (genes,)


def simulated_cells(n_cells: int, n_genes: int, seed: int) -> AnnData:
    """Cells to train on, no two seeds with the same truth."""
    return simulate(n_cells, n_genes, n_types=3, n_batches=1, doses=TRAINED, seed=seed)


def dose_model(adata: AnnData, kind: str, settings: Settings, seed: int) -> TokenDiffusion:
    """Train one of the networks."""
    scvi.settings.seed = seed
    TokenDiffusion.setup_anndata(
        adata, layer="counts", labels_key="cell_type", perturbation_key="perturbation", dose_key="dose"
    )
    model = TokenDiffusion(adata, network=NETWORKS[kind], **settings.size)
    model.train(max_epochs=settings.max_epochs, enable_progress_bar=False, enable_model_summary=False)
    return model


def dose_scores(
    adata: AnnData,
    kinds: Sequence[str],
    settings: Settings,
    seed: int,
    make: Callable[[AnnData, str, Settings, int], TokenDiffusion] = dose_model,
) -> pd.DataFrame:
    """Score the curves of networks, of baselines, and of as many cells from the truth.

    A row a perturbation, dose and prediction: ``span``; ``rmse`` of mean log expression over genes, and over genes that
    respond; and the correlation over genes of the changes. The first model also transfers what was measured at other
    doses, as is the default.
    """
    chosen = np.flatnonzero(adata.obs["perturbation"] == "control")[: settings.max_cells]
    controls = adata[chosen]
    models = {kind: make(adata, kind, settings, seed) for kind in kinds}
    rows = []
    for perturbation in ("A", "B"):
        truth = {dose: true_mean(adata, controls, perturbation, dose) for dose in (0.0, *DOSES)}
        responding = np.abs(truth[max(DOSES)] - truth[0.0]) > RESPONDING
        curves = baseline_curves(adata, controls, perturbation, seed)
        curves |= {kind: _predicted(model, perturbation, chosen, seed, "network") for kind, model in models.items()}
        first, model = next(iter(models.items()))
        curves[f"{first}: transferred"] = _predicted(model, perturbation, chosen, seed, "auto")
        for name, curve in curves.items():
            rows += [
                {"perturbation": perturbation, "dose": dose, "span": span, "prediction": name}
                | _score(curve[dose], truth[dose], truth[0.0], responding)
                for dose, span in DOSES.items()
            ]
    return pd.DataFrame(rows)


def untrained_dose_model(adata: AnnData, *_: object) -> TokenDiffusion:
    """A model that transfers responses and is not trained."""
    setup = {"layer": "counts", "labels_key": "cell_type", "perturbation_key": "perturbation", "dose_key": "dose"}
    return untrained_model(adata, setup)


def baseline_curves(adata: AnnData, controls: AnnData, perturbation: str, seed: int) -> dict[str, Curves]:
    """Curves without a model."""
    obs, start = adata.obs, _mean(controls)
    untreated = _mean(adata[obs["perturbation"] == "control"])
    of_dose = {d: _mean(adata[(obs["perturbation"] == perturbation) & (obs["dose"] == f"{d:g}")]) for d in TRAINED}
    shifts = np.array([mean - untreated for mean in of_dose.values()])
    nearest = {dose: shifts[np.abs(np.log(np.array(TRAINED) / dose)).argmin()] for dose in DOSES}
    rng = np.random.default_rng(seed)
    return {
        "real cells": {dose: _drawn(adata, controls, perturbation, dose, rng) for dose in DOSES},
        "no change": dict.fromkeys(DOSES, start),
        "nearest dose": {dose: start + nearest[dose] for dose in DOSES},
        "dose interpolation": {dose: start + dose_shift(dose, TRAINED, shifts) for dose in DOSES},
    }


def _predicted(model: TokenDiffusion, perturbation: str, controls: NDArray[np.intp], seed: int, source: str) -> Curves:
    frame = model.dose_response(
        None, perturbation, list(DOSES), indices=controls, source=source, seed=seed, silent=True
    )
    return {dose: curve["mean"].to_numpy() for dose, curve in frame.groupby("dose", sort=False)}


def _drawn(
    adata: AnnData, controls: AnnData, perturbation: str, dose: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Mean of cells drawn from the truth, one for each control cell: what is left is chance."""
    shares = true_expression(adata, controls.obs.assign(**{f"dose_{perturbation}": dose}))
    library = np.asarray(controls.layers["counts"].sum(1)).ravel().astype(int)
    rates = rng.standard_gamma(adata.uns["simulation"]["concentration"] * shares)
    counts = rng.multinomial(library, rates / rates.sum(1, keepdims=True))
    return np.log1p(1e4 * counts / library[:, None]).mean(0)


def _score(
    predicted: NDArray[np.float64],
    truth: NDArray[np.float64],
    control: NDArray[np.float64],
    responding: NDArray[np.bool_],
) -> dict[str, float]:
    error = (predicted - truth) ** 2
    return {
        "rmse": float(np.sqrt(error.mean())),
        "rmse_responding": float(np.sqrt(error[responding].mean())),
        "pearson_delta": pearson_delta(truth - control, predicted - control),
    }


def _mean(cells: AnnData) -> NDArray[np.float64]:
    """Mean log expression ``(genes,)``."""
    return np.asarray(cells.X.mean(0), dtype=np.float64).ravel()
