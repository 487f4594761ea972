"""Imputation of modalities from others: library sizes, counts of high-count modalities, and calibrated shares."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple, Self

import numpy as np
import torch
from scipy import sparse
from scvi.model.base import BaseModelClass
from torch import Tensor

from scdiffgen._codes import indicator
from scdiffgen.conditions import Conditions
from scdiffgen.data import FEWEST_CELLS, modality_names
from scdiffgen.diffusion import Blocks, to_scipy
from scdiffgen.imputation import CountRegression, LibraryRegression, ShareCalibration, draw_missing, regression_inputs
from scdiffgen.module import DiffusionModule

from ._cells import Cells, evenly_spread
from ._training_data import Batch, KeptCells

REGRESSION_CELLS = 5_000  # maximum number of training cells of a regression

GivenModalities = tuple[str, ...]
LibraryRegressions = Mapping[GivenModalities, Mapping[str, LibraryRegression]]
CountRegressions = Mapping[GivenModalities, Mapping[str, CountRegression]]
ShareCalibrations = Mapping[GivenModalities, Mapping[str, ShareCalibration]]


class CountDraw(NamedTuple):
    """Regression that draws one modality from others, which are given by position."""

    target: int
    given: Sequence[int]
    regression: CountRegression

    def draw(
        self, counts: Tensor, tokens: np.ndarray, blocks: Blocks, rows: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw counts ``(rows, columns)`` of ``rows``; also return their expected ``log1p``."""
        cells = to_scipy(counts)[rows]
        inputs = regression_inputs([cells[:, blocks.slices[block]] for block in self.given], tokens[rows])
        log_mean = self.regression.log_mean(inputs)
        return self.regression.draw(log_mean, rng), log_mean


class ModalityImputer(NamedTuple):
    """Fitted regressions by the given modalities (one, or all but one), then by the target."""

    library_from_tokens: LibraryRegressions
    deep_columns: CountRegressions
    shares: ShareCalibrations

    @classmethod
    @torch.no_grad()
    def fit(cls, model: BaseModelClass, cells: Cells | KeptCells, left_out: Iterable[Batch]) -> Self:
        """Fit regressions to cells with the target and all given modalities; ``left_out`` cells fit slopes."""
        names, module = modality_names(model.registry), model.module
        sizes_from, counts_from, shares_from = {}, {}, {}  # type: ignore[var-annotated]
        if len(names) < 2:
            return cls(sizes_from, counts_from, shares_from)
        whole = sparse.vstack([to_scipy(counts) for counts, _ in cells], format="csr")
        blocks = dict(zip(names, module.blocks.split(whole), strict=True))
        full = blocks | _full_panels(module, cells, blocks)
        sizes = np.hstack([np.asarray(block.sum(1)) for block in full.values()])
        for given in dict.fromkeys([*combinations(names, 1), *combinations(names, len(names) - 1)]):
            hidden = torch.tensor([name not in given for name in names], device=model.device)
            tokens, wide = _tokens_without(module, cells, hidden), []
            complete = np.all(sizes[:, [names.index(name) for name in given]] > 0, axis=1)
            sizes_from[given], counts_from[given] = {}, {}
            for column, name in enumerate(names):
                rows = evenly_spread(np.flatnonzero(complete & (sizes[:, column] > 0)), REGRESSION_CELLS)
                if name in given or len(rows) < FEWEST_CELLS:
                    continue
                sizes_from[given][name] = LibraryRegression.fit(tokens[rows], sizes[rows, column : column + 1])
                is_small = full[name].shape[1] <= module.code.panels.most_columns  # residuals of all columns are stored
                if module.denoiser.deep[column] and is_small and len(rows) >= 100:
                    inputs = regression_inputs([blocks[other][rows] for other in given], tokens[rows])
                    counts = full[name][rows].toarray()
                    counts_from[given][name] = CountRegression.fit(inputs, tokens.shape[1], counts)
                else:
                    wide.append(column)
            calibrations = _calibrations(module, cells, left_out, hidden) if wide else []
            shares_from[given] = {names[column]: calibrations[column] for column in wide}
        return cls(sizes_from, counts_from, shares_from)

    def count_draws(self, names: Sequence[str], blocks: Blocks) -> tuple[CountDraw, ...]:
        """Chain regressions of as many modalities as possible, the widest first; each is given all but later ones."""
        width = dict(zip(names, blocks.sizes, strict=True))
        high = {name for fits in self.deep_columns.values() for name in fits}
        chain = sorted(high, key=lambda name: (-width[name], name))
        while chain:
            given = [tuple(name for name in names if name not in chain[place:]) for place in range(len(chain))]
            draws = [self.count_draw(names, read, name) for name, read in zip(chain, given, strict=True)]
            available = tuple(draw for draw in draws if draw is not None)
            if len(available) == len(chain):
                return available
            chain = chain[1:]
        return ()

    def count_draw(self, names: Sequence[str], given: Sequence[str], target: str) -> CountDraw | None:
        """Return the regression of a modality on given modalities, or ``None``."""
        regression = self.deep_columns.get(tuple(given), {}).get(target)
        return regression and CountDraw(names.index(target), [names.index(name) for name in given], regression)


