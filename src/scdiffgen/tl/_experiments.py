"""Simulated experiments with known truth: generated cells with changes planted by binomial thinning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy import stats

from scdiffgen._arguments import check_whole_number, is_finite_number
from scdiffgen._messages import counted, raise_if_not_unique, unknown_name
from scdiffgen._names import as_names
from scdiffgen._shared_docs import shared_docs

if TYPE_CHECKING:
    from scdiffgen.model import TokenDiffusion
    from scdiffgen.model._checks import LibrarySize

    Changes: TypeAlias = Mapping[str, float] | pd.Series | None
    Shares: TypeAlias = Mapping[str, float] | pd.Series | None

ARMS = ("control", "treated")


@shared_docs
def simulate_experiment(
    model: TokenDiffusion,
    log2_fold_change: Changes = None,
    *,
    conditions: Mapping[str, Any] | None = None,
    n_donors: int = 4,
    n_cells: int = 100,
    paired: bool = False,
    label_key: str | None = None,
    in_labels: str | Sequence[str] | None = None,
    shares: Shares = None,
    treated_shares: Shares = None,
    depth: float = 1.0,
    donor_key: str | None = None,
    donor_sd: float = 0.2,
    sample_sd: float = 0.15,
    share_sd: float = 0.3,
    library_size: LibrarySize = None,
    n_steps: int | None = None,
    seed: int = 0,
    silent: bool = False,
) -> AnnData:
    r"""Simulate an experiment of control and treated donors with planted, hence known, differences.

    The model generates the cells of both arms from one distribution, with :math:`F` times their library sizes. Binomial
    thinning :cite:p:`gerard2020seqgendiff` keeps each molecule of gene :math:`g` in sample :math:`s` with probability

    .. math::
        r_g f_{sg} / F, \quad f_{sg} = \left(d \, 2^{\beta_g}\right)^{t_s} e^{u_{\text{donor}(s), g} + v_{sg}},
        \quad F = \max\left(1, \max f\right),

    where :math:`t_s` is 1 in treated samples and else 0. The ratio of expected counts, treated to control, is therefore
    exactly :math:`d \, 2^{\beta_g}` (depth times fold change), whatever the model has learned. The factor
    :math:`r_g \le 1`, the same in all samples, corrects for the model's extrapolation to deep cells; it is estimated
    from up to 1,000 cells of usual size. If total expression changes, normalisation by library size shifts all log
    ratios by one constant.

    Parameters
    ----------
    model
        A trained model of one AnnData.
    log2_fold_change
        Planted log2 fold changes :math:`\beta` by gene. The name of a token plants its effect on all genes
        (``model.get_token_loadings(method="readout")``), scaled to this largest absolute change. Changes add up.
    conditions
        Values of conditions that all cells share; the model draws other conditions. A registered perturbation is by
        default the control, so that the cells of both arms are untreated.
    n_donors, n_cells
        Number of donors per arm, and of cells per donor and arm.
    paired
        Whether the same donors are in both arms.
    label_key
        Registered condition of the cell types, for ``in_labels`` and ``shares``.
    in_labels
        Cell type or types whose genes change; by default all cell types.
    shares, treated_shares
        Shares of the cell types in each arm, such as ``adata.obs["cell_type"].value_counts(normalize=True)``; by
        default those of the training cells, and in the treated arm those of the control arm.
    depth
        Ratio :math:`d` of the library sizes, treated to control.
    donor_key
        Registered condition of the donors. Donors of the training cells, with their learned differences, are drawn
        without replacement; then pass ``donor_sd=0``. By default donors differ by ``donor_sd`` alone.
    donor_sd, sample_sd, share_sd
        Standard deviations, in natural logarithms, of the effects :math:`u` of each donor and :math:`v` of each sample
        (donor and arm) on each gene, and of each donor on ``shares``, which are renormalised. Effects are normal,
        truncated at two standard deviations to bound :math:`F`. Defaults are near those of monocytes of eight donors
        :cite:p:`kang2018multiplexed`, estimated in the study of power in the documentation.

    Returns
    -------
    Cells with integer counts (CSR) in ``.X``; in ``.obs`` the ``arm`` (``"control"`` or ``"treated"``), ``donor`` and
    conditions (conditions called ``arm`` or ``donor`` get the prefix ``generated_``). The truth is stored in

    - ``.var["log2_fold_change"]``: the planted :math:`\beta`
    - ``.var["log2_fold_change_normalised"]``: expected log2 fold change of pseudobulks of the cells in ``in_labels``
      after normalisation by library size, computed from the expression of these cells before thinning
    - ``.varm["sample_effects"]``: :math:`u + v`, (genes, samples)
    - ``.uns["simulation"]``: the settings; ``library_factor``, :math:`F`; ``samples``, their arm and donor; if
      given, ``shares``, (samples, labels), and ``labels``

    Raises
    ------
    ValueError
        If a name is unknown, ``in_labels`` is empty, a number is out of range, the training cells have too few donors,
        or :math:`F > 10`.

    Examples
    --------
    >>> study = simulate_experiment(model, {"LYZ": 1.0, "CD3E": -1.0}, n_donors=2, n_cells=5, n_steps=4)
    >>> study.obs.groupby(["arm", "donor"], observed=True).size().tolist()
    [5, 5, 5, 5]
    """
    given_plain = (str, int, float, np.generic)
    arguments = dict(locals())
    settings: dict[str, Any] = {name: value for name, value in arguments.items() if isinstance(value, given_plain)}
    of_labels = {"in_labels": in_labels, "shares": shares, "treated_shares": treated_shares}
    given = _checked(arguments, conditions, of_labels)
    given |= _untreated(model, given, (label_key, donor_key))
    genes, rng = model.get_var_names(), np.random.default_rng(seed)
    if isinstance(genes, dict):
        raise ValueError(f"`model` has the modalities {list(genes)}: pass a model of one AnnData.")
    planted, seed_of_cells = planted_changes(model, pd.Index(genes), log2_fold_change), int(rng.integers(2**31))

    donors = _donors(model, given, donor_key, n_donors if paired else 2 * n_donors, rng)
    samples = pd.DataFrame({"arm": np.repeat(ARMS, n_donors), "donor": [*donors, *donors][: 2 * n_donors]})
    donor_of, treated = pd.factorize(samples["donor"])[0], (samples["arm"] == ARMS[1]).to_numpy()
    effects = donor_sd * _bounded_normal(rng, len(donors), len(genes))[donor_of]
    effects += sample_sd * _bounded_normal(rng, len(samples), len(genes))
    sample, numbers, request = np.arange(len(samples)), np.full(len(samples), n_cells), dict(given)
    if shares is not None:
        of_arm = _shares_by_arm(shares, treated_shares)
        donor_effects = np.exp(share_sd * _bounded_normal(rng, len(donors), len(of_arm.columns)))
        share = of_arm.loc[samples["arm"]].to_numpy() * donor_effects[donor_of]
        share /= share.sum(1, keepdims=True)
        settings |= {"shares": share, "labels": of_arm.columns.to_numpy(dtype=object)}
        sample, label = np.nonzero(drawn_numbers := rng.multinomial(n_cells, share))
        numbers, request[str(label_key)] = drawn_numbers[sample, label], settings["labels"][label]
    if donor_key is not None:
        request[donor_key] = samples["donor"].to_numpy()[sample]
    sample_of, table = sample.repeat(numbers), pd.DataFrame(request | {"n_cells": numbers})

    drawn = model.draw_conditions(table, library_size=library_size, seed=seed_of_cells)
    responds = _responds(drawn, label_key, in_labels)
    by_depth, change = np.log(depth) * treated[:, None], np.log(2) * planted
    log_factors = effects + by_depth
    factor = _library_factor(effects, by_depth, change.clip(min=0) * treated[:, None], genes)
    sizes = factor * drawn["library_size"].to_numpy()
    cells = model.generate(table, library_size=sizes, n_steps=n_steps, seed=seed_of_cells, silent=silent)
    corrections = _depth_corrections(model, cells, drawn, factor, rng, n_steps=n_steps, silent=silent)
    before = np.asarray(cells.X[responds].sum(0), dtype=np.float64).ravel() * np.exp(corrections)
    row, gene = np.repeat(np.arange(cells.n_obs), np.diff(cells.X.indptr)), cells.X.indices
    log_kept = (log_factors + corrections - np.log(factor))[sample_of[row], gene]
    log_kept += change[gene] * (responds & treated[sample_of])[row]
    cells.X.data = rng.binomial(cells.X.data, np.exp(np.minimum(log_kept, 0))).astype(cells.X.dtype)
    cells.X.eliminate_zeros()

    samples = samples.astype(str).apply(lambda column: column.astype(pd.CategoricalDtype(column.unique())))
    own = samples.iloc[sample_of].set_axis(cells.obs_names)
    cells.obs = pd.concat([own, cells.obs.rename(columns={name: f"generated_{name}" for name in own})], axis=1)
    shift = np.log2(before @ np.exp2(planted) / before.sum())
    cells.var["log2_fold_change"], cells.var["log2_fold_change_normalised"] = planted, planted - shift
    cells.varm["sample_effects"] = effects.T
    settings |= {"samples": samples.set_axis(samples.index.astype(str)), "library_factor": factor}
    settings |= {} if in_labels is None else {"in_labels": np.asarray(as_names(in_labels), dtype=object)}
    cells.uns["simulation"] = settings | {"conditions": {name: str(value) for name, value in given.items()}}
    return cells


def _depth_corrections(
    model: TokenDiffusion,
    deep: AnnData,
    drawn: pd.DataFrame,
    factor: float,
    rng: np.random.Generator,
    n_cells: int = 1000,
    **options: Any,
) -> np.ndarray:
    """Estimate log retention rates ``(genes,)`` of deep cells that restore the means at usual depth; at most 0.

    The model extrapolates to deep cells, in which dominant genes have lower shares. The ratio of both means is
    estimated from cells with the same conditions, and shrunk to 1 by empirical Bayes, because low counts are noisy.
    """
    if factor == 1:
        return np.zeros(deep.n_vars)
    rows = rng.permutation(len(drawn))[:n_cells]
    request, sizes = drawn.iloc[rows].drop(columns="library_size"), drawn["library_size"].to_numpy()[rows]
    cells = model.generate(request.assign(n_cells=1), library_size=sizes, seed=int(rng.integers(2**31)), **options)
    usual, expected = (np.asarray(counts.sum(0)).ravel() for counts in (cells.X, deep.X[rows]))
    usual, expected = usual + 0.5, expected / factor + 0.5
    log_ratio, noise = np.log(usual / expected), 1 / usual + 1 / (factor * expected)
    variance = max(0.0, float(np.mean(log_ratio**2 - noise)))
    return np.minimum(log_ratio * variance / (variance + noise), 0.0)


def planted_changes(model: TokenDiffusion, genes: pd.Index, given: Changes) -> np.ndarray:
    """Convert log2 fold changes by gene or token to ``(genes,)``."""
    changes = pd.Series({} if given is None else given, dtype=np.float64)
    raise_if_not_unique(changes.index, "The names in `log2_fold_change`", "Give each gene or token once.")
    if not np.isfinite(changes).all():
        worst = changes.index[~np.isfinite(changes)][0]
        raise ValueError(f"`log2_fold_change` of {worst!r} is {changes[worst]}: pass finite numbers.")
    planted = changes.reindex(genes, fill_value=0.0).to_numpy(copy=True)
    of_tokens = changes[~changes.index.isin(genes)]
    loadings = model.get_token_loadings(method="readout") if len(of_tokens) else pd.DataFrame()
    for token, change in of_tokens.items():
        if token not in loadings:
            known = [*loadings.columns, *genes]
            raise ValueError(f"`log2_fold_change`: {unknown_name('token or gene', token, known)}")
        planted += change * loadings[token].reindex(genes).to_numpy() / loadings[token].abs().max()
    return planted


def _bounded_normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Draw normal numbers truncated at two standard deviations and scaled to variance 1."""
    law = stats.truncnorm(-2, 2)
    return law.rvs(shape, random_state=rng) / law.std()


