"""Parameters and errors that many functions have, described once.

A line of a docstring that is ``{name}`` alone stands for the entries of that name below: :func:`shared_docs` puts them
there, so that ``help``, the API pages and doctest see them. A parameter that a docstring does not describe gets the
entry of its name. Where it is called otherwise than the placeholder, ``placeholder = parameter`` heads the entry.
"""

import re
from collections.abc import Callable
from inspect import signature
from textwrap import indent
from typing import TypeVar

Documented = TypeVar("Documented", bound=Callable)

SECTION = re.compile(
    r"^(?P<margin>[ \t]*)(?:Parameters\n[ \t]*-+\n(?P<described>(?:[ \t]*\S.*\n)+)|(?:Returns|Raises|Examples)\n)",
    re.MULTILINE,
)
RETURNS = {"Axes": "The axes.", "list": "The axes, one a panel."}
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
programs
    Genes of each program by its name, such as ``{"S": [...], "G2M": [...]}``; those that the data lack are left out.
n_jobs
    Threads of the forests.
loadings = tokens
    Cells with stored tokens, or loadings ``(genes, tokens)`` with the genes as index.
gene_symbols
    Column of ``.var`` with the names of genes to use, as in scanpy; by default those in ``.var_names``.
"""

_MODEL = """
perturbation_key
    Column of ``obs`` with what was done to each cell, such as ``"FOXO1"`` or ``"FOXO1+TP53"``; or several columns with
    a part each: of one kind if they share a name (``drug_1``, ``drug_2``), else of different kinds (knock-out, drug).
control
    Name, or names, of cells to which nothing was done.
perturbation_sep
    What stands between the parts of a combination, and between their doses.
dose_key
    Column of doses: a number, or ``"0.5+1.0"`` aligned with the perturbation; or as many columns as
    ``perturbation_key`` names.
dose_unit
    What doses are measured in; kept and shown, never computed with.
hierarchy_keys
    Columns from the root of a hierarchy to its leaves, such as organism, tissue, cell type. Cells end at any level.
categorical_covariate_keys
    Columns of ``obs`` with further categories, such as sex or condition, which are asked for by their names.
continuous_covariate_keys
    Columns of ``obs`` with numbers, such as age or time, likewise.
text_key
    Column of descriptions in words, such as ``"naive T cell, day 3"``, which a pretrained sentence encoder embeds
    (``pip install 'scdiffgen[text]'``). The model can be asked for descriptions that no cell has.
perturbation_features_key
    Key of ``uns`` with a feature vector of each perturbation, a mapping or a data frame. Perturbations that were never
    measured can be predicted if they have one.
adata
    Cells; by default those the model was made with.
indices
    Positions or mask of the cells to take; by default all.
batch_size
    Cells a minibatch.
dataloader
    In place of ``adata``: minibatches in the order of the results, such as an unshuffled ``annbatch.Loader``. Each maps
    registry keys to tensors, or ``"X"`` to counts and ``"obs"`` to a data frame with the registered columns.
gene_list
    Genes to return, by default all.
transform_batch
    Batch under which all cells are seen; by default each under its own.
conditions
    A value for each condition, by the name under which it was registered; or a table with a column for each condition,
    a row for each kind of cell and a column ``"n_cells"``; or ``None``. What is missing is that of random training
    cells which have the same categories in the rest; where a number is given, such as an age, it is what the network
    takes for likely (but for perturbations).
n_cells
    Number of cells of each row of ``conditions``, by default one; without conditions as many as in training and
    validation.
library_size
    Molecules a cell: a number, an array of one number a cell, or a function of the table of conditions (a row a cell)
    and a NumPy generator. By default they are drawn like those of the training cells under the same conditions. Of a
    MuData, such sizes by modality; those left out are drawn. Fractions are rounded to whole molecules.
guidance_scale
    How much stronger than in the data conditions are followed: above 1, cells are more typical and less diverse. One
    number for all conditions together, also those that were left out, or one for each that is named.
n_steps
    Steps, each an evaluation of the network; more are slower and better. 8 to 64 is the useful range.
seed
    Same seed, same cells; ``None`` follows ``scvi.settings.seed``.
silent
    Whether no progress bar is shown.
dir_path
    Folder of the model; saving makes it.
accelerator
    As in Lightning; ``"auto"`` takes a GPU (CUDA, ROCm) where there is one, and on Apple silicon the CPU.
device
    Which of them, as in scvi-tools.
prefix
    Start of the names of its files, so that a folder can hold several models.
overwrite
    Whether files of a model that is there are replaced. Other files in the folder stay.
save_anndata
    Whether the cells are saved too, to be loaded with the model; for a hub they are uploaded, too.
raises_folder = ValueError
    If the folder exists and is not to be overwritten.
raises_missing = FileNotFoundError
    If the folder has no model.
raises_file = ValueError
    If the file is damaged, holds more than plain data, would take far more memory than its size, or was saved by a
    version or class that does not fit.
raises_asked = ValueError
    If a condition or category is not registered, a number is out of range, or the method does not work with the process
    of the model or with a MuData.
