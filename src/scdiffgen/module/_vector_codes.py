"""Codes of vectors: normal scores of counts, and tokens of an autoencoder."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, cast

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import svds
from torch import Tensor

from scdiffgen._codes import Code, distinct_rows
from scdiffgen.conditions import Conditions, ConditionSpec, GroupTable, MixedConditions
from scdiffgen.diffusion import Blocks, Rng, column_sums, to_scipy
from scdiffgen.nn import AdditiveReadout, CountEncoder, NetworkSize
from scdiffgen.normal_scores import FactorModel, Frame, ReferenceDistribution, fit_factors, fit_groups

from ._cell_codes import VECTORS, Batches, CellCode, CountsOrCodes, gene_frequencies
from ._denoisers import FactorDenoiser, Guidance, TokenDenoiser, permute_tokens
from ._process_options import Given, LatentOptions


class ScoreCode(CellCode[FactorDenoiser]):
    r"""Normal scores of counts, :math:`(z - \mu) / s`, standardised by the frame of the cell, for Gaussian diffusion.

    A normal score :math:`z` is a draw from the interval :math:`[\Phi^{-1} F(x - 1), \Phi^{-1} F(x))` of a count
    :math:`x`, where :math:`F` is a negative binomial at the library size of the cell (:mod:`scdiffgen.normal_scores`).
    The :class:`Frame` is the mean :math:`\mu` and SD :math:`s` of the scores of each gene in the *group* of cells with
    equal categories, treatments and doses; numbers as conditions do not define groups. Conditions therefore act twice:
    by the frame, which is a lookup, and by the network, which generates what varies around it. Decoding inverts both
    steps, in the frame of the requested conditions.
    """

    abilities = frozenset({"new categories", "contributions of tokens"})
    keep_fraction = 1.0

    shares: Tensor  # (genes,)
    inverse_dispersions: Tensor  # (genes,)
    loadings: Tensor  # (factors, genes)
    contexts: Tensor  # (groups, columns)
    treatments: Tensor  # (groups, slots)
    doses: Tensor  # (groups, slots)
    n_cells: Tensor  # (groups,)
    means: Tensor  # (groups, genes)
    deviations: Tensor  # (groups, genes)

    def __init__(self, blocks: Blocks, specs: Sequence[ConditionSpec], size: NetworkSize, options: Any) -> None:
        super().__init__(blocks, specs, size, options)
        n_genes = self.length
        coded = [spec for spec in specs if not spec.is_number]
        n_columns, n_slots = (sum(x.n_slots for x in coded if x.is_intervention == kind) for kind in (False, True))
        tables = {  # before fitting, a single group without conditions
            "shares": torch.full((n_genes,), 1 / n_genes),
            "inverse_dispersions": torch.ones(n_genes),
            "loadings": torch.zeros(0, n_genes),
            "contexts": torch.full((1, n_columns), int(Code.MISSING)),
            "treatments": torch.full((1, n_slots), int(Code.MISSING)),
            "doses": torch.zeros(1, n_slots),
            "n_cells": torch.ones(1, dtype=torch.int64),
            "means": torch.zeros(1, n_genes),
            "deviations": torch.ones(1, n_genes),
        }
        for name, table in tables.items():
            self.register_buffer(name, table)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        """Load tables of any length."""
        for name, table in list(self.named_buffers()):
            if prefix + name in state_dict:
                setattr(self, name, table.new_zeros(state_dict[prefix + name].shape))
        super()._load_from_state_dict(state_dict, prefix, *others)

    # Training cells.

    def fit_sample(self, sample: Batches, denoisers: Sequence[FactorDenoiser]) -> None:
        """Fit groups and factors to a sample of training cells, and initialise the denoisers by them."""
        model, scores = self.fit_tables(sample, n_axes := len(denoisers[0].axes))
        axes = principal_axes(model.loadings, scores, n_axes)
        for denoiser in denoisers:
            denoiser.start(model, axes)

    def fit_tables(self, cells: Batches, n_axes: int) -> tuple[FactorModel, NDArray[np.float32]]:
        """Fit groups and at most ``n_axes`` factors to training cells; also return drawn scores of some of them.

        A group is shrunk towards its context, and the context towards its first part.
        """
        parts, conditions = zip(*((to_scipy(counts), given.numpy()) for counts, given in cells), strict=True)
        counts = sparse.vstack(parts, format="csr")
        table, _, groups = Conditions.concatenate(conditions).groups(self.specs).distinct()
        rows = np.hstack(table)
        reference = ReferenceDistribution.fit(counts, groups)
        parents, frame = np.zeros(len(rows), dtype=np.intp), None
        for n_kept in (1, table.cell_context.shape[1], rows.shape[1]):
            _, finer = distinct_rows(rows[:, :n_kept])
            if frame is None or finer.max() > parents.max():
                prior = None if frame is None else frame.take(parents[np.unique(finer, return_index=True)[1]])
                frame, parents = fit_groups(reference, counts, finer[groups], prior), finer
        frame = cast("Frame", frame).take(parents)
        chosen = np.linspace(0, counts.shape[0] - 1, min(counts.shape[0], 10_000_000 // counts.shape[1])).astype(int)
        model, scores = fit_factors(reference, counts[chosen], frame.take(groups[chosen]), n_axes)
        tables = {
            **dict(zip(("contexts", "treatments", "doses"), table, strict=True)),
            **{"shares": reference.shares, "inverse_dispersions": reference.inverse_dispersions},
            **{"loadings": model.loadings, "n_cells": np.bincount(groups), **frame._asdict()},
        }
        for name, values in tables.items():
            setattr(self, name, torch.from_numpy(np.ascontiguousarray(values)).to(getattr(self, name)))
        return model, scores

    def extend(self, cells: Batches) -> None:
        """Append the groups of cells with new categories, each shrunk towards the group that stands in for it."""
        counts, conditions = zip(*((to_scipy(counts), given.numpy()) for counts, given in cells), strict=True)
        together = Conditions.concatenate(conditions)
        table, first, groups = together.groups(self.specs).distinct()
        table = table._replace(doses=table.doses.astype(np.float32))
        names = "contexts", "treatments", "doses"
        known = {tuple(row) for row in np.hstack([getattr(self, name).cpu().numpy() for name in names]).tolist()}
        is_new = np.array([tuple(row) not in known for row in np.hstack(table).tolist()])
        if not is_new.any():
            return
        kept = is_new[groups]
        _, of_cell = np.unique(groups[kept], return_inverse=True)
        prior = self.frame(together.take(first[is_new]), None)
        fitted = fit_groups(self.model().reference, sparse.vstack(counts, format="csr")[kept], of_cell, prior)
        tables = {**dict(zip(names, (part[is_new] for part in table), strict=True)), **fitted._asdict()}
        for name, values in {**tables, "n_cells": np.bincount(of_cell)}.items():
            old = getattr(self, name)
            setattr(self, name, torch.cat([old, torch.from_numpy(values).to(old)]))

    def model(self) -> FactorModel:
        tables = self.shares, self.inverse_dispersions, self.loadings
        shares, inverse_dispersions, loadings = (table.cpu().numpy().astype(np.float64) for table in tables)
        return FactorModel(ReferenceDistribution(shares, inverse_dispersions), loadings)

    def frame(self, conditions: Conditions[np.ndarray], rng: Generator | None, *, open_ended: bool = False) -> Frame:
        """Return means and SDs of cells ``(cells, genes)``; with ``open_ended``, partial hierarchy paths match.

        If conditions are missing, a group that matches the given ones is drawn, or without ``rng`` matching groups are
        averaged. If no group matches, the match backs off over the last parts of the context, and from treatments that
        were not measured to untreated cells.
        """
        requested, _, of_cell = conditions.groups(self.specs, open_ended=open_ended).distinct()
        tables, n_cells = (self.means.cpu().numpy(), self.deviations.cpu().numpy()), self.n_cells.cpu().numpy()
        groups = GroupTable(*(table.cpu().numpy() for table in (self.contexts, self.treatments, self.doses)))
        frame = np.empty((2, conditions.n_cells, len(self.shares)))
        for row in range(requested.n_rows):
            matching = _matching(groups, requested, row)
            cells, shares = of_cell == row, n_cells[matching] / n_cells[matching].sum()
            which = None if rng is None else rng.choice(matching, cells.sum(), p=shares)
            for part, table in zip(frame, tables, strict=True):
                part[cells] = shares @ table[matching] if which is None else table[which]
        return Frame(*frame)

    def draw(
        self, counts: sparse.csr_matrix, frame: Frame, rng: Generator, n_draws: int = 1, n_burn_in: int = 5
    ) -> NDArray[np.float32]:
        """Draw standardised scores ``(cells, draws, genes)`` of counts by Gibbs sampling of factors and scores."""
        model, drawn = self.model(), np.zeros((n_draws, *counts.shape), dtype=np.float32)
        ends, scores = model.ends(counts, frame), np.zeros(counts.shape)
        for sweep in range(n_burn_in + n_draws):
            factors = model.draw_factors(scores, rng)
            scores = model.draw_scores(ends, factors if sweep else np.zeros_like(factors), rng)
            drawn[max(sweep - n_burn_in, 0)] = scores
        return drawn.swapaxes(0, 1)

    # Training in one stage, on scores that are drawn before it.

    def stages(self) -> tuple[float, ...]:
        return 0.0, 1.0

    def cache(self, denoiser: FactorDenoiser, counts: Tensor, conditions: Given) -> Tensor:
        """Draw scores ``(cells, draws, genes)`` of cells."""
        rng = self.rng(None)
        drawn = self.draw(to_scipy(counts), self.frame(conditions.numpy(), rng), rng, n_draws=4)
        return torch.from_numpy(drawn).half()

    def encode_training(
        self, denoiser: FactorDenoiser, cells: CountsOrCodes, conditions: Given, generator: Rng = None
    ) -> tuple[Tensor, Tensor]:
        """Choose one draw of the scores of each cell."""
        if isinstance(cells, Tensor):
            return self.encode(denoiser, cells, conditions, self.rng(generator)), self.blocks.library(cells)
        drawn, library = cells
        which = torch.randint(drawn.shape[1], (len(drawn),), generator=generator, device=drawn.device)
        return drawn[torch.arange(len(drawn), device=drawn.device), which].float(), library

    # Cells to codes and back.

    def rng(self, generator: Rng) -> Generator:
        """Create a NumPy generator seeded by the next number of a torch generator."""
        device = None if generator is None else generator.device
        return np.random.default_rng(int(torch.randint(2**62, (1,), generator=generator, device=device)))

    def encode(self, denoiser: FactorDenoiser, counts: Tensor, conditions: Given, rng: Generator) -> Tensor:
        return self._tensor(self.draw(to_scipy(counts), self.frame(conditions.numpy(), rng), rng)[:, 0])

    def decode(
        self, denoiser: FactorDenoiser, coded: Tensor, library: Tensor, given: Given, rng: Generator, guidance: Guidance
    ) -> Tensor:
        """Convert standardised scores to counts ``(cells, genes)`` in the guided frame of their conditions."""
        frame = self.guided_frame(given, rng, guidance)
        scores = frame.means + frame.deviations * coded.cpu().numpy().astype(np.float64)
        counts = self.model().reference.to_counts(scores, library.cpu().numpy().astype(np.float64))
        return torch.from_numpy(counts.toarray()).to(library)

    def _tensor(self, scores: NDArray[np.floating]) -> Tensor:
        return torch.from_numpy(scores).to(self.means)

    def guided_frame(self, conditions: Given, rng: Generator | None, guidance: Guidance) -> Frame:
        """Return the frame of cells, in which a guidance scale multiplies the shifts of the means."""
        if isinstance(conditions, MixedConditions):
            ends = (self.guided_frame(end, deepcopy(rng), guidance) for end in (conditions.start, conditions.end))
            return Frame(*((1 - conditions.weight) * a + conditions.weight * b for a, b in zip(*ends, strict=True)))
        given = conditions.numpy()
        means, deviations = self.frame(given, rng, open_ended=True)
        guided = means
        for names, scale in guidance.groups(conditions):
            if scale != 1:
                rest = self.frame(given.without(names), None, open_ended=True)
                guided = guided + (scale - 1) * (means - rest.means)
        return Frame(guided, deviations)

    # Reading whole cells.

    def expected(self, counts: Tensor, conditions: Given) -> tuple[Tensor, Frame]:
        """Compute expected scores of whole cells ``(cells, genes)``, and their frame."""
        frame, model = self.frame(conditions.numpy(), None), self.model()
        return self._tensor(model.expect_scores(model.ends(to_scipy(counts), frame))), frame

    def tokens(self, denoiser: FactorDenoiser, counts: Tensor, conditions: Given) -> Tensor:
        """Compute tokens ``(cells, tokens, dim)`` of cells at the lowest noise level."""
        scores, _ = self.expected(counts, conditions)
        return denoiser.tokens(scores, self.blocks.library(counts), conditions)

    def hidden(self, denoiser: FactorDenoiser, counts: Tensor, conditions: Given) -> Tensor:
        """Compute hidden vectors of the read-out plus the factors of cells ``(cells, tokens, width)``."""
        scores, _ = self.expected(counts, conditions)
        tokens = denoiser.tokens(scores, self.blocks.library(counts), conditions)
        return self.readout(denoiser).hidden(tokens) + denoiser.factors(scores)

    def gene_scores(
        self, denoiser: FactorDenoiser, counts: Tensor, conditions: Given
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute expected normal scores: means of the group, plus the factors and the network by token."""
        of_group = self._tensor(self.frame(conditions.numpy(), None).means)
        hidden, weights = self.hidden(denoiser, counts, conditions), self.gene_weights(denoiser)
        of_tokens = torch.einsum("ctr,trg->cg", hidden, weights) + self.readout(denoiser).bias  # a bias of 0
        return of_group + of_tokens, {"conditions": of_group}

    def gene_weights(self, denoiser: FactorDenoiser) -> Tensor:
        """Return gene weights of :meth:`hidden`, in units of normal scores."""
        return super().gene_weights(denoiser) * (self.n_cells[:, None] * self.deviations).sum(0) / self.n_cells.sum()

    def expression(self, denoiser: FactorDenoiser, counts: Tensor, conditions: Given) -> Tensor:
        """Compute expected gene shares ``(cells, genes)`` from the factors of cells."""
        (scores, frame), model = self.expected(counts, conditions), self.model()
        shared = scores.cpu().numpy().astype(np.float64) @ model.posterior()[0] @ model.loadings
        library = self.blocks.library(counts).cpu().numpy().astype(np.float64)
        means = frame.means + frame.deviations * shared
        expected = model.reference.expected_counts(means, frame.deviations * model.noise, library)
        return self._tensor(expected / expected.sum(1, keepdims=True))


