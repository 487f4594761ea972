"""Read-out of tokens to gene scores, fixed offsets of labels, and rates of an urn (Dirichlet-multinomial)."""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from scdiffgen.conditions import Conditions, ConditionSpec

from ._options import NetworkSize
from ._shapes import CellVector, Genes, Hidden, Levels, Tokens


class AdditiveReadout(nn.Module):
    r"""Scores :math:`b + \sum_k W_k h_k` of tokens :math:`z_k`, :math:`h_k = (V_k z_k, \text{silu}(U_k z_k + u_k))`."""

    def __init__(self, n_genes: int, size: NetworkSize) -> None:
        super().__init__()
        self.orthogonality = size.options.readout.orthogonality
        n_tokens, n_units, scale = size.n_tokens, size.readout_units, size.token_dim**-0.5
        self.heads = nn.Parameter(torch.randn(n_tokens, size.token_dim, size.readout_dim) * scale)
        self.units = nn.Parameter(torch.randn(n_tokens, size.token_dim, n_units) * scale)
        self.unit_biases = nn.Parameter(torch.zeros(n_tokens, n_units))
        self.dropout = nn.Dropout(size.dropout)
        self.gene_weights = nn.Parameter(torch.randn(n_tokens * size.readout_dim, n_genes) * 0.01)
        self.unit_weights = nn.Parameter(torch.zeros(n_tokens * n_units, n_genes))
        self.bias = nn.Parameter(torch.zeros(n_genes))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        """Load; files of earlier versions have no units, and neither has the read-out then."""
        if prefix + "units" not in state_dict:
            none = self.units[..., :0], self.unit_biases[:, :0], self.unit_weights[:0]
            for name, weight in zip(("units", "unit_biases", "unit_weights"), none, strict=True):
                setattr(self, name, nn.Parameter(weight.detach(), requires_grad=weight.requires_grad))
                state_dict[prefix + name] = weight
        super()._load_from_state_dict(state_dict, prefix, *others)

    @torch.no_grad()
    def initialise_bias(self, gene_frequencies: Float[Tensor, " genes"]) -> None:
        """Start from the average cell: set the bias to the log of the frequencies."""
        self.bias.copy_(gene_frequencies.clamp(min=1e-8).log())

    def forward(self, tokens: Tokens) -> Genes:
        """Scores of the genes from the tokens, all or only the first."""
        weights = self.loadings()[: tokens.shape[1]]
        return torch.addmm(self.bias, self.hidden(tokens).flatten(1), weights.flatten(0, 1))

    def hidden(self, tokens: Tokens) -> Hidden:
        """Hidden vector of each token, by which it contributes to the genes: its linear part, and its units."""
        n_tokens = tokens.shape[1]
        linear = torch.einsum("ctd,tdr->ctr", tokens, self.heads[:n_tokens])
        units = torch.einsum("ctd,tdr->ctr", tokens, self.units[:n_tokens]) + self.unit_biases[:n_tokens]
        return torch.cat([linear, self.dropout(F.silu(units))], dim=2)

    def loadings(self) -> Float[Tensor, "tokens width genes"]:
        """Weights of the genes on :meth:`hidden`."""
        weights = self.gene_weights, self.unit_weights
        return torch.cat([part.unflatten(0, (len(self.heads), -1)) for part in weights], dim=1)

    def penalty(self) -> Float[Tensor, ""]:
        """Mean squared cosine between the weights of different tokens, which does not depend on their scale."""
        if not self.orthogonality:
            return self.bias.new_zeros(())
        unit = F.normalize(self.loadings() - self.loadings().mean(2, keepdim=True), dim=2)
        cosines = torch.einsum("trg,usg->turs", unit, unit).square().mean((2, 3))
        others = 1 - torch.eye(len(unit), device=cosines.device)
        return self.orthogonality * (cosines * others).sum() / others.sum().clamp(min=1)

    @torch.no_grad()
    def hold(self, token: int, contribution: Float[Tensor, " genes"]) -> None:
        """Fix the contribution of a token to the genes in all cells."""
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
        self.is_used = False  # whether any is set, known without asking the device

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        self.set(self.table)

    def set(self, table: Tensor) -> None:
        """Set the offsets ``(labels, genes)``."""
        self.table.copy_(table)
        self.is_used = bool(table.any())

    def forward(self, conditions: Conditions[Tensor]) -> Genes:
        """Scores of cells; zero where the label is missing."""
        if self.name not in conditions:
            return self.table.new_zeros(conditions.n_cells, self.table.shape[1])
        label = conditions[self.name]
        there = label.given & label.mask[:, 0]
        return self.table[torch.where(there, label.ids[:, 0], 0)] * there[:, None]