def _checked(arguments: Mapping[str, Any], conditions: Any, of_labels: Mapping[str, Any]) -> dict[str, Any]:
    """Return shared conditions; raise if they conflict with other arguments, or a number or argument is invalid."""
    for name, least in {"n_donors": 1, "n_cells": 1, "seed": 0}.items():
        check_whole_number(name, arguments[name], at_least=least)
    for name in ("depth", "donor_sd", "sample_sd", "share_sd"):
        value: Any = arguments[name]
        if not (is_finite_number(value) and value >= 0 and (value > 0 or name != "depth")):
            raise ValueError(f"`{name}` is {value!r}: pass a number {'above' if name == 'depth' else 'of at least'} 0.")
    used = [name for name, value in of_labels.items() if value is not None]
    if "in_labels" in used and not len(as_names(of_labels["in_labels"])):
        raise ValueError("`in_labels` is empty, so no gene would change: name labels, or leave it out for all cells.")
    if used and arguments["label_key"] is None:
        raise ValueError(
            f"`{used[0]}` needs `label_key`, which is None: name the registered condition of the cell types."
        )
    if "treated_shares" in used and "shares" not in used:
        raise ValueError("`treated_shares` are given without `shares`, those of the control arm: pass both.")
    if not (conditions is None or isinstance(conditions, Mapping)):
        raise TypeError(
            f"`conditions` is of type {type(conditions).__name__}: pass a mapping with one value per condition."
        )
    for name in ["donor_key"] + ["label_key"] * ("shares" in used):
        if arguments[name] in (conditions or {}):
            raise ValueError(f"`conditions` and `{name}` both name {arguments[name]!r}: leave it out of `conditions`.")
    return dict(conditions or {})


