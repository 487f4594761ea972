"""Contract test of model classes; packages that extend this one may copy it with ``fingerprint.py``."""

import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
import torch
from anndata import AnnData, read_h5ad
from fingerprint import Results, demand, demand_error, demand_same, demand_unchanged, dense, fingerprint, weights_of
from hypothesis import HealthCheck, Phase, settings, stateful
from hypothesis import strategies as st
from scipy import sparse

from scdiffgen.datasets import simulate
from scdiffgen.model import TokenDiffusion
from scdiffgen.model._model_access import less_chatter

ADVICE = {
    "registry": "Register by `cls.register_manager`; keep what is learned on the instance, and change copies of cells.",
    "saving": "Save weights as the state dict of `module`, all else in attributes `name_`; compare genes when loading.",
    "query": "Copy the weights of the reference, as scvi-tools' `ArchesMixin` does.",
    "rows": "Return rows in the order of `indices`; no cell depends on others in its minibatch.",
    "forms": "Read cells by `self._validate_anndata` and `self._make_data_loader`, which check and encode them.",
    "seeds": "Draw every random number from `torch.Generator(device).manual_seed(seed)`, and seed nothing global.",
    "untrained": "Raise RuntimeError unless `self.is_trained_`.",
    "calls": "Keep no result or state of a call on the model, and write nothing into the user's cells.",
}
CHECKS = tuple(ADVICE)
READING = ("get_latent_representation", "get_normalized_expression")
CONVERT: dict[str, Callable[[np.ndarray], Any]] = {
    "CSR": sparse.csr_array,
    "CSC": sparse.csc_matrix,
    "an array by columns": np.asfortranarray,
    "uint16": methodcaller("astype", "uint16"),
    "float64": methodcaller("astype", "float64"),
}


