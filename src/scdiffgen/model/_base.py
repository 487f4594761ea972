"""What the parts of the model stand on."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from scvi.model.base import BaseModelClass, UnsupervisedTrainingMixin

from scdiffgen._constants import REGISTRY_KEYS
from scdiffgen.module import DiffusionModule, ThinningModule
from scdiffgen.train import cell_loader

from ._checks import check_cells


class ModelBase(UnsupervisedTrainingMixin, BaseModelClass):
    """A model of scvi-tools with our module."""

    module: DiffusionModule
    _data_loader_cls = staticmethod(cell_loader)

    def _require_training(self) -> None:
        if not self.is_trained_:
            raise RuntimeError("The model is not trained: call `train()` first, or load a trained model.")

    def _thinning(self, asked: str) -> ThinningModule:
        """The module of a process that takes molecules away; raise if it is of another, which cannot do what is asked.

        Parameters
        ----------
        asked
            Name of the method.
        """
        if not isinstance(self.module, ThinningModule):
            raise ValueError(
                f"`{asked}` needs a process that takes molecules away, and the process of this model is "
                f"{self.module.process!r}: make and train one with `process='thinning'`."
            )
        return self.module

    def _validate_anndata(self, adata: AnnData | None = None, copy_if_view: bool = True) -> AnnData:
        if adata is None and self.adata is None:
            raise ValueError("The model was loaded without cells: pass `adata`.")
        if adata is not None:
            check_cells(adata)
        return super()._validate_anndata(adata, copy_if_view)

    def _gene_names(self) -> pd.Index:
        return pd.Index(self.get_var_names())

    def _weights_id(self) -> str:
        """Twelve hexadecimal digits that are the same for the same averaged weights, also after saving and loading."""
        digest = sha256()
        for tensor in self.module.ema_denoiser.state_dict().values():
            digest.update(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy())
        return digest.hexdigest()[:12]

    def _batch_name(self) -> str:
        for spec in self.module.specs:
            if spec.registry_key == REGISTRY_KEYS.BATCH:
                return spec.name
        raise ValueError("No batch was registered: pass `batch_key` to `setup_anndata`.")

    def _gene_positions(self, genes: Sequence[str], argument: str) -> np.ndarray:
        """Positions of named genes among those of the model."""
        if isinstance(genes, str):
            raise ValueError(f"`{argument}` is {genes!r}: pass a list of genes, [{genes!r}].")
        positions = self._gene_names().get_indexer(pd.Index(genes))
        if (positions < 0).any():
            missing = pd.Index(genes)[positions < 0].tolist()
            raise ValueError(f"`{argument}` names {missing[:5]}, which the model does not know.")
        return positions
