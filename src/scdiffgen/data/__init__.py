"""Registration of cells: fields beyond those of scvi-tools, and encoding of requested conditions."""

from scdiffgen.data._counts import CountsField, check_counts_again, modality_fields
from scdiffgen.data._open_cells import open_cells
from scdiffgen.data._perturbations import feature_table
from scdiffgen.data._registered import (
    Registry,
    add_perturbations,
    add_texts,
    categories_of_condition,
    condition_specs,
    count_matching,
    counts_keys,
    decode_conditions,
    encode_conditions,
    feature_names,
    field_state,
    modality_names,
    read_registry,
    registered_conditions,
    required_state,
    unseen_texts,
    write_conditions,
)
from scdiffgen.data._setup import (
    FEWEST_CELLS,
    NOT_GROUPED,
    Manager,
    SetupArguments,
    check_modalities,
    codes_of,
    forget_copied_setup,
    in_words,
    warn_of_few_cells,
)