@dataclass
class Contract:
    """Checks of a model class, one method each; no check may change the model ``trained``."""

    cls: type[TokenDiffusion]
    given: AnnData
    setup: Mapping[str, Any]
    options: Mapping[str, Any]
    folder: Path
    n_examples: int

    # Helpers of the checks.

    def cells(self, convert: Callable[[np.ndarray], Any] = np.copy) -> AnnData:
        """Copy the cells, with converted counts."""
        cells = self.given.copy()
        cells.X = convert(cells.X)
        return cells

    def on_disk(self) -> AnnData:
        file = self.folder / f"cells{len([*self.folder.iterdir()])}.h5ad"
        self.given.write_h5ad(file)
        return read_h5ad(file, backed="r")

    def make(self, cells: AnnData) -> TokenDiffusion:
        self.cls.setup_anndata(cells, **self.setup)
        return self.cls(cells, **self.options)

    def train(self, model: TokenDiffusion) -> None:
        quiet: dict[str, Any] = {"accelerator": "cpu", "enable_progress_bar": False, "logger": False}
        model.train(max_epochs=2, batch_size=8, plan_kwargs={"lr": 0.02}, **quiet)

    @cached_property
    def trained(self) -> TokenDiffusion:
        model = self.make(self.cells())
        self.train(model)
        return model

    def reloaded(self, model: TokenDiffusion, cells: AnnData | bool) -> TokenDiffusion:
        model.save(self.folder / "model", overwrite=True)
        return self.cls.load(self.folder / "model", cells, accelerator="cpu")

    def generated(self, model: TokenDiffusion, seed: int = 0) -> Results:
        before = _global_randomness()
        cells = model.generate(n_cells=5, n_steps=2, seed=seed, silent=True)
        unchanged = _global_randomness() == before
        demand(unchanged, "`generate(seed=...)` to leave global randomness alone", "another state of torch or NumPy")
        return {f"cells of `generate(seed={seed})`": dense(cells.X)}

    def read(self, model: TokenDiffusion, cells: AnnData | None = None, **rows: Any) -> Results:
        return {f"`{name}`": np.asarray(getattr(model, name)(cells, silent=True, **rows)) for name in READING}

    def results(self, model: TokenDiffusion) -> Results:
        return self.generated(model) | self.read(model, self.cells())

    # The checks.

    def check_registry(self) -> None:
        cells, before = self.trained.adata, self.results(self.trained)
        demand_unchanged(fingerprint(cells), fingerprint(self.given), "cells in setup and training")
        second = self.cls(cells, **self.options)
        demand(second.adata_manager is self.trained.adata_manager, "one `adata_manager` of one AnnData", "a second one")
        self.train(second)
        self.make(cells)
        demand_same(self.results(self.trained), before, "after another model of the cells was trained")

    def check_saving(self) -> None:
        expected = self.results(self.trained)
        for what, cells in {"its cells": self.cells(), "other cells": self.cells()[::-2].copy(), "none": False}.items():
            demand_same(self.results(self.reloaded(self.trained, cells)), expected, f"after loading with {what}")
        names = self.given.var_names.tolist()
        for other in (["new", *names[1:]], names[::-1]):
            cells = self.cells()
            cells.var_names = other
            demand_error(ValueError, "`load` with other genes", self.reloaded, self.trained, cells)
            demand_error(ValueError, "cells with other genes", self.read, self.trained, cells)

    def check_query(self) -> None:
        before = weights_of(self.trained)
        query = self.cls.load_query_data(self.cells(), self.trained, unfrozen=True)
        demand_same(self.results(query), self.results(self.trained), "of a query model before training")
        self.train(query)
        demand_unchanged(weights_of(self.trained), before, "weights of the reference of a query model")

    def check_rows(self) -> None:
        full = self.read(self.trained)
        for rows in (np.array([7, 3, 3, 0]), np.arange(self.given.n_obs) % 3 == 0):
            for cells in (None, self.on_disk()):
                chosen = self.read(self.trained, cells, indices=rows, batch_size=3)
                demand_same(chosen, full, f"for `indices={rows.tolist()}`", rows)

    def check_forms(self) -> None:
        expected = self.read(self.trained)
        for what, cells, rows in self._other_forms():
            demand_same(self.read(self.trained, cells), expected, f"from {what}", rows)
            demand(np.array_equal(dense(cells.X), self.given.X[rows]), f"the counts of {what} to stay", "others")
        fractions = self.cells(lambda counts: counts + np.float32(0.5))
        demand_error(ValueError, "fractions in `setup_anndata`", self.make, fractions.copy())
        demand_error(ValueError, "fractions in other cells", self.read, self.trained, fractions)
        demand_error(ValueError, "a view in `setup_anndata`", self.make, self.cells()[:9])
        if column := self.setup.get("labels_key"):
            cells = self.cells()
            cells.obs[column] = "no such category"
            demand_error(ValueError, "a category that is not registered", self.read, self.trained, cells)

    def _other_forms(self) -> Iterator[tuple[str, AnnData, Any]]:
        """Yield cells as other matrices and types, as views, on disk and with other categories, and their rows."""
        every, some = slice(None), [9, 2, 4]
        for name, convert in CONVERT.items():
            yield f"counts as {name}", self.cells(convert), every
        parent = self.cells()
        yield "a view", parent[some], some
        demand_unchanged(fingerprint(parent), fingerprint(self.given), "the parent of a view that is read")
        if column := self.setup.get("labels_key"):
            labels = self.given.obs[column].astype("category")
            last = np.flatnonzero(labels == labels.cat.categories[-1])
            yield f"one category of {column!r}", self.cells()[last].copy(), last
            cells = self.cells()
            cells.obs[column] = labels.cat.reorder_categories(labels.cat.categories[::-1])
            yield f"{column!r} with categories in another order", cells, every
        yield "cells on disk", self.on_disk(), every
        yield "a view of cells on disk", self.on_disk()[some], some

    def check_seeds(self) -> None:
        before = weights_of(self.trained)
        first, again, other = (self.generated(self.trained, seed) for seed in (0, 0, 1))
        demand_same(again, first, "when called again")
        (one,), (another,) = first.values(), other.values()
        demand(not np.array_equal(one, another), "other cells from another seed", "the same")
        demand_unchanged(weights_of(self.trained), before, "weights in `generate`")

    def check_untrained(self) -> None:
        model = self.make(self.cells())
        for name in ("generate", *READING):
            demand_error(RuntimeError, f"`{name}` before training", getattr(model, name))

    def check_calls(self) -> None:
        run_call_orders(self, self.n_examples)


def _global_randomness() -> str:
    return repr((torch.get_rng_state().tolist(), np.random.get_state()))


