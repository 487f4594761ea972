"""The contract between a model and its users, as a test."""

from __future__ import annotations

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
from mudata import MuData
from scipy import sparse

from scdiffgen.datasets import simulate
from scdiffgen.model import TokenDiffusion
from scdiffgen.model._quiet import less_chatter

from ._comparing import Results, demand, demand_error, demand_same, dense, fingerprint, parts_of, weights_of

try:
    from hypothesis import HealthCheck, Phase, settings, stateful
    from hypothesis import strategies as st
except ImportError as error:
    raise ImportError("`scdiffgen.testing` needs hypothesis: `pip install 'scdiffgen[testing]'`.") from error

ADVICE = {
    "registry": "Register by `cls.register_manager`; keep what is learned on the instance, and change copies of cells.",
    "saving": "Save weights as the state dict of `module`, all else in attributes `name_`; compare genes when loading.",
    "query": "Copy the weights of the reference, and bring genes into its order, as scvi-tools' `ArchesMixin` does.",
    "rows": "Return rows in the order of `indices`; no cell depends on others in its minibatch.",
    "forms": "Read cells by `self._validate_anndata` and `self._make_data_loader`, which check and encode them.",
    "seeds": "Draw every random number from `torch.Generator(device).manual_seed(seed)`, and seed nothing global.",
    "untrained": "Raise RuntimeError unless `self.is_trained_`.",
    "calls": "Keep no result or state of a call on the model, and write nothing into the user's cells.",
}
CHECKS = tuple(ADVICE)
READING = ("get_latent_representation", "get_normalized_expression")
CONVERT: dict[str, Callable[[np.ndarray], Any]] = {
    **{"CSR": sparse.csr_array, "CSC": sparse.csc_matrix, "an array by columns": np.asfortranarray},
    **{dtype: methodcaller("astype", dtype) for dtype in ("uint16", "int64", "float16", "float64")},
}


