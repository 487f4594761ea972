"""Peak memory of one model in a process of its own: ``python -m benchmarks._memory scdiffgen kang 2``.

Prints the peak resident memory in MB, so far, after imports, loading, one epoch of training and 512 generated cells.
"""

import json
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

STATUS = Path("/proc/self/status")
N_CELLS = 512


def in_own_process(module: str, *arguments: str) -> dict[str, Any]:
    """What a module prints last, as JSON, when it runs in a fresh process."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(finished.stdout.splitlines()[-1])


def measure(model: str, data: str, threads: int) -> dict[str, float]:
    from benchmarks import _data, _models, _record, _scvi

    _record.start(threads)
    peaks = {"imports": peak_of_this_process()}
    split = _data.split(_data.DATASETS[data].load(), data, seed=0)
    peaks["data"] = peak_of_this_process()
    if model == "scdiffgen":
        fitted = _models.fit_scdiffgen(split, max_epochs=1)
        (method,) = _models.scdiffgen_methods(fitted, [32])
    else:
        method = _scvi.scvi_methods(_scvi.fit_scvi(split, max_epochs=1))[0]
    peaks["training"] = peak_of_this_process()
    method.sample(split.labels[:N_CELLS], 0)
    peaks["generating"] = peak_of_this_process()
    return peaks | {"n_cells": split.train.n_obs, "n_genes": split.train.n_vars}


def of_status(name: str) -> float:
    """Memory of this process in MB that Linux tells under a name, such as ``"VmRSS"``, what it holds now."""
    return int(re.search(rf"{name}:\s+(\d+) kB", STATUS.read_text()).group(1)) / 2**10


def peak_of_this_process() -> float:
    """Peak resident memory of this process in MB.

    On Linux, what getrusage reports is at least the memory of the process that started this one; its status is not.
    """
    if STATUS.exists():
        return of_status("VmHWM")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)  # macOS counts bytes, others kilobytes


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