class CallOrders(stateful.RuleBasedStateMachine):
    """State machine of a model with the same results as a copy saved after the last training."""

    contract: Any

    @stateful.initialize(is_trained=st.booleans())
    def begin(self, is_trained: bool) -> None:
        self.cells, self.others = self.contract.cells(), self.contract.cells()
        self.model = self.contract.make(self.cells)
        if is_trained:
            self.model = self.contract.reloaded(self.contract.trained, self.cells)
        self.ask_a_copy()

    def ask_a_copy(self) -> None:
        """Record the weights, and the results of a saved and loaded copy."""
        self.weights, copy = weights_of(self.model), self.contract.reloaded(self.model, False)
        self.answers = self.contract.results(copy) if copy.is_trained else {}

    @stateful.rule()
    def train(self) -> None:
        self.contract.train(self.model)
        self.ask_a_copy()

    @stateful.precondition(lambda self: self.model.is_trained)
    @stateful.rule(seed=st.integers(0, 1), own_cells=st.booleans())
    def generate_and_read(self, seed: int, own_cells: bool) -> None:
        self.contract.generated(self.model, seed)
        self.contract.read(self.model, None if own_cells else self.others)

    @stateful.rule()
    def save_and_load(self) -> None:
        self.model = self.contract.reloaded(self.model, self.cells)

    @stateful.invariant()
    def nothing_else_changes(self) -> None:
        if self.model.is_trained:
            demand_same(self.contract.results(self.model), self.answers, "as of a copy saved after training")
        else:
            demand_error(RuntimeError, "`generate` before training", self.contract.generated, self.model)
        for cells in (self.cells, self.others):
            demand_unchanged(fingerprint(cells), fingerprint(self.contract.given), "cells")
        demand_unchanged(weights_of(self.model), self.weights, "weights between trainings")


def run_call_orders(contract: Any, n_examples: int) -> None:
    """Run reproducible random sequences of calls."""
    machine = type("CallOrders", (CallOrders,), {"contract": contract})
    repeatable = settings(max_examples=n_examples, stateful_step_count=5, derandomize=True, database=None)
    quiet = settings(repeatable, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    stateful.run_state_machine_as_test(machine, settings=quiet)


def check_model(
    cls: type[TokenDiffusion],
    cells: AnnData | None = None,
    *,
    setup: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    checks: Sequence[str] = CHECKS,
    n_examples: int = 10,
) -> None:
    """Test that a model class keeps the contract of the package, like scikit-learn's ``check_estimator``.

    Use it to test subclasses of :class:`~scdiffgen.model.TokenDiffusion` and diffusion processes. Models of a few cells
    are trained for two epochs on the CPU, which takes seconds. The checks:

    - ``registry``: setup and training do not change cells; two models of one AnnData share only its manager.
    - ``saving``: a loaded model gives equal results with its cells, other cells or none; other genes are refused.
    - ``query``: a query model starts with the weights of its reference, which its training does not change.
    - ``rows``: results for ``indices`` are those rows of the full result, in any order and minibatch.
    - ``forms``: dense and sparse matrices, integers and floats, views, files on disk, and labels in any order give
      equal results; fractions and unknown labels are refused.
    - ``seeds``: equal seeds generate equal cells, other seeds other cells, and the global random state is unchanged.
    - ``untrained``: methods raise RuntimeError before training.
    - ``calls``: results do not depend on earlier calls except ``train``, in call sequences drawn by hypothesis.

    ``cells`` are at least ten, with counts in ``.X``; by default simulated ones, with ``cell_type`` and ``batch`` as
    labels and batches. ``setup`` and ``options`` are arguments of ``setup_anndata`` and of the constructor. The
    ``n_examples`` call sequences of ``calls`` are the same each time. A failed check raises AssertionError with the
    expected and the found result, and the remedy.
    """
    if unknown := [name for name in checks if name not in CHECKS]:
        raise ValueError(f"`checks` names {unknown}: choose from {list(CHECKS)}.")
    setup = {"labels_key": "cell_type", "batch_key": "batch"} if setup is None else setup
    with (
        tempfile.TemporaryDirectory() as folder,
        torch.random.fork_rng(devices=[]),
        less_chatter("scvi"),
        warnings.catch_warnings(action="ignore"),
    ):
        torch.manual_seed(0)
        if cells is None:
            cells = simulate(n_cells=24, n_genes=12)
            cells.X = cells.layers["counts"]
        given = cells.copy()
        given.X = dense(given.X)
        contract = Contract(cls, given, setup, options or {}, Path(folder), n_examples)
        for name in checks:
            try:
                getattr(contract, f"check_{name}")()
            except Exception as error:
                found = error if isinstance(error, AssertionError) else f"Expected no error; found {error!r}."
                raise AssertionError(f"`{cls.__name__}` fails the check {name!r}. {found} {ADVICE[name]}") from error
