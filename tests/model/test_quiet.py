"""Training, generating and reading print a progress bar and nothing else."""

import os
import re
import subprocess
import sys
from pathlib import Path

CALLS = """
from small_cells import SMALL, simulated_cells
from scdiffgen.model import TokenDiffusion

cells = simulated_cells(300)
TokenDiffusion.setup_anndata(cells, labels_key="cell_type")
model = TokenDiffusion(cells, **SMALL)
model.train(2, batch_size=64, accelerator="cpu")
model.generate({"cell_type": "a"}, 30, batch_size=10, n_steps=2)
model.get_latent_representation(simulated_cells(40, seed=3))
model.write_back(cells[:30].copy(), n_steps=2)
"""
BAR = re.compile(
    r"(Initialising|Training|Epoch \d+/\d+|Generating|Tokens|Writing back|Matching genes|Summarising):\s+\d+%.*"
)


def test_both_streams_hold_progress_bars_alone(tmp_path: Path) -> None:
    paths = [str(Path(__file__).parents[1] / "support"), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    environment.pop("TQDM_DISABLE", None)
    run = subprocess.run(
        [sys.executable, "-c", CALLS], capture_output=True, text=True, check=True, env=environment, cwd=tmp_path
    )
    printed = re.split(r"[\r\n]+", run.stdout + run.stderr)
    bars = [line for line in printed if BAR.fullmatch(line.strip())]
    assert [line for line in printed if line.strip() and line not in bars] == []
    assert any("Epoch 2/2" in line for line in bars) and any("Generating" in line for line in bars)
