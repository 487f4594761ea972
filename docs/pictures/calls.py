"""What is called for the picture of each drawing function in the API; names that are not made here are in `cells`."""

CALLS = {
    "dose_response": """
        curves = dosed_model.dose_response(controls, "A", doses=[0, 0.1, 0.3, 1, 3, 10])
        scdiffgen.pl.dose_response(curves)
    """,
    "evaluation": """
        scdiffgen.pl.evaluation(real, generated, train, "cell_type", layer="counts")
    """,
    "membership_inference": """
        options = {"groupby": "cell_type", "layer": "counts", "max_fpr": 0.1}
        attacks = {
            name: scdiffgen.metrics.membership_inference(train[model.train_indices], real, cells, **options)
            for name, cells in {"copies": train, "generated": generated}.items()
        }
        scdiffgen.pl.membership_inference(attacks)
    """,
    "power_curves": """
        designs = {"n_donors": [3, 6, 9], "n_cells": [20, 80]}
        study = {"conditions": {"cell_type": "CD14+ Monocyte"}}
        table = scdiffgen.tl.power_analysis(model, **designs, n_replicates=1, experiment=study)
        scdiffgen.pl.power_curves(table)
    """,
    "ranked_experiments": """
        from scdiffgen.responses import ResponseEstimator

        cells = scdiffgen.datasets.simulate(2000, doses=[3.0])
        measured = cells.obs["perturbation"].isin(["control", "A"]) | (cells.obs["cell_type"] == "type_0")
        labels = [cells.obs.loc[measured, name].astype(str) for name in ("cell_type", "batch", "perturbation")]
        estimator = ResponseEstimator.fit(cells[measured].layers["counts"], *labels)
        pairs = pd.MultiIndex.from_product([["type_1", "type_2", "type_3"], ["B", "A+B"]])
        candidates = pairs.to_frame(index=False, name=["context", "treatment"])
        scdiffgen.pl.ranked_experiments(scdiffgen.tl.rank_experiments(estimator, candidates))
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
