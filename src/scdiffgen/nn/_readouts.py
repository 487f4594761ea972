"""Additive read-out from tokens to gene scores, fixed offsets of labels, and urn (Dirichlet-multinomial) rates."""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from scdiffgen.conditions import Conditions, ConditionSpec, MixedConditions

from ._options import CellVector, Genes, Hidden, Levels, NetworkSize, Tokens


class AdditiveReadout(nn.Module):
    r"""Scores :math:`b + \sum_k W_k h_k` of tokens :math:`z_k`, :math:`h_k = (V_k z_k, \text{silu}(U_k z_k + u_k))`."""

    def __init__(self, n_genes: int, size: NetworkSize) -> None:
        super().__init__()
        self.orthogonality = size.options.orthogonality
        n_tokens, n_units, scale = size.n_tokens, size.readout_units, size.token_dim**-0.5
        self.heads = nn.Parameter(torch.randn(n_tokens, size.token_dim, size.readout_dim) * scale)
        self.units = nn.Parameter(torch.randn(n_tokens, size.token_dim, n_units) * scale)
        self.unit_biases = nn.Parameter(torch.zeros(n_tokens, n_units))
        self.dropout = nn.Dropout(size.dropout)
        self.gene_weights = nn.Parameter(torch.randn(n_tokens * size.readout_dim, n_genes) * 0.01)
        self.unit_weights = nn.Parameter(torch.zeros(n_tokens * n_units, n_genes))
        self.bias = nn.Parameter(torch.zeros(n_genes))

    @torch.no_grad()
    def initialise_bias(self, gene_frequencies: Float[Tensor, " genes"]) -> None:
        """Initialise at the average cell: set the bias to the log frequencies."""
        self.bias.copy_(gene_frequencies.clamp(min=1e-8).log())

    def forward(self, tokens: Tokens) -> Genes:
        """Compute gene scores from all tokens, or from the first ones only."""
        weights = self.loadings()[: tokens.shape[1]]
        return torch.addmm(self.bias, self.hidden(tokens).flatten(1), weights.flatten(0, 1))

    def hidden(self, tokens: Tokens) -> Hidden:
        """Compute the hidden vector of each token: its linear functions, then its nonlinear units."""
        n_tokens = tokens.shape[1]
        linear = torch.einsum("ctd,tdr->ctr", tokens, self.heads[:n_tokens])
        units = torch.einsum("ctd,tdr->ctr", tokens, self.units[:n_tokens]) + self.unit_biases[:n_tokens]
        return torch.cat([linear, self.dropout(F.silu(units))], dim=2)

    def loadings(self) -> Float[Tensor, "tokens width genes"]:
        weights = self.gene_weights, self.unit_weights
        return torch.cat([part.unflatten(0, (len(self.heads), -1)) for part in weights], dim=1)

    def penalty(self) -> Float[Tensor, ""]:
        """Compute the orthogonality penalty: the mean squared cosine between gene weights of different tokens."""
        if not self.orthogonality:
            return self.bias.new_zeros(())
        unit = F.normalize(self.loadings() - self.loadings().mean(2, keepdim=True), dim=2)
        cosines = torch.einsum("trg,usg->turs", unit, unit).square().mean((2, 3))
        others = 1 - torch.eye(len(unit), device=cosines.device)
        return self.orthogonality * (cosines * others).sum() / others.sum().clamp(min=1)

    @torch.no_grad()
    def hold(self, token: int, contribution: Float[Tensor, " genes"]) -> None:
        """Replace the contribution of a token by a constant for all cells."""
        for weights in (self.gene_weights, self.unit_weights):
            weights.unflatten(0, (len(self.heads), -1))[token] = 0
        self.bias.add_(contribution)


