"""Wavelets of numbers."""

import torch
from torch import Tensor, nn

from scdiffgen.nn._numbers import LARGEST, Embedded, NumberEmbedding, Numbers


def wavelets(x: Numbers) -> tuple[Tensor, Tensor]:
    """Compute the even and the odd wavelet: second ("Mexican hat") and first derivative of a Gaussian, peak 1."""
    return (1 - x**2) * torch.exp(-(x**2) / 2), x * torch.exp((1 - x**2) / 2)


class WaveletEmbedding(NumberEmbedding):
    """Two wavelets at scales of all octaves and at positions one scale apart, projected."""

    centres: Tensor
    scales: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        smallest, reach = 0.25, 4.0  # scales double up to LARGEST; wavelets are centred within +- reach
        octaves = smallest * 2.0 ** torch.arange(int(torch.tensor(LARGEST / smallest).log2()) + 1)
        steps = [torch.arange(-(n := int(reach // scale)), n + 1) * scale for scale in octaves.tolist()]
        self.register_buffer("centres", torch.cat(steps))
        self.register_buffer("scales", octaves.repeat_interleave(torch.tensor([len(step) for step in steps])))
        self.mix = nn.Linear(2 * len(self.centres), dim)
        # Scales near the reach, the range of numbers of order one, have the largest weights at first.
        with torch.no_grad():
            weight = torch.minimum(self.scales, reach**2 / self.scales).sqrt() / (2 * reach)
            self.mix.weight.normal_().mul_(weight.repeat(2))

    def _embed(self, numbers: Numbers) -> Embedded:
        return self.mix(torch.cat(wavelets((numbers[..., None] - self.centres) / self.scales), dim=-1))
