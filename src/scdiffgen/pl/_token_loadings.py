"""Genes of each token."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

from anndata import AnnData
from matplotlib.axes import Axes

from scdiffgen._stored_tokens import token_loadings as stored_loadings
from scdiffgen.pl._figure import Save, finish, panels, shortened
from scdiffgen.pl._tokens import chosen_tokens

UP, DOWN = "#D55E00", "#0072B2"  # vermilion and blue of Okabe and Ito
ROW_INCHES, TITLE_INCHES, BAR_INCHES, LETTER_INCHES = 0.17, 0.55, 1.7, 0.075
TITLE_LETTERS = 26


def token_loadings(
    adata: AnnData,
    tokens: Sequence[str] | None = None,
    n_genes: int = 10,
    *,
    ncols: int = 4,
    ax: Axes | None = None,
    show: bool | None = None,
    save: Save = None,
) -> list[Axes]:
    """Draw the genes with the largest loadings, a panel a token.

    Parameters
    ----------
    adata
        Cells with stored tokens.
    tokens
        Token or tokens to draw, in this order, by name or by annotation (:func:`scdiffgen.tl.annotate_tokens`); by
        default all.
    n_genes
        Genes of each token. Those with the largest absolute loadings are drawn, from the most positive down; names of
        more than 30 letters lose their middle.
    ncols
        Panels a row.
    ax
        Where to draw, if there is one token.
    show
        Whether to show the figure; by default ``scanpy.settings.autoshow``.
    save
        ``True`` or text saves to ``scanpy.settings.figdir`` as scanpy does; a :class:`~pathlib.Path` to that file.

    Returns
    -------
    The axes, one a token.

    Examples
    --------
    >>> axes = token_loadings(adata, ["token_2", "token_1"], n_genes=5)
    >>> [axis.get_title() for axis in axes]
    ['token_2', 'token_1']
    """
    chosen, labels = chosen_tokens(adata, tokens)
    loadings = stored_loadings(adata)
    genes = {token: loadings[token].loc[loadings[token].abs().nlargest(n_genes).index] for token in chosen}
    longest = max(len(shortened(gene)) for drawn in genes.values() for gene in drawn.index)
    size = (BAR_INCHES + LETTER_INCHES * longest, TITLE_INCHES + ROW_INCHES * n_genes)
    axes = panels(len(chosen), ncols, size, ax)
    for axis, token, label in zip(axes, chosen, labels, strict=True):
        drawn = genes[token].sort_values()
        axis.barh(range(len(drawn)), drawn, color=[UP if value >= 0 else DOWN for value in drawn], height=0.75)
        axis.set_yticks(range(len(drawn)), map(shortened, drawn.index), fontsize=8)
        axis.axvline(0, color="black", linewidth=0.6)
        axis.set_title(fill(label, TITLE_LETTERS), fontsize=10)
        axis.tick_params(axis="x", labelsize=8)
        axis.tick_params(axis="y", length=0)
        axis.spines[["top", "right", "left"]].set_visible(False)
    for axis in axes[-min(ncols, len(axes)) :]:
        axis.set_xlabel("log-rate per s.d.", fontsize=8)
    finish(axes, "token_loadings", show, save)
    return axes
