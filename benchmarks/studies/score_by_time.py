"""How good are generated cells after so much training? Trainings of different lengths, beside scVI and other programs.

``python -m benchmarks.studies.score_by_time --data kang --seeds 0 --threads 1``

Every length is a training of its own, with its own schedule. scVI draws latents from a mixture for each label. Cells of
recipes (``benchmarks/external``), for any number of minutes, are scored with ``--external NAME=FOLDER``. Seconds are
those of the processor where there is one thread, as in the recipes, and of the clock otherwise. Runs are lines of a
file; the table shows the last of each.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import scvi
import torch
from matplotlib.figure import Figure

from benchmarks._data import LABEL, Split, available, load_split
from benchmarks._external import add_external_argument, read_external
from benchmarks._figures import COLOURS, LINES, PALE, TEXT, tidy
from benchmarks._models import Method, external_method, fit_scdiffgen, scdiffgen_methods
from benchmarks._scvi import fit_scvi, scvi_methods
from benchmarks._variants import Run, study_options, study_runs, study_table
from scdiffgen.metrics import ExpressionSpace, classifier_auc

LENGTHS: dict[str, tuple[int | None, ...]] = {
    "scdiffgen": (5, 10, 20, 40, None),
    "scVI": (10, 25, 50, 100, 200, None),
}
SPACES = {"forest AUC, components": "pcs", "forest AUC, genes": "expression"}
N_TREES, N_STEPS = 200, 16
LEVEL = 0.6  # of the AUC, which the figure marks


def trained(program: str, split: Split, n_epochs: int | None) -> tuple[Method, int, float]:
    """Train for so many epochs, or the default: how it draws cells, the epochs, and the seconds."""
    scvi.settings.seed = split.seed
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    begin = clock()
    model: Any = (fit_scdiffgen if program == "scdiffgen" else fit_scvi)(split, max_epochs=n_epochs)
    seconds = clock() - begin
    method = scdiffgen_methods(model, [N_STEPS])[0] if program == "scdiffgen" else scvi_methods(model)[1]
    return method, model.trainer.max_epochs, seconds


def score(method: Method, split: Split, space: ExpressionSpace) -> dict[str, float]:
    """How well forests tell the held-out cells from drawn ones."""
    counts, scores = method.sample(split.labels, split.seed), {}
    for title, name in SPACES.items():
        to_space = getattr(space, name)
        scores[title] = classifier_auc(to_space(split.held_out.X), to_space(counts), n_trees=N_TREES)
    return scores


def table(runs: Sequence[Run]) -> str:
    """A row a training."""
    return study_table(runs, dict.fromkeys(SPACES, 3) | {"seconds": 0})


def curves(runs: Sequence[Run]) -> Figure:
    """Scores against seconds, medians over seeds, a line for each program and set of cells."""
    last = {tuple(run[name] for name in ("data", "variant", "length", "seed")): run for run in runs}.values()
    rows = pd.DataFrame([{**run, **run["scores"]} for run in last])
    colours = [COLOURS["ours"], COLOURS["other"], *LINES.values()]
    data = list(rows["data"].unique())
    size = (5.5 * len(SPACES), 3.4 * len(data))
    figure, axes = plt.subplots(len(data), len(SPACES), figsize=size, layout="constrained", squeeze=False)
    for of_data, (name, cells) in zip(axes, rows.groupby("data", sort=False), strict=True):
        for axis, title in zip(of_data, SPACES, strict=True):
            for colour, (program, found) in zip(colours, cells.groupby("variant", sort=False), strict=False):
                medians = found.groupby("length", sort=False)[["seconds", title]].median().sort_values("seconds")
                axis.plot(medians["seconds"], medians[title], "o-", color=colour, label=program)
            axis.axhline(LEVEL, color=PALE, linewidth=1, zorder=0)
            axis.axhline(0.5, color=LINES["all real cells"], linewidth=1, zorder=0)
            axis.set_xscale("log")
            axis.set_xlabel("seconds of training", fontsize=8.5, color=TEXT)
            tidy(axis, f"{name}: {title}")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right center", frameon=False, labelcolor=TEXT)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    about = "benchmarks.studies.score_by_time", __doc__.splitlines()[0]
    parser = study_options(*about, available(), available()[:1], [0], [*LENGTHS])
    parser.add_argument("--lengths", nargs="+", type=int, help="epochs of every program (several, and its default)")
    add_external_argument(parser)
    options = parser.parse_args(arguments)

    def measured(name: str, seed: int) -> Iterator[tuple[str, Run]]:
        split = load_split(name, seed)
        space = ExpressionSpace.fit(split.train.X)
        for program in options.variants:
            for n_epochs in [2] if options.quick else options.lengths or LENGTHS[program]:
                method, trained_for, seconds = trained(program, split, n_epochs)
                length = f"{trained_for} epochs" if n_epochs else f"{trained_for} epochs, default"
                yield program, {"length": length, "scores": score(method, split, space) | {"seconds": seconds}}
        for program, folder in options.external:
            path = folder / f"{name}-seed{seed}.h5ad"
            done = read_external(path, split.train.var_names, [LABEL]).uns["recipe"]
            scores = score(external_method(program, path, split), split, space)
            scores["seconds"] = done["training_seconds"]["all"]
            yield program, {"length": f"allowed seconds: {done['budget_seconds']}", "scores": scores}

    print(table(study_runs(options, "study-score-by-time.jsonl", measured)))


if __name__ == "__main__":
    main()
