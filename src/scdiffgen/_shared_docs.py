"""Descriptions of parameters and errors that several functions share.

A docstring line that consists of ``{name}`` is replaced by the entries of that name below. :func:`shared_docs` inserts
them, so ``help``, the API pages and doctest show them. A parameter without a description gets the entry of its name. An
entry is headed ``placeholder = parameter`` if placeholder and parameter have different names.
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
    Axes to draw into; by default a new figure. Figures of several panels cannot be drawn into given axes.
show
    Whether to show the figure; by default ``scanpy.settings.autoshow``.
save
    ``True`` or text saves to ``scanpy.settings.figdir``, as in scanpy; a :class:`~pathlib.Path` is the file itself.
ncols
    Panels per row.
stored = adata
    Cells with stored tokens.
tokens
    Names or annotations (:func:`scdiffgen.tl.annotate_tokens`) of the tokens to draw, in this order; by default all
    tokens.
token_groups = groupby
    Column of ``adata.obs``: categories, text, booleans, or at most 100 distinct fractional numbers.
real
    Real cells, preferably held out of training.
generated
    Generated cells; genes are aligned by name.
train
    Training cells of the generator. Principal components and label classifiers are fitted on them; by default on half
    of the real cells.
layer
    Layer of the counts, by default ``.X``; cells without layers, such as generated cells, are read from ``.X``.
programs
    Genes of each program by name, such as ``{"S": [...], "G2M": [...]}``; genes that the data lack are ignored.
n_jobs
    Number of threads of the random forests.
loadings = tokens
    Cells with stored tokens, or loadings ``(genes, tokens)`` with the genes as index.
gene_symbols
    Column of ``.var`` with gene symbols, as in scanpy; by default the registered column, else ``.var_names``.
"""

_MODEL = """
perturbation_key
    Column of ``obs`` with the perturbation of each cell, such as ``"FOXO1"`` or ``"FOXO1+TP53"``; or several columns
    with one part each: of one type if they share a name (``drug_1``, ``drug_2``), else of several (knock-out, drug).
control
    Name, or names, of untreated cells.
perturbation_sep
    Separator between the parts of a combination, and between their doses.
dose_key
    Column of doses: a number, or ``"0.5+1.0"`` in the order of the perturbation; or as many columns as
    ``perturbation_key`` names.
dose_unit
    Unit of the doses, for display only.
hierarchy_keys
    Columns from the root of a hierarchy to its leaves, such as organism, tissue, cell type. Cells may end at any level.
categorical_covariate_keys
    Columns of ``obs`` with further categories, such as sex or disease; conditions of these names.
continuous_covariate_keys
    Columns of ``obs`` with numbers, such as age or time. Responses are compared in at most eight bins of each.
text_key
    Column of text descriptions, such as ``"naive T cell, day 3"``, which a pretrained sentence encoder embeds
    (``pip install 'scdiffgen[text]'``). Cells can be generated for descriptions that no training cell has.
perturbation_features_key
    Key of ``uns`` with a mapping or data frame of feature vectors, one per perturbation. Perturbations that were never
    measured can be predicted from their feature vectors.
gene_symbols
    Column of ``var`` with gene symbols, which figures and tables with an argument ``gene_symbols`` show by default.
adata
    Cells to read; by default the cells that the model was created with.
indices
    Positions, or a boolean mask, of the cells to use; by default all cells.
batch_size
    Number of cells per minibatch.
dataloader
    Minibatches in the order of the results, instead of ``adata``, such as an unshuffled ``annbatch.Loader``. Each maps
    registry keys to tensors, or ``"X"`` to counts and ``"obs"`` to a data frame with the registered columns.
gene_list
    Genes to return; by default all genes.
transform_batch
    Batch under which all cells are evaluated; by default the batch of each cell.
conditions
    A mapping from registered conditions to values; a table with a column per condition, a row per group of cells, and
    optionally a column ``"n_cells"``; or ``None``. Missing conditions are drawn from training cells that have the given
    categories. If a number such as an age is given, only missing perturbations are drawn, and the network infers other
    missing conditions.
n_cells
    Number of cells for each row of ``conditions``, by default one. Without conditions, the default is the number of
    training and validation cells.
library_size
    Number of molecules per cell: a number, an array ``(cells,)``, or a function of the table of conditions (one row per
    cell) and a NumPy generator. By default sizes are drawn from training cells under the same conditions. For a MuData,
    a mapping from modalities to sizes; omitted modalities are drawn. Fractions are rounded to whole molecules.
guidance_scale
    Scale of classifier-free guidance: 1 is none; above 1, cells are more typical and less diverse. One number guides
    all conditions together, including drawn ones; a mapping gives a scale for each named condition.
n_steps
    Number of sampling steps, each one evaluation of the network; 8 to 64 is the useful range. More steps are slower. By
    default 16 if the process is ``"thinning"`` of one modality and training cells have at most 2,500 molecules on
    average; else 32.
seed
    Random seed: the same seed gives the same result. ``None`` follows ``scvi.settings.seed``.
silent
    Whether to hide the progress bar.
dir_path
    Folder of the model; saving creates it.
accelerator
    As in Lightning; ``"auto"`` uses a GPU (CUDA, ROCm) if there is one, and the CPU on Apple silicon.
device
    Index of the device, as in scvi-tools.
prefix
    Prefix of the file names, so that a folder can hold several models.
overwrite
    Whether to replace the files of an existing model. Other files in the folder stay.
save_anndata
    Whether to save the cells with the model; a hub then uploads the cells, too.
raises_folder = ValueError
    If the folder exists and ``overwrite`` is ``False``.
raises_missing = FileNotFoundError
    If the folder has no model.
raises_file = ValueError
    If the file is damaged, holds more than plain data, or was saved by an incompatible version or class.
raises_asked = ValueError
    If a condition or category is not registered, a number is out of range, or the method does not support the process
    of the model or a MuData.
raises_read = ValueError
    If ``adata`` lacks genes or holds categories that are not registered, ``indices`` selects no cell or a cell that
    does not exist, a name is unknown, a number is out of range, or the method does not support the process of the model
    or a MuData.
raises_uncountable = ValueError
    If the data are not counts (negative, fractional or not finite), a cell has no molecule, a name is not unique, or a
    column has missing values.
raises_keys = KeyError
    If a key is not in the data.
raises_kwargs = TypeError
    If an argument is unknown, or the data have the wrong type.
raises_encoder = ImportError
    If ``text_key`` is given and the sentence encoder is not installed.
raises_columns = KeyError
    If ``adata`` lacks a registered column.
raises_type = TypeError
    If ``adata`` has the wrong type.
raises_untrained = RuntimeError
    If the model is not trained.
"""

