"""Keys of the token results that ``model.write_back`` stores, and functions that read them."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from anndata import AnnData

from scdiffgen._messages import listed
from scdiffgen._names import as_names, check_column, symbols_of

LOADINGS_KEY = "token_loadings"  # .varm, (genes, tokens)
LOG_RATES_KEY = "token_log_rates"  # .varm, (genes, tokens), written with the loadings
ACTIVATION_KEY = "X_token_activation"  # .obsm, (cells, tokens)
UNS_KEY = "scdiffgen"  # .uns
MOST_NUMBERS = 100  # maximum number of distinct fractional numbers that count as groups


def stored_about_tokens(adata: AnnData) -> Mapping[str, Any]:
    """Read names and metadata of the tokens from ``.uns["scdiffgen"]``."""
    if UNS_KEY not in adata.uns:
        raise ValueError(f"`adata.uns` has no {UNS_KEY!r}: call `model.write_back(adata)` first.")
    return adata.uns[UNS_KEY]


def token_names(adata: AnnData) -> list[str]:
    """Return the names of the stored tokens."""
    return [str(name) for name in stored_about_tokens(adata)["tokens"]]


def token_labels(adata: AnnData) -> dict[str, str]:
    """Map each token to its label in figures: its annotation or else its name."""
    annotation = stored_about_tokens(adata).get("annotation", {})
    return {name: str(annotation.get(name, name)) for name in token_names(adata)}


def token_loadings(
    tokens: AnnData | pd.DataFrame, name: str = "adata", gene_symbols: str | None = None
) -> pd.DataFrame:
    """Return stored loadings ``(genes, tokens)`` of an AnnData, named by symbols; a data frame is returned as is."""
    if isinstance(tokens, pd.DataFrame):
        if gene_symbols is not None:
            raise ValueError(
                f"`gene_symbols` is {gene_symbols!r}, but `{name}` is a table: set its index to the symbols."
            )
        return tokens
    if LOADINGS_KEY not in tokens.varm:
        modality = next(iter(getattr(tokens, "mod", ())), None)  # first modality of a MuData
        remedy = f"call `model.write_back({name})` first" if modality is None else f"pass `{name}[{modality!r}]`"
        raise ValueError(f"`{name}.varm` has no {LOADINGS_KEY!r}: {remedy}.")
    genes = symbols_of(tokens, gene_symbols, name)
    return pd.DataFrame(tokens.varm[LOADINGS_KEY], index=genes, columns=token_names(tokens))


def token_activation(adata: AnnData) -> pd.DataFrame:
    """Return stored activations ``(cells, tokens)`` as float32."""
    if ACTIVATION_KEY not in adata.obsm:
        raise ValueError(f"`adata.obsm` has no {ACTIVATION_KEY!r}: call `model.write_back(adata)` first.")
    activation = adata.obsm[ACTIVATION_KEY].astype("float32", copy=False)
    return pd.DataFrame(activation, index=adata.obs_names, columns=token_names(adata))


def check_tokens(tokens: Sequence[str], known: Sequence[str], argument: str = "tokens") -> None:
    """Raise unless every token is known."""
    unknown = [token for token in tokens if token not in known]
    if unknown:
        raise ValueError(f"`{argument}` names {unknown[:5]}, which are none of {known[0]!r} to {known[-1]!r}.")


def chosen_tokens(adata: AnnData, tokens: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Resolve tokens given by name or annotation (default: all); return their names and labels."""
    labels = token_labels(adata)
    requested = list(labels) if tokens is None else as_names(tokens)
    called = {name: [token for token, label in labels.items() if label == name] for name in requested}
    matches = {name: [name] if name in labels else called[name] for name in requested}
    unknown = [name for name in requested if not matches[name]]
    if unknown:
        known, given = list(labels), [label for token, label in labels.items() if label != token]
        raise ValueError(
            f"`tokens` names {unknown[:5]}, which are none of {known[0]!r} to {known[-1]!r}, nor of the names given by "
            f"`tl.annotate_tokens`: {f'[{listed(given)}]' if given else 'none yet'}."
        )
    for name, several in matches.items():
        if len(several) > 1:
            raise ValueError(f"`tokens` names {name!r}, the name of {several}: choose one of these.")
    chosen = [matches[name][0] for name in requested]
    return chosen, [labels[token] for token in chosen]


def annotation_column(adata: AnnData, key: str) -> pd.Series:
    """Return a column of ``.obs``; raise if there is none."""
    if key not in adata.obs:
        raise ValueError(f"`adata.obs` has no column {key!r}: choose from {list(adata.obs.columns)}.")
    return adata.obs[key]


def group_column(adata: AnnData, groupby: str) -> pd.Series:
    """Return the group of each cell as text categories, because scanpy loses a group called ``False``."""
    check_column(groupby)
    column = annotation_column(adata, groupby)
    if pd.api.types.is_float_dtype(column) and column.nunique() > MOST_NUMBERS:
        raise ValueError(
            f"`groupby` is {groupby!r}, which is continuous: it has {column.nunique()} distinct numbers. Cut it into "
            "groups first, such as with `pandas.cut`."
        )
    return column.astype("category").cat.rename_categories(str)
