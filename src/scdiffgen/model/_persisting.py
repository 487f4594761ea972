"""Persisting: models as files, and models that go on from others. What is loaded runs no code."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pandas as pd
import pyro
from anndata import AnnData
from mudata import MuData
from scvi.model.base import BaseModelClass

from scdiffgen.data import modality_names
from scdiffgen.io import MODEL_FILE, all_or_nothing, check_file, only_plain_data, plain_data, read_plainly

from ._checks import check_accelerator, check_cells, check_mudata
from ._hub_card import hub_folder, require_hub
from ._model_access import require_training
from ._model_file import OPTIONS, check_contents, other_version
from ._query_model import query_model
from ._training_runs import whole_checkpoint

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from scvi.hub import HubModel


class Persisting(BaseModelClass):
    """Saving and loading."""

    saved_with_: str | None = None

    def save(
        self,
        dir_path: str | os.PathLike[str],
        prefix: str | None = None,
        overwrite: bool = False,
        save_anndata: bool = False,
        save_kwargs: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        """Save the model as plain data: a file that can be loaded without running code.

        The file appears when all of it is on the disk; until then what was there before is there still.

        Parameters
        ----------
        dir_path
            Folder for the model; it is made.
        prefix
            Start of the names of its files, so that a folder can hold several models.
        overwrite
            Whether files of a model that is there are replaced. Other files in the folder stay.
        save_anndata
            Whether the cells are saved too, to be loaded with the model.
        save_kwargs, **others
            For :func:`torch.save`; and as in scvi-tools, such as ``compression`` for the file of the cells.

        Raises
        ------
        ValueError
            If the folder exists and is not to be overwritten.

        Examples
        --------
        >>> import tempfile
        >>> model.save(tempfile.mkdtemp(), overwrite=True)
        """
        folder = Path(dir_path)
        if folder.exists() and not (overwrite and folder.is_dir()):
            what = "pass `overwrite=True` to replace the model in it" if folder.is_dir() else "it is no folder"
            raise ValueError(f"`dir_path`: {folder} already exists. Pass another folder; {what}.")
        if prefix and Path(prefix).name != prefix:
            raise ValueError(f"`prefix` is {prefix!r}: pass the start of a file's name, and folders in `dir_path`.")
        self.saved_with_ = version("scdiffgen")
        plainly = {"pickle_module": plain_data, **(save_kwargs or {})}
        # Pyro's parameters are other models', and scvi-tools would save them with this one.
        with whole_checkpoint(self), all_or_nothing(folder) as partial, pyro.get_param_store().scope():
            super().save(str(partial), prefix, overwrite=True, save_anndata=save_anndata, save_kwargs=plainly, **others)
        if save_anndata and self.adata.isbacked:  # writing it made it follow its new file, which has moved
            self.adata.file.filename = folder / Path(self.adata.file.filename).name

    @classmethod
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
        dir_path
            Folder of the model.
        adata
            Cells of the same genes; they are registered as those of the model were. ``None`` takes the cells that were
            saved with the model, ``False`` none: the model generates without.
        accelerator, device
            As in scvi-tools; ``"auto"`` takes a GPU (CUDA, ROCm) where there is one, and on Apple silicon the CPU.
        prefix
            Start of the names of the files.
        backup_url, datamodule, allowed_classes_names_list
            As in scvi-tools: where to get a model that is not there; unused; other classes that may be loaded.
        safe
            Whether the file may hold plain data only, as :meth:`save` writes it. ``False`` lets the file run any code,
            as scvi-tools' own loader does: for files of earlier versions, from people you trust.

        Returns
        -------
        The model.

        Raises
        ------
        FileNotFoundError
            If the folder has no model.
        ValueError
            If the file is damaged, holds more than plain data, or was saved by a version or class that does not fit.

        Examples
        --------
        >>> model = scdiffgen.model.TokenDiffusion.load("pbmc/", adata)  # doctest: +SKIP
        """
        check_accelerator(accelerator)
        if adata is not None and adata is not False:
            (check_mudata if isinstance(adata, MuData) else check_cells)(adata)
        file = Path(dir_path) / f"{prefix or ''}{MODEL_FILE}"
        saved_with = None
        if backup_url is None or file.exists():
            check_file(file)
            if safe:
                contents = read_plainly(file, OPTIONS)
                saved_with = check_contents(contents, file, cls, allowed_classes_names_list or [])
                if isinstance(adata, AnnData) and modality_names(contents["attr_dict"]["registry_"]):
                    check_mudata(adata)
        allowed = allowed_classes_names_list
        with only_plain_data(OPTIONS) if safe else nullcontext():
            try:
                return super().load(str(dir_path), adata, accelerator, device, prefix, backup_url, datamodule, allowed)
            except OSError as error:
                if adata is not None:
                    raise
                raise ValueError(
                    f"`adata`: the cells saved beside {file} cannot be read ({error}). Pass `adata`, or `adata=False` "
                    "to load the model without cells."
                ) from error
            except RuntimeError as error:
                if "state_dict" not in str(error):
                    raise
                raise ValueError(
                    f"`dir_path`: the weights in {file} are not those of the network that it describes. "
                    f"{other_version(saved_with)}"
                ) from error

    @staticmethod
    def load_registry(dir_path: str | os.PathLike[str], prefix: str | None = None) -> dict[str, Any]:
        """What was registered for a saved model, without its weights; nothing in the file is run.

        Parameters
        ----------
        dir_path, prefix
            As in :meth:`load`.

        Returns
        -------
        The registry, as scvi-tools has it.

        Raises
        ------
        FileNotFoundError
            If the folder has no model.
        ValueError
            If the file is damaged, or holds more than plain data.
        """
        file = Path(dir_path) / f"{prefix or ''}{MODEL_FILE}"
        check_file(file)
        read_plainly(file, OPTIONS)
        with only_plain_data(OPTIONS):
            return BaseModelClass.load_registry(str(dir_path), prefix)

    @classmethod
    def load_query_data(
        cls,
        adata: AnnData,
        reference_model: str | os.PathLike[str] | Self,
        *,
        perturbation_features: Mapping[str, ArrayLike] | pd.DataFrame | None = None,
        accelerator: str = "auto",
        device: int | str = "auto",
        unfrozen: bool = False,
    ) -> Self:
        """Make a model of new cells from a trained one: with new batches, labels, perturbations and genes.

        What is known keeps its weights; only those of what is new are trained, so that predictions of known conditions
        stay (as in scArches). New categories start as the mean of the known ones; new genes as frequent as in the new
        cells, whatever the condition. If the reference was registered with feature vectors, new perturbations start
        from theirs. If it has a table of perturbations instead, they start as sparse combinations of known ones, whose
        coefficients are found between the vectors of ``perturbation_features``.

        Parameters
        ----------
        adata
            New cells, with the columns that were registered for the reference; they are registered by this. Their first
            genes are those of the reference in the same order; others may follow.
        reference_model
            A trained model, or the folder of one. It is not changed.
        perturbation_features
            A feature vector for each known and each new perturbation, a mapping or a data frame with names as index;
            for references that were registered without. A new perturbation starts as the sum of at most five known ones
            (orthogonal matching pursuit), and as their mean if it has no vector, or one that no known one resembles.
        accelerator, device
            As in :meth:`load`, for the folder of a model; another is on its device already.
        unfrozen
            Whether all weights are trained.

        Returns
        -------
        The query model. It generates at once, and learns by :meth:`train`. Library sizes are those of the reference's
        cells until then, and those of the new cells after it; responses that were measured, those of both, unless there
        are new genes. What is frozen is not saved with a model: one that is loaded trains all of its weights.

        Raises
        ------
        ValueError
            If genes of the reference are missing or in another order, it cannot be extended by what is new, or it has
            no use for the vectors.
        RuntimeError
            If the reference is not trained.

        Examples
        --------
        >>> import scdiffgen
        >>> new_cells = adata[:50].copy()
        >>> new_cells.obs["cell_type"] = "new type"
        >>> query = scdiffgen.model.TokenDiffusion.load_query_data(new_cells, model)
        >>> query.train(max_epochs=1, enable_progress_bar=False)
        >>> query.generate({"cell_type": "new type"}, n_cells=2, n_steps=4).shape
        (2, 765)
        """
        check_cells(adata, may_be_view=False)
        check_accelerator(accelerator)
        reference = reference_model
        if not isinstance(reference, cls):
            reference = cls.load(reference, False, accelerator=accelerator, device=device)
        require_training(reference)
        return query_model(adata, reference, perturbation_features, unfrozen=unfrozen)

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
        dir_path
            Folder for the model; it is made.
        title, description
            Heading of the card, and what there is to say of the cells, in Markdown.
        license_info
            Licence of the model, as Hugging Face abbreviates it, such as ``"cc-by-4.0"``.
        save_anndata, overwrite
            As in :meth:`save`; cells that are saved are uploaded, too.

        Returns
        -------
        What :meth:`scvi.hub.HubModel.push_to_huggingface_hub` and :meth:`~scvi.hub.HubModel.push_to_s3` upload.

        Raises
        ------
        ImportError
            If ``huggingface_hub`` is not installed.
        RuntimeError
            If the model is not trained.
        ValueError
            If the folder exists and is not to be overwritten.

        Examples
        --------
        >>> hub = model.save_for_hub("pbmc_hub/", title="Blood", license_info="mit")  # doctest: +SKIP
        >>> hub.push_to_huggingface_hub("owner/pbmc", push_anndata=False)  # doctest: +SKIP
        """
        require_hub()
        require_training(self)
        self.save(dir_path, overwrite=overwrite, save_anndata=save_anndata)
        return hub_folder(self, dir_path, title, license_info, description)
