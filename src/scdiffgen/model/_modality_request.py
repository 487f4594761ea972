"""Modalities of cells drawn from their others: which are given, which are targets, and how large the targets are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from mudata import MuData
from scipy import sparse
from scvi.model.base import BaseModelClass
from torch import Tensor

from scdiffgen.conditions import Conditions
from scdiffgen.module import JointThinningModule

from ._cells import Cells, new_cells
from ._checks import library_sizes
from ._deep_draws import deep_inputs
from ._modality_regressions import label_rows
from ._model_access import gene_names
from ._sampler import Sampler, whole_counts
from ._training_summary import TrainingCells, sizes_by_name


class ModalityRequest:
    """Modalities to read and to generate, each in the order of the model; without targets they are all others."""

    def __init__(self, model: BaseModelClass, given: str | Sequence[str], target: str | Sequence[str] | None) -> None:
        if not isinstance(model.module, JointThinningModule):
            raise ValueError(
                "`generate_modality` needs a model of several modalities: register a MuData with `setup_mudata`, and "
                "make and train a model of it."
            )
        self.module, self.known, self.genes = model.module, TrainingCells(model), gene_names(model)
        names = self.known.modalities
        read = [given] if isinstance(given, str) else list(given)
        rest = [name for name in names if name not in read]
        targets = rest if target is None else [target] if isinstance(target, str) else list(target)
        for argument, chosen in (("given", read), ("target", targets)):
            unknown = [name for name in chosen if name not in names]
            if unknown:
                raise ValueError(f"`{argument}` names {unknown[0]!r}: the modalities of the model are {names}.")
            if not chosen:
                raise ValueError(f"`{argument}` names no modality: choose from {names}.")
        both = [name for name in targets if name in read]
        if both:
            raise ValueError(f"{both[0]!r} is both in `given` and in `target`: a modality is read or generated.")
        self.given, self.targets = ([name for name in names if name in chosen] for chosen in (read, targets))

    def draw(
        self, sampler: Sampler, cells: Cells, generator: torch.Generator, library_size: Any, *, expected: bool
    ) -> MuData:
        """Keep the molecules of what is given, and add those of the targets."""
        module, names = self.module, self.known.modalities
        by_name = {} if library_size is None else sizes_by_name(library_size, self.targets)
        requested = {n: library_sizes(sizes, len(cells.indices))[cells.sorted] for n, sizes in by_name.items()}
        unread = torch.tensor([name not in self.given for name in names], device=module.device)
        rng, done = np.random.default_rng(generator.initial_seed()), 0
        layers: dict[str, list[np.ndarray]] = {name: [] for name in self.targets if expected}
        calibrations = self.known.summary.shares.get(tuple(self.given), {})

        def draw(counts: Tensor, conditions: Conditions[Tensor]) -> sparse.csr_matrix:
            nonlocal done
            kept = module.without(counts, unread.expand(len(counts), -1))
            sizes_here = {name: sizes[done : done + len(counts)] for name, sizes in requested.items()}
            done += len(counts)
            tokens = module.tokens(kept, conditions).flatten(1).cpu().numpy()
            drawn, mean = self._target_sizes(kept, tokens, conditions, sizes_here, rng)
            predictor, start = module.predictor(conditions, len(counts)), kept.to_dense()
            if expected:
                logs, rows_of_labels = predictor(start, drawn).log_prob(start), label_rows(module, conditions)
                parts = (each.cpu().numpy() for each in logs.split(module.blocks.sizes, 1))
                for name, log_shares, size in zip(names, parts, mean.cpu().numpy().T, strict=True):
                    if name in layers:
                        known = calibrations.get(name)
                        shares = np.exp(log_shares) if known is None else known.shares(log_shares, rows_of_labels)
                        layers[name].append(shares * size[:, None])
            for name, (rows, columns, log_means) in self._deep_columns(kept, tokens, sizes_here, rng).items():
                block = module.blocks.slices[names.index(name)]
                start[rows, block] = torch.from_numpy(columns).to(start)
                drawn[rows, names.index(name)] = start[rows, block].sum(1)
                if expected:
                    layers[name][-1][rows] = np.expm1(log_means)
            if torch.equal(module.blocks.dense_sums(start), drawn):
                return whole_counts(start)
            return whole_counts(
                module.draw(predictor, drawn, start=start, n_steps=sampler.n_steps, generator=generator)
            )

        counts = cells.in_order(sampler.over_cells(cells, draw))
        kept = self.genes.get_level_values(0).isin([*self.given, *self.targets])
        result = new_cells(counts[:, kept], cells.obs(), self.genes[kept])
        for name, rows in layers.items():
            result.mod[name].layers["expected"] = cells.in_order(rows)
        return result

    def _deep_columns(
        self, kept: Tensor, tokens: np.ndarray, requested: dict[str, np.ndarray], rng: np.random.Generator
    ) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Targets by their regressions: rows of cells with all that is given, drawn counts, and mean ``log1p``."""
        names, found = self.known.modalities, {}
        given = [names.index(name) for name in self.given]
        rows = np.flatnonzero((self.module.library(kept)[:, given] > 0).all(1).cpu().numpy())
        regressions = self.known.summary.deep_columns.get(tuple(self.given), {})
        wanted = [name for name in self.targets if name in regressions and name not in requested]
        if wanted and len(rows):
            inputs = deep_inputs(kept, tokens, self.module.blocks, given, rows)
            for name in wanted:
                logs = regressions[name].log_mean(inputs)
                found[name] = rows, regressions[name].draw(logs, rng), logs
        return found

    def _target_sizes(
        self,
        kept: Tensor,
        tokens: np.ndarray,
        conditions: Conditions[Tensor],
        requested: dict[str, np.ndarray],
        rng: np.random.Generator,
    ) -> tuple[Tensor, Tensor]:
        """Library sizes ``(cells, modalities)``: those of what is given, and of the targets, drawn and expected."""
        there = self.module.library(kept)
        drawn, mean = there.cpu().numpy().copy(), there.cpu().numpy().copy()
        regressions = self.known.summary.library_from_tokens.get(tuple(self.given), {})
        without_tokens = None
        for column, name in enumerate(self.known.modalities):
            if name in requested:
                drawn[:, column] = mean[:, column] = requested[name]
            elif name in self.targets and name in regressions:
                regression = regressions[name]
                drawn[:, column] = regression.sample(tokens, rng)[:, 0]
                mean[:, column] = regression.mean(tokens)[:, 0]
            elif name in self.targets:
                if without_tokens is None:
                    codes = conditions.numpy().codes(self.module.specs)
                    without_tokens = self.known.size_model().sample(codes, rng)
                drawn[:, column] = mean[:, column] = without_tokens[:, column]
        return torch.from_numpy(drawn).to(there), torch.from_numpy(mean).to(there)
