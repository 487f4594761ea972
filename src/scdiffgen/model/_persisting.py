"""Saving and loading, checks of saved files, and a model card for scvi-tools' hub."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from hashlib import file_digest
from importlib.metadata import version
from pathlib import Path
from shutil import disk_usage
from typing import TYPE_CHECKING, Any, Self
from urllib.request import urlretrieve

import pandas as pd
import pyro
import torch
from anndata import AnnData
from mudata import MuData
from scvi.data import AnnDataManager
from scvi.model.base import BaseModelClass

from scdiffgen._messages import did_you_mean, listed, raise_if_not_unique
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen._shared_docs import shared_docs
from scdiffgen.conditions import ConditionSpec
from scdiffgen.data import (
    Registry,
    categories_of_condition,
    check_counts_again,
    feature_names,
    modality_names,
    required_state,
)
from scdiffgen.io import (
    MODEL_FILE,
    UNREADABLE,
    all_or_nothing,
    check_file,
    finish_moves,
    only_plain_data,
    plain_data,
    read_plainly,
)
from scdiffgen.module import DiffusionModule, GaussianOptions, LatentOptions
from scdiffgen.nn import NetworkOptions

from ._cells import quiet
from ._checks import check_accelerator, check_path
from ._model_access import check_cells, check_mudata, gene_names, less_chatter, require_anndata, require_training
from ._query_model import check_missing, freeze_known, padded_genes, query_model
from ._training_runs import whole_checkpoint
from ._training_summary import TrainingSummary, check_summary, training_summary

if TYPE_CHECKING:
    from scvi.hub import HubModel

SETUPS = ("setup_anndata", "setup_mudata")
OPTIONS: tuple[type, ...] = (GaussianOptions, LatentOptions, NetworkOptions)
"""Classes of options that a file may hold besides plain data."""


class Persisting(BaseModelClass):
    """Mixin that saves and loads models, and extends them to query data."""

    saved_with_: str | None = None
    absent_genes_: list[str] | None = None  # genes of the reference that the cells of a query lack
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
            check_counts_again(self.adata_manager)  # because `load` refuses other values
        self.saved_with_, self.cells_sha256_ = version("scdiffgen"), None
        plainly = {"pickle_module": plain_data, **(save_kwargs or {})}
        of_model = {name: others.pop(name) for name in ("legacy_mudata_format", "datamodule") if name in others}
        # scvi-tools would save Pyro's global parameters, which belong to other models.
        with whole_checkpoint(self), all_or_nothing(folder) as partial, pyro.get_param_store().scope(), quiet():
            if save_anndata:
                cells = cells_file(partial, prefix, self.registry)
                self.adata.write(cells, **others)
                self.cells_sha256_ = sha256_of(cells)
            try:
                super().save(str(partial), prefix, overwrite=True, save_kwargs=plainly, **of_model)
            except RuntimeError as error:  # PyTorch's, in place of the error of the disk
                free = disk_usage(partial).free
                raise OSError(f"`dir_path`: {folder} cannot be written ({error}): {free:,} bytes are free.") from error
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
        with suppress(OSError):  # a folder that cannot be written
            finish_moves(file.parent)
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
        with only_plain_data(OPTIONS) if safe else nullcontext(), less_chatter("scvi.data._download"), quiet():
            try:
                model = super().load(str(dir_path), adata, accelerator, device, prefix, None, datamodule, allowed)
                freeze_known(model)
                return model
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


CARD = """\
# {title}

{description}

{summary}. Trained with scdiffgen {version} on {n_cells:,} cells. It generates cells, as molecule counts, under given
conditions.

## Conditions

{conditions}

## Use

```python
import scdiffgen
from scvi.hub import HubModel

folder = HubModel.pull_from_huggingface_hub("owner/name").local_dir
model = scdiffgen.model.TokenDiffusion.load(folder, adata=False)
cells = model.generate({example}, n_cells=100)
```

Neither the model nor its cells are private: `scdiffgen.metrics.membership_inference` measures how well generated cells
disclose training cells.
"""


def save_with_card(
    model: BaseModelClass, path: str | os.PathLike[str], title: str, license_info: str, description: str, **saved: bool
) -> HubModel:
    """Save a model with metadata and model card; raise unless Hugging Face's client is installed."""
    try:
        from huggingface_hub import ModelCard, ModelCardData
    except ImportError as error:
        raise ImportError("`save_for_hub` needs `huggingface_hub`: pip install 'scdiffgen[hub]'.") from error
    from scvi.hub import HubMetadata, HubModel

    require_training(model)
    model.save(path, **saved)
    versions, name = (version("scvi-tools"), version("anndata")), type(model).__name__
    metadata = HubMetadata(*versions, model_cls_name=name, model_parent_module="scdiffgen.model")
    tags = ["biology", "genomics", "single-cell", f"model_cls_name:{name}"]
    header = ModelCardData(license=license_info, library_name="scvi-tools", tags=tags)
    card = ModelCard(f"---\n{header.to_yaml()}\n---\n\n{card_text(model, title, description)}")
    hub = HubModel(os.fspath(Path(path)), metadata=metadata, model_card=card)
    hub.save(overwrite=True)
    return hub


