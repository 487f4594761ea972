"""What training and sampling ask of a device, as far as a CPU shows it: no double precision but where molecules are
counted, and few times at which Python waits for the device, as many for any number of cells.
"""

from collections import Counter
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest
import scvi
import torch
from device_watch import Seen, by_function, watched
from lightning.pytorch import Callback
from module_parts import SIZE, SPECS
from mudata_cells import paired
from scipy import sparse
from small_cells import QUIET, SMALL, simulated_cells
from treated_cells import SETUP, treated_cells

from scdiffgen.conditions import Conditions
from scdiffgen.model import TokenDiffusion
from scdiffgen.module import DiffusionModule

KINDS = ["default", "treated", "several modalities", "gaussian", "latent"]
N_CELLS = (60, 240)

COUNTED = {
    "diffusion/_molecules.py:molecule_schedule": "powers of library sizes, rounded to molecules",
    "diffusion/_draws.py:_positions": "one cumulative sum over all cells, in which places of single molecules differ",
    "diffusion/_draws.py:draw_from_urn": "rates of a cell, against its molecules one by one",
    "diffusion/_draws.py:_point": "places among the molecules of a cell",
    "model/_sampler.py:sample": "library sizes of NumPy, made float32 before they go to the device",
    "model/_sampler.py:_drawn": "regressions of NumPy on the host",
    "module/_paths.py:reverse": "times of the steps, computed on the host",
    **dict.fromkeys(
        f"diffusion/_gaussian.py:{name}"
        for name in ("even_log_snr", "time_of_signal", "cosine_schedule", "_on_circle", "log_snr")
    ),
}
"""Where sampling may use double precision, and what for; training may nowhere."""

OF_A_TRAINING_STEP = {
    "train/_plan.py:on_before_optimizer_step": 1,  # the norm of the gradient decides whether the step is made
}
OF_LATENT = {
    "module/_vector_codes.py:loss": 1,  # of the first of its two stages: whether the autoencoder is trained
}
OF_A_SAMPLING_STEP = {
    "module/_denoisers.py:score": 1,  # counts become sparse
    "diffusion/_draws.py:_positions": 1,  # how many molecules there are in all
    "diffusion/_draws.py:draw_from_urn": 16,  # at most: two a round of those that wait for others
}


class Steps(Callback):
    """Watches each training step, in epochs of one: loss, gradients, optimiser and average."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.watching = ExitStack()

    def on_train_batch_start(self, *_: Any) -> None:
        self.seen.append(self.watching.enter_context(watched()))

    def on_train_epoch_end(self, *_: Any) -> None:
        self.watching.close()


def trained(kind: str, n_cells: int) -> tuple[TokenDiffusion, list[Seen]]:
    """A model, and what was seen in its training steps, whose minibatch is all cells."""
    if kind == "several modalities":
        cells: Any = paired(n_cells)
        TokenDiffusion.setup_mudata(cells)
    else:
        cells = treated_cells(n_cells) if kind == "treated" else simulated_cells(n_cells)
        cells.X = sparse.csr_matrix(cells.X)
        TokenDiffusion.setup_anndata(cells, **(SETUP if kind == "treated" else {"labels_key": "cell_type"}))
    scvi.settings.seed = 0
    model = TokenDiffusion(cells, **SMALL, process=kind if kind in ("gaussian", "latent") else "thinning")
    steps = Steps()
    model.train(max_epochs=4, batch_size=n_cells, train_size=1.0, callbacks=[steps], **QUIET)
    return model, steps.seen


@pytest.fixture(scope="module", params=KINDS)
def models(request: pytest.FixtureRequest) -> tuple[str, list[tuple[TokenDiffusion, list[Seen]]]]:
    """Of few and of many cells."""
    return request.param, [trained(request.param, n_cells) for n_cells in N_CELLS]


def test_a_training_step_has_single_precision_and_a_fixed_number_of_waits(models: Any) -> None:
    kind, trainings = models
    for _, steps in trainings:
        for i, seen in enumerate(steps[1:-1]):  # but the first and the last one
            assert seen.wide == {}
            first_stage = kind == "latent" and i == 0
            assert by_function(seen.waits) == OF_A_TRAINING_STEP | (OF_LATENT if first_stage else {}), seen.waits


def sampled(model: TokenDiffusion, n_steps: int, n_cells: int) -> Seen:
    # as on a GPU, without the compiled pass
    on_a_device = patch("scdiffgen.diffusion._molecules.COMPILED_FOR", "none")
    with on_a_device, watched() as seen:
        model.generate({}, n_cells, n_steps=n_steps, seed=0, silent=True)
    return seen


def test_sampling_uses_double_precision_where_molecules_are_counted_alone(models: Any) -> None:
    _, trainings = models
    for model, _ in trainings:
        assert set(by_function(sampled(model, 4, 50).wide)) <= set(COUNTED)


def test_a_sampling_step_waits_as_often_for_any_number_of_cells(models: Any) -> None:
    kind, ((model, _), _) = models
    n_modalities = 2 if kind == "several modalities" else 1
    expected = Counter({name: n * n_modalities for name, n in OF_A_SAMPLING_STEP.items()})
    expected["module/_denoisers.py:score"] = 1
    for n_cells in (20, 320):
        few, many = (by_function(sampled(model, n_steps, n_cells).waits) for n_steps in (4, 12))
        per_step = {name: (many[name] - few[name]) / 8 for name in many}
        assert {name: n for name, n in per_step.items() if n > expected[name]} == {}


def test_networks_need_no_values_on_the_way() -> None:
    """On the meta device there are shapes alone."""
    n_vars = 12
    with torch.device("meta"):
        denoiser = DiffusionModule(n_vars, SPECS, SIZE).denoiser
        state, library = torch.ones(4, n_vars), torch.ones(4)
        embedded = denoiser.embed_conditions(Conditions({}, 4))
        scores = denoiser.network(state, library, library, *embedded)
        rates = denoiser.prediction(scores).rates_at(state)
        rates.sum().backward()
    assert rates.shape == (4, n_vars)
    assert denoiser.network.trunk.encoder.weight.grad.device.type == "meta"


def test_what_a_device_waits_for_is_seen() -> None:
    numbers = torch.arange(6.0)
    with watched() as seen:
        numbers[numbers > 2], numbers.nonzero(), float(numbers[0]), numbers.tolist(), torch.equal(numbers, numbers)
        numbers.long().repeat_interleave(numbers.long()), numbers.diag().to_sparse_csr()
    assert sum(seen.waits.values()) == 7 and not seen.wide
    with watched() as seen:
        numbers[torch.tensor([1, 0])], numbers + 1, numbers.long().repeat_interleave(numbers.long(), output_size=15)
    assert not seen.waits
    with watched() as seen:
        numbers.double(), torch.rand(3, dtype=torch.float64), numbers.cumsum(0, dtype=torch.float64)
    assert sum(seen.wide.values()) == 3
