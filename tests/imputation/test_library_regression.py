"""Library sizes of a modality from the tokens of others, against a simulated truth."""

import numpy as np

from scdiffgen.imputation import LibraryRegression


def test_a_linear_truth_and_its_noise_are_found() -> None:
    rng = np.random.default_rng(0)
    tokens = rng.normal(size=(3_000, 80)) @ rng.normal(size=(80, 80)) * 0.1
    truth = rng.normal(size=(80, 1)) * 0.2
    logs = 5 + tokens @ truth + rng.normal(0, 0.3, (3_000, 1))
    model = LibraryRegression.fit(tokens[:2_000], np.exp(logs[:2_000]))
    left = logs[2_000:, 0] - np.log(model.mean(tokens[2_000:]))[:, 0] + model.residual_sd[0] ** 2 / 2
    assert left.std() < 0.6 * logs.std()  # some directions are not among the principal ones
    np.testing.assert_allclose(model.residual_sd[0], left.std(), rtol=0.1)
    drawn = model.sample(tokens[2_000:], rng)
    assert (drawn == drawn.round()).all() and drawn.min() >= 1
    np.testing.assert_allclose(drawn.mean(), model.mean(tokens[2_000:]).mean(), rtol=0.05)
    np.testing.assert_allclose(np.log(drawn).std(), logs[2_000:].std(), rtol=0.1)