def _untreated(model: TokenDiffusion, given: Mapping[str, Any], keys: Sequence[str | None]) -> dict[str, str]:
    """Request the control of a registered perturbation, unless conditions or keys name the perturbation."""
    state = model.registry["field_registries"].get("perturbation", {}).get("state_registry")
    if not state or {*given, *keys} & {"perturbation", *state["columns"]}:
        return {}
    return dict.fromkeys(state["columns"], state["control"][0])


def _donors(
    model: TokenDiffusion, given: dict, key: str | None, n: int, rng: np.random.Generator, n_drawn: int = 10_000
) -> list[Any]:
    """Return donor names: new ones, or categories of a condition in the training cells."""
    if key is None:
        return [f"donor_{i}" for i in range(1, n + 1)]
    donors = _column(model.draw_conditions(given, n_drawn), key, "donor_key").dropna().unique().tolist()
    if len(donors) < n:
        raise ValueError(
            f"`donor_key` is {key!r}, with {counted(len(donors), 'category', 'categories')} in the training cells, but "
            f"{n} donors are needed: lower `n_donors`, or leave out `donor_key`, so that donors differ by `donor_sd`."
        )
    return [sorted(donors, key=str)[i] for i in rng.permutation(len(donors))[:n]]


def _column(drawn: pd.DataFrame, key: str | None, argument: str) -> pd.Series:
    """Return a column of drawn conditions; raise if there is none."""
    if key not in drawn:
        raise ValueError(f"`{argument}`: {unknown_name('registered condition', key, list(drawn))}")
    return drawn[key].astype(object)


