"""scdiffgen: conditional token diffusion for single-cell counts. Sub-packages load on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scdiffgen import datasets, metrics, model, pl, tl

__all__ = ["__version__", "datasets", "metrics", "model", "pl", "tl"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("scdiffgen")
    if name in __all__:
        return import_module(f"scdiffgen.{name}")
    raise AttributeError(f"module 'scdiffgen' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
