"""Cells that other programs made, read from folders and checked, so that the same code scores them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
from anndata import AnnData
from scipy import sparse


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


def read_external(path: Path, genes: pd.Index, columns: Sequence[str]) -> AnnData:
    """Read cells: counts of the genes asked for in ``.X``, and the columns of ``.obs`` asked for.

    Raises
    ------
    ValueError
        If genes or columns are missing, or values are not counts.
    """
    cells = anndata.read_h5ad(path)
    absent = genes.difference(cells.var_names)
    if len(absent):
        raise ValueError(f"{path} lacks {len(absent)} genes (first: {absent[0]!r}). Take those of the exported cells.")
    lacking = [column for column in columns if column not in cells.obs]
    if lacking:
        raise ValueError(f"{path} has no obs column {lacking[0]!r}; it has {list(cells.obs.columns)}.")
    counts = sparse.csr_matrix(cells[:, genes].X)
    wrong = ~((counts.data >= 0) & (counts.data == np.rint(counts.data)))
    if wrong.any():
        raise ValueError(f"{path} holds {counts.data[wrong][0]:g} in .X, which is not a count. Write raw counts.")
    return AnnData(counts, obs=cells.obs[list(columns)].astype(str), var=pd.DataFrame(index=genes))
