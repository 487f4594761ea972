"""Keys of registered fields and stored results."""

from typing import NamedTuple

from scvi import REGISTRY_KEYS as SCVI_KEYS


class _RegistryKeys(NamedTuple):
    """Keys of registered fields, from scvi-tools if they exist there."""

    X: str = SCVI_KEYS.X_KEY
    BATCH: str = SCVI_KEYS.BATCH_KEY
    LABELS: str = SCVI_KEYS.LABELS_KEY
    CATEGORICAL_COVARIATES: str = SCVI_KEYS.CAT_COVS_KEY
    CONTINUOUS_COVARIATES: str = SCVI_KEYS.CONT_COVS_KEY
    PERTURBATION: str = "perturbation"
    HIERARCHY: str = "hierarchy"
    TEXT: str = "text"


REGISTRY_KEYS = _RegistryKeys()
