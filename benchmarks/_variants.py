"""Studies that train variants of the model on some data, with seeds: their options, and runs as lines of a file."""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks._data import LABEL, Split
from benchmarks._record import environment, output_folder, start
from benchmarks._tables import markdown, summary

Run = dict[str, Any]
N_TREES = 100


def study_options(
    module: str, about: str, data: Sequence[str], default: Sequence[str], seeds: Sequence[int], variants: Sequence[str]
) -> argparse.ArgumentParser:
    """Options of such a study; ``--variants`` without a name prints the runs there are."""
    parser = argparse.ArgumentParser(f"python -m {module}", description=about)
    parser.add_argument("--data", nargs="+", choices=list(data), default=list(default))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(seeds))
    parser.add_argument("--variants", nargs="*", choices=list(variants), default=list(variants))
    parser.add_argument("--threads", type=int, default=2, help="threads of everything (2)")
    parser.add_argument("--output", type=Path, help="file to append to (one in benchmarks/results)")
    parser.add_argument("--quick", action="store_true", help="two epochs, to see that it runs: results mean nothing")
    return parser


def study_runs(
    options: argparse.Namespace, file_name: str, measured: Callable[[str, int], Iterator[tuple[str, Run]]]
) -> list[Run]:
    """All runs of a file, to which those of each data set and seed are appended as they are ``measured``."""
    start(options.threads)
    output = options.output or output_folder(None, quick=options.quick) / file_name
    output.parent.mkdir(parents=True, exist_ok=True)
    for name, seed in product(options.data, options.seeds) if options.variants else []:
        for variant, found in measured(name, seed):
            run = {"data": name, "seed": seed, "variant": variant, **found}
            with output.open("a") as file:
                file.write(json.dumps(run | {"environment": environment(options.threads, [seed])}) + "\n")
            print(f"{name}, seed {seed}: {variant}, {found['scores']['seconds']:.0f} s", flush=True)
    return [json.loads(line) for line in output.read_text().splitlines()]


def inner_split(split: Split) -> Split:
    """Split the training cells alone: of each label a quarter is held out, of all at most 1,500; no cells are left."""
    cells, share = split.train, min(0.25, 1500 / split.train.n_obs)
    labels = cells.obs[LABEL].reset_index(drop=True)
    chosen = labels.index.isin(labels.groupby(labels, observed=True).sample(frac=share, random_state=split.seed).index)
    return Split(split.name, split.seed, cells[~chosen].copy(), cells[chosen].copy(), cells[:0].copy())


def study_table(runs: Sequence[Run], digits: Mapping[str, int]) -> str:
    """Medians and ranges over the seeds of every score, of the last run of each kind and seed."""
    of = [name for name in runs[0] if name not in ("seed", "scores", "environment")]
    last = {(*(run[name] for name in of), run["seed"]): run for run in runs}.values()
    scores = pd.DataFrame([{name: run[name] for name in of} | run["scores"] for run in last])
    rows = []
    for kind, found in scores.groupby(of, sort=False):
        numbers = [summary(found[name].dropna().to_numpy(dtype=np.float64), n) for name, n in digits.items()]
        rows.append([*map(str, kind), *numbers])
    return markdown([*of, *digits], rows)
