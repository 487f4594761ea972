"""Places in a hierarchy: ids follow the paths, and what is not known backs off to the parent."""

import pickle
from collections.abc import Callable

import anndata as ad
import networkx as nx
import numpy as np
import pandas as pd
import pytest

from scdiffgen.data import Manager, condition_specs
from scdiffgen.data._fields import HierarchyField

FIELD = HierarchyField("hierarchy", ["tissue", "type", "state"])


def placed(*paths: tuple[object, ...]) -> ad.AnnData:
    obs = pd.DataFrame(paths, columns=["tissue", "type", "state"], index=[f"cell{i}" for i in range(len(paths))])
    return ad.AnnData(np.ones((len(paths), 1), dtype=np.float32), obs=obs)


TRAINED = [("lung", "B", "naive"), ("blood", "B", "naive"), ("blood", "T", None), ("lung", None, None)]


def test_nodes_are_the_prefixes_and_rows_are_the_ways_from_the_root() -> None:
    adata = placed(*TRAINED)
    nodes = FIELD.register_field(adata)["nodes"]
    tree = nx.prefix_tree([[name for name in path if name is not None] for path in TRAINED])
    assert len(nodes) == tree.number_of_nodes() - 2  # without networkx's root and nil
    assert len(set(nodes)) == len(nodes)
    for path, row in zip(TRAINED, adata.obsm["_scvi_hierarchy"], strict=True):
        known = [name for name in path if name is not None]
        assert [nodes[i] for i in row if i >= 0] == [tuple(known[: depth + 1]) for depth in range(len(known))]
    assert ("lung", "B") in nodes
    assert ("blood", "B") in nodes


def test_ids_grow_level_by_level(cells: ad.AnnData, register: Callable[..., Manager]) -> None:
    manager = register(cells, hierarchy_keys=["tissue", "state"])
    codes = cells.obsm["_scvi_hierarchy"]
    n_roots = cells.obs["tissue"].nunique()
    assert set(codes[:, 0]) == set(range(n_roots))
    assert codes[:, 1][codes[:, 1] >= 0].min() == n_roots
    np.testing.assert_array_equal(codes[:, 1] < 0, cells.obs["state"].isna())
    (spec,) = condition_specs(manager)
    assert (spec.name, spec.kind, spec.n_slots) == ("hierarchy", "hierarchy", 2)
    assert spec.n_categories == manager.summary_stats.n_hierarchy == codes.max() + 1


def test_an_unseen_leaf_stays_at_its_parent_with_a_warning() -> None:
    state = pickle.loads(pickle.dumps(FIELD.register_field(placed(*TRAINED))))
    query = placed(("lung", "B", "memory"), ("blood", "NK", "naive"))
    with pytest.warns(UserWarning, match=r"3 unseen nodes \(\('blood', 'NK'\)"):
        FIELD.transfer_field(state, query)
    nodes = state["nodes"]
    assert query.obsm["_scvi_hierarchy"].tolist() == [
        [nodes.index(("lung",)), nodes.index(("lung", "B")), -1],
        [nodes.index(("blood",)), -1, -1],
    ]


def test_an_unseen_root_is_named() -> None:
    state = FIELD.register_field(placed(*TRAINED))
    with pytest.raises(ValueError, match=r"1 unseen root \('lungs'\) in column 'tissue'.*Did you mean 'lung'"):
        FIELD.transfer_field(state, placed(("lungs", "B", "naive")))


def test_extension_appends_and_keeps_all_ids() -> None:
    adata = placed(*TRAINED)
    state = FIELD.register_field(adata)
    query = placed(*TRAINED, ("lungs", "B", "naive"), ("lung", "B", "memory"))
    extended = FIELD.transfer_field(state, query, extend_categories=True)
    assert extended["nodes"][: len(state["nodes"])] == state["nodes"]
    np.testing.assert_array_equal(query.obsm["_scvi_hierarchy"][:4], adata.obsm["_scvi_hierarchy"])
    assert (query.obsm["_scvi_hierarchy"][4:] >= 0).all()


def test_a_missing_root_and_a_gap_are_named() -> None:
    with pytest.raises(ValueError, match=r"`hierarchy_keys`, column 'tissue': 1 cell of 1 has no value"):
        FIELD.register_field(placed((None, "B", "naive")))
    with pytest.raises(ValueError, match="cell 'cell0' has a 'state' but no 'type' above it"):
        FIELD.register_field(placed(("lung", None, 0)))


def test_names_of_any_type() -> None:
    adata = placed((1, True, "x"), (2, False, "y"), (10, True, "x"))
    assert FIELD.register_field(adata)["nodes"][:3] == [(1,), (2,), (10,)]


@pytest.mark.parametrize("extend", [False, True])
@pytest.mark.parametrize(
    ("tissue", "cluster", "named"), [("blood", "0", "column 'cluster': '0'"), (1, 0, "column 'tissue': 1")]
)
def test_a_place_spelled_as_one_of_another_type_is_refused(
    extend: bool, tissue: object, cluster: object, named: str
) -> None:
    def cells_at(tissues: list, clusters: list) -> ad.AnnData:
        obs = pd.DataFrame({"tissue": tissues, "cluster": np.array(clusters, dtype=object)}, index=["a", "b", "c"])
        return ad.AnnData(np.ones((3, 1), dtype=np.float32), obs=obs)

    field = HierarchyField("hierarchy", ["tissue", "cluster"])
    state = field.register_field(cells_at(["blood", "1", "1"], [0, 1, 0]))
    query = cells_at([tissue] * 3, [cluster] * 3)
    with pytest.raises(ValueError, match=f"`hierarchy_keys`, {named} is spelled as the registered.*Did you mean"):
        field.transfer_field(state, query, extend_categories=extend)
    assert not query.obsm
