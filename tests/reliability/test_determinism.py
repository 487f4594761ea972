"""The same seed gives the same model and the same cells: in another process, and whatever was done before."""

import os
import subprocess
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import scvi
import torch
from fingerprint import weights_of
from scvi.train import SaveCheckpoint
from small_cells import QUIET, SMALL, simulated_cells

from scdiffgen.model import TokenDiffusion

SUPPORT = Path(__file__).parents[1] / "support"


def train(process: str = "thinning", **options: object) -> TokenDiffusion:
    adata = simulated_cells(60)
    TokenDiffusion.setup_anndata(adata, labels_key="cell_type")
    scvi.settings.seed = 3
    model = TokenDiffusion(adata, **SMALL, process=process)
    model.train(max_epochs=3, batch_size=32, check_val_every_n_epoch=1, **QUIET, **options)
    return model


@cache
def first(process: str) -> str:
    """Digest of a training, made once for all tests of this process."""
    return digest(train(process))


def digest(model: TokenDiffusion) -> str:
    """Of the weights, and of what the model says with and without a seed of its own."""
    scvi.settings.seed = 5
    made = [model.generate({"cell_type": "a"}, 20, n_steps=4, seed=seed).X.toarray() for seed in (0, None, None)]
    assert not np.array_equal(made[1], made[2])
    numbers = [*made, model.get_latent_representation(), model.get_token_loadings().to_numpy()]
    return sha256(str(weights_of(model)).encode() + b"".join(array.tobytes() for array in numbers)).hexdigest()


@pytest.mark.parametrize("process", ["gaussian", "latent"])
def test_training_and_generating_again_give_the_same(process: str) -> None:
    known = first(process)
    torch.rand(7), np.random.rand(7)  # what others draw before the seed is set does not matter
    assert digest(train(process)) == known


def test_another_process_gives_the_same() -> None:
    assert digest_of_a_process(hash_seed=7) == first("thinning")


def digest_of_a_process(hash_seed: int) -> str:
    """Digest of a training in a fresh process, with as many threads as here."""
    threads = f"torch.set_num_threads({torch.get_num_threads()}); quick_match.draw_few_cells()"
    command = f"import quick_match, test_determinism as t, torch; {threads}; print(t.digest(t.train()))"
    paths = [str(Path(__file__).parent), str(SUPPORT), *filter(None, sys.path)]
    finished = subprocess.run(
        [sys.executable, "-c", command],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
    )
    assert not finished.returncode, finished.stderr[-2000:]
    return finished.stdout.splitlines()[-1]


@pytest.mark.parametrize("process", ["thinning", "latent"])
def test_checkpoints_do_not_change_what_is_learned(process: str, tmp_path: Path) -> None:
    kept = SaveCheckpoint(tmp_path, "{epoch}", monitor="validation_loss", save_top_k=-1)
    assert weights_of(train(process, callbacks=[kept])) == weights_of(train(process))
    for path in tmp_path.glob("epoch=*[0-9]"):  # scvi-tools leaves files of Lightning beside them
        loaded = TokenDiffusion.load(path, simulated_cells(60), accelerator="cpu")
        assert loaded.generate({"cell_type": "a"}, 2, n_steps=2, seed=0).n_obs == 2
        known = np.concatenate([loaded.train_indices, loaded.validation_indices])
        np.testing.assert_allclose(loaded.get_token_activation(indices=known).std(ddof=0), 1, atol=1e-2)
        assert np.all(np.diff(loaded.get_token_loadings().attrs["explained"]) <= 0)


def test_a_checkpoint_of_a_second_training_has_no_match_of_the_first(tmp_path: Path) -> None:
    model = train("thinning")
    assert len(model.module.code.match.groups)
    kept = SaveCheckpoint(tmp_path, "{epoch}", monitor="validation_loss", save_top_k=-1)
    model.train(max_epochs=2, check_val_every_n_epoch=1, callbacks=[kept], **QUIET)
    assert len(model.module.code.match.groups)
    loaded = [TokenDiffusion.load(path, False, accelerator="cpu") for path in tmp_path.glob("epoch=*[0-9]")]
    assert [len(each.module.code.match.groups) for each in loaded] == [0, 0]
