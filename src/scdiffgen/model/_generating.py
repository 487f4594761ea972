"""Methods that generate cells: new ones, between two sets of conditions, and missing modalities of given cells."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from mudata import MuData
from numpy.typing import ArrayLike
from scipy import sparse
from scvi.model.base import BaseModelClass
from scvi.utils import track
from torch import Tensor

from scdiffgen._arguments import check_names, check_whole_number, is_finite_number
from scdiffgen._shared_docs import shared_docs
from scdiffgen.conditions import Conditions, MixedConditions, Request

from ._cell_request import CellRequest
from ._cells import BATCH_SIZE, Cells, generator_from, new_cells
from ._checks import check_path, check_seed, library_sizes
from ._chunked_generation import check_client, write_cells
from ._modality_imputer import label_rows
from ._model_access import gene_table, modalities, require_anndata, require_training, sampler_of
from ._sampler import Sampler, whole_counts
from ._training_summary import TrainingCells, sizes_by_name

if TYPE_CHECKING:
    from distributed import Client

    from ._checks import LibrarySize

Method = TypeVar("Method", bound=Callable)


def explain_unknown_arguments(method: Method) -> Method:
    """Explain unknown arguments of a method: closest names, and how to pass conditions and numbers of cells."""
    known = inspect.signature(method).parameters
    elsewhere = dict.fromkeys(("n_samples", "n") if "n_cells" in known else (), "It is called `n_cells`.")

    @functools.wraps(method)  # defined here, because doctest finds no examples of functions of other modules
    def explained(*args: Any, **kwargs: Any) -> Any:
        check_names(method.__qualname__.removesuffix(".__init__").rpartition(".")[2], kwargs, known, elsewhere)
        return method(*args, **kwargs)

    return cast("Method", explained)


class Generating(BaseModelClass):
    """Mixin that generates cells for given conditions, deeper cells, and missing modalities."""

    @explain_unknown_arguments
    @shared_docs
    def generate(
        self,
        conditions: Request = None,
        n_cells: int | None = None,
        *,
        library_size: LibrarySize = None,
        guidance_scale: float | Mapping[str, float] = 1.0,
        n_steps: int | None = None,
        batch_size: int = BATCH_SIZE,
        seed: int | None = 0,
        silent: bool = False,
    ) -> AnnData | MuData:
        """Generate cells under given conditions.

        The network draws cells of contexts with at least 20 training cells of the requested perturbation. For other
        contexts, it draws untreated cells, whose library sizes are multiplied by the ratio of the response, and the
        transferred response is applied to them (:meth:`predict_perturbation`). Protein tags of a MuData are drawn by
        regression on the generated RNA (:meth:`generate_modality`) without ``library_size`` and perturbations.

        Returns
        -------
        New cells, a MuData if the model was registered with one. ``.X`` holds integer counts (CSR). ``.obs`` holds all
        registered conditions; ``drawn_conditions``, the names of conditions that were not requested but drawn from
        training cells; ``unseen_in_training``, whether no training cell had all requested categories (numbers are not
        compared); and for treated cells ``response_check`` and ``response_source`` as in :meth:`predict_perturbation`;
        ``"own"`` cells are drawn by the network, which was trained on cells of the requested conditions.

        {raises_request}

        Warns
        -----
        UserWarning
            If nothing is known of the response of a requested context.

        Examples
        --------
        >>> model.generate({"cell_type": "CD14+ Monocyte"}, n_cells=3, n_steps=4).obs["cell_type"].tolist()
        ['CD14+ Monocyte', 'CD14+ Monocyte', 'CD14+ Monocyte']
        """
        require_training(self)
        request = CellRequest(self, conditions, n_cells)
        sampler = sampler_of(self, n_steps, batch_size, guidance_scale, request.given, library_size)
        generator = generator_from(seed, self.device)
        complete, sizes = request.completed(generator, library_size)
        cells = sampler.sample(complete, sizes, generator, None if silent else "Generating")
        return new_cells(cells, sampler.annotate(request.obs(request.decoded(complete)), complete), gene_table(self))

    @explain_unknown_arguments
    @shared_docs
    def interpolate(
        self,
        start: Request,
        end: Request,
        weights: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
        n_cells: int | None = None,
        *,
        library_size: LibrarySize = None,
        n_steps: int | None = None,
        batch_size: int = BATCH_SIZE,
        seed: int | None = 0,
        silent: bool = False,
    ) -> AnnData:
        """Generate cells between two sets of conditions, by linear interpolation of their embeddings.

        The network draws all cells, also of perturbations, and the same noise is used for all weights. Gaussian
        diffusion also interpolates the means and standard deviations of normal scores. Cells between two conditions
        are no cells that were ever measured: look at them as at a path through what the model learned.

        Parameters
        ----------
        start, end
            Conditions at weight 0 and 1, as ``conditions`` of :meth:`generate`, for equally many cells.
        weights
            Weights of ``end``, between 0 and 1. Library sizes between both are geometric means.

        Returns
        -------
        Cells of each weight one after another. ``.obs`` holds ``weight``, and the conditions as ``start_<name>`` and
        ``end_<name>``.

        {raises_request}

        Examples
        --------
        >>> start, end = {"cell_type": "CD14+ Monocyte"}, {"cell_type": "Dendritic"}
        >>> model.interpolate(start, end, [0, 0.5, 1], n_cells=2, n_steps=4).obs["weight"].tolist()
        [0.0, 0.0, 0.5, 0.5, 1.0, 1.0]
        """
        require_training(self)
        require_anndata(self, "interpolate")
        if not len(weights) or not all(is_finite_number(weight) and 0 <= weight <= 1 for weight in weights):
            raise ValueError(f"`weights` is {weights!r}: pass at least one number, all between 0 and 1.")
        sampler = sampler_of(self, n_steps, batch_size)
        ends = {"start": CellRequest(self, start, n_cells), "end": CellRequest(self, end, n_cells)}
        return cells_between(ends, sampler, weights, library_size, seed, silent=silent)

    @explain_unknown_arguments
    @shared_docs
    def draw_conditions(
        self,
        conditions: Request = None,
        n_cells: int | None = None,
        *,
        library_size: LibrarySize = None,
        seed: int | None = 0,
    ) -> pd.DataFrame:
        """Draw the conditions and library sizes of :meth:`generate` (with the same seed), without generating cells.

        Returns
        -------
        The ``.obs`` of :meth:`generate`, with a column ``library_size``, the number of molecules per cell.

        {raises_request}

        Examples
        --------
        >>> cells = model.draw_conditions({"cell_type": "CD14+ Monocyte"}, n_cells=3)
        >>> deep = model.generate(cells, library_size=2 * cells.pop("library_size").to_numpy(), n_steps=4)
        """
        require_training(self)
        require_anndata(self, "draw_conditions")
        request = CellRequest(self, conditions, n_cells)
        complete, sizes = request.completed(generator_from(seed, self.device), library_size)
        return request.obs(request.decoded(complete)).assign(library_size=sizes)

    @explain_unknown_arguments
    @shared_docs
    def generate_to(
        self,
        path: str | os.PathLike[str],
        conditions: Request = None,
        n_cells: int | None = None,
        *,
        library_size: LibrarySize = None,
        chunk_size: int = 8192,
        client: Client | None = None,
        guidance_scale: float | Mapping[str, float] = 1.0,
        n_steps: int | None = None,
        batch_size: int = BATCH_SIZE,
        seed: int = 0,
        silent: bool = False,
    ) -> Path:
        """Generate cells into a file, chunk by chunk; repeat the call to resume after an interruption.

        Memory holds one chunk, and ``.obs`` of all cells at the end. Chunks are stored in the folder ``<path>.partial``
        until all are complete.

        Parameters
        ----------
        path
            New ``.h5ad`` file or ``.zarr`` folder (zarr 3, in shards); ``.h5mu`` file of a MuData. It must not hold
            other cells, complete or partial.
        chunk_size
            Number of cells per chunk. A function ``library_size`` is called once per chunk, before generation.
        client
            Client of a Dask cluster whose workers generate the chunks (``pip install 'scdiffgen[distributed]'``).
        seed
            Random seed: equal cells also need equal ``chunk_size`` and ``batch_size``.

        Returns
        -------
        Path of the file, for :func:`anndata.read_h5ad`, :func:`anndata.io.read_zarr` or ``mudata.read_h5mu``; ``.uns``
        holds the request.

        {raises_request}
        RuntimeError
            If another process is generating the file, or workers are lost repeatedly.

        Examples
        --------
        >>> import anndata, tempfile
        >>> path = model.generate_to(tempfile.mkdtemp() + "/cells.h5ad", n_cells=5, n_steps=4, chunk_size=2)
        >>> anndata.read_h5ad(path, backed="r").n_obs
        5
        """
        require_training(self)
        check_client(client)
        check_whole_number("chunk_size", chunk_size)
        check_whole_number("seed", seed, at_least=0)
        check_seed(seed)
        check_path("path", path)
        request = CellRequest(self, conditions, n_cells)
        sampler = sampler_of(self, n_steps, batch_size, guidance_scale, request.given, library_size)
        return write_cells(path, request, sampler, library_size, chunk_size, seed, client, silent=silent)

    @shared_docs
    def deepen(
        self,
        adata: AnnData | MuData | None = None,
        factor: float = 2.0,
        *,
        indices: Sequence[int] | np.ndarray | None = None,
        n_steps: int | None = None,
        batch_size: int = BATCH_SIZE,
        seed: int | None = 0,
        silent: bool = False,
    ) -> AnnData | MuData:
        """Sequence cells virtually deeper: keep their molecules and add predicted ones.

        Parameters
        ----------
        factor
            Ratio of library sizes after to before, at least 1.

        Returns
        -------
        The cells with integer counts (CSR) in ``.X``; summaries of the former counts, such as ``total_counts``, are
        dropped from ``.obs``.

        {raises_cells}

        Examples
        --------
        >>> deeper = model.deepen(adata, factor=1.5, indices=[0, 1], n_steps=4)
        >>> (deeper.X < adata.layers["counts"][:2]).nnz
        0
        """
        require_training(self)
        self.module.require("deepen", "adding molecules")
        if not (is_finite_number(factor) and factor >= 1):
            raise ValueError(f"`factor` is {factor!r}: pass a number of at least 1.")
        sampler = sampler_of(self, n_steps, batch_size)
        cells = Cells(self, adata, indices, batch_size, None if silent else "Deepening")
        deeper = sampler.deepened(cells, factor, generator_from(seed, self.device))
        return new_cells(deeper, cells.obs(), gene_table(self))

    @shared_docs
    def generate_modality(
        self,
        mdata: MuData | None,
        given: str | Sequence[str],
        target: str | Sequence[str] | None = None,
        *,
        indices: Sequence[int] | np.ndarray | None = None,
        library_size: float | ArrayLike | Mapping[str, ArrayLike] | None = None,
        expected: bool = False,
        n_steps: int | None = None,
        batch_size: int = BATCH_SIZE,
        seed: int | None = 0,
        silent: bool = False,
    ) -> MuData:
        """Impute modalities of given cells from their other modalities, such as protein from RNA.

        The counts of the given modalities are kept. Targets may be missing from ``mdata``. Cells without a molecule of
        the given modalities are generated from their conditions. Targets with at least ten molecules per feature, such
        as protein tags, are drawn by kernel ridge regression on expression and tokens, fitted on training cells with
        both modalities (at least 100); other targets are drawn molecule by molecule.

        Parameters
        ----------
        mdata
            Cells of several modalities; ``None`` uses the cells that the model was created with.
        given, target
            Disjoint modalities to read and to generate; by default ``target`` is all others.
        library_size
            Number of molecules per cell of the target: a number or an array ``(cells,)``; for several targets a mapping
            from modalities. By default drawn by the regression, predicted from the tokens, or drawn as in
            :meth:`generate` if few training cells have both. A given size draws protein tags molecule by molecule, too.
        expected
            Whether to add expected counts as the layer ``"expected"`` of each target: calibrated shares times the
            expected library size, or ``expm1`` of the expected ``log1p`` where a regression draws.

        Returns
        -------
        The cells with integer counts (CSR): those of the given modalities unchanged, those of the targets generated.

        {raises_cells}

        Examples
        --------
        >>> imputed = joint_model.generate_modality(mdata, given="rna", target="protein", n_steps=4)
        >>> (imputed["rna"].X != mdata["rna"].X).nnz
        0
        """
        require_training(self)
        sampler = sampler_of(self, n_steps, batch_size)
        request = ModalityRequest(self, given, target)
        cells = Cells(self, mdata, indices, batch_size, None if silent else "Generating")
        return request.draw(sampler, cells, generator_from(seed, self.device), library_size, expected=expected)


def cells_between(
    ends: Mapping[str, CellRequest],
    sampler: Sampler,
    weights: Sequence[float],
    library_size: LibrarySize,
    seed: int | None,
    *,
    silent: bool,
) -> AnnData:
    """Draw cells from the start to the end, one set of cells for each weight, with the same noise."""
    numbers = [len(request.row_of) for request in ends.values()]
    if numbers[0] != numbers[1]:
        raise ValueError(f"`start` and `end` request {numbers[0]} and {numbers[1]} cells: request equally many.")
    model, device = ends["start"].model, sampler.module.device
    generator = generator_from(seed, device)
    seed = generator.initial_seed()
    (start, few), (end, many) = (request.completed(generator, library_size) for request in ends.values())
    decoded = {"start": ends["start"].decoded(start), "end": ends["end"].decoded(end)}
    names = pd.concat([table.add_prefix(f"{name}_") for name, table in decoded.items()], axis=1)
    network, counts, obs = replace(sampler, responses=None), [], []
    for weight in track(weights, "Interpolating", disable=silent):
        sizes = (few ** (1 - weight) * many**weight).round()
        counts.append(network.sample(MixedConditions(start, end, float(weight)), sizes, generator_from(seed, device)))
        obs.append(names.assign(weight=float(weight)))
    table = pd.concat(obs).set_axis([f"generated_{i}" for i in range(len(weights) * numbers[0])])
    return new_cells(sparse.vstack(counts, format="csr"), table, gene_table(model))


class ModalityRequest:
    """Request for modalities of given cells; by default, the targets are all modalities that are not given."""

    def __init__(self, model: BaseModelClass, given: str | Sequence[str], target: str | Sequence[str] | None) -> None:
        if len(modalities(model)) < 2:
            raise ValueError(
                "`generate_modality` needs a model of several modalities: register a MuData with `setup_mudata`, then "
                "create and train a model of it."
            )
        self.module, self.known, self.genes = model.module, TrainingCells(model), gene_table(model)
        self.names, self.imputer = self.known.modalities, self.known.summary.imputer
        read = self._known_names("given", given)
        targets = [name for name in self.names if name not in read] if target is None else target
        generated = self._known_names("target", targets)
        both = [name for name in generated if name in read]
        if both:
            raise ValueError(f"{both[0]!r} is in both `given` and `target`: leave it out of one of them.")
        self.given, self.targets = read, generated

    def _known_names(self, argument: str, chosen: str | Sequence[str]) -> list[str]:
        chosen = [chosen] if isinstance(chosen, str) else list(chosen)
        unknown = [name for name in chosen if name not in self.names]
        if unknown:
            raise ValueError(f"`{argument}` names {unknown[0]!r}: the modalities of the model are {self.names}.")
        if not chosen:
            raise ValueError(f"`{argument}` names no modality: choose from {self.names}.")
        return [name for name in self.names if name in chosen]

    @torch.no_grad()
    def draw(
        self, sampler: Sampler, cells: Cells, generator: torch.Generator, library_size: LibrarySize, *, expected: bool
    ) -> MuData:
        """Keep the counts of the given modalities, and generate counts of the targets."""
        by_name = {} if library_size is None else sizes_by_name(library_size, self.targets)
        requested = {name: library_sizes(sizes, len(cells.indices))[cells.sorted] for name, sizes in by_name.items()}
        hidden = torch.tensor([name not in self.given for name in self.names], device=self.module.device)
        rng, done = np.random.default_rng(generator.initial_seed()), 0
        layers: dict[str, list[np.ndarray]] = {name: [] for name in self.targets if expected}

        def draw(counts: Tensor, conditions: Conditions[Tensor]) -> sparse.csr_matrix:
            nonlocal done
            rows = slice(done, done := done + len(counts))
            kept = self.module.blocks.without(counts, hidden.expand(len(counts), -1))
            sizes = {name: requested[name][rows] for name in requested}
            start, library, means = self._start(kept, conditions, sizes, rng, expected=expected)
            for name, parts in layers.items():
                parts.append(means[name])
            if not torch.equal(self.module.blocks.dense_sums(start), library):
                start = self.module.generate(
                    conditions, library, start=start, n_steps=sampler.n_steps, generator=generator
                )
            return whole_counts(start)

        counts = cells.in_order([draw(*batch) for batch in cells])
        columns = self.genes.index.get_level_values(0).isin([*self.given, *self.targets])
        result = new_cells(counts[:, columns], cells.obs(), self.genes.loc[columns])
        for name, parts in layers.items():
            result.mod[name].layers["expected"] = cells.in_order(parts)
        return result

    def _start(
        self,
        kept: Tensor,
        conditions: Conditions[Tensor],
        requested: Mapping[str, np.ndarray],
        rng: np.random.Generator,
        *,
        expected: bool,
    ) -> tuple[Tensor, Tensor, dict[str, np.ndarray]]:
        """Return initial dense counts (with counts drawn by regression), library sizes, and expected counts."""
        tokens = self.module.tokens(kept, conditions).flatten(1).cpu().numpy()
        library, mean = self._library_sizes(kept, tokens, conditions, requested, rng)
        start = kept.to_dense()
        means = self._expected_counts(start, library, mean, conditions) if expected else {}
        given = [self.names.index(name) for name in self.given]
        rows = np.flatnonzero((self.module.library(kept)[:, given] > 0).all(1).cpu().numpy())
        for name in self.targets if len(rows) else ():
            draw = None if name in requested else self.imputer.count_draw(self.names, self.given, name)
            if draw is not None:
                block = self.module.blocks.slices[draw.target]
                columns, log_means = draw.draw(kept, tokens, self.module.blocks, rows, rng)
                start[rows, block] = torch.from_numpy(columns).to(start)
                library[rows, draw.target] = start[rows, block].sum(1)
                if expected:
                    means[name][rows] = np.expm1(log_means)
        return start, library, means

    def _expected_counts(
        self, start: Tensor, library: Tensor, mean: np.ndarray, conditions: Conditions[Tensor]
    ) -> dict[str, np.ndarray]:
        """Compute expected counts ``(cells, columns)`` by modality: calibrated shares times ``mean`` library sizes."""
        logs = self.module.bind(conditions)(start, library).log_prob(start)
        calibrations, labels = self.imputer.shares.get(tuple(self.given), {}), label_rows(self.module, conditions)
        expected = {}
        for name, part, size in zip(self.names, logs.split(self.module.blocks.sizes, 1), mean.T, strict=True):
            log_shares = part.cpu().numpy()
            shares = calibrations[name].shares(log_shares, labels) if name in calibrations else np.exp(log_shares)
            expected[name] = shares * size[:, None]
        return expected

    def _library_sizes(
        self,
        kept: Tensor,
        tokens: np.ndarray,
        conditions: Conditions[Tensor],
        requested: Mapping[str, np.ndarray],
        rng: np.random.Generator,
    ) -> tuple[Tensor, np.ndarray]:
        """Draw library sizes ``(cells, modalities)`` of given modalities and targets; also return expected sizes."""
        own = self.module.library(kept)
        drawn, mean = own.cpu().numpy().copy(), own.cpu().numpy().copy()
        regressions = self.imputer.library_from_tokens.get(tuple(self.given), {})
        by_conditions = None
        for column, name in enumerate(self.names):
            if name in requested:
                drawn[:, column] = mean[:, column] = requested[name]
            elif name in self.targets and name in regressions:
                drawn[:, column] = regressions[name].sample(tokens, rng)[:, 0]
                mean[:, column] = regressions[name].mean(tokens)[:, 0]
            elif name in self.targets:
                if by_conditions is None:
                    by_conditions = self.known.draw_sizes(conditions.numpy(), rng)
                drawn[:, column] = mean[:, column] = by_conditions[:, column]
        return torch.from_numpy(drawn).to(own), mean
