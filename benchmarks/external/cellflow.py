"""CellFlow (Klein et al. 2025): flow matching from control to treated cells, in principal components.

Run from the repository, in an environment with cellflow-tools: ``python -m benchmarks.external.cellflow``.
"""

from functools import partial

import numpy as np
import pandas as pd

from benchmarks.external._responses import CONTEXT, CONTROL, RESPONSE, Job, Predicted, Target, drive

FULL = 500_000  # iterations, of the tutorial on blood cells
BATCH, LEARNING_RATE = 256, 1e-3  # for one core; in the tutorial 1024, and 5e-5 with gradients summed over 20 steps
NARROWER = 8  # all widths of the tutorial are divided by this
CELLS = "X_pca"


class Program:
    """The flow of the tutorial, narrower."""

    full = FULL
    settings = {"batch_size": BATCH, "learning_rate": LEARNING_RATE, "narrower": NARROWER}

    def __init__(self, job: Job) -> None:
        import cellflow.preprocessing as preprocessing
        import flax.linen as nn
        import optax
        from cellflow.model import CellFlow
        from cellflow.utils import match_linear

        self.job, self.preprocessing, cells = job, preprocessing, job.logged()
        preprocessing.centered_pca(cells, n_comps=100, keep_centered_data=False)
        cells.obs["is_control"] = cells.obs[RESPONSE] == CONTROL
        for key in (RESPONSE, CONTEXT):
            cells.obs[key] = cells.obs[key].astype("category")
        names = list(cells.obs[RESPONSE].cat.categories)
        cells.uns["responses"] = dict(zip(names, np.eye(len(names), dtype=np.float32), strict=True))
        means = {name: cells.obsm[CELLS][job.controls(name)].mean(0) for name in cells.obs[CONTEXT].cat.categories}
        cells.uns["contexts"] = {name: mean / np.linalg.norm(mean) for name, mean in means.items()}
        treated = cells.obs.loc[
            ~cells.obs["is_control"], CONTEXT
        ].unique()  # controls without treated cells are refused
        self.cells, self.model = cells, CellFlow(cells[cells.obs[CONTEXT].isin(treated)].copy(), solver="otfm")
        self.model.prepare_data(
            sample_rep=CELLS,
            control_key="is_control",
            perturbation_covariates={"perturbation": (RESPONSE,)},
            perturbation_covariate_reps={"perturbation": "responses"},
            sample_covariates=[CONTEXT],
            sample_covariate_reps={CONTEXT: "contexts"},
            split_covariates=[CONTEXT],
            max_combination_length=1,
        )
        of_condition = {"layer_type": "mlp", "dims": [1024 // NARROWER] * 2, "dropout_rate": 0.5}
        of_context = {"layer_type": "mlp", "dims": [256 // NARROWER] * 2, "dropout_rate": 0.0}
        self.model.prepare_model(
            pooling="attention_token",
            layers_before_pool={"perturbation": of_condition, CONTEXT: of_context},
            layers_after_pool={"layer_type": "mlp", "dims": [1024 // NARROWER] * 2, "dropout_rate": 0.0},
            condition_embedding_dim=256 // NARROWER,
            cond_output_dropout=0.9,
            time_freqs=1024 // NARROWER,
            time_encoder_dims=[1024 // NARROWER] * 3,
            hidden_dims=[2048 // NARROWER] * 3,
            decoder_dims=[4096 // NARROWER] * 3,
            vf_act_fn=nn.silu,
            probability_path={"constant_noise": 0.5},
            match_fn=partial(match_linear, epsilon=0.5, tau_a=1.0, tau_b=1.0),
            optimizer=optax.adam(LEARNING_RATE),
            seed=job.seed,
        )

    def train(self, length: int) -> None:
        """Train for so many iterations."""
        self.model.train(num_iterations=length, batch_size=BATCH, valid_freq=length + 1)

    def predict(self, target: Target) -> Predicted:
        """Let controls of the context flow, and bring the end from components to genes."""
        start = self.cells[self.job.controls(target.context)].copy()
        row = {RESPONSE: target.response, CONTEXT: target.context, "is_control": False, "name": "asked"}
        asked = pd.DataFrame({name: [value] for name, value in row.items()})
        predicted = self.model.predict(start, asked, sample_rep=CELLS, condition_id_key="name")
        start.obsm["predicted"] = np.asarray(predicted["asked"])
        self.preprocessing.reconstruct_pca(start, use_rep="predicted", ref_adata=self.cells)
        return Predicted(np.asarray(start.layers["X_recon"]))


if __name__ == "__main__":
    drive(__doc__, Program, ["cellflow-tools", "jax", "ott-jax"])
