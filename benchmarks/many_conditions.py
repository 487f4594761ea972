"""More perturbations than a table should hold: sizes and responses with hashed, coded and feature embeddings.

``python -m benchmarks.many_conditions --threads 1``

A screen of 10,000 perturbations with four cells each is simulated, whose effects are mostly a linear map of feature
vectors. The same small network is trained on it with each embedding of the perturbations, for the same steps, and
compared with the true effects: the mean response of generated cells, also to perturbations without any cells, and the
likelihood of held-out cells. Beside them stand no response, what a perturbation's own cells say, and a ridge regression
of that on the features.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scvi
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse, stats
from sklearn.linear_model import RidgeCV

from benchmarks._many_conditions_cells import CONTROL, FEATURES, PERTURBATION, Screen, simulate_screen
from benchmarks._record import benchmark_parser, environment, output_folder, start, write_result
from benchmarks._tables import Column, score_table
from scdiffgen.model import NetworkOptions, TokenDiffusion

EMBEDDINGS: Mapping[str, Mapping[str, Any]] = {
    "table": {},
    "hashed": {"network": NetworkOptions(category_embedding="hashed")},
    "code": {"network": NetworkOptions(category_embedding="code")},
    "features": {},
}
NETWORK = {"n_tokens": 4, "token_dim": 32, "n_layers": 1, "preset": "small"}
SEED = 0
N_STEPS = 8
PSEUDO_COUNT = 0.5
SHRINKAGE = 100.0  # molecules of controls added to those of a perturbation's own cells


@dataclass(frozen=True)
class Settings:
    """What is simulated, and how long networks are trained."""

    n_seen: int = 10_000  # perturbations with and without training cells
    n_unseen: int = 200
    n_genes: int = 100  # genes
    cells_each: int = 4  # training cells of a perturbation
    max_epochs: int = 12  # epochs of each training
    n_scored: int = 200  # seen perturbations that are scored, and unseen ones at most
    n_generated: int = 50  # cells generated for the response to each


QUICK = Settings(n_seen=30, n_unseen=5, n_genes=20, max_epochs=1, n_scored=6, n_generated=5)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = benchmark_parser("benchmarks.many_conditions", __doc__)
    options = parser.parse_args(arguments)
    start(options.threads)
    settings = QUICK if options.quick else Settings()
    screen = simulate_screen(settings.n_seen, settings.n_unseen, settings.n_genes, settings.cells_each, SEED)
    rows = [*references(screen, settings), *(measured(name, screen, settings) for name in EMBEDDINGS)]
    result = {
        "benchmark": "many-conditions",
        "settings": asdict(settings),
        "environment": environment(options.threads, [SEED]),
        "rows": rows,
    }
    write_result(output_folder(options.output, quick=options.quick), "many-conditions", result)
    print(many_conditions_table(result))


def many_conditions_table(result: Mapping[str, Any]) -> str:
    """Sizes of the embeddings, and how near each is to the true responses; what is ahead of features is marked."""
    columns = {
        "embedding_parameters": Column("embedding, parameters", digits=",.0f"),
        "parameters": Column("all parameters", digits=",.0f"),
        "file": Column("file, MB", digits=1),
        "seconds": Column("training, s", digits=1),
    }
    rows = {row["method"]: {key: [row[key]] for key in columns if key in row} for row in result["rows"]}
    for place in ("seen", "unseen"):
        for score, title in {"pearson": "Pearson", "slope": "slope", "nll": "nats/molecule"}.items():
            columns[f"{score}, {place}"] = Column(f"{title}, {place}", 1.0 if score == "pearson" else None)
            for row in result["rows"]:
                if place in row:
                    rows[row["method"]][f"{score}, {place}"] = [row[place][score]]
    return score_table("perturbations by", columns, rows, "features", limit="truth")


def measured(embedding: str, screen: Screen, settings: Settings) -> dict[str, Any]:
    """Train with one embedding: its size, and how near its cells are to the truth."""
    adata = screen.train.copy()
    by_features = embedding == "features"
    setup = {"perturbation_features_key": FEATURES} if by_features else {}
    TokenDiffusion.setup_anndata(adata, perturbation_key=PERTURBATION, control=CONTROL, **setup)
    scvi.settings.seed = SEED
    model = TokenDiffusion(adata, **NETWORK, **EMBEDDINGS[embedding])
    begin = time.process_time()
    model.train(max_epochs=settings.max_epochs, early_stopping=False, accelerator="cpu", enable_progress_bar=False)
    row: dict[str, Any] = {"method": embedding, "seconds": time.process_time() - begin, **sizes(model)}
    for place, names in scored(screen, settings).items():
        if place == "seen" or by_features:
            row[place] = response_scores(screen, names, generated_shares(model, names, settings.n_generated))
            cells = screen.held_out[screen.held_out.obs[PERTURBATION].isin(names)].copy()
            bound = model.get_nll(cells, seed=SEED, silent=True)["nll"].sum()
            row[place]["nll"] = float(bound / cells.X.sum())
    return row


def sizes(model: TokenDiffusion) -> dict[str, float]:
    """Trained parameters, those of them that embed perturbations, and megabytes of the saved model."""
    trained = {name: weight.numel() for name, weight in model.module.denoiser.named_parameters()}
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder, overwrite=True)
        megabytes = sum(file.stat().st_size for file in Path(folder).iterdir()) / 1e6
    return {
        "parameters": sum(trained.values()),
        "embedding_parameters": sum(number for name, number in trained.items() if ".categories." in name),
        "file": megabytes,
    }


def references(screen: Screen, settings: Settings) -> list[dict[str, Any]]:
    """What can be said without a network, and the truth."""
    own = own_cells(screen)
    features = screen.train.uns[FEATURES]
    ridge = RidgeCV(np.logspace(-2, 5, 8)).fit(features.loc[own.index], own)
    predictions = {
        "no response": lambda names: pd.DataFrame(0.0, index=names, columns=own.columns),
        "its own cells": lambda names: own.loc[names],
        "ridge on features": lambda names: pd.DataFrame(ridge.predict(features.loc[names]), index=names),
        "truth": lambda names: screen.effects.loc[names],
    }
    rows = []
    for method, predict in predictions.items():
        row: dict[str, Any] = {"method": method}
        for place, names in scored(screen, settings).items():
            if place == "seen" or method != "its own cells":
                shares = screen.control_shares * np.exp(predict(names).to_numpy())
                shares /= shares.sum(1, keepdims=True)
                row[place] = response_scores(screen, names, shares) | {"nll": multinomial(screen, names, shares)}
        rows.append(row)
    return rows


def own_cells(screen: Screen) -> pd.DataFrame:
    """Logarithms of fold changes by the pooled cells of each seen perturbation, drawn towards none."""
    given = pd.Categorical(screen.train.obs[PERTURBATION])
    member = sparse.csr_matrix((np.ones(len(given)), (given.codes, np.arange(len(given)))))
    pooled = (member @ screen.train.X).toarray() + SHRINKAGE * screen.control_shares
    shares = pooled / pooled.sum(1, keepdims=True)
    return pd.DataFrame(np.log(shares / screen.control_shares), index=given.categories).drop(index=CONTROL)


def scored(screen: Screen, settings: Settings) -> dict[str, list[str]]:
    """The perturbations that are scored, evenly spread."""
    seen = [name for name in screen.effects.index if name not in set(screen.unseen)]
    chosen = np.linspace(0, len(seen) - 1, min(settings.n_scored, len(seen))).round().astype(int)
    return {"seen": [seen[i] for i in chosen], "unseen": screen.unseen[: settings.n_scored]}


def generated_shares(model: TokenDiffusion, names: Sequence[str], n_cells: int) -> NDArray[np.float64]:
    """Shares of the genes in generated cells of each perturbation ``(names, genes)``."""
    table = pd.DataFrame({PERTURBATION: names, "n_cells": n_cells})
    counts = model.generate(table, n_steps=N_STEPS, seed=SEED, silent=True).X
    pooled = counts.toarray().reshape(len(names), n_cells, -1).sum(1) + PSEUDO_COUNT
    return pooled / pooled.sum(1, keepdims=True)


def response_scores(screen: Screen, names: Sequence[str], shares: NDArray[np.float64]) -> dict[str, float]:
    """Pearson correlation and slope of predicted on true logarithms of fold changes, mean over perturbations."""
    predicted = np.log(shares / screen.control_shares)
    predicted -= predicted.mean(1, keepdims=True)
    true = screen.effects.loc[names].to_numpy()
    true = true - true.mean(1, keepdims=True)
    products, squares = (predicted * true).sum(1), (true**2).sum(1)
    lengths = np.sqrt(squares * (predicted**2).sum(1))
    pearson = np.divide(products, lengths, out=np.full(len(names), np.nan), where=lengths > 1e-9)
    return {"pearson": float(pearson.mean()), "slope": float((products / squares).mean())}


def multinomial(screen: Screen, names: Sequence[str], shares: NDArray[np.float64]) -> float:
    """Negative log-likelihood of the held-out cells of the named perturbations, in nats per molecule."""
    cells: AnnData = screen.held_out[screen.held_out.obs[PERTURBATION].isin(names)]
    counts = cells.X.toarray()
    rows = pd.Index(names).get_indexer(cells.obs[PERTURBATION])
    return float(-stats.multinomial.logpmf(counts, counts.sum(1), shares[rows]).sum() / counts.sum())


if __name__ == "__main__":
    main()
