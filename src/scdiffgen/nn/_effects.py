r"""Effect network: contributions of interventions to gene scores, independent of the cell context.

.. math:: \text{logits} = \text{base}(x_t, \text{context}) + \sum_i \gamma_i(d_i) \, W h(x_t, i, d_i)
          + \sum_{i<j} \gamma_i(d_i) \, \gamma_j(d_j) \, W' h(x_t, i, j)

An effect sees the molecules of a cell, never its labels, so responses transfer between types. It is zero for a control
and at dose 0, additive over interventions, and follows Hill's curve of slope 1 (:math:`\gamma_i(d) = d / (d + c_i)`,
with a learned half-maximal dose :math:`c_i > 0`). Interactions of pairs start at zero, with weight decay.
"""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from scdiffgen.conditions import Condition, ConditionSpec

from ._categories import extend_features, feature_table
from ._condition_embedder import PartEmbedding, clear_padding
from ._network import TokenTrunk
from ._options import InputKind, NetworkSize
from ._shapes import Genes, Levels

EFFECT_READOUT_DIM = 8


class EffectNetwork(nn.Module):
    """Network of the contributions of interventions to gene scores, half the size of the base network."""

    def __init__(
        self,
        spec: ConditionSpec,
        n_genes: int,
        size: NetworkSize,
        features: Float[Tensor, "categories n_features"] | None = None,
        input_kind: InputKind = "counts",
    ) -> None:
        super().__init__()
        self.name = spec.name
        size = replace(
            size,
            # Each pass is conditioned on one vector, that of one intervention.
            options=replace(size.options, conditioning="adaln", attention_numbers="embedded"),
            token_dim=max(size.token_dim // (2 * size.n_heads), 1) * size.n_heads,
            n_layers=max(size.n_layers // 2, 1),
            n_hidden=max(size.n_hidden // 2, 1),
        )
        self.embed = PartEmbedding(spec, size.conditioning_dim, size.options)
        if features is not None:
            extend_features(self.embed, self.name, features)
        self.trunk = TokenTrunk(n_genes, size, input_kind)
        scale = size.token_dim**-0.5
        self.heads = nn.Parameter(torch.randn(size.n_tokens, size.token_dim, EFFECT_READOUT_DIM) * scale)
        n_hidden = size.n_tokens * EFFECT_READOUT_DIM
        self.gene_weights = nn.Parameter(torch.zeros(n_hidden, n_genes))
        self.half_dose = (
            nn.Parameter(torch.full((spec.n_categories,), spec.transform.scale).log()) if spec.has_values else None
        )
        self.interaction_weights = nn.Parameter(torch.zeros(n_hidden, n_genes)) if spec.n_slots > 1 else None

    def forward(self, state: Genes, level: Levels, library: Levels, condition: Condition[Tensor]) -> Genes:
        """Predict the gene scores to add; exactly zero without interventions, or if they are missing."""
        condition = clear_padding(condition, self.gene_weights.dtype)
        mask, vectors, gates = condition.mask, self.embed(condition), self.gates(condition)
        gene_sums = self.trunk.encoder.read(state)

        def hidden(rows: Tensor, vectors: Tensor, gate: Tensor) -> Tensor:
            """Sum ``gate * h`` over the interventions of each cell ``(cells, hidden)``; a row is one intervention."""
            conditioning = self.trunk.conditioning(level[rows], library[rows], vectors)
            tokens = self.trunk(gene_sums.index_select(0, rows), conditioning)
            features = torch.einsum("ctd,tdr->ctr", tokens, self.heads[: tokens.shape[1]]).flatten(1)
            gated = features * gate[:, None]  # under autocast, the product may have another dtype than its factors
            return gated.new_zeros(len(library), gated.shape[1]).index_add(0, rows, gated)

        rows, slots = mask.nonzero(as_tuple=True)
        single = hidden(rows, vectors[rows, slots], gates[rows, slots])
        scores = single @ self.gene_weights[: single.shape[1]]
        if self.interaction_weights is None:
            return scores
        one, other = torch.triu_indices(mask.shape[1], mask.shape[1], 1, device=mask.device)
        rows, pair = (mask[:, one] & mask[:, other]).nonzero(as_tuple=True)
        product = vectors[rows, one[pair]] * vectors[rows, other[pair]]
        paired = hidden(rows, product, gates[rows, one[pair]] * gates[rows, other[pair]])
        return scores + paired @ self.interaction_weights[: paired.shape[1]]

    def gates(self, condition: Condition[Tensor]) -> Float[Tensor, "cells slots"]:
        """Evaluate the Hill curve: the fraction of the full effect of each intervention at its dose, in [0, 1]."""
        if self.half_dose is None:
            return condition.mask.to(self.gene_weights.dtype)
        full = condition.values.isnan() | condition.values.isinf()  # a missing or infinite dose has the full effect
        dose = condition.values.masked_fill(full, 1.0)  # infinities would make gradients of the half-maximal dose NaN
        half = self.half_dose.exp()[condition.ids]
        return torch.where(full, 1.0, dose / (dose + half)) * condition.mask

    def extend_features(self, vectors: Float[Tensor, "new n_features"]) -> None:
        """Append feature vectors of new interventions (ids continue), with the median half-maximal dose."""
        extend_features(self.embed, self.name, vectors)
        if self.half_dose is not None:
            log_dose = self.half_dose.detach()
            extended = torch.cat([log_dose, log_dose.median().expand(len(vectors))])
            self.half_dose = nn.Parameter(extended, requires_grad=self.half_dose.requires_grad)

    @torch.no_grad()
    def share_half_dose(self, trained: Int[Tensor, " ids"]) -> None:
        """Set the half-maximal dose of interventions without training cells to the median of the trained ones."""
        if self.half_dose is not None and len(trained):
            log_dose = self.half_dose[trained].clone()
            self.half_dose.fill_(log_dose.median())
            self.half_dose[trained] = log_dose

    @property
    def features(self) -> Float[Tensor, "interventions n_features"] | None:
        """Feature vectors of the interventions, or None."""
        table = feature_table(self.embed)
        return None if table is None else table.vectors
