"""Did anything change? Digests of cells, less what scvi-tools writes when it registers them, and of weights."""

from anndata import AnnData
from scvi.model.base import BaseModelClass

from scdiffgen.testing import _comparing


def fingerprint(cells: AnnData) -> str:
    return str(_comparing.fingerprint(cells))


def weights_of(model: BaseModelClass) -> str:
    return str(_comparing.weights_of(model))
