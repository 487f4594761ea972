"""The arguments of ``setup_anndata`` and ``setup_mudata``, and the fields that they stand for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scvi.data.fields import BaseAnnDataField

from scdiffgen._messages import counted, listed
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.conditions import N_CELLS, PerturbationSyntax
from scdiffgen.data._category_fields import CategoricalCovariatesField, StrictCategoricalObsField, TextField
from scdiffgen.data._cell_treatments import DOSE
from scdiffgen.data._counts_field import CountsField
from scdiffgen.data._hierarchy_field import HierarchyField
from scdiffgen.data._number_field import ContinuousCovariatesField
from scdiffgen.data._perturbation_field import PerturbationField


@dataclass(frozen=True)
class SetupArguments:
    """What is registered of the cells, in the words of ``setup_anndata``, where each argument is described."""

    layer: str | None = None
    labels_key: str | None = None
    batch_key: str | None = None
    perturbation_key: str | Sequence[str] | None = None
    control: str | Sequence[str] = "control"
    perturbation_sep: str = "+"
    dose_key: str | Sequence[str] | None = None
    dose_unit: str | None = None
    hierarchy_keys: Sequence[str] | None = None
    categorical_covariate_keys: Sequence[str] | None = None
    continuous_covariate_keys: Sequence[str] | None = None
    text_key: str | None = None
    perturbation_features_key: str | None = None

    def fields(self) -> list[BaseAnnDataField]:
        """The fields of the counts and of the conditions."""
        conditions = self.condition_fields()
        return [CountsField(REGISTRY_KEYS.X, self.layer), *conditions]

    def condition_fields(self) -> list[BaseAnnDataField]:
        """The fields of the conditions: labels and batch always (one category where no column is named)."""
        labels, batch, text = self.labels_key, self.batch_key, self.text_key
        for argument in ("layer", "labels_key", "batch_key", "text_key"):
            name = getattr(self, argument)
            if name is not None and not isinstance(name, str):
                raise TypeError(f"`{argument}` is {name!r}: pass one name, as text.")
        hierarchy = _names(self.hierarchy_keys, "hierarchy_keys")
        categorical = _names(self.categorical_covariate_keys, "categorical_covariate_keys")
        continuous = _names(self.continuous_covariate_keys, "continuous_covariate_keys")
        perturbation = _names(self.perturbation_key, "perturbation_key", may_be_one=True)
        doses = _names(self.dose_key, "dose_key", may_be_one=True)
        self._raise_if_incomplete(perturbation, doses)
        single = [key for key in (labels, batch, text) if key is not None]
        reserved = {
            N_CELLS: True,
            "hierarchy": bool(hierarchy),
            "perturbation": len(perturbation) > 1,
            DOSE: bool(doses) and DOSE not in doses,
        }
        _raise_if_repeated([*single, *hierarchy, *categorical, *continuous, *perturbation, *doses], reserved)
        fields: list[BaseAnnDataField] = [
            StrictCategoricalObsField(REGISTRY_KEYS.LABELS, labels, argument="labels_key"),
            StrictCategoricalObsField(REGISTRY_KEYS.BATCH, batch, argument="batch_key"),
        ]
        if hierarchy:
            fields.append(HierarchyField(REGISTRY_KEYS.HIERARCHY, hierarchy))
        if categorical:
            fields.append(CategoricalCovariatesField(REGISTRY_KEYS.CATEGORICAL_COVARIATES, categorical))
        if continuous:
            fields.append(ContinuousCovariatesField(REGISTRY_KEYS.CONTINUOUS_COVARIATES, continuous))
        if text is not None:
            fields.append(TextField(REGISTRY_KEYS.TEXT, text, argument="text_key"))
        if perturbation:
            syntax = PerturbationSyntax(tuple(_names(self.control, "control", may_be_one=True)), self.perturbation_sep)
            how = {"dose_unit": self.dose_unit, "features_key": self.perturbation_features_key}
            fields.append(PerturbationField(REGISTRY_KEYS.PERTURBATION, perturbation, syntax, doses, **how))
        return fields

    def _raise_if_incomplete(self, perturbation: list[str], doses: list[str]) -> None:
        features_key = self.perturbation_features_key
        for argument, value in (("dose_key", doses), ("perturbation_features_key", features_key)):
            if value and not perturbation:
                raise ValueError(f"`{argument}={value!r}` needs `perturbation_key`, the column of what was done.")
        if self.dose_unit is not None and not doses:
            raise ValueError(f"`dose_unit={self.dose_unit!r}` needs `dose_key`, the column of doses.")
        if doses and len(doses) != len(perturbation):
            n_columns = counted(len(doses), "column")
            raise ValueError(
                f"`dose_key` names {n_columns} ({listed(doses)}), `perturbation_key` {len(perturbation)} "
                f"({listed(perturbation)}). Name a column of doses for each column of perturbations."
            )


def _names(keys: str | Sequence[str] | None, argument: str, *, may_be_one: bool = False) -> list[str]:
    """Names of columns or controls, of which there may be none; a text is one name where the argument takes one."""
    if isinstance(keys, str) and not may_be_one:
        raise TypeError(f"`{argument}={keys!r}` must be a list of columns: write `{argument}=[{keys!r}]`.")
    if keys is None or isinstance(keys, str):
        return [] if keys is None else [keys]
    names = list(keys) if isinstance(keys, Iterable) else [keys]
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"`{argument}` is {keys!r}: {name!r} is no name. Pass names, as text.")
    return names


def _raise_if_repeated(columns: list[str], reserved: Mapping[str, bool]) -> None:
    """Raise if a name stands for two things; those ``reserved`` are no column's name in a user's table."""
    others = [name for name, is_reserved in reserved.items() if is_reserved]
    repeated = [name for name, n in Counter([*columns, *others]).items() if n > 1]
    if repeated:
        raise ValueError(
            f"{listed(repeated)} would stand for more than one condition. Name each column once, and rename columns "
            f"that are called {listed(others)}."
        )
