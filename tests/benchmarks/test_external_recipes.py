"""Recipes for other programs: how time is divided, and what is written."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from benchmarks._external import read_external
from benchmarks.external import _recipe, scdiffusion
from benchmarks.external._recipe import Job, Stages, drive, write_cells
from scipy import sparse

FULL = {"first": 300, "second": 1500}
RATES = {"first": 2.0, "second": 0.5}  # seconds a step
START_UP = 7.0


@pytest.fixture
def job(tmp_path: Path) -> Job:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *command], check=True)
    counts = np.random.default_rng(0).poisson(3, size=(40, 5))
    train = AnnData(sparse.csr_matrix(counts, dtype=np.float32), obs=pd.DataFrame({"label": ["a", "b"] * 20}))
    train.X[1::2] *= 100
    return Job(tmp_path, tmp_path, train, np.repeat(["a", "b"], 30), 0, 60.0, tmp_path / "out/x.h5ad")


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Stages:
    """Stages on a clock that trainings move on."""
    stages, now = Stages(1000.0, FULL), [0.0]
    for clock in ("perf_counter", "process_time"):
        monkeypatch.setattr(_recipe.time, clock, lambda: now[0])

    def train(stage: str, length: int) -> None:
        now[0] += START_UP + RATES[stage] * length

    stages.trainings = {stage: lambda length, stage=stage: train(stage, length) for stage in FULL}
    return stages


def test_every_stage_gets_the_same_share_and_all_fit_into_the_time(stages: Stages) -> None:
    for stage in FULL:
        stages.time(stage, stages.trainings[stage], few=1)
    assert stages.rates == pytest.approx(RATES)
    for stage in FULL:
        stages.run(stage, stages.trainings[stage])
    assert stages.lengths["second"] == pytest.approx(5 * stages.lengths["first"], abs=5)
    assert sum(stages.took.values()) == pytest.approx(1000 + 2 * START_UP, rel=0.01)


def test_without_a_time_the_recommended_lengths_are_run(stages: Stages) -> None:
    stages.seconds = None
    for stage in FULL:
        stages.time(stage, stages.trainings[stage], few=1)
        stages.run(stage, stages.trainings[stage])
    assert stages.lengths == FULL


def test_what_is_written_is_read_as_external_cells(job: Job, stages: Stages) -> None:
    counts = np.random.default_rng(1).poisson(2, size=(60, 5))
    write_cells(job, job.out, counts, job.labels, stages, {"guidance": 1.0})
    cells = read_external(job.out, job.train.var_names, ["label"])
    np.testing.assert_array_equal(cells.X.toarray(), counts)
    np.testing.assert_array_equal(cells.obs["label"], job.labels)


@pytest.mark.parametrize("seconds", [0.01, None])
def test_a_program_is_driven_through_its_stages_and_its_cells_are_written(
    job: Job, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells follow from the seed and the lengths, however often stages were timed."""
    trained: list[tuple[str, int]] = []

    class Toy:
        full, settings = {"first": 3, "second": 5}, {"guidance": 1.0}

        def first(self, n_steps: int) -> None:
            trained.append(("first", n_steps))
            np.dot(np.ones((10 * n_steps, 200)), np.ones((200, 200)))

        def second(self, n_steps: int) -> None:
            trained.append(("second", n_steps))
            np.dot(np.ones((10 * n_steps, 200)), np.ones((200, 200)))

        def generate(self) -> tuple[np.ndarray, np.ndarray]:
            return np.random.poisson(2, size=(60, 5)), job.labels

    monkeypatch.setattr(_recipe, "read_job", lambda _: replace(job, seconds=seconds))
    beside = job.out.with_name("twice.h5ad")
    drive(None, lambda *_: Toy(), 2, lambda job, counts, _: {job.out: counts, beside: 2 * counts})
    one, two = (read_external(out, job.train.var_names, ["label"]) for out in (job.out, beside))
    np.testing.assert_array_equal(one.X.toarray(), np.random.RandomState(job.seed).poisson(2, size=(60, 5)))
    np.testing.assert_array_equal(two.X.toarray(), 2 * one.X.toarray())
    recipe = ad.read_h5ad(job.out).uns["recipe"]
    assert trained[-2:] == [*recipe["lengths"].items()] and recipe["guidance"] == 1.0
    assert (trained == [("first", 3), ("second", 5)]) == (seconds is None) and trained[0][1] == (2 if seconds else 3)


def test_log_normalised_expression_becomes_counts_of_the_library_sizes_of_the_label(job: Job) -> None:
    shares = np.random.default_rng(2).dirichlet(np.ones(5), size=60)
    rounded, drawn = scdiffusion.as_counts(np.log1p(1e4 * shares).astype(np.float32), job.labels, job)
    library = drawn.sum(axis=1)
    of_label = {label: set(job.train[job.train.obs["label"] == label].X.sum(axis=1).A1) for label in "ab"}
    assert all(size in of_label[label] for size, label in zip(library, job.labels, strict=True))
    np.testing.assert_allclose(rounded, shares * library[:, None], atol=0.51)


def test_recipes_import_without_scdiffgen() -> None:
    blocked = (
        "import sys; sys.modules['scdiffgen'] = None; import benchmarks.external.cfgen, benchmarks.external.scdiffusion"
    )
    subprocess.run([sys.executable, "-c", blocked], check=True, cwd=Path(_recipe.__file__).parents[2])
