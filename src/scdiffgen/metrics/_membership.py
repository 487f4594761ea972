"""Membership inference: whether generated cells disclose which real cells, or donors, the generator was trained on."""

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
    r"""Attack generated cells to infer which real cells, or donors, the generator was trained on.

    Half of the held-out cells are the *reference*, real cells that the attacker has. As many training cells (members)
    as other held-out cells (non-members) of each label are attacked. With the Euclidean distances :math:`d_g` to the
    nearest generated and :math:`d_r` to the nearest reference cell in log expression of all genes, a cell scores

    - ``"distance"``: :math:`-\log d_g` (GAN-Leaks, Chen et al. 2020, CCS);
    - ``"density_ratio"``: :math:`\log d_r - \log d_g`, which ranks cells as DOMIAS (van Breugel et al. 2023,
      AISTATS) does with nearest-neighbour estimates of the densities of generated and reference cells;
    - ``"classifier"``: a logistic regression on the logarithms of the distances to the nearest and the fifth nearest
      cell of both, fitted with the membership of half of the attacked cells, scores the other half.

    Scores are centred within labels. The control repeats each attack with half of the reference in place of generated
    cells. If its interval excludes 0.5, training and held-out cells differ for another reason, such as batch, and the
    attack says nothing about the generator.

    Parameters
    ----------
    train
        Cells that the generator was trained on, without those of its validation: ``adata[model.train_indices]``.
    held_out
        Cells of the same population that the generator has not seen.
    generated
        Generated cells, at best as many as are to be published; genes are aligned by name.
    groupby
        Column of ``obs`` of the real cells with the labels to match; by default none are matched.
    donor_key
        Column of ``obs`` of the real cells with their donors. Adds the level ``"donor"``: a donor scores the mean of
        its cells. Held-out donors are then either reference or attacked, and donors are resampled at both levels.
    max_fpr
        False-positive rate at which the true-positive rate is given.
    {draws}

    Returns
    -------
    A row for each level and attack, with index ``(level, attack)``. Columns: ``auc``, the probability that a member
    scores above a non-member, 0.5 at chance; ``tpr``, the share of members above all but a share ``max_fpr`` of the
    non-members (Carlini et al. 2022, IEEE S&P), near ``max_fpr`` at chance, NaN with fewer than ``1 / max_fpr``
    non-members; ``control``, the AUC of the control; their 95 % intervals ``auc_low``, ``auc_high`` and so on; and
    the numbers of cells or donors that are scored, ``n_members`` and ``n_non_members``.

    Raises
    ------
    ValueError
        If training and held-out cells share cells or donors, fewer than ten cells of each share labels or are
        generated, there are fewer than four training or eight held-out donors, or ``max_fpr`` is not in (0, 1).

    Warns
    -----
    FewCellsWarning
        If fewer than ten donors of a side are attacked, so that intervals are rough.

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
            f"reference and {n_cells[2]} `generated`: {FEWEST_CELLS} are needed. Pass more cells of the same labels."
        )
    real, made = (log_normalise(counts, dtype=np.float32) for counts in (vstack([known, other]).tocsr(), drawn))
    unit, units = pd.factorize(attacked["donor"])[0], attacked.drop_duplicates("donor")
    is_member, rng = units["is_member"].to_numpy(), np.random.default_rng(seed)
    is_fitted = np.isin(np.arange(len(units)), split_halves(is_member, seed=seed)[0])  # by the classifier
    weights = np.empty((1 + n_bootstrap, len(units)))
    for side in (is_member, ~is_member):
        weights[:, side] = bootstrap_weights(side.sum(), n_bootstrap, rng)
    pairs = (made, real[reference.index]), (real[fake.index], real[rest.index])
    scores = [_scores(real[attacked.index], attacked, is_fitted[unit], *pair) for pair in pairs]
    by_level = {"cell": (unit, scores)}
    if donor_key is not None:
        by_level["donor"] = np.arange(len(units)), [of_cells.groupby(unit).mean() for of_cells in scores]
    rows = {}
    for level, (at, found) in by_level.items():
        for attack in ATTACKS:
            scored = found[0][attack].notna().to_numpy()
            of, members = at[scored], is_member[at[scored]]
            (auc, tpr), (control, _) = (
                _success(values[attack].to_numpy()[scored], members, weights[:, of], max_fpr) for values in found
            )
            row = with_interval("auc", auc) | with_interval("tpr", tpr) | with_interval("control", control)
            rows[level, attack] = row | {"n_members": members.sum(), "n_non_members": (~members).sum()}
    return pd.DataFrame([*rows.values()], pd.MultiIndex.from_tuples(rows, names=["level", "attack"]))


def _described(
    cells: CountsLike, counts: csr_matrix, name: str, groupby: str | None, donor_key: str | None
) -> pd.DataFrame:
    """Whether cells are members, their labels and donors; without these all have one label, and each is a donor."""
    n = counts.shape[0]
    labels = np.zeros(n, dtype=int) if groupby is None else labels_of(cells, groupby, name)
    donors = [f"{name} {i}" for i in range(n)] if donor_key is None else labels_of(cells, donor_key, name, "donor_key")
    return pd.DataFrame({"is_member": name == "train", "label": labels, "donor": donors})


def _halves(obs: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split at random into halves of the donors, or within labels if each cell is one."""
    donors = obs.drop_duplicates("donor")
    first, _ = split_halves(donors["label"] if len(donors) == len(obs) else np.zeros(len(donors)), seed=seed)
    is_first = obs["donor"].isin(donors["donor"].iloc[first])
    return obs[is_first], obs[~is_first]


