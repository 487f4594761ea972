"""What every token adds to every gene of a cell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from anndata import AnnData

from scdiffgen._stored_tokens import UNS_KEY
from scdiffgen.module import contributions

from ._cells import Cells
from ._tokens import Tokens


class TokenContributions(Tokens):
    """Contributions of the tokens."""

    def get_token_contributions(
        self,
        adata: AnnData | None = None,
        genes: Sequence[str] | None = None,
        indices: Sequence[int] | None = None,
        *,
        batch_size: int | None = None,
        silent: bool = False,
    ) -> AnnData:
        r"""Split the predicted log-expression of each gene in each cell into what every token adds, exactly.

        The read-out is additive: the log-rate of gene :math:`g` is :math:`b_g + \sum_k W_{k,g}^\top h_k`. What a token
        adds is counted from its mean over the training cells, :math:`W_{k,g}^\top (h_k - \bar h_k)`, and everything is
        centred over the genes, because a constant added to the log-rates of all genes changes nothing.

        Parameters
        ----------
        adata
            Cells; by default those the model was made with.
        genes
            Genes to return, by default all. There is a matrix ``(cells, genes)`` for each token, so choose few for many
            cells.
        indices
            Cells to take, by default all.
        batch_size
            Cells a minibatch.
        silent
            Whether no progress bar is shown.

        Returns
        -------
        Cells by genes: in ``.X`` the log-rates, centred over all genes of the model; a layer a token, and one for each
        perturbation that enters as an effect; ``.var["baseline"]``, the log-rates of the average training cell. The
        layers and the baseline add up to ``.X``, and a softmax of ``.X`` over all genes is the expression that the
        tokens predict.

        Raises
        ------
        ValueError
            If a gene is unknown, or the tokens of the model are pooled by ``"logsumexp"`` and so do not add up.

        Examples
        --------
        >>> parts = model.get_token_contributions(genes=["LYZ", "CD3E"], indices=[0, 1])
        >>> bool(
        ...     np.allclose(
        ...         sum(parts.layers[name] for name in parts.uns["terms"]) + parts.var["baseline"].to_numpy(),
        ...         parts.X,
        ...         atol=1e-4,
        ...     )
        ... )
        True
        """
        self._require_training()
        self._require_anndata("get_token_contributions")
        module = self._thinning("get_token_contributions")
        self._require_sum()
        names = self._gene_names()
        columns = np.arange(len(names)) if genes is None else self._gene_positions(genes, "genes")
        chosen = torch.from_numpy(columns).to(self.device)
        cells = Cells(self, adata, indices, batch_size, None if silent else "Contributions")
        weights, basis = self._weights()[self._token_basis().order], self._token_basis()
        mean = np.einsum("trg,tr->tg", (weights - weights.mean(2, keepdims=True))[:, :, columns], basis.mean)
        rows: dict[str, list[np.ndarray]] = defaultdict(list)
        for counts, conditions in cells:
            found = contributions(module.ema_denoiser, counts, conditions, chosen)
            rows["X"].append(found.total.cpu().numpy())
            of_tokens = found.tokens.cpu().numpy()[:, basis.order] - mean
            for name, added in zip(self._token_names(), of_tokens.swapaxes(0, 1), strict=True):
                rows[name].append(added.astype(np.float32))
            for name in module.ema_denoiser.effect_names:
                rows[name].append(found.effects.get(name, torch.zeros_like(found.total)).cpu().numpy())
        layers = {name: cells.in_order(parts) for name, parts in rows.items()}
        return AnnData(
            layers.pop("X"),
            obs=cells.adata.obs.iloc[cells.indices].copy(),
            var=pd.DataFrame({"baseline": found.constant.cpu().numpy() + mean.sum(0)}, index=names[columns]),
            layers=layers,
            uns={"terms": list(layers), UNS_KEY: self._about_tokens(cells.adata)},
        )