class GeneScores(NamedTuple):
    """Scores of the genes: rates are ``A * softmax(logits) + urn_weights * molecules there``, A the concentration."""

    logits: Tensor  # (cells, genes)
    log_concentration: Tensor  # (cells, 1), log A; or (cells, modalities)
    urn_weights: Tensor  # (genes,)

    def log_rates(self) -> Genes:
        """Log of the first term of the rates."""
        return self.logits.log_softmax(1) + self.log_concentration


class Urn(nn.Module):
    r"""Rates :math:`A \, \text{softmax}(\text{logits})_g + w_g x_g`: prior of the tokens against molecules present."""

    def __init__(self, n_genes: int, conditioning_dim: int, n_modalities: int = 1) -> None:
        super().__init__()
        self.weight_logits = nn.Parameter(torch.full((n_genes,), -3.0))  # of w_g >= 0, of one molecule
        self.concentration = nn.Linear(conditioning_dim, n_modalities)  # of A > 0, in molecules
        nn.init.zeros_(self.concentration.weight)
        nn.init.zeros_(self.concentration.bias)

    def forward(self, logits: Genes, conditioning: CellVector, n_molecules: Levels) -> GeneScores:
        """Scores from logits and the molecules that are there."""
        concentration = self.concentration(conditioning)
        log_concentration = concentration + torch.log1p(n_molecules).reshape(concentration.shape)
        return GeneScores(logits, log_concentration, F.softplus(self.weight_logits))


class PriorLimit(nn.Module):
    r"""Cap the prior strength of the tokens for each gene of :attr:`limited` modalities at :math:`\rho_g` molecules.

    With :math:`m_g` molecules expected by the tokens and the weight :math:`w_g` of a present molecule the rate is
    :math:`(m_g + (w_g + m_g / \rho_g) \, x_g) / (1 + m_g / \rho_g)`: between :math:`m_g + w_g x_g` (few expected) and
    :math:`\rho_g + x_g` (many); for :math:`w_g = 0` the posterior mean of a gamma-Poisson model.
    """

    limited: Tensor
    depth: Tensor  # molecules of a training cell in each modality, on average; infinite where it is not known

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.sizes = sizes
        # Before training the prior counts for 10 molecules, with which shares spread by a third round it.
        self.log_limits = nn.Parameter(torch.full((sum(sizes),), math.log(10.0)))
        self.register_buffer("limited", torch.zeros(len(sizes), dtype=torch.bool))
        self.register_buffer("depth", torch.full((len(sizes),), torch.inf))
        self.which = (False,) * len(sizes)  # are limited, known without asking the device

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        """Load; files of earlier versions lack the depth, or all where there is one modality: nothing was limited."""
        for name, value in self.state_dict().items():
            state_dict.setdefault(prefix + name, value)
        super()._load_from_state_dict(state_dict, prefix, *others)
        self.limit(self.limited)

    @torch.no_grad()
    def limit(self, limited: Tensor) -> None:
        """Limit some modalities; without any nothing is trained here, as distributed training needs to know."""
        self.limited.copy_(limited)
        self.which = tuple(limited.tolist())
        self.log_limits.requires_grad_(self.log_limits.requires_grad and any(self.which))

    def forward(self, log_expected: Genes, weights: Float[Tensor, " genes"]) -> tuple[Genes, Genes]:
        """Log-rates and weights, from the log of the molecules expected and the weights of the urn."""
        of_genes = torch.cat([limited.expand(n) for limited, n in zip(self.limited.unbind(), self.sizes, strict=True)])
        excess = torch.where(of_genes, log_expected - self.log_limits, -torch.inf)
        share = excess.sigmoid()  # of the observed molecules; finite at any excess, as its exponential is not
        return log_expected - F.softplus(excess), weights + (1 - weights) * share
