"""Run every benchmark on all data that are there, then write the page: ``python -m benchmarks``."""

from collections.abc import Sequence

from benchmarks import (
    augmentation,
    chromatin,
    generation,
    multimodal,
    peaks,
    perturbation,
    physics,
    processes,
    published,
    published_generation,
    render,
    soak,
    speed,
    tokens,
)
from benchmarks._chromatin_data import SNARE
from benchmarks._data import DATASETS, FOLDER, available
from benchmarks._external import add_external_argument
from benchmarks._multimodal_data import CITE
from benchmarks._perturbation_tasks import TASKS
from benchmarks._record import benchmark_parser, output_folder

MAIN_DATA = "kang"  # of speed and augmentation


def main(arguments: Sequence[str] | None = None) -> None:
    parser = benchmark_parser("benchmarks", __doc__)
    add_external_argument(parser)
    options = parser.parse_args(arguments)
    there, everything, tasks = available(), available(fewer=True), perturbation.available_tasks()
    needed = {name: data.file for name, data in DATASETS.items()} | {name: task.file for name, task in TASKS.items()}
    for name, file in needed.items():
        if name not in (*everything, *tasks):
            print(f"{name} is left out: {file} is not in ../shared/data.")
    if options.quick:
        there, everything, tasks = ["pbmc68k"], ["pbmc68k"], ["dose"]
    main_data = MAIN_DATA if MAIN_DATA in there else "pbmc68k"
    common = ["--threads", str(options.threads), "--output", str(output_folder(options.output, quick=options.quick))]
    common += ["--quick"] * options.quick
    external = [f"{name}={folder}" for name, folder in options.external]
    external = ["--external", *external] if external else []
    generation.main(["--data", *everything, *external, *common])
    for networks in ([], ["--networks"]):
        processes.main(["--data", *there, *networks, *common])
    speed.main(["--data", main_data, *common])
    augmentation.main(["--data", main_data, *common])
    if options.quick or (FOLDER / CITE).exists():
        multimodal.main(common)
    if options.quick or (FOLDER / SNARE).exists():
        chromatin.main(common)
    peaks.main(common)
    for task in tasks:
        perturbation.main(["--task", task, *(external if task in TASKS else []), *common])
    if "pbmc3k" in there and (FOLDER / published_generation.TABLE).exists():
        published_generation.main(common)
    for task in [] if options.quick else published.available_tasks():
        published.main(["--task", task, *common])
    tokens.main(common)
    physics.main(common)
    soak.main(common)
    if not options.quick:
        render.main(output_folder(options.output, quick=False))


if __name__ == "__main__":
    main()
