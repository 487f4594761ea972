"""Checks and registration of cells that users pass."""

from collections.abc import Mapping
from typing import Any

from anndata import AnnData
from mudata import MuData
from scvi.data import AnnDataManagerValidationCheck
from scvi.model.base import BaseModelClass

from scdiffgen.data import Manager, SetupArguments, check_modalities, forget_copied_setup, modality_fields

from ._cells import quiet
from ._model_access import modalities


def check_cells(adata: Any, *, may_be_view: bool = True) -> None:
    """Raise unless ``adata`` is an AnnData; raise for views unless ``may_be_view``."""
    if isinstance(adata, MuData):
        raise TypeError(
            "`adata` is a MuData: register it with `setup_mudata`, or pass one of its modalities, such as "
            "`mdata['rna']`."
        )
    if not isinstance(adata, AnnData):
        raise TypeError(
            f"`adata` is of type {type(adata).__name__}: pass an AnnData. Read a file by `anndata.read_h5ad(path)`, or "
            "convert a matrix by `anndata.AnnData(matrix, obs=..., var=...)`."
        )
    if adata.is_view and not may_be_view:
        raise ValueError("`adata` is a view of other cells: pass a copy, `adata = adata.copy()`.")


def check_mudata(mdata: Any, *, may_be_view: bool = True) -> None:
    """Raise unless ``mdata`` is a MuData; raise for views unless ``may_be_view``."""
    if not isinstance(mdata, MuData):
        kind = type(mdata).__name__
        raise TypeError(f"`mdata` is of type {kind}: pass a MuData, such as `mudata.MuData({{'rna': adata}})`.")
    if mdata.is_view and not may_be_view:
        raise ValueError("`mdata` is a view of other cells: pass a copy, `mdata = mdata.copy()`.")


def register_anndata(
    cls: type[BaseModelClass], adata: AnnData, setup_method_args: dict[str, Any], options: Mapping[str, Any]
) -> None:
    """Register an AnnData for models of a class; scvi-tools passes ``options`` to register cells like earlier ones."""
    check_cells(adata, may_be_view=False)
    forget_copied_setup(adata, cls._setup_adata_manager_store)
    manager = Manager(SetupArguments(**setup_method_args["setup_args"]).fields(), setup_method_args)
    manager.register_fields(adata, **options)
    cls.register_manager(manager)


def register_mudata(
    cls: type[BaseModelClass], mdata: MuData, setup_method_args: dict[str, Any], options: Mapping[str, Any]
) -> None:
    """Register a MuData for models of a class."""
    check_mudata(mdata, may_be_view=False)
    keys = dict(setup_method_args["setup_args"])
    chosen, layers = keys.pop("modalities"), keys.pop("layers")
    names = check_modalities(mdata, chosen, layers, transfer=options.get("source_registry") is not None)
    setup_method_args["setup_args"] |= {"modalities": names, "layers": dict(layers or {})}
    forget_copied_setup(mdata, cls._setup_adata_manager_store)
    fields = [*modality_fields(names, layers or {}), *SetupArguments(**keys).condition_fields()]
    checks = AnnDataManagerValidationCheck(check_fully_paired_mudata=False)
    manager = Manager(fields, setup_method_args, checks)
    manager.register_fields(mdata, **options)
    cls.register_manager(manager)


def checked_cells(model: BaseModelClass, adata: AnnData | MuData | None) -> AnnData | MuData | None:
    """Check the type of cells and copy views; return ``None`` for the cells of the model itself."""
    if adata is None:
        if model.adata is None:
            raise ValueError("The model has no cells: pass `adata`, or load the model with cells.")
    elif modalities(model):
        check_mudata(adata)
        check_modalities(adata, modalities(model), None, transfer=True)
        if adata.is_view:
            with quiet():
                return adata.copy()
    else:
        check_cells(adata)
        if adata.is_view and adata.isbacked:  # anndata does not copy backed views into memory
            return adata.to_memory().copy()  # anndata 0.13 leaves dense matrices views
    return adata
