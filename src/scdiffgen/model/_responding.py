"""Methods that predict given cells under other conditions: coupled to their counts, or resampled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from mudata import MuData
from numpy.typing import ArrayLike
from scipy import sparse
from scvi.model.base import BaseModelClass

from scdiffgen._arguments import check_choice, check_share, check_whole_number
from scdiffgen._log_normalise import log_normalise
from scdiffgen._messages import counted, listed, warn_user
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen._shared_docs import shared_docs
from scdiffgen.conditions import N_CELLS, UNSEEN, Conditions, Request, request_table
from scdiffgen.data import add_perturbations, registered_conditions, write_conditions
from scdiffgen.diffusion import to_scipy
from scdiffgen.module import DiffusionModule
from scdiffgen.responses import Asked, ResponsePredictor

from ._cell_request import encode, exceeded_doses, extend, warn_of_large_doses
from ._cells import BATCH_SIZE, Cells, generator_from, new_cells, repeated
from ._model_access import (
    batch_name,
    gene_names,
    gene_positions,
    gene_table,
    require_anndata,
    require_training,
    sampler_of,
)
from ._sampler import Sampler, whole_counts
from ._training_summary import TrainingCells
from ._transferred_responses import UNKNOWN_RESPONSE, CellResponses, JointResponse, check_of, response_groups


class Responding(BaseModelClass):
    """Mixin that predicts given cells under other conditions."""

    @shared_docs
    def predict_perturbation(
        self,
        adata: AnnData | MuData | None,
        conditions: Mapping[str, Any],
        *,
        indices: Sequence[int] | np.ndarray | None = None,
        keep_fraction: float | None = None,
        source: ResponseSource = "auto",
        guidance_scale: float | Mapping[str, float] = 1.0,
        n_steps: int | None = None,
        batch_size: int = BATCH_SIZE,
        seed: int | None = 0,
        silent: bool = False,
    ) -> AnnData | MuData:
        """Predict given cells under other conditions, such as a perturbation.

        *Transfer*: if only perturbations change, a response (a change of mean log expression) is predicted from
        training cells of the same context or of others, and applied. Binomial thinning removes molecules of
        down-regulated genes; Poisson counts are added for up-regulated genes, so other counts of a cell stay. Where
        measured sums of counts show that only a part of the cells responds, so do the predicted cells. If no
        data predict the response, the network changes the cell; the network also predicts changes of batch.

        *Resampling* (``keep_fraction``): the cell is thinned to a share of its molecules and completed under the new
        conditions. Processes with Gaussian noise add noise and remove it instead.

        Parameters
        ----------
        adata
            Cells to start from, such as controls; ``None`` uses the cells that the model was created with.
        conditions
            New values by the registered names of the conditions, such as ``{"perturbation": "IFNB"}``.
        keep_fraction
            Share of the molecules (or of the variance, with Gaussian noise) that a cell keeps before resampling, in
            [0, 1). A larger share keeps more of the cell and weakens the response. ``None`` couples cells if only
            perturbations change, or only the batch; otherwise it is 0.
        source
            ``"auto"`` applies responses measured in contexts with at least 20 treated and 20 untreated cells.
            ``"network"`` uses the network alone.
        guidance_scale
            As in :meth:`generate`; for a perturbation, the factor of the transferred response.

        Returns
        -------
        One predicted cell per given cell, with its name: integer counts (CSR) in ``.X``; in ``.obs`` the new conditions
        and ``unseen_in_training`` as in :meth:`generate`, without summaries of the former counts (``total_counts``).
        ``response_source`` is ``"own"`` (cells of the context), ``"transferred"`` (other contexts or doses),
        ``"parts"`` (of a combination), ``"features"`` (of other perturbations), ``"network"`` or ``"resampled"`` (new
        cells, or ``keep_fraction``). Unless resampled, ``response_check`` says whether predictions of left-out
        responses were better than the plain mean of other responses, by more than an 80 % interval of the difference,
        or that the measured response cannot be told from noise (no gene changes at a false discovery rate of 5 %).

        {raises_cells}
        ValueError
            If a condition or category is not registered or has several values, or a perturbation lacks its dose.

        Warns
        -----
        UserWarning
            If given cells are treated already, treatment and another condition are confounded or change together, fewer
            than three other contexts were measured, or no training cell has a number of the cells, such as their time.

        Examples
        --------
        >>> model.predict_perturbation(adata, {"cell_type": "Dendritic"}, indices=[0, 1]).shape
        (2, 765)
        """
        require_training(self)
        if keep_fraction is not None:
            check_share("keep_fraction", keep_fraction, "a share of the molecules")
        sampler = sampler_of(self, n_steps, batch_size, guidance_scale, [spec.name for spec in self.module.specs])
        generator = generator_from(seed, self.device)
        return counterfactual_cells(
            self, sampler, adata, indices, conditions, source, generator, keep_fraction, silent=silent
        )

    @shared_docs
    def transfer_batch(
        self,
        adata: AnnData | MuData | None,
        to: str,
        *,
        indices: Sequence[int] | np.ndarray | None = None,
        keep_fraction: float | None = None,
        n_steps: int | None = None,
        batch_size: int = BATCH_SIZE,
        seed: int | None = 0,
        silent: bool = False,
    ) -> AnnData | MuData:
        """Predict given cells as another batch would have measured them.

        By default cells are coupled, so cell type and cell state are kept. Cells of the target batch are unchanged, and
        library sizes are kept.

        Parameters
        ----------
        to
            Target batch, a category of the column registered as ``batch_key``.
        keep_fraction
            As in :meth:`predict_perturbation`; 0 draws new cells with the same conditions.

        Returns
        -------
        As in :meth:`predict_perturbation`.

        {raises_cells}

        Examples
        --------
        >>> screen_model.transfer_batch(screen, "batch_1", indices=[0, 1], n_steps=4).obs["batch"].tolist()
        ['batch_1', 'batch_1']
        """
        options: dict[str, Any] = {"n_steps": n_steps, "batch_size": batch_size, "seed": seed, "silent": silent}
        return self.predict_perturbation(
            adata, {batch_name(self): to}, indices=indices, keep_fraction=keep_fraction, **options
        )

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
        n_steps: int | None = None,
        batch_size: int = BATCH_SIZE,
        seed: int | None = 0,
        silent: bool = False,
    ) -> pd.DataFrame:
        """Predict the dose response of given cells: mean expression of each gene at several doses.

        Parameters
        ----------
        adata
            Cells to start from, such as controls; ``None`` uses the cells that the model was created with.
        perturbation, doses
            Registered name of a perturbation, and doses in the registered unit.
        source
            As in :meth:`predict_perturbation`.
        n_bootstrap
            Number of bootstrap resamples of the predicted cells, for the interval.

        Returns
        -------
        One row per dose and gene: ``dose``, ``gene``, ``mean`` (log1p of counts per 10,000), its 95 % bootstrap
        interval over cells, ``low`` and ``high``, and whether the dose is ``extrapolated``, because it exceeds the
        largest registered dose of the perturbation. ``.attrs["dose_unit"]`` is the registered unit.

        {raises_cells}
        ValueError
            If no doses were registered, ``doses`` is empty, or a dose is negative or NaN.

        Examples
        --------
        >>> controls = screen.obs["perturbation"] == "control"
        >>> screen_model.dose_response(screen, "A", [0.1, 10.0], indices=controls).columns.tolist()
        ['dose', 'gene', 'mean', 'low', 'high', 'extrapolated']
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
        sampler, frames = sampler_of(self, n_steps, batch_size), []  # shared by all doses, because it caches responses
        for dose in doses:
            request, generator = {dosed.name: perturbation, "dose": dose}, generator_from(seed, self.device)
            predicted = counterfactual_cells(self, sampler, adata, indices, request, source, generator, silent=silent)
            means = means_with_intervals(predicted.X, columns, n_bootstrap, rng)
            beyond = bool([*exceeded_doses(self, encode(self, request_table(request)))])
            frames.append({"dose": float(dose), "gene": gene_names(self)[columns], **means, "extrapolated": beyond})
        curves = pd.concat(map(pd.DataFrame, frames), ignore_index=True)
        curves.attrs["dose_unit"] = dosed.transform.unit
        return curves

    @shared_docs
    def get_response_weights(self, conditions: Request) -> pd.DataFrame:
        """Describe transferred responses: stacking weights of their predictors, and scores on left-out responses.

        Parameters
        ----------
        conditions
            As in :meth:`generate`: perturbations, and the cell context that receives them.

        Returns
        -------
        One row per condition: ``response_source`` and ``response_check`` (:meth:`predict_perturbation`);
        ``left_out_pearson``, the median correlation of left-out responses with their predictions; ``left_out_gain``, 1
        minus the ratio of the squared errors of these predictions and of the plain mean; ``cautions`` in words; and the
        weights of the predictors, which sum to 1.

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
        """Predict the mean response to perturbations, without the sampling noise of drawn cells.

        The mean response is the limit of :meth:`predict_perturbation` over many untreated cells of a context. Use it to
        rank genes and to compare with methods that predict means alone.

        Parameters
        ----------
        conditions
            As in :meth:`generate`: perturbations, and the cell context that receives them.
        interval
            Whether to return 80 % intervals for the change that an experiment measures, from prediction errors of
            left-out responses, or from the sampling variance of measured responses.

        Returns
        -------
        Change of the mean of log1p of counts per 10,000 at equal sequencing depth; NaN where the network predicts the
        response. For a mapping, which is one condition, one row per gene: ``gene`` (in a MuData also ``modality``),
        ``change``, and with ``interval`` also ``low``, ``high`` and ``no_source``. For a data frame, one row per
        condition and one column per gene; with ``interval``, columns are pairs of one of these names and a gene.
        ``no_source`` marks genes with less than a tenth of their expression in all contexts from which the response is
        transferred: their response cannot be known. For these genes, and where no response can be left out, low and
        high are NaN. ``.attrs["response_check"]`` lists the checks of the conditions, as in
        :meth:`predict_perturbation`.

        {raises_request}

        Warns
        -----
        UserWarning
            If :meth:`predict_perturbation` warns of the response, such as of a confounded condition, fewer than three
            other contexts, or a number that no training cell has. Each caution gives one warning, for its first
            condition; :meth:`get_response_weights` lists all.

        Examples
        --------
        >>> change = screen_model.get_mean_response({"perturbation": "A", "dose": 2.0})
        >>> change.columns.tolist(), bool(change["change"].isna().all())  # too few cells in the example
        (['gene', 'change'], True)
        """
        require_training(self)
        table, responses = untreated_responses(self, conditions)
        tidy = isinstance(conditions, Mapping)
        changes = mean_responses(responses, table.index, gene_names(self), interval=interval, tidy=tidy)
        changes.attrs["response_check"] = [*map(check_of, responses)]
        cautions: dict[str, int] = {}
        for row, response in enumerate(responses):
            for caution in response.prediction.cautions if response is not None else ():
                cautions.setdefault(caution, row)
        for caution, first in cautions.items():
            _warn_of_response(table.iloc[first], caution)
        return changes

    def _requested_responses(self, conditions: pd.DataFrame) -> tuple[ResponsePredictor, list[Asked]]:
        """Return the predictor of responses, and the codes of each requested context and treatment."""
        require_training(self)
        require_anndata(self, "rank_experiments")
        responses = sampler_of(self).responses
        if responses is None or responses.predictors[0] is None:
            raise ValueError("The model has no measured responses: register treated cells by `perturbation_key`.")
        encoded = encode(self, request_table(conditions))
        rows = response_groups(encoded, responses.specs, responses.edges)
        return responses.predictors[0], [(codes, rows.treatment(i)) for i, codes in enumerate(rows.cell_context)]

    def add_perturbation_features(self, vectors: Mapping[str, ArrayLike] | pd.DataFrame) -> None:
        """Register unmeasured perturbations by their feature vectors, so that responses to them can be predicted.

        Nothing is trained: the learned embedding of feature vectors, and the regression of measured responses on them,
        are applied to the new vectors. The new perturbations are saved with the model.

        Parameters
        ----------
        vectors
            Mapping from names to vectors, or data frame with names as index; the length is that of the vectors that
            were registered by ``perturbation_features_key``.

        Raises
        ------
        ValueError
            If no feature vectors were registered, a perturbation is already registered, or a vector has another length.

        Examples
        --------
        >>> model.add_perturbation_features({"FOXO1": foxo1_embedding})  # doctest: +SKIP
        >>> model.generate({"perturbation": "FOXO1+TP53"}, n_cells=100)  # doctest: +SKIP
        """
        extend(self, add_perturbations(self.registry, vectors))


ResponseSource = Literal["auto", "network"]


def counterfactual_cells(
    model: BaseModelClass,
    sampler: Sampler,
    adata: AnnData | MuData | None,
    indices: Sequence[int] | np.ndarray | None,
    conditions: Mapping[str, Any],
    source: ResponseSource,
    generator: torch.Generator,
    keep: float | None = None,
    *,
    silent: bool,
) -> AnnData | MuData:
    """Predict cells under other conditions."""
    check_choice("source", source, get_args(ResponseSource))
    table = request_table(conditions)
    if len(table) > 1:
        raise ValueError(f"`conditions` has {len(table)} rows: pass one value for each condition.")
    changes, requested = encode(model, table).given_only(), table.drop(columns=N_CELLS)
    cells = Cells(model, adata, indices, sampler.batch_size, None if silent else "Predicting")
    given = registered_conditions(cells.manager, cells.indices)
    _warn_of_treated_cells(cells, given, changes)
    before = given.take(cells.sorted)  # in the order of the minibatches
    after = before.replace(changes.take(np.zeros(before.n_cells, dtype=int)))
    route = "resample" if keep is not None else _chosen_route(cells.module, before, changes)
    if route == "resample" and keep is None:
        _warn_of_joint_changes(before, changes, cells.module.intervention_names)
        keep = 0.0
    responses = CellResponses.of_network(before.n_cells)
    if route == "transfer" and source == "auto" and sampler.responses is not None:
        responses = sampler.responses.responses(before, after, sampler.response_scale)
        unmeasured = sampler.responses.number_cautions(after.take(np.flatnonzero(responses.known)))
        for caution in dict.fromkeys([*responses.cautions(), *unmeasured]):
            _warn_of_response(requested.iloc[0], caution)
        if not responses.known.all():
            warn_user(UNKNOWN_RESPONSE)
    counts = _predicted(sampler, cells, changes, responses, keep, generator)
    in_order, obs = np.argsort(cells.sorted), cells.obs()
    for name, column in write_conditions(model.registry, requested).items():
        obs[name] = column.iloc[np.zeros(len(obs), dtype=int)].array  # keeps the registered type
    obs[UNSEEN] = TrainingCells(model).n_alike(after.take(in_order)) == 0
    obs["response_source"] = pd.Categorical(["resampled"] * len(obs))
    if route != "resample":
        for name, column in responses.columns().iloc[in_order].items():
            obs[name] = column.array
    return new_cells(counts, obs, gene_table(model))


def _chosen_route(
    module: DiffusionModule, before: Conditions[np.ndarray], changes: Conditions[np.ndarray]
) -> Literal["transfer", "network", "resample"]:
    """Choose how cells are predicted: coupled by a transferred response or the network, or else resampled."""
    batch = [spec.name for spec in module.specs if spec.registry_key == REGISTRY_KEYS.BATCH]
    if _have_already(before, changes.without(module.intervention_names)):
        return "transfer"  # `ResponsePredictor.change` chooses the source of the response
    return "network" if _have_already(before, changes.without(batch)) else "resample"


def _predicted(
    sampler: Sampler,
    cells: Cells,
    changes: Conditions[np.ndarray],
    responses: CellResponses,
    keep: float | None,
    generator: torch.Generator,
) -> sparse.csr_matrix:
    """Predict counts ``(cells, genes)`` by transferred responses where known, else by the network."""
    change = partial(sampler.module.counterfactual, guidance=sampler.guidance, n_steps=sampler.n_steps)
    predicted, n_done = [], 0
    for counts, source in cells:
        found = responses.take(np.arange(n_done, n_done := n_done + len(counts)))
        known = found.known
        parts = [found.apply(to_scipy(counts), generator)[known]] if known.any() else []
        if not known.all():
            target = source.replace(repeated(changes, len(counts), counts.device))
            parts.append(whole_counts(change(counts, source, target, keep=keep, generator=generator))[~known])
        places = np.argsort(~known, kind="stable")  # of the rows of `parts` in the minibatch
        predicted.append(sparse.vstack(parts, format="csr")[np.argsort(places)])
    return cells.in_order(predicted)


def _warn_of_treated_cells(cells: Cells, given: Conditions[np.ndarray], changes: Conditions[np.ndarray]) -> None:
    """Warn of given cells that are treated already, if a treatment is requested; dose 0 is none."""
    groups = [conditions.groups(cells.module.specs) for conditions in (changes, given)]
    asked, treated = (((group.interventions >= 0) & (group.doses != 0)).any(axis=1) for group in groups)
    if asked.any() and treated.any():
        warn_user(
            f"{treated.sum():,} of {counted(len(treated), 'cell')} have a treatment already (first: "
            f"{cells.names[treated.argmax()]!r}): their change is the difference between both treatments, and cells "
            "with the requested treatment stay as they are. Pass control cells, as `adata` or by `indices`."
        )


def _warn_of_response(requested: pd.Series, caution: str) -> None:
    """Warn of a response, without the dose, so that a dose response warns once."""
    named = requested.drop("dose", errors="ignore").dropna().tolist()
    warn_user(f"The response to {listed(named)}: {caution}.")


def _warn_of_joint_changes(
    before: Conditions[np.ndarray], changes: Conditions[np.ndarray], effects: Sequence[str]
) -> None:
    """Warn that cells are resampled because other conditions change together with the treatment."""
    treatment, others = changes.only(effects), changes.without(effects)
    names = " and ".join(repr(name) for name in others if not _have_already(before, others.only([name])))
    if not _have_already(before, treatment):
        warn_user(
            f"`conditions` changes {names} and {next(iter(treatment))!r} together: new cells are sampled, and no "
            f"measured response is used. Leave out {names}, or call `transfer_batch` first to change the batch."
        )


def _have_already(cells: Conditions[np.ndarray], changes: Conditions[np.ndarray]) -> bool:
    """Test whether all cells already have the conditions of a request of one row."""
    pairs = (pair for name in changes for pair in zip(cells[name], changes[name], strict=True))
    return all(np.allclose(own, requested, equal_nan=True) for own, requested in pairs)


def untreated_responses(model: BaseModelClass, conditions: Request) -> tuple[pd.DataFrame, list[JointResponse | None]]:
    """Return a request, and the response of untreated cells by row; ``None`` if the network predicts it."""
    table, transfer = request_table(conditions), sampler_of(model).responses
    encoded, responses = encode(model, table), list[JointResponse | None]([None] * len(table))
    if not encoded.given_only().only(effects := model.module.intervention_names):
        raise ValueError(f"`conditions` names no perturbation ({listed(effects) or 'none is registered'}): add it.")
    if transfer is not None:
        responses = transfer.from_untreated(encoded)
    unknown = [response is None for response in responses]
    warn_of_large_doses(model, encoded.take(np.flatnonzero(unknown)))  # known responses have a caution
    return table.drop(columns=N_CELLS), responses


def response_weights(responses: Sequence[JointResponse | None], table: pd.DataFrame) -> pd.DataFrame:
    """Tabulate responses to the rows of a request, and the weights of their predictors."""
    described, weights = [], []
    for response in responses:
        row: dict[str, Any] = {"response_source": "network", "response_check": check_of(response)}
        if response is not None:
            best = response.prediction
            expected = float(np.nanmedian(best.pearson)) if np.isfinite(best.pearson).any() else np.nan
            row |= {"response_source": best.source, "left_out_pearson": expected, "left_out_gain": best.gain}
            row["cautions"] = "; ".join(best.cautions)
        described.append(row)
        weights.append({} if response is None else dict(response.prediction.weights))
    predictors = pd.DataFrame(weights, index=table.index).fillna(0.0)
    return pd.concat([table, pd.DataFrame(described, index=table.index), predictors], axis=1)


def mean_responses(
    responses: Sequence[JointResponse | None], index: pd.Index, genes: pd.Index, *, interval: bool, tidy: bool
) -> pd.DataFrame:
    """Tabulate changes of mean log expression, with ``interval`` also their limits; ``tidy`` is for one response."""
    unknown = np.full(len(genes), np.nan)
    change = np.array([unknown if response is None else response.mean_change for response in responses])
    width = np.array([unknown if response is None else response.half_width for response in responses])
    frames = {"change": change}
    if interval:
        none = unknown > 0
        no_source = np.array([none if response is None else response.no_source for response in responses])
        frames |= {"low": change - width, "high": change + width, "no_source": no_source}
    if tidy:
        columns = genes.set_names(["modality", "gene"][-genes.nlevels :]).to_frame(index=False)
        return columns.assign(**{name: values[0] for name, values in frames.items()})
    tables = {name: pd.DataFrame(values, index=index, columns=genes) for name, values in frames.items()}
    return pd.concat(tables, axis=1, names=["statistic"]) if interval else tables["change"]


def means_with_intervals(
    counts: sparse.csr_matrix, columns: np.ndarray, n_bootstrap: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Compute the ``mean`` log expression of some genes, and its 95 % bootstrap interval ``low``, ``high``."""
    expression = log_normalise(counts)[:, columns]
    n_cells = expression.shape[0]
    weights = rng.multinomial(n_cells, np.full(n_cells, 1 / n_cells), n_bootstrap)
    means = np.asarray(sparse.csr_matrix(weights / n_cells) @ expression.toarray())
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    return {"mean": np.asarray(expression.mean(0)).ravel(), "low": low, "high": high}
