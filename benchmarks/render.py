"""Write the pages of results in the documentation, their figures, and the summary in README.md.

``python -m benchmarks.render``
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import _perturbation_table
from benchmarks._chromatin_page import chromatin_section, peaks_section
from benchmarks._figures import augmentation_figure, generation_figure, scale_figure, soak_figure, speed_figure
from benchmarks._page import bullets, figure, measured_with, section
from benchmarks._perturbation_figure import perturbation_figure
from benchmarks._perturbation_transfer import transferred_sentence
from benchmarks._perturbation_verdicts import primary, response_shortcomings
from benchmarks._process_page import render_processes
from benchmarks._published_iid_table import iid_section
from benchmarks._published_page import published_section
from benchmarks._published_table import published_summary
from benchmarks._readme import generation_summary, response_summary, write_summary
from benchmarks._record import RESULTS, ROOT, read_result
from benchmarks._study_page import render_studies
from benchmarks._tables import (
    augmentation_table,
    fewer_seeds,
    generation_table,
    import_table,
    imputation_table,
    likelihood_table,
    many_conditions_table,
    scale_table,
    soak_table,
    speed_tables,
)
from benchmarks._token_result import token_shortcomings, token_table
from benchmarks._verdicts import (
    augmentation_shortcomings,
    many_conditions_shortcomings,
    multimodal_shortcomings,
    scale_shortcomings,
    shortcomings,
    soak_shortcomings,
    speed_shortcomings,
)
from benchmarks._where_time_goes import time_table

INTRODUCTION = """\
# Benchmarks

This page is written by `python -m benchmarks.render` from `benchmarks/results`. `make benchmark` measures everything
again; `benchmarks/LOG.md` keeps what was tried. [Processes and forms of the network](processes.md) are compared on a
page of their own.

## How it is measured

Cells are split at random, within labels, into training cells, held-out cells (15 %, at most 2,000) and as many *other
real cells*. Variable genes, principal components, classifiers and models are fitted on the training cells alone. Every
method draws cells with the labels of the held-out cells, and these are compared with the held-out cells, in counts per
10,000 after `log1p`. Numbers are medians over seeds, with the range; a seed changes split, training and drawing.

- *Other real cells* were seen by no method. Their score is the real-versus-real ceiling.
- *Training cells, redrawn* are copies: a score that they reach is reached without anything new. Components are fitted
  on the training cells, so that copies vary more along them than other real cells do, the more so the fewer they are.
- *Independent Poisson* and *shuffled genes* are negative controls: they have the right mean, or the right distribution,
  of each gene of each label, and no relation between genes. A method that does not beat them has learned no more.
- *scVI* is trained with its defaults and negative binomial counts; the label is its batch, so that the decoder knows
  it. Latents are drawn from a Gaussian or from a mixture of Gaussians fitted to each label, whichever does better here,
  or from the posterior of a real training cell of the label. The last is no generation: it draws new counts for a given
  cell.
- *CFGen*, *scDiffusion* and *scLDM* are run from their own sources by `benchmarks/external`, with one seed, for minutes
  of one core, about as long as our training takes there (two on Paul 2015 and pbmc3k, four on Kang 2018, scLDM one on
  the bundled set; scDiffusion six on two threads on Paul 2015, by an earlier form of its recipe). Of the lengths that
  they recommend this is, for CFGen, 17 % on Paul 2015, 141 % on the bundled set, 9 % on pbmc3k and 10 % on Kang 2018,
  for scDiffusion .1 to .4 %, for scLDM 1 to 11 %: what they do in that time, not what they can do. *CFGen, full length*
  is trained as long as it recommends: 12 minutes of a core on Paul 2015, 15 on pbmc3k, 21 on Kang 2018. scDiffusion
  predicts expression; counts of it are rounded, or *drawn*.

