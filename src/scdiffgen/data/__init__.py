"""Registering cells: what scvi-tools' fields lack, and a user's conditions in the codes of the registered cells."""

from scdiffgen.data._category_fields import CategoricalCovariatesField, StrictCategoricalObsField
from scdiffgen.data._counts_field import CountsField
from scdiffgen.data._encode import condition_columns, encode_conditions, write_conditions
from scdiffgen.data._extend import add_perturbations, add_texts, unseen_texts
from scdiffgen.data._fields import fields_for
from scdiffgen.data._hierarchy_field import HierarchyField
from scdiffgen.data._manager import Manager, forget_copied_setup
from scdiffgen.data._modalities import (
    ModalityCountsField,
    check_modalities,
    counts_keys,
    feature_names,
    modality_fields,
    modality_names,
    rows_in,
)
from scdiffgen.data._mudata_manager import MuDataManager
from scdiffgen.data._number_field import ContinuousCovariatesField
from scdiffgen.data._open import open_cells
from scdiffgen.data._perturbation_features import feature_table
from scdiffgen.data._perturbation_field import PerturbationField
from scdiffgen.data._registry import Registry, field_state, required_state
from scdiffgen.data._resemblance import sparse_combinations
from scdiffgen.data._specs import categories_of_condition, condition_specs
from scdiffgen.data._text_field import TextField
from scdiffgen.data._unseen import Unseen, registered_conditions, unseen_in_training

__all__ = [
    "CategoricalCovariatesField",
    "ContinuousCovariatesField",
    "CountsField",
    "HierarchyField",
    "Manager",
    "ModalityCountsField",
    "MuDataManager",
    "PerturbationField",
    "Registry",
    "StrictCategoricalObsField",
    "TextField",
    "Unseen",
    "add_perturbations",
    "add_texts",
    "categories_of_condition",
    "check_modalities",
    "condition_columns",
    "condition_specs",
    "counts_keys",
    "encode_conditions",
    "feature_names",
    "feature_table",
    "field_state",
    "fields_for",
    "forget_copied_setup",
    "modality_fields",
    "modality_names",
    "open_cells",
    "registered_conditions",
    "required_state",
    "rows_in",
    "sparse_combinations",
    "unseen_in_training",
    "unseen_texts",
    "write_conditions",
]
