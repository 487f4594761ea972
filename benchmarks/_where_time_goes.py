"""Where the time of training and generating goes, by what is computed; what matrix products alone would take."""

import time
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks._data import LABEL, Split
from benchmarks._models import Method
from benchmarks._tables import markdown
from scdiffgen.diffusion import _molecules
from scdiffgen.model import TokenDiffusion

KINDS = {
    "matrix products": ("addmm", "aten::mm", "bmm"),
    "attention": ("scaled_dot_product",),
    "genes of the encoder, sparse": ("embedding_bag", "sort", "nonzero"),
    "random numbers": ("bernoulli", "binomial", "rand", "uniform", "normal_"),
    "softmax, exponentials, logarithms": ("softmax", "logsumexp", "exp", "log"),
    "layer norms, activations": ("layer_norm", "silu"),
    "cumulative sums, searches": ("cumsum", "searchsorted", "from_urns"),
    "optimiser, average of the weights": ("adamw", "foreach", "lerp", "Optimizer"),
    "sums, products, copies": ("add", "mul", "div", "sub", "copy", "cat", "fill", "zero", "sum", "index", "where"),
}
REST = "small calls of all kinds"
MATRIX, N_PRODUCTS, N_CELLS = 1024, 20, 512


def where_time_goes(split: Split, generate: Callable[[TokenDiffusion], Method]) -> dict[str, Any]:
    """Shares of an epoch of training, after one to warm up, and of generating some of the held-out cells."""
    adata = split.train.copy()
    TokenDiffusion.setup_anndata(adata, labels_key=LABEL)
    model = TokenDiffusion(adata, preset="small")
    model.module.match_genes = lambda cells, silent: None  # which would fill the memory with events
    labels, method = split.labels[:N_CELLS], generate(model)

    def train() -> None:
        model.train(max_epochs=1, enable_progress_bar=False)

    train()
    rows = {"training": shares(train), f"generating, {method.name}": shares(lambda: method.sample(labels, 0))}
    rate = matrix_rate()
    for row in rows.values():
        row["at the rate of matrix products"] = row.pop("operations") / rate / row["seconds"]
    return {"rate": rate, "rows": rows}


def shares(work: Callable[[], Any]) -> dict[str, float]:
    """Share of each kind of the processor's time in PyTorch, that time, and operations of matrix products."""
    from_urns = record_function("from_urns")(_molecules.add_from_urns)  # compiled, which a profiler does not see
    with (
        mock.patch.object(_molecules, "add_from_urns", from_urns),
        profile(activities=[ProfilerActivity.CPU], with_flops=True) as profiler,
    ):
        work()
    events = profiler.key_averages()
    total = sum(event.self_cpu_time_total for event in events)
    of_kind = dict.fromkeys([*KINDS, REST], 0.0)
    for event in events:
        of_kind[kind_of(event.key)] += event.self_cpu_time_total / total
    operations = sum(event.flops for event in events if kind_of(event.key) == "matrix products")
    return {**of_kind, "seconds": total / 1e6, "operations": float(operations)}


def kind_of(name: str) -> str:
    """Kind of an operation of PyTorch."""
    return next((kind for kind, parts in KINDS.items() if any(part in name for part in parts)), REST)


def matrix_rate() -> float:
    """Operations a second of products of large matrices in single precision."""
    one, other = torch.randn(2, MATRIX, MATRIX)
    one @ other
    before = time.perf_counter()
    for _ in range(N_PRODUCTS):
        one @ other
    return 2 * MATRIX**3 * N_PRODUCTS / (time.perf_counter() - before)


def time_table(found: Mapping[str, Any]) -> str:
    """A row a kind, a column for training and for generating; the last row is a bound."""
    rows = found["rows"]
    kinds = [[kind, *(f"{row[kind]:.0%}" for row in rows.values())] for kind in [*KINDS, REST]]
    bound = [f"{row['at the rate of matrix products']:.0%}" for row in rows.values()]
    at_rate = f"matrix products alone, at {found['rate'] / 1e9:.0f} billion operations a second"
    return markdown(["where the time goes", *rows], [*kinds, [at_rate, *bound]])
