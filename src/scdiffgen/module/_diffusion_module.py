"""Processes by name, and their module: training, sampling and reading of cells by code x path x denoiser.

A code represents a cell (:class:`CellCode`), a path corrupts the code (:class:`Path`), and a denoiser predicts the
uncorrupted cell (:class:`Denoiser`): a conjugate classical model explains most of the cell, and a network corrects it.
To add a process, write the parts that are new and add a row to ``PROCESSES``
(docs/developer_guide/adding_a_process.md).

The loss is ``denoiser.bind(conditions)(corrupted.state, library).loss(corrupted)`` with ``corrupted =
path.corrupt(code.encode(counts))``; new cells are ``code.decode(path.reverse(guided denoiser, path.start(library)))``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scvi import REGISTRY_KEYS
from scvi.module.base import BaseModuleClass, LossOutput
from scvi.utils import track
from torch import Tensor

from scdiffgen._arguments import LARGEST_LIBRARY
from scdiffgen._codes import Code
from scdiffgen._log_normalise import log_normalise
from scdiffgen._messages import counted
from scdiffgen.conditions import Conditions, ConditionSpec, conditions_from_batch
from scdiffgen.diffusion import Blocks, Rng, row_sums, side_by_side, thin, to_scipy
from scdiffgen.nn import AdditiveReadout, NetworkSize

from ._cell_codes import LIBRARY, VECTORS, Batches, CellCode, CountCode, CountsOrCodes, Encoded
from ._denoisers import UNGUIDED, Blueprint, Denoiser, FactorDenoiser, Guidance, TokenDenoiser, UrnDenoiser
from ._gene_match import GeneMatch
from ._paths import GaussianPath, Path, Predict, Thinning
from ._process_options import Ability, GaussianOptions, Given, LatentOptions
from ._vector_codes import ScoreCode, TokenCode


class Process(NamedTuple):
    """Parts of a process."""

    code: type[CellCode]
    path: type[Path]
    denoiser: type[Denoiser]
    options: type[Any] | None = None  # frozen dataclass of plain values with the settings of the process

    @property
    def abilities(self) -> frozenset[Ability]:
        """What methods of the model may ask of the process."""
        return self.code.abilities | self.path.abilities | self.denoiser.abilities


PROCESSES: dict[str, Process] = {
    "thinning": Process(CountCode, Thinning, UrnDenoiser),
    "gaussian": Process(ScoreCode, GaussianPath, FactorDenoiser, GaussianOptions),
    "latent": Process(TokenCode, GaussianPath, TokenDenoiser, LatentOptions),
}


def named_process(process: str | GaussianOptions, n_modalities: int = 1) -> tuple[str, Any]:
    """Return the name and the options of a process, given by name or options."""
    name = next((name for name, row in PROCESSES.items() if type(process) is row.options), process)
    if not isinstance(name, str) or name not in PROCESSES:
        raise ValueError(
            f"`process` is {process!r}: choose one of {list(PROCESSES)}, or pass `GaussianOptions(...)` or "
            "`LatentOptions(...)`."
        )
    if n_modalities > 1 and "several modalities" not in PROCESSES[name].abilities:
        raise ValueError(lacking("TokenDiffusion(mdata)", name, "several modalities"))
    make = PROCESSES[name].options
    return name, make() if make is not None and isinstance(process, str) else process


def lacking(asked: str, name: str, ability: Ability) -> str:
    """Write the error of a method that needs an ability which a process does not have."""
    able = [repr(other) for other, row in PROCESSES.items() if ability in row.abilities]
    return (
        f"`{asked}` needs a process that supports {ability}, but the process of this model is {name!r}: create and "
        f"train a model with `process={' or '.join(able)}`."
    )


MOST_MOLECULES = 5_000  # of a cell at which genes are matched


class DiffusionModule(BaseModuleClass):
    """Diffusion module; ``n_vars`` is a number of genes, or of several modalities one by key in a minibatch."""

    code: CellCode
    path: Path
    denoiser: Denoiser
    ema_denoiser: Denoiser
    """Exponential moving average of the weights, for sampling, reading and validation."""

    def __init__(
        self,
        n_vars: int | Mapping[str, int],
        specs: Sequence[ConditionSpec],
        size: NetworkSize,
        condition_dropout: float = 0.1,
        features: Mapping[str, Tensor] | None = None,
        process: str | GaussianOptions = "thinning",
    ) -> None:
        super().__init__()
        columns = dict(n_vars) if isinstance(n_vars, Mapping) else {REGISTRY_KEYS.X_KEY: n_vars}
        self.count_keys, self.blocks = tuple(columns), Blocks(tuple(columns.values()))
        self.specs = tuple(specs)
        self.size = size
        self.condition_dropout = condition_dropout
        self.process_name, options = named_process(process, len(columns))
        self.process = PROCESSES[self.process_name]
        self.path = self.process.path(self.blocks, options)
        self.code = self.process.code(self.blocks, specs, size, options)
        blueprint = Blueprint(self.blocks, specs, size, features or {}, self.path, options)
        self.denoiser = self.process.denoiser(blueprint)
        self.ema_denoiser = deepcopy(self.denoiser).requires_grad_(requires_grad=False)

    @property
    def n_vars(self) -> int:
        return sum(self.blocks.sizes)

    @property
    def intervention_names(self) -> list[str]:
        return [spec.name for spec in self.specs if spec.is_intervention]

    @property
    def denoisers(self) -> tuple[Denoiser, Denoiser]:
        """The trained denoiser and the averaged denoiser."""
        return self.denoiser, self.ema_denoiser

    def require(self, asked: str, ability: Ability) -> None:
        """Raise if the process lacks what a method needs."""
        if ability not in self.process.abilities:
            raise ValueError(lacking(asked, self.process_name, ability))

    # Training.

    def initialise(self, batches: Batches) -> None:
        """Initialise from the CSR counts and conditions of all training cells, before the first training."""
        self.code.fit(batches, self.denoisers)

    def start_linearly(self, sample: Batches) -> None:
        """Initialise by a linear model of a sample of the training cells."""
        self.code.fit_sample(sample, self.denoisers)

    def check(self, batch: Mapping[str, Tensor], place: str = "A minibatch") -> None:
        """Raise unless a minibatch on the CPU, where no device waits, holds counts and registered codes."""
        if VECTORS not in batch:
            check_counts([batch[key] for key in self.count_keys], place)
        check_codes(batch, self.specs, place)

    def unpack(self, batch: Mapping[str, Tensor]) -> tuple[CountsOrCodes, Given]:
        """Return CSR counts ``(cells, columns)`` or cached codes, and conditions, on the module's device."""
        device = self.denoiser.embed.null.device  # scvi-tools' property walks all parameters
        tensors = {key: tensor.to(device) for key, tensor in batch.items()}
        conditions = conditions_from_batch(tensors, self.specs)
        if VECTORS in tensors:
            return Encoded(tensors[VECTORS], tensors[LIBRARY]), conditions
        parts = [tensors[key] for key in self.count_keys]
        counts = side_by_side([part if part.layout == torch.sparse_csr else part.to_sparse_csr() for part in parts])
        return counts, conditions

    def loss(self, cells: CountsOrCodes, conditions: Given) -> LossOutput:
        """Compute the training loss: drop some conditions, corrupt the cells, and predict what is missing."""
        if (own := self.code.loss(self.denoiser, cells)) is not None:
            return _averaged(own)
        given = conditions.drop(self.condition_dropout, together=list(conditions))
        errors = self._errors(self.denoiser, self.code.drop(cells, self.condition_dropout), given, conditions)
        return _averaged(errors, self.denoiser.network.readout.penalty())

    @torch.no_grad()
    def validation_loss(self, cells: CountsOrCodes, conditions: Given, generator: torch.Generator) -> LossOutput:
        """Compute the loss of the averaged network, without dropout of conditions and with a fixed generator."""
        if (own := self.code.loss(self.ema_denoiser, cells)) is not None:
            return _averaged(own)
        return _averaged(self._errors(self.ema_denoiser, cells, conditions, conditions, generator))

    def _errors(
        self, denoiser: Denoiser, cells: CountsOrCodes, given: Given, conditions: Given, generator: Rng = None
    ) -> Tensor:
        """Compute the errors ``(cells,)`` of a denoiser with the ``given`` ones of all ``conditions``."""
        coded, library = self.code.encode_training(self.ema_denoiser, cells, conditions, generator)
        predict = denoiser.bind(given, self.code.unmeasured(conditions))
        corrupted = self.path.corrupt(coded, generator)
        return predict(corrupted.state, library).loss(corrupted)

    def stages(self) -> tuple[float, ...]:
        return self.code.stages()

    @torch.no_grad()
    def compute_once(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute the codes that replace the counts of cells in later stages."""
        self.check(batch)
        counts, conditions = self.unpack(batch)
        assert isinstance(counts, Tensor)
        rest = {key: values for key, values in batch.items() if key not in self.count_keys}
        coded = self.code.cache(self.ema_denoiser, counts, conditions)
        return {VECTORS: coded, LIBRARY: self.library(counts), **rest}

    @torch.no_grad()
    def begin_stage(self, cached: Mapping[str, Tensor]) -> None:
        self.code.begin_stage(self.denoisers, cached)

    @torch.no_grad()
    def match_genes(self, cells: Batches | None, n_drawn: int = 20_000, *, silent: bool = True) -> None:
        """Match the genes of drawn cells to those of training cells, if the code does; without cells, to none."""
        if self.code.match is not None:
            self.code.match.clear()
            if cells is not None:
                match_genes(self, self.code.match, cells, n_drawn, silent=silent)

    def fit_copula(self, cells: Batches) -> ScoreCode:
        """Fit a Gaussian copula, the linear model from which few training cells are drawn anew."""
        copula = ScoreCode(self.blocks, self.specs, self.size, None)
        copula.fit_tables(cells, n_axes=50)
        return copula

    @torch.no_grad()
    def draw_anew(self, batch: Mapping[str, Tensor], copula: ScoreCode) -> dict[str, Tensor]:
        """Replace the counts of a minibatch by draws with the same conditions and library sizes, unless empty."""
        counts, conditions = self.unpack(batch)
        assert isinstance(counts, Tensor)
        library = self.library(counts).cpu().numpy().astype(np.float64)
        rng = copula.rng(None)
        drawn = copula.model().draw_counts(copula.frame(conditions.numpy(), rng), library, rng).toarray()
        measured = torch.from_numpy(drawn.sum(1) == 0)[:, None]  # cells without a molecule, of few molecules
        new = torch.where(measured, counts.to_dense().cpu(), torch.from_numpy(drawn))
        return {**batch, self.count_keys[0]: new.to_sparse_csr()}

    def extend_features(self, name: str, vectors: Tensor, components: Sequence[int] = ()) -> None:
        """Append feature vectors ``(new, n_features)`` of new categories of a condition, without training."""
        for denoiser in self.denoisers:
            denoiser.embed.extend_features(name, vectors, components)

    # Sampling.

    def bind(self, conditions: Given, guidance: Guidance = UNGUIDED) -> Predict:
        """Bind conditions to the averaged network, guided."""
        return guidance.bind(self.ema_denoiser, conditions)

    @torch.no_grad()
    def generate(
        self,
        conditions: Given,
        library: Tensor,
        *,
        guidance: Guidance = UNGUIDED,
        start: Tensor | None = None,
        n_steps: int,
        generator: Rng = None,
    ) -> Tensor:
        """Draw dense counts of cells with about ``library`` ``(cells,)`` molecules, or add to ``start`` so many."""
        predict, rng = self.bind(conditions, guidance), self.code.rng(generator)
        state = self.path.start(library, self.code.length, generator) if start is None else start
        coded = self.path.reverse(predict, state, library, n_steps=n_steps, generator=generator)
        drawn = self.code.decode(self.ema_denoiser, coded, library, conditions, rng, guidance)
        if start is not None or self.code.match is None:
            return drawn
        return self.code.match(drawn, guidance.followed(conditions), generator)

    @torch.no_grad()
    def counterfactual(
        self,
        cells: Tensor,
        source: Given,
        target: Given,
        *,
        guidance: Guidance = UNGUIDED,
        keep: float | None = None,
        n_steps: int,
        generator: Rng = None,
    ) -> Tensor:
        """Draw CSR cells under other conditions, and ``keep`` a share in [0, 1), by default ``code.keep_fraction``."""
        library, rng = self.library(cells), self.code.rng(generator)
        predict, share = self.bind(target, guidance), self.code.keep_fraction if keep is None else keep
        coded = self.code.encode(self.ema_denoiser, cells, source, rng)
        if share is None:
            log_shares = self.expression(cells, source).log()
            coded = self.path.couple(coded, log_shares, self.bind(source), predict, library, generator)
        elif share < 1:
            state = self.path.keep(coded, share, generator)
            coded = self.path.reverse(predict, state, library, n_steps=n_steps, generator=generator)
        return self.code.decode(self.ema_denoiser, coded, library, target, rng, guidance)

    @torch.no_grad()
    def nll_bound(self, counts: Tensor, conditions: Given, generator: Rng = None) -> Tensor:
        """Draw an unbiased estimate ``(cells,)`` of the bound on ``-log p(cell | library, conditions)``, in nats."""
        corrupted = self.path.corrupt_uniformly(counts, generator)
        predict = self.ema_denoiser.bind(conditions, self.code.unmeasured(conditions))
        return predict(corrupted.state, corrupted.library).bound(corrupted, counts)

    # Reading whole cells, CSR counts (cells, columns).

    def library(self, counts: Tensor) -> Tensor:
        """Compute library sizes ``(cells,)``, or ``(cells, modalities)``."""
        return self.blocks.library(counts)

    def log_expression(self, counts: Tensor) -> sparse.csr_matrix:
        """Log-normalise counts within each modality."""
        parts = [log_normalise(part) for part in self.blocks.split(to_scipy(counts))]
        return parts[0] if len(parts) == 1 else sparse.hstack(parts, format="csr")

    @torch.no_grad()
    def expression(self, counts: Tensor, conditions: Given) -> Tensor:
        """Compute expected expression ``(cells, columns)``, in shares that sum to 1 in each modality."""
        return self.code.expression(self.ema_denoiser, counts, conditions)

    @torch.no_grad()
    def tokens(self, counts: Tensor, conditions: Given) -> Tensor:
        """Compute tokens ``(cells, tokens, dim)``."""
        return self.code.tokens(self.ema_denoiser, counts, conditions)

    @torch.no_grad()
    def hidden(self, counts: Tensor, conditions: Given) -> Tensor:
        """Compute hidden vectors of the read-out ``(cells, tokens, width)``."""
        return self.code.hidden(self.ema_denoiser, counts, conditions)

    def gene_weights(self) -> Tensor:
        """Return gene weights of :meth:`hidden`, ``(tokens, width, columns)``."""
        return self.code.gene_weights(self.ema_denoiser)

    def readout(self) -> AdditiveReadout:
        return self.code.readout(self.ema_denoiser)

    def sort_tokens(self, order: Sequence[int] | NDArray[np.intp]) -> None:
        """Permute the tokens: the ``order[k]``-th becomes the ``k``-th; the inverse permutation undoes it bitwise."""
        self.code.sort_tokens(torch.as_tensor(order))
        for denoiser in self.denoisers:
            denoiser.sort_tokens(torch.as_tensor(order))


def _averaged(errors: Tensor, penalty: Tensor | float = 0.0) -> LossOutput:
    return LossOutput(loss=errors.mean() + penalty, n_obs_minibatch=len(errors))


def match_genes(module: DiffusionModule, match: GeneMatch, cells: Batches, n_drawn: int, *, silent: bool) -> None:
    """Draw cells under the conditions of training cells, and fit a match of genes to both.

    As many are drawn as there are training cells, at most ``n_drawn``, and up to eight times as many, at most 4,000, if
    these are few. Deep cells are compared at 5,000 molecules: training cells are thinned, and drawn cells are stopped
    there on their way to the whole library, so that the time does not grow with the depth.
    """
    device, parts = module.denoiser.embed.null.device, []
    generator = torch.Generator(device).manual_seed(0)
    for counts, given in cells:
        library = module.library(counts)
        share = (MOST_MOLECULES / library).clamp(max=1)
        if (share < 1).any():
            counts = thin(counts, share, generator).state
        parts.append((to_scipy(counts), given.numpy(), library))
    all_counts, all_given, libraries = zip(*parts, strict=True)
    conditions, library = Conditions.concatenate(all_given), torch.cat(libraries)
    measured, drawn = sparse.vstack(all_counts, format="csr"), []
    del parts, all_counts, counts  # copies of all cells
    n_cells = min(len(library), n_drawn)
    chosen = np.linspace(0, len(library) - 1, n_cells).astype(int)
    like = np.resize(chosen, max(n_cells, min(8 * n_cells, n_drawn, 4_000)))
    for rows in track(np.array_split(like, -(-len(like) // 256)), "Matching genes", disable=silent):
        predict = _of_whole_cells(module.bind(conditions.take(rows).to(device)), library[rows])
        start, size = module.path.start(library[rows], module.code.length), measured[rows].sum(1).A1
        size = torch.from_numpy(size).to(library)
        new = module.path.reverse(predict, start, size, n_steps=16, generator=generator)
        drawn.append(to_scipy(new.to_sparse_csr()))
    all_drawn = sparse.vstack(drawn, format="csr")
    del drawn
    match.fit(measured, conditions, all_drawn, like)


def _of_whole_cells(predict: Predict, library: Tensor) -> Predict:
    return lambda state, _: predict(state, library)


# Checks of minibatches on the way to the device.

LOWEST = {"category": 0, "hierarchy": Code.MISSING, "set": Code.ABSENT}
"""Lowest code by kind of condition: paths may end above the last level, and cells may be untreated."""


class InvalidMinibatchError(ValueError):
    """A minibatch holds other values than counts, or codes that are not registered."""


def check_counts(parts: Sequence[Tensor], place: str) -> None:
    """Raise unless dense or sparse counts of all modalities are whole numbers, and every cell has a molecule."""
    library: Tensor | int = 0
    for part in parts:
        is_sparse = part.layout != torch.strided
        counts = part.to_sparse_csr() if part.layout == torch.sparse_coo else part
        values = counts.values() if is_sparse else counts
        wrong = values != values.clamp(0, LARGEST_LIBRARY).floor()  # NaN differs, too
        if wrong.any():
            first = values[wrong][0].item()
            raise InvalidMinibatchError(f"{place} does not hold molecule counts (first: {first:g}). Pass raw counts.")
        library = library + (row_sums(counts, values) if is_sparse else values.sum(1))
    if not torch.as_tensor(library).all():
        raise InvalidMinibatchError(f"{place} has a cell without a molecule. Leave such cells out.")


def check_codes(tensors: Mapping[str, Tensor], specs: Sequence[ConditionSpec], place: str) -> None:
    """Raise unless codes are those of registered categories, and numbers and doses are possible."""
    for spec in specs:
        tensor, is_set = tensors[spec.registry_key], spec.kind == "set"
        codes, doses = tensor.tensor_split([tensor.shape[1] // 2 if is_set else tensor.shape[1]], dim=1)
        if tensor.isinf().any() or (doses < 0).any():
            raise InvalidMinibatchError(
                f"{place} has infinite numbers or negative doses of {spec.name!r} in {spec.registry_key!r}. Leave such "
                "cells out, or pass NaN where the number is missing."
            )
        if spec.is_number:
            continue
        codes = codes[:, spec.column, None] if spec.kind == "category" else codes
        wrong = (codes < LOWEST[spec.kind]) | (codes >= spec.n_categories) | (codes != codes.long())
        if wrong.any():
            raise InvalidMinibatchError(
                f"{place} has the code {codes[wrong][0].item():g} of {spec.name!r} in {spec.registry_key!r}, and the "
                f"registry has {counted(spec.n_categories, 'category', 'categories')}: pass codes from 0 in their "
                "order."
            )
