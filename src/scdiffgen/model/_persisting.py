"""Saving and loading of models without running code from files, and query models."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.request import urlretrieve

import pandas as pd
import pyro
from anndata import AnnData
from mudata import MuData
from scvi.data import AnnDataManager
from scvi.model.base import BaseModelClass

from scdiffgen._shared_docs import shared_docs
from scdiffgen.data import modality_names
from scdiffgen.io import MODEL_FILE, all_or_nothing, check_file, only_plain_data, plain_data, read_plainly
from scdiffgen.module import GaussianOptions, LatentOptions
from scdiffgen.nn import NetworkOptions

from ._checks import check_accelerator, check_path
from ._hub_card import save_with_card
from ._model_access import gene_names, require_anndata, require_training
from ._query_model import check_missing, padded_genes, query_model
from ._quiet import less_chatter
from ._registering import check_cells, check_mudata
from ._saved_contents import cells_file, check_cells_file, check_contents, saved_attributes, sha256_of
from ._training_runs import whole_checkpoint

if TYPE_CHECKING:
    from scvi.hub import HubModel

OPTIONS: tuple[type, ...] = (GaussianOptions, LatentOptions, NetworkOptions)
"""Classes of options that a file may hold besides plain data."""


class Persisting(BaseModelClass):
    """Mixin that saves and loads models, and extends them to query data."""

    saved_with_: str | None = None
    cells_sha256_: str | None = None  # digest of the file of cells that was saved with the model

    @shared_docs
    def save(
        self,
        dir_path: str | os.PathLike[str],
        prefix: str | None = None,
        overwrite: bool = False,
        save_anndata: bool = False,
        save_kwargs: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        """Save the model as plain data without code; the file appears once it is complete.

        Parameters
        ----------
        save_kwargs, **others
            Arguments of :func:`torch.save`; other arguments as in scvi-tools, such as ``compression`` of the cells.

        Raises
        ------
        {raises_folder}

        Examples
        --------
        >>> import tempfile
        >>> model.save(tempfile.mkdtemp(), overwrite=True)
        """
        folder = check_path("dir_path", dir_path)
        if folder.exists() and not (overwrite and folder.is_dir()):
            what = "pass `overwrite=True` to replace the model in it" if folder.is_dir() else "this path is a file"
            raise ValueError(f"`dir_path`: {folder} already exists. Pass another folder; {what}.")
        if prefix and Path(prefix).name != prefix:
            raise ValueError(f"`prefix` is {prefix!r}: pass the start of a file name, and folders in `dir_path`.")
        if save_anndata and self.adata is None:
            raise ValueError("`save_anndata` is True, but the model has no cells: load it with `adata`.")
        if save_anndata:
            self._validate_anndata()
        self.saved_with_, self.cells_sha256_ = version("scdiffgen"), None
        plainly = {"pickle_module": plain_data, **(save_kwargs or {})}
        of_model = {name: others.pop(name) for name in ("legacy_mudata_format", "datamodule") if name in others}
        # scvi-tools would save Pyro's global parameters, which belong to other models.
        with whole_checkpoint(self), all_or_nothing(folder) as partial, pyro.get_param_store().scope():
            if save_anndata:
                cells = cells_file(partial, prefix, self.registry)
                self.adata.write(cells, **others)
                self.cells_sha256_ = sha256_of(cells)
            super().save(str(partial), prefix, overwrite=True, save_kwargs=plainly, **of_model)
        if save_anndata and self.adata.isbacked:  # writing re-opened it from the partial folder, which was renamed
            self.adata.file.filename = folder / Path(self.adata.file.filename).name

    @classmethod
    @shared_docs
    def load(
        cls,
        dir_path: str | os.PathLike[str],
        adata: AnnData | MuData | bool | None = None,
        accelerator: str = "auto",
        device: int | str = "auto",
        prefix: str | None = None,
        backup_url: str | None = None,
        datamodule: None = None,
        allowed_classes_names_list: list[str] | None = None,
        *,
        safe: bool = True,
    ) -> Self:
        """Load a saved model.

        Parameters
        ----------
        adata
            Cells with the same genes; they are registered like those of the model. ``None`` uses the cells that were
            saved with the model. ``False`` loads no cells, which suffices to generate.
        backup_url, datamodule, allowed_classes_names_list
            As in scvi-tools: address of a missing model; unused; further classes that may be loaded.
        safe
            Whether to load plain data only, as :meth:`save` writes it. ``False`` lets the file run any code, as
            scvi-tools' own loader does, such as for attributes of a subclass; use it for files of people you trust.

        Returns
        -------
        The loaded model.

        {raises_load}

        Examples
        --------
        >>> model = scdiffgen.model.TokenDiffusion.load("pbmc/", adata)  # doctest: +SKIP
        """
        check_accelerator(accelerator)
        if adata is not None and adata is not False:
            (check_mudata if isinstance(adata, MuData) else check_cells)(adata)
            if not isinstance(adata, bool) and not adata.n_obs:
                raise ValueError("`adata` has no cells: pass `adata=False` to load the model without cells.")
        file = check_path("dir_path", dir_path) / f"{prefix or ''}{MODEL_FILE}"
        allowed = allowed_classes_names_list
        if backup_url is not None and not file.exists():
            with all_or_nothing(file.parent) as partial:
                urlretrieve(backup_url, partial / file.name)
        if safe:
            attributes = check_contents(read_plainly(file, OPTIONS), file, cls, allowed or [])
            if isinstance(adata, AnnData) and modality_names(attributes["registry_"]):
                check_mudata(adata)
            if adata is None:
                check_cells_file(file.parent, prefix, attributes)
        else:
            check_file(file)
        with only_plain_data(OPTIONS) if safe else nullcontext(), less_chatter("scvi.data._download"):
            try:
                return super().load(str(dir_path), adata, accelerator, device, prefix, None, datamodule, allowed)
            except OSError as error:
                if adata is not None:
                    raise
                raise ValueError(
                    f"`adata`: the cells saved beside {file} cannot be read ({error}). Pass `adata`, or `adata=False` "
                    "to load the model without cells."
                ) from error

    @staticmethod
    @shared_docs
    def load_registry(dir_path: str | os.PathLike[str], prefix: str | None = None) -> dict[str, Any]:
        """Load the registry of a saved model without its weights; no code from the file is run.

        Returns
        -------
        The registry, in the format of scvi-tools.

        {raises_load}
        """
        file = check_path("dir_path", dir_path) / f"{prefix or ''}{MODEL_FILE}"
        return saved_attributes(read_plainly(file, OPTIONS), file)["registry_"]

    @staticmethod
    def view_setup_args(dir_path: str, prefix: str | None = None) -> None:
        """Print the setup arguments of a saved model; no code from the file is run.

        Parameters
        ----------
        dir_path, prefix
            Folder of the model, and prefix of its file name.
        """
        AnnDataManager.view_setup_method_args(Persisting.load_registry(dir_path, prefix))

    @classmethod
    @shared_docs
    def load_query_data(
        cls,
        adata: AnnData,
        reference_model: str | os.PathLike[str] | Self,
        *,
        inplace_subset_query_vars: bool = False,
        accelerator: str = "auto",
        device: int | str = "auto",
        unfrozen: bool = False,
    ) -> Self:
        """Create a query model: extend a trained model to new batches, labels, perturbations and genes.

        Weights of known categories and genes are frozen and only new weights are trained (scArches), so predictions for
        known conditions stay. New categories start at the mean of the known categories, or from their registered
        feature vectors; new genes start at their frequency in the new cells.

        Parameters
        ----------
        adata
            New cells, which are registered like those of the reference. The genes of the reference come first, in their
            order (:meth:`prepare_query_anndata`); new genes may follow.
        reference_model
            A trained model, or the folder of one. It is not changed.
        inplace_subset_query_vars
            Whether to first subset ``adata`` to the genes of the reference, in their order.
        unfrozen
            Whether to train all weights.

        Returns
        -------
        The query model. It can generate at once and learns by :meth:`train`; until then, its library sizes are those of
        the reference. Freezing is not saved: a loaded query model trains all weights.

        Raises
        ------
        ValueError
            If genes of the reference are missing or reordered, or the reference cannot be extended.
        {raises_untrained}

        Examples
        --------
        >>> import scdiffgen
        >>> new_cells = adata[:50].copy()
        >>> new_cells.obs["cell_type"] = "new type"
        >>> query = scdiffgen.model.TokenDiffusion.load_query_data(new_cells, model)
        >>> query.train(max_epochs=1, enable_progress_bar=False)
        """
        check_cells(adata, may_be_view=False)
        check_accelerator(accelerator)
        reference = reference_model
        if not isinstance(reference, cls):
            reference = cls.load(reference, False, accelerator=accelerator, device=device)
        require_training(reference)
        if inplace_subset_query_vars:
            check_missing(gene_names(reference), adata.var_names)
            adata._inplace_subset_var(gene_names(reference))
        return query_model(adata, reference, unfrozen=unfrozen)

    @classmethod
    def prepare_query_anndata(
        cls,
        adata: AnnData,
        reference_model: str | os.PathLike[str] | Self,
        return_reference_var_names: bool = False,
        inplace: bool = True,
    ) -> AnnData | pd.Index | None:
        """Align cells to the genes of a model: drop other genes, and add missing genes as zeros (not expressed).

        Parameters
        ----------
        adata
            Cells for :meth:`load_query_data`, or for methods that read cells.
        reference_model
            A model, or the folder of one.
        return_reference_var_names
            Whether to return the gene names of the model and change nothing.
        inplace
            Whether to change ``adata`` and return nothing.

        Raises
        ------
        ValueError
            If ``adata`` has no gene of the model, or the model was registered with a MuData.

        Examples
        --------
        >>> import scdiffgen
        >>> prepare = scdiffgen.model.TokenDiffusion.prepare_query_anndata
        >>> len(prepare(adata, model, return_reference_var_names=True))
        765
        >>> query = prepare(new_cells, "reference/", inplace=False)  # doctest: +SKIP
        """
        reference = reference_model if isinstance(reference_model, cls) else cls.load(reference_model, False)
        require_anndata(reference, "prepare_query_anndata")
        if return_reference_var_names:
            return gene_names(reference)
        check_cells(adata, may_be_view=not inplace)
        return padded_genes(adata, reference, inplace=inplace)

    @shared_docs
    def save_for_hub(
        self,
        dir_path: str | os.PathLike[str],
        *,
        title: str,
        license_info: str,
        description: str = "",
        save_anndata: bool = False,
        overwrite: bool = False,
    ) -> HubModel:
        """Save the model with metadata and a model card for scvi-tools' hub.

        Parameters
        ----------
        title, description
            Heading of the card, and a description of the cells in Markdown.
        license_info
            Licence of the model, as Hugging Face abbreviates it, such as ``"cc-by-4.0"``.

        Returns
        -------
        A hub model, for :meth:`scvi.hub.HubModel.push_to_huggingface_hub` or :meth:`~scvi.hub.HubModel.push_to_s3`.

        Raises
        ------
        {raises_folder}
        ImportError
            If ``huggingface_hub`` is not installed.
        {raises_untrained}

        Examples
        --------
        >>> hub = model.save_for_hub("pbmc_hub/", title="Blood", license_info="mit")  # doctest: +SKIP
        >>> hub.push_to_huggingface_hub("owner/pbmc", push_anndata=False)  # doctest: +SKIP
        """
        chosen = {"overwrite": overwrite, "save_anndata": save_anndata}
        return save_with_card(self, dir_path, title, license_info, description, **chosen)
