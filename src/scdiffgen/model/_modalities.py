"""Several kinds of molecules in the same cells: how many of each, and one kind generated from another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from torch import Tensor

from scdiffgen.conditions import Conditions
from scdiffgen.library import JointLibrarySizes, LibraryFromTokens, LibrarySizeModel, library_from_tokens
from scdiffgen.module import JointThinningModule

from ._cells import Cells, generator_from
from ._checks import check_positive_integer, library_sizes
from ._generation import N_STEPS, Generation
from ._mudata import new_cells
from ._sampler import whole_counts
from ._tokens import spread

if TYPE_CHECKING:
    from mudata import MuData
    from numpy.typing import ArrayLike

REGRESSION_CELLS = 5_000
FEW_CELLS = 20
TokenSizes = dict[tuple[str, ...], dict[str, tuple[np.ndarray, ...]]]


class Asked(NamedTuple):
    """Modalities to read, modalities to generate, and library sizes of these that were told, a row a cell."""

    given: list[str]
    targets: list[str]
    sizes: dict[str, np.ndarray]


class Grown(NamedTuple):
    """Cells with target modalities, and the expected counts of each, dense, if they were asked for."""

    counts: sparse.csr_matrix
    expected: dict[str, np.ndarray]


class Modalities(Generation):
    """Several modalities of the same cells."""

    def generate_modality(
        self,
        mdata: MuData | None,
        given: str | Sequence[str],
        target: str | Sequence[str] | None = None,
        *,
        indices: Sequence[int] | np.ndarray | None = None,
        library_size: float | ArrayLike | Mapping[str, ArrayLike] | None = None,
        expected: bool = False,
        n_steps: int = N_STEPS,
        batch_size: int | None = None,
        seed: int | None = None,
        silent: bool = False,
    ) -> MuData:
        """Generate some modalities of given cells from their molecules of others: protein from RNA, say.

        Every molecule of the given modalities is kept, and those of the targets are added. What is measured of these in
        the cells is not looked at, and they may be missing from ``mdata``; other modalities are taken for not measured.
        Cells without a molecule of what is given follow their conditions alone.

        Parameters
        ----------
        mdata
            Cells; ``None`` takes those the model was made with.
        given
            Modalities to read.
        target
            Modalities to generate, by default all others.
        indices
            Cells to take, by default all.
        library_size
            Molecules a cell of the target: a number, or one a cell; of several targets, by their names. By default it
            is predicted from the tokens of the given modalities, with the spread that this leaves, by a regression on
            training cells that have both; where there are too few of these it is drawn as in :meth:`generate`.
        expected
            Whether expected counts are added as the layer ``"expected"`` (dense) of each target: what the generated
            counts average to over many draws.
        n_steps, batch_size, seed, silent
            As in :meth:`generate`.

        Returns
        -------
        The cells with integer counts (CSR) of the given modalities as they were, and of the targets as generated; names
        and ``.obs`` as they were.

        Raises
        ------
        ValueError
            If the model has one modality alone, a modality is unknown, or one is both given and a target.

        Examples
        --------
        >>> imputed = joint_model.generate_modality(mdata, given="rna", target="protein", n_steps=4, seed=0)
        >>> (imputed["rna"].X != mdata["rna"].X).nnz
        0
        """
        self._require_training()
        module = self._joint("generate_modality")
        check_positive_integer("n_steps", n_steps)
        asked = self._asked(given, target)
        cells = Cells(self, mdata, indices, batch_size, None if silent else "Generating")
        asked = asked._replace(sizes=self._told_sizes(library_size, asked.targets, cells))
        generator = generator_from(seed, self.device)
        of_columns = self._gene_names().get_level_values(0)
        grown = list(self._grow_targets(module, cells, asked, n_steps, generator, expected=expected))
        kept = of_columns.isin([*asked.given, *asked.targets])
        counts = cells.in_order([part.counts for part in grown])[:, kept]
        result = new_cells(counts, cells.obs(), self._gene_names()[kept])
        for name in asked.targets if expected else ():
            result.mod[name].layers["expected"] = cells.in_order([part.expected[name] for part in grown])
        return result

    @torch.no_grad()
    def _grow_targets(
        self,
        module: JointThinningModule,
        cells: Cells,
        asked: Asked,
        n_steps: int,
        generator: torch.Generator,
        *,
        expected: bool,
    ) -> Iterator[Grown]:
        """Grow the targets of cells, minibatch after minibatch."""
        unread = self._all_but(asked.given)
        rng, done = np.random.default_rng(generator.initial_seed()), 0
        for counts, conditions in cells:
            kept = module.without(counts, unread.expand(len(counts), -1))
            told = {name: sizes[done : done + len(counts)] for name, sizes in asked.sizes.items()}
            drawn, mean = self._target_sizes(module, asked._replace(sizes=told), kept, conditions, rng)
            predictor, start = module.predictor(conditions, len(counts)), kept.to_dense()
            grown = module.draw(predictor, drawn, start=start, n_steps=n_steps, generator=generator)
            layers = {}
            if expected:
                shares = predictor(start, drawn).log_prob(start).exp().split(module.blocks.sizes, 1)
                by_name = zip(self._modalities(), shares, mean.unbind(1), strict=True)
                layers = {n: (share * size[:, None]).cpu().numpy() for n, share, size in by_name if n in asked.targets}
            yield Grown(whole_counts(grown), layers)
            done += len(counts)

    def _target_sizes(
        self,
        module: JointThinningModule,
        asked: Asked,
        kept: Tensor,
        conditions: Conditions[Tensor],
        rng: np.random.Generator,
    ) -> tuple[Tensor, Tensor]:
        """Library sizes ``(cells, modalities)``: those of what is given, and of the targets, drawn and expected."""
        there = module.library(kept)
        drawn, mean = there.cpu().numpy().copy(), there.cpu().numpy().copy()
        known = getattr(self, "library_from_tokens_", {}).get(tuple(asked.given), {})
        tokens = module.tokens(kept, conditions).flatten(1).cpu().numpy()
        codes = conditions.numpy().codes(module.specs)
        without_tokens = None
        for column, name in enumerate(self._modalities()):
            if name in asked.sizes:
                drawn[:, column] = mean[:, column] = asked.sizes[name]
            elif name in asked.targets and name in known:
                model = LibraryFromTokens(*known[name])
                drawn[:, column], mean[:, column] = model.sample(tokens, rng)[:, 0], model.mean(tokens)[:, 0]
            elif name in asked.targets:
                without_tokens = self._library_model().sample(codes, rng) if without_tokens is None else without_tokens
                drawn[:, column] = mean[:, column] = without_tokens[:, column]
        return torch.from_numpy(drawn).to(there), torch.from_numpy(mean).to(there)

    def _asked(self, given: str | Sequence[str], target: str | Sequence[str] | None) -> Asked:
        """Names of modalities to read and to generate, each in the order of the model."""
        names = self._modalities()
        read = [given] if isinstance(given, str) else list(given)
        rest = [name for name in names if name not in read]
        asked = rest if target is None else [target] if isinstance(target, str) else list(target)
        for argument, chosen in (("given", read), ("target", asked)):
            unknown = [name for name in chosen if name not in names]
            if unknown:
                raise ValueError(f"`{argument}` names {unknown[0]!r}: the modalities of the model are {names}.")
            if not chosen:
                raise ValueError(f"`{argument}` names no modality: choose from {names}.")
        both = [name for name in asked if name in read]
        if both:
            raise ValueError(f"{both[0]!r} is both in `given` and in `target`: a modality is read or generated.")
        return Asked([name for name in names if name in read], [name for name in names if name in asked], {})

    def _told_sizes(
        self, library_size: float | ArrayLike | Mapping[str, ArrayLike] | None, targets: list[str], cells: Cells
    ) -> dict[str, np.ndarray]:
        """Library sizes of targets that the user told, in the order in which cells are loaded."""
        if library_size is None:
            return {}
        by_name = sizes_by_name(library_size, targets)
        return {name: library_sizes(sizes, len(cells.indices))[cells.sorted] for name, sizes in by_name.items()}

    def _joint(self, asked: str) -> JointThinningModule:
        """The module, if it has several modalities; raise if it has one.

        Parameters
        ----------
        asked
            Name of the method.
        """
        if not isinstance(self.module, JointThinningModule):
            raise ValueError(
                f"`{asked}` needs a model of several modalities: register a MuData with `setup_mudata`, and make and "
                "train a model of it."
            )
        return self.module

    def _all_but(self, given: Sequence[str]) -> Tensor:
        """Which modalities are not given ``(modalities,)``."""
        return torch.tensor([name not in given for name in self._modalities()], device=self.device)

    def _library_sizes(
        self,
        conditions: Conditions[np.ndarray],
        rows: pd.DataFrame,
        library_size: Any,
        generator: torch.Generator,
    ) -> np.ndarray:
        """Library sizes of cells to generate, ``(cells, modalities)`` if there are several."""
        names = self._modalities()
        if not names or library_size is None:
            return super()._library_sizes(conditions, rows, library_size, generator)
        by_name = sizes_by_name(library_size, names)
        if len(names) == 1:
            return super()._library_sizes(conditions, rows, by_name.get(names[0]), generator)
        sizes, rng = (
            super()._library_sizes(conditions, rows, None, generator),
            np.random.default_rng(generator.initial_seed()),
        )
        for name, told in by_name.items():
            sizes[:, names.index(name)] = library_sizes(told(rows, rng) if callable(told) else told, len(rows))
        return sizes

    def _library_model(self) -> LibrarySizeModel | JointLibrarySizes:
        model = self._training_cells()
        if len(self._modalities()) < 2:
            return model
        return JointLibrarySizes(model.library, model.codes, model.min_cells, model.n_interventions)

    @torch.no_grad()
    def _remember_library_from_tokens(self, indices: np.ndarray) -> None:
        """Keep how the library sizes of each modality follow from one other, or from all others, in training cells."""
        names = self._modalities()
        if len(names) < 2:
            return
        module, chosen = self._joint("train"), spread(np.sort(indices), REGRESSION_CELLS)
        self.library_from_tokens_: TokenSizes = {}
        for given in {*combinations(names, 1), *combinations(names, len(names) - 1)}:
            unread, tokens, library = self._all_but(given), [], []
            for counts, conditions in Cells(self, None, chosen, None, None):
                kept = module.without(counts, unread.expand(len(counts), -1))
                tokens.append(module.tokens(kept, conditions).flatten(1).cpu().numpy())
                library.append(module.library(counts).cpu().numpy())
            self.library_from_tokens_[given] = self._regress(given, np.concatenate(tokens), np.concatenate(library))

    def _regress(self, given: Sequence[str], tokens: np.ndarray, library: np.ndarray) -> dict[str, Any]:
        """Regressions of the library sizes of each modality that is not given, on cells that have it and all given."""
        names, fitted = self._modalities(), {}
        complete = (library[:, [names.index(name) for name in given]] > 0).all(1)
        for column, name in enumerate(names):
            rows = complete & (library[:, column] > 0)
            if name not in given and rows.sum() >= FEW_CELLS:
                fitted[name] = tuple(library_from_tokens(tokens[rows], library[rows, column : column + 1]))
        return fitted


def sizes_by_name(library_size: Any, modalities: Sequence[str]) -> Mapping[str, Any]:
    """Library sizes by modality; of one modality they need no name.

    Parameters
    ----------
    library_size
        Sizes by modality, or those of the only one.
    modalities
        The modalities that they may be of.
    """
    if isinstance(library_size, Mapping):
        unknown = [name for name in library_size if name not in modalities]
        if unknown:
            raise ValueError(f"`library_size` names {unknown[0]!r}: the modalities to generate are {list(modalities)}.")
        return library_size
    if len(modalities) > 1:
        raise ValueError(
            f"`library_size` is {library_size!r}, but there are several modalities: pass the sizes of some of them by "
            f"name, {{{modalities[0]!r}: ...}}; the others get theirs as by default."
        )
    return {modalities[0]: library_size}
