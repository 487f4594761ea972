"""Lightning training plan: AdamW with warm-up and cosine decay, weight averaging and early stopping; trainer."""

import logging
import math
import os
import statistics
import timeit
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, fields
from functools import partial
from numbers import Real
from typing import Any

import lightning.pytorch as pl
import pandas as pd
import torch
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.exceptions import SIGTERMException
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from scvi.module.base import LossOutput
from scvi.train import Trainer
from scvi.train._logger import SimpleLogger
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from scdiffgen._messages import counted, warn_user
from scdiffgen.module import DiffusionModule

logger = logging.getLogger(__name__)

MAX_SKIPPED = 10  # maximum number of consecutive steps skipped for their gradients
SPIKE = 20  # maximum gradient norm, relative to the median norm; stable training reaches 2 to 3
N_USUAL = 100  # number of steps in the median norm
EMBEDDING_DECAY = 0.01  # maximum: more decay would shrink rare categories towards common ones
NO_STEP = (
    "Training made no step, and the model is as it was: `train` needs at least one minibatch. With `drop_last` pass a "
    "`batch_size` of at most the number of training cells, and leave out `max_steps=0` and `limit_train_batches=0`."
)


@dataclass(frozen=True)
class TrainingPlanConfig:
    """Settings of the optimiser, for ``train(plan_config=...)``.

    Parameters
    ----------
    lr
        Peak learning rate.
    linear_lr
        Relative learning rate of linearly initialised weights. ``None`` is 1 for at least 10,000 cells, and smaller for
        fewer cells, but at least 0.1.
    weight_decay
        Decoupled weight decay of matrices, at most 0.01 for embedded conditions; biases, scales and tables with one
        number per gene have none. ``None``: for thinning, ``5000 / n_train`` (a prior
        strength of 5,000 cells), at most 5, and proportionally smaller for fewer than 750 genes; otherwise 0.01. With
        several modalities, cells with fewer than 300 molecules of a modality count for less.
    n_warmup_steps
        Number of warm-up steps from 0 to ``lr``, at most a tenth of all steps; then the rate falls to 0 on a cosine.
    ema_decay
        Decay per step of the averaged weights, which are used to generate; at first ``(1 + step) / (10 + step)``.
    max_grad_norm
        Maximum norm, to which gradients are clipped.
    max_validation_rise
        Training stops when the validation loss exceeds its minimum by more than this share, unless an early stopping
        callback is used. The best weights are restored if the last validation loss exceeds the minimum by more than a
        quarter of this share. For thinning, the share is divided by the depth in units of 500 molecules per cell, if
        cells have more.
    drawn_share
        Share of the epochs, in [0, 1), at the beginning of a first training of thinning with few cells (500 to 2,500
        of one modality), in which the counts of all cells are drawn from a Gaussian copula that is fitted to them. The
        validation loss of these epochs does not stop training. 0 trains on measured counts only.
    """

    lr: float = 2e-3
    linear_lr: float | None = None
    weight_decay: float | None = None
    n_warmup_steps: int = 100
    ema_decay: float = 0.999
    max_grad_norm: float = 1.0
    max_validation_rise: float = 0.01
    drawn_share: float = 0.5

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            if isinstance(value, bool) or not (isinstance(value, Real) and float(value) >= 0):
                raise ValueError(f"`{field.name}` is {value!r}: pass a number of at least 0.")
        for name in ("ema_decay", "drawn_share"):
            if not getattr(self, name) < 1:
                raise ValueError(f"`{name}` is {getattr(self, name)}: pass a number in [0, 1).")
        if not math.isfinite(self.lr):
            raise ValueError(f"`lr` is {self.lr}: pass a finite number.")

    def to_kwargs(self) -> dict[str, Any]:
        """Return the settings as scvi-tools merges them."""
        return asdict(self)


