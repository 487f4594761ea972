"""What a file must hold to be a saved model that this version can make."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scdiffgen._messages import did_you_mean

from ._training_summary import TrainingSummary


def check_contents(contents: Any, file: Path, cls: type, allowed: list[str]) -> str | None:
    """Raise if what was read is no model of this class, or an ``allowed`` one, that this version can make.

    Returns the version that saved it.
    """
    attributes = contents.get("attr_dict") if isinstance(contents, Mapping) else None
    needed = ("registry_", "init_params_")
    if not isinstance(attributes, Mapping) or not all(isinstance(attributes.get(name), Mapping) for name in needed):
        raise ValueError(f"`dir_path`: {file} is no saved model. Pass the folder that `model.save(...)` was given.")
    registry, saved_with = attributes["registry_"], attributes.get("saved_with_")
    try:
        _ = registry["field_registries"], attributes["init_params_"]["non_kwargs"], attributes["init_params_"]["kwargs"]
        if attributes.get("is_trained_"):
            TrainingSummary.from_plain(attributes["training_summary_"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"`dir_path`: {file} lacks parts of a model ({error!r}). {other_version(saved_with)}"
        ) from error
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
    """What to do about a file of another version."""
    by = f"scdiffgen {saved_with}" if saved_with else "an earlier version of scdiffgen"
    return f"It was saved by {by}, and this is {version('scdiffgen')}: load it with that version."
