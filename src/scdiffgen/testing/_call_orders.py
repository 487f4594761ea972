"""Calls of methods in random orders, as a state machine of hypothesis."""

from typing import Any

from ._comparing import demand_error, demand_same, demand_unchanged, fingerprint, weights_of

try:
    from hypothesis import HealthCheck, Phase, settings, stateful
    from hypothesis import strategies as st
except ImportError as error:
    raise ImportError("The check 'calls' needs hypothesis: `pip install 'scdiffgen[testing]'`.") from error


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
