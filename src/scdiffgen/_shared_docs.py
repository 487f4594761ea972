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
setup_keys = perturbation_key
    Column of ``obs`` with what was done to each cell, such as ``"FOXO1"`` or ``"FOXO1+TP53"``; or several columns with
    a part each. Columns that share a name, such as ``drug_1`` and ``drug_2``, hold the same kind of perturbation;
    others, such as a knock-out and a drug, different kinds.
setup_control = control
    Name, or names, of cells to which nothing was done.
setup_sep = perturbation_sep
    What stands between the parts of a combination, and between their doses.
setup_dose = dose_key
    Column of doses: a number, or ``"0.5+1.0"`` aligned with the perturbation; or as many columns as
    ``perturbation_key`` names.
setup_unit = dose_unit
    What doses are measured in; kept and shown, never computed with.
setup_hierarchy = hierarchy_keys
    Columns from the root of a hierarchy to its leaves, such as organism, tissue, cell type. A cell may end at any
    level.
setup_categorical = categorical_covariate_keys
    Columns of ``obs`` with further categories, such as sex or condition: conditions as all others are, and asked for by
    their names.
setup_continuous = continuous_covariate_keys
    Columns of ``obs`` with numbers, such as age or time, likewise.
setup_text = text_key
    Column of descriptions in words, such as ``"naive T cell, day 3"``. A pretrained sentence encoder embeds each
    distinct one once; the vectors are kept with the model, which can be asked for descriptions that no cell has. Needs
    ``pip install 'scdiffgen[text]'``.
setup_features = perturbation_features_key
    Key of ``uns`` with a feature vector of each perturbation, a mapping or a data frame. Perturbations that were never
    measured can be predicted if they have one.
adata
    Cells; by default those the model was made with.
indices
    Positions or mask of the cells to take; by default all.
batch_size
    Cells a minibatch.
genes
    Genes to return, by default all.
conditions
    A value for each condition, by the name under which it was registered; or a table with a column for each condition,
    a row for each kind of cell and a column ``"n_cells"``; or ``None``. What is missing is that of random training
    cells which have the same categories in the rest; where a number is given, such as an age, it is what the network
    takes for likely (but for perturbations).
n_cells
    Number of cells of each row of ``conditions``.
library_size
    Molecules a cell: a number, an array of one number a cell, or a function of the table of conditions (a row a cell)
    and a NumPy generator. By default they are drawn like those of the training cells under the same conditions. Of a
    MuData, such sizes by modality; those left out are drawn.
guidance_scale
    How much stronger than in the data the conditions are followed; 1 is as in the data, larger values give cells more
    typical of their conditions and less diverse. One number for all conditions together, also those that were left
    out, or one for each that is named.
n_steps
    Steps, each an evaluation of the network; more are slower and better. 8 to 64 is the useful range.
seed
    Same seed, same cells; ``None`` follows ``scvi.settings.seed``.
silent
    Whether no progress bar is shown.
raises_asked = ValueError
    If a condition or category is not registered, or a number is out of range.
raises_read = ValueError
    If ``adata`` lacks genes or holds categories that are not registered, ``indices`` chooses no cell or one that is not
    there, or a number is out of range.
raises_process = ValueError
    If the process of the model is not thinning, or the model was registered with ``setup_mudata`` and one AnnData is
    needed.
raises_columns = KeyError
    If ``adata`` lacks a column that was registered.
raises_type = TypeError
    If ``adata`` is of another type.
raises_untrained = RuntimeError
    If the model is not trained.
"""

_TOGETHER = {
    "drawn": ("ax", "show", "save"),
    "shown": ("show", "save"),
    "sides": ("real", "generated"),
    "reading": ("adata", "indices", "batch_size", "silent"),
    "drawing": ("n_steps", "batch_size", "seed", "silent"),
    "guided_drawing": ("guidance_scale", "n_steps", "batch_size", "seed", "silent"),
    "conditions_keys": (
        "setup_keys",
        "setup_control",
        "setup_sep",
        "setup_dose",
        "setup_unit",
        "setup_hierarchy",
        "setup_categorical",
        "setup_continuous",
        "setup_text",
        "setup_features",
    ),
    "raises_request": ("raises_asked", "raises_untrained"),
    "raises_cells": ("raises_read", "raises_columns", "raises_type", "raises_untrained"),
}


def _read(text: str) -> dict[str, str]:
    """Entries by their placeholders."""
    found = re.findall(r"^(\w+)(?: = (\w+))?\n((?: {4}.+\n)+)", text, re.MULTILINE)
    return {placeholder: f"{name or placeholder}\n{meaning.rstrip()}" for placeholder, name, meaning in found}


ENTRIES = _read(_FIGURES + _MODEL)
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
