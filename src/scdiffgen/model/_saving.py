"""Saving and loading: what is saved is whole or not there, and what is loaded runs no code."""

from __future__ import annotations

import inspect
import os
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Self

import pyro
import torch
from anndata import AnnData
from mudata import MuData
from scvi.model.base import BaseModelClass

from scdiffgen._messages import did_you_mean, listed
from scdiffgen.data import modality_names
from scdiffgen.io import _plain_data, all_or_nothing
from scdiffgen.io._plain_data import as_array, as_frame, as_object_array, as_options, as_scalar
from scdiffgen.module import GaussianOptions, LatentOptions
from scdiffgen.nn import NetworkOptions, ReadoutOptions

from ._base import ModelBase
from ._checks import check_accelerator, check_cells, check_mudata

FILE = "model.pt"
OPTIONS: list[Callable[..., Any]] = [GaussianOptions, LatentOptions, NetworkOptions, ReadoutOptions]
MAY_BE_CALLED: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
    as_array,
    as_frame,
    as_object_array,
    as_options,
    as_scalar,
    *OPTIONS,
]
FORCE, FORBID = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"

_reading = threading.RLock()


class Saving(ModelBase):
    """Models as files."""

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

        The file appears when all of it is on the disk. When saving fails or is killed, what was there before is there
        still.

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
        save_kwargs
            For :func:`torch.save`.
        **others
            As in scvi-tools, such as ``compression`` for the file of the cells.

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
        self._remember_if_training()
        self.saved_with_ = version("scdiffgen")
        plainly = {"pickle_module": _plain_data, **(save_kwargs or {})}
        # Pyro's parameters are other models', and scvi-tools would save them with this one.
        with all_or_nothing(folder) as partial, pyro.get_param_store().scope():
            super().save(str(partial), prefix, overwrite=True, save_anndata=save_anndata, save_kwargs=plainly, **others)
        if save_anndata and self.adata.isbacked:  # writing it made it follow its new file, which has moved
            self.adata.file.filename = folder / Path(self.adata.file.filename).name

    @classmethod
    def load(
        cls,
        dir_path: str | os.PathLike[str],
        adata: AnnData | bool | None = None,
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
        backup_url
            Where to get the model if the folder has none.
        datamodule
            Unused; scvi-tools has it.
        allowed_classes_names_list
            Names of other classes whose models may be loaded.
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
        file = Path(dir_path) / f"{prefix or ''}{FILE}"
        saved_with = None
        if backup_url is None or file.exists():
            check_file(file)
            if safe:
                contents = read_plainly(file)
                saved_with = check_contents(contents, file, cls, allowed_classes_names_list or [])
                if isinstance(adata, AnnData) and modality_names(contents["attr_dict"]["registry_"]):
                    check_mudata(adata)
        with only_plain_data(safe):
            try:
                return super().load(
                    str(dir_path),
                    adata,
                    accelerator,
                    device,
                    prefix,
                    backup_url,
                    datamodule,
                    allowed_classes_names_list,
                )
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

    def _remember_if_training(self) -> None:
        """Let a checkpoint, which scvi-tools saves while the model is trained, be as whole as a trained model."""
        trainer = getattr(self, "trainer", None)
        if trainer is None or trainer.state.status != "running":
            return
        split = trainer.datamodule
        self.train_indices, self.validation_indices, self.test_indices = split.train_idx, split.val_idx, split.test_idx
        self.history_ = dict(getattr(trainer.logger, "history", {}))
        self._remember_training()

    def _remember_training(self) -> None:
        """Keep of the training cells what generating needs, and settle what training left open."""
        raise NotImplementedError

    @staticmethod
    def load_registry(dir_path: str | os.PathLike[str], prefix: str | None = None) -> dict[str, Any]:
        """What was registered for a saved model, without its weights; nothing in the file is run.

        Parameters
        ----------
        dir_path
            Folder of the model.
        prefix
            Start of the names of the files.
        """
        file = Path(dir_path) / f"{prefix or ''}{FILE}"
        check_file(file)
        read_plainly(file)
        with only_plain_data():
            return BaseModelClass.load_registry(str(dir_path), prefix)


@contextmanager
def only_plain_data(safe: bool = True) -> Iterator[None]:
    """Let PyTorch read plain data alone while the block runs, also where scvi-tools asks it for more.

    PyTorch has a variable of the environment for this, which the whole process sees; so one model is read at a time.
    """
    if not safe:
        yield
        return
    with _reading, torch.serialization.safe_globals(MAY_BE_CALLED):
        before = {name: os.environ.pop(name, None) for name in (FORCE, FORBID)}
        os.environ[FORCE] = "1"
        try:
            yield
        finally:
            del os.environ[FORCE]
            os.environ.update({name: value for name, value in before.items() if value is not None})


def check_file(file: Path) -> None:
    """Raise if there is no such file, or it is cut short or damaged.

    Parameters
    ----------
    file
        File of a model.
    """
    if not file.exists():
        found = sorted(path.name for path in file.parent.glob(f"*{FILE}"))
        others = f" It has {listed(found)}: pass the start of the name as `prefix`." if found else ""
        if file.parent.is_file():
            others = f" Pass the folder, {str(file.parent.parent)!r}."
        raise FileNotFoundError(f"`dir_path`: there is no {file.name} in {file.parent}.{others}")
    whole = zipfile.is_zipfile(file)
    try:
        damaged = zipfile.ZipFile(file).testzip() if whole else None
    except (zipfile.BadZipFile, EOFError, OSError, ValueError) as error:
        damaged = str(error)
    if not whole or damaged is not None:
        how = f"damaged ({damaged})" if whole else "cut short, or no saved model"
        raise ValueError(
            f"`dir_path`: {file} is {how}. Copy it again from where it was saved, or save the model again."
        )


def read_plainly(file: Path) -> Any:
    """What a file holds, of which nothing may be more than plain data.

    Parameters
    ----------
    file
        File of a model.
    """
    try:
        with only_plain_data():
            return torch.load(file, map_location="cpu", mmap=True, weights_only=True)
    except UnpicklingError as error:
        with only_plain_data():
            named = torch.serialization.get_unsafe_globals_in_checkpoint(file)
        raise ValueError(
            f"`dir_path`: {file} holds more than plain data ({listed(sorted(named)) or error}), and reading it could "
            "run code that is in it. It was saved by an earlier version of scdiffgen, or is not what it seems. If you "
            "trust who saved it: `load(..., safe=False)`, and save it again."
        ) from error
    except (RuntimeError, ValueError, KeyError, EOFError, TypeError) as error:
        raise ValueError(
            f"`dir_path`: {file} cannot be read as a saved model ({error}). Copy it again from where it was saved, or "
            "save the model again."
        ) from error


def check_contents(contents: Any, file: Path, cls: type, allowed: list[str]) -> str | None:
    """Raise if what was read is no model of this class that this version can make; return the version that saved it.

    Parameters
    ----------
    contents
        What was read.
    file
        File of the model, for messages.
    cls
        Class of the model.
    allowed
        Names of other classes that will do.
    """
    attributes = contents.get("attr_dict") if isinstance(contents, Mapping) else None
    if not isinstance(attributes, Mapping) or not {"registry_", "init_params_"} <= set(attributes):
        raise ValueError(f"`dir_path`: {file} is no saved model. Pass the folder that `model.save(...)` was given.")
    registry, saved_with = attributes["registry_"], attributes.get("saved_with_")
    name = registry.get("model_name", cls.__name__)
    if name != cls.__name__ and name not in allowed:
        raise ValueError(f"`dir_path`: {file} is of a {name}, a different class: load it with `{name}.load`.")
    setup = getattr(cls, str(registry.get("setup_method_name", "setup_anndata")), None)
    options = {
        "model": (attributes["init_params_"].get("non_kwargs", {}), cls),
        "registration": (registry.get("setup_args", {}), setup),
    }
    for what, (given, function) in options.items():
        known = list(inspect.signature(function).parameters) if callable(function) else []
        unknown = [option for option in given if option not in known]
        if unknown:
            raise ValueError(
                f"`dir_path`: the {what} in {file} has the option {unknown[0]!r}, which this version does not have."
                f"{did_you_mean(unknown[0], known)} {other_version(saved_with)}"
            )
    return saved_with


def other_version(saved_with: str | None) -> str:
    """What to do about a file of another version.

    Parameters
    ----------
    saved_with
        Version that saved it, if known.
    """
    by = f"scdiffgen {saved_with}" if saved_with else "an earlier version of scdiffgen"
    return f"It was saved by {by}, and this is {version('scdiffgen')}: load it with that version."
