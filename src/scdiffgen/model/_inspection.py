"""Looking into the network and into generation: attention of the tokens, states from the empty to the full cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from scipy import sparse

from scdiffgen.conditions import request_table
from scdiffgen.module import attention_weights, growth_path

from ._cells import Cells, generator_from
from ._checks import check_guidance, check_positive_integer
from ._generation import N_STEPS, Generation
from ._tokens import Tokens, spread

ATTENTION_CELLS = 1_000
ATTENTION_LEVELS = (0.0, 0.01, 0.1, 0.5, 1.0)


class Inspection(Generation, Tokens):
    """What happens inside, and on the way."""

    def get_token_attention(
        self,
        adata: AnnData | None = None,
        indices: Sequence[int] | None = None,
        *,
        levels: Sequence[float] = ATTENTION_LEVELS,
        batch_size: int | None = None,
        seed: int | None = None,
        silent: bool = False,
    ) -> pd.DataFrame:
        """How much each token attends to each, over the noise level.

        Parameters
        ----------
        adata
            Cells; by default those the model was made with.
        indices
            Cells to average over, by default at most 1,000, evenly spread.
        levels
            Shares of its molecules that a cell keeps, from 0 (the empty cell) to 1 (the whole cell).
        batch_size
            Cells a minibatch.
        seed
            Same seed, same molecules kept.
        silent
            Whether no progress bar is shown.

        Returns
        -------
        Mean over cells and heads: a row for each level, layer (from 1) and token that attends, a column for each token
        attended to. Rows sum to 1. ``attrs["labels"]`` holds the names that you gave to tokens.

        Raises
        ------
        ValueError
            If the process of the model is not thinning or its read-out not additive, a level is not in [0, 1] or there
            is none, ``adata`` lacks genes or holds categories that are not registered, or ``indices`` chooses no cell
            or one that is not there.
        KeyError
            If ``adata`` lacks a column that was registered.
        TypeError
            If ``adata`` is of another type.
        RuntimeError
            If the model is not trained.

        Examples
        --------
        >>> attention = model.get_token_attention(adata, levels=[0.1, 1.0], seed=0)
        >>> attention.loc[(0.1, 1)].shape
        (4, 4)
        """
        self._require_training()
        module = self._thinning("get_token_attention")
        if not all(0 <= level <= 1 for level in levels) or not len(levels):
            raise ValueError(f"`levels` is {list(levels)}: pass shares of the molecules, in [0, 1].")
        chosen = spread(np.arange(self._validate_anndata(adata).n_obs), ATTENTION_CELLS) if indices is None else indices
        cells = Cells(self, adata, chosen, batch_size, None if silent else "Attention")
        generator, order = generator_from(seed, self.device), self._token_basis().order
        total = np.zeros((len(levels), len(module.ema_denoiser.network.trunk.transformer.blocks), *[len(order)] * 2))
        for counts, conditions in cells:
            for position, level in enumerate(levels):
                kept = module.keep(counts, level, generator)
                weights = attention_weights(module.ema_denoiser, kept, conditions)
                total[position] += weights.sum(1).cpu().numpy()
        tokens = self._token_names()
        index = pd.MultiIndex.from_product(
            [levels, range(1, total.shape[1] + 1), tokens], names=["level", "layer", "token"]
        )
        mean = total[:, :, order][:, :, :, order] / len(cells.indices)
        attention = pd.DataFrame(mean.reshape(-1, len(order)), index=index, columns=tokens)
        attention.attrs["labels"] = self._annotation_of(cells.adata)
        return attention

    def get_generation_path(
        self,
        conditions: Mapping[str, Any] | None = None,
        n_cells: int = 1,
        *,
        library_size: float | None = None,
        guidance_scale: float | Mapping[str, float] = 1.0,
        n_steps: int = N_STEPS,
        seed: int | None = None,
    ) -> AnnData:
        """Generate cells and keep every state on the way, from the empty cell to the full one.

        Parameters
        ----------
        conditions
            As in :meth:`generate`, for one kind of cell.
        n_cells
            Number of cells.
        library_size
            Molecules a cell; by default drawn like those of the training cells under the same conditions.
        guidance_scale, n_steps, seed
            As in :meth:`generate`.

        Returns
        -------
        A row for each cell and state: in ``.X`` the molecules there (CSR); in ``.layers["expected"]`` the full cell
        that the model expects, which are the molecules there plus the missing ones in their predicted shares; in
        ``.obs`` the conditions, ``cell``, ``step`` and ``level``, the share of the cell's molecules that are there.

        Examples
        --------
        >>> path = model.get_generation_path({"cell_type": "Dendritic"}, n_steps=4, seed=0)
        >>> path.obs["level"].iloc[[0, -1]].tolist()
        [0.0, 1.0]
        """
        self._require_training()
        self._require_anndata("get_generation_path")
        module = self._thinning("get_generation_path")
        check_positive_integer("n_cells", n_cells)
        check_positive_integer("n_steps", n_steps)
        rows = request_table(conditions, n_cells).drop(columns="n_cells")
        rows = rows.loc[np.repeat(rows.index, n_cells)].reset_index(drop=True)
        encoded = self._encode(rows)
        check_guidance(guidance_scale, list(encoded.given_only()))
        generator = generator_from(seed, self.device)
        encoded = self._complete(encoded, generator)
        sizes = self._library_sizes(encoded, rows, library_size, generator)
        library = torch.from_numpy(sizes).float().to(self.device)
        predictor = module.predictor(encoded.given_only().to(self.device), n_cells, guidance_scale)
        states, expected = growth_path(predictor, library, len(self._gene_names()), n_steps, generator)
        n_states = states.shape[1]
        counts = states.flatten(0, 1).cpu().numpy()
        obs = rows.loc[np.repeat(rows.index, n_states)].assign(
            cell=np.repeat([f"generated_{i}" for i in range(n_cells)], n_states),
            step=np.tile(np.arange(n_states), n_cells),
            level=counts.sum(1) / np.repeat(sizes, n_states),
        )
        obs.index = [f"{row.cell}-{row.step}" for row in obs.itertuples()]
        return AnnData(
            sparse.csr_matrix(counts.astype(np.int32)),
            obs=obs,
            var=pd.DataFrame(index=self._gene_names()),
            layers={"expected": expected.flatten(0, 1).cpu().numpy()},
        )
