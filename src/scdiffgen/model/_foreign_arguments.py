"""Arguments of scvi-tools and of neighbours that users may look for here, with what to do instead."""

from __future__ import annotations

from dataclasses import fields

from scdiffgen.nn import NetworkOptions

_NO_LATENT = "A cell has one vector of tokens, which is not drawn: leave it out."
_LIKELIHOOD = "Counts are drawn molecule by molecule, without a parametric likelihood: leave it out."
_EXACT = "Expression is exact: leave it out."
_LAYERS = "Choose what is new to be learned by `unfrozen`; all that is known is frozen without it."
_SETUP = {
    "size_factor_key": "Library sizes are read off the counts, and set by `generate(library_size=...)`: leave it out.",
    "sample_key": "Register samples in `categorical_covariate_keys`, or as `batch_key`.",
    "unlabeled_category": "Register labels that some cells lack in `hierarchy_keys`, whose cells may end at any level.",
    "protein_expression_obsm_key": "Put proteins into a MuData beside the RNA, and register it with `setup_mudata`.",
}

OF_CONSTRUCTOR = {
    **{field.name: f"Pass it in `network=NetworkOptions({field.name}=...)`." for field in fields(NetworkOptions)},
    "process_options": "Pass the options in place of the name of the process, `process=GaussianOptions(...)`.",
    "n_latent": "A cell is `n_tokens` vectors of length `token_dim`.",
    "dropout_rate": "Pass it in `network=NetworkOptions(dropout=...)`.",
    **dict.fromkeys(("gene_likelihood", "dispersion", "latent_distribution"), _LIKELIHOOD),
    "use_observed_lib_size": "Library sizes are always those of the counts: leave it out.",
}
"""Where arguments are that a user may look for in the constructor."""

OF_METHODS: dict[str, dict[str, str]] = {
    "": {
        "gene_list": "It is called `genes`.",
        "dataloader": "Pass cells as `adata` and `indices`, and in minibatches of `batch_size`.",
        **dict.fromkeys(("give_mean", "mc_samples", "return_dist", "n_samples_per_cell"), _NO_LATENT),
    },
    "setup_anndata": _SETUP,
    "setup_mudata": {**_SETUP, "layer": "Name the layers by modality, `layers={'rna': 'counts'}`."},
    "train": {
        "use_gpu": "Pass `accelerator='gpu'`.",
        "lr": "Pass it to the optimiser, `plan_kwargs={'lr': ...}`.",
        "weight_decay": "Pass it to the optimiser, `plan_kwargs={'weight_decay': ...}`.",
        "load_sparse_tensor": "Minibatches are sparse always: leave it out.",
    },
    "generate": dict.fromkeys(("n_samples", "n"), "It is called `n_cells`."),
    "generate_to": dict.fromkeys(("n_samples", "n"), "It is called `n_cells`."),
    "get_normalized_expression": dict.fromkeys("n_samples n_samples_overall return_mean weights".split(), _EXACT),
    "get_feature_correlation_matrix": {"rna_size_factor": "Correlations do not depend on it: leave it out."},
    "differential_expression": {
        **dict.fromkeys(("weights", "importance_weighting_kwargs"), "Draws have equal weights: leave it out."),
        "filter_outlier_cells": "Leave outliers out of `idx1` and `idx2`.",
    },
    "load_query_data": {
        **dict.fromkeys(("freeze_dropout", "freeze_expression", "freeze_classifier"), _LAYERS),
        **{f"freeze_{layer}": _LAYERS for layer in ("decoder_first_layer", "batchnorm_encoder", "batchnorm_decoder")},
    },
}
"""Where arguments of methods are, by method; under ``""`` those of all methods that lack them."""
