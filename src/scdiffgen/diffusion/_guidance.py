"""Classifier-free guidance, a decorator of denoisers."""

from collections.abc import Callable, Sequence
from typing import Any


def guide(
    unconditional: Callable[..., Any], conditional: Sequence[Callable[..., Any]], scales: Sequence[float]
) -> Callable[..., Any]:
    """Decorate a denoiser by classifier-free guidance; a single scale of 1 evaluates the conditional one only."""
    if not conditional:
        return unconditional
    if list(scales) == [1.0]:
        return conditional[0]
    return lambda *state: unconditional(*state).guided([denoise(*state) for denoise in conditional], scales)
