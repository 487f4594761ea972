"""What a model keeps of its training cells: one record, saved with it as plain arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from typing import Any

import numpy as np
import torch
from scvi.model.base import BaseModelClass

from scdiffgen.conditions import Conditions
from scdiffgen.data import modality_names
from scdiffgen.library import LibraryFromTokens, library_from_tokens
from scdiffgen.module import HiddenMoments, JointThinningModule, ThinningModule, TokenBasis, token_basis
from scdiffgen.responses import Pseudobulks, pseudobulks

from ._cells import Cells, evenly_spread

BASIS_CELLS = 20_000
REGRESSION_CELLS = 5_000
FEW_CELLS = 20

LibraryRegressions = Mapping[tuple[str, ...], Mapping[str, LibraryFromTokens]]
"""Of the library size of a modality on the tokens of others: by the names of these, then by its own."""


@dataclass(frozen=True)
class TrainingSummary:
    """What generating, responding and reading need of the cells that a model was trained on."""

    library: np.ndarray  # (cells,), or (cells, modalities)
    conditions: Conditions[np.ndarray]
    pseudobulks: Pseudobulks | None  # none where responses are not transferred
    token_basis: TokenBasis | None  # none without an additive read-out
    learned_interventions: Mapping[str, np.ndarray]  # ids of those that training cells had, ever
    library_from_tokens: LibraryRegressions  # of models of several modalities
    reference_pseudobulks: Pseudobulks | None = None  # of the reference of a query model

    def to_plain(self) -> dict[str, Any]:
        """Arrays in dicts and tuples, as they are saved."""
        bulks, reference = self.pseudobulks, self.reference_pseudobulks
        return {
            "library": self.library,
            "conditions": self.conditions.to_plain(),
            "pseudobulks": None if bulks is None else bulks.to_plain(),
            "token_basis": None if self.token_basis is None else tuple(self.token_basis),
            "learned_interventions": dict(self.learned_interventions),
            "library_from_tokens": {
                given: {name: tuple(fitted) for name, fitted in by_name.items()}
                for given, by_name in self.library_from_tokens.items()
            },
            "reference_pseudobulks": None if reference is None else reference.to_plain(),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> TrainingSummary:
        """Undo :meth:`to_plain`."""
        bulks, reference, basis = (plain[name] for name in ("pseudobulks", "reference_pseudobulks", "token_basis"))
        return cls(
            library=plain["library"],
            conditions=Conditions.from_plain(plain["conditions"], len(plain["library"])),
            pseudobulks=None if bulks is None else Pseudobulks(**bulks),
            token_basis=None if basis is None else TokenBasis(*basis),
            learned_interventions=plain["learned_interventions"],
            library_from_tokens={
                given: {name: LibraryFromTokens(*fitted) for name, fitted in by_name.items()}
                for given, by_name in plain["library_from_tokens"].items()
            },
            reference_pseudobulks=None if reference is None else Pseudobulks(**reference),
        )


def training_summary(model: BaseModelClass) -> TrainingSummary:
    """What a trained model keeps of its training cells."""
    return TrainingSummary.from_plain(model.training_summary_)


def remember_training(model: BaseModelClass) -> np.ndarray:
    """Summarise the training and validation cells, and settle what training left open; returns the tokens' old order.

    Where tokens add up, the network is sorted: the k-th token is the k-th by the variance that it explains, but for
    nested tokens, which keep their order.
    """
    known = np.concatenate([model.train_indices, model.validation_indices]).astype(int)
    order, basis = _sort_tokens(model, known)
    summary = _summarised(model, known, basis)
    model.training_summary_ = summary.to_plain()
    ids = {name: torch.from_numpy(learned) for name, learned in summary.learned_interventions.items()}
    model.module.share_half_doses(ids)
    return order


def _summarised(model: BaseModelClass, indices: np.ndarray, basis: TokenBasis | None) -> TrainingSummary:
    module = model.module
    before = None if model.training_summary_ is None else training_summary(model)
    batches = [(module.library(counts).cpu().numpy(), given.numpy()) for counts, given in Cells(model, None, indices)]
    library = np.concatenate([library for library, _ in batches])
    conditions = Conditions.concatenate([given for _, given in batches])
    reference = None if before is None else before.reference_pseudobulks
    learned = {} if before is None else dict(before.learned_interventions)
    for name in module.denoiser.effect_names:
        treatment = conditions[name]
        learned[name] = np.union1d(learned.get(name, np.zeros(0, dtype=np.int64)), treatment.ids[treatment.mask])
    return TrainingSummary(
        library,
        conditions,
        _pseudobulks(model, indices, conditions, reference),
        basis,
        learned,
        _library_regressions(model, indices),
        reference,
    )


def _pseudobulks(
    model: BaseModelClass, indices: np.ndarray, conditions: Conditions[np.ndarray], reference: Pseudobulks | None
) -> Pseudobulks | None:
    """Pseudobulks of the training cells, if treatments are such as can be transferred.

    They are perturbations, which are effects, beside conditions that are categories, of one modality that is thinned.
    """
    module = model.module
    numbers = any(spec.is_number for spec in module.specs)
    joint = modality_names(model.registry)
    if not isinstance(module, ThinningModule) or joint or len(module.denoiser.effect_names) != 1 or numbers:
        return None
    bulks = pseudobulks(module, Cells(model, None, indices), conditions, module.specs)
    return None if bulks is None else bulks.concatenate(reference)


def _sort_tokens(model: BaseModelClass, indices: np.ndarray) -> tuple[np.ndarray, TokenBasis | None]:
    """Sort the tokens by the variance that they explain; the order, and their basis over the training cells."""
    module, weights = model.module, model.module.gene_weights()
    order = np.arange(module.size.n_tokens)
    if weights is None:
        return order, None
    weights, moments = weights.cpu().numpy(), moments_in_training(model, indices)
    if not module.nested:
        order = np.argsort(-moments.explained(weights), kind="stable")
        module.sort_tokens(order)
    return order, token_basis(moments.take(order), module.gene_weights().cpu().numpy())


def moments_in_training(model: BaseModelClass, indices: np.ndarray) -> HiddenMoments:
    """Moments of the read-out's hidden vectors over (at most 20,000 of) the training cells."""
    return hidden_moments(Cells(model, None, evenly_spread(np.sort(indices), BASIS_CELLS)))


