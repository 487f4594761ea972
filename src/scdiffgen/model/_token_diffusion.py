"""The model class: named sizes, registration, construction, training, and display in notebooks."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from html import escape
from numbers import Integral
from typing import Any, Literal

import numpy as np
import torch
from anndata import AnnData
from lightning.pytorch import LightningDataModule
from mudata import MuData
from scvi.model.base import BaseModelClass
from scvi.utils import setup_anndata_dsp

from scdiffgen._arguments import check_choice, check_share, check_whole_number
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen._shared_docs import shared_docs
from scdiffgen.data import condition_specs, counts_keys, feature_names, read_registry, required_state
from scdiffgen.module import PROCESSES, DiffusionModule, GaussianOptions, named_process
from scdiffgen.nn import NetworkOptions, NetworkSize
from scdiffgen.train import DiffusionTrainingPlan, cell_loader

from ._checks import check_torch, external_split
from ._expression_mixin import DrawingExpression
from ._generating import Generating, explain_unknown_arguments
from ._model_access import check_genes, checked_cells, less_chatter, modalities, register_anndata, register_mudata
from ._persisting import Persisting
from ._reading import Reading
from ._responding import Responding
from ._token_mixin import TokenReading
from ._training_data import StreamedData
from ._training_runs import (
    check_training,
    may_draw,
    run_training,
    settled_epochs,
    settled_plan,
    settled_stopping,
    training_size,
)

Preset = Literal["small", "medium", "base", "large"]

PRESETS: dict[str, NetworkSize] = {
    "small": NetworkSize(),
    "medium": NetworkSize(n_tokens=16, n_layers=3),
    "base": NetworkSize(n_tokens=64, token_dim=256, n_layers=6, n_heads=8, n_hidden=1024, conditioning_dim=512),
    "large": NetworkSize(n_tokens=128, token_dim=512, n_layers=12, n_heads=8, n_hidden=2048, conditioning_dim=1024),
}

MANY_CELLS = 25_000  # number of cells from which the default is "medium", for benchmarked types of models


def network_size(preset: Preset, options: NetworkOptions, is_benchmarked: bool, **sizes: int | None) -> NetworkSize:
    """Build a preset with given sizes; read-out units and orthogonality only for benchmarked types of models."""
    check_choice("preset", preset, PRESETS)
    known = {field.name for field in fields(NetworkSize)}
    given = {name: n for name, n in {**vars(options), **sizes}.items() if name in known and n is not None}
    given = {"readout_units": 8 if is_benchmarked else 0, **given}
    if is_benchmarked and options.orthogonality is None:
        options = replace(options, orthogonality=0.3)
    return replace(PRESETS[preset], options=options, **given)


class TokenDiffusion(Generating, Responding, DrawingExpression, Reading, TokenReading, Persisting):
    """Conditional token diffusion on single-cell counts.

    Binomial thinning removes random molecules of a cell, and the network predicts the missing molecules from the
    remaining ones and the conditions, through a few latent tokens and a transformer. Sampling adds molecules to an
    empty cell, so generated counts are integers. Tokens decode additively into gene scores (log-rates).

    Parameters
    ----------
    adata
        Cells registered with :meth:`setup_anndata` or :meth:`setup_mudata`.
    preset
        Size of the network: ``"small"``, ``"medium"``, ``"base"`` (for a GPU) or ``"large"`` (for atlases). ``None`` is
        ``"medium"`` from 25,000 cells on; it is ``"small"`` for fewer cells or several modalities. Printing the model
        shows the size. The next arguments override parts of it.
    n_tokens, token_dim
        Number of tokens per cell, and length of a token.
    n_layers
        Number of transformer blocks.
    condition_dropout
        Rate of condition dropout in training, per cell and condition. Half of it drops conditions independently, so
        that any subset may be given later; the other half drops all conditions together, for
        classifier-free guidance.
    process
        Diffusion process. ``"thinning"`` removes and adds molecules. ``"gaussian"`` adds noise to normal scores of
        counts, ``"latent"`` to the tokens of an autoencoder, which is trained first. Options replace these names:
        :class:`scdiffgen.model.GaussianOptions`, :class:`scdiffgen.model.LatentOptions`.
    network
        Options of the network, such as embeddings and attention: :class:`scdiffgen.model.NetworkOptions`.
    registry
        Registry instead of ``adata``: ``model.registry`` of another model, :meth:`load_registry` of a saved model, or
        the ``registry`` of a data module of scvi-tools. Train such a model by ``train(datamodule=...)``.

    Raises
    ------
    ValueError
        If a value is out of range or not one of the choices.
    TypeError
        If an argument is unknown, or of the wrong type.

    Examples
    --------
    >>> import scdiffgen
    >>> adata = scdiffgen.datasets.pbmc68k()
    >>> scdiffgen.model.setup_anndata(adata, layer="counts", labels_key="cell_type")
    >>> model = scdiffgen.model.TokenDiffusion(adata, n_tokens=4, token_dim=16)
    >>> model.train(max_epochs=1, enable_progress_bar=False)
    """

    module: DiffusionModule
    training_summary_: dict[str, Any] | None = None  # TrainingSummary as plain data
    _frozen_shapes_: dict[str, list[int]] | None = None  # of the weights of the reference, in a frozen query model
    _module_cls = DiffusionModule
    _training_plan_cls = DiffusionTrainingPlan
    _data_loader_cls = staticmethod(cell_loader)

    @explain_unknown_arguments
    def __init__(
        self,
        adata: AnnData | MuData | None = None,
        preset: Preset | None = None,
        *,
        n_tokens: int | None = None,
        token_dim: int | None = None,
        n_layers: int | None = None,
        condition_dropout: float = 0.1,
        process: Literal["thinning", "gaussian", "latent"] | GaussianOptions = "thinning",
        network: NetworkOptions | None = None,
        registry: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(adata, None if registry is None else read_registry(registry, type(self)))
        if adata is not None:
            check_genes(self, adata)
        check_torch()
        check_share("condition_dropout", condition_dropout)
        network = NetworkOptions() if network is None else network
        if not isinstance(network, NetworkOptions):
            raise TypeError(f"`network` is {network!r}: pass `scdiffgen.model.NetworkOptions(...)`.")
        sizes = {"n_tokens": n_tokens, "token_dim": token_dim, "n_layers": n_layers}
        specs, n_vars = condition_specs(self.registry), counts_keys(self.registry)
        is_large = self.summary_stats.get("n_cells", 0) >= MANY_CELLS and len(n_vars) == 1
        default: Preset = "medium" if is_large else "small"  # of several modalities, larger ones have no benchmark
        chosen = "" if preset else f" (the default {default!r} for these cells)"
        preset = preset or default  # saved with the model, because a file may be loaded with other cells
        name, _ = named_process(process, len(n_vars))
        is_benchmarked = PROCESSES[name].denoiser.is_benchmarked and len(n_vars) == 1
        size = network_size(preset, network, is_benchmarked=is_benchmarked, **sizes)
        features = {
            spec.name: torch.from_numpy(required_state(self.registry, spec.registry_key)["features"])
            for spec in specs
            if spec.n_features
        }
        self.module = DiffusionModule(n_vars, specs, size, condition_dropout, features, process)
        several = [f"{len(names)} columns of {name!r}" for name, names in feature_names(self.registry).items()]
        known = [spec.name + " with doses" * (spec.kind == "set" and spec.has_values) for spec in specs]
        self._model_summary_string = (
            f"TokenDiffusion on {' + '.join(several) or f'{self.module.n_vars} genes'}: {size.n_tokens} tokens of "
            f"{size.token_dim}, {size.n_layers} layers{chosen}, process {name!r}, conditions: "
            f"{', '.join(known) or 'none'}"
        )
        self.init_params_ = self._get_init_params(locals())

    @classmethod
    @shared_docs
    @setup_anndata_dsp.dedent
    def setup_anndata(
        cls,
        adata: AnnData,
        layer: str | None = None,
        *,
        labels_key: str | None = None,
        batch_key: str | None = None,
        perturbation_key: str | list[str] | None = None,
        control: str | list[str] = "control",
        perturbation_sep: str = "+",
        dose_key: str | list[str] | None = None,
        dose_unit: str | None = None,
        hierarchy_keys: list[str] | None = None,
        categorical_covariate_keys: list[str] | None = None,
        continuous_covariate_keys: list[str] | None = None,
        text_key: str | None = None,
        perturbation_features_key: str | None = None,
        gene_symbols: str | None = None,
        **kwargs: Any,
    ) -> None:
        """%(summary)s.

        Parameters
        ----------
        %(param_adata)s
        %(param_layer)s
        %(param_labels_key)s
        %(param_batch_key)s
        **kwargs
            ``source_registry`` and ``extend_categories``, which scvi-tools passes to register cells like earlier ones.

        {raises_setup}

        Examples
        --------
        >>> import scdiffgen
        >>> adata = scdiffgen.datasets.pbmc68k()
        >>> scdiffgen.model.TokenDiffusion.setup_anndata(adata, layer="counts", labels_key="cell_type")
        """
        register_anndata(cls, adata, cls._get_setup_method_args(**locals()), kwargs)

    @classmethod
    @shared_docs
    def setup_mudata(
        cls,
        mdata: MuData,
        modalities: Sequence[str] | None = None,
        layers: Mapping[str, str | None] | None = None,
        *,
        labels_key: str | None = None,
        batch_key: str | None = None,
        perturbation_key: str | list[str] | None = None,
        control: str | list[str] = "control",
        perturbation_sep: str = "+",
        dose_key: str | list[str] | None = None,
        dose_unit: str | None = None,
        hierarchy_keys: list[str] | None = None,
        categorical_covariate_keys: list[str] | None = None,
        continuous_covariate_keys: list[str] | None = None,
        text_key: str | None = None,
        perturbation_features_key: str | None = None,
        gene_symbols: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Register a MuData whose modalities are counts, such as RNA, protein tags or open chromatin.

        Each modality has its own library sizes and read-out; all modalities share the tokens. A cell without a molecule
        of a modality counts as not measured in it. Protein tags that are zero in a whole batch count as missing in it.

        Parameters
        ----------
        mdata
            Cells of several modalities.
        modalities
            Keys in ``mdata.mod``; by default all modalities.
        layers
            Layer of the counts by modality, such as ``{"rna": "counts"}``; omitted modalities use ``.X``.
        labels_key, batch_key
            As in :meth:`setup_anndata`, columns of ``mdata.obs``.
        **kwargs
            As in :meth:`setup_anndata`.

        {raises_setup}

        Examples
        --------
        >>> import scdiffgen
        >>> mdata = scdiffgen.datasets.simulate_cite(n_cells=50)
        >>> scdiffgen.model.TokenDiffusion.setup_mudata(mdata, labels_key="cell_type")
        """
        register_mudata(cls, mdata, cls._get_setup_method_args(**locals()), kwargs)

    def train(
        self,
        max_epochs: int | None = None,
        accelerator: str = "auto",
        devices: int | list[int] | str = "auto",
        train_size: float | None = None,
        validation_size: float | None = None,
        shuffle_set_split: bool = True,
        batch_size: int = 256,
        early_stopping: bool | None = None,
        check_val_every_n_epoch: int | None = None,
        datasplitter_kwargs: dict[str, Any] | None = None,
        plan_config: Any = None,
        plan_kwargs: dict[str, Any] | None = None,
        datamodule: LightningDataModule | None = None,
        trainer_config: Any = None,
        **trainer_kwargs: Any,
    ) -> None:
        """Train the model. Control-C or SIGTERM ends training early and keeps the model; then Control-C raises.

        Parameters
        ----------
        max_epochs
            Number of epochs. The default makes about ``1.5 * n_train ** 0.8`` steps, at least 500; without hidden units
            in the read-out, ``2.5 * n_train ** 0.8``, at least 1,000 (``process="gaussian"``: 2,000). A first training
            with 500 to 2,500 cells has twice as many, of which the first half uses cells that are drawn from a Gaussian
            copula of the training cells (``drawn_share`` of the plan).
        accelerator, devices
            As in Lightning; ``"auto"`` uses a GPU (CUDA, ROCm) if there is one, and the CPU on Apple silicon.
        train_size, validation_size
            Shares of the cells, by default 0.9 and the rest. Cells in neither are a test set.
        shuffle_set_split, batch_size
            Whether to shuffle cells before the split; number of cells per step.
        early_stopping
            ``None`` stops when the validation loss exceeds its minimum by 1 % or less (``max_validation_rise`` of the
            plan; never ``process="gaussian"``), ``True`` by the rules of scvi-tools. Both then restore the best weights
            if the last loss is higher by more than a quarter of that share; ``False`` does neither.
        check_val_every_n_epoch
            Epochs between validations; by default about 100 steps, at most a twentieth of the epochs, and 1 with
            ``early_stopping=True``.
        datasplitter_kwargs
            Arguments of :class:`scvi.dataloaders.DataSplitter`; ``external_indexing`` fixes the split.
        plan_config, plan_kwargs
            Settings of the optimiser, see :class:`scdiffgen.train.TrainingPlanConfig`.
        datamodule
            Data module for a model created from a ``registry``; minibatches map registry keys to tensors.
        trainer_config, **trainer_kwargs
            Arguments of :class:`scvi.train.Trainer`, such as ``logger``, ``enable_progress_bar`` or ``callbacks``.

        Raises
        ------
        ValueError
            If there are too few cells or epochs, early stopping has no validation cells, a number is out of range,
            minibatches do not match the registry, or a query model has nothing new to learn.
        TypeError
            If ``plan_kwargs`` or ``trainer_kwargs`` holds an unknown name, or ``datamodule`` has the wrong type.
        RuntimeError
            If the gradients of ten steps in a row are not finite, or far larger than usual.

        Examples
        --------
        >>> from scdiffgen.model import TokenDiffusion
        >>> TokenDiffusion(adata).train(max_epochs=1, plan_kwargs={"lr": 1e-3}, enable_progress_bar=False)
        """
        split = {
            "train_size": train_size,
            "validation_size": validation_size,
            "shuffle_set_split": shuffle_set_split,
            "batch_size": batch_size,
            **(datasplitter_kwargs or {}),
        }
        split["batch_size"] = check_whole_number("batch_size", split["batch_size"])
        devices = int(devices) if isinstance(devices, Integral) else devices
        check_training(self, datamodule, accelerator, devices, split, trainer_kwargs)
        if split.get("external_indexing") is not None:
            split["external_indexing"] = external_split(split["external_indexing"], self.adata.n_obs)
        streamed = None if datamodule is None else StreamedData(datamodule, self, initialise=not self.is_trained_)
        size = training_size(self, split, streamed)
        few = may_draw(self, size[0], streamed)
        plan = settled_plan(self, plan_config, plan_kwargs, early_stopping, may_draw=few)
        share = plan["drawn_share"]
        epochs = settled_epochs(self, max_epochs, check_val_every_n_epoch, early_stopping, size, share)
        stopping = settled_stopping(self, early_stopping, trainer_kwargs, split, streamed, share, **epochs)
        chosen = {"accelerator": accelerator, "devices": devices, "trainer_config": trainer_config}
        run_training(self, streamed, split, plan, {**epochs, **chosen, **trainer_kwargs, **stopping})

    def get_var_names(self, legacy_mudata_format: bool = False) -> np.ndarray | dict[str, np.ndarray]:
        """Return the registered gene names; for a MuData, a mapping from modalities to names of features.

        Parameters
        ----------
        legacy_mudata_format
            Whether to return the names of all modalities as one array.
        """
        if not modalities(self):
            return np.asarray(required_state(self.registry, REGISTRY_KEYS.X)["column_names"])
        names = feature_names(self.registry)
        return np.concatenate(list(names.values())) if legacy_mudata_format else names

    def __repr__(self) -> str:
        return self.summary_string  # scvi-tools would print it, and twice in a notebook

    def _repr_html_(self) -> str:
        return model_as_html(self)

    def _validate_anndata(self, adata: AnnData | MuData | None = None, copy_if_view: bool = True) -> AnnData | MuData:
        """Validate cells for the methods of scvi-tools, with further checks."""
        check_genes(self, self.adata if (cells := checked_cells(self, adata)) is None else cells)
        with less_chatter("scvi.model.base"):
            return super()._validate_anndata(cells, copy_if_view)


def model_as_html(model: BaseModelClass) -> str:
    """Build an HTML table of a model: its sizes, process and training, and a row for each condition."""
    module, size = model.module, model.module.size
    rows = {
        "genes": f"{module.n_vars:,}",
        "network": f"{size.n_tokens} tokens of {size.token_dim}, {size.n_layers} layers",
        "process": module.process_name,
        "trained": "yes" if model.is_trained_ else "no",
    }
    for spec in module.specs:
        categories = f"{spec.n_categories:,} categories" if spec.n_categories else "a number"
        rows[spec.name] = f"{categories}, with doses" if spec.kind == "set" and spec.has_values else categories
    cells = (f"<tr><th>{escape(str(name))}</th><td>{escape(value)}</td></tr>" for name, value in rows.items())
    return f"<table><caption>{escape(type(model).__name__)}</caption>{''.join(cells)}</table>"
