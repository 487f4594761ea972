"""Baselines of a perturbation response as plain functions: a change of mean log expression, or cells that carry it.

Whatever a model predicts has to beat these. None looks at the target cells, nor at their library sizes: cells start
from controls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.decomposition import PCA

from scdiffgen.metrics._genes import library_sizes
from scdiffgen.metrics._input import EXPRESSION, CountsLike, Points, as_counts, to_dense
from scdiffgen.metrics._space import normalise

LINEAR_PCS = 10
LINEAR_RIDGE = 0.1
CHUNK = 1000


def mean_shift(shifts: ArrayLike) -> NDArray[np.float64]:
    """Mean of known changes: of all training perturbations, or of one perturbation in other cell types.

    Parameters
    ----------
    shifts
        Known changes against the control of each, (treatments, genes).

    Returns
    -------
    The change, (genes,).

    Examples
    --------
    >>> mean_shift([[1.0, 0.0], [3.0, 0.0]])
    array([2., 0.])
    """
    return np.asarray(shifts, dtype=np.float64).mean(axis=0)


def nearest_shift(control: ArrayLike, controls: ArrayLike, shifts: ArrayLike) -> NDArray[np.float64]:
    """Change of the same perturbation in the cell type whose controls are nearest.

    Parameters
    ----------
    control
        Mean expression of the control cells of the target type, (genes,).
    controls
        Mean expression of the control cells of other types, (types, genes).
    shifts
        Change in each of them, (types, genes).

    Returns
    -------
    The change, (genes,).

    Examples
    --------
    >>> nearest_shift([0.0], [[5.0], [1.0]], [[7.0], [8.0]])
    array([8.])
    """
    distances = np.linalg.norm(np.asarray(controls, dtype=np.float64) - np.asarray(control), axis=1)
    return np.asarray(shifts, dtype=np.float64)[int(np.argmin(distances))]


def additive_shift(parts: ArrayLike) -> NDArray[np.float64]:
    """Sum of the changes of the parts of a combination: c + (a - c) + (b - c) is c plus this.

    Parameters
    ----------
    parts
        Change by each part alone, (parts, genes).

    Returns
    -------
    The change, (genes,).

    Examples
    --------
    >>> additive_shift([[1.0, 0.0], [2.0, 5.0]])
    array([3., 5.])
    """
    return np.asarray(parts, dtype=np.float64).sum(axis=0)


def linear_shift(
    means: ArrayLike,
    control: ArrayLike,
    targets: Sequence[Sequence[int]],
    wanted: Sequence[int],
    *,
    n_pcs: int = LINEAR_PCS,
    ridge: float = LINEAR_RIDGE,
) -> NDArray[np.float64]:
    r"""Change predicted by a linear model of gene embeddings.

    Ahlmann-Eltze, Huber & Anders (2025, Nature Methods): :math:`Y \approx G K P^T + b`. Y holds the changes against
    control, one column a training perturbation and one, zero, for the control; b are the means of its rows; G are the
    gene coordinates in a PCA of the mean expressions with genes as observations; P are the rows of G of the perturbed
    genes, zero for the control; and :math:`K = (G^T G + \lambda)^{-1} G^T (Y - b) P (P^T P + \lambda)^{-1}`. Unlike
    there, a combination has the sum of the rows of its genes.

    Parameters
    ----------
    means
        Mean expression of each training perturbation, (perturbations, genes).
    control
        Mean expression of control cells, (genes,).
    targets
        Positions of the perturbed genes of each training perturbation.
    wanted
        Positions of the perturbed genes to predict.
    n_pcs
        Components of the gene embedding; at most the number of training perturbations.
    ridge
        The penalty :math:`\lambda`, on both sides.

    Returns
    -------
    The change, (genes,).

    Raises
    ------
    ValueError
        If ``targets`` has not one entry for each row of ``means``.

    Examples
    --------
    >>> import numpy as np
    >>> means = np.random.default_rng(0).normal(size=(4, 9))
    >>> linear_shift(means, np.zeros(9), [[0], [1], [2], [3]], [4]).shape
    (9,)
    """
    baseline = np.asarray(control, dtype=np.float64)
    expression = np.vstack([np.asarray(means, dtype=np.float64), baseline]).T  # (genes, perturbations and control)
    if len(targets) != expression.shape[1] - 1:
        raise ValueError(f"`targets` has {len(targets)} entries for {expression.shape[1] - 1} training perturbations.")
    n_components = min(n_pcs, len(targets), expression.shape[0])
    genes = PCA(n_components, svd_solver="full").fit_transform(expression)
    perturbations = np.array([genes[list(rows)].sum(axis=0) for rows in [*targets, []]])
    changes = expression - baseline[:, None]
    offset = changes.mean(axis=1)
    penalty = ridge * np.eye(n_components)
    left = np.linalg.solve(genes.T @ genes + penalty, genes.T @ (changes - offset[:, None]))
    kernel = np.linalg.solve(perturbations.T @ perturbations + penalty, perturbations.T @ left.T).T
    return genes @ kernel @ genes[list(wanted)].sum(axis=0) + offset


def dose_shift(dose: float, doses: ArrayLike, shifts: ArrayLike) -> NDArray[np.float64]:
    """Change at a dose, interpolated linearly in log dose between the nearest known doses.

    The scale is ``log(1 + dose / smallest positive known dose)``, so that dose 0, which changes nothing, has a place on
    it. Beyond the largest known dose the change is that of the largest.

    Parameters
    ----------
    dose
        The dose wanted.
    doses
        Known doses, (doses,).
    shifts
        Change at each, (doses, genes).

    Returns
    -------
    The change, (genes,).

    Raises
    ------
    ValueError
        If ``dose`` or a known dose is negative, or no known dose is positive.

    Examples
    --------
    >>> dose_shift(3.0, [1.0, 7.0], [[2.0], [4.0]])
    array([3.])
    """
    known, changes = np.asarray(doses, dtype=np.float64), np.asarray(shifts, dtype=np.float64)
    if dose < 0 or not (known > 0).any() or (known < 0).any():
        raise ValueError(
            f"`dose`={dose} and `doses`={known.tolist()} must not be negative, and one known dose positive."
        )
    positive = known > 0
    order = np.argsort(known[positive])
    at = np.concatenate([[0.0], known[positive][order]])
    values = np.vstack([np.zeros(changes.shape[1]), changes[positive][order]])
    scale = np.log1p(at / at[1])
    position = np.log1p(dose / at[1])
    return np.array([np.interp(position, scale, gene) for gene in values.T])


def latent_difference(treated: Points, untreated: Points, encode: Callable[[Points], NDArray]) -> NDArray[np.float64]:
    """Difference of the mean latent positions of treated and untreated cells.

    Parameters
    ----------
    treated
        Treated cells, as ``encode`` takes them.
    untreated
        Control cells of the same type.
    encode
        Maps cells to latent positions, (cells, dimensions).

    Returns
    -------
    The difference, (dimensions,).

    Examples
    --------
    >>> import numpy as np
    >>> latent_difference(np.array([[3.0]]), np.array([[1.0]]), encode=lambda x: 2 * x)
    array([4.])
    """
    return np.asarray(encode(treated).mean(axis=0) - encode(untreated).mean(axis=0), dtype=np.float64)


def latent_arithmetic(
    control: Points,
    difference: ArrayLike,
    encode: Callable[[Points], NDArray],
    decode: Callable[[NDArray], NDArray],
) -> NDArray:
    """Control cells moved in a latent space (Lotfollahi et al. 2019, scGen).

    Parameters
    ----------
    control
        Control cells of the target type, as ``encode`` takes them.
    difference
        Where to, (dimensions,): a mean of `latent_difference` over other types, or their sum over the parts of a
        combination.
    encode
        Maps cells to latent positions, (cells, dimensions).
    decode
        Maps latent positions to expression or counts, (cells, genes).

    Returns
    -------
    What ``decode`` gives.

    Examples
    --------
    >>> import numpy as np
    >>> latent_arithmetic(np.ones((1, 1)), [4.0], encode=lambda x: 2 * x, decode=lambda z: z / 2)
    array([[3.]])
    """
    return decode(encode(control) + np.asarray(difference))


def shift_expression(control: Points, shift: ArrayLike) -> NDArray[np.float64]:
    """Control cells with a change added to the log expression of each; may be negative where the change is.

    Parameters
    ----------
    control
        Log expression of control cells, (cells, genes).
    shift
        Change, (genes,).

    Returns
    -------
    Expression, (cells, genes), dense: pass no more cells than are compared.

    Examples
    --------
    >>> shift_expression([[0.0, 1.0]], [1.0, 1.0])
    array([[1., 2.]])
    """
    return to_dense(control, "control", EXPRESSION) + np.asarray(shift, dtype=np.float64)


def shift_counts(
    control: CountsLike, shift: ArrayLike, *, layer: str | None = None, seed: int = 0
) -> sparse.csr_matrix:
    """Counts of control cells after a change of log expression, at the library sizes of the controls.

    Expression is moved, cut off at 0, taken back to counts per 10,000 and rescaled to the molecules that the control
    cell had. Fractions are rounded up or down at random so that the mean is kept, which adds as little noise as whole
    numbers allow.

    Parameters
    ----------
    control
        Control counts, (cells, genes).
    shift
        Change of log expression, (genes,).
    layer
        Layer of an AnnData that holds the counts.
    seed
        Seed of the rounding.

    Returns
    -------
    Counts, (cells, genes).

    Examples
    --------
    >>> import numpy as np
    >>> shift_counts(np.array([[5, 5]]), [0.0, -20.0]).toarray()
    array([[10.,  0.]], dtype=float32)
    """
    counts = as_counts(control, layer=layer, name="control")
    rng = np.random.default_rng(seed)
    chunks = []
    for start in range(0, counts.shape[0], CHUNK):
        cells = counts[start : start + CHUNK]
        rates = np.expm1(np.clip(normalise(cells).toarray() + np.asarray(shift, dtype=np.float64), 0, None))
        total = rates.sum(axis=1, keepdims=True)
        share = np.divide(rates, total, out=np.zeros_like(rates), where=total > 0)
        expected = library_sizes(cells)[:, None] * share
        chunks.append(sparse.csr_matrix(np.floor(expected + rng.random(expected.shape))).astype(np.float32))
    return sparse.vstack(chunks, format="csr") if chunks else counts
