"""Whatever is passed, it is understood as it is meant or refused with words; drawn by hypothesis."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from fingerprint import fingerprint
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from scdiffgen._perturbation_syntax import PerturbationSyntax
from scdiffgen.conditions import request_table
from scdiffgen.data import Manager, SetupArguments, encode_conditions
from scdiffgen.model import TokenDiffusion

FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ANY_TEXT = st.text(max_size=12)
EXAMPLES = ["a", "b", "A", "B", "A+B", "ctrl", "0.5", "0.5+2", "nan", "inf", "-1", 0.5, 40]
ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    ANY_TEXT,
    st.binary(max_size=4),
    st.lists(st.integers(), max_size=2),
    st.sampled_from(EXAMPLES),
)
REFUSED = (ValueError, TypeError, KeyError)


@FEW
@given(text=ANY_TEXT | st.text("AB+ ", max_size=6), dose=st.none() | ANY_TEXT | st.text("0123456789.+-e", max_size=6))
@example(text="+", dose=None)
@example(text="A", dose="1e400")
def test_any_text_is_a_perturbation_or_refused(text: str, dose: str | None) -> None:
    """And what is read is read again from its canonical name."""
    syntax = PerturbationSyntax(control=("ctrl",))
    try:
        parsed = syntax.parse(text, dose)
    except ValueError as error:
        assert str(error)
        return
    wanted = {part.strip() for part in text.split("+")} - {"ctrl"}
    assert set(parsed) == wanted and list(parsed) == sorted(parsed)
    assert all(np.isnan(value) or 0 <= value < np.inf for value in parsed.values())
    assert syntax.parse(syntax.name(parsed), parsed or None) == pytest.approx(parsed, nan_ok=True)


@FEW
@given(doses=st.lists(st.floats(), min_size=1, max_size=3), separator=st.sampled_from(["+", "|", ", ", "&&"]))
@example(doses=[5e-324, 1.7976931348623157e308], separator="+")
@example(doses=[1e-30, 1e30], separator="+")
@example(doses=[-0.0], separator="+")
def test_doses_are_read_as_they_are_printed(doses: list[float], separator: str) -> None:
    names = [f"drug {i}" for i in range(len(doses))]
    text, written = separator.join(names), separator.join(map(repr, doses))
    syntax = PerturbationSyntax(separator=separator)
    faults = {"finite and at least 0": [np.isinf(dose) or dose < 0 for dose in doses]}
    faults["in another unit"] = [0 < dose < 1e-30 or 1e30 < dose < np.inf for dose in doses]  # beyond float32
    found = [message for message, which in faults.items() if any(which)]
    if found:
        with pytest.raises(ValueError, match="|".join(found)):
            syntax.parse(text, written)
    else:
        np.testing.assert_equal(list(syntax.parse(text, written).values()), [dose + 0.0 for dose in doses])  # -0 is 0


SMALL_COUNTS = st.tuples(st.integers(0, 5), st.integers(0, 4)).flatmap(
    lambda shape: hnp.arrays("int64", shape, elements=st.integers(0, 4))
)
CONTAINERS = [np.asarray, np.asfortranarray, sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array]


@FEW
@given(
    counts=SMALL_COUNTS,
    dtype=st.sampled_from(["uint8", "int8", "int64", "uint32", "float16", "float32", "float64", "bool"]),
    container=st.sampled_from(CONTAINERS),
    spoil=st.none() | st.sampled_from([-1.0, 0.5, np.nan, np.inf, 3e7]),
    layer=st.none() | st.just("counts"),
)
def test_counts_of_any_shape_and_type_are_kept_or_refused(
    counts: np.ndarray, dtype: str, container: Any, spoil: float | None, layer: str | None
) -> None:
    values = np.minimum(counts, 1).astype(dtype) if dtype == "bool" else counts.astype(dtype)
    spoilt = spoil is not None and values.size and values.dtype.kind == "f"
    if spoilt:
        with np.errstate(over="ignore"):
            values[-1, -1] = spoil
    obs = pd.DataFrame(index=[f"c{i}" for i in range(values.shape[0])])
    if values.dtype == np.float16 and container not in CONTAINERS[:2]:
        values = values.astype(np.float32)  # SciPy has no sparse matrices of half precision
    adata = AnnData(container(values), obs=obs, var=pd.DataFrame(index=[f"g{i}" for i in range(values.shape[1])]))
    if layer:
        adata.layers[layer] = adata.X.copy()
    before, manager = fingerprint(adata), Manager(fields=SetupArguments(layer=layer).fields())
    if spoilt or not values.size or (values.sum(1) == 0).any():
        with pytest.raises(ValueError, match="`adata.X`|`layer='counts'`"):
            manager.register_fields(adata)
        assert fingerprint(adata) == before
    else:
        manager.register_fields(adata)
        kept = manager.get_from_registry("X")
        np.testing.assert_array_equal(kept.toarray() if sparse.issparse(kept) else kept, values)
        assert manager.summary_stats.n_vars == values.shape[1]


@FEW
@given(
    asked=st.dictionaries(
        st.sampled_from(["cell_type", "batch", "age", "guide", "dose", "celltype"]) | ANY_TEXT, ANYTHING, max_size=4
    )
)
def test_any_question_is_understood_or_refused(asked: dict[str, Any], tiny: TokenDiffusion) -> None:
    """What is understood is finite, and of the cells' own categories."""
    try:
        encoded = encode_conditions(tiny.registry, request_table(asked))
    except REFUSED as error:
        assert str(error)
        return
    for spec in tiny.module.specs:
        parts = encoded[spec.name]
        assert np.isfinite(parts.values[parts.mask]).all()
        assert (parts.ids[parts.mask] < max(spec.n_categories, 1)).all()


LABELS = st.lists(
    st.one_of(ANY_TEXT, st.integers(-3, 3), st.booleans(), st.none(), st.floats()), min_size=2, max_size=6
)


@FEW
@given(labels=LABELS)
@pytest.mark.filterwarnings("ignore")
def test_any_labels_are_kept_or_refused(labels: list[Any]) -> None:
    obs = pd.DataFrame(
        {"label": pd.Series(labels, dtype=object).to_numpy()}, index=[f"c{i}" for i in range(len(labels))]
    )
    adata = AnnData(np.ones((len(labels), 2)), obs=obs)
    manager, before = Manager(fields=SetupArguments(labels_key="label").fields()), fingerprint(adata)
    missing = [label is None or label != label for label in labels]
    try:
        manager.register_fields(adata)
    except REFUSED as error:
        assert any(missing) or len({type(label) for label in labels}) > 1
        assert "`labels_key='label'`" in str(error)
        assert fingerprint(adata) == before
        return
    assert not any(missing)
    state = manager.get_state_registry("labels")
    back = np.asarray(state.categorical_mapping, dtype=object)[adata.obs["_scvi_labels"]]
    assert back.tolist() == labels