| score | what it is | best |
| --- | --- | --- |
| MMD² x 1000 | unbiased, five Gaussian kernels, 30 principal components | 0 |
| W2 | exact 2-Wasserstein distance, 30 principal components | as other real cells |
| W2 within labels | the same within each label, mean weighted by cells | as other real cells |
| forest, logistic AUC | cross-validated, real against generated; folds share labels | 0.5 |
| zero fraction error | mean over genes of the error of the share of cells without the gene | as other real cells |
| gene correlation error | mean error of the correlations of the 200 most variable genes | as other real cells |
| label accuracy | of a classifier of training cells, on generated cells | as other real cells |
| novelty | distance to the nearest training cell, median over that of held-out cells; low is copied | 1 |
| 1-NN accuracy | of telling real from generated by the nearest other cell; low is copied | 0.5 |
| precision | share of generated cells nearer to a real one than its fifth real neighbour | as other real cells |
| recall | share of real cells nearer to a generated one than its fifth generated neighbour | as other real cells |
| coverage | share of real cells with a generated one nearer than their fifth real neighbour | as other real cells |
| least, largest variance ratio | generated over held-out cells, of 30 principal components | 1 |
| mean absolute log2 ratio | of the variances, over the 30 components | 0 |
| slope of label fold changes | of generated on held-out fold changes between labels; below 1 is attenuated | 1 |
| wins | scores of the table by which no other program is nearer to the best value, medians | high |
| nats per molecule | negative log-likelihood of held-out cells given label and library size; ours is a bound | low |

The multinomial at the label mean knows the mean of the label's training cells, the Dirichlet-multinomial also how much
they vary, by one number a label.

Responses are held out as a whole: those of a cell type, to a combination, a gene or a guide, at a time or a dose.
Predictions start from control cells, never from treated ones, and are compared with one half of the held-out cells; the
other half, *real_half*, is the real-versus-real ceiling. Changes are differences of mean expression against real
controls. Our place in a published benchmark comes first.

| score | what it is | best |
| --- | --- | --- |
| Pearson of changes | over genes | 1 |
| weighted MSE | of changes, genes weighted by how clearly they respond | 0 |
| discrimination | share of the other responses that are less similar to the prediction than its own | 1 |
| DE overlap | of the genes that change most | 1 |
| Spearman, slope of fold changes | over responding genes, if ten respond; slopes below 1 are too weak a response | 1 |
| energy distance, W2, forest AUC | of cells, 30 principal components | 0, as other real cells, 0.5 |

| prediction | what it is |
| --- | --- |
| effect: coupled | `predict_perturbation` by default: control cells, moved by the transferred response |
| effect: mean alone | the mean response of `get_mean_response`, added to control cells as simple predictions are |
| effect: coupled, network only | the same with `source="network"` |
| effect: keep .05 | control cells thinned to this share of their molecules, the others sampled (`keep=`) |
| effect: generate | cells from their conditions alone, by `generate` |
| embedding: ... | the same of a model with `intervention="embedding"`, whose treatments are conditions as all others |
| sinusoidal, fourier, ...: ... | the same with this `number_embedding`; *transferred*: as by default |
| no_change | the control cells |
| train_mean | control cells and the mean change of all training responses |
| other_contexts, nearest_context | and the mean change in other cell types, or in the most similar one |
| similar_contexts | and their mean change, weighted by similarity (`metrics.baselines.context_shift`) |
| additive | and the sum of the changes by each part of a combination |
| linear | and a change by ridge regression on features of the perturbation |
| dose_interpolation | and the change between the neighbouring doses |
| CellFlow | flow matching, by `benchmarks/external`: its tutorial an eighth as wide, 1 % of its iterations; seed 0 |
| scGen, CPA, biolord | from their own packages, by `benchmarks/external`, for all of their recommended epochs; seed 0 |
| ..., counts | and molecules drawn of the expression that they predict, or of their own distribution (CPA) |
| latent_pca, latent_scvi | latent arithmetic on principal components, or in scVI after its own 400 epochs (seed 0) |
| real_half | the other half of the real treated cells |

*As counts* means that a baseline's mean expression was drawn as molecules. *Seen*, *between* and *beyond* are doses
that training cells had, between those that they had, and above them.

How readable tokens are is measured on their loadings, and in the same way on those of other methods, whose programs
are columns of genes as well. Ours are those that users get by default, which genes follow a token; *by read-out*: what
the weights of the read-out do ([loadings](user_guide/tokens.md)). The split stays that of the first seed, so seeds
change training and drawing alone; PCA hardly depends on them.

