"""Imputation of modalities of given cells from their other modalities."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from mudata import MuData
from scipy import sparse
from scvi.model.base import BaseModelClass
from torch import Tensor

from scdiffgen.conditions import Conditions

from ._cells import Cells, new_cells
from ._checks import library_sizes
from ._modality_imputer import label_rows
from ._model_access import gene_names, modalities
from ._sampler import Sampler, whole_counts
from ._training_summary import TrainingCells, sizes_by_name


class ModalityRequest:
    """Request for modalities of given cells; by default, the targets are all modalities that are not given."""

    def __init__(self, model: BaseModelClass, given: str | Sequence[str], target: str | Sequence[str] | None) -> None:
        if len(modalities(model)) < 2:
            raise ValueError(
                "`generate_modality` needs a model of several modalities: register a MuData with `setup_mudata`, then "
                "create and train a model of it."
            )
        self.module, self.known, self.genes = model.module, TrainingCells(model), gene_names(model)
        self.names, self.imputer = self.known.modalities, self.known.summary.imputer
        read = self._known_names("given", given)
        targets = [name for name in self.names if name not in read] if target is None else target
        generated = self._known_names("target", targets)
        both = [name for name in generated if name in read]
        if both:
            raise ValueError(f"{both[0]!r} is in both `given` and `target`: leave it out of one of them.")
        self.given, self.targets = read, generated

    def _known_names(self, argument: str, chosen: str | Sequence[str]) -> list[str]:
        chosen = [chosen] if isinstance(chosen, str) else list(chosen)
        unknown = [name for name in chosen if name not in self.names]
        if unknown:
            raise ValueError(f"`{argument}` names {unknown[0]!r}: the modalities of the model are {self.names}.")
        if not chosen:
            raise ValueError(f"`{argument}` names no modality: choose from {self.names}.")
        return [name for name in self.names if name in chosen]

    def draw(
        self, sampler: Sampler, cells: Cells, generator: torch.Generator, library_size: Any, *, expected: bool
    ) -> MuData:
        """Keep the counts of the given modalities, and generate counts of the targets."""
        by_name = {} if library_size is None else sizes_by_name(library_size, self.targets)
        requested = {name: library_sizes(sizes, len(cells.indices))[cells.sorted] for name, sizes in by_name.items()}
        hidden = torch.tensor([name not in self.given for name in self.names], device=self.module.device)
        rng, done = np.random.default_rng(generator.initial_seed()), 0
        layers: dict[str, list[np.ndarray]] = {name: [] for name in self.targets if expected}

        def draw(counts: Tensor, conditions: Conditions[Tensor]) -> sparse.csr_matrix:
            nonlocal done
            rows = slice(done, done := done + len(counts))
            kept = self.module.blocks.without(counts, hidden.expand(len(counts), -1))
            sizes = {name: requested[name][rows] for name in requested}
            start, library, means = self._start(kept, conditions, sizes, rng, expected=expected)
            for name, parts in layers.items():
                parts.append(means[name])
            if not torch.equal(self.module.blocks.dense_sums(start), library):
                start = self.module.generate(
                    conditions, library, start=start, n_steps=sampler.n_steps, generator=generator
                )
            return whole_counts(start)

        counts = cells.in_order(sampler.over_cells(cells, draw))
        columns = self.genes.get_level_values(0).isin([*self.given, *self.targets])
        result = new_cells(counts[:, columns], cells.obs(), self.genes[columns])
        for name, parts in layers.items():
            result.mod[name].layers["expected"] = cells.in_order(parts)
        return result

    def _start(
        self,
        kept: Tensor,
        conditions: Conditions[Tensor],
        requested: Mapping[str, np.ndarray],
        rng: np.random.Generator,
        *,
        expected: bool,
    ) -> tuple[Tensor, Tensor, dict[str, np.ndarray]]:
        """Return initial dense counts (with counts drawn by regression), library sizes, and expected counts."""
        tokens = self.module.tokens(kept, conditions).flatten(1).cpu().numpy()
        library, mean = self._library_sizes(kept, tokens, conditions, requested, rng)
        start = kept.to_dense()
        means = self._expected_counts(start, library, mean, conditions) if expected else {}
        given = [self.names.index(name) for name in self.given]
        rows = np.flatnonzero((self.module.library(kept)[:, given] > 0).all(1).cpu().numpy())
        for name in self.targets if len(rows) else ():
            draw = None if name in requested else self.imputer.count_draw(self.names, self.given, name)
            if draw is not None:
                block = self.module.blocks.slices[draw.target]
                columns, log_means = draw.draw(kept, tokens, self.module.blocks, rows, rng)
                start[rows, block] = torch.from_numpy(columns).to(start)
                library[rows, draw.target] = start[rows, block].sum(1)
                if expected:
                    means[name][rows] = np.expm1(log_means)
        return start, library, means

    def _expected_counts(
        self, start: Tensor, library: Tensor, mean: np.ndarray, conditions: Conditions[Tensor]
    ) -> dict[str, np.ndarray]:
        """Compute expected counts ``(cells, columns)`` by modality: calibrated shares times ``mean`` library sizes."""
        logs = self.module.bind(conditions)(start, library).log_prob(start)
        calibrations, labels = self.imputer.shares.get(tuple(self.given), {}), label_rows(self.module, conditions)
        expected = {}
        for name, part, size in zip(self.names, logs.split(self.module.blocks.sizes, 1), mean.T, strict=True):
            log_shares = part.cpu().numpy()
            shares = calibrations[name].shares(log_shares, labels) if name in calibrations else np.exp(log_shares)
            expected[name] = shares * size[:, None]
        return expected

    def _library_sizes(
        self,
        kept: Tensor,
        tokens: np.ndarray,
        conditions: Conditions[Tensor],
        requested: Mapping[str, np.ndarray],
        rng: np.random.Generator,
    ) -> tuple[Tensor, np.ndarray]:
        """Draw library sizes ``(cells, modalities)`` of given modalities and targets; also return expected sizes."""
        own = self.module.library(kept)
        drawn, mean = own.cpu().numpy().copy(), own.cpu().numpy().copy()
        regressions = self.imputer.library_from_tokens.get(tuple(self.given), {})
        by_conditions = None
        for column, name in enumerate(self.names):
            if name in requested:
                drawn[:, column] = mean[:, column] = requested[name]
            elif name in self.targets and name in regressions:
                drawn[:, column] = regressions[name].sample(tokens, rng)[:, 0]
                mean[:, column] = regressions[name].mean(tokens)[:, 0]
            elif name in self.targets:
                if by_conditions is None:
                    by_conditions = self.known.draw_sizes(conditions.numpy(), rng)
                drawn[:, column] = mean[:, column] = by_conditions[:, column]
        return torch.from_numpy(drawn).to(own), mean
