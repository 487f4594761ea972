"""Membership inference attacks, which measure the disclosure of training cells and donors by generated cells."""

from __future__ import annotations

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from scdiffgen._log_normalise import log_normalise
from scdiffgen._messages import counted, listed, warn_user
from scdiffgen._shared_docs import shared_docs

from ._classifiers import weighted_auc
from ._comparison import with_interval
from ._distances import N_NEIGHBOURS
from ._input import FEWEST_CELLS, CountsLike, FewCellsWarning, as_count_pair, labels_of
from ._resampling import Weights, bootstrap_weights, split_halves, subsample, weight_below

ATTACKS = ("distance", "density_ratio", "classifier")


@shared_docs
def membership_inference(
    train: CountsLike,
    held_out: CountsLike,
    generated: CountsLike,
    groupby: str | None = None,
    *,
    donor_key: str | None = None,
    layer: str | None = None,
    max_cells: int = 2000,
    max_fpr: float = 0.01,
    n_bootstrap: int = 200,
    seed: int = 0,
) -> pd.DataFrame:
    r"""Run membership inference attacks: infer from generated cells which real cells or donors were training cells.

    Half of the held-out cells are the *reference*, real cells that the attacker has. The attacked cells are equally
    many training cells (members) and other held-out cells (non-members) of each label. With the Euclidean distances
    :math:`d_g` to the nearest generated and :math:`d_r` to the nearest reference cell in log expression, the scores are

    - ``"distance"``: :math:`-\log d_g` (GAN-Leaks, Chen et al. 2020, CCS);
    - ``"density_ratio"``: :math:`\log d_r - \log d_g`, which ranks cells as DOMIAS (van Breugel et al. 2023,
      AISTATS) does with nearest-neighbour estimates of the densities of generated and reference cells;
    - ``"classifier"``: a logistic regression on log distances to the nearest and fifth nearest generated and reference
      cells, fitted on the membership of half of the attacked cells, scores the other half.

    Scores are centred within labels. The control repeats each attack with half of the reference instead of generated
    cells. If its interval excludes 0.5, training and held-out cells differ for another reason, such as batch, and the
    attack is not informative about the generator.

    Parameters
    ----------
    train
        Training cells of the generator, without validation cells: ``adata[model.train_indices]``.
    held_out
        Cells of the same population that were not used in training.
    generated
        Generated cells, preferably as many as will be published; genes are aligned by name.
    groupby
        Column of ``obs`` of the real cells with labels to match; by default no labels are matched.
    donor_key
        Column of ``obs`` of the real cells with donors. It adds the level ``"donor"``, at which a donor has the mean
        score of its cells. Held-out donors are either reference or attacked; donors are resampled at both levels.
    max_fpr
        False-positive rate at which the true-positive rate is computed.
    {draws}

    Returns
    -------
    One row per level and attack, with index ``(level, attack)``. Columns: ``auc``, the probability that a member scores
    above a non-member (0.5 at chance); ``tpr``, the true-positive rate at the false-positive rate ``max_fpr`` (Carlini
    et al. 2022, IEEE S&P), which is about ``max_fpr`` at chance, and NaN with fewer than ``1 / max_fpr``
    non-members; ``control``, the AUC of the control; their 95 % intervals ``auc_low``, ``auc_high`` and so on; and
    the numbers of scored cells or donors, ``n_members`` and ``n_non_members``.

    Raises
    ------
    ValueError
        If training and held-out cells share cells or donors, there are fewer than ten attacked, reference or generated
        cells, fewer than four training or eight held-out donors, or ``max_fpr`` is not in (0, 1).

    Warns
    -----
    UserWarning
        If fewer than ten donors per side are attacked, so that intervals are imprecise.

    Examples
    --------
    >>> import numpy as np
    >>> train, held_out = np.random.default_rng(0).poisson(3.0, size=(2, 100, 20))
    >>> float(membership_inference(train, held_out, generated=train).loc[("cell", "distance"), "auc"])
    1.0
    """
    if not 0 < max_fpr < 1:
        raise ValueError(f"`max_fpr` is {max_fpr!r}: pass a share between 0 and 1, such as 0.01.")
    known, other = as_count_pair(train, held_out, layer=layer, names=("train", "held_out"))
    _, drawn = as_count_pair(train, generated, layer=layer, names=("train", "generated"))
    if isinstance(train, AnnData) and isinstance(held_out, AnnData):
        _refuse_shared_cells(train, held_out, known, other)
    sides = (train, known, "train"), (held_out, other, "held_out")
    obs = pd.concat([_described(*side, groupby, donor_key) for side in sides], ignore_index=True)
    if donor_key is not None:
        _check_donors(obs, donor_key)
    reference, spared = _halves(obs[~obs["is_member"]], seed)
    fake, rest = _halves(reference, seed)
    attacked = _matched(pd.concat([obs[obs["is_member"]], spared]), max_cells, seed)
    if min(n_cells := [len(attacked) // 2, len(rest), drawn.shape[0]]) < FEWEST_CELLS:
        raise ValueError(
            f"{n_cells[0]} cells each of `train` and `held_out` can be attacked, with {n_cells[1]} of `held_out` as "
            f"reference and {n_cells[2]} `generated`: pass at least {FEWEST_CELLS} of each, with the same labels."
        )
    real, new = (log_normalise(counts, dtype=np.float32) for counts in (vstack([known, other]).tocsr(), drawn))
    unit, units = pd.factorize(attacked["donor"])[0], attacked.drop_duplicates("donor")
    is_member, rng = units["is_member"].to_numpy(), np.random.default_rng(seed)
    is_fitted = np.isin(np.arange(len(units)), split_halves(is_member, seed=seed)[0])  # cells to fit the classifier
    weights = np.empty((1 + n_bootstrap, len(units)))
    for side in (is_member, ~is_member):
        weights[:, side] = bootstrap_weights(side.sum(), n_bootstrap, rng)
    pairs = (new, real[reference.index]), (real[fake.index], real[rest.index])
    scores = [_scores(real[attacked.index], attacked, is_fitted[unit], *pair) for pair in pairs]
    by_level = {"cell": (unit, scores)}
    if donor_key is not None:
        by_level["donor"] = np.arange(len(units)), [table.groupby(unit).mean() for table in scores]
    rows = {}
    for level, (at, tables) in by_level.items():
        for attack in ATTACKS:
            scored = tables[0][attack].notna().to_numpy()
            columns, members = at[scored], is_member[at[scored]]
            (auc, tpr), (control, _) = (
                _success(values[attack].to_numpy()[scored], members, weights[:, columns], max_fpr) for values in tables
            )
            row = with_interval("auc", auc) | with_interval("tpr", tpr) | with_interval("control", control)
            rows[level, attack] = row | {"n_members": members.sum(), "n_non_members": (~members).sum()}
    return pd.DataFrame([*rows.values()], pd.MultiIndex.from_tuples(rows, names=["level", "attack"]))


def _described(
    cells: CountsLike, counts: csr_matrix, name: str, groupby: str | None, donor_key: str | None
) -> pd.DataFrame:
    """Tabulate membership, labels and donors; by default all cells share a label, and each cell is a donor."""
    n = counts.shape[0]
    labels = np.zeros(n, dtype=int) if groupby is None else labels_of(cells, groupby, name)
    donors = [f"{name} {i}" for i in range(n)] if donor_key is None else labels_of(cells, donor_key, name, "donor_key")
    return pd.DataFrame({"is_member": name == "train", "label": labels, "donor": donors})


def _halves(obs: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split donors at random into halves, or cells within labels if each cell is a donor."""
    donors = obs.drop_duplicates("donor")
    first, _ = split_halves(donors["label"] if len(donors) == len(obs) else np.zeros(len(donors)), seed=seed)
    is_first = obs["donor"].isin(donors["donor"].iloc[first])
    return obs[is_first], obs[~is_first]


def _matched(obs: pd.DataFrame, max_cells: int, seed: int) -> pd.DataFrame:
    """Draw equally many donors, then equally many members and non-members per label, at most ``max_cells`` each."""
    donors = obs.drop_duplicates("donor")
    if len(donors) < len(obs):
        drawn = donors.groupby("is_member").sample(donors["is_member"].value_counts().min(), random_state=seed)
        obs = obs[obs["donor"].isin(drawn["donor"])]
    obs = obs.sample(frac=1, random_state=seed)
    obs = obs.assign(rank=obs.groupby(["label", "is_member"]).cumcount())
    obs = obs[obs.duplicated(["label", "rank"], keep=False)]  # pairs of a member and a non-member
    pair = obs.groupby(["label", "rank"]).ngroup()
    return obs[pair.isin(subsample(len(obs) // 2, max_cells, seed))].sort_index()


def _scores(
    cells: csr_matrix, obs: pd.DataFrame, is_fitted: NDArray, generated: csr_matrix, reference: csr_matrix
) -> pd.DataFrame:
    """Score attacked cells by each attack, higher for members, (cells, attacks); NaN for cells of the fit."""
    distances = []
    for side in (generated, reference):
        search = NearestNeighbors(n_neighbors=N_NEIGHBOURS, algorithm="brute").fit(side)
        distances.append(search.kneighbors(cells)[0][:, [0, -1]])
    logs = pd.DataFrame(np.log(np.maximum(np.hstack(distances), 1e-3)))  # distances of copies are about 0
    x = (logs - logs.groupby(obs["label"].to_numpy()).transform("mean")).to_numpy()
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(x[is_fitted], obs["is_member"][is_fitted])
    by_classifier = np.where(is_fitted, np.nan, model.decision_function(x))
    return pd.DataFrame(dict(zip(ATTACKS, (-x[:, 0], x[:, 2] - x[:, 0], by_classifier), strict=True)))


def _success(scores: NDArray, is_member: NDArray, weights: Weights, max_fpr: float) -> tuple[NDArray, NDArray]:
    """Compute AUC and true-positive rate under each row of weights, (rows,)."""
    (positive, wp), (negative, wn) = ((scores[side], weights[:, side]) for side in (is_member, ~is_member))
    n_members, n_others = wp.sum(axis=1), wn.sum(axis=1, keepdims=True)
    is_found = n_others - weight_below(negative, wn, positive, "left") <= max_fpr * n_others
    defined = (n_members > 0) & (len(negative) * max_fpr >= 1)
    return weighted_auc(negative, positive, wn, wp), (wp * is_found).sum(axis=1) / np.where(defined, n_members, np.nan)


def _check_donors(obs: pd.DataFrame, donor_key: str) -> None:
    """Raise if donors are shared or too few; warn if they are few."""
    known, other = (obs.loc[obs["is_member"] == side, "donor"].unique() for side in (True, False))
    place, n = f"obs[{donor_key!r}]", min(len(known), len(other) // 2)
    if shared := sorted({*known} & {*other}):
        raise ValueError(f"`train` and `held_out` share {listed(shared)} of {place}. Hold out whole donors.")
    if n < 4:
        n_donors = f"{len(known)} donors of `train` and {len(other)} of `held_out`"
        raise ValueError(f"{place} has {n_donors}: pass at least 4 and 8.")
    if n < FEWEST_CELLS:
        warn_user(f"Only {n} donors per side are attacked, so intervals are imprecise.", FewCellsWarning)


def _refuse_shared_cells(train: AnnData, held_out: AnnData, known: csr_matrix, other: csr_matrix) -> None:
    """Raise if cells with equal names have equal counts on both sides."""
    rows = [pd.Series(range(cells.n_obs), cells.obs_names) for cells in (train, held_out)]
    both = pd.concat([side[~side.index.duplicated()] for side in rows], axis=1, join="inner")
    same = both.index[np.asarray(abs(known[both[0]] - other[both[1]]).sum(axis=1)).ravel() == 0]
    if len(same):
        raise ValueError(f"`train` and `held_out` share {counted(len(same), 'cell')}, such as {same[0]!r}. Drop them.")
