"""Cells that other programs made, read from folders and checked, so that the same code scores them."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
from anndata import AnnData
from scipy import sparse

LOGGED = "log1p"  # in .uns, where scanpy says that .X is log-normalised


def add_external_argument(parser: argparse.ArgumentParser) -> None:
    """Option for folders of cells that other programs made."""
    parser.add_argument(
        "--external",
        nargs="+",
        type=named_folder,
        default=[],
        metavar="NAME=FOLDER",
        help="folders of cells that other programs made",
    )


def named_folder(text: str) -> tuple[str, Path]:
    """Name and folder of ``NAME=FOLDER``."""
    name, separator, folder = text.partition("=")
    if not (name and separator and Path(folder).is_dir()):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FOLDER with a folder that exists")
    return name, Path(folder)


def external_files(folders: Mapping[str, Path], file: str) -> Iterator[tuple[str, Path]]:
    """Names and paths of a file in the folders that have it; of the others, say that they are left out."""
    for name, folder in folders.items():
        if (folder / file).exists():
            yield name, folder / file
        else:
            print(f"{name} is left out: {folder} has no {file}.", flush=True)


def read_external(path: Path, genes: pd.Index, columns: Sequence[str], *, may_be_logged: bool = False) -> AnnData:
    """Read cells: counts of the genes asked for in ``.X``, and the columns of ``.obs`` asked for.

    If they ``may_be_logged``, ``"log1p"`` in ``.uns`` says that ``.X`` is log(1 + counts per 10,000). Of ``.uns``, this
    and the account of a recipe are kept.
    """
    cells = anndata.read_h5ad(path)
    absent = genes.difference(cells.var_names)
    if len(absent):
        raise ValueError(f"{path} lacks {len(absent)} genes (first: {absent[0]!r}). Take those of the exported cells.")
    lacking = [column for column in columns if column not in cells.obs]
    if lacking:
        raise ValueError(f"{path} has no obs column {lacking[0]!r}; it has {list(cells.obs.columns)}.")
    values = sparse.csr_matrix(cells[:, genes].X)
    wrong = ~((values.data >= 0) & (values.data == np.rint(values.data)))
    if wrong.any() and not (may_be_logged and LOGGED in cells.uns):
        way_out = f", or put {LOGGED!r} into .uns if they are log-normalised" if may_be_logged else ""
        raise ValueError(
            f"{path} holds {values.data[wrong][0]:g} in .X, which is not a count. Write raw counts{way_out}."
        )
    uns = {key: cells.uns[key] for key in (LOGGED, "recipe") if key in cells.uns}
    return AnnData(values, obs=cells.obs[list(columns)].astype(str), var=pd.DataFrame(index=genes), uns=uns)