class DiffusionTrainingPlan(pl.LightningModule):
    """Lightning training plan of a diffusion module, with the settings of :class:`TrainingPlanConfig`."""

    def __init__(self, module: DiffusionModule, **settings: Any) -> None:
        super().__init__()
        self.module = module
        self.config = TrainingPlanConfig(**settings)
        self.n_obs_training = self.n_obs_validation = 0  # set by scvi's TrainRunner
        self._best_loss = self._last_loss = math.inf
        self._best: list[dict[str, Tensor]] = []  # weights of the denoiser and of the averaged denoiser
        self.n_steps = 0  # number of optimiser steps that were not skipped
        self.logged: dict[str, pd.DataFrame] = {}  # history of processes that were forked by a notebook
        self._n_skipped = 0
        self.skipped = ""  # why the last steps were skipped
        self._norms: deque[float] = deque(maxlen=N_USUAL)
        self._stage = self._stage_start = 0
        self._stage_ends: list[int] = []  # epochs

    def on_train_start(self) -> None:
        """Give each process of a distributed training a different random seed."""
        if self.global_rank:
            torch.manual_seed(torch.initial_seed() + self.global_rank)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        """Compute the loss of one minibatch."""
        output = self.module.loss(*self.module.unpack(batch))
        self._log("train_loss", output)
        return output.loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Compute the loss of one held-out minibatch, with the same random numbers in each epoch."""
        generator = torch.Generator(self.device).manual_seed(batch_idx)
        self._log("validation_loss", self.module.validation_loss(*self.module.unpack(batch), generator))

    def _log(self, name: str, output: LossOutput) -> None:
        across = {"batch_size": output.n_obs_minibatch, "sync_dist": self.trainer.world_size > 1}
        self.log(name, output.loss, on_step=False, on_epoch=True, prog_bar=True, **across)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Clip gradients by norm; skip the step if the norm is not finite or far above the recent median."""
        parameters = list(self.module.denoiser.parameters())
        total = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        norm = float(total)
        usual = statistics.median(self._norms) if len(self._norms) == N_USUAL else math.inf
        if norm <= SPIKE * usual and math.isfinite(norm):
            if norm > self.config.max_grad_norm:
                torch.nn.utils.clip_grads_with_norm_(parameters, self.config.max_grad_norm, total)
            self._norms.append(norm)
            self.n_steps += 1
            self._n_skipped, self.skipped = 0, ""
            return
        optimizer.zero_grad()
        self._n_skipped += 1
        fault = f"{norm / usual:.0f} times the usual" if math.isfinite(norm) else "not finite"
        logger.warning("Step %d skipped: its gradient is %s.", self.global_step, fault)
        self.skipped = (
            f"The gradients of {counted(self._n_skipped, 'step')} in a row were {fault}. Train with a lower learning "
            "rate, `train(plan_kwargs={'lr': 5e-4})`, or in full precision, `train(precision='32-true')`."
        )
        if self._n_skipped >= MAX_SKIPPED:
            raise RuntimeError(self.skipped)

    def on_train_epoch_start(self) -> None:
        """Begin the next stage at its first epoch, and cache the features that it needs."""
        if self._stage + 1 < len(self._stage_ends) and self.current_epoch >= self._stage_ends[self._stage]:
            self._stage, self._stage_start, self._best_loss = self._stage + 1, self.global_step, math.inf
            self._norms.clear()
            self.trainer.fit_loop.epoch_loop.val_loop.setup_data()  # no loader exists before the first validation
            loaders = [self.trainer.train_dataloader, self.trainer.val_dataloaders]
            cached = [loader.cache(self.module.compute_once) for loader in loaders if loader]
            self.module.begin_stage(cached[0])

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Update the exponential moving average of the weights."""
        step = self.global_step - self._stage_start
        decay = min(self.config.ema_decay, (1 + step) / (10 + step))
        update_ema(self.module.ema_denoiser, self.module.denoiser, decay)

    def on_validation_epoch_end(self) -> None:
        """Keep the weights with the lowest validation loss; stop if the loss rises by ``max_validation_rise``."""
        loss = float(self.trainer.callback_metrics["validation_loss"])
        last_stage = self._stage + 1 == len(self._stage_ends)
        judges = self.module.denoiser.judged_by_validation and not math.isinf(self.config.max_validation_rise)
        if not last_stage or self.trainer.sanity_checking or not judges or self.learns_draws():
            return
        self._last_loss = loss
        if loss < self._best_loss:
            self._best_loss, self._best = loss, [deepcopy(part.state_dict()) for part in self.module.denoisers]
        elif loss > self._best_loss * (1 + self._largest_rise()):
            self.trainer.should_stop |= self.trainer.early_stopping_callback is None  # takes precedence

    def learns_draws(self) -> bool:
        """Whether the epoch is one of the first, for which cells are drawn."""
        return self.current_epoch < drawn_epochs(self.config.drawn_share, self.trainer.max_epochs or 0)

    def _largest_rise(self) -> float:
        return self.module.denoiser.largest_rise(self.config.max_validation_rise)

    @property
    def is_usable(self) -> bool:
        """Whether the last stage has made a step, so that the model can generate."""
        return self.n_steps > 0 and self._stage + 1 == len(self._stage_ends) and self.global_step > self._stage_start

    def on_train_end(self) -> None:
        """Restore the weights with the lowest validation loss, unless the last loss is within sampling noise of it."""
        if not self._last_loss <= self._best_loss * (1 + self._largest_rise() / 4):  # also if it is NaN
            for part, weights in zip(self.module.denoisers, self._best, strict=False):
                part.load_state_dict(weights)
        self._best.clear()  # copies, which a model would keep

    def get_extra_state(self) -> dict[str, Any]:
        """Return the state, besides weights, that processes forked by a notebook pass back, as plain values."""
        attached = self._trainer is not None and self.trainer.is_global_zero
        logged = logged_history(self.trainer) if attached else {}
        plain = {name: [df.index.name, df.index.tolist(), list(map(float, df[name]))] for name, df in logged.items()}
        return {"n_steps": self.n_steps, "logged": plain}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.n_steps = state["n_steps"]
        for name, (kind, numbers, losses) in state["logged"].items():
            self.logged[name] = pd.DataFrame({name: losses}, index=pd.Index(numbers, name=kind))

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Set up AdamW, with warm-up and cosine decay of the learning rate over the run, or over each stage."""
        config, linear = self.config, list(self.module.denoiser.linear_weights())
        decay, share = self.module.denoiser.regularisation(max(self.n_obs_training, 1))
        decay = decay if config.weight_decay is None else config.weight_decay
        share = share if config.linear_lr is None else config.linear_lr
        embeddings = [p for p in self.module.denoiser.embed.parameters() if p.ndim > 1]
        separate = {id(weight) for weight in [*linear, *embeddings]}
        rest = [p for p in self.module.denoiser.parameters() if id(p) not in separate]
        groups = [
            {"params": [p for p in rest if p.ndim > 1], "weight_decay": decay},
            {"params": [p for p in rest if p.ndim <= 1], "weight_decay": 0.0},
            {"params": embeddings, "weight_decay": min(decay, EMBEDDING_DECAY)},
            {"params": linear, "weight_decay": decay, "lr": config.lr * share},
        ]
        optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=config.lr, fused=True)
        try:
            n_steps = max(int(self.trainer.estimated_stepping_batches), 1)
            n_batches = max(int(self.trainer.num_training_batches), 1)
        except OverflowError:  # raised by Lightning if an epoch has no minibatch
            raise ValueError(NO_STEP) from None
        self._stage_ends = stage_ends(self.module.stages(), math.ceil(n_steps / n_batches))
        starts = [0, *(n_batches * end for end in self._stage_ends[:-1])]
        lengths = [max(end - start, 1) for start, end in zip(starts, [*starts[1:], n_steps], strict=True)]

        factor = partial(rate_factor, starts=starts, lengths=lengths, n_warmup_steps=config.n_warmup_steps)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def logged_history(trainer: pl.Trainer) -> dict[str, pd.DataFrame]:
    """Return the logged losses by name, from the first logger with a history."""
    histories = [getattr(logger, "history", None) for logger in trainer.loggers]  # a method in non-logging processes
    return next((dict(history) for history in histories if isinstance(history, Mapping)), {})


