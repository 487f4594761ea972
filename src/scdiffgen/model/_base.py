"""What the parts of the model stand on."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from mudata import MuData
from scvi.model.base import BaseModelClass, UnsupervisedTrainingMixin

from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.data import check_modalities, feature_names, modality_names
from scdiffgen.module import DiffusionModule, ThinningModule
from scdiffgen.train import cell_loader

from ._checks import check_cells, check_mudata
from ._mudata import quiet


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
                f"{self.module.process_name!r}: make and train one with `process='thinning'`."
            )
        return self.module

    def _validate_anndata(self, adata: AnnData | MuData | None = None, copy_if_view: bool = True) -> AnnData | MuData:
        if adata is None and self.adata is None:
            raise ValueError("The model was loaded without cells: pass `adata`.")
        if adata is not None and self._modalities():
            check_mudata(adata)
            check_modalities(adata, self._modalities(), None, transfer=True)
            if adata.is_view:
                with quiet():
                    adata = adata.copy()
        elif adata is not None:
            check_cells(adata)
            if adata.is_view and adata.isbacked:  # which anndata does not copy into memory
                adata = adata.to_memory().copy()  # anndata 0.13 leaves dense matrices views
        return super()._validate_anndata(adata, copy_if_view)

    def _modalities(self) -> list[str]:
        """Names of the modalities, if the cells are a MuData."""
        return modality_names(self.registry)

    def _require_anndata(self, asked: str) -> None:
        """Raise if the cells are a MuData, on which a method does not work.

        Parameters
        ----------
        asked
            Name of the method.
        """
        if self._modalities():
            raise ValueError(
                f"`{asked}` works on one AnnData, and this model was registered with `setup_mudata`: make and train "
                f"one of `mdata[{self._modalities()[0]!r}]`, registered with `setup_anndata`."
            )

    def get_var_names(self, legacy_mudata_format: bool = False) -> np.ndarray | dict[str, np.ndarray]:
        """Names of the genes; of a MuData, a mapping from each modality to those of its genes, proteins or peaks.

        Parameters
        ----------
        legacy_mudata_format
            Whether the names of all modalities are one array.
        """
        if not self._modalities():
            return super().get_var_names()
        names = feature_names(self.registry)
        return np.concatenate(list(names.values())) if legacy_mudata_format else names

    def _gene_names(self) -> pd.Index:
        """Names of the genes, of a MuData pairs of modality and name."""
        names = self.get_var_names()
        if not isinstance(names, dict):
            return pd.Index(names)
        modalities = np.repeat(np.array(list(names), dtype=object), [len(own) for own in names.values()])
        return pd.MultiIndex.from_arrays([modalities, np.concatenate(list(names.values()))], names=["modality", "name"])

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
        if self._modalities() and not all(isinstance(gene, tuple) for gene in genes):
            pair = (self._modalities()[0], genes[0])
            raise ValueError(f"`{argument}` must hold pairs of modality and gene for a MuData, such as {pair}.")
        positions = self._gene_names().get_indexer(pd.Index(genes))
        if (positions < 0).any():
            missing = pd.Index(genes)[positions < 0].tolist()
            raise ValueError(f"`{argument}` names {missing[:5]}, which the model does not know.")
        return positions
