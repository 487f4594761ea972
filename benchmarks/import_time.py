"""How much processor time does it take to import the package, beyond what scvi-tools takes, in fresh processes.

``python -m benchmarks.import_time``

``--profile`` prints the modules that take longest instead, as ``python -X importtime`` sees them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

from benchmarks._record import benchmark_parser, environment, output_folder, start, write_result
from benchmarks._tables import Column, score_table

N_REPEATS = 10
PROFILED_ROWS = 25
PARTS = ("scvi", "scdiffgen", *(f"scdiffgen.{name}" for name in ("model", "metrics", "tl", "pl", "datasets")))
IMPORT_ALL = f"""
import importlib, json, time
seconds = {{}}
for name in {PARTS}:
    start = time.process_time()
    importlib.import_module(name)
    seconds[name] = time.process_time() - start
print(json.dumps(seconds))
"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = benchmark_parser("benchmarks.import_time", __doc__)
    parser.add_argument("--profile", action="store_true", help="print what takes longest, and stop")
    options = parser.parse_args(arguments)
    start(options.threads)
    if options.profile:
        print(profile())
        return
    import_all()  # which compiles what is not compiled yet
    runs = [import_all() for _ in range(1 if options.quick else N_REPEATS)]
    result = {
        "benchmark": "imports",
        "environment": environment(options.threads, [0]),
        "seconds": {name: [run[name] for run in runs] for name in PARTS},
    }
    write_result(output_folder(options.output, quick=options.quick), "imports", result)
    beyond = [sum(run[name] for name in PARTS[1:]) for run in runs]
    rows = {name: {"seconds": seconds} for name, seconds in (result["seconds"] | {"all but scvi": beyond}).items()}
    print(score_table("imported, after those above", {"seconds": Column("seconds")}, rows))


def import_all() -> dict[str, float]:
    """Seconds of each import, one after the other, in a process of its own."""
    finished = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=True, env=compiled()
    )
    return json.loads(finished.stdout.splitlines()[-1])


def compiled() -> dict[str, str]:
    """The environment, in which Python keeps what it compiles, as an installed package is."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def profile() -> str:
    """Modules loaded after scvi-tools, the slowest first: milliseconds of their own, and with what they load."""
    command = [sys.executable, "-X", "importtime", "-c", "import " + ", ".join(PARTS)]
    import_all()
    finished = subprocess.run(command, capture_output=True, text=True, check=True, env=compiled())
    rows = [
        tuple(part.strip() for part in line.removeprefix("import time:").split("|"))
        for line in finished.stderr.splitlines()
        if line.startswith("import time:") and "cumulative" not in line
    ]
    after = [name for *_, name in rows].index("scvi") + 1
    slowest = sorted(rows[after:], key=lambda row: -int(row[0]))[:PROFILED_ROWS]
    return "\n".join(f"{int(own) / 1e3:9.1f} {int(all_) / 1e3:9.1f}  {name}" for own, all_, name in slowest)


if __name__ == "__main__":
    main()