def card_text(model: BaseModelClass, title: str, description: str) -> str:
    """Write the body of the model card."""
    specs, registry = model.module.specs, model.registry
    labels = [f"{s.name!r}: {categories_of_condition(registry, s)[0]!r}" for s in specs if s.kind == "category"]
    return CARD.format(
        title=title,
        description=description,
        summary=model._model_summary_string,
        version=version("scdiffgen"),
        n_cells=len(training_summary(model).library),
        conditions="\n".join(f"- `{spec.name}`: {_values_of(registry, spec)}" for spec in specs) or "None.",
        example=f"{{{''.join(labels[:1])}}}",
    )


def _values_of(registry: Registry, spec: ConditionSpec) -> str:
    if spec.kind == "category":
        return listed(categories_of_condition(registry, spec))
    state = required_state(registry, spec.registry_key)
    if spec.registry_key == REGISTRY_KEYS.PERTURBATION:
        unit = f" ({spec.transform.unit})" if spec.transform.unit else ""
        return f"combinations of {listed(state['names'])}" + (f" with doses{unit}" if spec.has_values else "")
    if spec.kind == "hierarchy":
        return f"levels {listed(state['columns'])}"
    return "a number"


def saved_attributes(contents: object, file: Path) -> Mapping[str, Any]:
    """Return the attributes of a saved model; raise if the contents are no model."""
    attributes = contents.get("attr_dict") if isinstance(contents, Mapping) else None
    needed = ("registry_", "init_params_")
    if not isinstance(attributes, Mapping) or not all(isinstance(attributes.get(name), Mapping) for name in needed):
        raise ValueError(f"`dir_path`: {file} is no saved model. Pass the folder that `model.save(...)` was given.")
    return attributes


def check_contents(contents: Any, file: Path, cls: type, allowed: list[str]) -> Mapping[str, Any]:
    """Return the attributes of a saved model; raise unless its class is ``cls`` or allowed and it can be built."""
    attributes = saved_attributes(contents, file)
    registry, saved_with = attributes["registry_"], attributes.get("saved_with_")
    name = registry.get("model_name", cls.__name__)
    if name != cls.__name__ and name not in allowed:
        raise ValueError(f"`dir_path`: {file} is of a {name}, a different class: load it with `{name}.load`.")
    method = registry.get("setup_method_name", "setup_anndata")
    if method not in SETUPS:  # scvi-tools calls it by its name
        raise ValueError(f"`dir_path`: {file} names {method!r} to register cells: it is none of {listed(SETUPS)}.")
    setup = getattr(cls, method)
    options = {
        "model": (attributes["init_params_"].get("non_kwargs", {}), cls),
        "registration": (registry.get("setup_args", {}), setup),
    }
    for what, (given, function) in options.items():
        known = list(inspect.signature(function).parameters)
        unknown = [option for option in given if option not in known]
        if unknown:
            raise ValueError(
                f"`dir_path`: the {what} in {file} has the option {unknown[0]!r}, which this version does not have."
                f"{did_you_mean(unknown[0], known)} {_other_version(saved_with)}"
            )
    try:
        module = _described_module(cls, attributes, contents["model_state_dict"])
        if not all(bool(weight.isfinite().all()) for weight in module.parameters()):
            raise ValueError("weights that are not finite")
        for name, genes in (feature_names(registry) or {"": required_state(registry, "X")["column_names"]}).items():
            raise_if_not_unique(pd.Index(genes), f"genes{f' of {name!r}' * bool(name)}", "")
        if attributes.get("is_trained_"):
            summary = TrainingSummary.from_plain(attributes["training_summary_"])
            check_summary(summary, module.specs, len(modality_names(registry)))
    except UNREADABLE as error:
        raise ValueError(
            f"`dir_path`: {file} lacks parts or weights of a model, or they are invalid ({error!r:.300}). "
            f"{_other_version(saved_with)}"
        ) from error
    return attributes


def _described_module(cls: type, attributes: Mapping[str, Any], weights: Mapping[str, Any]) -> DiffusionModule:
    """Build the network of the options with its weights; raise on a mismatch."""
    weights = {name: weight for name, weight in weights.items() if name != "pyro_param_store"}
    with torch.random.fork_rng(devices=[]):
        module = cls(registry=attributes["registry_"], **attributes["init_params_"]["non_kwargs"]).module
    module.load_state_dict(weights)
    return module


def check_cells_file(folder: Path, prefix: str | None, attributes: Mapping[str, Any]) -> None:
    """Raise if the cells beside a model were not saved with it."""
    file = cells_file(folder, prefix, attributes["registry_"])
    if file.exists() and sha256_of(file) != attributes.get("cells_sha256_"):
        raise ValueError(
            f"`adata`: {file} was not saved with the {prefix or ''}{MODEL_FILE} beside it, or was changed or damaged "
            "later. Pass `adata`, or `adata=False` to load the model without cells."
        )


def cells_file(folder: Path, prefix: str | None, registry: Mapping[str, Any]) -> Path:
    """Return the path at which scvi-tools saves the cells of a model."""
    name = "mdata.h5mu" if registry.get("setup_method_name") == "setup_mudata" else "adata.h5ad"
    return folder / f"{prefix or ''}{name}"


def sha256_of(file: Path) -> str:
    """Compute the SHA-256 digest of a file."""
    with file.open("rb") as opened:
        return file_digest(opened, "sha256").hexdigest()


def _other_version(saved_with: str | None) -> str:
    """Advise on a file of another version."""
    by = saved_with or "of an unknown version"
    return f"It was saved by scdiffgen {by}, and this is {version('scdiffgen')}: load it with that version."
