"""Does memory stay flat while very many cells are generated, call after call, in one process.

``python -m benchmarks.soak --threads 2``

Quality does not matter here: a small model of the bundled cells is trained for a few epochs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scvi

from benchmarks._data import DATASETS, LABEL
from benchmarks._memory import of_status
from benchmarks._record import benchmark_parser, environment, output_folder, start, write_result
from benchmarks._tables import markdown
from scdiffgen.model import TokenDiffusion

DATA = "pbmc68k"
N_CELLS, CELLS_A_CALL, N_EPOCHS, N_STEPS = 1_000_000, 2_000, 5, 8
QUICK_CELLS, QUICK_CELLS_A_CALL = 400, 50


def main(arguments: Sequence[str] | None = None) -> None:
    parser = benchmark_parser("benchmarks.soak", __doc__)
    options = parser.parse_args(arguments)
    start(options.threads)
    n_cells, per_call = (QUICK_CELLS, QUICK_CELLS_A_CALL) if options.quick else (N_CELLS, CELLS_A_CALL)
    model = small_model(n_epochs=1 if options.quick else N_EPOCHS)
    result = {
        "benchmark": "soak",
        "data": {"name": DATA, "n_genes": model.adata.n_vars},
        "settings": {"cells_a_call": per_call, "n_steps": N_STEPS},
        "environment": environment(options.threads, [0]),
        **soak(model, n_cells, per_call, N_STEPS),
    }
    write_result(output_folder(options.output, quick=options.quick), "soak", result)
    print(soak_table(result))


def soak_table(result: Mapping[str, Any]) -> str:
    """Memory at the start and after each fifth of the cells."""
    marks = np.linspace(0, len(result["generated"]) - 1, 6).round().astype(int)
    rows = [[f"{result['generated'][mark]:,}", f"{result['resident'][mark]:.0f}"] for mark in marks]
    return markdown(["cells generated", "resident memory, MB"], rows)


def small_model(n_epochs: int) -> TokenDiffusion:
    """A model of the bundled cells, trained for a few epochs."""
    adata = DATASETS[DATA].load()
    scvi.settings.seed = 0
    TokenDiffusion.setup_anndata(adata, labels_key=LABEL)
    model = TokenDiffusion(adata, preset="small")
    model.train(max_epochs=n_epochs, accelerator="cpu", enable_progress_bar=False)
    return model


def soak(model: TokenDiffusion, n_cells: int, per_call: int, n_steps: int) -> dict[str, list[float]]:
    """Generate cells and throw them away; resident memory in MB after each call."""
    labels = model.adata.obs[LABEL].unique()
    generated, memory = [0], [of_status("VmRSS")]
    while generated[-1] < n_cells:
        n_calls = len(generated) - 1
        wanted = min(per_call, n_cells - generated[-1])
        model.generate({LABEL: labels[n_calls % len(labels)]}, wanted, n_steps=n_steps, seed=n_calls, silent=True)
        generated.append(generated[-1] + wanted)
        memory.append(of_status("VmRSS"))
    return {"generated": generated, "resident": memory}


if __name__ == "__main__":
    main()
