"""The model with tokens held, or with its first tokens alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from typing import TypeVar

import numpy as np
import torch

from scdiffgen._stored_tokens import check_tokens

from ._checks import check_positive_integer, is_finite_number
from ._tokens import Tokens

Model = TypeVar("Model", bound="TokenEdits")


class TokenEdits(Tokens):
    """Copies of the model that use their tokens otherwise."""

    def hold_tokens(self: Model, levels: Mapping[str, float] | Sequence[str]) -> Model:
        """The model with tokens held at fixed activations: what it predicts and generates without their help.

        A held token adds the same to the genes of every cell, whatever the cell: its mean contribution over the
        training cells, plus its loadings times the level. Everything that the model does can be asked of the result,
        such as ``generate``, ``predict_perturbation`` or ``get_nll``. Other tokens are as they were, and may hold some
        of the same information.

        Parameters
        ----------
        levels
            Activation of each token to hold, in standard deviations from its mean over the training cells; or names of
            tokens, which are then held at 0. The mean activation of control cells makes all cells like controls in this
            token.

        Returns
        -------
        A copy; this model stays as it is.

        Raises
        ------
        ValueError
            If a token is unknown, or the tokens of the model are pooled by ``"logsumexp"``.

        Examples
        --------
        >>> without = model.hold_tokens(["token_1"])
        >>> without.generate({"cell_type": "Dendritic"}, n_cells=2, n_steps=4, seed=0).shape
        (2, 765)
        """
        self._require_training()
        self._thinning("hold_tokens")
        self._require_sum()
        if not isinstance(levels, Mapping):
            levels = dict.fromkeys([levels] if isinstance(levels, str) else levels, 0.0)
        names, basis = self._token_names(), self._token_basis()
        check_tokens(list(levels), names, "levels")
        held = copy(self)
        held.module = deepcopy(self.module)
        readout = held._thinning("hold_tokens").ema_denoiser.network.additive_readout
        for token, level in levels.items():
            if not is_finite_number(level):
                raise ValueError(f"`levels` holds {level!r} for {token!r}: pass a number of standard deviations.")
            rank = names.index(token)
            position = int(basis.order[rank])
            says = basis.mean[rank] @ self._weights()[position] + level * basis.loadings[:, rank]
            readout.hold(position, torch.from_numpy(says).float().to(self.device))
        return held

    def truncate_tokens(self: Model, n_tokens: int) -> Model:
        """The model cut to its first tokens: smaller and faster, at some loss of quality.

        Parameters
        ----------
        n_tokens
            Number of tokens to keep.

        Returns
        -------
        A model of its own, with the same conditions and training cells; this one stays as it is.

        Raises
        ------
        ValueError
            If the model was not made with ``nested_tokens=True``, or has fewer tokens.

        Examples
        --------
        >>> small = nested_model.truncate_tokens(2)  # doctest: +SKIP
        """
        self._require_training()
        check_positive_integer("n_tokens", n_tokens)
        if not self.module.nested:
            raise ValueError("The tokens are not nested: make and train the model with `nested_tokens=True`.")
        if n_tokens > len(self._token_names()):
            raise ValueError(f"`n_tokens` is {n_tokens}, but the model has {len(self._token_names())} tokens.")
        arguments = {**self.init_params_["non_kwargs"], "n_tokens": n_tokens}
        cut = type(self)(self._validate_anndata(None), **arguments)
        for name, value in vars(self).items():
            if name.endswith("_") and name != "init_params_":
                setattr(cut, name, value)
        # In every tensor that depends on the number of tokens the first tokens come first.
        old, new = self.module.state_dict(), cut.module.state_dict()
        cut.module.load_state_dict({name: old[name][tuple(map(slice, new[name].shape))] for name in new})
        cut.module.eval()
        cut.to_device(self.device)
        cut._remember_token_basis(np.concatenate([self.train_indices, self.validation_indices]).astype(int))
        return cut
