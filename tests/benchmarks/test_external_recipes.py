"""Recipes for other programs: how time is divided, and what is written."""

import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from benchmarks._external import read_external
from benchmarks.external import _recipe, _responses, scdiffusion
from benchmarks.external._recipe import Job, Stages, drive
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
    np.testing.assert_array_equal(one.obs["label"], job.labels)
    recipe = ad.read_h5ad(job.out).uns["recipe"]
    assert trained[-2:] == [*recipe["lengths"].items()] and recipe["guidance"] == 1.0
    assert (trained == [("first", 3), ("second", 5)]) == (seconds is None) and trained[0][1] == (2 if seconds else 3)


def test_log_normalised_expression_becomes_counts_at_label_library_sizes(job: Job) -> None:
    shares = np.random.default_rng(2).dirichlet(np.ones(5), size=60)
    rounded, drawn = scdiffusion.as_counts(np.log1p(1e4 * shares).astype(np.float32), job.labels, job)
    library = drawn.sum(axis=1)
    of_label = {label: set(job.train[job.train.obs["label"] == label].X.sum(axis=1).A1) for label in "ab"}
    assert all(size in of_label[label] for size, label in zip(library, job.labels, strict=True))
    np.testing.assert_allclose(rounded, shares * library[:, None], atol=0.51)


@pytest.fixture
def exported(tmp_path: Path) -> list[str]:
    """Arguments of a recipe for responses: cells of two types, of which ``b`` was never treated."""
    obs = pd.DataFrame({"response": ["control", "stim", "control"] * 20, "context": [*"aab"] * 20})
    obs.index = [f"cell_{i}" for i in range(60)]
    counts = sparse.csr_matrix(np.random.default_rng(0).poisson(5, size=(60, 4)) + 1, dtype=np.float32)
    AnnData(counts, obs, pd.DataFrame(index=[*"wxyz"])).write_h5ad(tmp_path / "train.h5ad")
    pd.DataFrame({"response": ["stim"], "context": ["b"], "n_cells": 9}).to_csv(tmp_path / "targets.csv", index=False)
    names = {"cells": "train.h5ad", "targets": "targets.csv", "out": "theirs/kang-b-seed0.h5ad"}
    return [text for name, file in names.items() for text in (f"--{name}", str(tmp_path / file))]


def test_a_program_for_responses_is_driven_and_its_cells_are_written(
    exported: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Controls as they are: read again, they are the log-normalised controls, and counts have their library sizes."""
    lengths = []

    class Toy:
        full, settings = 40, {"batch_size": 8}

        def __init__(self, job: _responses.Job) -> None:
            self.start = {context: job.logged()[job.controls(context)].X.toarray() for context in "ab"}

        def train(self, length: int) -> None:
            lengths.append(length)

        def predict(self, target: _responses.Target) -> _responses.Predicted:
            return _responses.Predicted(self.start[target.context])

    monkeypatch.setattr(sys, "argv", ["recipe", *exported, "--share", "0.25"])
    monkeypatch.setattr(_responses, "set_threads", lambda _: None)
    _responses.drive(None, Toy, ["numpy"])
    out, genes, columns = Path(exported[-1]), pd.Index([*"wxyz"]), ["response", "context"]
    train = ad.read_h5ad(exported[1])
    control = train[(train.obs["context"] == "b").to_numpy()].copy()
    library = np.asarray(control.X.sum(axis=1)).ravel()
    logged = read_external(out, genes, columns, may_be_logged=True)
    np.testing.assert_allclose(logged.X.toarray(), np.log1p(1e4 * control.X.toarray() / library[:, None]), rtol=1e-5)
    assert set(zip(logged.obs["response"], logged.obs["context"], strict=True)) == {("stim", "b")}
    counts = read_external(out.parent.with_name("theirs-counts") / out.name, genes, columns)
    assert sorted(np.asarray(counts.X.sum(axis=1)).ravel()) == sorted(library)
    recipe = ad.read_h5ad(out).uns["recipe"]
    assert lengths == [10] == [recipe["length"]] and recipe["recommended_length"] == 40 and recipe["batch_size"] == 8
    with pytest.raises(ValueError, match="is not a count. Write raw counts.$"):
        read_external(out, genes, columns)
    del logged.uns["log1p"]
    logged.write_h5ad(out)
    with pytest.raises(ValueError, match="or put 'log1p' into .uns if they are log-normalised"):
        read_external(out, genes, columns, may_be_logged=True)


def test_expected_expression_is_that_of_the_counts_that_are_drawn() -> None:
    obs = pd.DataFrame({"response": "control", "context": "b"}, [*map(str, range(4000))])
    train, shares = AnnData(sparse.csr_matrix(np.full((4000, 3), 50.0)), obs), np.array([0.2, 0.3, 0.5])
    job, predicted = _responses.Job(train, [], 1.0, 0, Path()), np.log1p(1e4 * np.tile(shares, (4000, 1)))
    counts = _responses.drawn(job, _responses.Predicted(predicted), _responses.Target("stim", "b"))
    np.testing.assert_allclose(counts.mean(axis=0), 150 * shares, rtol=0.02)


RECIPES = ("cfgen", "scdiffusion", "scldm", "scgen", "cpa", "biolord", "cellflow")


def test_recipes_import_without_scdiffgen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scdiffgen", None)
    for name in [name for name in sys.modules if name.startswith(("benchmarks.", "scdiffgen."))]:
        monkeypatch.delitem(sys.modules, name)
    for name in RECIPES:
        import_module(f"benchmarks.external.{name}")
