"""Methods that read measured cells: likelihood, expression, tokens, held-out evaluation and `write_back`.

No other file of the package changes the cells of a user.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from mudata import MuData
from scvi.model.base import BaseModelClass
from torch import Tensor

from scdiffgen._arguments import check_choice, check_whole_number, is_finite_number
from scdiffgen._shared_docs import shared_docs
from scdiffgen._stored_tokens import ACTIVATION_KEY, LOADINGS_KEY, LOG_RATES_KEY, UNS_KEY
from scdiffgen.conditions import Conditions
from scdiffgen.diffusion import row_sums
from scdiffgen.io import ChunkedFile

from ._cell_request import under_batch
from ._cells import BATCH_SIZE, Cells, blocks_of, generator_from
from ._expression_mixin import expression_of
from ._held_out_evaluation import HeldOutEvaluation, evaluated_held_out
from ._model_access import (
    checked_cells,
    gene_names,
    gene_positions,
    modalities,
    require_training,
    sampler_of,
    weights_id,
)
from ._sampler import Sampler
from ._token_mixin import TokenReader
from ._training_data import given_cells


class Reading(BaseModelClass):
    """Mixin of likelihood, expression and tokens of measured cells, and of the evaluation on held-out cells."""

    @shared_docs
    def get_nll_bound(
        self,
        adata: AnnData | MuData | None = None,
        indices: Sequence[int] | np.ndarray | None = None,
        *,
        n_draws: int = 8,
        batch_size: int = BATCH_SIZE,
        seed: int | None = 0,
        silent: bool = False,
        dataloader: Iterable[Any] | None = None,
    ) -> pd.DataFrame:
        r"""Compute a bound on the negative log-likelihood of each cell given its library size and conditions.

        The any-order autoregressive bound :cite:p:`hoogeboom2022autoregressive` is an upper bound on
        :math:`-\log p(x \mid L, c)`, estimated without bias and comparable between models of counts. A baseline that
        uses labels alone is :func:`scdiffgen.metrics.dirichlet_multinomial_nll`.

        Parameters
        ----------
        n_draws
            Number of random draws per cell; the standard error falls with its square root.

        Returns
        -------
        One row per cell: ``nll`` in nats, and ``nll_per_molecule``, which is ``nll`` divided by the library size.

        {raises_cells}

        Examples
        --------
        >>> model.get_nll_bound(indices=[0, 1]).shape
        (2, 2)
        """
        require_training(self)
        self.module.require("get_nll_bound", "likelihoods")
        check_whole_number("n_draws", n_draws)
        cells = given_cells(self, adata, indices, batch_size, None if silent else "Likelihood", dataloader)
        generator = generator_from(seed, self.device)
        rows = []
        for counts, conditions in cells:
            nll = torch.stack([self.module.nll_bound(counts, conditions, generator) for _ in range(n_draws)]).mean(0)
            n_molecules = row_sums(counts, counts.values())
            rows.append(torch.stack([nll, nll / n_molecules], dim=1).cpu().numpy())
        return pd.DataFrame(cells.in_order(rows), index=cells.names, columns=["nll", "nll_per_molecule"])

    @shared_docs
    def get_normalized_expression(
        self,
        adata: AnnData | MuData | None = None,
        indices: Sequence[int] | np.ndarray | None = None,
        *,
        gene_list: Sequence[str] | None = None,
        library_size: float = 1.0,
        transform_batch: str | None = None,
        return_numpy: bool = False,
        batch_size: int = BATCH_SIZE,
        silent: bool = False,
    ) -> pd.DataFrame | np.ndarray:
        """Compute expected expression of cells: the distribution over genes of the next molecule.

        By thinning, each cell is read as if more molecules followed, up to twice the mean library size of the training
        cells, so that expression depends little on sequencing depth. Deeper cells are read at their own depth.

        Parameters
        ----------
        library_size
            Sum of expression over the genes (of a modality): 1 for shares, 1e4 for counts per 10,000.
        return_numpy
            Whether to return an array instead of a data frame.

        Returns
        -------
        Expression ``(cells, genes)``, float32; for a MuData the columns are pairs of modality and gene.

        {raises_cells}

        Examples
        --------
        >>> model.get_normalized_expression(indices=[0, 1], library_size=1e4).sum(axis=1).round().tolist()
        [10000.0, 10000.0]
        """
        require_training(self)
        if not (is_finite_number(library_size) and library_size > 0):
            raise ValueError(f"`library_size` is {library_size!r}: pass a positive number.")
        columns = gene_positions(self, gene_list)
        changes = under_batch(self, transform_batch)
        cells = Cells(self, adata, indices, batch_size, None if silent else "Expression", changes)
        expression = expression_of(cells, columns) * np.float32(library_size)
        if return_numpy:
            return expression
        return pd.DataFrame(expression, index=cells.names, columns=gene_names(self)[columns])

    @shared_docs
    def get_latent_representation(
        self,
        adata: AnnData | MuData | None = None,
        indices: Sequence[int] | np.ndarray | None = None,
        *,
        batch_size: int = BATCH_SIZE,
        silent: bool = False,
        dataloader: Iterable[Any] | None = None,
    ) -> np.ndarray:
        """Compute the latent representation of cells: their tokens.

        Returns
        -------
        Concatenated tokens, ``(cells, n_tokens * token_dim)``, float32.

        {raises_cells}

        Examples
        --------
        >>> adata.obsm["X_tokens"] = model.get_latent_representation()
        """
        require_training(self)
        cells = given_cells(self, adata, indices, batch_size, None if silent else "Tokens", dataloader)
        return cells.in_order([self.module.tokens(*batch).flatten(1).cpu().numpy() for batch in cells])

    @shared_docs
    def evaluate_held_out(
        self,
        adata: AnnData | MuData | None = None,
        *,
        modality: str | None = None,
        programs: Mapping[str, Sequence[str]] | None = None,
        gene_symbols: str | None = None,
        max_cells: int = 2000,
        n_steps: int | None = None,
        batch_size: int = BATCH_SIZE,
        seed: int | None = 0,
        silent: bool = False,
    ) -> HeldOutEvaluation:
        """Evaluate the model on held-out cells.

        Parameters
        ----------
        adata
            Held-out cells, by default the validation and test cells of the training; training cells give a warning.
        modality
            Modality of a MuData that all but the likelihood is computed on, by default the first.
        gene_symbols
            Column of ``.var`` of the model's cells with the gene symbols of remarks, tables and ``programs``; by
            default the registered column, else ``.var_names``.
        max_cells
            Maximum number of held-out cells, drawn at random.

        Returns
        -------
        likelihood
            One row per label: nats per molecule of held-out cells under the model (``model``, an upper bound), and
            under a multinomial and a Dirichlet-multinomial at the mean of the label's training cells
            (``multinomial``, ``dirichlet_multinomial``: :func:`scdiffgen.metrics.dirichlet_multinomial_nll`). ``None``
            if the process has no likelihood, or the cells of a query lack genes.
        scores
            :class:`scdiffgen.metrics.Evaluation` of matched samples, generated under the conditions of held-out cells,
            beside other held-out cells (the real-versus-real ceiling).
        dispersion
            ``scores.dispersion``: ratios of the variances of generated and real cells along principal components.
        remarks
            Notable results in words, with advice: each group whose verdict (``scores.verdict``) is unfavourable.
        programs
            :func:`scdiffgen.metrics.gene_programs` of the same cells, if ``programs`` is given.

        {raises_cells}
        ValueError
            If the training cells of the model are unknown, no cells were held out and none are given, or a program has
            no gene in the data.

        Examples
        --------
        >>> model.evaluate_held_out(n_steps=4, programs={"B": ["CD79A"]}, silent=True).remarks  # doctest: +SKIP
        """
        require_training(self)
        check_whole_number("max_cells", max_cells)
        check_choice("modality", modality, [None, *modalities(self)])
        sampler, generator = sampler_of(self, n_steps, batch_size), generator_from(seed, self.device)
        if adata is not None:
            adata = checked_cells(self, adata)
        asked = modality, max_cells, sampler, generator, programs, gene_symbols
        return evaluated_held_out(self, adata, *asked, silent=silent)

    @shared_docs
    def write_back(
        self,
        adata: AnnData | MuData | None = None,
        *,
        keys: Sequence[str] | None = None,
        dtype: Literal["float32", "float16"] = "float32",
        n_steps: int | None = None,
        batch_size: int = BATCH_SIZE,
        seed: int | None = 0,
        silent: bool = False,
        dataloader: Iterable[Any] | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        """Write matched samples, tokens and loadings into an AnnData or a zarr store.

        ================================ =======================================================================
        ``.obsm["X_generated"]``         matched sample: conditions and library size of each cell (CSR, int32)
        ``.obsm["X_tokens"]``            :meth:`get_latent_representation`
        ``.obsm["X_token_activation"]``  :meth:`get_token_activation`, as an array
        ``.varm["token_loadings"]``      :meth:`get_token_loadings`, as an array
        ``.varm["token_log_rates"]``     loadings by ``method="readout"``, written with ``"token_loadings"``
        ``.uns["scdiffgen"]``            token names, shares of explained variance, stability, method of the loadings,
                                         an identifier of the weights, and your annotations of tokens
        ================================ =======================================================================

        If an error occurs, nothing is written to ``adata``; minibatches for ``path`` are kept beside it, and the same
        call goes on with the rest. In a MuData, samples and loadings are written to their modality; tokens,
        activations and ``.uns["scdiffgen"]`` to the MuData and each modality. Protein drawn by regression on generated
        RNA (:meth:`generate`) has its own library sizes.

        Parameters
        ----------
        keys
            Results to write, out of the first four; by default all.
        dtype
            Type of stored tokens and activations. ``"float16"`` halves the memory, with relative errors of at most
            0.05 % (2^-11), and absolute errors of at most 3e-8 for values below 6e-5.
        path
            New ``.zarr`` to write results to instead of ``adata``: an AnnData with the ``.obs`` of the cells and no
            counts. Results are written per minibatch, so memory holds one minibatch.

        {raises_cells}
        ValueError
            If ``adata`` is a view, a value is too large for float16, ``path`` exists, is no ``.zarr`` or is given for
            several modalities, or ``dataloader`` is given without ``path``.

        Examples
        --------
        >>> model.write_back(adata, keys=["token_loadings", "X_token_activation"])
        >>> adata.varm["token_loadings"].shape
        (765, 4)
        >>> sc.pl.ranking(adata, "varm", "token_loadings", indices=[0, 1], labels=adata.var_names)  # doctest: +SKIP
        """
        require_training(self)
        chosen = check_keys(keys, dtype)
        sampler = sampler_of(self, n_steps, batch_size)
        generator = generator_from(seed, self.device)
        if path is not None:
            check_store(self, path)
        elif dataloader is not None:
            raise ValueError("`dataloader` has no AnnData to write results into: pass `path`.")
        elif adata is not None and adata.is_view:
            raise ValueError("`adata` is a view: results would go to a copy of it. Pass a copy, `adata.copy()`.")
        cells = given_cells(self, adata, None, batch_size, None if silent else "Writing back", dataloader)
        store_results(self, cells, chosen, dtype, sampler, generator, path, seed)


STATE, SIZES = "generator", "library"  # kept with each minibatch, to go on after an interruption
GENERATED_KEY = "X_generated"
KEYS = (GENERATED_KEY, "X_tokens", ACTIVATION_KEY, LOADINGS_KEY)
OF_GENES = (LOADINGS_KEY, LOG_RATES_KEY)
DTYPES = ("float32", "float16")


def check_keys(keys: Sequence[str] | None, dtype: str) -> list[str]:
    """Return names of the results to write; raise if one is unknown."""
    chosen = list(KEYS) if keys is None else [keys] if isinstance(keys, str) else list(keys)
    unknown = [key for key in chosen if key not in KEYS]
    if unknown:
        raise ValueError(f"`keys` names {unknown}: choose from {list(KEYS)}.")
    if dtype not in DTYPES:
        raise ValueError(f"`dtype` is {dtype!r}: choose from {list(DTYPES)}.")
    return chosen


def check_store(model: BaseModelClass, path: str | os.PathLike[str]) -> None:
    """Raise unless results can be written to a new file."""
    if Path(path).suffix != ".zarr" or Path(path).exists():
        raise ValueError(f"`path` is {str(path)!r}: pass the name of a new file that ends with '.zarr'.")
    if modalities(model):
        raise ValueError("`path`: results of several modalities go into a MuData in memory. Leave `path` out.")


def store_results(
    model: BaseModelClass,
    cells: Cells,
    keys: Sequence[str],
    dtype: str,
    sampler: Sampler,
    generator: torch.Generator,
    path: str | os.PathLike[str] | None = None,
    seed: int | None = None,
) -> None:
    """Compute all results in one pass over the cells and write them; to a file, minibatch by minibatch."""
    genes, reader, module = gene_names(model), TokenReader(model), model.module
    compute: dict[str, Callable[[Tensor, Conditions[Tensor]], Any]] = {
        GENERATED_KEY: lambda counts, given: sampler.minibatch(given, module.library(counts), generator),
        "X_tokens": lambda *batch: _stored(module.tokens(*batch).flatten(1).cpu().numpy(), dtype),
        ACTIVATION_KEY: lambda *batch: _stored(reader.activation_of(*batch), dtype),
    }
    chosen = [key for key in keys if key in compute]

    def results_of(*batch: Any) -> dict[str, Any]:
        return {key: compute[key](*batch) for key in chosen}

    loadings = {LOADINGS_KEY: reader.genes.loadings.copy(), LOG_RATES_KEY: reader.basis.loadings.copy()}
    gene_results = loadings if LOADINGS_KEY in keys else {}
    if path is not None:
        described = {
            "keys": list(keys),
            "dtype": dtype,
            "n_steps": sampler.n_steps,
            "batch_size": sampler.batch_size,
            "seed": seed,
            "model": weights_id(module),
        }
        with torch.no_grad(), ChunkedFile(path, 0, described) as file:
            for number, batch in enumerate(cells):
                file.n_chunks = number + 1
                if not number:
                    file.check_columns(cells.obs())
                library, written = module.library(batch[0]).cpu().numpy(), file.read(number, SIZES)
                if written is None:
                    rows = {f"obsm/{key}": values for key, values in results_of(*batch).items()}
                    file.write(number, {**rows, SIZES: library, STATE: generator.get_state().numpy()})
                    continue
                if not np.array_equal(written, library):
                    raise ValueError(f"`path`: {path}.partial was begun with other cells. Pass another path.")
                generator.set_state(torch.from_numpy(file.read(number, STATE)))
            whole = AnnData(obs=cells.obs(), var=pd.DataFrame(index=genes), varm=gene_results)
            whole.uns[UNS_KEY] = reader.about(whole)
            file.finish(whole, [f"obsm/{key}" for key in chosen])
        return
    minibatches = [results_of(*batch) for batch in cells] if chosen else []
    results = {key: cells.in_order([part[key] for part in minibatches]) for key in chosen} | gene_results
    adata = cells.adata
    for key, values in results.items():
        _write_result(adata, key, values, genes)
    parts = [] if isinstance(adata, AnnData) else [adata.mod[name] for name in _modalities(adata, genes)]
    for part in (adata, *parts):
        part.uns[UNS_KEY] = reader.about(adata)


def _write_result(data: AnnData | MuData, key: str, values: Any, genes: pd.Index) -> None:
    """Write a result: per gene to its modality, per cell to each modality and the MuData."""
    if isinstance(data, AnnData):
        (data.varm if key in OF_GENES else data.obsm)[key] = values
        return
    if key not in (*OF_GENES, GENERATED_KEY):
        data.obsm[key] = values
    for name, block in _modalities(data, genes).items():
        modality = data.mod[name]
        if key in OF_GENES:
            modality.varm[key] = values[block]
            continue
        rows = values[data.obs_names.get_indexer(modality.obs_names)]
        modality.obsm[key] = rows[:, block] if key == GENERATED_KEY else rows


def _modalities(data: MuData, genes: pd.MultiIndex) -> dict[str, slice]:
    """Map the model's modalities in a MuData to their columns."""
    return {name: block for name, block in blocks_of(genes).items() if name in data.mod}


def _stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """Convert values to the stored type; raise if they are too large for it."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest > float(np.finfo(dtype).max):
        raise ValueError(f"`dtype` is {dtype!r}, too small for a token of {largest:g}: pass 'float32'.")
    return values.astype(dtype)
