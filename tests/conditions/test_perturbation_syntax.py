"""Every way of writing a treatment has one canonical form, and doses stay with their names."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scdiffgen._perturbation_syntax import PerturbationSyntax

SYNTAX = PerturbationSyntax(control=("ctrl", "non+targeting"))

names = st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1, max_size=6).filter(
    lambda name: name != "ctrl"
)
doses = st.just(0.0) | st.floats(1e-30, 1e6)
treatments = st.dictionaries(names, doses, max_size=5)


def written(treatment: dict[str, float], order: random.Random, n_controls: int) -> tuple[str, str]:
    """The treatment in any order, with controls and blanks in between."""
    pairs = [(f" {name} ", f" {dose!r} ") for name, dose in treatment.items()] + [("ctrl", "0")] * n_controls
    order.shuffle(pairs)
    return "+".join(name for name, _ in pairs), "+".join(dose for _, dose in pairs)


@given(treatments, st.randoms(use_true_random=False), st.integers(0, 2))
def test_order_blanks_and_controls_do_not_matter(
    treatment: dict[str, float], order: random.Random, n_controls: int
) -> None:
    text, dose = written(treatment, order, n_controls if treatment else 1 + n_controls)
    parsed = SYNTAX.parse(text, dose)
    assert parsed == treatment
    assert list(parsed) == sorted(treatment)


@given(treatments.filter(bool))
def test_three_ways_to_give_doses_agree(treatment: dict[str, float]) -> None:
    backwards = list(treatment)[::-1]
    text = "+".join(backwards)
    as_text = SYNTAX.parse(text, "+".join(repr(treatment[name]) for name in backwards))
    assert SYNTAX.parse(text, treatment) == as_text
    assert SYNTAX.combine([*backwards, None, "ctrl"], [*(treatment[name] for name in backwards), None, 0.0]) == as_text


@given(treatments)
def test_the_canonical_name_is_read_back(treatment: dict[str, float]) -> None:
    assert list(SYNTAX.parse(SYNTAX.name(treatment))) == sorted(treatment)


def test_the_example_that_peers_get_wrong() -> None:
    assert SYNTAX.parse("B+A", "0.5+1.0") == {"A": 1.0, "B": 0.5}
    assert list(SYNTAX.parse("A+ctrl")) == ["A"]
    assert SYNTAX.parse("A+ctrl", 2.0) == {"A": 2.0}
    assert SYNTAX.parse("ctrl+A", "0+2.0") == {"A": 2.0}


@pytest.mark.parametrize("dose", ["1e+3+2E+05", "1000+200000", " 1000.0 + 2e5 "])
def test_a_sign_in_an_exponent_is_no_separator(dose: str) -> None:
    assert SYNTAX.parse("A+B", dose) == {"A": 1000.0, "B": 200000.0}


@pytest.mark.parametrize("dose", [None, float("nan"), 0, 0.0, "0", "", " "])
@pytest.mark.parametrize("control", ["ctrl", " ctrl ", "non+targeting", "ctrl+ctrl"])
def test_controls_have_no_dose_or_dose_zero(control: str, dose: object) -> None:
    assert SYNTAX.parse(control, dose) == {}


def test_without_doses_they_are_nan_and_zero_is_a_dose() -> None:
    assert all(math.isnan(dose) for dose in SYNTAX.parse("A+B").values())
    assert SYNTAX.parse("A+B", "0+1") == {"A": 0.0, "B": 1.0}


def test_another_separator() -> None:
    syntax = PerturbationSyntax(control=("DMSO",), separator="|")
    assert syntax.parse("CD4+ T|drug-1", "1e+1|2") == {"CD4+ T": 10.0, "drug-1": 2.0}


@pytest.mark.parametrize(
    ("text", "dose", "message"),
    [
        ("A++B", None, "a part is empty"),
        ("A+", None, "a part is empty"),
        ("", None, "a part is empty"),
        ("A+A", None, "'A' occurs twice"),
        ("A+B", 1.0, r"1 dose for 2 perturbations \('A', 'B'\)"),
        ("A", "1+2", "2 doses for 1 perturbation"),
        ("A", -0.1, "dose -0.1 of 'A'"),
        ("A", math.inf, "dose inf of 'A'"),
        ("A", "1 uM", "dose '1 uM' is no number; write the unit in `dose_unit`"),
        ("A+B", "1+high", "dose 'high' is no number"),
        ("ctrl", 1.0, "dose 1 of the control 'ctrl'"),
        ("A+ctrl", "1+1", "dose 1 of the control 'ctrl'"),
        ("A+B", {"A": 1.0, "C": 2.0}, "a dose is given of 'C', but the perturbation is 'A', 'B'"),
        ("A", [1.0, 2.0], r"dose \[1.0, 2.0\] is no number"),
        ("(+)-JQ1", None, r"the part '\(' has unbalanced brackets. If '\+' belongs to a name.*`perturbation_sep='&'`"),
        ("A+CC[N+](C)C", None, r"the part 'CC\[N' has unbalanced brackets.*`perturbation_sep='&'`"),
        ("a-(+|-)&b", None, r"unbalanced brackets.*`perturbation_sep=';'`"),
        ("+".join(f"g{i}" for i in range(101)), None, "101 perturbations in one combination; at most 100"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, dose: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SYNTAX.parse(text, dose)


@pytest.mark.parametrize(
    ("columns", "doses", "message"),
    [
        (["A", None], [1.0, 2.0], "dose 2 is given in a column without a perturbation"),
        (["A", "A"], [1.0, 2.0], "'A' occurs twice"),
        (["A+B", None], [1.0, None], "the name 'A[+]B' holds the separator"),
        (["A", "ctrl"], [1.0, 3.0], "dose 3 of the control 'ctrl'"),
    ],
)
def test_what_cannot_be_combined_is_named(columns: list[str | None], doses: list[float | None], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SYNTAX.combine(columns, doses)


def test_a_missing_dose_among_several_stays_missing() -> None:
    assert math.isnan(SYNTAX.parse("A+B", {"B": 1.0})["A"])
    assert SYNTAX.parse("A+B", {"B": 1.0})["B"] == 1.0


@pytest.mark.parametrize("name", ["A(1)+B", "[x]+{y(z)}", "A+B", "(", "A)", "no[pair"])
def test_names_without_a_bracket_across_the_separator_are_read(name: str) -> None:
    assert list(SYNTAX.parse(name)) == sorted(name.split("+"))


@pytest.mark.parametrize("dose", ["-0", -0.0, "0+-0"])
def test_zero_has_no_sign(dose: object) -> None:
    assert [math.copysign(1, each) for each in SYNTAX.parse("A+B" if dose == "0+-0" else "A", dose).values()][-1] == 1


def test_syntax_without_control_or_separator_is_refused() -> None:
    with pytest.raises(ValueError, match="`control` names nothing"):
        PerturbationSyntax(control=())
    with pytest.raises(ValueError, match="`perturbation_sep`"):
        PerturbationSyntax(separator=" ")
