"""Names that a user gives to tokens."""

from __future__ import annotations

from collections.abc import Mapping

from anndata import AnnData

from scdiffgen._stored_tokens import UNS_KEY, check_tokens, stored_about_tokens, token_names


def annotate_tokens(adata: AnnData, names: Mapping[str, str]) -> None:
    """Say what tokens stand for; figures then show these names.

    Parameters
    ----------
    adata
        Cells with stored tokens. The names are added to ``.uns["scdiffgen"]["annotation"]``, beside those given before.
    names
        What each token is to be called, such as ``{"token_3": "interferon response"}``.

    Raises
    ------
    ValueError
        If no tokens are stored, or a token is unknown.

    Examples
    --------
    >>> annotate_tokens(adata, {"token_2": "cytotoxicity"})
    >>> adata.uns["scdiffgen"]["annotation"]
    {'token_2': 'cytotoxicity'}
    """
    stored = stored_about_tokens(adata)
    check_tokens(list(names), token_names(adata), "names")
    annotation = {**stored.get("annotation", {}), **{token: str(name) for token, name in names.items()}}
    adata.uns[UNS_KEY] = {**stored, "annotation": annotation}