def label_rows(module: DiffusionModule, conditions: Conditions[Tensor]) -> np.ndarray:
    """Return each cell's calibration row ``(cells,)``: its label, or the last row."""
    labels = module.denoiser.label_offsets
    if labels is None or labels.name not in conditions:
        return np.full(conditions.n_cells, 0 if labels is None else len(labels.table))
    label = conditions.numpy()[labels.name]
    return np.where(label.given & label.mask[:, 0], label.ids[:, 0], len(labels.table))


def _full_panels(
    module: DiffusionModule, cells: Iterable[Batch], blocks: Mapping[str, sparse.csr_matrix]
) -> dict[str, sparse.csr_matrix]:
    """Draw the features that are missing from the panels of batches; return only modalities with such features."""
    if module.code.panels.missing is None:
        return {}
    batches = np.concatenate([module.code.panels.batch_of(conditions) for _, conditions in cells])
    missing, full = module.code.panels.missing.cpu().numpy(), {}
    for name, columns in zip(blocks, module.blocks.slices, strict=True):
        if missing[:, columns].any():
            others = [blocks[other] for other in blocks if other != name]
            drawn = draw_missing(
                blocks[name].toarray(), missing[batches, columns], others, fewest=FEWEST_CELLS, most=REGRESSION_CELLS
            )
            full[name] = sparse.csr_matrix(drawn)
    return full


def _tokens_without(module: DiffusionModule, cells: Iterable[Batch], hidden: Tensor) -> np.ndarray:
    """Compute tokens ``(cells, features)`` without the ``hidden`` modalities."""
    read = ((module.blocks.without(counts, hidden.expand(len(counts), -1)), conditions) for counts, conditions in cells)
    return np.concatenate([module.tokens(*batch).flatten(1).cpu().numpy() for batch in read])


def _calibrations(
    module: DiffusionModule, cells: Iterable[Batch], left_out: Iterable[Batch], hidden: Tensor
) -> list[ShareCalibration]:
    """Calibrate shares of each modality, predicted without the ``hidden`` modalities."""
    labels, blocks = module.denoiser.label_offsets, module.blocks
    sums = np.zeros((2, 1 + (0 if labels is None else len(labels.table)), module.n_vars))
    for counts, logs, rows, complete in _predicted(module, cells, hidden):
        of_label = indicator(rows, sums.shape[1])
        counts = counts if complete.all() else counts.multiply(np.repeat(complete, blocks.sizes, axis=1)).tocsr()
        sizes = np.hstack([np.asarray(block.sum(1)) for block in blocks.split(counts)])
        sums[0] += of_label @ counts
        sums[1] += of_label @ (np.exp(logs) * np.repeat(sizes, blocks.sizes, axis=1))
    sums[:, -1] = sums.sum(1)
    calibrations = [ShareCalibration.fit(*sums[:, :, columns]) for columns in blocks.slices]
    validation = [(counts.toarray(), *rest) for counts, *rest in _predicted(module, left_out, hidden)]
    if not validation:
        return calibrations
    counts, logs, rows, complete = map(np.concatenate, zip(*validation, strict=True))
    parts = zip(calibrations, blocks.slices, complete.T, strict=True)
    return [fit.with_slope(counts[has][:, columns], logs[has][:, columns], rows[has]) for fit, columns, has in parts]


def _predicted(
    module: DiffusionModule, cells: Iterable[Batch], hidden: Tensor
) -> Iterator[tuple[sparse.csr_matrix, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield counts, log shares ``(cells, columns)`` and label rows of cells that have all modalities but ``hidden``.

    Also mark modalities with all features of the panel ``(cells, modalities)``.
    """
    for counts, conditions in cells:
        kept, library = module.blocks.without(counts, hidden.expand(len(counts), -1)), module.library(counts)
        logs = module.bind(conditions)(kept, library).log_prob(kept.to_dense()).cpu().numpy()
        rows = (library[:, ~hidden] > 0).all(1).cpu().numpy()
        incomplete = module.code.panels.incomplete(conditions)
        complete = np.ones(library.shape, dtype=bool) if incomplete is None else ~incomplete.cpu().numpy()
        yield to_scipy(counts)[rows], logs[rows], label_rows(module, conditions)[rows], complete[rows]
