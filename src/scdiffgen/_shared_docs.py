"""Parameters and errors that many functions have, described once.

A line of a docstring that is ``{name}`` alone stands for the entries of that name below. :func:`shared_docs` puts them
there, so that ``help``, the API pages and doctest see the whole text. An entry whose parameter is called otherwise
than the placeholder is headed by ``placeholder = parameter``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from textwrap import indent
from typing import TypeVar

Documented = TypeVar("Documented", bound=Callable)

PLACEHOLDER = re.compile(r"^([ \t]*)\{(\w+)\}[ \t]*$", re.MULTILINE)

_FIGURES = """
ax
    Where to draw; by default a new figure. Several panels need a figure of their own.
show
    Whether to show the figure; by default ``scanpy.settings.autoshow``.
save
    ``True`` or text saves to ``scanpy.settings.figdir`` as scanpy does; a :class:`~pathlib.Path` to that file.
ncols
    Panels a row.
stored = adata
    Cells with stored tokens.
tokens
    Token or tokens to draw, in this order, by name or by annotation (:func:`scdiffgen.tl.annotate_tokens`); by default
    all.
token_groups = groupby
    Column of ``adata.obs``: categories, text, truth values or few numbers.
real
    Real cells, best those that were held out of training.
generated
    Generated cells; genes are aligned by name.
train
    Cells that the generator was trained on, which spaces and classifiers are fitted on; by default half of the real
    ones.
layer
    Layer of the counts, by default ``.X``; cells without layers, as generated ones are, are read from ``.X``.
n_jobs
    Threads of the forests.
path
    From :meth:`scdiffgen.model.TokenDiffusion.get_generation_path`.
loadings = tokens
    Cells with stored tokens, or loadings ``(genes, tokens)`` with the genes as index.
"""

_MODEL = """
adata
    Cells; by default those the model was made with.
indices
    Positions or mask of the cells to take; by default all.
batch_size
    Cells a minibatch.
genes
    Genes to return, by default all.
guidance_scale
    How much stronger than in the data the conditions are followed; 1 is as in the data, larger values give cells more
    typical of their conditions and less diverse. One number for all conditions together, also those that were left
    out, or one for each that is named.
n_steps
    Steps, each an evaluation of the network; more are slower and better. 8 to 64 is the useful range.
seed
    Same seed, same cells. By default the randomness follows ``scvi.settings.seed``.
silent
    Whether no progress bar is shown.
raises_columns = KeyError
    If ``adata`` lacks a column that was registered.
raises_type = TypeError
    If ``adata`` is of another type.
raises_untrained = RuntimeError
    If the model is not trained.
"""

_METRICS = """
points_real = real
    Real cells, ``(cells, dimensions)``, such as principal components.
points_generated = generated
    Generated cells, over the same dimensions.
groups = groupby
    Column of ``obs`` of all cells; by default all are one group.
metrics
    Column or columns to compute; by default all, but ``"wasserstein"`` only where POT is installed.
n_pcs
    Principal components, at most.
n_top_genes
    Most variable genes to compare; by default all.
max_cells
    Cells taken of each side at most; drawn without replacement.
n_trees
    Trees of the forests.
draws = seed
    Same seed, same result: seed of all that is drawn at random.
counts
    Real counts, ``(cells, genes)``.
labels
    Label of each of these cells.
labels_out
    Label of every cell to draw.
raises_pot = ImportError
    If ``"wasserstein"`` is asked for by name, and POT is not installed.
warns_pot = UserWarning
    If ``metrics`` is ``None`` and POT is not installed.
warns_few = FewCellsWarning
    If there are fewer cells than metrics need; these scores are NaN.
"""

_TOGETHER = {
    "drawn": ("ax", "show", "save"),
    "shown": ("show", "save"),
    "sides": ("real", "generated"),
    "points": ("points_real", "points_generated"),
    "space": ("n_pcs", "n_top_genes"),
    "forests": ("n_trees", "n_jobs"),
    "warns": ("warns_pot", "warns_few"),
    "null": ("counts", "labels", "labels_out", "layer", "draws"),
    "cells": ("adata", "indices", "batch_size"),
    "raises_cells": ("raises_columns", "raises_type"),
}


def _read(text: str) -> dict[str, str]:
    """Entries by their placeholders."""
    found = re.findall(r"^(\w+)(?: = (\w+))?\n((?: {4}.+\n)+)", text, re.MULTILINE)
    return {placeholder: f"{name or placeholder}\n{meaning.rstrip()}" for placeholder, name, meaning in found}


ENTRIES = _read(_FIGURES + _MODEL + _METRICS)
ENTRIES |= {name: "\n".join(ENTRIES[part] for part in parts) for name, parts in _TOGETHER.items()}
ENTRIES["figure"] = f"{ENTRIES['drawn']}\n\nReturns\n-------\nThe axes."
ENTRIES["figures"] = f"{ENTRIES['drawn']}\n\nReturns\n-------\nThe axes, one a panel."


def shared_docs(documented: Documented) -> Documented:
    """Put the shared entries where the docstring of a function, method or class names them."""

    def entries(found: re.Match[str]) -> str:
        indentation, name = found.groups()
        if name not in ENTRIES:
            raise KeyError(
                f"the docstring of `{documented.__qualname__}` has {{{name}}}: write the entry out, or add it to "
                f"`_shared_docs.py`, which has {sorted(ENTRIES)}"
            )
        return indent(ENTRIES[name], indentation)

    if documented.__doc__:  # none under `python -OO`
        documented.__doc__ = PLACEHOLDER.sub(entries, documented.__doc__)
    return documented
