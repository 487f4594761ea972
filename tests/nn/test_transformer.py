"""The transformer against torch's own attention and encoder layer, and its invariances."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from networks import normal, torchs_attention
from torch import nn

from scdiffgen.nn import NetworkSize
from scdiffgen.nn._network import Attention, Block, TokenTransformer

DIM, HEADS, CONDITIONING = 16, 4, 6
SIZE = NetworkSize(n_tokens=7, token_dim=DIM, n_layers=2, n_heads=HEADS, conditioning_dim=CONDITIONING, dropout=0.0)
TOKENS, CONDITIONS = normal(5, 7, DIM, seed=1), normal(5, CONDITIONING, seed=2)


@pytest.fixture
def transformer() -> TokenTransformer:
    """Two blocks whose gates are open."""
    torch.manual_seed(0)
    transformer = TokenTransformer(SIZE)
    for block in transformer.blocks:
        nn.init.normal_(block.modulation.weight, std=0.5)
        nn.init.normal_(block.modulation.bias, std=0.5)
    return transformer


def test_attention_is_torchs() -> None:
    ours = Attention(DIM, HEADS)
    torchs = torchs_attention(ours, DIM, HEADS)
    attended, _ = torchs(TOKENS, TOKENS, TOKENS)
    torch.testing.assert_close(ours(TOKENS), attended)


def test_a_block_is_torchs_pre_norm_layer_with_the_modulation_in_its_weights() -> None:
    """With the same modulation for all cells, shift and scale are those of the norms, and gates scale what is added."""
    block = Block(SIZE)
    modulation = torch.randn(6, DIM, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        block.modulation.bias.copy_(modulation.flatten())
    shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = modulation
    layer = nn.TransformerEncoderLayer(DIM, HEADS, 2 * DIM, 0.0, F.silu, batch_first=True, norm_first=True)
    layer.load_state_dict(
        {
            "norm1.weight": 1 + scale_1,
            "norm1.bias": shift_1,
            "self_attn.in_proj_weight": block.attention.project.weight,
            "self_attn.in_proj_bias": block.attention.project.bias,
            "self_attn.out_proj.weight": gate_1[:, None] * block.attention.out.weight,
            "self_attn.out_proj.bias": gate_1 * block.attention.out.bias,
            "norm2.weight": 1 + scale_2,
            "norm2.bias": shift_2,
            "linear1.weight": block.mlp[0].weight,
            "linear1.bias": block.mlp[0].bias,
            "linear2.weight": gate_2[:, None] * block.mlp[2].weight,
            "linear2.bias": gate_2 * block.mlp[2].bias,
        }
    )
    torch.testing.assert_close(block(TOKENS, torch.randn(5, CONDITIONING)), layer(TOKENS), rtol=1e-4, atol=1e-5)


def test_a_fresh_transformer_only_normalises() -> None:
    fresh = TokenTransformer(replace(SIZE, n_layers=3))
    for block in fresh.blocks:
        torch.testing.assert_close(block(TOKENS, CONDITIONS), TOKENS, rtol=0, atol=0)
    torch.testing.assert_close(fresh(TOKENS, CONDITIONS), F.layer_norm(TOKENS, (DIM,)))


def test_tokens_may_change_places(transformer: TokenTransformer) -> None:
    order = torch.randperm(7)
    permuted = transformer(TOKENS[:, order], CONDITIONS)
    torch.testing.assert_close(permuted, transformer(TOKENS, CONDITIONS)[:, order])


def test_dropout_acts_only_while_training() -> None:
    transformer = TokenTransformer(replace(SIZE, n_layers=1, dropout=0.5))
    nn.init.ones_(transformer.blocks[0].modulation.bias)
    assert not torch.equal(transformer(TOKENS, CONDITIONS), transformer(TOKENS, CONDITIONS))
    transformer.eval()
    assert torch.equal(transformer(TOKENS, CONDITIONS), transformer(TOKENS, CONDITIONS))
