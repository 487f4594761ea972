"""Evaluation of a trained model on held-out cells: likelihood, scores and remarks."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from mudata import MuData
from scipy import sparse
from scvi.model.base import BaseModelClass
from torch import Tensor

from scdiffgen._names import symbols_of
from scdiffgen.conditions import Conditions
from scdiffgen.data import categories_of_condition, check_counts_again, counts_keys, registered_conditions

from ._cells import Cells, blocks_of
from ._model_access import enough_steps, gene_names, modalities, registered
from ._sampler import N_STEPS, Sampler
from ._training_data import training_indices
from ._training_summary import TrainingCells, absent_genes, are_training_cells, measured_only, training_summary

if TYPE_CHECKING:
    from scdiffgen.metrics import Evaluation

FEW_CELLS = 50  # minimum number of cells of a label
ENOUGH_CELLS = 100  # minimum number of held-out cells; half of them give the AUC a standard error of 0.06
NOT_NEW = 0.8  # novelty
BY_CHANCE = 0.05  # share of the variance, or of the rows of a table, that may be marked by chance
N_BOOTSTRAP = 200  # number of bootstrap resamples
SOURCES = ("generated", "other_real")  # negative controls would double the time
MORE_CELLS = "pass more as `adata`, or train with a larger `validation_size`"


class HeldOutEvaluation(NamedTuple):
    """Result of :meth:`TokenDiffusion.evaluate_held_out`."""

    likelihood: pd.DataFrame | None
    scores: Evaluation
    dispersion: pd.DataFrame
    remarks: list[str]
    programs: pd.DataFrame | None = None

    def __repr__(self) -> str:
        tables = ", ".join(f"`{name}` ({len(table)} rows)" for name, table in self._tables().items())
        return "\n".join([f"Held-out evaluation, with {tables}", *(f"- {remark}" for remark in self.remarks)])

    def _repr_html_(self) -> str:
        remarks = "".join(f"<li>{escape(remark)}</li>" for remark in self.remarks)
        shown = {
            name: table.to_html(max_rows=20, float_format="%.3g", na_rep="") for name, table in self._tables().items()
        }
        tables = "".join(f"<details><summary>{name}</summary>{table}</details>" for name, table in shown.items())
        return f"<div><b>Held-out evaluation</b><ul>{remarks}</ul>{tables}</div>{self.scores._repr_html_()}"

    def _tables(self) -> dict[str, pd.DataFrame]:
        tables = self._asdict() | {"scores": self.scores.frame}
        return {name: table for name, table in tables.items() if isinstance(table, pd.DataFrame)}


def evaluated_held_out(
    model: BaseModelClass,
    adata: AnnData | MuData | None,
    modality: str | None,
    max_cells: int,
    sampler: Sampler,
    generator: torch.Generator,
    programs: Mapping[str, Sequence[str]] | None,
    gene_symbols: str | None,
    *,
    silent: bool,
) -> HeldOutEvaluation:
    """Compare held-out cells with matched samples, whose library sizes are drawn as in ``generate``."""
    from scdiffgen.metrics import FewCellsWarning
    from scdiffgen.metrics._comparison import HEADLINES, OF_LABELS, Comparison, Settings
    from scdiffgen.metrics._evaluate import evaluated
    from scdiffgen.metrics._spread import program_weights, programs_of

    if model.adata is None:
        raise ValueError(
            "The model has no cells, and `evaluate_held_out` needs its training cells, also beside `adata`: load the "
            "model with them, or generate cells and call `scdiffgen.metrics.evaluate`."
        )
    seed = generator.initial_seed()
    genes, several = gene_names(model), modalities(model)
    blocks = blocks_of(genes) if several else {"": slice(None)}
    own = blocks[modality or next(iter(blocks))]
    part = registered(model)[modality or several[0]] if several else registered(model)
    names = pd.Series(symbols_of(part, gene_symbols), part.var_names)[genes[own].get_level_values(-1)]
    indices = _held_out(model, adata, max_cells, seed)
    real, train = _labelled(model, adata, indices), _labelled(model, None, np.sort(model.train_indices))
    if programs is not None:
        program_weights(train.X[:, own], pd.Index(names), programs)  # raises if genes are unknown
    cells = Cells(model, adata, indices, sampler.batch_size, None if silent else "Generating")
    rng, known = np.random.default_rng(seed), TrainingCells(model)

    def library(_: Tensor, conditions: Conditions[Tensor]) -> Tensor:
        return torch.from_numpy(known.draw_sizes(conditions.numpy(), rng)).float().to(generator.device)

    given = registered_conditions(cells.manager, cells.indices).to(model.device)
    counts = measured_only(model, sampler.matched(cells, generator, library), given)
    generated = AnnData(counts, obs=real.obs.copy(), var=real.var.copy())
    likelihood = None
    if "likelihoods" in model.module.process.abilities and not absent_genes(model).any():
        nll = model.get_nll_bound(adata, indices, batch_size=sampler.batch_size, seed=seed, silent=silent)["nll"]
        likelihood = _likelihoods(nll.to_numpy(), real, train, blocks)
    if several:  # of which some cells may lack one
        measured, of_train = (np.flatnonzero(cells.X[:, own].sum(axis=1)) for cells in (real, train))
        real, generated = real[measured, own].copy(), generated[measured, own].copy()
        train = train[of_train, own].copy()
    train.var["name"] = names.to_numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewCellsWarning)  # included in the remarks
        settings = Settings(n_bootstrap=N_BOOTSTRAP, seed=seed, gene_symbols="name")
        groupby = "label" if train.obs["label"].nunique() > 1 else None  # a single label is scored once, as all cells
        comparison = Comparison.of(real, generated, train, groupby, settings)
        metrics = [name for name in HEADLINES if groupby is not None or name not in OF_LABELS]
        scores = evaluated(comparison, metrics, SOURCES, silent=silent)
        scored = None if programs is None else programs_of(comparison, programs)
    n_cells = real.obs["label"].value_counts().to_dict()
    remarks = remarks_on(likelihood, scores, n_cells, scored, n_steps=sampler.n_steps, enough=enough_steps(model))
    return HeldOutEvaluation(likelihood, scores, scores.dispersion, remarks, scored)


def _likelihoods(nll: np.ndarray, real: AnnData, train: AnnData, blocks: Mapping[str, slice]) -> pd.DataFrame:
    """Tabulate nats per molecule of held-out cells by label, under the model and under baselines."""
    from scdiffgen.metrics import dirichlet_multinomial_nll

    sums = pd.DataFrame({"model": nll, "molecules": np.asarray(real.X.sum(1)).ravel()})
    labels = real.obs["label"], train.obs["label"]
    for name, concentration in (("multinomial", np.inf), ("dirichlet_multinomial", None)):
        parts = ((real.X[:, block], labels[0], train.X[:, block], labels[1]) for block in blocks.values())
        sums[name] = sum(dirichlet_multinomial_nll(*part, concentration=concentration).cells for part in parts)
    sums["label"] = real.obs["label"].astype(str).to_numpy()
    grouped = pd.concat([sums.assign(label="overall"), sums]).groupby("label", sort=False).sum()
    return grouped.div(grouped.pop("molecules"), axis=0)


def _held_out(model: BaseModelClass, adata: AnnData | None, max_cells: int, seed: int) -> np.ndarray:
    """Draw positions of at most ``max_cells`` cells, by default of cells held out in training."""
    if model.train_indices is None:
        raise ValueError("The model does not know which cells it was trained on, so no cells count as held out.")
    trained = np.sort(training_indices(model))
    library = None
    if trained[-1] < registered(model).n_obs:
        manager, known = model.adata_manager, training_summary(model).library
        parts = [manager.get_from_registry(key)[trained].sum(axis=1) for key in counts_keys(manager)]
        library = np.asarray(np.column_stack(parts)).reshape(known.shape)
    if library is None or not are_training_cells(model, library):
        check_counts_again(model.adata_manager)
        raise ValueError(
            "The cells of the model are not its training cells in their order, so it is unknown which cells were held "
            "out: load the model with the cells of its training, `load(path, adata)`."
        )
    held_out = [i for i in (model.validation_indices, model.test_indices) if i is not None]
    indices = np.concatenate([np.empty(0), *held_out]).astype(int) if adata is None else np.arange(adata.n_obs)
    if not len(indices):
        raise ValueError("No cells were held out in training: pass held-out cells as `adata`.")
    return np.sort(np.random.default_rng(seed).permutation(indices)[:max_cells])


def remarks_on(
    likelihood: pd.DataFrame | None,
    scores: Evaluation,
    n_cells: Mapping[str, int],
    programs: pd.DataFrame | None = None,
    *,
    n_steps: int = N_STEPS,
    enough: int = N_STEPS,
) -> list[str]:
    """Write remarks with advice, given cells by label, and numbers of steps."""
    from scdiffgen.metrics._evaluate import TOO_FEW, WORSE

    remarks, n_all = [], sum(n_cells.values())
    if n_all < ENOUGH_CELLS:
        remarks.append(f"Only {n_all} cells were held out, too few to detect small differences: {MORE_CELLS}.")
    nats = pd.Series(dtype=float) if likelihood is None else likelihood.loc["overall"]
    baseline = None if likelihood is None else nats.drop("model").idxmin()
    if baseline is not None and round(nats["model"], 3) > round(nats[baseline], 3):
        remarks.append(
            f"Held-out cells are less likely under the model ({nats['model']:.3f} nats per molecule) than under a "
            f"{baseline.replace('_', '-')} at the mean of their label ({nats[baseline]:.3f}): train longer, or with "
            "more cells."
        )
    advice = "Train longer, or with more cells."
    if n_steps < enough:
        advice = f"Generate with more steps (`n_steps={enough}`)."
    for sentence, (label, row) in zip(scores.sentences(), scores.verdict.iterrows(), strict=True):
        if row["verdict"] in WORSE:
            n = n_cells.get(str(label), n_all)
            remarks.append(f"{sentence}. " + (f"Only {n} real cells: {MORE_CELLS}." if n < FEW_CELLS else advice))
    of_labels = scores.verdict.drop("overall", errors="ignore")
    has_wrong, mixed_up = of_labels["has_wrong"].astype(bool), of_labels["mixed_up"].astype(bool)
    for how, shares in (
        ("clearly of another label more than 1.5 times as often as", of_labels["wrong"][has_wrong]),
        ("classified as another label more often than", of_labels["mislabelled"][mixed_up & ~has_wrong]),
    ):
        if len(shares):
            remarks.append(
                f"Generated cells are {how} real cells: "
                f"{', '.join(f'{share:.0%} of {label}' for label, share in shares.items())}. Try `process='gaussian'`, "
                "or register label and batch as one label, such as cell line and plate."
            )
    means, real_means = (scores.frame.loc[("overall", source)] for source in SOURCES)
    if means.get("mean_distance_low", np.nan) > max(real_means.get("mean_distance_high", np.nan), 0):
        remarks.append(
            f"Gene means of generated cells are further from those of held-out cells (squared distance "
            f"{means['mean_distance']:.1f}) than means of other real cells ({real_means['mean_distance']:.1f}): train "
            "with more cells, and do not interpret small differences in the expression of generated cells."
        )
    for name, table in {"dispersion": scores.dispersion, "programs": programs}.items():
        rows = pd.DataFrame() if table is None else table[table["n"] >= FEW_CELLS]
        weights = rows.get("share", pd.Series(1.0, rows.index))
        if len(rows) and weights[rows["apart"]].sum() > BY_CHANCE * weights.sum():
            remarks.append(_of_spread(rows, name))
    ratio = scores.frame.loc[("overall", "generated"), "novelty"]
    if ratio < NOT_NEW:
        remarks.append(
            f"Generated cells are closer to training cells than held-out cells are (ratio {ratio:.2f}): the model "
            "copies. Train fewer epochs, or a smaller network. `metrics.membership_inference` measures the disclosure."
        )
    undecided = [str(label) for label, word in scores.verdict["verdict"].items() if word == TOO_FEW]
    remarks = remarks or ["Nothing stands out."] * ("overall" not in undecided)
    if undecided:
        names = ", ".join(undecided)
        remarks.append(f"Undecided, because too few cells were held out: {names}. To decide, {MORE_CELLS}.")
    return remarks


def _of_spread(rows: pd.DataFrame, name: str) -> str:
    """Name the variance ratios furthest from 1 on both sides in the dispersion table, or count the rows of programs."""
    off = rows[rows["apart"]]
    furthest = ""
    if "ratio" in off:
        ends = off.sort_values("ratio").iloc[[0, -1]].drop_duplicates("ratio")
        furthest = "".join(
            f"; {' '.join(i)} has {row['ratio']:.2f} times the variance ({row['genes']})" for i, row in ends.iterrows()
        )
    return (
        f"{len(off)} of {len(rows)} rows of `{name}` differ from other real cells{furthest}. Do not interpret the "
        "variation of these genes in generated cells."
    )


def _labelled(model: BaseModelClass, adata: AnnData | MuData | None, indices: np.ndarray) -> AnnData:
    """Return the counts of cells, with their first category (or ``"all"``) as ``.obs["label"]``."""
    manager = model.get_anndata_manager(registered(model, adata), required=True)
    labels = np.full(len(indices), "all", dtype=object)
    spec = next((spec for spec in model.module.specs if spec.kind == "category"), None)
    if spec is not None:
        ids = registered_conditions(manager, indices)[spec.name].ids[:, 0]
        labels = categories_of_condition(manager, spec)[ids].astype(str)
    parts = [sparse.csr_matrix(manager.get_from_registry(key)[indices]) for key in counts_keys(manager)]
    counts = parts[0] if len(parts) == 1 else sparse.hstack(parts, format="csr")
    obs = pd.DataFrame({"label": pd.Categorical(labels)}, index=manager.adata.obs_names[indices])
    genes = [name if isinstance(name, str) else ":".join(name) for name in gene_names(model)]
    return AnnData(counts, obs=obs, var=pd.DataFrame(index=genes))