def _shares_by_arm(control: Mapping[str, float] | pd.Series, treated: Shares) -> pd.DataFrame:
    """Normalise shares ``(arms, labels)`` to sum to 1."""
    given = {ARMS[0]: dict(control), ARMS[1]: dict(control if treated is None else treated)}
    table = pd.DataFrame(given).T.fillna(0.0).astype(np.float64)
    if not np.isfinite(table).all(axis=None) or (table < 0).any(axis=None) or (table.sum(axis=1) <= 0).any():
        raise ValueError(f"`shares` and `treated_shares` are {given}: pass nonnegative numbers, some positive.")
    return table.div(table.sum(axis=1), axis=0)


def _responds(drawn: pd.DataFrame, label_key: str | None, in_labels: str | Sequence[str] | None) -> np.ndarray:
    """Mark cells of the labels with planted changes ``(cells,)``."""
    if in_labels is None:
        return np.ones(len(drawn), dtype=bool)
    labels, chosen = _column(drawn, label_key, "label_key"), as_names(in_labels)
    for name in set(chosen).difference(labels):
        known = labels.dropna().unique().tolist()
        raise ValueError(f"`in_labels`: {unknown_name('label of the simulated cells', name, known)}")
    return labels.isin(chosen).to_numpy()


def _library_factor(
    by_donor: np.ndarray, by_depth: np.ndarray, by_change: np.ndarray, genes: np.ndarray, largest: float = 10.0
) -> float:
    """Compute the factor of library sizes at which thinning can produce all planted changes (log, samples by genes)."""
    highest = by_donor + by_depth + by_change
    sample, gene = np.unravel_index(highest.argmax(), highest.shape)
    if np.exp(highest.max()) > largest:
        by = [np.exp(part[sample, gene]) for part in (np.broadcast_to(by_depth, highest.shape), by_change, by_donor)]
        raise ValueError(
            f"{str(genes[gene])!r} would increase {np.exp(highest.max()):.1f}-fold, and at most {largest:g}-fold is "
            f"simulated: {by[0]:g}-fold by `depth`, the ratio of library sizes (1 if both arms are alike), "
            f"{by[1]:.3g}-fold by `log2_fold_change` and {by[2]:.3g}-fold by effects of donors and samples. Choose a "
            "smaller `depth`, `log2_fold_change`, `donor_sd` or `sample_sd`. Decreases have no limit."
        )
    return max(1.0, float(np.exp(highest.max())))
