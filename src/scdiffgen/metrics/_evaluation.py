"""Result of `evaluate`: scores, verdicts by group, and their display."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import escape

import numpy as np
import pandas as pd

from ._classifiers import CLASSIFIERS, FoldScores
from ._samples import OVERALL
from ._score_verdicts import ALIKE, BETWEEN, CONTROL, OTHER, POWERLESS, TOO_FEW
from ._spread import WITHIN

NARROW = "less varied than real cells"
WORSE = (NARROW, BETWEEN, OTHER, CONTROL)  # than other real cells; from most to least favourable
WORST = (POWERLESS, ALIKE, TOO_FEW, *WORSE)
FEW_NARROW = 0.1  # accepted share of components with too little variance
COLOURS = dict(zip(WORST, ("#EEEEEE", "#DCEFE6", "#EEEEEE", *["#FBE3C0"] * 2, *["#F4B183"] * 2), strict=True))
STYLE = "background:{};color:#222222;text-align:center"


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Hold scores of generated cells, with a verdict for each group.

    Parameters
    ----------
    frame
        Scores, one row per group and source.
    dispersion
        Variance ratios along principal components, as :func:`dispersion` returns them; ``None`` without intervals.
    folds
        Out-of-fold scores of the classifiers over all cells, by the name of the metric; `pl.evaluation` draws them.

    Examples
    --------
    >>> import numpy as np
    >>> from scdiffgen.metrics import evaluate
    >>> real, generated = np.random.default_rng(0).poisson(3.0, size=(2, 200, 20))
    >>> evaluate(real, generated, n_trees=10, n_bootstrap=20, silent=True).verdict["n_components"].tolist()
    [19]
    """

    frame: pd.DataFrame
    dispersion: pd.DataFrame | None = None
    folds: Mapping[str, list[FoldScores]] = field(default_factory=dict)

    @cached_property
    def verdict(self) -> pd.DataFrame:
        """Return the verdict of each group: its least favourable classifier, and components with too little variance.

        Columns: ``verdict``, in words; ``classifier`` with its ``auc``; ``auc_other_real``, the AUC of other real
        cells; and ``n_narrow`` of ``n_components`` that vary less than in real cells. If more than a tenth do and no
        classifier is less favourable, the verdict is ``"less varied than real cells"``. Empty without intervals.
        """
        headers = self.frame.attrs.get("verdict", {})
        groups = self.frame.index.unique("group") if headers else []
        classifiers = {name: headers[name] for name in CLASSIFIERS if name in headers}
        rows = [self._judge(str(group), classifiers) for group in groups]
        columns = ["group", "verdict", "classifier", "auc", "auc_other_real", "n_narrow", "n_components"]
        return pd.DataFrame(rows, columns=columns).set_index("group")

    def _judge(self, group: str, headers: Mapping[str, str]) -> tuple[str, str, str, float, float, int, int]:
        """Return the row of one group: the classifier with the highest AUC that distinguishes the cells."""
        scores, real = (self.frame.loc[(group, source)] for source in ("generated", "other_real"))
        worst = max(
            (name for name in headers if not np.isnan(scores[name])),
            key=lambda name: (min(WORST.index(scores[headers[name]]), WORST.index(BETWEEN)), scores[name]),
            default=None,
        )
        narrow, n_components = self._narrow(group)
        word = TOO_FEW if worst is None else str(scores[headers[worst]])
        if narrow > FEW_NARROW * n_components:
            word = max(word, NARROW, key=WORST.index)
        aucs = (np.nan, np.nan) if worst is None else (float(scores[worst]), float(real[worst]))
        return group, word, "" if worst is None else CLASSIFIERS[worst][2], *aucs, narrow, n_components

    def _narrow(self, group: str) -> tuple[int, int]:
        """Count components with too little variance, over all cells or within labels, and all with intervals."""
        if self.dispersion is None:
            return 0, 0
        known = self.dispersion.index.unique("group")
        names = [name for name in ([OVERALL, WITHIN] if group == OVERALL else [group]) if name in known]
        tables = [self.dispersion.loc[name] for name in names]
        counts = [(int((t["apart"] & (t["ratio"] < 1)).sum()), int(t["low"].notna().sum())) for t in tables]
        return max(counts, default=(0, 0))

    def sentences(self) -> list[str]:
        """Write the verdict of each group as a sentence, all cells first."""
        sentences = []
        for row in self.verdict.itertuples():
            auc = f"{row.classifier} AUC {row.auc:.2f}, other real cells {row.auc_other_real:.2f}"
            narrow = f"{row.n_narrow} of {row.n_components} components vary too little"
            why = "; ".join([auc] * bool(row.classifier) + [narrow] * bool(row.n_components))
            who = "All cells" if row.Index == OVERALL else row.Index
            sentences.append(f"{who}: {row.verdict}" + (f" ({why})" if why else ""))
        return sentences

    def __repr__(self) -> str:
        return "\n".join(["Evaluation, with the scores in `.frame`", *(f"- {line}" for line in self.sentences())])

    def _repr_html_(self) -> str:
        """Render one row per group: the least favourable classifier, four other metrics, and verdicts below."""
        headers = self.frame.attrs.get("verdict", {})
        if not headers:
            return self.frame.to_html(max_rows=20, float_format="%.3g", na_rep="")
        others = [name for name in headers if name not in CLASSIFIERS][:4]
        aucs = ["AUC of the least favourable classifier, best at 0.5"] * bool(CLASSIFIERS.keys() & headers)
        of_title = {title: name for name, (_, _, title) in CLASSIFIERS.items()}
        rows = [[f"<th>{escape(title)}</th>" for title in ["cells", *aucs, *map(headers.get, others)]]]
        for group, title in self.verdict["classifier"].items():
            shown = [of_title.get(title, next(iter(CLASSIFIERS)))] * len(aucs) + others
            n = self.frame.loc[(group, "generated"), "n"]
            rows.append([f"<th>{escape(str(group))} ({n})</th>", *(self._cell(group, m, headers[m]) for m in shown)])
        table = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
        legend = " ".join(f'<span style="{STYLE.format(COLOURS[w])}">{w}</span>' for w in (ALIKE, BETWEEN, OTHER))
        below = "".join(f"<li>{escape(line)}</li>" for line in self.sentences())
        return f"<div><table>{table}</table>{legend}<ul>{below}</ul></div>"

    def _cell(self, group: str, name: str, header: str) -> str:
        """Render the score of generated cells with its interval, its classifier, and the score of other real cells."""
        scores, real = (self.frame.loc[(group, source)] for source in ("generated", "other_real"))
        low, high = scores[f"{name}_low"], scores[f"{name}_high"]
        title = f"{escape(CLASSIFIERS[name][2])}<br>" if name in CLASSIFIERS else ""
        text = f"<b>{scores[name]:.2g}</b> [{low:.2g}, {high:.2g}]<br><small>{title}real {real[name]:.2g}</small>"
        return f'<td style="{STYLE.format(COLOURS[scores[header]])}">{text}</td>'