@dataclass
class Contract:
    """A method a check; ``trained`` is a model of the class that no check may change."""

    cls: type[TokenDiffusion]
    given: AnnData | MuData
    setup: Mapping[str, Any]
    options: Mapping[str, Any]
    folder: Path
    n_examples: int

    def cells(self, convert: Callable[[np.ndarray], Any] = np.copy) -> Any:
        """Copy the cells, with counts (of the first modality) in another form."""
        part = parts_of(cells := self.given.copy())[0]
        part.X = convert(part.X)
        return cells

    def on_disk(self) -> Any:
        """Open a file of the cells; those of a MuData are in memory."""
        if isinstance(cells := self.cells(), MuData):
            return cells
        cells.write_h5ad(file := self.folder / f"cells{len([*self.folder.iterdir()])}.h5ad")
        return read_h5ad(file, backed="r")

    def register(self, cells: Any) -> None:
        (self.cls.setup_mudata if isinstance(cells, MuData) else self.cls.setup_anndata)(cells, **self.setup)

    def make(self, cells: Any) -> TokenDiffusion:
        self.register(cells)
        return self.cls(cells, **self.options)

    def train(self, model: TokenDiffusion) -> None:
        quiet: dict[str, Any] = {"accelerator": "cpu", "enable_progress_bar": False, "logger": False}
        model.train(max_epochs=2, batch_size=8, plan_kwargs={"lr": 0.02}, **quiet)

    @cached_property
    def trained(self) -> TokenDiffusion:
        model = self.make(self.cells())
        self.train(model)
        return model

    def reloaded(self, model: TokenDiffusion, cells: Any) -> TokenDiffusion:
        model.save(self.folder / "model", overwrite=True)
        return self.cls.load(self.folder / "model", cells, accelerator="cpu")

    def generated(self, model: TokenDiffusion, seed: int = 0) -> Results:
        state = repr((torch.get_rng_state().tolist(), np.random.get_state()))
        cells = model.generate(n_cells=5, n_steps=2, seed=seed, silent=True)
        same = state == repr((torch.get_rng_state().tolist(), np.random.get_state()))
        demand(same, "`generate(seed=...)` to leave global randomness alone", "another state of torch or NumPy")
        return {f"cells of `generate(seed={seed})`": dense(cells)}

    def read(self, model: TokenDiffusion, cells: Any = None, methods: Sequence[str] = READING, **rows: Any) -> Results:
        found = {name: getattr(model, name)(cells, silent=True, **rows) for name in methods}
        return {f"`{name}`": np.hstack([*x.values()] if isinstance(x, dict) else [x]) for name, x in found.items()}

    def results(self, model: TokenDiffusion) -> Results:
        return self.generated(model) | self.read(model, self.cells())

    def check_registry(self) -> None:
        cells, before = self.trained.adata, self.results(self.trained)
        demand(fingerprint(cells) == fingerprint(self.given), "cells unchanged by setup and training", "changed ones")
        second = self.cls(cells, **self.options)
        demand(second.adata_manager is self.trained.adata_manager, "one `adata_manager` of one AnnData", "a second one")
        registered = second.registry["setup_args"]
        demand(self.setup.items() <= registered.items(), "the setup in `model.registry`", f"{registered}")
        self.train(second)
        self.register(cells)
        demand_same(self.results(self.trained), before, "after another model of the cells was trained")

    def check_saving(self) -> None:
        expected = self.results(self.trained)
        for what, cells in {"its cells": self.cells(), "other cells": self.cells()[::-2].copy(), "none": False}.items():
            demand_same(self.results(self.reloaded(self.trained, cells)), expected, f"after loading with {what}")
        names = parts_of(self.given)[0].var_names.tolist()
        for other in (["new", *names[1:]], names[::-1]):
            parts_of(cells := self.cells())[0].var_names = other
            demand_error(ValueError, "`load` with other genes", self.reloaded, self.trained, cells)
            demand_error(ValueError, "cells with other genes", self.read, self.trained, cells)

    def check_query(self) -> None:
        if isinstance(self.given, MuData):
            return
        expected, before = self.cells().to_df(), weights_of(self.trained)
        cells = self.cells()[:, ::-1].copy()
        cells.var_names = [*cells.var_names[:-1], "new"]  # in place of the first gene
        expected.iloc[:, 0] = 0
        prepared: Any = self.cls.prepare_query_anndata(cells, self.trained, inplace=False)
        demand(list(prepared.var_names) == list(expected), "the genes of the reference", f"{list(prepared.var_names)}")
        demand_same({"counts": dense(prepared)}, {"counts": expected.to_numpy()}, "in prepared cells, or 0")
        query = self.cls.load_query_data(self.cells(), self.trained, unfrozen=True)
        demand_same(self.results(query), self.results(self.trained), "of a query model before training")
        self.train(query)
        demand(weights_of(self.trained) == before, "the reference unchanged by its query model", "other weights")

    def check_rows(self) -> None:
        full = self.read(self.trained)
        for rows in (np.array([7, 3, 3, 0]), np.arange(self.given.n_obs) % 3 == 0):
            for cells in (None, self.on_disk()):
                found = self.read(self.trained, cells, indices=rows, batch_size=3)
                demand_same(found, full, f"for `indices={rows.tolist()}`", rows)

    def other_forms(self) -> Iterator[tuple[str, Any, Any]]:
        """The same cells, or rows of them, in other matrices and types, as views, on disk, with other categories."""
        every, some = slice(None), [9, 2, 4]
        yield from ((f"counts as {name}", self.cells(convert), every) for name, convert in CONVERT.items())
        parent = self.cells()
        yield "a view", parent[some], some
        demand(fingerprint(parent) == fingerprint(self.given), "the parent of a view unchanged", "a changed one")
        for column in {self.setup.get("labels_key"), self.setup.get("batch_key")} - {None}:
            labels = self.given.obs[column].astype("category")
            last = np.flatnonzero(labels == labels.cat.categories[-1])
            yield f"one category of {column!r}", self.cells()[last].copy(), last
            for values in (labels.cat.reorder_categories(labels.cat.categories[::-1]), labels.astype(object)):
                (cells := self.cells()).obs[column] = values
                yield f"{column!r} of type {values.dtype}", cells, every
        yield "cells on disk", self.on_disk(), every
        yield "a view of cells on disk", self.on_disk()[some], some

    def check_forms(self) -> None:
        expected = self.read(self.trained) | {"counts": dense(self.given)}
        for what, cells, rows in self.other_forms():
            demand_same(self.read(self.trained, cells) | {"counts": dense(cells)}, expected, f"from {what}", rows)
        fractions = self.cells(lambda x: x + np.float32(0.5))
        demand_error(ValueError, "fractions in `setup_anndata`", self.register, fractions.copy())
        demand_error(ValueError, "fractions in other cells", self.read, self.trained, fractions)
        demand_error(ValueError, "a view in `setup_anndata`", self.register, self.cells()[:9])
        if column := self.setup.get("labels_key"):
            (cells := self.cells()).obs[column] = "no such category"
            demand_error(ValueError, "a category that is not registered", self.read, self.trained, cells)

    def check_seeds(self) -> None:
        before = weights_of(self.trained)
        first, again, other = (self.generated(self.trained, seed) for seed in (0, 0, 1))
        demand_same(again, first, "when called again")
        (one,), (another,) = first.values(), other.values()
        demand(not np.array_equal(one, another), "other cells from another seed", "the same")
        demand(weights_of(self.trained) == before, "`generate` to leave the weights alone", "other weights")

    def check_untrained(self) -> None:
        model = self.make(self.cells())
        demand_error(RuntimeError, "`generate` before training", self.generated, model)
        for name in READING:
            demand_error(RuntimeError, f"`{name}` before training", self.read, model, None, [name])

    def check_calls(self) -> None:
        machine = type("CallOrders", (CallOrders,), {"contract": self})
        chosen = settings(max_examples=self.n_examples, stateful_step_count=5, derandomize=True, database=None)
        quiet = settings(chosen, deadline=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck])
        stateful.run_state_machine_as_test(machine, settings=quiet)