def hidden_moments(cells: Cells) -> HiddenMoments:
    """Moments of the read-out's hidden vectors of some cells."""
    moments = (HiddenMoments.of(cells.module.hidden(*batch).cpu().numpy()) for batch in cells)
    return reduce(HiddenMoments.merge, moments)


@torch.no_grad()
def _library_regressions(model: BaseModelClass, indices: np.ndarray) -> LibraryRegressions:
    """How the library sizes of each modality follow from one other, or from all others, in training cells."""
    names, module = modality_names(model.registry), model.module
    if len(names) < 2 or not isinstance(module, JointThinningModule):
        return {}
    chosen, regressions = evenly_spread(np.sort(indices), REGRESSION_CELLS), {}
    for given in dict.fromkeys([*combinations(names, 1), *combinations(names, len(names) - 1)]):
        hidden = torch.tensor([name not in given for name in names], device=model.device)
        tokens, library = [], []
        for counts, conditions in Cells(model, None, chosen):
            kept = module.without(counts, hidden.expand(len(counts), -1))
            tokens.append(module.tokens(kept, conditions).flatten(1).cpu().numpy())
            library.append(module.library(counts).cpu().numpy())
        regressions[given] = _regressed(names, given, np.concatenate(tokens), np.concatenate(library))
    return regressions


def _regressed(
    names: Sequence[str], given: Sequence[str], tokens: np.ndarray, library: np.ndarray
) -> dict[str, LibraryFromTokens]:
    """Regressions of the library size of each modality that is not given, on cells that have it and all given."""
    fitted = {}
    complete = (library[:, [names.index(name) for name in given]] > 0).all(1)
    for column, name in enumerate(names):
        rows = complete & (library[:, column] > 0)
        if name not in given and rows.sum() >= FEW_CELLS:
            fitted[name] = library_from_tokens(tokens[rows], library[rows, column : column + 1])
    return fitted
