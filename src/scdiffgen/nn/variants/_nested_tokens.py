"""Nested (elastic) tokens."""

import torch


def number_of_tokens(n_tokens: int) -> int:
    """Draw how many leading tokens a minibatch is trained with: all in half of the minibatches, else any number."""
    return n_tokens if torch.rand(()) < 0.5 else int(torch.randint(1, n_tokens + 1, ()))
