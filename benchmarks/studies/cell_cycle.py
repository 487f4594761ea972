"""Do generated cells keep the cell cycle, which labels do not name? Spread and correlation of S and G2M scores.

``python -m benchmarks.studies.cell_cycle --data paul15 paul700 --seeds 0 1 2``

Scores are those of `metrics.gene_programs` for the genes of Tirosh et al. (2016) in the data, over all cells and within
labels, of generated against held-out cells. Other real cells are the ceiling, shuffled genes the negative control.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import pandas as pd
import scvi
from anndata import AnnData

from benchmarks._data import LABEL, load_split
from benchmarks._models import fit_scdiffgen
from benchmarks._record import start
from benchmarks._tables import markdown, summary
from scdiffgen.metrics import gene_programs

DATA = ("paul15", "paul700", "kang", "kang700", "pbmc3k")
GENES = {
    "S": "Mcm5 Pcna Tyms Fen1 Mcm2 Mcm4 Rrm1 Ung Gins2 Mcm6 Dtl Prim1 Uhrf1 Rfc2 Rpa2 Nasp Gmnn Slbp Msh2 Rrm2 Cdc6 "
    "Hells Tipin Casp8ap2 Usp1 Clspn Pola1 Chaf1b",
    "G2M": "Hmgb2 Cdk1 Nusap1 Ube2c Birc5 Tpx2 Top2a Cks2 Nuf2 Cks1b Mki67 Tmpo Cenpf Tacc3 Smc4 Ccnb2 Ckap2l Aurkb "
    "Bub1 Kif11 Anp32e Hjurp Cdca3 Cdc20 Ttk Kif2c Rangap1 Ncapd2 Cdca8 Ect2 Kif23 Hmmr Aurka Psrc1 Lbr Cenpe Ctcf",
}
GROUPS, COLUMNS = ["overall", "within"], ["real", "generated", "other_real", "null_shuffled"]


def programs_in(genes: pd.Index) -> dict[str, list[str]]:
    """Genes of the phases that the data have, whatever the case of their letters."""
    known = {name.upper(): name for name in genes}
    return {phase: [known[x.upper()] for x in names.split() if x.upper() in known] for phase, names in GENES.items()}


def measure(name: str, seed: int, max_epochs: int | None) -> pd.DataFrame:
    """Train, generate as many cells of each label as are held out, and compare their scores."""
    split = load_split(name, seed)
    scvi.settings.seed = seed
    model = fit_scdiffgen(split, max_epochs=max_epochs)
    drawn = model.generate(pd.DataFrame({LABEL: split.labels}), seed=seed, silent=True)
    held_out, other = (AnnData(part.X, part.obs[[LABEL]], part.var[[]]) for part in (split.held_out, split.other))
    programs, options = programs_in(split.train.var_names), {"n_bootstrap": 50, "seed": seed}
    scores = gene_programs(held_out, drawn, programs, split.train, LABEL, other_real=other, **options)
    return scores.loc[GROUPS, COLUMNS].assign(data=name).set_index("data", append=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.studies.cell_cycle", description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=DATA, default=["paul15", "paul700"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--max-epochs", type=int, help="epochs of the model (its default)")
    parser.add_argument("--threads", type=int, default=2, help="threads of everything (2)")
    options = parser.parse_args(arguments)
    start(options.threads)
    found = pd.concat([measure(name, seed, options.max_epochs) for name in options.data for seed in options.seeds])
    rows = [
        [*(str(level) for level in index), *(summary(of[column], 2) for column in COLUMNS)]
        for index, of in found.groupby(level=list(range(found.index.nlevels)), sort=False)
    ]
    print(markdown([*map(str, found.index.names), *COLUMNS], rows))


if __name__ == "__main__":
    main()
