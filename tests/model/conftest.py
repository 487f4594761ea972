"""One small model, trained once for all tests that only look at it."""

from collections.abc import Iterator

import numpy as np
import pytest
import sentence_encoder
from anndata import AnnData
from module_parts import predict_shares
from small_cells import SMALL, simulated_cells, trained_model

from scdiffgen.model import TokenDiffusion

SETUP = {"labels_key": "cell_type", "batch_key": "batch", "continuous_covariate_keys": ["age"]}


@pytest.fixture(scope="session")
def small() -> TokenDiffusion:
    """A model of 120 cells by type, batch and age; not to be changed, nor its cells."""
    return trained_model(simulated_cells(120), 8, plan_kwargs={"lr": 1e-2}, **SETUP)


@pytest.fixture
def other_cells() -> AnnData:
    """Cells of the same genes that the model has not seen."""
    return simulated_cells(40, seed=7)


@pytest.fixture
def multinomial(small: TokenDiffusion) -> TokenDiffusion:
    """A model that gives each gene the same share, whatever it sees."""
    model = TokenDiffusion(small.adata, **SMALL)
    model.module.load_state_dict(small.module.state_dict())
    model.training_summary_, model.is_trained_ = small.training_summary_, True
    model.module.eval()
    predict_shares(model.module.ema_denoiser, np.ones(20))
    model.module.ema_denoiser.label_offsets.table.zero_()
    model.module.ema_denoiser.condition_readout.weight.data.zero_()
    return model


@pytest.fixture(scope="module")
def encoded() -> Iterator[list[str]]:
    """A stand-in for the sentence encoder, and the texts that it is asked for."""
    with pytest.MonkeyPatch.context() as patch:
        yield sentence_encoder.install(patch)
