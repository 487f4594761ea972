"""Generating: cells that were never measured, deeper ones, other modalities, and the way between conditions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from anndata import AnnData
from mudata import MuData
from scipy import sparse
from scvi.model.base import BaseModelClass

from scdiffgen._shared_docs import shared_docs
from scdiffgen.conditions import Request, request_table
from scdiffgen.io import digest_of

from ._cell_request import CellRequest
from ._cells import BATCH_SIZE, Cells, generator_from
from ._checks import check_positive_integer, check_whole_number, is_finite_number
from ._chunked_generation import write_cells
from ._known_conditions import encode
from ._modality_request import ModalityRequest
from ._model_access import (
    gene_names,
    require_anndata,
    require_joint,
    require_thinning,
    require_training,
    sampler_of,
    training_cells,
)
from ._mudata import new_cells
from ._sampler import N_STEPS
from ._workers import check_client

if TYPE_CHECKING:
    from distributed import Client
    from numpy.typing import ArrayLike

    from ._training_cells import LibrarySize

CHUNK_SIZE = 8192


class Generating(BaseModelClass):
    """New cells."""

    @shared_docs
    def generate(
        self,
        conditions: Request = None,
        n_cells: int | None = None,
        *,
        library_size: LibrarySize = None,
        guidance_scale: float | Mapping[str, float] = 1.0,
        n_steps: int = N_STEPS,
        batch_size: int = BATCH_SIZE,
        seed: int | None = 0,
        silent: bool = False,
    ) -> AnnData | MuData:
        """Generate cells under given conditions.

        Cells of an identity that was never measured with a perturbation are sampled untreated and moved as cells of
        other identities respond, where these were measured with it (:meth:`predict_perturbation`).

        Parameters
        ----------
        {conditions}
        {n_cells}
        {library_size}
        {guided_drawing}

        Returns
        -------
        New cells: integer counts (CSR) in ``.X``; the genes of the training cells; in ``.obs`` the conditions, and
        ``unseen_in_training``, whether no training cell had all of them together (categories are compared,
        perturbations among them; doses and other numbers are not). A MuData if the model was registered with
        :meth:`setup_mudata`.

        Raises
        ------
        {raises_request}

        Examples
        --------
        >>> cells = model.generate({"cell_type": "CD14+ Monocyte"}, n_cells=3, n_steps=4)
        >>> cells.obs["cell_type"].tolist()
        ['CD14+ Monocyte', 'CD14+ Monocyte', 'CD14+ Monocyte']
        """
        require_training(self)
        request = CellRequest.of(self, conditions, n_cells)
        sampler = sampler_of(self, n_steps, batch_size, guidance_scale)
        sampler.check(request.given)
        generator = generator_from(seed, self.device)
        complete, sizes = request.completed(generator, library_size)
        cells = sampler.sample(complete, sizes, generator, None if silent else "Generating")
        return new_cells(cells, request.obs(), gene_names(self))

    @shared_docs
    def generate_to(
        self,
        path: str | os.PathLike[str],
        conditions: Request = None,
        n_cells: int | None = None,
        *,
        library_size: LibrarySize = None,
        chunk_size: int = CHUNK_SIZE,
        client: Client | None = None,
        guidance_scale: float | Mapping[str, float] = 1.0,
        n_steps: int = N_STEPS,
        batch_size: int = BATCH_SIZE,
        seed: int = 0,
        silent: bool = False,
    ) -> Path:
        """Generate cells into a file, chunk by chunk; what was killed goes on where it was.

        Memory holds the counts of one chunk, and the ``.obs`` of all cells at the end. Until then the chunks lie in the
        folder ``<path>.partial``. Called again with the same arguments after a kill, it generates what is missing, and
        the file is the one that it would have been; called again when the file is there, it does nothing.

        Parameters
        ----------
        path
            The new file: ``.h5ad``, or a folder ``.zarr``.
        conditions, n_cells, guidance_scale, n_steps, batch_size, silent
            As in :meth:`generate`.
        library_size
            As in :meth:`generate`; a function is called for the cells of each chunk.
        chunk_size
            Cells a chunk.
        client
            Client of a Dask cluster whose workers generate the chunks; the file is written here. The cells are the same
            as without. Needs ``pip install 'scdiffgen[distributed]'``.
        seed
            Same seed, same cells, if ``chunk_size`` and ``batch_size`` are the same too. Each chunk has its own source
            of randomness, so that no chunk waits for another.

        Returns
        -------
        Path of the file, which :func:`anndata.read_h5ad` (with ``backed="r"``, if it is large) or
        :func:`anndata.io.read_zarr` reads. What was asked for is in ``.uns["generated"]``.

        Raises
        ------
        ValueError
            As in :meth:`generate`; or if there are other cells at ``path``, whole or begun.
        RuntimeError
            If the model is not trained, or the workers were lost again and again.
        ImportError
            If there is a client, and Dask is not installed.

        Examples
        --------
        >>> import anndata, tempfile
        >>> path = tempfile.mkdtemp() + "/cells.h5ad"
        >>> _ = model.generate_to(path, {"cell_type": "CD14+ Monocyte"}, 5, n_steps=4, chunk_size=2)
        >>> anndata.read_h5ad(path, backed="r").n_obs
        5
        """
        require_training(self)
        require_anndata(self, "generate_to")
        if client is not None:
            check_client(client)
        check_positive_integer("chunk_size", chunk_size)
        check_whole_number("seed", seed, at_least=0)
        request = CellRequest.of(self, conditions, n_cells)
        sampler = sampler_of(self, n_steps, batch_size, guidance_scale)
        sampler.check(request.given)
        named = {"conditions": digest_of(request_table(conditions, n_cells))}
        return write_cells(path, request, sampler, library_size, chunk_size, seed, client, named, silent=silent)

    @shared_docs
    def deepen(
        self,
        adata: AnnData | MuData | None = None,
        factor: float = 2.0,
        *,
        indices: Sequence[int] | np.ndarray | None = None,
        n_steps: int = N_STEPS,
        batch_size: int = BATCH_SIZE,
        seed: int | None = 0,
        silent: bool = False,
    ) -> AnnData | MuData:
        """Virtual deeper sequencing: keep every molecule of cells and add more of the same cell.

        Parameters
        ----------
        {adata}
        factor
            Library size of the result over that of the cell, at least 1.
        {indices}
        {drawing}

        Returns
        -------
        The cells with integer counts (CSR) in ``.X``; names and ``.obs`` as they were.

        Raises
        ------
        ValueError
            If the process of the model is not thinning, or ``factor`` is below 1.
        {raises_cells}

        Examples
        --------
        >>> deeper = model.deepen(adata, factor=1.5, indices=[0, 1], n_steps=4)
        >>> (deeper.X < adata.layers["counts"][:2]).nnz
        0
        """
        require_training(self)
        require_thinning(self, "deepen")
        if not (is_finite_number(factor) and factor >= 1):
            raise ValueError(f"`factor` is {factor!r}: pass a number of at least 1.")
        sampler = sampler_of(self, n_steps, batch_size)
        sampler.check()
        cells = Cells(self, adata, indices, batch_size, None if silent else "Deepening")
        deeper = sampler.deepened(cells, factor, generator_from(seed, self.device))
        return new_cells(deeper, cells.obs(), gene_names(self))

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
        n_steps: int = N_STEPS,
        batch_size: int = BATCH_SIZE,
        seed: int | None = 0,
        silent: bool = False,
    ) -> MuData:
        """Generate some modalities of given cells from their molecules of others: protein from RNA, say.

        Every molecule of the given modalities is kept, and those of the targets are added. What is measured of these in
        the cells is not looked at, and they may be missing from ``mdata``; other modalities are taken for not measured.
        Cells without a molecule of what is given follow their conditions alone.

        Parameters
        ----------
        mdata
            Cells; ``None`` takes those the model was made with.
        given
            Modalities to read.
        target
            Modalities to generate, by default all others.
        {indices}
        library_size
            Molecules a cell of the target: a number, or one a cell; of several targets, by their names. By default it
            is predicted from the tokens of the given modalities, with the spread that this leaves, by a regression on
            training cells that have both; where there are too few of these it is drawn as in :meth:`generate`.
        expected
            Whether expected counts are added as the layer ``"expected"`` (dense) of each target: what the generated
            counts average to over many draws.
        {drawing}

        Returns
        -------
        The cells with integer counts (CSR) of the given modalities as they were, and of the targets as generated; names
        and ``.obs`` as they were.

        Raises
        ------
        ValueError
            If the model has one modality alone, a modality is unknown, or one is both given and a target.
        {raises_cells}

        Examples
        --------
        >>> imputed = joint_model.generate_modality(mdata, given="rna", target="protein", n_steps=4)
        >>> (imputed["rna"].X != mdata["rna"].X).nnz
        0
        """
        require_training(self)
        require_joint(self, "generate_modality")
        sampler = sampler_of(self, n_steps, batch_size)
        sampler.check()
        request = ModalityRequest.of(self, given, target)
        cells = Cells(self, mdata, indices, batch_size, None if silent else "Generating")
        drawn = request.draw(sampler, cells, generator_from(seed, self.device), library_size, expected=expected)
        genes = gene_names(self)
        kept = genes.get_level_values(0).isin([*request.given, *request.targets])
        result = new_cells(drawn.counts[:, kept], cells.obs(), genes[kept])
        for name, layer in drawn.expected.items():
            result.mod[name].layers["expected"] = layer
        return result

    @shared_docs
    def interpolate(
        self,
        start: Mapping[str, Any],
        end: Mapping[str, Any],
        *,
        n_points: int = 5,
        n_cells: int = 100,
        n_steps: int = N_STEPS,
        batch_size: int = BATCH_SIZE,
        seed: int | None = 0,
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
        {n_steps}
        {batch_size}
        {seed}

        Returns
        -------
        Generated cells: integer counts (CSR) in ``.X``, and ``.obs["fraction"]`` from 0 to 1.

        Raises
        ------
        ValueError
            If there are fewer than two points, or the model was registered with :meth:`setup_mudata`.
        {raises_request}

        Examples
        --------
        >>> start, end = {"cell_type": "CD14+ Monocyte"}, {"cell_type": "Dendritic"}
        >>> path = model.interpolate(start, end, n_points=3, n_cells=2, n_steps=4)
        >>> path.obs["fraction"].tolist()
        [0.0, 0.0, 0.5, 0.5, 1.0, 1.0]
        """
        require_training(self)
        require_anndata(self, "interpolate")
        check_positive_integer("n_points", n_points)
        check_positive_integer("n_cells", n_cells)
        sampler = sampler_of(self, n_steps, batch_size)
        sampler.check()
        if n_points < 2:
            raise ValueError(f"`n_points` is {n_points}: a path has at least its two ends.")
        generator, known = generator_from(seed, self.device), training_cells(self)
        ends = [encode(self, request_table(end)).take(np.zeros(n_cells, dtype=int)) for end in (start, end)]
        logs = [np.log(np.sort(known.library_sizes(conditions, generator))) for conditions in ends]
        shuffled = np.random.default_rng(generator.initial_seed()).permutation(n_cells)
        fractions, drawn = np.linspace(0, 1, n_points), []
        for fraction in fractions:
            sizes = np.exp((1 - fraction) * logs[0] + fraction * logs[1]).round()[shuffled]
            drawn.append(sampler.interpolated(*ends, float(fraction), sizes, generator))
        obs = pd.DataFrame({"fraction": np.repeat(fractions, n_cells)})
        return new_cells(
            sparse.vstack(drawn, format="csr"),
            obs.set_axis([f"generated_{i}" for i in range(len(obs))]),
            gene_names(self),
        )

    @shared_docs
    def get_generation_path(
        self,
        conditions: Mapping[str, Any] | None = None,
        n_cells: int = 1,
        *,
        library_size: LibrarySize = None,
        guidance_scale: float | Mapping[str, float] = 1.0,
        n_steps: int = N_STEPS,
        batch_size: int = BATCH_SIZE,
        seed: int | None = 0,
        silent: bool = False,
    ) -> AnnData:
        """Generate cells and keep every state on the way, from the empty cell to the full one.

        Parameters
        ----------
        conditions
            As in :meth:`generate`, for one kind of cell.
        n_cells
            Number of cells.
        {library_size}
        {guided_drawing}

        Returns
        -------
        A row for each cell and state: in ``.X`` the molecules there (CSR); in ``.layers["expected"]`` the full cell
        that the model expects, which are the molecules there plus the missing ones in their predicted shares; in
        ``.obs`` the conditions, ``cell``, ``step`` and ``level``, the share of the cell's molecules that are there.

        Raises
        ------
        ValueError
            If the process of the model is not thinning, or it was registered with :meth:`setup_mudata`.
        {raises_request}

        Examples
        --------
        >>> path = model.get_generation_path({"cell_type": "Dendritic"}, n_steps=4)
        >>> path.obs["level"].iloc[[0, -1]].tolist()
        [0.0, 1.0]
        """
        require_training(self)
        require_anndata(self, "get_generation_path")
        require_thinning(self, "get_generation_path")
        check_positive_integer("n_cells", n_cells)
        request = CellRequest.of(self, conditions, n_cells)
        sampler = sampler_of(self, n_steps, batch_size, guidance_scale)
        sampler.check(request.given)
        generator = generator_from(seed, self.device)
        complete, sizes = request.completed(generator, library_size)
        states, expected = sampler.paths(complete, sizes, generator, None if silent else "Generating")
        n_states = states.shape[1]
        counts = states.reshape(-1, states.shape[2])
        obs = request.table.iloc[np.repeat(request.row_of, n_states)].assign(
            cell=np.repeat([f"generated_{i}" for i in range(len(sizes))], n_states),
            step=np.tile(np.arange(n_states), len(sizes)),
            level=counts.sum(1) / np.repeat(sizes, n_states),
        )
        cells = new_cells(
            sparse.csr_matrix(counts.astype(np.int32)),
            obs.set_axis([f"{row.cell}-{row.step}" for row in obs.itertuples()]),
            gene_names(self),
        )
        cells.layers["expected"] = expected.reshape(counts.shape)
        return cells