def _matched(obs: pd.DataFrame, max_cells: int, seed: int) -> pd.DataFrame:
    """Draw equally many donors, then members and non-members of every label, at most ``max_cells`` each."""
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
    """Score attacked cells by each attack, higher for members, (cells, attacks); NaN of cells of the fit."""
    distances = []
    for side in (generated, reference):
        search = NearestNeighbors(n_neighbors=N_NEIGHBOURS, algorithm="brute").fit(side)
        distances.append(search.kneighbors(cells)[0][:, [0, -1]])
    logs = pd.DataFrame(np.log(np.maximum(np.hstack(distances), 1e-3)))  # rounding leaves copies not quite at 0
    x = (logs - logs.groupby(obs["label"].to_numpy()).transform("mean")).to_numpy()
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(x[is_fitted], obs["is_member"][is_fitted])
    by_classifier = np.where(is_fitted, np.nan, model.decision_function(x))
    return pd.DataFrame(dict(zip(ATTACKS, (-x[:, 0], x[:, 2] - x[:, 0], by_classifier), strict=True)))


def _success(scores: NDArray, is_member: NDArray, weights: Weights, max_fpr: float) -> tuple[NDArray, NDArray]:
    """AUC and true-positive rate under each row of weights, (rows,)."""
    (positive, wp), (negative, wn) = ((scores[side], weights[:, side]) for side in (is_member, ~is_member))
    n_members, n_others = wp.sum(axis=1), wn.sum(axis=1, keepdims=True)
    is_found = n_others - weight_below(negative, wn, positive, "left") <= max_fpr * n_others
    defined = (n_members > 0) & (len(negative) * max_fpr >= 1)
    return weighted_auc(negative, positive, wn, wp), (wp * is_found).sum(axis=1) / np.where(defined, n_members, np.nan)


def _check_donors(obs: pd.DataFrame, donor_key: str) -> None:
    """Raise unless donors of both sides differ and suffice; warn if they are few."""
    known, other = (obs.loc[obs["is_member"] == side, "donor"].unique() for side in (True, False))
    place, n = f"obs[{donor_key!r}]", min(len(known), len(other) // 2)
    if shared := sorted({*known} & {*other}):
        raise ValueError(f"`train` and `held_out` share {listed(shared)} of {place}. Hold out whole donors.")
    if n < 4:
        n_donors = f"{len(known)} donors of `train` and {len(other)} of `held_out`"
        raise ValueError(f"{place} has {n_donors}: at least 4 and 8 are needed. Hold out more.")
    if n < FEWEST_CELLS:
        warn_user(f"{n} donors of a side are attacked: intervals of so few are rough.", FewCellsWarning)


def _refuse_shared_cells(train: AnnData, held_out: AnnData, known: csr_matrix, other: csr_matrix) -> None:
    """Raise if cells of the same name have the same counts on both sides."""
    rows = [pd.Series(range(cells.n_obs), cells.obs_names) for cells in (train, held_out)]
    both = pd.concat([of[~of.index.duplicated()] for of in rows], axis=1, join="inner")
    same = both.index[np.asarray(abs(known[both[0]] - other[both[1]]).sum(axis=1)).ravel() == 0]
    if len(same):
        raise ValueError(f"`train` and `held_out` share {counted(len(same), 'cell')}, such as {same[0]!r}. Drop them.")