_METRICS = r"""
points_real = real
    Real cells, ``(cells, dimensions)``, such as principal components.
points_generated = generated
    Generated cells, ``(cells, dimensions)``, over the same dimensions.
within = groupby
    Column of ``obs`` of all cells. Results are added within labels and for each label; by default over all cells only.
other_real
    Independent real cells of the same composition; by default half of the real cells.
n_bootstrap
    Number of bootstrap resamples of the cells of both sides, for the intervals.
n_pcs
    Maximum number of principal components.
max_cells
    Maximum number of cells per side, drawn without replacement.
n_trees
    Number of trees of the random forests.
draws = seed
    Random seed: the same seed gives the same result.
counts
    Real counts, ``(cells, genes)``.
labels
    Label of each real cell, ``(cells,)``.
labels_out
    Label of each cell to draw.
held_out = real, real_labels
    Held-out counts, ``(cells, genes)``, and their labels, ``(cells,)``.
fitted = train, train_labels
    Training counts over the same genes, and their labels.
per_molecule
    Mean cross-entropy of a molecule given the molecules before it, in nats, without the multinomial coefficient.
per_cell
    Mean over cells of :math:`-\log p(x | L, c)` in nats, with the multinomial coefficient, as a model's bound has it.
of_cells = cells
    :math:`-\log p(x | L, c)` of each cell in nats, ``(cells,)``.
raises_pot = ImportError
    If ``metrics`` names ``"wasserstein"`` and POT is not installed.
warns_pot = UserWarning
    If ``metrics`` is ``None`` and POT is not installed.
warns_few = UserWarning
    If there are fewer cells than a metric needs; its scores are NaN.
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
    """Insert shared entries into a docstring, describe its other parameters, and add the return value of figures."""

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
    """Add an entry for each parameter that has none, in the order of the signature."""
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