def principal_axes(loadings: NDArray[np.float64], scores: NDArray[np.floating], n_axes: int) -> NDArray[np.float64]:
    """Return at most ``n_axes`` axes ``(axes, genes)``: of the factors, then orthogonal axes of the scores."""
    own = np.linalg.svd(loadings, full_matrices=False)[2]
    start = np.ones(min(scores.shape), dtype=np.float32)
    n_tried = min(n_axes, min(scores.shape) - 1)
    axes = svds(scores, n_tried, v0=start)[2] if n_tried else np.linalg.svd(scores, full_matrices=False)[2]
    beside = np.linalg.svd(axes - axes @ own.T @ own, full_matrices=False)[2]
    return np.concatenate([own, beside[: len(axes) - len(own)]])


def _matching(groups: GroupTable, requested: GroupTable, row: int) -> np.ndarray:
    """Find the groups of a requested row, with back-off over its context, then to untreated groups."""
    context, treatment = requested.cell_context[row], requested.treatment(row)
    is_missing = (requested.interventions[row] == Code.MISSING).any()
    for same in (np.ones(groups.n_rows, dtype=bool) if is_missing else groups.have(treatment), groups.untreated):
        for n_kept in range(len(context), -1, -1):
            kept = context[:n_kept]
            near = same & ((kept == Code.MISSING) | (groups.cell_context[:, :n_kept] == kept)).all(1)
            if near.any():
                return np.flatnonzero(near)
    return np.arange(groups.n_rows)