class LabelOffsets(nn.Module):
    """Fixed offsets of gene scores for rare labels; zero unless set, and not trained."""

    table: Tensor  # (labels, genes)

    def __init__(self, spec: ConditionSpec, n_genes: int) -> None:
        super().__init__()
        self.name = spec.name
        self.register_buffer("table", torch.zeros(spec.n_categories, n_genes))
        self.is_used = False  # whether any offset is nonzero, kept on the host to avoid a device synchronisation

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        self.set(self.table)

    def set(self, table: Tensor) -> None:
        """Set the offsets ``(labels, genes)``."""
        self.table.copy_(table)
        self.is_used = bool(table.any())

    def forward(self, conditions: Conditions[Tensor]) -> Genes:
        """Look up the offsets of cells; zero if the label is missing."""
        if isinstance(conditions, MixedConditions):
            return conditions.mix(self)
        if self.name not in conditions:
            return self.table.new_zeros(conditions.n_cells, self.table.shape[1])
        label = conditions[self.name]
        has_label = label.given & label.mask[:, 0]
        return self.table[torch.where(has_label, label.ids[:, 0], 0)] * has_label[:, None]


class GeneScores(NamedTuple):
    """Gene scores; rates are ``A * softmax(logits) + urn_weights * present molecules`` with the concentration A."""

    logits: Tensor  # (cells, genes)
    log_concentration: Tensor  # (cells, 1), log A; or (cells, modalities)
    urn_weights: Tensor  # (genes,)

    def log_rates(self) -> Genes:
        return self.logits.log_softmax(1) + self.log_concentration


class Urn(nn.Module):
    r"""Rates :math:`A \, \text{softmax}(\text{logits})_g + w_g x_g`: the prior of the tokens plus present molecules."""

    def __init__(self, n_genes: int, conditioning_dim: int, n_modalities: int = 1) -> None:
        super().__init__()
        self.weight_logits = nn.Parameter(torch.full((n_genes,), -3.0))  # w_g = softplus(.), weight of one molecule
        self.concentration = nn.Linear(conditioning_dim, n_modalities)  # log A - log1p(n_molecules)
        nn.init.zeros_(self.concentration.weight)
        nn.init.zeros_(self.concentration.bias)

    def forward(self, logits: Genes, conditioning: CellVector, n_molecules: Levels) -> GeneScores:
        concentration = self.concentration(conditioning)
        log_concentration = concentration + torch.log1p(n_molecules).reshape(concentration.shape)
        return GeneScores(logits, log_concentration, F.softplus(self.weight_logits))


class PriorLimit(nn.Module):
    r"""Cap the prior strength of the tokens for each gene of :attr:`limited` modalities at :math:`\rho_g` molecules.

    With :math:`m_g` molecules expected by the tokens and weight :math:`w_g` of a present molecule, the rate is
    :math:`(m_g + (w_g + m_g / \rho_g) \, x_g) / (1 + m_g / \rho_g)`: between :math:`m_g + w_g x_g` (few expected) and
    :math:`\rho_g + x_g` (many); for :math:`w_g = 0` the posterior mean of a gamma-Poisson model.
    """

    limited: Tensor
    depth: Tensor  # mean number of molecules per training cell in each modality; infinite if unknown

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.sizes = sizes
        # The prior initially counts as 10 molecules, i.e. the gene shares have a relative SD of about a third.
        self.log_limits = nn.Parameter(torch.full((sum(sizes),), math.log(10.0)))
        self.register_buffer("limited", torch.zeros(len(sizes), dtype=torch.bool))
        self.register_buffer("depth", torch.full((len(sizes),), torch.inf))
        self.on_host = (False,) * len(sizes)  # copy of `limited` on the host, to avoid a device synchronisation

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        self.limit(self.limited)

    @torch.no_grad()
    def limit(self, limited: Tensor) -> None:
        """Set the limited modalities. Without any, no parameter is trained, as distributed training has to know."""
        self.limited.copy_(limited)
        self.on_host = tuple(limited.tolist())
        self.log_limits.requires_grad_(self.log_limits.requires_grad and any(self.on_host))

    def forward(self, log_expected: Genes, weights: Float[Tensor, " genes"]) -> tuple[Genes, Genes]:
        of_genes = torch.cat([limited.expand(n) for limited, n in zip(self.limited.unbind(), self.sizes, strict=True)])
        excess = torch.where(of_genes, log_expected - self.log_limits, -torch.inf)
        share = excess.sigmoid()  # (m / rho) / (1 + m / rho), finite for any excess, unlike its exponential
        return log_expected - F.softplus(excess), weights + (1 - weights) * share
