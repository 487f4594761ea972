"""What is called for the picture of each drawing function in the API; names that are not made here are in `cells`."""

CALLS = {
    "dose_response": """
        curves = dosed_model.dose_response(controls, "A", doses=[0, 0.1, 0.3, 1, 3, 10])
        scdiffgen.pl.dose_response(curves)
    """,
    "evaluation": """
        scdiffgen.pl.evaluation(real, generated, train, "cell_type", layer="counts")
    """,
    "evaluation_dispersion": """
        table = scdiffgen.metrics.dispersion(real, generated, train, "cell_type", layer="counts")
        scdiffgen.pl.evaluation_dispersion(table)
    """,
    "evaluation_embedding": """
        scdiffgen.pl.evaluation_embedding(real, generated, "cell_type", layer="counts")
    """,
    "evaluation_gene_correlation": """
        scdiffgen.pl.evaluation_gene_correlation(real, generated, layer="counts")
    """,
    "evaluation_library_size": """
        scdiffgen.pl.evaluation_library_size(real, generated, layer="counts")
    """,
    "evaluation_mean_dropout": """
        scdiffgen.pl.evaluation_mean_dropout(real, generated, layer="counts")
    """,
    "evaluation_mean_variance": """
        scdiffgen.pl.evaluation_mean_variance(real, generated, layer="counts")
    """,
    "evaluation_roc": """
        scores = scdiffgen.metrics.evaluate(real, generated, train, "cell_type", layer="counts")
        scdiffgen.pl.evaluation_roc(scores)
    """,
    "evaluation_scores": """
        metrics = ["c2st_auc_forest_pcs", "mmd", "gene_correlation", "library_size_ks", "label_accuracy"]
        cells = real_controls, generated_controls, controls
        scores = scdiffgen.metrics.evaluate(*cells, "cell_type", layer="counts", metrics=metrics)
        scdiffgen.pl.evaluation_scores(scores)
    """,
    "power": """
        study = {"conditions": {"cell_type": "CD14+ Monocyte"}}
        table = scdiffgen.tl.power(model, n_donors=[3, 6, 9], n_cells=[20, 80], n_replicates=1, experiment=study)
        scdiffgen.pl.power(table)
    """,
    "token_contributions": """
        contributions = model.get_token_contributions(adata, gene_list=["LYZ"], indices=[0])
        scdiffgen.pl.token_contributions(contributions, adata.obs_names[0], "LYZ")
    """,
    "token_embedding": """
        sc.pp.neighbors(adata, use_rep="X_token_activation")
        sc.tl.umap(adata)
        scdiffgen.pl.token_embedding(adata)
    """,
    "token_heatmap": """
        scdiffgen.pl.token_heatmap(adata, "cell_type")
    """,
    "token_loadings": """
        scdiffgen.pl.token_loadings(adata)
    """,
    "training_history": """
        scdiffgen.pl.training_history(model.history)
    """,
}