@torch.no_grad()
def update_ema(average: nn.Module, network: nn.Module, decay: float) -> None:
    """Update the exponential moving average: ``decay * average + (1 - decay) * network``."""
    get_ema_multi_avg_fn(decay)(list(average.parameters()), list(network.parameters()), None)
    for averaged, buffer in zip(average.buffers(), network.buffers(), strict=True):
        averaged.copy_(buffer)


def rate_factor(step: int, starts: Sequence[int], lengths: Sequence[int], n_warmup_steps: int) -> float:
    """Compute the factor of the learning rate at a step: linear warm-up and cosine decay within each stage."""
    stage = bisect_right(starts, step) - 1
    n_warmup = max(min(n_warmup_steps, lengths[stage] // 10), 1)
    done = step - starts[stage]
    return min((done + 1) / n_warmup, 1.0) * 0.5 * (1 + math.cos(math.pi * min(done / lengths[stage], 1)))


def drawn_epochs(share: float, n_epochs: int) -> int:
    """Return the number of first epochs for which cells are drawn."""
    return round(share * n_epochs)


def stage_ends(shares: Sequence[float], n_epochs: int) -> list[int]:
    """Divide epochs among stages by shares, and return the last epochs; a positive share gets at least one epoch."""
    ends: list[int] = []
    total = 0.0
    for position, share in enumerate(shares):
        total += share
        n_later = sum(later > 0 for later in shares[position + 1 :])
        least = (ends[-1] if ends else 0) + (share > 0)
        ends.append(min(max(round(total * n_epochs), least), n_epochs - n_later))
    return ends


class GracefulTrainer(Trainer):
    """Trainer that ends training at Control-C or SIGTERM, while Lightning would exit the whole script."""

    def fit(self, plan: DiffusionTrainingPlan, *args: Any, **kwargs: Any) -> None:
        """Fit the model; raise KeyboardInterrupt only if no weights can be used yet."""
        loggers: list[Logger] = self.loggers  # type: ignore[has-type]
        if loggers and not any(hasattr(logger, "history") for logger in loggers):
            self.loggers = [*loggers, SimpleLogger()]
        on_cpu = self.strategy.root_device.type == "cpu"
        if on_cpu and self.precision == "bf16-mixed":
            warn_of_slow_bfloat16(*(matrix_product_rate(dtype) for dtype in (torch.float32, torch.bfloat16)))
        if on_cpu and hasattr(os, "getloadavg"):
            warn_of_busy_cores(os.getloadavg()[0], os.cpu_count() or 1, torch.get_num_threads())
        try:
            super().fit(plan, *args, **kwargs)
        except (KeyboardInterrupt, SystemExit) as error:  # Lightning raises kinds of SystemExit
            if not {type(error), type(error.__context__)} & {KeyboardInterrupt, SIGTERMException}:
                raise
            if not plan.is_usable:
                raise KeyboardInterrupt("Training was interrupted before its first step.") from None
            plan.on_train_end()
            warn_user(
                f"Training was interrupted after {self.current_epoch} of {self.max_epochs} epochs. The model keeps the "
                "weights averaged so far: use or save it, or call `train` again to go on."
            )


def warn_of_busy_cores(load: float, n_cores: int, n_threads: int) -> None:
    """Warn if more threads ran in the last minute than there are cores, and PyTorch uses several threads."""
    if n_threads > 1 and load > n_cores + 1:  # threads of an earlier training alone stay below
        warn_user(
            f"{load:.0f} threads are running on {n_cores} cores, and the {n_threads} threads of PyTorch wait for one "
            "another, so training may be ten times slower. Call `torch.set_num_threads(1)` right before `train`, or "
            "set OMP_NUM_THREADS=1 and NUMBA_NUM_THREADS=1 (for scanpy, which changes the former) before Python starts."
        )


def matrix_product_rate(dtype: torch.dtype, size: int = 256, n_repeats: int = 5) -> float:
    """Measure the rate of matrix products on the CPU in operations per second; takes milliseconds."""
    matrix = torch.ones(size, size, dtype=dtype)
    return 2 * size**3 / min(timeit.repeat(lambda: matrix @ matrix, number=1, repeat=n_repeats))


def warn_of_slow_bfloat16(float32_rate: float, bfloat16_rate: float) -> None:
    """Warn if matrix products on the CPU are faster in float32 than in bfloat16, by operations per second."""
    if bfloat16_rate < float32_rate:
        warn_user(
            f"`precision` is 'bf16-mixed', but this CPU multiplies matrices faster in float32 ({float32_rate:.2g} "
            f"operations per second) than in bfloat16 ({bfloat16_rate:.2g}), so training would be slower: leave "
            "`precision` out to train in float32."
        )
