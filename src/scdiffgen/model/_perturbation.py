"""Counterfactuals: what given cells would be under other conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from scipy import sparse
from torch import Tensor

from scdiffgen.conditions import Conditions, request_table
from scdiffgen.data import unseen_in_training, write_conditions
from scdiffgen.responses import SOURCES

from ._cells import INFERENCE_BATCH_SIZE, Cells, generator_from
from ._checks import check_guidance, check_positive_integer, is_finite_number
from ._generation import N_STEPS, Generation
from ._mudata import new_cells
from ._sampler import whole_counts


class Perturbation(Generation):
    """Cells under conditions other than their own."""

    def predict_perturbation(
        self,
        adata: AnnData | None,
        conditions: Mapping[str, Any],
        *,
        indices: Sequence[int] | np.ndarray | None = None,
        keep: float | None = None,
        measured: bool = True,
        guidance_scale: float | Mapping[str, float] = 1.0,
        n_steps: int = N_STEPS,
        batch_size: int | None = None,
        seed: int | None = None,
        silent: bool = False,
    ) -> AnnData:
        """Predict each given cell under other conditions.

        *Coupled*: a perturbation changes the probabilities of the genes. A molecule stays if its gene is as probable as
        before, or else with the ratio of its probabilities; as many as do not stay are drawn from the genes that became
        more probable. So a cell keeps its library size, and whatever the perturbation does not concern. How they change
        is carried over from training cells that were measured with the perturbation and without, those like the given
        cells above all (:class:`scdiffgen.responses`); at a dose that was not measured, from the doses
        below and above; of a perturbation that was not, by its feature vector, from those that were. Where all this
        says nothing, as of a combination never measured, the effect network reads the change from a few molecules of
        the cell.

        *Grown again*: the cell is thinned to a share of its molecules, and grown under its own conditions with those
        given in their place. Other processes than thinning lead it to noise and back, as their options say.

        Parameters
        ----------
        adata
            Cells to start from, such as controls; ``None`` takes those the model was made with.
        conditions
            What to change, by the names under which it was registered, such as ``{"perturbation": "IFNB"}``.
        indices
            Cells to take, by default all.
        keep
            Share of its molecules (or of its variance, where noise is added) that a cell keeps before it is grown
            again, in [0, 1). What is kept ties the prediction to its cell, and also tells the model that the cell was
            not treated, which weakens the response. By default cells are coupled if only perturbations change that are
            effects, whatever else is named being as it was, and the process is thinning; otherwise they are grown from
            nothing.
        measured
            Whether cells that are coupled respond as was measured in other cells, where it was: at least 20 cells of
            some identity with the perturbation and 20 without. ``False`` asks the effect network alone, as is always
            done where continuous covariates were registered.
        guidance_scale
            As in :meth:`generate`; for a perturbation, the factor of its effect.
        n_steps
            As in :meth:`generate`, for cells that are grown again.
        batch_size, seed, silent
            As in :meth:`generate`.

        Returns
        -------
        A cell for each given one, of the same name: integer counts (CSR) in ``.X``; in ``.obs`` that of the given cells
        with the new conditions, and ``unseen_in_training``, whether no training cell had all of these conditions
        together (categories are compared, perturbations among them; doses and other numbers are not); of coupled cells,
        ``response`` says whether it was ``"measured"``, is carried over from other perturbations by ``"features"``, or
        is the ``"network"``'s.

        Raises
        ------
        ValueError
            If a condition or category is not registered or has several values, a perturbation lacks its dose,
            ``adata`` lacks genes, ``indices`` chooses no cell or one that is not there, or a number is out of range.
        KeyError
            If ``adata`` lacks a column that was registered.
        TypeError
            If ``adata`` or ``conditions`` is of another type.
        RuntimeError
            If the model is not trained.

        Examples
        --------
        >>> twins = model.predict_perturbation(adata, {"cell_type": "Dendritic"}, indices=[0, 1])
        >>> twins.obs_names.equals(adata.obs_names[:2])
        True
        """
        self._require_training()
        if keep is not None and not (is_finite_number(keep) and 0 <= keep < 1):
            raise ValueError(f"`keep` is {keep!r}: pass a share of the molecules in [0, 1).")
        check_positive_integer("n_steps", n_steps)
        table = request_table(conditions)
        if len(table) > 1:
            raise ValueError(f"`conditions` has {len(table)} rows: pass one value for each condition.")
        changes = self._encode(table).given_only()
        cells = Cells(self, adata, indices, batch_size, None if silent else "Predicting")
        if keep is None and not self._only_effects_change(cells, changes):
            keep = 0.0
        check_guidance(guidance_scale, [spec.name for spec in self.module.specs])
        generator = generator_from(seed, self.device)
        grown, asked, responses = [], [], []
        ask = self._responder(keep, measured, guidance_scale, n_steps, generator)
        for counts, own in cells:
            new = own.replace(changes.take(np.zeros(len(counts), dtype=int)).to(self.device))
            twins, source = ask(counts, own, new)
            grown.append(whole_counts(twins))
            asked.append(new.numpy())
            responses.append(np.array(SOURCES)[source.cpu().numpy()])
        encoded = Conditions.concatenate(asked).take(np.argsort(cells.sorted))
        obs = cells.obs()
        for name, value in write_conditions(self.registry, table.drop(columns="n_cells")).iloc[0].items():
            obs[name] = value
        obs["unseen_in_training"] = unseen_in_training(
            self.module.specs, encoded, self._training_conditions()
        ).combination
        if keep is None:
            obs["response"] = pd.Categorical(cells.in_order(responses), categories=list(SOURCES))
        return new_cells(cells.in_order(grown), obs, self._gene_names())

    def transfer_batch(
        self,
        adata: AnnData | None,
        to: str,
        *,
        indices: Sequence[int] | np.ndarray | None = None,
        keep: float = 0.5,
        n_steps: int = N_STEPS,
        batch_size: int | None = None,
        seed: int | None = None,
        silent: bool = False,
    ) -> AnnData:
        """Predict each given cell as another batch would have measured it.

        Parameters
        ----------
        adata
            Cells; ``None`` takes those the model was made with.
        to
            Batch, a category of the column registered as ``batch_key``.
        indices, keep, n_steps, batch_size, seed, silent
            As in :meth:`predict_perturbation`.

        Returns
        -------
        As :meth:`predict_perturbation`.

        Raises
        ------
        ValueError
            If no batch was registered. All else as in :meth:`predict_perturbation`.

        Examples
        --------
        >>> import scdiffgen
        >>> cells = scdiffgen.datasets.simulate(n_cells=100)
        >>> scdiffgen.model.setup_anndata(cells, layer="counts", batch_key="batch")
        >>> model = scdiffgen.model.TokenDiffusion(cells, n_tokens=4, token_dim=16)
        >>> model.train(max_epochs=1, enable_progress_bar=False)
        >>> model.transfer_batch(cells, "batch_1", indices=[0, 1], n_steps=4, seed=0).obs["batch"].tolist()
        ['batch_1', 'batch_1']
        """
        return self.predict_perturbation(
            adata,
            {self._batch_name(): to},
            indices=indices,
            keep=keep,
            n_steps=n_steps,
            batch_size=batch_size,
            seed=seed,
            silent=silent,
        )

    def dose_response(
        self,
        adata: AnnData | None,
        perturbation: str,
        doses: Sequence[float],
        *,
        genes: Sequence[str] | None = None,
        indices: Sequence[int] | np.ndarray | None = None,
        measured: bool = True,
        n_bootstrap: int = 200,
        n_steps: int = N_STEPS,
        batch_size: int | None = None,
        seed: int | None = None,
        silent: bool = False,
    ) -> pd.DataFrame:
        """Predict given cells at several doses: mean expression of each gene with an interval.

        Parameters
        ----------
        adata
            Cells to start from, such as controls; ``None`` takes those the model was made with.
        perturbation
            Perturbation, as it was registered.
        doses
            Doses, in the unit that was registered.
        genes
            Genes to report, by default all.
        indices
            Cells to take, by default all.
        measured
            As in :meth:`predict_perturbation`.
        n_bootstrap
            Resamples of the predicted cells behind the interval.
        n_steps, batch_size, seed, silent
            As in :meth:`generate`.

        Returns
        -------
        A row a dose and gene: ``dose``, ``gene``, ``mean`` (log1p of counts per 10,000, over the predicted cells), and
        ``low`` and ``high``, the 95 % interval over bootstrap resamples of these cells. ``.attrs["dose_unit"]`` is the
        registered unit.

        Raises
        ------
        ValueError
            If no doses were registered, a gene is unknown, there is no dose or one that is negative or NaN, or the
            model was registered with :meth:`setup_mudata`. All else as in :meth:`predict_perturbation`.

        Examples
        --------
        >>> import scdiffgen
        >>> cells = scdiffgen.datasets.simulate(n_cells=100)
        >>> scdiffgen.model.setup_anndata(cells, layer="counts", perturbation_key="perturbation", dose_key="dose")
        >>> model = scdiffgen.model.TokenDiffusion(cells, n_tokens=4, token_dim=16)
        >>> model.train(max_epochs=1, enable_progress_bar=False)
        >>> controls = cells.obs["perturbation"] == "control"
        >>> curves = model.dose_response(cells, "A", doses=[0.1, 1.0, 10.0], indices=controls, seed=0)
        >>> curves.columns.tolist()
        ['dose', 'gene', 'mean', 'low', 'high']
        """
        self._require_anndata("dose_response")
        name, dose_name = self._perturbation_names()
        known = self._gene_names()
        chosen = known if genes is None else pd.Index(genes)
        columns = known.get_indexer(chosen)
        if (columns < 0).any():
            raise ValueError(f"`genes` names {chosen[columns < 0].tolist()[:5]}, which the model does not know.")
        check_positive_integer("n_bootstrap", n_bootstrap)
        if not len(doses):
            raise ValueError("`doses` is empty: pass at least one dose.")
        rng = np.random.default_rng(generator_from(seed, torch.device("cpu")).initial_seed())
        frames = []
        for dose in doses:
            predicted = self.predict_perturbation(
                adata,
                {name: perturbation, dose_name: dose},
                indices=indices,
                measured=measured,
                n_steps=n_steps,
                batch_size=batch_size,
                seed=seed,
                silent=silent,
            )
            expression = _log_normalised(predicted.X)[:, columns]
            weights = rng.multinomial(len(predicted), np.full(len(predicted), 1 / len(predicted)), n_bootstrap)
            means = np.asarray(sparse.csr_matrix(weights / len(predicted)) @ expression.toarray())
            low, high = np.quantile(means, [0.025, 0.975], axis=0)
            mean = np.asarray(expression.mean(0)).ravel()
            frames.append(pd.DataFrame({"dose": float(dose), "gene": chosen, "mean": mean, "low": low, "high": high}))
        curves = pd.concat(frames, ignore_index=True)
        curves.attrs["dose_unit"] = next(spec.transform.unit for spec in self.module.specs if spec.name == name)
        return curves

    def interpolate(
        self,
        start: Mapping[str, Any],
        end: Mapping[str, Any],
        *,
        n_points: int = 5,
        n_cells: int = 100,
        n_steps: int = N_STEPS,
        batch_size: int = INFERENCE_BATCH_SIZE,
        seed: int | None = None,
    ) -> AnnData:
        """Generate cells along the path between two conditions.

        At a fraction f of the path, molecules come from the geometric mixture of the two conditional predictions,
        weighted 1 - f and f, and library sizes from the same mixture of quantiles.

        Parameters
        ----------
        start, end
            Conditions at both ends, as in :meth:`generate`; if perturbations were registered, name one, or the control,
            at each.
        n_points
            Points on the path, both ends included.
        n_cells
            Cells at each point.
        n_steps, batch_size, seed
            As in :meth:`generate`.

        Returns
        -------
        Generated cells: integer counts (CSR) in ``.X``, and ``.obs["fraction"]`` from 0 to 1.

        Raises
        ------
        ValueError
            If a condition or category is not registered, there are fewer than two points, a number is out of range, or
            the model was registered with :meth:`setup_mudata`.
        TypeError
            If an end is of another type.
        RuntimeError
            If the model is not trained.

        Examples
        --------
        >>> start, end = {"cell_type": "CD14+ Monocyte"}, {"cell_type": "Dendritic"}
        >>> path = model.interpolate(start, end, n_points=3, n_cells=2, n_steps=4, seed=0)
        >>> path.obs["fraction"].tolist()
        [0.0, 0.0, 0.5, 0.5, 1.0, 1.0]
        """
        self._require_training()
        self._require_anndata("interpolate")
        given = {"n_points": n_points, "n_cells": n_cells, "n_steps": n_steps, "batch_size": batch_size}
        for name, value in given.items():
            check_positive_integer(name, value)
        if n_points < 2:
            raise ValueError(f"`n_points` is {n_points}: a path has at least its two ends.")
        generator = generator_from(seed, self.device)
        ends = [self._encode(request_table(end_, n_cells)) for end_ in (start, end)]
        sizes = [np.sort(self._sizes_of(encoded, n_cells, generator)) for encoded in ends]
        shuffled = np.random.default_rng(generator.initial_seed()).permutation(n_cells)
        grown = []
        for fraction in np.linspace(0, 1, n_points):
            library = np.exp((1 - fraction) * np.log(sizes[0]) + fraction * np.log(sizes[1])).round()[shuffled]
            for rows in np.split(np.arange(n_cells), range(batch_size, n_cells, batch_size)):
                at_start, at_end = (end_.take(np.zeros(len(rows), dtype=int)).to(self.device) for end_ in ends)
                target = torch.from_numpy(library[rows]).float().to(self.device)
                counts = self.module.interpolate(
                    at_start, at_end, float(fraction), target, n_steps=n_steps, generator=generator
                )
                grown.append(whole_counts(counts))
        obs = pd.DataFrame({"fraction": np.repeat(np.linspace(0, 1, n_points), n_cells)})
        obs.index = [f"generated_{i}" for i in range(len(obs))]
        return AnnData(sparse.vstack(grown, format="csr"), obs=obs, var=pd.DataFrame(index=self._gene_names()))

    def get_condition_embedding(self, conditions: Mapping[str, Any] | pd.DataFrame) -> pd.DataFrame:
        """Vectors of conditions as the network sees them.

        Parameters
        ----------
        conditions
            As in :meth:`generate`: a mapping, or a table with a row for each.

        Returns
        -------
        A row a condition: ``identity_1`` and on (of all conditions one after the other, unless the conditioning is
        ``"adaln"``); with perturbations as effects, ``effect_1`` and on as well.

        Examples
        --------
        >>> import pandas as pd
        >>> types = pd.DataFrame({"cell_type": ["Dendritic", "CD14+ Monocyte", "CD34+"]})
        >>> model.get_condition_embedding(types).shape
        (3, 128)
        """
        self._require_training()
        table = request_table(conditions)
        told = self._encode(table).to(self.device)
        denoiser = self.module.ema_denoiser
        with torch.no_grad():
            vectors = {"identity": denoiser.embed_conditions(told, len(table)).flatten(1)}
            for name in denoiser.effect_names:
                vectors["effect"] = denoiser.effect_of(name).summary(told[name])
        frames = [
            pd.DataFrame(vector.cpu().numpy(), columns=[f"{kind}_{i + 1}" for i in range(vector.shape[1])])
            for kind, vector in vectors.items()
        ]
        return pd.concat(frames, axis=1)

    def _responder(
        self,
        keep: float | None,
        measured: bool,
        guidance_scale: float | Mapping[str, float],
        n_steps: int,
        generator: torch.Generator,
    ) -> Callable[[Tensor, Conditions[Tensor], Conditions[Tensor]], tuple[Tensor, Tensor]]:
        """Predict minibatches of counts under other conditions, and say where the response of each cell comes from."""
        share = None if keep is None else float(keep)
        remembered = self._responses() if measured and keep is None else None

        def of_network(counts: Tensor, own: Conditions[Tensor], new: Conditions[Tensor]) -> Tensor:
            scales: dict[str, Any] = {"guidance_scale": guidance_scale, "n_steps": n_steps, "generator": generator}
            return self.module.counterfactual(counts, own, new, keep=share, **scales)

        def ask(counts: Tensor, own: Conditions[Tensor], new: Conditions[Tensor]) -> tuple[Tensor, Tensor]:
            if remembered is None:
                return of_network(counts, own, new), torch.zeros(len(counts), dtype=torch.long)
            carried = remembered.responses(own, new)
            if not carried.known.any():
                return of_network(counts, own, new), carried.source
            scale = self.module.effect_scale(guidance_scale)
            twins = remembered.apply(self._thinning("predict_perturbation"), counts, own, carried, scale, generator)
            if not carried.known.all():
                twins = torch.where(carried.known[:, None], twins, of_network(counts, own, new))
            return twins, carried.source

        return ask

    def _only_effects_change(self, cells: Cells, changes: Conditions[np.ndarray]) -> bool:
        """Whether the cells have all of the conditions already, but for perturbations that are effects."""
        identity = [name for name in changes if name not in self.module.denoiser.effect_names]
        if not identity:
            return True
        for counts, own in cells:
            asked = changes.take(np.zeros(len(counts), dtype=int)).to(self.device)
            for name in identity:
                pairs = zip(own[name], asked[name], strict=True)
                if not all(torch.allclose(had.double(), want.double(), equal_nan=True) for had, want in pairs):
                    return False
        return True

    def _sizes_of(self, encoded: Conditions[np.ndarray], n_cells: int, generator: torch.Generator) -> np.ndarray:
        repeated = encoded.take(np.zeros(n_cells, dtype=int))
        return self._library_sizes(repeated, pd.DataFrame(index=range(n_cells)), None, generator)

    def _perturbation_names(self) -> tuple[str, str]:
        for spec in self.module.specs:
            if spec.kind == "set" and spec.has_values:
                return spec.name, "dose"
        raise ValueError("No doses were registered: pass `perturbation_key` and `dose_key` to `setup_anndata`.")


def _log_normalised(counts: sparse.csr_matrix) -> sparse.csr_matrix:
    """log1p of counts per 10,000."""
    scale = 1e4 / np.asarray(counts.sum(1)).ravel().clip(min=1)
    normalised = sparse.csr_matrix(counts.multiply(scale[:, None]))
    normalised.data = np.log1p(normalised.data)
    return normalised
