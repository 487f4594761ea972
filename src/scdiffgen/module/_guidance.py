r"""Classifier-free guidance, :math:`\log \pi_w = \log \pi_0 + \sum_i w_i (\log \pi_i - \log \pi_0)`.

:math:`\pi_0` is the prediction without the guided conditions, and :math:`\pi_i` the prediction given a group of them.
For Gaussian predictions, means take the place of log-probabilities. Each distribution has the formula as its method
``guided``. A guided denoiser is a function like an unguided one, so sampling does not depend on guidance.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ._denoisers import Denoiser
from ._paths import Predict
from ._process_options import Given, Scale


class Guidance(NamedTuple):
    """Guidance scales: one for all conditions together, or one for each named condition."""

    scale: Scale = 1.0

    def groups(self, conditions: Given) -> list[tuple[list[str], float]]:
        """Return names of conditions that are guided together, and their scales."""
        if isinstance(self.scale, Mapping):
            return [([name], self.scale[name]) for name in conditions if name in self.scale]
        return [(list(conditions), self.scale)] if conditions else []

    def bind(self, denoiser: Denoiser, conditions: Given) -> Predict:
        """Bind conditions: a denoiser given the unguided ones, guided towards each guided group."""
        groups = self.groups(conditions)
        rest = conditions.without({name for names, _ in groups for name in names})
        conditional = [denoiser.bind(rest.replace(conditions.only(names))) for names, _ in groups]
        return guide(denoiser.bind(rest), conditional, [scale for _, scale in groups])


UNGUIDED = Guidance()


def guide(
    unconditional: Callable[..., Any], conditional: Sequence[Callable[..., Any]], scales: Sequence[float]
) -> Callable[..., Any]:
    """Decorate a predictor by guidance; a single scale of 1 evaluates the conditional predictor only."""
    if not conditional:
        return unconditional
    if list(scales) == [1.0]:
        return conditional[0]
    return lambda *state: unconditional(*state).guided([denoise(*state) for denoise in conditional], scales)
