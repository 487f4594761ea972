"""Responding: what given cells would be under other conditions, and what the network makes of conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from mudata import MuData
from numpy.typing import ArrayLike
from scvi.model.base import BaseModelClass

from scdiffgen._arguments import check_share, check_whole_number
from scdiffgen._shared_docs import shared_docs
from scdiffgen.conditions import Request, request_table
from scdiffgen.data import add_perturbations

from ._cell_request import encode, extend
from ._cells import BATCH_SIZE, generator_from
from ._counterfactuals import (
    ResponseSource,
    counterfactual_cells,
    mean_responses,
    means_with_intervals,
    response_weights,
    untreated_responses,
)
from ._model_access import batch_name, gene_names, gene_positions, require_anndata, require_training, sampler_of
from ._sampler import N_STEPS


class Responding(BaseModelClass):
    """Cells under conditions other than their own."""

    @shared_docs
    def predict_perturbation(
        self,
        adata: AnnData | MuData | None,
        conditions: Mapping[str, Any],
        *,
        indices: Sequence[int] | np.ndarray | None = None,
        keep: float | None = None,
        source: ResponseSource = "auto",
        guidance_scale: float | Mapping[str, float] = 1.0,
        n_steps: int = N_STEPS,
        batch_size: int = BATCH_SIZE,
        seed: int | None = 0,
        silent: bool = False,
    ) -> AnnData | MuData:
        """Predict each given cell under other conditions.

        *Transferred*: if only perturbations change, the response of training cells is transferred, a change of mean log
        expression. Molecules of down-regulated genes are lost by binomial thinning, those of up-regulated genes gained
        as Poisson counts, so a cell keeps whatever the perturbation does not change. Where no data predict a response,
        the effect network does, from a few molecules of the cell; so it does for another batch.

        *Resampled*: the cell is thinned to a share of its molecules, and completed under the new conditions. Other
        processes than thinning lead it to noise and back, as their options say.

        Parameters
        ----------
        adata
            Cells to start from, such as controls; ``None`` takes those the model was made with.
        conditions
            What to change, by the names under which it was registered, such as ``{"perturbation": "IFNB"}``.
        keep
            Share of its molecules (or of its variance, where noise is added) that a cell keeps before it is resampled,
            in [0, 1). A larger share ties the prediction to its cell, and weakens the response. By default cells are
            coupled if only perturbations that are effects change, or only the batch, and keep nothing otherwise.
        source
            ``"auto"`` transfers responses that at least 20 treated and 20 untreated cells of some context show;
            ``"network"`` asks the effect network alone, as is always done where continuous covariates are registered.
        guidance_scale
            As in :meth:`generate`; for a perturbation, the factor of its effect.

        Returns
        -------
        A cell for each given one, of the same name: integer counts (CSR) in ``.X``; in ``.obs`` the new conditions,
        no summaries of the counts before (such as ``total_counts``), and ``unseen_in_training`` as of :meth:`generate`.
        Unless ``keep`` is passed, ``.obs["response_source"]`` is the source of the response: ``"measured"``, the
        ``"parts"`` of a combination, other perturbations by ``"features"``, or the ``"network"``; ``response_check``
        says whether the prediction was ahead of the plain mean of other responses on those that were left out.

        {raises_cells}
        ValueError
            If a condition or category is not registered or has several values, or a perturbation lacks its dose.

        Warns
        -----
        UserWarning
            If treatment and batch are confounded, or fewer than three other contexts were measured.

        Examples
        --------
        >>> model.predict_perturbation(adata, {"cell_type": "Dendritic"}, indices=[0, 1]).shape
        (2, 765)
        """
        require_training(self)
        if keep is not None:
            check_share("keep", keep, "a share of the molecules")
        sampler = sampler_of(self, n_steps, batch_size, guidance_scale, [spec.name for spec in self.module.specs])
        generator = generator_from(seed, self.device)
        return counterfactual_cells(self, sampler, adata, indices, conditions, source, generator, keep, silent=silent)

    @shared_docs
    def transfer_batch(
        self,
        adata: AnnData | MuData | None,
        to: str,
        *,
        indices: Sequence[int] | np.ndarray | None = None,
        keep: float | None = None,
        n_steps: int = N_STEPS,
        batch_size: int = BATCH_SIZE,
        seed: int | None = 0,
        silent: bool = False,
    ) -> AnnData | MuData:
        """Predict each given cell as another batch would have measured it.

        By default cells are coupled, so they keep type and state. Those of that batch, and library sizes, stay.

        Parameters
        ----------
        to
            Batch, a category of the column registered as ``batch_key``.
        keep
            As in :meth:`predict_perturbation`. With 0, a new cell of the same conditions is drawn, so one of any type
            if types are not registered.

        Returns
        -------
        As :meth:`predict_perturbation`.

        {raises_cells}

        Examples
        --------
        >>> screen_model.transfer_batch(screen, "batch_1", indices=[0, 1], n_steps=4).obs["batch"].tolist()
        ['batch_1', 'batch_1']
        """
        options: dict[str, Any] = {"n_steps": n_steps, "batch_size": batch_size, "seed": seed, "silent": silent}
        return self.predict_perturbation(adata, {batch_name(self): to}, indices=indices, keep=keep, **options)

    @shared_docs
    def dose_response(
        self,
        adata: AnnData | None,
        perturbation: str,
        doses: Sequence[float],
        *,
        indices: Sequence[int] | np.ndarray | None = None,
        gene_list: Sequence[str] | None = None,
        source: ResponseSource = "auto",
        n_bootstrap: int = 200,
        n_steps: int = N_STEPS,
        batch_size: int = BATCH_SIZE,
        seed: int | None = 0,
        silent: bool = False,
    ) -> pd.DataFrame:
        """Predict given cells at several doses: mean expression of each gene with an interval.

        Parameters
        ----------
        adata
            Cells to start from, such as controls; ``None`` takes those the model was made with.
        perturbation, doses
            As they were registered, in the same unit.
        source
            As in :meth:`predict_perturbation`.
        n_bootstrap
            Resamples of the predicted cells behind the interval.

        Returns
        -------
        A row a dose and gene: ``dose``, ``gene``, ``mean`` (log1p of counts per 10,000), and ``low`` and ``high``, the
        95 % interval over bootstrap resamples of the cells. ``.attrs["dose_unit"]`` is the registered unit.

        {raises_cells}
        ValueError
            If no doses were registered, or there is no dose or one that is negative or NaN.

        Examples
        --------
        >>> controls = screen.obs["perturbation"] == "control"
        >>> screen_model.dose_response(screen, "A", [0.1, 10.0], indices=controls).columns.tolist()
        ['dose', 'gene', 'mean', 'low', 'high']
        """
        require_training(self)
        require_anndata(self, "dose_response")
        dosed = next((spec for spec in self.module.specs if spec.kind == "set" and spec.has_values), None)
        if dosed is None:
            raise ValueError("No doses were registered: pass `perturbation_key` and `dose_key` to `setup_anndata`.")
        columns = gene_positions(self, gene_list)
        check_whole_number("n_bootstrap", n_bootstrap)
        if not len(doses):
            raise ValueError("`doses` is empty: pass at least one dose.")
        rng = np.random.default_rng(generator_from(seed, torch.device("cpu")).initial_seed())
        sampler, frames = sampler_of(self, n_steps, batch_size), []  # one for all doses, as it keeps responses
        for dose in doses:
            request, generator = {dosed.name: perturbation, "dose": dose}, generator_from(seed, self.device)
            predicted = counterfactual_cells(self, sampler, adata, indices, request, source, generator, silent=silent)
            means = means_with_intervals(predicted.X, columns, n_bootstrap, rng)
            frames.append(pd.DataFrame({"dose": float(dose), "gene": gene_names(self)[columns], **means}))
        curves = pd.concat(frames, ignore_index=True)
        curves.attrs["dose_unit"] = dosed.transform.unit
        return curves

    @shared_docs
    def get_response_weights(self, conditions: Request) -> pd.DataFrame:
        """Describe transferred responses: weights of their predictors, and scores on responses that were left out.

        Parameters
        ----------
        conditions
            As in :meth:`generate`: perturbations, and the context of the cells that get them.

        Returns
        -------
        A row a condition: ``response_source`` and ``check``, as in the ``.obs`` of :meth:`predict_perturbation`;
        ``left_out_pearson``, the median correlation of left-out responses with their prediction; ``left_out_gain``, 1
        minus the squared error of these predictions over that of the plain mean; ``cautions`` in words; and the weights
        of the predictors, which sum to 1.

        {raises_request}

        Examples
        --------
        >>> weights = screen_model.get_response_weights({"perturbation": "A", "dose": 2.0})
        >>> weights["response_source"].item()  # of the few cells of the example
        'network'
        """
        require_training(self)
        table, responses = untreated_responses(self, conditions)
        return response_weights(responses, table)

    @shared_docs
    def get_mean_response(self, conditions: Request, *, interval: bool = False) -> pd.DataFrame:
        """Predict the change of mean expression by perturbations, without sampling noise of drawn cells.

        It is the mean of :meth:`predict_perturbation` over ever more untreated cells of a context. Use it to rank genes
        and to compare with methods that predict means alone.

        Parameters
        ----------
        conditions
            As in :meth:`generate`: perturbations, and the context of the cells that get them.
        interval
            Whether to return 80 % intervals for the change that an experiment measures, from the errors of predictions
            of responses that are left out, or from the sampling variance of measured ones.

        Returns
        -------
        A row a condition, a column a gene: change of the mean of log1p of counts per 10,000; NaN where the network
        predicts each cell. With ``interval`` columns are pairs of ``"change"``, ``"low"`` or ``"high"`` and a gene; low
        and high are NaN where nothing can be left out.

        {raises_request}

        Examples
        --------
        >>> change = screen_model.get_mean_response({"perturbation": "A", "dose": 2.0})
        >>> change.shape, bool(change.isna().all(axis=None))  # too few cells in the example
        ((1, 200), True)
        """
        require_training(self)
        table, responses = untreated_responses(self, conditions)
        return mean_responses(responses, table.index, gene_names(self), interval=interval)

    @shared_docs
    def get_condition_embedding(self, conditions: Request) -> pd.DataFrame:
        """Vectors of conditions as the network sees them.

        Returns
        -------
        A row a condition: ``context_1`` and on (of all conditions one after the other, unless the conditioning is
        ``"adaln"``); with perturbations as effects, ``effect_1`` and on as well.

        {raises_request}

        Examples
        --------
        >>> model.get_condition_embedding({"cell_type": "Dendritic"}).shape
        (1, 128)
        """
        require_training(self)
        table = request_table(conditions)
        given = encode(self, table).to(self.device)
        denoiser = self.module.ema_denoiser
        with torch.no_grad():
            vectors = {"context": denoiser.embed_conditions(given, len(table)).vectors.flatten(1)}
            for name in denoiser.effect_names:
                vectors["effect"] = denoiser.effect_of(name).summary(given[name])
        frames = [
            pd.DataFrame(vector.cpu().numpy(), columns=[f"{part}_{i + 1}" for i in range(vector.shape[1])])
            for part, vector in vectors.items()
        ]
        return pd.concat(frames, axis=1)

    def add_perturbation_features(self, vectors: Mapping[str, ArrayLike] | pd.DataFrame) -> None:
        """Make perturbations known by their feature vectors, so that they can be asked for.

        Nothing is trained: the effect of a perturbation follows from its vector as learned from those of the training
        cells. With doses, its half-maximal dose is the median of theirs. The model is saved with them.

        Parameters
        ----------
        vectors
            A vector for each name, as long as those registered by ``perturbation_features_key``; a mapping, or a data
            frame with names as index.

        Raises
        ------
        ValueError
            If no feature vectors were registered, a perturbation is known already, or a vector does not fit.

        Examples
        --------
        >>> model.add_perturbation_features({"FOXO1": foxo1_embedding})  # doctest: +SKIP
        >>> model.generate({"perturbation": "FOXO1+TP53"}, n_cells=100)  # doctest: +SKIP
        """
        extend(self, add_perturbations(self.registry, vectors))
