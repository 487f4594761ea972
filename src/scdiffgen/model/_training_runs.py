"""Training runs: number of epochs, split of the cells, and the concatenated history."""

import inspect
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import torch
from lightning.pytorch import LightningDataModule
from scvi.model.base import BaseModelClass
from scvi.train import Trainer, TrainRunner, merge_kwargs
from scvi.utils import track

from scdiffgen._arguments import check_choice, check_names, check_whole_number
from scdiffgen.data import check_counts_again
from scdiffgen.module import DiffusionModule, InvalidMinibatchError
from scdiffgen.train import (
    NO_STEP,
    GracefulTrainer,
    SparseDataSplitter,
    StagedDataSplitter,
    TrainingPlanConfig,
    drawn_epochs,
    logged_history,
    stage_ends,
)

from ._cells import MOST_CELLS, SMALL_BATCH, Cells, evenly_spread
from ._checks import check_accelerator, check_devices, check_split, check_torch
from ._model_access import LIGHTNING, in_training, less_chatter
from ._training_data import RegisteredData, StreamedData
from ._training_summary import rematch, remember_training, warn_of_missing_features

LOSSES = ("validation_loss", "train_loss")
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed", "32", "bf16", "16", 32, 16, None)  # weights stay in float32
WHOLE_NUMBERS = {"max_steps": -1, "early_stopping_patience": 0, "early_stopping_warmup_epochs": 0}
TRAINER_ARGUMENTS = (*inspect.signature(Trainer).parameters, *inspect.signature(pl.Trainer).parameters, "ckpt_path")


def default_max_epochs(n_train: int, batch_size: int, has_units: bool = False, least: int = 1000) -> int:
    """Choose epochs for 1.5 ``n_train ** 0.8`` steps, at least 500, with hidden units; else 2.5, at least ``least``."""
    factor, least = (1.5, 500) if has_units else (2.5, least)
    return max(1, round(max(least, factor * n_train**0.8) / math.ceil(n_train / batch_size)))


def check_training(
    model: BaseModelClass,
    datamodule: LightningDataModule | None,
    accelerator: str,
    devices: int | list[int] | str,
    split: Mapping[str, Any],
    trainer: Mapping[str, Any],
) -> None:
    """Raise unless there are training cells, held-out cells and a device."""
    if datamodule is not None:
        _check_data_module(model, datamodule, split)
    elif model.adata is None:
        raise ValueError(
            "The model has no cells: create or load it with training cells, `adata`, or pass training cells as "
            "`datamodule`."
        )
    check_accelerator(accelerator)
    check_devices(accelerator, devices, trainer.get("strategy"))
    check_torch(model.module.parameters())
    check_names("train", trainer, [*inspect.signature(type(model).train).parameters, *TRAINER_ARGUMENTS])
    check_choice("precision", trainer.get("precision"), PRECISIONS)
    for name, least in WHOLE_NUMBERS.items():
        check_whole_number(name, trainer.get(name, least), at_least=least)
    if datamodule is None:
        model._validate_anndata()
        check_split(model.adata.n_obs, split["train_size"], split["validation_size"], split["batch_size"])


def _check_data_module(model: BaseModelClass, datamodule: object, split: Mapping[str, Any]) -> None:
    """Raise if a model cannot be trained from a data module, or arguments of a split are given."""
    if not isinstance(datamodule, LightningDataModule):
        raise TypeError(
            f"`datamodule` is of type {type(datamodule).__name__}: pass a `lightning.pytorch.LightningDataModule`."
        )
    if model.adata is not None:
        raise ValueError(
            "`datamodule`: the model already has training cells. Create a model without cells, "
            "`TokenDiffusion(registry=model.registry)`, or load it by `load(path, adata=False)`."
        )
    for name, value in split.items():
        if value is not None and name not in ("shuffle_set_split", "batch_size"):
            raise TypeError(f"`{name}` has no effect with `datamodule`, whose cells are already split. Leave it out.")


def training_size(model: BaseModelClass, split: Mapping[str, Any], streamed: StreamedData | None) -> tuple[int, int]:
    """Return the number of training cells, and of cells in a minibatch."""
    if streamed is not None:
        return streamed.n_train, math.ceil(streamed.n_train / streamed.n_batches)
    if split.get("external_indexing"):
        return len(split["external_indexing"][0]), split["batch_size"]
    return math.ceil(model.adata.n_obs * (split["train_size"] or 0.9)), split["batch_size"]


