"""Persisting: models as files, and models that go on from others. What is loaded runs no code."""

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
from scdiffgen.nn import NetworkOptions, ReadoutOptions

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


OPTIONS: tuple[type, ...] = (GaussianOptions, LatentOptions, NetworkOptions, ReadoutOptions)
"""Classes that a file may name, beside plain data."""


class Persisting(BaseModelClass):
    """Saving and loading."""

    saved_with_: str | None = None
    cells_sha256_: str | None = None  # of the file of the cells that was saved with the model

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
        """Save the model as plain data, without code; the file appears when all of it is on the disk.

        Parameters
        ----------
        save_kwargs, **others
            For :func:`torch.save`; and as in scvi-tools, such as ``compression`` for the file of the cells.

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
            what = "pass `overwrite=True` to replace the model in it" if folder.is_dir() else "it is no folder"
            raise ValueError(f"`dir_path`: {folder} already exists. Pass another folder; {what}.")
        if prefix and Path(prefix).name != prefix:
            raise ValueError(f"`prefix` is {prefix!r}: pass the start of a file's name, and folders in `dir_path`.")
        if save_anndata and self.adata is None:
            raise ValueError("`save_anndata` is True, and the model has no cells beside it: load it with `adata`.")
        if save_anndata:
            self._validate_anndata()
        self.saved_with_, self.cells_sha256_ = version("scdiffgen"), None
        plainly = {"pickle_module": plain_data, **(save_kwargs or {})}
        of_model = {name: others.pop(name) for name in ("legacy_mudata_format", "datamodule") if name in others}
        # Pyro's parameters are other models', and scvi-tools would save them with this one.
        with whole_checkpoint(self), all_or_nothing(folder) as partial, pyro.get_param_store().scope():
            if save_anndata:
                cells = cells_file(partial, prefix, self.registry)
                self.adata.write(cells, **others)
                self.cells_sha256_ = sha256_of(cells)
            super().save(str(partial), prefix, overwrite=True, save_kwargs=plainly, **of_model)
        if save_anndata and self.adata.isbacked:  # writing it made it follow its new file, which has moved
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
            Cells of the same genes; they are registered as those of the model were. ``None`` takes the cells that were
            saved with the model, ``False`` none: the model generates without.
        backup_url, datamodule, allowed_classes_names_list
            As in scvi-tools: where to get a model that is not there; unused; other classes that may be loaded.
        safe
            Whether the file may hold plain data only, as :meth:`save` writes it. ``False`` lets the file run any code,
            as scvi-tools' own loader does: for files of earlier versions, from people you trust.

        Returns
        -------
        The model.

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
        """What was registered for a saved model, without its weights; nothing in the file is run.

        Returns
        -------
        The registry, as scvi-tools has it.

        {raises_load}
        """
        file = check_path("dir_path", dir_path) / f"{prefix or ''}{MODEL_FILE}"
        return saved_attributes(read_plainly(file, OPTIONS), file)["registry_"]

    @staticmethod
    def view_setup_args(dir_path: str, prefix: str | None = None) -> None:
        """Print what a saved model was registered with; nothing in the file is run.

        Parameters
        ----------
        dir_path, prefix
            Folder of the model, and start of the name of its file.
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
        """Make a model of new cells from a trained one: with new batches, labels, perturbations and genes.

        What is known keeps its weights; only those of what is new are trained, so that predictions of known conditions
        stay (as in scArches). New categories start as the mean of the known ones, or from their feature vectors where
        these are registered; new genes start as frequent as in the new cells.

        Parameters
        ----------
        adata
            New cells, which are registered as those of the reference were. Their first genes are those of the reference
            in the same order (:meth:`prepare_query_anndata`); others may follow.
        reference_model
            A trained model, or the folder of one. It is not changed.
        inplace_subset_query_vars
            Whether ``adata`` is first reduced to the genes of the reference, in their order.
        unfrozen
            Whether all weights are trained.

        Returns
        -------
        The query model. It generates at once, and learns by :meth:`train`; until then library sizes are those of the
        reference's cells. What is frozen is not saved: a model that is loaded trains all of its weights.

        Raises
        ------
        ValueError
            If genes of the reference are missing or in another order, or it cannot be extended by what is new.
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
        """Bring cells to the genes of a model: others are left out, missing ones are zero, read as genes that are off.

        Parameters
        ----------
        adata
            Cells for :meth:`load_query_data`, or to be read by the model.
        reference_model
            A model, or the folder of one.
        return_reference_var_names
            Whether the names of its genes are returned, and nothing is done.
        inplace
            Whether ``adata`` itself is changed, and nothing returned.

        Raises
        ------
        ValueError
            If no gene of the model is there, or the model is of a MuData.

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
        """Save the model with what scvi-tools' hub asks for: its metadata, and a card that describes it.

        Parameters
        ----------
        title, description
            Heading of the card, and what there is to say of the cells, in Markdown.
        license_info
            Licence of the model, as Hugging Face abbreviates it, such as ``"cc-by-4.0"``.

        Returns
        -------
        What :meth:`scvi.hub.HubModel.push_to_huggingface_hub` and :meth:`~scvi.hub.HubModel.push_to_s3` upload.

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