class CallOrders(stateful.RuleBasedStateMachine):
    """One model, called in any order: between trainings it answers as a copy that was saved after the last one."""

    contract: Contract

    @stateful.initialize(is_trained=st.sampled_from([True, False]))
    def begin(self, is_trained: bool) -> None:
        self.cells, self.others = self.contract.cells(), self.contract.cells()
        self.model = self.contract.make(self.cells)
        if is_trained:
            self.model = self.contract.reloaded(self.contract.trained, self.cells)
        self.ask_a_copy()

    def ask_a_copy(self) -> None:
        self.weights, copy = weights_of(self.model), self.contract.reloaded(self.model, False)
        self.answers = self.contract.results(copy) if copy.is_trained else {}

    @stateful.rule()
    def train(self) -> None:
        self.contract.train(self.model)
        self.ask_a_copy()

    @stateful.precondition(lambda self: self.model.is_trained)
    @stateful.rule(seed=st.integers(0, 1), method=st.sampled_from(READING), own_cells=st.booleans())
    def generate_and_read(self, seed: int, method: str, own_cells: bool) -> None:
        self.contract.generated(self.model, seed)
        self.contract.read(self.model, None if own_cells else self.others, [method])

    @stateful.rule()
    def save_and_load(self) -> None:
        self.model = self.contract.reloaded(self.model, self.cells)

    @stateful.rule()
    def make_another_model_and_move_this_one(self) -> None:
        self.contract.make(self.cells)
        self.model.to_device("cpu")

    @stateful.invariant()
    def nothing_else_changes(self) -> None:
        if self.model.is_trained:
            demand_same(self.contract.results(self.model), self.answers, "as of a copy saved after training")
        else:
            demand_error(RuntimeError, "`generate` before training", self.contract.generated, self.model)
        same = [fingerprint(cells) == fingerprint(self.contract.given) for cells in (self.cells, self.others)]
        demand(all(same), "cells unchanged by these calls", "changed ones")
        demand(weights_of(self.model) == self.weights, "the weights of the last training", "other weights")


def check_model(
    cls: type[TokenDiffusion],
    cells: AnnData | MuData | None = None,
    *,
    setup: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    checks: Sequence[str] = CHECKS,
    n_examples: int = 10,
) -> None:
    """Check that a model class keeps the contract of the package, in the manner of scikit-learn's ``check_estimator``.

    For tests of subclasses of :class:`~scdiffgen.model.TokenDiffusion` and of diffusion processes. Models of a few
    cells are trained for two epochs on the CPU, which takes seconds. The checks:

    - ``registry``: setup and training change no cells; two models of one AnnData share its manager and nothing else.
    - ``saving``: a loaded model generates and reads the same, with its cells, others or none; other genes are refused.
    - ``query``: query cells get the genes of their reference, and a query model starts as it; left out for a MuData.
    - ``rows``: results for ``indices`` are those rows of the full result, in any order and minibatch.
    - ``forms``: counts in dense and sparse matrices, of integers and floats, views, files on disk, text and categories
      in any order are read alike; fractions and unknown categories are refused.
    - ``seeds``: one seed generates the same cells, another one others, and global randomness is left alone.
    - ``untrained``: methods raise RuntimeError before training.
    - ``calls``: answers depend on no earlier call but ``train``, in sequences of calls that hypothesis draws.

    Parameters
    ----------
    cls
        The class.
    cells
        At least ten cells, with counts in ``.X``; by default 24 cells of :func:`scdiffgen.datasets.simulate`.
    setup
        Arguments of ``setup_anndata``, or of ``setup_mudata`` for a MuData; by default ``"cell_type"`` and ``"batch"``
        as ``labels_key`` and ``batch_key``.
    options
        Arguments of the constructor, such as ``process``.
    checks
        Names of checks, by default all (``scdiffgen.testing.CHECKS``).
    n_examples
        Sequences of calls that ``calls`` tries; the same ones each time.

    Raises
    ------
    AssertionError
        If a check fails: what was expected, what was found, and what to do about it.
    ValueError
        If there is no check of a name.

    Examples
    --------
    >>> from scdiffgen.model import TokenDiffusion
    >>> from scdiffgen.testing import check_model
    >>> class MyModel(TokenDiffusion):
    ...     pass
    >>> check_model(MyModel, options={"n_tokens": 2, "n_layers": 1}, checks=["rows", "seeds"])
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
        for part in parts_of(given := cells.copy()):
            part.X = dense(part)
        contract = Contract(cls, given, setup, options or {}, Path(folder), n_examples)
        for name in checks:
            try:
                getattr(contract, f"check_{name}")()
            except Exception as error:
                found = error if isinstance(error, AssertionError) else f"Expected no error; found {error!r}."
                raise AssertionError(f"`{cls.__name__}` fails the check {name!r}. {found} {ADVICE[name]}") from error
