"""Run every benchmark on all data that are there, then write the page: ``python -m benchmarks``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from benchmarks import augmentation, generation, render, speed
from benchmarks._data import DATASETS, available
from benchmarks._record import add_common_arguments, output_folder

MAIN_DATA = "kang"  # of speed and augmentation


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    add_common_arguments(parser)
    options = parser.parse_args(arguments)
    there = available()
    for name in DATASETS:
        if name not in there:
            print(f"{name} is left out: {DATASETS[name].file} is not in ../shared/data.")
    common = ["--threads", str(options.threads), "--output", str(output_folder(options.output, quick=options.quick))]
    common += ["--quick"] * options.quick
    main_data = MAIN_DATA if MAIN_DATA in there and not options.quick else "pbmc68k"
    generation.main(["--data", *(["pbmc68k"] if options.quick else there), *common])
    speed.main(["--data", main_data, *common])
    augmentation.main(["--data", main_data, *common])
    if not options.quick:
        render.main(["--results", str(output_folder(options.output, quick=False))])


if __name__ == "__main__":
    main()
