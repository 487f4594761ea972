"""Checks that a file holds a saved model that this version can build."""

import inspect
from collections.abc import Mapping
from hashlib import file_digest
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from scdiffgen._messages import did_you_mean
from scdiffgen.data import modality_names
from scdiffgen.io import MODEL_FILE, UNREADABLE

from ._training_summary import TrainingSummary, check_summary


def saved_attributes(contents: Any, file: Path) -> Mapping[str, Any]:
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
                f"{did_you_mean(unknown[0], known)} {_other_version(saved_with)}"
            )
    try:
        module = _described_module(cls, attributes, contents["model_state_dict"])
        if attributes.get("is_trained_"):
            summary = TrainingSummary.from_plain(attributes["training_summary_"])
            check_summary(summary, module.specs, len(modality_names(registry)))
    except UNREADABLE as error:
        raise ValueError(
            f"`dir_path`: {file} lacks parts or weights of a model, or they do not match ({error!r:.300}). "
            f"{_other_version(saved_with)}"
        ) from error
    return attributes


def _described_module(cls: type, attributes: Mapping[str, Any], weights: Mapping[str, Any]) -> Any:
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
