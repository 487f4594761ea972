"""What small studies share: their options, runs as lines of a file, and a table of medians and ranges."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks._record import environment, output_folder, start
from benchmarks._tables import markdown, summary


def parse(
    module: str, document: str, data: Sequence[str], variants: Sequence[str], arguments: Sequence[str] | None
) -> argparse.Namespace:
    """Options that studies have in common; threads are set."""
    parser = argparse.ArgumentParser(f"python -m benchmarks.studies.{module}", description=document.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=list(data), default=list(data)[:1])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--variants", nargs="+", choices=list(variants), default=list(variants))
    parser.add_argument("--threads", type=int, default=2, help="threads of everything (2)")
    parser.add_argument("--output", type=Path, help=f"file to append to (benchmarks/results/study-{module}.jsonl)")
    parser.add_argument("--quick", action="store_true", help="two epochs, to see that it runs: results mean nothing")
    options = parser.parse_args(arguments)
    start(options.threads)
    folder = output_folder(None, quick=options.quick)
    options.output = options.output or folder / f"study-{module.replace('_', '-')}.jsonl"
    options.max_epochs = 2 if options.quick else None
    return options


def keep(options: argparse.Namespace, seed: int, run: Mapping[str, Any], scores: Mapping[str, float]) -> None:
    """Append a run to the file: what it was of, and its scores."""
    options.output.parent.mkdir(parents=True, exist_ok=True)
    line = {**run, "seed": seed, "scores": dict(scores), "environment": environment(options.threads, [seed])}
    with options.output.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(*run.values(), f"seed {seed}:", *(f"{name} {score:.4g}" for name, score in scores.items()), flush=True)


def table(path: Path, digits: Mapping[str, int]) -> str:
    """Medians and ranges over the seeds of every score, of the last run of each kind and seed."""
    runs = [json.loads(line) for line in path.read_text().splitlines()]
    of = [name for name in runs[0] if name not in ("seed", "scores", "environment")]
    last = {(*(run[name] for name in of), run["seed"]): run for run in runs}.values()
    scores = pd.DataFrame([{name: run[name] for name in of} | run["scores"] for run in last])
    rows = []
    for kind, found in scores.groupby(of, sort=False):
        numbers = [summary(found[name].dropna().to_numpy(dtype=np.float64), n) for name, n in digits.items()]
        rows.append([*map(str, kind), *numbers])
    return markdown([*of, *digits], rows)
