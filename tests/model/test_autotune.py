"""scvi-tools' search over hyper-parameters finds the settings that train best."""

from pathlib import Path

import pytest
import scvi
from small_cells import simulated_cells

from scdiffgen.model import TokenDiffusion

for needed in ("ray.tune", "hyperopt", "scib_metrics"):
    pytest.importorskip(needed)

SEED = 3


def test_the_best_of_a_search_is_the_best_and_trains_again_to_the_same_loss(tmp_path: Path) -> None:
    from ray import tune
    from scvi.autotune import run_autotune

    adata = simulated_cells(120)
    TokenDiffusion.setup_anndata(adata, labels_key="cell_type")
    size = {"n_tokens": tune.grid_search([2, 4]), "token_dim": 8, "n_layers": 1}
    training = {"max_epochs": 2, "batch_size": 32, "accelerator": "cpu"}
    search = run_autotune(
        TokenDiffusion,
        adata,
        metrics="validation_loss",
        mode="min",
        search_space={"model_params": size, "train_params": training},
        num_samples=1,
        seed=SEED,
        scheduler="fifo",
        searcher="random",
        resources={"cpu": 1},
        logging_dir=str(tmp_path),
        ignore_reinit_error=True,
    )
    results = search.result_grid
    assert {result.config["model_params"]["n_tokens"] for result in results} == {2, 4}
    best = results.get_best_result("validation_loss", "min")
    assert best.metrics["validation_loss"] == min(result.metrics["validation_loss"] for result in results)
    scvi.settings.seed = SEED
    again = TokenDiffusion(adata, **best.config["model_params"])
    again.train(**best.config["train_params"], check_val_every_n_epoch=1, enable_progress_bar=False)
    final = float(again.history["validation_loss"].iloc[-1, 0])
    assert final == pytest.approx(best.metrics["validation_loss"], rel=1e-3)
