"""Denoising, deeper cells, batches and tokens against a physical truth: known mixtures, dilutions and molecules.

``python -m benchmarks.physics --tasks mixtures molecules depth batches --seeds 0 1 2 --threads 1``

*mixtures*, *depth*, *integration* and *tokens* need the wells of Tian et al. (2019) in ../shared/data, whose published
scores are shown beside ours; *tokens* needs the models of *mixtures*. MAGIC, Harmony, cNMF and DRVI are run where
``magic-impute``, ``harmonypy``, ``cnmf`` and ``drvi-py`` are installed. Every finished part is written at once and not
repeated, so a run may be stopped and started again.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scvi
from anndata import AnnData
from scipy import sparse
from sklearn.decomposition import PCA

from benchmarks import _physics_depth as deeper
from benchmarks import _physics_integration as together
from benchmarks import _physics_methods as methods
from benchmarks import _physics_scores as scoring
from benchmarks._data import LABEL, MissingData, load_pbmc3k, load_pbmc68k, variable_genes
from benchmarks._physics_data import (
    AMOUNT,
    BUNDLED,
    CELLS,
    CONCENTRATION,
    LINES,
    MISLABELLED,
    MIX,
    TOTAL,
    WELLS,
    best_published,
    load_split_molecules,
    load_wells,
    sound_wells,
)
from benchmarks._physics_null import change_left, n_de_genes, null_scores, planted_batch_effect, space_scores
from benchmarks._physics_programs import FINDERS, PLANTED, plant, recovery
from benchmarks._record import benchmark_parser, environment, output_folder, read_result, start, write_result
from benchmarks._token_scores import stability
from scdiffgen._log_normalise import log_normalise
from scdiffgen.metrics import classifier_auc
from scdiffgen.model import TokenDiffusion

Rows = list[dict[str, Any]]
Part = Callable[[], Rows]
N_PROGRAMS, NULL_GENES = 8, 2000
OURS, WITH_LABELS, EXPECTED = "scdiffgen", "scdiffgen, given labels", "scdiffgen, expected expression"
PERFECT, PLANTED_ACTIVITY, PUBLISHED = "proportions themselves", "planted activity", "published"
HALVES = "sums of both pseudo-batches"


@dataclass(frozen=True)
class Run:
    """Where results are kept, the seed, and the epochs of our models and of scVI (their default)."""

    folder: Path
    seed: int
    max_epochs: int | None = None

    def fit(self, cells: AnnData, n_tokens: int | None = None, **keys: str | None) -> TokenDiffusion:
        """Train the default model; without labels and batches unless ``labels_key`` or ``batch_key`` are given."""
        scvi.settings.seed = self.seed
        adata = cells.copy()
        TokenDiffusion.setup_anndata(adata, **keys)
        model = TokenDiffusion(adata, n_tokens=n_tokens)
        model.train(max_epochs=self.max_epochs, enable_progress_bar=False)
        return model

    def programs_path(self, protocol: str, method: str, seed: int) -> Path:
        """File of the activations and loadings of a method, for other seeds to compare."""
        return self.folder / "parts" / f"physics-{protocol}-{method}-seed{seed}.npz"

    def write_programs(self, protocol: str, method: str, activation: Any, loadings: Any) -> None:
        """Keep activations and loadings beside the results."""
        path = self.programs_path(protocol, method, self.seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, activation=activation, loadings=loadings)

    def read_programs(self, protocol: str, method: str, seed: int) -> tuple[np.ndarray, pd.DataFrame]:
        """Activations ``(wells, programs)`` and loadings ``(genes, programs)``."""
        with np.load(self.programs_path(protocol, method, seed)) as stored:
            return stored["activation"], pd.DataFrame(stored["loadings"])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = benchmark_parser("benchmarks.physics", __doc__)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--data", nargs="+", help="protocols or sets of cells (all of each task)")
    parser.add_argument("--parts", nargs="+", help="methods (all)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    options = parser.parse_args(arguments)
    start(options.threads)
    folder = output_folder(options.output, quick=options.quick)
    made_with = environment(options.threads, options.seeds)
    tasks = [task for task in options.tasks if not options.quick or TASKS[task].quick]
    for task in tasks:
        for seed in options.seeds[:1] if options.quick else options.seeds:
            for data in [BUNDLED] if options.quick else options.data or TASKS[task].data:
                try:
                    measure(task, data, options.parts, Run(folder, seed, 1 if options.quick else None), made_with)
                except MissingData as error:
                    print(f"{task}, {data} is left out: {error}", flush=True)


def measure(task: str, data: str, parts: Sequence[str] | None, run: Run, made_with: dict[str, Any]) -> None:
    """Measure the parts of a task that are not measured yet; each is written when it is finished."""
    path = run.folder / f"physics-{task}.json"
    for name, part in TASKS[task].parts(data, run):
        empty = {"benchmark": f"physics-{task}", "data": {"description": TASKS[task].title}, "rows": []}
        result = read_result(path) if path.exists() else {**empty, "environments": []}
        if (data, run.seed, name) in {(row["data"], row["seed"], row["part"]) for row in result["rows"]} or (
            parts and name not in parts
        ):
            continue
        begin = time.process_time()
        rows = part()
        common = {"data": data, "seed": run.seed, "part": name, "seconds": time.process_time() - begin}
        result["rows"] += [{**common, **row} for row in rows]
        if made_with not in result["environments"]:
            result["environments"].append(made_with)
        write_result(run.folder, path.stem, result)
        print(f"{task}, {data}, seed {run.seed}: {name}, {common['seconds']:.0f} s", flush=True)


def mixtures(protocol: str, run: Run) -> Iterator[tuple[str, Part]]:
    """Denoise wells, scored as published."""
    wells = load_wells(protocol)
    total, mix = wells.obs[TOTAL].to_numpy(dtype=float), wells.obs[MIX].to_numpy(dtype=str)

    def scored(shares: np.ndarray, setting: str = "") -> Rows:
        """Scores of shares ``(wells, genes)``, scaled to the depth of each well."""
        counts = shares.astype(np.float64) * np.asarray(wells.X.sum(axis=1))
        return [
            {"normalisation": name, "setting": setting, **scoring.published_scores(normalise(counts), mix, total)}
            for name, normalise in scoring.NORMALISATIONS.items()
        ]

    def ours(labels_key: str | None) -> Rows:
        model = run.fit(wells, labels_key=labels_key)
        if labels_key is None:
            run.write_programs(protocol, OURS, model.get_token_activation(), model.get_token_loadings())
        return scored(model.get_normalized_expression(return_numpy=True, silent=True))

    yield OURS, lambda: ours(None)
    if run.seed == 0:
        yield PUBLISHED, lambda: best_published(protocol)
        yield methods.SMOOTHING, lambda: scored(*methods.chosen(wells.X, methods.neighbour_smoothing, run.seed)[::-1])
        yield "scVI", lambda: scored(methods.scvi_shares(wells, run.seed, run.max_epochs))
        yield WITH_LABELS, lambda: ours(LABEL)
    yield "ALRA", lambda: scored(methods.alra_shares(wells.X, run.seed))
    if find_spec("magic"):
        yield "MAGIC", lambda: scored(methods.magic_shares(wells.X, run.seed))


def tokens(protocol: str, run: Run) -> Iterator[tuple[str, Part]]:
    """Correlate programs with the proportions of the lines; tokens are those of the models of *mixtures*."""
    wells = load_wells(protocol)
    kept = ~wells.obs_names.isin(MISLABELLED)
    truth = wells.obs.loc[kept, list(LINES)]

    def of_method(method: str) -> Rows:
        if method != OURS:
            run.write_programs(protocol, method, *FINDERS[method](wells, N_PROGRAMS, run.seed, run.max_epochs))
        activation, loadings = run.read_programs(protocol, method, run.seed)
        earlier = [run.read_programs(protocol, method, seed)[1] for seed in range(run.seed)]
        stable = {"stability": [stability([other, loadings]) for other in earlier]}
        return [stable | scoring.best_correlations(activation[kept], truth)]

    for method in (OURS, *FINDERS):
        yield method, lambda method=method: of_method(method)
    noise = np.random.default_rng(run.seed).random((len(truth), 3))
    nearly = truth.to_numpy(dtype=float) + 1e-6 * noise
    yield PERFECT, lambda: [{"stability": [], **scoring.best_correlations(nearly, truth)}]


def molecules(name: str, run: Run) -> Iterator[tuple[str, Part]]:
    """Predict unseen molecules of cells from a quarter of their molecules."""
    cells, unseen = load_split_molecules(name, run.seed)

    def scored(shares: np.ndarray, kind: str, setting: str = "") -> Rows:
        return [{"kind": kind, "setting": setting, "nats": scoring.nats_per_molecule(shares, unseen)}]

    def ours(labels_key: str | None) -> Rows:
        return scored(run.fit(cells, labels_key=labels_key).get_normalized_expression(return_numpy=True), "ours")

    yield OURS, lambda: ours(None)
    yield WITH_LABELS, lambda: ours(LABEL)
    for method, kind, denoise in methods.simple_methods(cells, run.seed):
        yield method, lambda kind=kind, denoise=denoise: scored((found := denoise())[1], kind, found[0])
    yield "scVI", lambda: scored(methods.scvi_shares(cells, run.seed, run.max_epochs), "other")


def depth(protocol: str, run: Run) -> Iterator[tuple[str, Part]]:
    """Compare deepened wells with measured deep ones, which neither the model nor the smoothing sees."""
    all_wells = load_wells(protocol)
    wells = sound_wells(all_wells)
    pairs, is_deep = deeper.paired(wells, run.seed), (wells.obs[AMOUNT] == deeper.DEEP).to_numpy()
    seen = ~np.isin(np.arange(wells.n_obs), pairs.deep)
    train, neighbours = wells[seen], wells[seen & ~np.isin(np.arange(wells.n_obs), pairs.shallow)]
    # Components of no well that is compared: those of the compared wells would also hold their sampling noise.
    between = wells[~wells.obs[AMOUNT].isin([deeper.SHALLOW, deeper.DEEP])]
    fit = PCA(scoring.PCS_OF_FORESTS, random_state=0).fit(log_normalise(between.X).toarray())
    mixtures_of_wells, model = wells.obs[MIX].to_numpy(dtype=str), cache(lambda: run.fit(train))

    def compared() -> Iterator[tuple[str, str, sparse.csr_matrix, np.ndarray]]:
        return deeper.questions(wells, pairs, deeper.deepeners(model(), neighbours, run.seed), run.seed)

    def scored(question: str, method: str, counts: sparse.csr_matrix, positions: np.ndarray) -> dict[str, Any]:
        truth, mix = wells.X[positions], mixtures_of_wells[positions]
        return {"question": question, "method": method, **scoring.depth_scores(counts, truth, mix, fit, run.seed)}

    def every() -> Rows:
        rows = []
        for question, method, counts, positions in compared():
            rows.append(scored(question, method, counts, positions))
            if method in (deeper.OTHER, "30 pg, thinned"):
                truth, mix = wells.X[positions], mixtures_of_wells[positions]
                rows.append({"question": question, "method": deeper.MEASURED, **scoring.own_scores(truth, truth, mix)})
        return rows

    def detection() -> Rows:
        return [
            {"question": question, "method": method, "detection": scoring.detection_gap(counts, wells.X[positions])}
            for question, method, counts, positions in compared()
        ]

    def another(name: str, deepen: deeper.Deepener) -> Rows:
        found = [row for row in deeper.questions(wells, pairs, {name: deepen}, run.seed) if row[1] == name]
        return [{**scored(*row), "detection": scoring.detection_gap(row[2], wells.X[row[3]])} for row in found]

    def spikes() -> Rows:
        """Compare spike-ins, which are not diluted, of the deep and shallow wells."""
        counts = all_wells[wells.obs_names, all_wells.var["is_ercc"]].X
        deep, shallow, mix = counts[pairs.deep], counts[pairs.shallow], mixtures_of_wells[pairs.deep]
        logs = (log_normalise(part.toarray()) for part in (shallow, deep))
        auc = classifier_auc(*logs, real_labels=mix, generated_labels=mix, seed=run.seed)
        scores = {"auc_genes": auc, "detection": scoring.detection_gap(deep, shallow)}
        return [{"question": "dilution", "method": deeper.SPIKES, **scores, **scoring.own_scores(deep, shallow, mix)}]

    def spikes_by_concentration() -> Rows:
        """Count a third of the spike-ins each, in all wells of 30 pg and of 3.75 pg."""
        spike_ins, rows = all_wells[wells.obs_names, all_wells.var["is_ercc"]], []
        thirds = np.array_split(np.argsort(spike_ins.var[CONCENTRATION].to_numpy(), kind="stable"), 3)
        for name, third in zip(("lowest", "middle", "highest"), thirds, strict=True):
            for amount in (deeper.DEEP, deeper.SHALLOW):
                counts = spike_ins[(spike_ins.obs[AMOUNT] == amount).to_numpy(), third].X
                rows.append(
                    {"question": "spikes", "method": f"{name} third, {amount:g} pg", **scoring.zeros_of(counts)}
                )
        return rows

    def by_scvi() -> Rows:
        return another("scVI", deeper.decoder_of(methods.fit_scvi(train, run.seed, run.max_epochs), wells.var[[]]))

    def by_copula() -> Rows:
        copula = deeper.copula_of(wells[seen & is_deep], mixtures_of_wells[pairs.deep], run.seed)
        return another(deeper.COPULA, copula)

    yield "all", every
    yield "detection", detection
    yield "scVI", by_scvi
    yield "copula", by_copula
    yield "spike-ins", spikes
    if run.seed == 0:
        yield "spike-ins by concentration", spikes_by_concentration


def batches(name: str, run: Run) -> Iterator[tuple[str, Part]]:
    """Transfer cells between two pseudo-batches that a coin decided."""
    cells = load_pbmc68k() if name == BUNDLED else load_pbmc3k()
    cells = cells[:, variable_genes(cells, min(NULL_GENES, cells.n_vars))].copy()
    moved = np.random.default_rng(run.seed).random(cells.n_obs) < 0.5
    cells.obs["batch"] = np.where(moved, "one", "other")

    library, fit = cells.X.sum(axis=1).A, cache(lambda: run.fit(cells, batch_key="batch"))

    def transferred() -> Rows:
        after = moved_to_other(fit())
        rows = {"transferred": (after, 0), "left as they are": (cells.X, 1)}
        return [
            {"method": method, **null_scores(cells.X, *of[:1], moved, of[1]), "de_genes": n_de_genes(of[0], moved)}
            for method, of in rows.items()
        ]

    def in_expectation(expected_in: Callable[[str], np.ndarray]) -> dict[str, float]:
        """Compare expected counts of cells in their own batch with those in the other."""
        one, other = (sparse.csr_matrix(expected_in(batch) * library) for batch in ("one", "other"))
        return null_scores(sparse.csr_matrix(np.where(moved[:, None], one.toarray(), other.toarray())), other, moved)

    def by_ours(batch: str) -> np.ndarray:
        return fit().get_normalized_expression(transform_batch=batch, return_numpy=True, silent=True)

    def by_scvi() -> Rows:
        model = methods.fit_scvi(cells, run.seed, run.max_epochs, "batch")

        def expected_in(batch: str) -> np.ndarray:
            scvi.settings.seed = run.seed  # the same latents in both batches
            return methods.expected_by_scvi(model, batch)

        drawn = sparse.csr_matrix(model.posterior_predictive_sample(transform_batch="other").to_scipy_sparse())
        scores = {**in_expectation(expected_in), "de_genes": n_de_genes(drawn, moved)}
        return [{"method": "scVI, expected expression", **scores}]

    def by_harmony() -> Rows:
        before = PCA(methods.N_COMPONENTS, random_state=0).fit_transform(log_normalise(cells.X).toarray())
        after = methods.harmony(before, cells.obs["batch"].to_numpy(dtype=str), run.seed)
        return [{"method": "Harmony", **space_scores(before, after, moved, after)}]

    def planted() -> Rows:
        changed, genes = planted_batch_effect(cells, moved, run.seed)
        after = moved_to_other(run.fit(changed, batch_key="batch"))
        rows = {"planted difference, transferred": after, "planted difference, left as it is": changed.X}
        return [{"method": method, "left": change_left(counts, moved, genes)} for method, counts in rows.items()]

    def moved_to_other(model: TokenDiffusion) -> sparse.csr_matrix:
        return model.transfer_batch(None, "other", seed=run.seed, silent=True).X

    def halves() -> Rows:
        one, other = (cells.X[rows].sum(axis=0).A1 / cells.X[rows].sum() for rows in (moved, ~moved))
        return [{"method": HALVES, "changed": float(np.abs(one - other).sum() / 2)}]

    yield OURS, transferred
    yield HALVES, halves
    yield EXPECTED, lambda: [{"method": EXPECTED, **in_expectation(by_ours)}]
    yield "planted difference", planted
    yield "scVI", by_scvi
    if find_spec("harmonypy"):
        yield "Harmony", by_harmony


def integration(name: str, run: Run) -> Iterator[tuple[str, Part]]:
    """Move the wells of one protocol to the other, without labels, scored by the published silhouettes."""
    wells = together.load_protocols()
    protocols, library = wells.obs[together.PROTOCOL].to_numpy(dtype=str), wells.X.sum(axis=1).A.astype(np.float64)

    def row(method: str, normalisation: str, embedding: np.ndarray) -> dict[str, Any]:
        return {"method": method, "normalisation": normalisation, **together.integration_scores(embedding, wells.obs)}

    def scored(method: str, counts: np.ndarray) -> Rows:
        return [
            row(method, name, scoring.components(values)[0][:, :2])
            for name, values in together.normalised(counts, protocols)
        ]

    def ours() -> Rows:
        model = run.fit(wells, batch_key=together.PROTOCOL)
        moved = model.transfer_batch(None, together.TARGET, seed=run.seed, silent=True).X.toarray().astype(np.float64)
        expected = model.get_normalized_expression(transform_batch=together.TARGET, return_numpy=True, silent=True)
        return [*scored(OURS, moved), *scored(EXPECTED, expected * library)]

    def by_scvi() -> Rows:
        model = methods.fit_scvi(wells, run.seed, run.max_epochs, together.PROTOCOL)
        latent = row("scVI, latent positions", "", model.get_latent_representation())
        expected = methods.expected_by_scvi(model, together.TARGET)
        return [latent, *scored("scVI, expected expression", expected * library)]

    def by_harmony() -> Rows:
        spaces = {
            name: scoring.components(of)[0][:, : methods.N_COMPONENTS]
            for name, of in together.normalised(wells.X.toarray().astype(float), protocols)
        }
        return [row("Harmony", name, methods.harmony(scores, protocols, run.seed)) for name, scores in spaces.items()]

    yield OURS, ours
    if run.seed == 0:
        yield PUBLISHED, together.best_integrations
    yield "scVI", by_scvi
    if find_spec("harmonypy"):
        yield "Harmony", by_harmony


def programs(name: str, run: Run) -> Iterator[tuple[str, Part]]:
    """Recover planted programs, whose number every method is given."""
    truth = plant(*PLANTED[name], run.seed)
    n_programs = truth.activity.shape[1]

    def tokens_of_ours() -> Rows:
        model = run.fit(truth.cells, n_tokens=n_programs)
        loadings = model.get_token_loadings().to_numpy()
        return [recovery(model.get_token_activation(silent=True).to_numpy(), loadings, truth)]

    yield OURS, tokens_of_ours
    for method, find in FINDERS.items():
        yield method, lambda find=find: [recovery(*find(truth.cells, n_programs, run.seed, run.max_epochs), truth)]
    nearly = truth.activity + 1e-6 * np.random.default_rng(run.seed).random(truth.activity.shape)
    yield PLANTED_ACTIVITY, lambda: [recovery(nearly, truth.genes.astype(float), truth)]


@dataclass(frozen=True)
class Task:
    """Heading, sets of data, and function from one of them to the parts that are measured."""

    title: str
    data: Sequence[str]
    parts: Callable[[str, Run], Iterator[tuple[str, Part]]]
    quick: bool = False  # whether it runs on the bundled cells


TASKS = {
    "mixtures": Task("Denoised wells of known mixtures", [*WELLS], mixtures),
    "molecules": Task("Unseen molecules", [name for name in CELLS if name != BUNDLED], molecules, quick=True),
    "depth": Task("Deeper cells", [*WELLS], depth),
    "batches": Task("Batches that do not differ", ["PBMC 3k"], batches, quick=True),
    "integration": Task("Two protocols in one", [together.BOTH], integration),
    "tokens": Task("Tokens of known mixtures", [*WELLS], tokens),
    "programs": Task("Planted programs", [*PLANTED], programs),
}


if __name__ == "__main__":
    main()
