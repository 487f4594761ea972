"""Writing results into an AnnData: the only place where the model touches one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from scdiffgen._stored_tokens import ACTIVATION_KEY, LOADINGS_KEY, UNS_KEY

from ._cells import INFERENCE_BATCH_SIZE, Cells, generator_from
from ._generation import N_STEPS
from ._inspection import Inspection
from ._mudata import parts_of, write_result
from ._perturbation import Perturbation
from ._representation import Representation
from ._sampler import Sampler, whole_counts
from ._token_contributions import TokenContributions
from ._token_edits import TokenEdits

if TYPE_CHECKING:
    from anndata import AnnData
    from mudata import MuData
    from scipy import sparse

KEYS = ("X_generated", "X_tokens", ACTIVATION_KEY, LOADINGS_KEY)
DTYPES = ("float32", "float16")


class WriteBack(Inspection, Perturbation, Representation, TokenContributions, TokenEdits):
    """Results into ``.obsm`` and ``.varm``."""

    def write_back(
        self,
        adata: AnnData | MuData | None = None,
        *,
        keys: Sequence[str] | None = None,
        dtype: Literal["float32", "float16"] = "float32",
        n_steps: int = N_STEPS,
        batch_size: int | None = None,
        seed: int | None = None,
        silent: bool = False,
    ) -> None:
        """Write generated cells, tokens and loadings into an AnnData, all of them or none.

        ================================ =======================================================================
        ``.obsm["X_generated"]``         a generated twin of every cell: same conditions, same library size
                                         (CSR, int32)
        ``.obsm["X_tokens"]``            :meth:`get_latent_representation`
        ``.obsm["X_token_activation"]``  :meth:`get_token_activation`, as an array
        ``.varm["token_loadings"]``      :meth:`get_token_loadings`, as an array
        ``.uns["scdiffgen"]``            of the tokens: names, shares of variance that they explain, method of the
                                         loadings, an identifier of the weights, and the names that you gave them
        ================================ =======================================================================

        Of a MuData, generated cells and loadings go to the modality that they are of; tokens, activations and
        ``.uns["scdiffgen"]`` to the whole and to every modality.

        With scanpy as ``sc``, the loadings of the first three tokens are drawn by
        ``sc.pl.ranking(adata, "varm", "token_loadings", indices=[0, 1, 2], labels=adata.var_names)``.

        Parameters
        ----------
        adata
            Cells; by default those the model was made with.
        keys
            Which of the first four to write, by default all; without an additive read-out only the first two are there.
        dtype
            How tokens and activations are stored. ``"float16"`` takes half of the memory; each value is then off by at
            most 0.05 % (2^-11), below 6e-5 by at most 3e-8. Figures and :mod:`scdiffgen.tl` compute in float32 all the
            same.
        n_steps, batch_size, seed, silent
            As in :meth:`generate`, for the twins.

        Raises
        ------
        ValueError
            If a key or ``dtype`` is unknown, ``adata`` is a view, or a value is too large for float16.

        Examples
        --------
        >>> model.write_back(adata, keys=["token_loadings", "X_token_activation"])
        >>> adata.varm["token_loadings"].shape[0] == adata.n_vars
        True
        """
        self._require_training()
        additive = self.module.gene_weights() is not None
        there = KEYS if additive else KEYS[:2]
        keys = there if keys is None else [keys] if isinstance(keys, str) else list(keys)
        unknown = [key for key in keys if key not in there]
        if unknown:
            raise ValueError(f"`keys` names {unknown}: choose from {list(there)}.")
        if dtype not in DTYPES:
            raise ValueError(f"`dtype` is {dtype!r}: choose from {list(DTYPES)}.")
        if adata is not None and adata.is_view:
            raise ValueError("`adata` is a view: results would go to a copy of it. Pass `adata.copy()` and keep that.")
        adata = self._validate_anndata(adata)
        options: dict[str, Any] = {"batch_size": batch_size, "silent": silent}
        compute: dict[str, Callable[[], Any]] = {
            "X_generated": lambda: self._twins(adata, n_steps, seed, batch_size, silent),
            "X_tokens": lambda: self.get_latent_representation(adata, **options),
            ACTIVATION_KEY: lambda: self.get_token_activation(adata, **options).to_numpy(),
            LOADINGS_KEY: lambda: self.get_token_loadings().to_numpy(),
        }
        results = {key: compute[key]() for key in keys}
        results |= {key: stored(results[key], dtype) for key in keys if key in ("X_tokens", ACTIVATION_KEY)}
        for key, values in results.items():
            write_result(adata, key, values, self._gene_names())
        if additive:
            about = self._about_tokens(adata)
            for part in (adata, *parts_of(adata, self._modalities())):
                part.uns[UNS_KEY] = about

    def _twins(
        self, adata: AnnData, n_steps: int, seed: int | None, batch_size: int | None, silent: bool
    ) -> sparse.csr_matrix:
        """Generated cells with the conditions and library sizes of measured ones."""
        cells = Cells(self, adata, None, batch_size, None if silent else "Generating")
        generator = generator_from(seed, self.device)
        sampler = Sampler(self.module, self._responses(), 1.0, n_steps, INFERENCE_BATCH_SIZE)
        drawn = [sampler.minibatch(conditions, self.module.library(counts), generator) for counts, conditions in cells]
        return cells.in_order([whole_counts(counts) for counts in drawn])


def stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """Values of a type to store them in; raise if it does not hold them."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest > float(np.finfo(dtype).max):
        raise ValueError(f"`dtype` is {dtype!r}, which does not hold a token of {largest:g}: pass 'float32'.")
    return values.astype(dtype)