| score | what it is | best |
| --- | --- | --- |
| enriched | share of programs with a GO biological process at a false discovery rate of 5 % | far above permuted |
| enriched, permuted | negative control: the same with the names of the genes permuted, mean of permutations | low |
| sparsity | Hoyer's measure of the loadings: 0 if all are equal, 1 for a single gene | high |
| redundancy | mean of each program's largest absolute correlation with another | low |
| stability | mean absolute correlation of programs matched one to one, between two seeds | 1 |
"""
NOTHING = "\nThere are no results yet.\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.render", description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    options = parser.parse_args(arguments)
    pages = [written(options.results, options.docs) for written in (render, render_processes, render_studies)]
    print(f"Written: {', '.join(map(str, pages))}")
    write_summary(options.readme, "generation", generation_summary(results_of(options.results, "generation")))
    for result in results_of(options.results, "perturbation"):
        if result["task"] == "kang":
            write_summary(options.readme, "responses", response_summary(result))
    if published := results_of(options.results, "published"):
        write_summary(options.readme, "published", published_summary(published[::-1]))


def render(results: Path, docs: Path) -> Path:
    """Write the page, and a figure for each result that has one."""
    found = {path.stem: read_result(path) for path in sorted(results.glob("*.json"))}
    sections = [
        SECTIONS[kind](name, result, docs)
        for kind in SECTIONS
        for name, result in found.items()
        if result.get("benchmark") == kind
    ]
    page = docs / "benchmarks.md"
    page.write_text(INTRODUCTION + ("".join(sections) or NOTHING))
    return page


def results_of(results: Path, benchmark: str) -> list[dict[str, Any]]:
    """Results of a benchmark, in the order of their names."""
    found = [read_result(path) for path in sorted(results.glob("*.json"))]
    return [result for result in found if result.get("benchmark") == benchmark]


def generation_section(name: str, result: Mapping[str, Any], docs: Path) -> str:
    data = result["data"]
    size = (
        f"{data['n_train']:,} training cells, {data['n_held_out']:,} held-out cells, {data['n_genes']:,} genes, "
        f"{data['n_labels']} labels."
    )
    return section(
        f"Generation: {data['description']}",
        size,
        figure(generation_figure(result), name, docs),
        generation_table(result),
        fewer_seeds(result),
        likelihood_table(result),
        bullets("Where it falls short", shortcomings(result)),
        measured_with(result),
    )


def speed_section(name: str, result: Mapping[str, Any], docs: Path) -> str:
    data = result["data"]
    return section(
        f"Speed and memory: {data['name']}",
        f"{data['n_train']:,} training cells, {data['n_genes']:,} genes, preset `small`; memory with all genes of "
        "the data.",
        figure(speed_figure(result), name, docs),
        speed_tables(result),
        time_table(result["time"]) if "time" in result else "",
        bullets("Where it falls short", speed_shortcomings(result)),
        measured_with(result),
    )


def soak_section(name: str, result: Mapping[str, Any], docs: Path) -> str:
    settings = result["settings"]
    return section(
        "Memory of a long run",
        f"{result['generated'][-1]:,} cells of {result['data']['n_genes']:,} genes, generated and thrown away in one "
        f"process: {settings['cells_a_call']:,} a call, {settings['n_steps']} steps.",
        figure(soak_figure(result), name, docs),
        soak_table(result),
        bullets("Where it falls short", soak_shortcomings(result)),
        measured_with(result),
    )


def scale_section(name: str, result: Mapping[str, Any], docs: Path) -> str:
    data = result["data"]
    return section(
        "More cells, on disk and in memory",
        f"Simulated cells of {data['n_genes']:,} genes, {data['batch_size']} a step, preset `small`; each row "
        "in a process of its own.",
        figure(scale_figure(result), name, docs),
        scale_table(result),
        bullets("Where it falls short", scale_shortcomings(result)),
        measured_with(result),
    )


def many_conditions_section(name: str, result: Mapping[str, Any], docs: Path) -> str:
    settings = result["settings"]
    return section(
        "More perturbations than a table should hold",
        f"{settings['n_seen']:,} simulated perturbations with {settings['cells_each']} cells each, "
        f"{settings['n_genes']} genes, {settings['max_epochs']} epochs. Pearson and slope are of the logarithms of "
        f"fold changes over genes, against the true ones, mean of {settings['n_scored']} perturbations; unseen ones "
        "have a feature vector and no cells. The file of a model also holds conditions and library sizes of its "
        "training cells.",
        many_conditions_table(result),
        bullets("Where it falls short", many_conditions_shortcomings(result)),
        measured_with(result),
    )


def imports_section(name: str, result: Mapping[str, Any], docs: Path) -> str:
    return section(
        "Import time",
        "Each time in a fresh process; sub-packages load when they are first used.",
        import_table(result),
        measured_with(result),
    )


def augmentation_section(name: str, result: Mapping[str, Any], docs: Path) -> str:
    return section(
        f"Recognising rare cells: {result['data']['description']}",
        "Half of the labels keep few training cells. A classifier is trained on these, alone or filled up to the "
        "median size of the other labels, and tested on unseen cells.",
        figure(augmentation_figure(result), name, docs),
        augmentation_table(result),
        bullets("Where it falls short", augmentation_shortcomings(result)),
        measured_with(result),
    )


def perturbation_section(name: str, result: Mapping[str, Any], docs: Path) -> str:
    table = _perturbation_table.summary_of(pd.DataFrame(result["rows"]))
    return section(
        f"Held-out responses: {_perturbation_table.TASK_TITLES[result['task']]}",
        f"`{primary(result)}` is the default of the package. {transferred_sentence(result)}".rstrip(),
        figure(perturbation_figure(result), name, docs),
        _perturbation_table.markdown(table),
        bullets("Where it falls short", response_shortcomings(result)),
        measured_with(result),
    )


def tokens_section(name: str, result: Mapping[str, Any], docs: Path) -> str:
    data, settings = result["data"], result["settings"]
    epochs = {kind: of_kind["max_epochs"] or "the default number of" for kind, of_kind in settings.items()}
    trained = "; ".join(f"{KINDS[kind]} trained for {number} epochs" for kind, number in epochs.items())
    return section(
        f"Readable tokens: {data['description']}",
        f"{data['n_train']:,} training cells, {data['n_held_out']:,} held-out cells, {data['n_genes']:,} genes. "
        f"{trained}; {settings['ours']['n_permutations']} permutations. Every row but `default` departs from it in one "
        "setting; cells are generated in 16 steps.",
        token_table(result),
        bullets("What is better than the default", token_shortcomings(result)),
        *(measured_with(result | {"environment": environment}) for environment in result["environments"]),
    )


def multimodal_section(name: str, result: Mapping[str, Any], docs: Path) -> str:
    data = result["data"]
    later = {"imputation_environment": "Imputation but for totalVI", "generation_environment": "Cells of scdiffgen"}
    return section(
        f"RNA and protein: {data['description']}",
        f"{data['n_train']:,} training cells, {data['n_imputed']:,} cells of which models see the RNA alone, "
        f"{data['n_held_out']:,} held-out cells, {data['n_genes']:,} genes, {data['n_proteins']} proteins; no labels. "
        "Generated cells are compared with the held-out cells; protein of the cells seen without it with what was "
        "measured. The gene-protein correlation error is the mean over the 200 most variable genes and all proteins.",
        generation_table(result),
        imputation_table(result),
        bullets("Where it falls short", multimodal_shortcomings(result)),
        measured_with(result),
        *(f"{of}: {measured_with({'environment': result[key]})}" for key, of in later.items() if key in result),
    )


KINDS = {"ours": "Our models", "other": "other networks"}
SECTIONS: dict[str, Callable[[str, Mapping[str, Any], Path], str]] = {
    "generation": generation_section,
    "published": published_section,
    "published-iid": iid_section,
    "perturbation": perturbation_section,
    "tokens": tokens_section,
    "augmentation": augmentation_section,
    "multimodal": multimodal_section,
    "chromatin": chromatin_section,
    "peaks": peaks_section,
    "speed": speed_section,
    "scale": scale_section,
    "many-conditions": many_conditions_section,
    "soak": soak_section,
    "imports": imports_section,
}


if __name__ == "__main__":
    main()