raises_read = ValueError
    If ``adata`` lacks genes or holds categories that are not registered, ``indices`` chooses no cell or one that is not
    there, a name is unknown, a number is out of range, or the method does not work with the process of the model or
    with a MuData.
raises_uncountable = ValueError
    If the counts are not counts (negative, fractional, not finite), a cell has none, a name is double, or a key holds
    missing values.
raises_keys = KeyError
    If a key is not in the data.
raises_kwargs = TypeError
    If an argument is unknown, or the data is of another type.
raises_encoder = ImportError
    If there are descriptions, and the sentence encoder is not installed.
raises_columns = KeyError
    If ``adata`` lacks a column that was registered.
raises_type = TypeError
    If ``adata`` is of another type.
raises_untrained = RuntimeError
    If the model is not trained.
"""

_METRICS = r"""
points_real = real
    Real cells, ``(cells, dimensions)``, such as principal components.
points_generated = generated
    Generated cells, over the same dimensions.
within = groupby
    Column of ``obs`` of all cells: also within its labels, and for each label; by default over all cells only.
other_real
    Independent real cells of the same composition; the real cells are then not halved for them.
n_bootstrap
    Resamples of the cells of both sides behind the intervals.
n_pcs
    Principal components, at most.
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
held_out = real, real_labels
    Held-out counts, (cells, genes), and their labels.
fitted = train, train_labels
    Training counts over the same genes, and their labels.
per_molecule
    Mean surprise of a molecule, in nats, after those before it, over all cells: without the multinomial coefficient.
per_cell
    Mean over cells of :math:`-\log p(x | L, c)`, with the multinomial coefficient: compares with a model's bound.
of_cells = cells
    :math:`-\log p(x | L, c)` of every cell, (cells,).
raises_unseen = ValueError
    If a label has no training cells.
raises_pot = ImportError
    If ``"wasserstein"`` is asked for by name, and POT is not installed.
warns_pot = UserWarning
    If ``metrics`` is ``None`` and POT is not installed.
warns_few = FewCellsWarning
    If there are fewer cells than metrics need; these scores are NaN.
"""

_TOGETHER = {
    "points": "points_real points_generated",
    "forests": "n_trees n_jobs",
    "warns": "warns_pot warns_few",
    "null": "counts labels labels_out layer draws",
    "nll": "per_molecule per_cell of_cells",
}

_RAISES = {
    "raises_setup": "raises_uncountable raises_keys raises_kwargs raises_encoder",
    "raises_load": "raises_missing raises_file",
    "raises_request": "raises_asked raises_untrained",
    "raises_labels": "raises_unseen",
    "raises_cells": "raises_read raises_columns raises_type raises_untrained",
}

ENTRIES = {
    placeholder: f"{name or placeholder}\n{meaning.rstrip()}"
    for placeholder, name, meaning in re.findall(
        r"^(\w+)(?: = ([\w, ]+))?\n((?: {4}.+\n)+)", _FIGURES + _MODEL + _METRICS, re.MULTILINE
    )
}
ENTRIES |= {name: "\n".join(ENTRIES[part] for part in parts.split()) for name, parts in (_TOGETHER | _RAISES).items()}
ENTRIES |= {name: f"Raises\n------\n{ENTRIES[name]}" for name in _RAISES}


def shared_docs(documented: Documented) -> Documented:
    """Put the shared entries where a docstring names them, those of other parameters, and what figures return."""

    def entry(name: str) -> str:
        if name not in ENTRIES:
            raise KeyError(
                f"the docstring of `{documented.__qualname__}` has {{{name}}}: write the entry out, or add it to "
                f"`_shared_docs.py`, which has {sorted(ENTRIES)}"
            )
        return ENTRIES[name]

    if documented.__doc__:  # none under `python -OO`
        text = PLACEHOLDER.sub(lambda found: indent(entry(found[2]), found[1]), documented.__doc__)
        returned = RETURNS.get(getattr(documented.__annotations__.get("return"), "__name__", ""))
        if returned and "Returns\n" not in text:
            section = rf"\1Returns\n\1-------\n\1{returned}\n\n\1"
            text = re.sub(r"^( *)(?=(?:Raises|Examples)$)", section, text, count=1, flags=re.MULTILINE)
        documented.__doc__ = _with_all_parameters(text, [*signature(documented).parameters], entry)
    return documented


def _with_all_parameters(text: str, parameters: list[str], entry: Callable[[str], str]) -> str:
    """The docstring with an entry for every parameter, in the order of the signature."""
    section = SECTION.search(text)
    if section is None:
        return text
    before, margin, described = text[: section.start()], section["margin"], section["described"]
    blocks = re.findall(rf"{margin}\S.*\n(?:{margin}\s+\S.*\n)*", described or "")
    by_name = {name.strip(" *"): block for block in blocks for name in block.split("\n")[0].split(",")}
    wanted = [name for name in parameters if name not in ("self", "cls")]
    filled = [by_name[name] if name in by_name else indent(entry(name), margin) + "\n" for name in wanted]
    header = indent("Parameters\n----------\n", margin)
    rest = text[section.end("described") :] if described else "\n" + text[section.start() :]
    return before + (header + "".join(dict.fromkeys(filled)) if filled else "") + rest
