"""Parameters and errors that many functions have, described once.

A line of a docstring that is ``{name}`` alone stands for the entries of that name below. :func:`shared_docs` puts them
there, so that ``help``, the API pages and doctest see the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import cleandoc
from textwrap import indent
from typing import TypeVar

Documented = TypeVar("Documented", bound=Callable)

PLACEHOLDER = re.compile(r"^([ \t]*)\{(\w+)\}[ \t]*$", re.MULTILINE)

_FIGURES = {
    "ax": """
        ax
            Where to draw.
    """,
    "ncols": """
        ncols
            Panels a row.
    """,
    "show": """
        show
            Whether to show the figure; by default ``scanpy.settings.autoshow``.
    """,
    "save": """
        save
            ``True`` or text saves to ``scanpy.settings.figdir`` as scanpy does; a :class:`~pathlib.Path` to that file.
    """,
    "stored": """
        adata
            Cells with stored tokens, see :meth:`scdiffgen.model.TokenDiffusion.write_back`.
    """,
    "tokens": """
        tokens
            Token or tokens to draw, in this order, by name or by annotation (:func:`scdiffgen.tl.annotate_tokens`); by
            default all.
    """,
    "token_groups": """
        groupby
            Column of ``adata.obs``: categories, text, truth values or few numbers.
    """,
    "real": """
        real
            Real cells, best those that were held out of training.
    """,
    "generated": """
        generated
            Generated cells; genes are aligned by name.
    """,
    "train": """
        train
            Cells that the generator was trained on, which spaces and classifiers are fitted on; by default half of the
            real ones.
    """,
    "layer": """
        layer
            Layer of the counts, by default ``.X``; cells without layers, as generated ones are, are read from ``.X``.
    """,
    "n_jobs": """
        n_jobs
            Threads of the forests.
    """,
}

_MODEL = {
    "adata": """
        adata
            Cells; by default those the model was made with.
    """,
    "indices": """
        indices
            Positions or mask of the cells to take; by default all.
    """,
    "batch_size": """
        batch_size
            Cells a minibatch.
    """,
    "genes": """
        genes
            Genes to return, by default all.
    """,
    "guidance_scale": """
        guidance_scale
            How much stronger than in the data the conditions are followed; 1 is as in the data, larger values give
            cells more typical of their conditions and less diverse. One number for all conditions together, also those
            that were left out, or one for each that is named.
    """,
    "n_steps": """
        n_steps
            Steps, each an evaluation of the network; more are slower and better. 8 to 64 is the useful range.
    """,
    "seed": """
        seed
            Same seed, same cells. By default the randomness follows ``scvi.settings.seed``.
    """,
    "silent": """
        silent
            Whether no progress bar is shown.
    """,
    "raises_cells": """
        KeyError
            If ``adata`` lacks a column that was registered.
        TypeError
            If ``adata`` is of another type.
    """,
    "raises_untrained": """
        RuntimeError
            If the model is not trained.
    """,
}

ENTRIES = {name: cleandoc(text) for name, text in {**_FIGURES, **_MODEL}.items()}
ENTRIES["cells"] = "\n".join(ENTRIES[name] for name in ("adata", "indices", "batch_size"))


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
