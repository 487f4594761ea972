r"""What interventions add to the scores of the genes, blind to what the cell is called.

.. math:: \text{logits} = \text{base}(x_t, \text{identity}) + \sum_i \gamma_i(d_i) \, W h(x_t, i, d_i)
          + \sum_{i<j} \gamma_i(d_i) \, \gamma_j(d_j) \, W' h(x_t, i, j)

An effect sees the molecules of a cell, never its labels, so untreated cells of a type teach nothing false about its
response, and what was learned in one type carries over to the others. By construction it is zero for a control and at
dose 0, adds up over the interventions of a cell, and grows with the dose (:math:`\gamma_i(d) = d / (d + c_i)`, Hill's
curve of slope 1 with a learned half-maximal dose :math:`c_i > 0`; 1 where there are no doses). Pairs add an
interaction, which starts at zero and is drawn there by weight decay.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from scdiffgen.conditions import Condition, ConditionSpec

from ._conditions import clear_padding
from ._embedders import embed_parts
from ._encoder import InputKind
from ._features import FeatureEmbedding
from ._options import NetworkSize
from ._trunk import TokenTrunk

EFFECT_READOUT_DIM = 8


class EffectNetwork(nn.Module):
    """Scores that the interventions of a cell add.

    Parameters
    ----------
    spec
        The registered interventions.
    n_genes
        Number of genes.
    size
        Size of the base network; the effects get half of its tokens' length and layers.
    features
        Feature vectors ``(categories, n_features)`` of the interventions, where they have them.
    reads
        What a corrupted cell is, see :class:`TokenTrunk`.
    """

    def __init__(
        self,
        spec: ConditionSpec,
        n_genes: int,
        size: NetworkSize,
        features: Tensor | None = None,
        reads: InputKind = "counts",
    ) -> None:
        super().__init__()
        # Each pass has one vector to be conditioned on, that of an intervention; the rows of a pass are interventions.
        options = replace(size.options, conditioning="adaln", attention="within")
        size = replace(
            size,
            options=options,
            token_dim=max(size.token_dim // (2 * size.n_heads), 1) * size.n_heads,
            n_layers=max(size.n_layers // 2, 1),
            n_hidden=max(size.n_hidden // 2, 1),
        )
        self.embed = embed_parts(spec, size.conditioning_dim, options)
        if features is not None:
            self._feature_table().extend(features)
        self.trunk = TokenTrunk(n_genes, size, reads)
        scale = size.token_dim**-0.5
        self.heads = nn.Parameter(torch.randn(size.n_tokens, size.token_dim, EFFECT_READOUT_DIM) * scale)
        n_hidden = size.n_tokens * EFFECT_READOUT_DIM
        self.gene_weights = nn.Parameter(torch.zeros(n_hidden, n_genes))
        self.half_dose = (
            nn.Parameter(torch.full((spec.n_categories,), spec.transform.scale).log()) if spec.has_values else None
        )
        self.interaction_weights = nn.Parameter(torch.zeros(n_hidden, n_genes)) if spec.n_slots > 1 else None

    def forward(self, state: Tensor, level: Tensor, library: Tensor, parts: Condition[Tensor]) -> Tensor:
        """Scores ``(cells, genes)`` to add; exactly zero where there is no intervention, or none is told.

        Parameters
        ----------
        state
            Corrupted cells ``(cells, genes)``; counts may be CSR.
        level, library
            Noise level (of counts: molecules there), and molecules in the finished cell, ``(cells,)``.
        parts
            The interventions of each cell.
        """
        parts = clear_padding(parts, self.gene_weights.dtype)
        mask, vectors, gates = parts.mask, self.embed(parts), self.gates(parts)
        gene_sums = self.trunk.encoder.read(state)

        def hidden(rows: Tensor, condition: Tensor, gate: Tensor) -> Tensor:
            """Sum of ``gate * h`` over the interventions of each cell ``(cells, hidden)``, one intervention a row."""
            conditioning = self.trunk.conditioning(level[rows], library[rows], condition)
            tokens = self.trunk(gene_sums[rows], conditioning)
            heard = torch.einsum("ctd,tdr->ctr", tokens, self.heads[: tokens.shape[1]]).flatten(1)
            said = heard * gate[:, None]  # in low precision, the product may have another type than its factors
            return said.new_zeros(len(library), said.shape[1]).index_add(0, rows, said)

        rows, slots = mask.nonzero(as_tuple=True)
        heard = hidden(rows, vectors[rows, slots], gates[rows, slots])
        scores = heard @ self.gene_weights[: heard.shape[1]]
        if self.interaction_weights is None:
            return scores
        one, other = torch.triu_indices(mask.shape[1], mask.shape[1], 1, device=mask.device)
        rows, pair = (mask[:, one] & mask[:, other]).nonzero(as_tuple=True)
        product = vectors[rows, one[pair]] * vectors[rows, other[pair]]
        gate = gates[rows, one[pair]] * gates[rows, other[pair]]
        heard = hidden(rows, product, gate)
        return scores + heard @ self.interaction_weights[: heard.shape[1]]

    def summary(self, parts: Condition[Tensor]) -> Tensor:
        """Sum of the embedded interventions of each cell, weighted by dose: ``(cells, conditioning_dim)``."""
        parts = clear_padding(parts, self.gene_weights.dtype)
        return (self.embed(parts) * self.gates(parts)[..., None]).sum(1)

    def extend_features(self, vectors: Tensor) -> None:
        """Append feature vectors ``(new, n_features)`` of interventions; their ids follow on.

        Their half-maximal dose is the median of those known.
        """
        self._feature_table().extend(vectors)
        if self.half_dose is not None:
            known = self.half_dose.detach()
            extended = torch.cat([known, known.median().expand(len(vectors))])
            self.half_dose = nn.Parameter(extended, requires_grad=self.half_dose.requires_grad)

    @torch.no_grad()
    def share_half_dose(self, trained: Tensor) -> None:
        """Give interventions that no training cell had the median half-maximal dose of those ``trained`` (ids)."""
        if self.half_dose is not None and len(trained):
            known = self.half_dose[trained].clone()
            self.half_dose.fill_(known.median())
            self.half_dose[trained] = known

    @property
    def features(self) -> Tensor | None:
        """Feature vectors ``(interventions, n_features)``, if there are any."""
        table = next((part for part in self.embed.modules() if isinstance(part, FeatureEmbedding)), None)
        return None if table is None else table.vectors

    def _feature_table(self) -> FeatureEmbedding:
        tables = [part for part in self.embed.modules() if isinstance(part, FeatureEmbedding)]
        if not tables:
            raise ValueError("The interventions were registered without feature vectors, so they cannot be extended.")
        return tables[0]

    def gates(self, parts: Condition[Tensor]) -> Tensor:
        """How much of its full effect each intervention has at its dose ``(cells, slots)``, in [0, 1)."""
        if self.half_dose is None:
            return parts.mask.to(self.gene_weights.dtype)
        full = parts.values.isnan() | parts.values.isinf()  # no dose given: the full effect
        dose = parts.values.masked_fill(full, 1.0)  # infinities would make gradients of the half-maximal dose NaN
        half = self.half_dose.exp()[parts.ids]
        return torch.where(full, 1.0, dose / (dose + half)) * parts.mask
