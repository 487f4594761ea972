"""Numbers are kept as they were given, with transforms fitted once."""

import pickle
from collections.abc import Callable

import anndata as ad
import numpy as np
import pandas as pd

from scdiffgen.data import Manager, condition_specs


def test_values_are_kept_and_transforms_fitted(cells: ad.AnnData, register: Callable[..., Manager]) -> None:
    cells.obs["day"] = pd.Series([0, 2, 7, None] * 6, index=cells.obs_names, dtype="Int64")
    manager = register(cells, continuous_covariate_keys=["age.years", "day"])
    expected = cells.obs[["age.years", "day"]].astype(float).to_numpy()
    np.testing.assert_allclose(cells.obsm["_scvi_extra_continuous_covs"], expected, rtol=1e-6)
    age, day = condition_specs(manager)
    assert (age.name, age.kind, age.column, day.column) == ("age.years", "number", 0, 1)
    np.testing.assert_allclose([age.transform.mean, day.transform.mean], np.nanmean(expected, axis=0))
    np.testing.assert_allclose([age.transform.scale, day.transform.scale], np.nanstd(expected, axis=0))


def test_transfer_keeps_the_transform(cells: ad.AnnData, register: Callable[..., Manager]) -> None:
    manager = register(cells, continuous_covariate_keys=["age.years"])
    query = cells[:4].copy()
    query.obs["age.years"] = [np.nan, 90.0, 91.0, 92.0]
    again = Manager(fields=manager.fields)
    again.register_fields(query, pickle.loads(pickle.dumps(manager.registry)))
    assert condition_specs(again) == condition_specs(manager)
    np.testing.assert_array_equal(query.obsm["_scvi_extra_continuous_covs"][:, 0], [np.nan, 90.0, 91.0, 92.0])
