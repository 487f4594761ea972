"""What a result was measured with, and where results are kept."""

import argparse
import json
import logging
import os
import platform
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
PACKAGES = ("torch", "scvi-tools", "scanpy", "anndata", "scikit-learn", "POT", "numpy")


def start(threads: int) -> None:
    """Set the number of threads of everything, and leave out what libraries say about loggers and workers.

    What numba compiled for scanpy would otherwise set the threads of torch to the number of cores.
    """
    numba.set_num_threads(threads)
    torch.set_num_threads(threads)
    threadpool_limits(threads)
    warnings.filterwarnings("ignore", category=UserWarning, module="lightning|scvi")
    warnings.filterwarnings("ignore", category=FutureWarning)
    for name in ("lightning.fabric", "lightning.pytorch", "scvi"):
        logging.getLogger(name).setLevel(logging.ERROR)


def benchmark_parser(name: str, about: str | None) -> argparse.ArgumentParser:
    """Parser of a benchmark with the options that all have; what it is about is shown as it is written."""
    parser = argparse.ArgumentParser(
        f"python -m {name}", None, about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2, help="threads of everything (2)")
    parser.add_argument("--output", type=Path, default=None, help="folder of the results (benchmarks/results)")
    parser.add_argument("--quick", action="store_true", help="tiny settings, to see that it runs: results mean nothing")
    return parser


def output_folder(output: Path | None, *, quick: bool) -> Path:
    """Folder of the results; quick ones are kept apart."""
    return output or (RESULTS / "quick" if quick else RESULTS)


def environment(threads: int, seeds: Sequence[int]) -> dict[str, Any]:
    """Versions, threads, seeds, commit and command."""
    return {
        "commit": git_commit(),
        "command": " ".join(["python", "-m", _module(), *map(shlex.quote, sys.argv[1:])]),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "cpus": os.cpu_count(),
        "threads": threads,
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "seeds": list(seeds),
    }


def distinct_environments(runs: Iterable[tuple[dict[str, Any], int]]) -> list[dict[str, Any]]:
    """One for each commit and command, the last of each, with the seeds that were run, from those of every run."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for made, seed in runs:
        key = made["commit"], made["command"]
        found[key] = made | {"seeds": sorted({seed, *(found[key]["seeds"] if key in found else [])})}
    return list(found.values())


def git_commit() -> str:
    """Short name of the commit, with ``-dirty`` if the package or the benchmarks have changed since."""
    commit = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "src", "benchmarks/*.py")
    return f"{commit or 'unknown'}{'-dirty' if changed else ''}"


def write_result(folder: Path, name: str, result: dict[str, Any]) -> Path:
    """Write a result as JSON; what is not a number becomes null."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(_plain(result), indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return path


def read_result(path: Path) -> dict[str, Any]:
    """Read a result that was written."""
    return json.loads(path.read_text())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.6g}") if np.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    return value


def _git(*arguments: str) -> str:
    finished = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return finished.stdout.strip()


def _module() -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name.removesuffix(".__main__") if spec is not None else "benchmarks"
