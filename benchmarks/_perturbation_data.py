"""Responses that are held out: what may be trained on, where predictions start, and the real cells to compare with.

Whatever the data, ``obs["response"]`` says what was done to a cell (``"control"`` is nothing) and ``obs["context"]``
in which cell type; these are what predictions are scored by. No cell of ``real`` is in ``train``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import anndata
import numpy as np
import pandas as pd
import scanpy as sc
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from benchmarks._data import KANG, MissingData, variable_genes

RESPONSE, CONTEXT, CONTROL = "response", "context", "control"
NORMAN, PAPALEXI = "norman2019_perturbench_500g.h5ad", "papalexi2021_eccite_299g.h5ad"
ZHAO, MCFALINE = "zhao2021_gbm_panobinostat_300g.h5ad", "mcfaline2023_gbm_crispri.h5ad"
OTHER_GENES = "other genes"
N_TOP_GENES = 2000
N_LOADINGS = 20
FEATURES_KEY = "perturbation_features"


class Target(NamedTuple):
    """A held-out response: the name it is scored by, its cell type, and what to ask a model for."""

    response: str
    context: str
    conditions: Mapping[str, str]


@dataclass(frozen=True)
class Fold:
    """One split of the data."""

    name: str  # what is held out
    train: AnnData  # cells to train on: counts in `.X`
    real: AnnData  # held-out cells
    targets: Sequence[Target]  # the responses among them
    setup: Mapping[str, Any] = field(default_factory=dict)  # arguments of `setup_anndata`

    def __post_init__(self) -> None:
        shared = self.train.obs_names.intersection(self.real.obs_names)
        if len(shared):
            raise ValueError(f"{len(shared)} cells of {self.name!r} are held out and trained on (first: {shared[0]}).")

    @property
    def control(self) -> AnnData:
        """Training cells that predictions start from: the controls of the contexts of the targets."""
        wanted = self.train.obs[CONTEXT].isin({target.context for target in self.targets})
        return self.train[(wanted & (self.train.obs[RESPONSE] == CONTROL)).to_numpy()]

    @property
    def with_treated(self) -> AnnData:
        """Training cells and the held-out treated cells, by new names."""
        treated = self.real[(self.real.obs[RESPONSE] != CONTROL).to_numpy()].copy()
        treated.obs_names = treated.obs_names + " measured"
        return anndata.concat([self.train, treated], join="inner")


@dataclass(frozen=True)
class Settings:
    """How much work a run does."""

    max_epochs: int | None = None  # length of the training of every model; None is the default of each
    max_cells: int = 500  # cells predicted and compared of each response
    n_trees: int = 100  # trees of the forest that tells real from predicted cells
    size: Mapping[str, int] = field(default_factory=dict)  # arguments of the model in place of its preset
    train_cells: int | None = None  # training cells of each response and context; None takes all
    n_genes: int | None = None  # genes; None takes all


QUICK = Settings(2, 40, 20, {"n_tokens": 4, "token_dim": 16, "n_layers": 1}, 60, 150)


def kang(folder: Path, types: Sequence[str] | None = None) -> Iterator[Fold]:
    """The response of each cell type to interferon, learned from the others (Kang et al. 2018)."""
    adata = kang_cells(folder)
    for name in types or sorted(adata.obs[CONTEXT].unique()):
        yield kang_fold(adata, [name])


def kang_cells(folder: Path) -> AnnData:
    """Blood cells of eight types, with and without interferon."""
    adata = read(folder, KANG)
    adata = adata[adata.obs["cell_type"] != "Erythrocytes"].copy()
    _describe(adata, adata.obs["condition"].astype(str).replace({"ctrl": CONTROL}), adata.obs["cell_type"])
    return adata


def kang_fold(adata: AnnData, types: Sequence[str]) -> Fold:
    """Hold out the treated cells of some types."""
    held_out = (adata.obs[CONTEXT].isin(types) & (adata.obs[RESPONSE] == "stim")).to_numpy()
    targets = [Target("stim", name, {"cell_type": name, "condition": "stim"}) for name in types]
    setup = {"labels_key": "cell_type", "perturbation_key": "condition", "control": "ctrl"}
    return split(", ".join(types), adata, held_out, targets, setup, n_top_genes=N_TOP_GENES)


def kang_donors(folder: Path, donors: Sequence[str] | None = None) -> Iterator[Fold]:
    """The response of the blood of each donor to interferon, learned from the other donors (Kang et al. 2018)."""
    adata = kang_cells(folder)
    adata = adata[adata.obs["donor"] != "unassigned"].copy()
    adata.obs[CONTEXT] = adata.obs["donor"].astype(str)
    setup = {"labels_key": "cell_type", "batch_key": "donor", "perturbation_key": "condition", "control": "ctrl"}
    yield from each_context(adata, donors, "donor", "condition", setup, N_TOP_GENES)


def zhao(folder: Path, donors: Sequence[str] | None = None) -> Iterator[Fold]:
    """The response of the tumour of each donor to panobinostat, learned from the other donors (Zhao et al. 2021)."""
    adata = read(folder, ZHAO)
    _describe(adata, adata.obs["condition"].astype(str).replace({"ctrl": CONTROL}), adata.obs["donor"])
    setup = {"labels_key": "donor", "perturbation_key": "condition", "control": "ctrl"}
    yield from each_context(adata, donors, "donor", "condition", setup)


def mcfaline(folder: Path, lines: Sequence[str] | None = None) -> Iterator[Fold]:
    """Responses of each cell line to knock-downs, learned from the other lines (McFaline-Figueroa et al. 2024).

    The genes of the file are a choice: a last column has the molecules of all others, so that a cell sums to its size.
    """
    panel = read(folder, MCFALINE)
    rest = panel.obs["library_size"].to_numpy() - np.asarray(panel.X.sum(1)).ravel()
    var = pd.DataFrame(index=[*panel.var_names, OTHER_GENES])
    adata = AnnData(sparse.hstack([panel.X, rest[:, None]], format="csr", dtype=np.float32), obs=panel.obs, var=var)
    _describe(adata, adata.obs["perturbation"], adata.obs["cell_line"])
    setup = {"labels_key": "cell_line", "perturbation_key": "perturbation"}
    yield from each_context(adata, lines, "cell_line", "perturbation", setup)


def each_context(
    adata: AnnData,
    names: Sequence[str] | None,
    context_key: str,
    perturbation_key: str,
    setup: Mapping[str, Any],
    n_top_genes: int | None = None,
) -> Iterator[Fold]:
    """Hold out the treated cells of each context in turn."""
    treated = adata.obs[RESPONSE] != CONTROL
    for name in names or sorted(adata.obs[CONTEXT].unique()):
        held_out = (treated & (adata.obs[CONTEXT] == name)).to_numpy()
        responses = sorted(adata.obs.loc[held_out, RESPONSE].unique())
        if not responses:
            raise ValueError(f"No treated cells of {name!r} are there to hold out.")
        targets = [Target(response, name, {context_key: name, perturbation_key: response}) for response in responses]
        yield split(name, adata, held_out, targets, setup, n_top_genes)


def norman(folder: Path, doubles: Sequence[str] | None = None) -> Iterator[Fold]:
    """Two genes activated at once, learned from one at a time and from other pairs (Norman et al. 2019)."""
    adata = read(folder, NORMAN)
    _describe(adata, adata.obs["perturbation"])
    known = set(adata.obs["perturbation"])
    testable = [name for name in sorted(known) if "+" in name and set(name.split("+")) <= known]
    targets = [Target(name, "all", {"perturbation": name}) for name in doubles or testable]
    held_out = adata.obs["perturbation"].isin([target.response for target in targets]).to_numpy()
    yield split("doubles", adata, held_out, targets, {"perturbation_key": "perturbation"})


def papalexi(folder: Path, genes: Sequence[str] | None = None) -> Iterator[Fold]:
    """Knock-outs of genes that were never knocked out, by feature vectors of the genes (Papalexi et al. 2021).

    The vector of a gene is its row of the loadings of a PCA of the training cells.
    Only knock-outs of measured genes have one; the others are left out.
    """
    adata = _papalexi(folder)
    adata = adata[adata.obs["perturbation"].isin([*adata.var_names, CONTROL])].copy()
    _describe(adata, adata.obs["perturbation"])
    for gene in genes or ("IFNGR2", "JAK2", "STAT1", "STAT2"):
        held_out = (adata.obs["perturbation"] == gene).to_numpy()
        setup = {"perturbation_key": "perturbation", "batch_key": "batch", "perturbation_features_key": FEATURES_KEY}
        fold = split(gene, adata, held_out, [Target(gene, "all", {"perturbation": gene})], setup)
        vectors = gene_loadings(fold.train)
        fold.train.uns[FEATURES_KEY] = vectors.loc[sorted(set(adata.obs["perturbation"]) - {CONTROL})]
        yield fold


def papalexi_guides(folder: Path, guides: Sequence[str] | None = None) -> Iterator[Fold]:
    """Guides that were never used, of genes that other guides knock out (Papalexi et al. 2021)."""
    adata = _papalexi(folder)
    chosen = list(guides or ("IFNGR1g3", "IFNGR2g2", "IRF1g4", "JAK2g2", "SMAD4g2", "STAT1g3", "STAT2g2"))
    response = adata.obs["perturbation"].astype(str).where(~adata.obs["guide"].isin(chosen), adata.obs["guide"])
    _describe(adata, response)
    targets = [Target(guide, "all", {"perturbation": guide.rpartition("g")[0]}) for guide in chosen]
    setup = {"perturbation_key": "perturbation", "batch_key": "batch"}
    yield split("guides", adata, adata.obs["guide"].isin(chosen).to_numpy(), targets, setup)


def read(folder: Path, file: str) -> AnnData:
    """Read a data set, or say where it should be."""
    if not (folder / file).exists():
        raise MissingData(f"{file} is not in {folder}: put it there, or choose another task.")
    return anndata.read_h5ad(folder / file)


def split(
    name: str,
    adata: AnnData,
    held_out: NDArray[np.bool_],
    targets: Sequence[Target],
    setup: Mapping[str, Any],
    n_top_genes: int | None = None,
) -> Fold:
    """Split by a mask, and keep the genes that vary most among the training cells."""
    there = set(zip(adata.obs.loc[held_out, RESPONSE], adata.obs.loc[held_out, CONTEXT], strict=True))
    if absent := [target for target in targets if target[:2] not in there]:
        raise ValueError(f"No cells of {absent[0].response!r} in {absent[0].context!r} are there to hold out.")
    genes = np.ones(adata.n_vars, dtype=bool)
    if n_top_genes is not None:
        genes = variable_genes(adata[~held_out], n_top_genes)
    return Fold(name, adata[~held_out, genes].copy(), adata[held_out, genes].copy(), targets, setup)


def predicted_cells(
    fold: Fold, counts: Sequence[sparse.csr_matrix], starts: Sequence[NDArray[np.intp]] | None = None
) -> AnnData:
    """Predicted counts ``(cells, genes)`` of each target, named after the training cells that they start from, if any.

    The report recognises predictions that start from control cells by these names.
    """
    of_cell = np.repeat(np.arange(len(fold.targets)), [cells.shape[0] for cells in counts])
    obs = pd.DataFrame(fold.targets)[[RESPONSE, CONTEXT]].iloc[of_cell]
    names = [f"predicted_{i}" for i in range(len(obs))]
    obs.index = names if starts is None else fold.train.obs_names[np.concatenate(starts)]
    return AnnData(sparse.vstack(counts, format="csr"), obs=obs, var=pd.DataFrame(index=fold.train.var_names))


def gene_loadings(train: AnnData) -> pd.DataFrame:
    """Vector of each gene ``(genes, loadings)``: where it lies among the principal components of the training cells."""
    expression = train.copy()
    sc.pp.normalize_total(expression, target_sum=1e4)
    sc.pp.log1p(expression)
    sc.pp.pca(expression, n_comps=N_LOADINGS, random_state=0)
    loadings = expression.varm["PCs"]
    return pd.DataFrame(loadings / loadings.std(), index=train.var_names)


def _papalexi(folder: Path) -> AnnData:
    adata = read(folder, PAPALEXI)
    return adata[adata.obs["perturbation"] != "unassigned"].copy()


def _describe(adata: AnnData, response: pd.Series, context: pd.Series | str = "all") -> None:
    adata.obs[RESPONSE] = response.astype(str)
    adata.obs[CONTEXT] = context.astype(str) if isinstance(context, pd.Series) else context
