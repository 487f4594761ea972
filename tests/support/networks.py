"""A small size of networks, random tensors and weights, and torch's own attention with the weights of ours."""

import torch
from torch import Tensor, nn

from scdiffgen.nn import Attention, NetworkSize

SIZE = NetworkSize(
    n_tokens=3,
    token_dim=8,
    n_layers=2,
    n_heads=2,
    n_hidden=16,
    readout_dim=4,
    readout_units=3,
    conditioning_dim=8,
    dropout=0,
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed))


def random_weights(module: nn.Module, std: float = 0.4) -> nn.Module:
    """The same with random weights everywhere: all gates are open."""
    torch.manual_seed(0)
    for weight in module.parameters():
        nn.init.normal_(weight, std=std)
    return module


def without_gradient(module: nn.Module) -> list[str]:
    """Names of the weights that nothing was learned of."""
    return [name for name, weight in module.named_parameters() if weight.grad is None or not weight.grad.any()]


def torchs_attention(ours: Attention, dim: int, n_heads: int) -> nn.MultiheadAttention:
    """Torch's attention with the weights of ours: of its own vectors, or of sources."""
    if hasattr(ours, "project"):
        weights, bias = {"in_proj_weight": ours.project.weight}, ours.project.bias
    else:
        key, value = ours.key_value.weight.chunk(2)
        weights = {"q_proj_weight": ours.query.weight, "k_proj_weight": key, "v_proj_weight": value}
        bias = torch.cat([ours.query.bias, ours.key_value.bias])  # type: ignore[assignment]
        if key.shape[1] == dim:
            weights = {"in_proj_weight": torch.cat(list(weights.values()))}
    sources = {} if "in_proj_weight" in weights else {"kdim": key.shape[1], "vdim": key.shape[1]}
    torchs = nn.MultiheadAttention(dim, n_heads, batch_first=True, **sources)
    out = {"out_proj.weight": ours.out.weight, "out_proj.bias": ours.out.bias}
    torchs.load_state_dict({**weights, "in_proj_bias": bias, **out})
    return torchs
