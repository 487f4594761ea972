"""Registering cells: what scvi-tools' fields lack, and a user's conditions in the codes of the registered cells."""

from scdiffgen.data._counts_field import CountsField
from scdiffgen.data._feature_vectors import feature_table, sparse_combinations
from scdiffgen.data._manager import Manager, MuDataManager, forget_copied_setup
from scdiffgen.data._modality_counts import (
    ModalityCountsField,
    check_modalities,
    counts_keys,
    feature_names,
    modality_fields,
    modality_names,
)
from scdiffgen.data._open_cells import open_cells
from scdiffgen.data._registered import (
    add_perturbations,
    add_texts,
    categories_of_condition,
    condition_specs,
    encode_conditions,
    registered_conditions,
    unseen_in_training,
    unseen_texts,
    write_conditions,
)
from scdiffgen.data._registry import Registry, field_state, required_state
from scdiffgen.data._setup_arguments import SetupArguments

__all__ = [
    "CountsField",
    "Manager",
    "ModalityCountsField",
    "MuDataManager",
    "Registry",
    "SetupArguments",
    "add_perturbations",
    "add_texts",
    "categories_of_condition",
    "check_modalities",
    "condition_specs",
    "counts_keys",
    "encode_conditions",
    "feature_names",
    "feature_table",
    "field_state",
    "forget_copied_setup",
    "modality_fields",
    "modality_names",
    "open_cells",
    "registered_conditions",
    "required_state",
    "sparse_combinations",
    "unseen_in_training",
    "unseen_texts",
    "write_conditions",
]
