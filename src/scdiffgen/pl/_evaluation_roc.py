"""How well classifiers tell generated cells from real ones."""

from __future__ import annotations

from anndata import AnnData
from matplotlib.axes import Axes

from scdiffgen.metrics import evaluation_roc as roc_of_classifiers
from scdiffgen.pl._figure import Save, finish, panels
from scdiffgen.pl._sources import REFERENCE

INCHES = (3.2, 3.0)
CLASSIFIERS = {
    "c2st_auc_forest_genes": ("forest, genes", "#D55E00", "-"),
    "c2st_auc_forest_pcs": ("forest, components", "#0072B2", "--"),
    "c2st_auc_logistic_genes": ("logistic, genes", "#009E73", ":"),
}


def evaluation_roc(
    real: AnnData,
    generated: AnnData,
    train: AnnData | None = None,
    groupby: str | None = None,
    *,
    layer: str | None = None,
    max_cells: int = 2000,
    n_trees: int = 100,
    n_jobs: int = 1,
    seed: int = 0,
    ax: Axes | None = None,
    show: bool | None = None,
    save: Save = None,
) -> Axes:
    """Draw the ROC of classifiers that are trained to tell generated cells from real ones.

    A line is the mean over five test folds, its band their range. On the diagonal, generated cells cannot be told from
    real ones; the nearer to the upper left corner, the easier they are told. The areas are those that
    :func:`scdiffgen.metrics.evaluate` gives for the same arguments.

    Parameters
    ----------
    real
        Real cells that were held out of training.
    generated
        Generated cells; genes are aligned by name.
    train
        Cells that the generator was trained on, which components are fitted on; by default half of the real ones.
    groupby
        Column of ``obs`` of all; groups only say how the real cells are halved.
    layer
        Layer of the counts, by default ``.X``; cells without layers, as generated ones are, are read from ``.X``.
    max_cells
        Cells taken of each side.
    n_trees
        Trees of the forests.
    n_jobs
        Threads of the forests.
    seed
        Seed of halves, draws, folds and forests.
    ax
        Where to draw.
    show
        Whether to show the figure; by default ``scanpy.settings.autoshow``.
    save
        ``True`` or text saves to ``scanpy.settings.figdir`` as scanpy does; a :class:`~pathlib.Path` to that file.

    Returns
    -------
    The axes.

    Examples
    --------
    >>> axis = evaluation_roc(adata[::2], adata[1::2], layer="counts", n_trees=10)
    >>> axis.get_xlabel()
    'real cells taken for generated'
    """
    curves = roc_of_classifiers(
        real, generated, train, groupby, layer=layer, max_cells=max_cells, n_trees=n_trees, n_jobs=n_jobs, seed=seed
    )
    (axis,) = panels(1, 1, INCHES, ax)
    axis.plot([0, 1], [0, 1], color=REFERENCE, linewidth=1)
    for name, (title, colour, style) in CLASSIFIERS.items():
        curve = curves[name]
        at, found = curve.false_positive, curve.true_positive
        axis.fill_between(at, found.min(axis=0), found.max(axis=0), color=colour, alpha=0.15, linewidth=0)
        label = f"{title}: {curve.auc.mean():.2f}"
        axis.plot(at, found.mean(axis=0), style, color=colour, linewidth=1.8, label=label)
    axis.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    axis.set_xlabel("real cells taken for generated", fontsize=9)
    axis.set_ylabel("generated cells found out", fontsize=9)
    axis.tick_params(labelsize=8)
    legend = axis.legend(title="area under the curve", frameon=False, fontsize=8, loc="lower right")
    legend.get_title().set_fontsize(8)
    axis.spines[["top", "right"]].set_visible(False)
    finish([axis], "evaluation_roc", show, save)
    return axis