def settled_epochs(
    model: BaseModelClass,
    max_epochs: int | None,
    check_val_every_n_epoch: int | None,
    early_stopping: bool | None,
    size: tuple[int, int],
    drawn_share: float,
) -> dict[str, int]:
    """Choose the number of epochs, and of epochs between validations, if not given."""
    n_train, batch_size = size
    if max_epochs is None:
        has_units = model.module.size.readout_units > 0
        max_epochs = default_max_epochs(n_train, batch_size, has_units, model.module.denoiser.least_steps)
        max_epochs = round(max_epochs / (1 - drawn_share))
    max_epochs = check_whole_number("max_epochs", max_epochs)
    n_stages = sum(share > 0 for share in model.module.stages())
    if max_epochs < n_stages:
        raise ValueError(f"`max_epochs` is {max_epochs}, but training has {n_stages} stages: pass at least that.")
    if check_val_every_n_epoch is None:
        about = 1 if early_stopping else round(100 / math.ceil(n_train / batch_size))
        check_val_every_n_epoch = max(min(about, max_epochs // 20), 1)
    every = check_whole_number("check_val_every_n_epoch", check_val_every_n_epoch)
    return {"max_epochs": max_epochs, "check_val_every_n_epoch": every}


def settled_stopping(
    model: BaseModelClass,
    early_stopping: bool | None,
    given: Mapping[str, Any],
    split: Mapping[str, Any],
    streamed: StreamedData | None,
    drawn_share: float,
    max_epochs: int,
    check_val_every_n_epoch: int,
) -> dict[str, Any]:
    """Return arguments of scvi-tools' early stopping, from the last stage on; raise if it would never stop."""
    if not early_stopping:
        useless = [name for name in given if name.startswith("early_stopping_")]
        if useless:
            raise TypeError(f"`{useless[0]}` has no effect by itself: also pass `early_stopping=True`.")
        return {"early_stopping": False}
    monitor = given.get("early_stopping_monitor", LOSSES[0])
    check_choice("early_stopping_monitor", monitor, LOSSES)
    held_out = split.get("external_indexing")
    none_left = split["train_size"] == 1 or split["validation_size"] == 0 or (held_out and not len(held_out[1]))
    if none_left or (streamed is not None and isinstance(streamed.val_dataloader(), list)):
        raise ValueError(
            "`early_stopping=True` needs validation cells, and there are none: pass `train_size=0.9`, or a "
            "`datamodule` with a `val_dataloader`, or `early_stopping=False`."
        )
    first = max([0, *stage_ends(model.module.stages(), max_epochs)][-2], drawn_epochs(drawn_share, max_epochs))
    warmup = max(given.get("early_stopping_warmup_epochs", 0), first // check_val_every_n_epoch)
    return {"early_stopping": True, "early_stopping_monitor": monitor, "early_stopping_warmup_epochs": warmup}


def settled_plan(
    model: BaseModelClass,
    plan_config: Any,
    plan_kwargs: Mapping[str, Any] | None,
    early_stopping: bool | None,
    *,
    may_draw: bool,
) -> dict[str, Any]:
    """Return settings of the training plan; raise if a query model has nothing new to learn."""
    plan = dict(plan_kwargs or {})
    check_names("plan_kwargs", plan, [field.name for field in fields(TrainingPlanConfig)])
    if early_stopping is False:
        plan["max_validation_rise"] = math.inf
    if model._frozen_shapes_:
        if not any(weight.requires_grad for weight in model.module.denoiser.parameters()):
            raise ValueError(
                "The query model has no new category or gene to learn: create it with "
                "`load_query_data(..., unfrozen=True)` to train all of its weights."
            )
        plan = {"weight_decay": 0.0, **plan}  # weight decay would change frozen weights
    plan = merge_kwargs(plan_config, plan, name="plan")
    return {**plan, "drawn_share": plan.get("drawn_share", TrainingPlanConfig.drawn_share) if may_draw else 0.0}


def may_draw(model: BaseModelClass, n_train: int, streamed: StreamedData | None) -> bool:
    """Return whether cells are drawn anew in the first epochs: for few cells, and before the first training."""
    least, most = 500, 2500  # with fewer, the copula is no better than the network
    return least <= n_train <= most and streamed is None and not model.is_trained_ and model.module.code.has_copula


class _TrainRunner(TrainRunner):
    _trainer_cls = GracefulTrainer


def run_training(
    model: BaseModelClass,
    streamed: StreamedData | None,
    split: Mapping[str, Any],
    plan: Mapping[str, Any],
    trainer: Mapping[str, Any],
) -> None:
    """Train, continue the history of earlier trainings, and summarise the training cells."""
    was_trained = model.is_trained_
    history = dict(model.history_) if model.is_trained_ and isinstance(model.history_, dict) else {}
    model.module.train()  # otherwise Lightning would keep the evaluation mode of an earlier training
    splitter = _splitter(model, split, plan, trainer) if streamed is None else streamed
    if not was_trained:
        warn_of_missing_features(model)
    training_plan = model._training_plan_cls(model.module, **plan)
    try:
        with less_chatter(*LIGHTNING):
            _TrainRunner(model, training_plan=training_plan, data_splitter=splitter, **trainer)()
    except InvalidMinibatchError:  # counts were changed during the training
        if streamed is None:
            check_counts_again(model.adata_manager)
        raise
    model.is_trained_ = False  # until weights and summary are checked
    if not training_plan.n_steps:
        model.is_trained_ = was_trained
        raise RuntimeError(training_plan.skipped) if training_plan.skipped else ValueError(NO_STEP)
    data = RegisteredData(model) if streamed is None else streamed
    try:
        check_drawing(model.module, data)
        silent = not trainer.get("enable_progress_bar", True)
        if not model._frozen_shapes_:  # such a query keeps the match of its reference
            rematch(model, data, silent=silent)
        model.history_ = continued(history, logged_history(model.trainer) or training_plan.logged)
        for remember in track([remember_training], "Summarising", disable=silent):
            remember(model, data)
    except (ArithmeticError, np.linalg.LinAlgError, RuntimeError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        lr = training_plan.config.lr
        raise RuntimeError(
            f"Weights are not finite or far too large after training ({error}), so the model counts as untrained: "
            f"create a new model, and train it with a lower learning rate than `plan_kwargs={{'lr': {lr:g}}}`."
        ) from error
    model.is_trained_ = True


@torch.no_grad()
def check_drawing(module: DiffusionModule, data: RegisteredData | StreamedData, n_cells: int = 8) -> None:
    """Raise if weights are not finite, or a few cells cannot be drawn."""
    if not all(bool(weight.isfinite().all()) for weight in module.parameters()):
        raise FloatingPointError("NaN or infinite weights")
    module.eval()
    generator = torch.Generator(module.device).manual_seed(0)
    for counts, given in data.some(n_cells):
        drawn = module.generate(given, module.library(counts), n_steps=2, generator=generator)
        if not drawn.isfinite().all():
            raise FloatingPointError("NaN or infinite counts of new cells")


def _splitter(
    model: BaseModelClass, split: Mapping[str, Any], plan: Mapping[str, Any], trainer: Mapping[str, Any]
) -> SparseDataSplitter:
    """Split the AnnData of a model into minibatches; initialise an untrained model from the training cells."""
    check_counts_again(model.adata_manager)
    has_stages = len(model.module.stages()) > 1
    splitter = (StagedDataSplitter if has_stages else SparseDataSplitter)(
        model.adata_manager, load_sparse_tensor=True, distributed_sampler="ddp" in str(trainer.get("strategy")), **split
    )
    splitter.setup()  # gives the same split as Lightning's call, which may run in another process
    if not model.is_trained_:
        train, module = np.sort(splitter.train_idx), model.module
        some = Cells(model, None, evenly_spread(train, MOST_CELLS), SMALL_BATCH)
        starts = [(module.initialise, Cells(model, None, train)), (module.start_linearly, some)]

        def prepare_draws(cells: Cells) -> None:
            splitter.draw = partial(module.draw_anew, copula=module.fit_copula(cells))

        if plan["drawn_share"] > 0:
            starts.append((prepare_draws, Cells(model, None, train)))
        for start, cells in track(starts, "Initialising", disable=not trainer.get("enable_progress_bar", True)):
            start(cells)
    return splitter


@contextmanager
def whole_checkpoint(model: BaseModelClass) -> Iterator[None]:
    """Complete a model in training like a trained one while a checkpoint is saved."""
    if not in_training(model):
        yield
        return
    trainer = model.trainer
    split = trainer.datamodule
    model.train_indices, model.validation_indices = split.train_idx, split.val_idx
    model.test_indices, model.history_ = split.test_idx, logged_history(trainer)
    order = remember_training(model, split if isinstance(split, StreamedData) else None)
    if not model._frozen_shapes_:
        model.module.match_genes(None)  # that of an earlier training is not of these weights
    try:
        yield
    finally:  # restore the order of tokens that the optimiser uses
        model.module.sort_tokens(np.argsort(order))


def continued(before: Mapping[str, pd.DataFrame], logged: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Append the losses of the last training to earlier ones, with consecutive epochs."""
    # scvi-tools numbers rows, which is wrong for losses that are not logged in every epoch
    by_epoch = [frame for frame in before.values() if frame.index.name == "epoch" and len(frame)]
    n_before = max((int(frame.index[-1]) + 1 for frame in by_epoch), default=0)
    joined = dict(before)
    for name, frame in logged.items():
        numbered = frame.set_axis(frame.index + n_before) if frame.index.name == "epoch" else frame
        joined[name] = pd.concat([before.get(name), numbered])
    return joined