class TokenCode(CellCode[TokenDenoiser]):
    """Concatenated tokens of the autoencoder, which is trained first and then frozen; the denoiser holds it."""

    abilities = frozenset({"new categories", "contributions of tokens", "fixed tokens", "gradients of tokens"})
    keep_fraction = 0.0

    mean: Tensor  # (length,)
    scale: Tensor  # (length,)
    stage: Tensor  # 0 while the autoencoder is trained, then 1

    def __init__(
        self, blocks: Blocks, specs: Sequence[ConditionSpec], size: NetworkSize, options: LatentOptions
    ) -> None:
        super().__init__(blocks, specs, size, options)
        self.share = options.autoencoder_share
        self.register_buffer("mean", torch.zeros(size.n_tokens * options.latent_dim))
        self.register_buffer("scale", torch.ones(size.n_tokens * options.latent_dim))
        self.register_buffer("stage", torch.tensor(0))

    @property
    def length(self) -> int:
        return len(self.mean)

    def fit(self, cells: Batches, denoisers: Sequence[TokenDenoiser]) -> None:
        """Initialise by the average cell."""
        molecules = np.zeros(sum(self.blocks.sizes))
        for counts, _ in cells:
            molecules += column_sums(counts).cpu().numpy()
        frequencies = gene_frequencies(molecules)
        for denoiser in denoisers:
            self.readout(denoiser).initialise_bias(frequencies)

    def fit_sample(self, sample: Batches, denoisers: Sequence[TokenDenoiser]) -> None:
        """Initialise gene dispersions by moments within equal conditions, because training changes them too slowly."""
        counts, conditions = zip(*((to_scipy(counts), given.numpy()) for counts, given in sample), strict=True)
        _, groups = distinct_rows(Conditions.concatenate(conditions).codes(self.specs))
        reference = ReferenceDistribution.fit(sparse.vstack(counts, format="csr"), groups)
        for denoiser in denoisers:
            denoiser.autoencoder.likelihood.start(torch.from_numpy(reference.inverse_dispersions))

    # Two stages.

    def stages(self) -> tuple[float, ...]:
        """Return shares of the epochs for the autoencoder (0 if already trained) and the diffusion."""
        return (0.0, 1.0) if self.stage else (self.share, 1 - self.share)

    def loss(self, denoiser: TokenDenoiser, cells: CountsOrCodes) -> Tensor | None:
        """Compute the negative log-likelihood of counts in nats per molecule, in the first stage."""
        if not isinstance(cells, Tensor) or self.stage:
            return None
        autoencoder, library = denoiser.autoencoder, self.blocks.library(cells)
        log_prob = autoencoder.log_prob(autoencoder.encode(cells, library), cells, library)
        return -log_prob / library + autoencoder.readout.penalty()

    def cache(self, denoiser: TokenDenoiser, counts: Tensor, conditions: Given) -> Tensor:
        return self._tokens(denoiser, counts)

    def begin_stage(self, denoisers: Sequence[TokenDenoiser], cached: Mapping[str, Tensor]) -> None:
        """Freeze the averaged autoencoder, and standardise its tokens by their mean and SD over training cells."""
        trained, averaged = denoisers
        trained.autoencoder.load_state_dict(averaged.autoencoder.state_dict())
        if not self.stage:
            self.mean.copy_(cached[VECTORS].mean(0))
            self.scale.copy_(cached[VECTORS].std(0).clamp(min=1e-4))
            self.stage.fill_(1)

    def encode_training(
        self, denoiser: TokenDenoiser, cells: CountsOrCodes, conditions: Given, generator: Rng = None
    ) -> tuple[Tensor, Tensor]:
        if isinstance(cells, Tensor):
            return self.encode(denoiser, cells, conditions, generator), self.blocks.library(cells)
        return (cells.vector - self.mean) / self.scale, cells.library

    # Cells to codes and back.

    def encode(self, denoiser: TokenDenoiser, counts: Tensor, conditions: Given, rng: Rng) -> Tensor:
        return (self._tokens(denoiser, counts) - self.mean) / self.scale

    def decode(
        self, denoiser: TokenDenoiser, coded: Tensor, library: Tensor, conditions: Given, rng: Rng, guidance: Guidance
    ) -> Tensor:
        return denoiser.autoencoder.sample(self.unstandardised(coded), library, rng)

    def unstandardised(self, coded: Tensor) -> Tensor:
        """Return tokens ``(cells, tokens, latent_dim)`` of codes."""
        return (coded * self.scale + self.mean).unflatten(1, (self.size.n_tokens, -1))

    @torch.no_grad()
    def _tokens(self, denoiser: TokenDenoiser, counts: Tensor) -> Tensor:
        """Compute concatenated tokens ``(cells, length)`` without dropout."""
        autoencoder = denoiser.autoencoder.eval()
        return autoencoder.encode(counts, self.blocks.library(counts)).flatten(1)

    # Reading whole cells.

    def readout(self, denoiser: TokenDenoiser) -> AdditiveReadout:
        return denoiser.autoencoder.readout

    def tokens(self, denoiser: TokenDenoiser, counts: Tensor, conditions: Given) -> Tensor:
        """Compute tokens ``(cells, tokens, latent_dim)``, which do not depend on conditions."""
        return self._tokens(denoiser, counts).unflatten(1, (self.size.n_tokens, -1))

    def hidden(self, denoiser: TokenDenoiser, counts: Tensor, conditions: Given) -> Tensor:
        return denoiser.autoencoder.hidden(self.tokens(denoiser, counts, conditions))

    def encoder(self, denoiser: TokenDenoiser, counts: Tensor, conditions: Given) -> tuple[CountEncoder, Callable]:
        autoencoder, library = denoiser.autoencoder, self.blocks.library(counts)
        return autoencoder.encoder, lambda sums: autoencoder.hidden(autoencoder.encode_sums(sums, library))

    def gene_scores(
        self, denoiser: TokenDenoiser, counts: Tensor, conditions: Given
    ) -> tuple[Tensor, dict[str, Tensor]]:
        tokens = self.tokens(denoiser, counts, conditions)
        return self.readout(denoiser)(denoiser.autoencoder.from_latent(tokens)), {}

    def expression(self, denoiser: TokenDenoiser, counts: Tensor, conditions: Given) -> Tensor:
        """Decode the tokens of cells to gene shares ``(cells, genes)``."""
        return denoiser.autoencoder.shares(self.tokens(denoiser, counts, conditions))

    def sort_tokens(self, order: Tensor) -> None:
        """Permute the means and scales of tokens; a seed then gives other cells (noise is not permuted)."""
        for moments in (self.mean, self.scale):
            permute_tokens(moments, order)
