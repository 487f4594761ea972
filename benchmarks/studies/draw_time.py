"""How long does it take to draw molecules by shares that vary? Clumps beside a gamma variable for each gene and cell.

``python -m benchmarks.studies.draw_time --threads 1``

Rates are those of a gamma-Poisson model in the middle of its growth, 512 cells with half as many new molecules as are
there. Each way draws in turns, and the median counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from statistics import median

import torch
from torch import Tensor

from benchmarks._record import start
from benchmarks._tables import markdown
from scdiffgen.diffusion._draws import draw_by_gamma, draw_molecules

N_CELLS, N_TURNS, DISPERSION = 512, 15, 0.1
SIZES = {"14 proteins": (14, 3_000), "2,000 genes": (2_000, 1_000), "20,000 genes": (20_000, 5_000)}


def by_gamma_variables(rates: Tensor, weights: Tensor, n_molecules: Tensor) -> Tensor:
    """Draw a gamma variable for each gene and cell, and molecules by these."""
    shares = torch._standard_gamma(rates / weights) * weights
    return draw_molecules(shares.clamp(min=torch.finfo(shares.dtype).tiny).log(), n_molecules)


def growing_cells(n_genes: int, n_there: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rates, weights and numbers of new molecules."""
    torch.manual_seed(0)
    expected = n_there * torch.randn(n_genes).mul(1.5).softmax(0).expand(N_CELLS, n_genes)
    there = torch.poisson(expected)
    weights = DISPERSION * expected / (1 + DISPERSION * expected)
    rates = torch.lerp(expected, there, weights)
    return rates, weights, torch.full((N_CELLS,), n_there // 2)


def seconds(ways: dict[str, Callable[..., Tensor]], cells: tuple[Tensor, ...], n_turns: int) -> dict[str, float]:
    """Median seconds of each way."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(n_turns):
        for name, draw in ways.items():
            begun = time.perf_counter()
            draw(*cells)
            taken[name].append(time.perf_counter() - begun)
    return {name: median(each) for name, each in taken.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.draw_time", description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1, help="threads of everything")
    parser.add_argument("--turns", type=int, default=N_TURNS, help="how often each way draws")
    options = parser.parse_args(arguments)
    start(options.threads)
    rows = []
    for name, (n_genes, n_there) in SIZES.items():
        taken = seconds(
            {"gamma": by_gamma_variables, "clumps": draw_by_gamma}, growing_cells(n_genes, n_there), options.turns
        )
        rows.append(
            [name, *(f"{1000 * each:.1f}" for each in taken.values()), f"{taken['gamma'] / taken['clumps']:.1f}"]
        )
    print(markdown(["columns", "gamma variables, ms", "clumps, ms", "ratio"], rows))


if __name__ == "__main__":
    main()
