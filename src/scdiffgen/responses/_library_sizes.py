r"""How library sizes respond: all genes alike, which is depth, and by what some genes gain, which is composition.

Treated cells may have more molecules than untreated ones because more of each gene were caught, or because some genes
make more. The first changes mean :math:`\log(1 + 10^4 x / L)` of genes whose shares stay as they are (fewer zeros), and
often differs between contexts by chance of the experiment; the second takes shares from all other genes. With
:math:`\log r` the change of the mean logarithm of library sizes, depth is the part :math:`\log d` of it, from none to
all, without which the changes of genes are smallest, in squared standard errors,

.. math:: \log d = \arg\min_{0 \le \delta \le \log r} \sum_g \min\big(z_g(\delta)^2, z_{\max}^2\big).

Depth is none if that makes them hardly smaller. It is taken off changes before these are transferred, and put back by
the depth that is predicted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ._response_curves import POWER, RATIOS, STEPS, at_steps, moved, solved

N_SIZES = 2  # numbers behind those of genes: changes of the logarithm of library sizes by composition, by depth
LARGEST = float(np.log(4))  # change of the logarithm of a library size
N_DEPTHS, LARGEST_Z, LEAST_VARIANCE = 11, 5.0, 1e-3  # of the search for depth
LEAST_GAIN = 30.0  # of the sum of squared standard errors, for depth not to be 0
LARGEST_EXCESS, N_HALVINGS = 1e3, 40  # of the search for steps that fit the number of molecules


def of_genes(means: np.ndarray) -> np.ndarray:
    """What is of genes ``(..., genes)``, without the sizes behind it."""
    return means[..., :-N_SIZES]


class UntreatedCells(NamedTuple):
    """What untreated cells tell of means once molecules are moved."""

    curve: np.ndarray  # mean log expression at steps (steps, genes)
    saturation: np.ndarray  # what it falls by the logarithm of the library size (steps, genes)
    root: np.ndarray  # fourth roots of shares (genes,)

    def in_library(self, log_ratio: float) -> np.ndarray:
        """The curve ``(steps, genes)`` in cells whose library size has become so much larger."""
        return self.curve - log_ratio * self.saturation

    def without_depth(self, change: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Changes of means that were measured, with what depth makes of them taken off ``(genes + 2,)``.

        The last number of both is of the library size. In what is returned it is split, see :data:`N_SIZES`.
        """
        genes, log_ratio = change[:-1], float(np.clip(change[-1], -LARGEST, LARGEST))
        depths = np.linspace(0, log_ratio, N_DEPTHS) if self.saturation.any() and log_ratio else np.zeros(1)
        found = [self._at_same_depth(genes, depth) for depth in depths]
        squares = np.stack(found) ** 2 / (variance[:-1] + LEAST_VARIANCE)
        sums = squares.clip(max=LARGEST_Z**2).sum(1) + LEAST_GAIN * (depths != 0)
        least = int(np.argmin(sums))
        return np.concatenate([found[least], [log_ratio - depths[least], depths[least]]])

    def _at_same_depth(self, change: np.ndarray, log_depth: float) -> np.ndarray:
        """Change of mean log expression ``(genes,)`` if the same shares were counted as deeply as before."""
        if not log_depth:
            return change
        there = self.in_library(log_depth)
        steps = solved(there, change + log_depth * self.saturation[len(RATIOS)])
        roots = moved(self.root, steps) * np.exp(-POWER * log_depth)
        return change + at_steps(self.curve, self._steps_to(roots)) - at_steps(there, steps)

    def balanced(self, change: np.ndarray, strengths: np.ndarray, composition: float) -> tuple[np.ndarray, float]:
        """Fourth roots ``(genes,)`` after a change of mean log expression, and the logarithm of what shares sum to.

        That is the change of library sizes by ``composition``. Cells are moved by their steps times one of their
        ``strengths`` each, and means are over these. Where genes ask for more molecules than there are, or for fewer,
        each is missed in proportion to the fourth root of its share, so that large genes, which make up for many,
        change by more than small ones; the library size, of all shares, most.
        """
        if not change.any() and not composition:
            return self.root, 0.0
        drawn = self._drawn(strengths)
        yields = float(self.saturation.any())  # nothing is known of library sizes in models of before

        def at(excess: float) -> tuple[np.ndarray, float, float]:
            log_ratio = float(np.clip(composition + yields * excess, -LARGEST, LARGEST))
            wanted = change + log_ratio * drawn.saturation[len(RATIOS)] - excess * self.root
            steps = solved(drawn.in_library(log_ratio), wanted)
            shares = moved(self.root, np.maximum(strengths[:, None] * steps, STEPS[0])) ** (1 / POWER)
            return steps, log_ratio, float(np.log(shares.mean(0).sum()) - log_ratio)

        low, high = -LARGEST_EXCESS, LARGEST_EXCESS
        for _ in range(N_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if at(middle)[2] > 0 else (low, middle)
        steps, log_ratio, _ = at((low + high) / 2)
        return moved(self.root, steps), log_ratio

    def mean_change(self, roots: np.ndarray, strengths: np.ndarray, log_ratio: float) -> np.ndarray:
        """Change of mean log expression ``(genes,)`` of cells that are moved to fourth ``roots`` and library sizes."""
        return at_steps(self._drawn(strengths).in_library(log_ratio), self._steps_to(roots)) - self.curve[len(RATIOS)]

    def _steps_to(self, roots: np.ndarray) -> np.ndarray:
        return np.where(roots < self.root, roots / self.root - 1, roots - self.root)

    def _drawn(self, strengths: np.ndarray) -> UntreatedCells:
        """What these tell of means where each step is times one of the strengths."""
        weights = np.stack([np.interp(np.outer(strengths, STEPS), STEPS, one).mean(0) for one in np.eye(len(STEPS))], 1)
        return self._replace(curve=weights @ self.curve, saturation=weights @ self.saturation)
