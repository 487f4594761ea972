"""How each modality of a model follows from its others in training cells: library sizes, deep columns, and shares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from scvi.model.base import BaseModelClass
from torch import Tensor

from scdiffgen.conditions import Conditions
from scdiffgen.data import modality_names
from scdiffgen.diffusion import to_scipy
from scdiffgen.imputation import DeepColumns, ShareCalibration, deep_columns, known_inputs, share_calibration
from scdiffgen.library import LibraryFromTokens, library_from_tokens
from scdiffgen.module import JointThinningModule

from ._cells import Cells, evenly_spread
from ._deep_draws import DeepRegressions
from ._training_data import Batch, KeptCells

MOST_CELLS, FEW_CELLS, FEW_DEEP_CELLS, MOST_DEEP_COLUMNS = 5_000, 20, 100, 500

LibraryRegressions = Mapping[tuple[str, ...], Mapping[str, LibraryFromTokens]]
"""Of the library size of a modality on the tokens of others: by the names of these, then by its own."""

ShareCalibrations = Mapping[tuple[str, ...], Mapping[str, ShareCalibration]]
"""Of the shares of a modality that is predicted from others, likewise."""


class ModalityRegressions(NamedTuple):
    """From one modality, or from all but one; each is fitted on the cells that have it and all that is given."""

    library_from_tokens: LibraryRegressions
    deep_columns: DeepRegressions
    shares: ShareCalibrations


@torch.no_grad()
def modality_regressions(
    model: BaseModelClass, cells: Cells | KeptCells, left_out: Iterable[Batch]
) -> ModalityRegressions:
    """Fit those of a trained model, on cells of which some were left out of training; one modality has none."""
    names, module = modality_names(model.registry), model.module
    if len(names) < 2 or not isinstance(module, JointThinningModule):
        return ModalityRegressions({}, {}, {})
    of_sizes: dict[tuple[str, ...], dict[str, LibraryFromTokens]] = {}
    of_columns: dict[tuple[str, ...], dict[str, DeepColumns]] = {}
    of_shares: dict[tuple[str, ...], dict[str, ShareCalibration]] = {}
    whole = sparse.vstack([to_scipy(counts) for counts, _ in cells], format="csr")
    blocks = dict(zip(names, module.blocks.split(whole), strict=True))
    sizes = np.hstack([np.asarray(block.sum(1)) for block in blocks.values()])
    for given in dict.fromkeys([*combinations(names, 1), *combinations(names, len(names) - 1)]):
        hidden = torch.tensor([name not in given for name in names], device=model.device)
        tokens, wide = _read(module, cells, hidden), []
        complete = np.all(sizes[:, [names.index(name) for name in given]] > 0, axis=1)
        of_sizes[given], of_columns[given] = {}, {}
        for column, name in enumerate(names):
            rows = evenly_spread(np.flatnonzero(complete & (sizes[:, column] > 0)), MOST_CELLS)
            if name in given or len(rows) < FEW_CELLS:
                continue
            of_sizes[given][name] = library_from_tokens(tokens[rows], sizes[rows, column : column + 1])
            is_small = blocks[name].shape[1] <= MOST_DEEP_COLUMNS  # residuals of all columns are kept
            if module.denoiser.limit.which[column] and is_small and len(rows) >= FEW_DEEP_CELLS:
                inputs = known_inputs([blocks[other][rows] for other in given], tokens[rows])
                of_columns[given][name] = deep_columns(inputs, tokens.shape[1], blocks[name][rows].toarray())
            else:
                wide.append(column)
        calibrations = _calibrations(module, cells, left_out, hidden) if wide else []
        of_shares[given] = {names[column]: calibrations[column] for column in wide}
    return ModalityRegressions(of_sizes, of_columns, of_shares)


def _read(module: JointThinningModule, cells: Iterable[Batch], hidden: Tensor) -> np.ndarray:
    """Tokens ``(cells, features)`` without the ``hidden`` modalities."""
    read = ((module.without(counts, hidden.expand(len(counts), -1)), conditions) for counts, conditions in cells)
    return np.concatenate([module.tokens(*batch).flatten(1).cpu().numpy() for batch in read])


def label_rows(module: JointThinningModule, conditions: Conditions[Tensor]) -> np.ndarray:
    """Rows ``(cells,)`` in a calibration: the label, or the last one."""
    labels = module.denoiser.label_offsets
    if labels is None or labels.name not in conditions:
        return np.full(conditions.n_cells, 0 if labels is None else len(labels.table))
    label = conditions.numpy()[labels.name]
    return np.where(label.given & label.mask[:, 0], label.ids[:, 0], len(labels.table))


def _calibrations(
    module: JointThinningModule, cells: Iterable[Batch], left_out: Iterable[Batch], hidden: Tensor
) -> list[ShareCalibration]:
    """How shares of each modality are calibrated that are predicted without the ``hidden`` ones."""
    labels, blocks = module.denoiser.label_offsets, module.blocks
    sums = np.zeros((2, 1 + (0 if labels is None else len(labels.table)), module.n_vars))
    for counts, logs, rows in _predicted(module, cells, hidden):
        of_label = sparse.csr_matrix((np.ones(len(rows)), (rows, np.arange(len(rows)))), (sums.shape[1], len(rows)))
        sizes = np.hstack([np.asarray(block.sum(1)) for block in blocks.split(counts)])
        sums[0] += of_label @ counts
        sums[1] += of_label @ (np.exp(logs) * np.repeat(sizes, blocks.sizes, axis=1))
    sums[:, -1] = sums.sum(1)
    calibrations = [share_calibration(*sums[:, :, columns]) for columns in blocks.slices]
    others = [*_predicted(module, left_out, hidden)]
    if not others:
        return calibrations
    counts, logs, rows = (np.concatenate(part) for part in zip(*((c.toarray(), *r) for c, *r in others), strict=True))
    parts = zip(calibrations, blocks.slices, strict=True)
    return [each.with_slope(counts[:, columns], logs[:, columns], rows) for each, columns in parts]


def _predicted(
    module: JointThinningModule, cells: Iterable[Batch], hidden: Tensor
) -> Iterator[tuple[sparse.csr_matrix, np.ndarray, np.ndarray]]:
    """Counts and log shares ``(cells, columns)``, and rows of labels, of cells with all that is not ``hidden``."""
    for counts, conditions in cells:
        kept, library = module.without(counts, hidden.expand(len(counts), -1)), module.library(counts)
        logs = module.predictor(conditions, len(counts))(kept, library).log_prob(kept.to_dense()).cpu().numpy()
        rows = (library[:, ~hidden] > 0).all(1).cpu().numpy()
        yield to_scipy(counts)[rows], logs[rows], label_rows(module, conditions)[rows]
