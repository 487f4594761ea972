r"""Changes of library size, split into sequencing depth (all genes alike) and composition (some genes gain).

Depth is the part :math:`\log d` of the change :math:`\log r` of the mean log library size that minimises the changes of
the genes in squared standard errors, or none if the minimum is hardly lower:

.. math:: \log d = \arg\min_{0 \le \delta \le \log r} \sum_g \min\big(z_g(\delta)^2, z_{\max}^2\big).

It is removed from responses before these are transferred, and the predicted depth is added.
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
    """Entries of genes ``(..., genes)``, without library sizes."""
    return means[..., :-N_SIZES]


class UntreatedCells(NamedTuple):
    """Mean log expression of untreated cells as a function of steps."""

    curve: np.ndarray  # mean log expression at steps (steps, genes)
    saturation: np.ndarray  # what it falls by the logarithm of the library size (steps, genes)
    root: np.ndarray  # fourth roots of shares (genes,)

    def in_library(self, log_ratio: float) -> np.ndarray:
        """The curve ``(steps, genes)`` at a library size larger by ``log_ratio``."""
        return self.curve - log_ratio * self.saturation

    def without_depth(self, change: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Remove sequencing depth from a change ``(genes + 1,)``; the library size is split, see :data:`N_SIZES`."""
        genes, log_ratio = change[:-1], float(np.clip(change[-1], -LARGEST, LARGEST))
        depths = np.linspace(0, log_ratio, N_DEPTHS) if self.saturation.any() and log_ratio else np.zeros(1)
        found = [self._at_same_depth(genes, depth) for depth in depths]
        squares = np.stack(found) ** 2 / (variance[:-1] + LEAST_VARIANCE)
        sums = squares.clip(max=LARGEST_Z**2).sum(1) + LEAST_GAIN * (depths != 0)
        least = int(np.argmin(sums))
        return np.concatenate([found[least], [log_ratio - depths[least], depths[least]]])

    def _at_same_depth(self, change: np.ndarray, log_depth: float) -> np.ndarray:
        """Change of mean log expression ``(genes,)`` at unchanged depth."""
        if not log_depth:
            return change
        there = self.in_library(log_depth)
        steps = solved(there, change + log_depth * self.saturation[len(RATIOS)])
        roots = moved(self.root, steps) * np.exp(-POWER * log_depth)
        return change + at_steps(self.curve, self._steps_to(roots)) - at_steps(there, steps)

    def balanced(self, change: np.ndarray, strengths: np.ndarray, composition: float) -> tuple[np.ndarray, float]:
        """Balance a change of means: fourth roots ``(genes,)`` after it, and the log-ratio of library sizes."""
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

        # bisect for the excess, proportional to fourth roots, at which shares sum to the new library size
        low, high = -LARGEST_EXCESS, LARGEST_EXCESS
        for _ in range(N_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if at(middle)[2] > 0 else (low, middle)
        steps, log_ratio, _ = at((low + high) / 2)
        return moved(self.root, steps), log_ratio

    def mean_change(self, roots: np.ndarray, strengths: np.ndarray, log_ratio: float) -> np.ndarray:
        """Change of mean log expression ``(genes,)`` at new fourth ``roots`` and library sizes."""
        return at_steps(self._drawn(strengths).in_library(log_ratio), self._steps_to(roots)) - self.curve[len(RATIOS)]

    def _steps_to(self, roots: np.ndarray) -> np.ndarray:
        return np.where(roots < self.root, roots / self.root - 1, roots - self.root)

    def _drawn(self, strengths: np.ndarray) -> UntreatedCells:
        """Average curves over cells whose steps are multiplied by ``strengths``."""
        weights = np.stack([np.interp(np.outer(strengths, STEPS), STEPS, one).mean(0) for one in np.eye(len(STEPS))], 1)
        return self._replace(curve=weights @ self.curve, saturation=weights @ self.saturation)
