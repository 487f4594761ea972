"""Judging a trained model by the cells that it was not trained on, in numbers and in words."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from scipy import sparse

from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.data import categories_of_condition, registered_conditions

from ._cells import INFERENCE_BATCH_SIZE, Cells, generator_from
from ._checks import check_cells, check_positive_integer
from ._generation import N_STEPS
from ._perturbation import Perturbation
from ._representation import Representation
from ._sampler import Sampler, whole_counts

FEW_CELLS = 50  # of a label
ENOUGH_CELLS = 100  # of all: half of them against half of the generated leaves the AUC uncertain by .06
TOLD_APART = 0.7
NOT_NEW = 0.8
METRICS = ("mmd", "c2st_auc_forest_pcs", "c2st_auc_forest_genes", "c2st_auc_logistic_genes", "novelty")
# nulls, which are there to compare models by, would double the time
SOURCES: tuple[Literal["generated", "other_real"], ...] = ("generated", "other_real")


class Criticism(NamedTuple):
    """What :meth:`TokenDiffusion.criticism` returns."""

    likelihood: pd.DataFrame
    scores: pd.DataFrame
    remarks: list[str]


class CriticismOfModel(Perturbation, Representation):
    """Likelihood and generated cells against cells that were not trained on."""

    def criticism(
        self,
        adata: AnnData | None = None,
        *,
        n_steps: int = N_STEPS,
        max_cells: int = 2000,
        seed: int = 0,
        silent: bool = False,
    ) -> Criticism:
        """Judge the model by held-out cells.

        Parameters
        ----------
        adata
            Cells that the model was not trained on; by default the validation and test cells of its training.
        n_steps
            As in :meth:`generate`.
        max_cells
            Held-out cells taken at most.
        seed
            Same seed, same result.
        silent
            Whether no progress bar is shown.

        Returns
        -------
        likelihood
            A row a label: nats per molecule of held-out cells under the model (``model``, a bound, so at most this) and
            under a multinomial at the mean of the label's training cells (``multinomial``).
        scores
            :func:`scdiffgen.metrics.evaluate` of cells generated under the held-out cells' conditions, and of other
            held-out cells: the limit.
        remarks
            What stands out, in words, with what to do.

        Raises
        ------
        ValueError
            If the process of the model is not thinning, it was registered with :meth:`setup_mudata`, it does not know
            its training cells, no cells were held out and none are given, ``adata`` lacks genes or holds categories
            that are not registered, or a number is out of range.
        KeyError
            If ``adata`` lacks a column that was registered.
        TypeError
            If ``adata`` is of another type.
        RuntimeError
            If the model is not trained.

        Examples
        --------
        >>> likelihood, scores, remarks = model.criticism(n_steps=4, silent=True)  # doctest: +SKIP
        """
        from scdiffgen.metrics import FewCellsWarning, evaluate

        self._require_training()
        self._require_anndata("criticism")
        self._thinning("criticism")
        check_positive_integer("n_steps", n_steps)
        check_positive_integer("max_cells", max_cells)
        if adata is not None:
            check_cells(adata)
        if self.train_indices is None:
            raise ValueError("The model does not know which cells it was trained on, so it cannot be judged fairly.")
        self._require_training_cells()
        held_out = self._held_out_cells(adata, max_cells, seed)
        real = self._labelled_counts(adata, held_out)
        train = self._labelled_counts(None, np.sort(self.train_indices))
        redrawn = self._redrawn(adata, held_out, n_steps, seed, silent)
        generated = AnnData(redrawn, obs=real.obs.copy(), var=real.var.copy())
        nll = self.get_nll(adata, held_out, seed=seed, silent=silent)["nll"].to_numpy()
        likelihood = compare_likelihoods(nll, real, train)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FewCellsWarning)  # the remarks say it
            scores = evaluate(
                real, generated, train, "label", metrics=METRICS, sources=SOURCES, n_bootstrap=0, seed=seed
            )
        return Criticism(likelihood, scores, remarks_on(likelihood, scores, real.obs["label"].value_counts().to_dict()))

    def _require_training_cells(self) -> None:
        """Raise unless the cells beside the model are those that it was trained on, in their order."""
        known = np.sort(np.concatenate([self.train_indices, self.validation_indices]).astype(int))
        if known[-1] < self._validate_anndata(None).n_obs:
            counts = self.adata_manager.get_from_registry(REGISTRY_KEYS.X)[known]
            if np.allclose(np.asarray(counts.sum(axis=1)).ravel(), self.training_library_, rtol=1e-6):
                return
        raise ValueError(
            "The cells beside the model are not those that it was trained on, or in another order, so it is not known "
            "which were held out: load the model with the cells of its training, `load(path, adata)`."
        )

    def _held_out_cells(self, adata: AnnData | None, max_cells: int, seed: int) -> np.ndarray:
        """Positions of the cells to judge by."""
        if adata is None:
            given = [i for i in (self.validation_indices, self.test_indices) if i is not None]
            indices = np.concatenate([np.empty(0), *given]).astype(int)
        else:
            indices = np.arange(adata.n_obs)
        if not len(indices):
            raise ValueError("No cells were held out in training: pass `adata` with cells that were not trained on.")
        return np.sort(np.random.default_rng(seed).permutation(indices)[:max_cells])

    def _labelled_counts(self, adata: AnnData | None, indices: np.ndarray) -> AnnData:
        """Counts of some cells, with their first category (or ``"all"``) as ``.obs["label"]``."""
        manager = self.get_anndata_manager(self._validate_anndata(adata), required=True)
        labels = np.full(len(indices), "all", dtype=object)
        spec = next((spec for spec in self.module.specs if spec.kind == "category"), None)
        if spec is not None:
            ids = registered_conditions(manager, indices)[spec.name].ids[:, 0]
            labels = categories_of_condition(manager, spec)[ids].astype(str)
        counts = sparse.csr_matrix(manager.get_from_registry(REGISTRY_KEYS.X)[indices])
        obs = pd.DataFrame({"label": pd.Categorical(labels)}, index=manager.adata.obs_names[indices])
        return AnnData(counts, obs=obs, var=pd.DataFrame(index=self._gene_names()))

    def _redrawn(
        self, adata: AnnData | None, indices: np.ndarray, n_steps: int, seed: int, silent: bool
    ) -> sparse.csr_matrix:
        """Cells generated under the conditions of given ones, library sizes drawn as :meth:`generate` does."""
        cells = Cells(self, adata, indices, None, None if silent else "Generating")
        generator, rng, sizes = generator_from(seed, self.device), np.random.default_rng(seed), self._library_model()
        sampler = Sampler(self.module, self._responses(), 1.0, n_steps, INFERENCE_BATCH_SIZE)
        grown = []
        for _, conditions in cells:
            library = torch.from_numpy(sizes.sample(conditions.numpy().codes(self.module.specs), rng)).float()
            grown.append(whole_counts(sampler.minibatch(conditions, library.to(self.device), generator)))
        return cells.in_order(grown)


def compare_likelihoods(model: np.ndarray, real: AnnData, train: AnnData) -> pd.DataFrame:
    """Nats per molecule of held-out cells, label by label, of the model (``(cells,)`` in nats) and of a multinomial."""
    from scdiffgen.metrics import multinomial_nll

    baseline = multinomial_nll(real.X, real.obs["label"], train.X, train.obs["label"]).cells
    sums = pd.DataFrame(
        {
            "model": model,
            "multinomial": baseline,
            "molecules": np.asarray(real.X.sum(1)).ravel(),
            "label": real.obs["label"].astype(str).to_numpy(),
        }
    )
    grouped = pd.concat([sums.assign(label="overall"), sums]).groupby("label", sort=False).sum()
    return grouped[["model", "multinomial"]].div(grouped["molecules"], axis=0)


def remarks_on(likelihood: pd.DataFrame, scores: pd.DataFrame, n_cells: Mapping[str, int]) -> list[str]:
    """Say what stands out.

    Parameters
    ----------
    likelihood, scores
        As :meth:`CriticismOfModel.criticism` returns them.
    n_cells
        Held-out cells of each label.
    """
    found = []
    n_all = sum(n_cells.values())
    if n_all < ENOUGH_CELLS:
        found.append(
            f"Only {n_all} cells were held out, so much may go unseen: pass more as `adata`, or train with a larger "
            "`validation_size`."
        )
    if likelihood.loc["overall", "model"] > likelihood.loc["overall", "multinomial"]:
        found.append(
            "Held-out cells are less likely under the model than under a multinomial at the mean of their label: "
            "train longer, or with more cells."
        )
    generated, limit = (scores.xs(source, level="source") for source in ("generated", "other_real"))
    limit = limit["c2st_auc_forest_genes"]
    for label, auc in generated["c2st_auc_forest_genes"].items():
        n = n_cells.get(str(label), n_all)
        few = f"; only {n} real cells in this group, so take this with care" if n < FEW_CELLS else ""
        if auc > TOLD_APART:
            who = "Generated cells" if label == "overall" else f"Generated {label} cells"
            found.append(
                f"{who} are told from real ones at AUC {auc:.2f}, other real cells at {limit[label]:.2f}: see `scores` "
                f"for what is off{few}."
            )
    unjudged = [str(label) for label, auc in generated["c2st_auc_forest_genes"].items() if np.isnan(auc)]
    if unjudged:
        found.append(f"Too few cells were held out to judge these by themselves: {', '.join(unjudged)}.")
    ratio = generated.loc["overall", "novelty"]
    if ratio < NOT_NEW:
        found.append(
            f"Generated cells lie closer to training cells than held-out cells do (ratio {ratio:.2f}): the model "
            "copies. Train fewer epochs, or a smaller network."
        )
    return found or ["Nothing stands out."]
