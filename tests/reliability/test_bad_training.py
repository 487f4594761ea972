"""Networks that cannot be made, and trainings that cannot start."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from anndata import AnnData
from bad_input import Bad, check, ids
from fingerprint import fingerprint
from small_cells import QUIET, SMALL

from scdiffgen.model import NetworkOptions, TokenDiffusion


def make(**options: Any) -> Callable[[AnnData], None]:
    def act(cells: AnnData) -> None:
        TokenDiffusion.setup_anndata(cells, labels_key="cell_type")
        TokenDiffusion(cells, **{**SMALL, **options})

    return act


def network(**options: Any) -> Callable[[AnnData], None]:
    return lambda cells: make(network=NetworkOptions(**options))(cells)


def train(n_cells: int = 60, **options: Any) -> Callable[[AnnData], None]:
    def act(cells: AnnData) -> None:
        cells = cells[:n_cells].copy()
        TokenDiffusion.setup_anndata(cells, labels_key="cell_type")
        before = fingerprint(cells)
        try:
            TokenDiffusion(cells, **SMALL).train(**{"max_epochs": 1, **QUIET, **options})
        finally:
            assert fingerprint(cells) == before

    return act


def split(*parts: list[int]) -> dict[str, Any]:
    return {"datasplitter_kwargs": {"external_indexing": [np.array(part, dtype=int) for part in parts]}}


WHOLE = "whole number of at least 1"
STOP, WITH = "early_stopping=True", {"early_stopping": True}
MAKING = [
    Bad("an unknown preset", make(preset="tiny"), "`preset`", "'tiny'", "one of ['small', 'medium', 'base', 'large']"),
    Bad("half a token", make(n_tokens=2.5), "`n_tokens`", "2.5", WHOLE),
    Bad("a number as text", make(n_tokens="2"), "`n_tokens`", "'2'", WHOLE),
    Bad("no tokens", make(n_tokens=0), "`n_tokens`", "0", WHOLE),
    Bad("a truth value as number", make(n_tokens=True), "`n_tokens`", "True", WHOLE),
    Bad("an odd length", make(token_dim=7), "`token_dim`", "7", "multiple of"),
    Bad("fewer than no layers", make(n_layers=-1), "`n_layers`", "-1", "at least 0"),
    Bad("all units dropped", network(dropout=1.0), "`dropout`", "1.0", "[0, 1)"),
    Bad("a share as text", make(condition_dropout="10 %"), "`condition_dropout`", "'10 %'", "[0, 1)"),
    Bad("a share that is NaN", make(condition_dropout=np.nan), "`condition_dropout`", "nan", "[0, 1)"),
    Bad("an unknown conditioning", network(conditioning="film"), "`conditioning`", "'film'", "'adaln'"),
    Bad("an unknown process", make(process="langevin"), "`process`", "'langevin'", "'thinning'"),
    Bad("half a head", network(n_heads=1.5), "`n_heads`", "1.5", WHOLE),
    Bad("a network by name", make(network="mlp"), "`network`", "'mlp'", "NetworkOptions", TypeError),
    Bad("cells never registered", lambda c: TokenDiffusion(c), "AnnData", "set up", "TokenDiffusion.setup_anndata"),
    Bad("patience alone", train(early_stopping_patience=3), "`early_stopping_patience`", "no effect", STOP, TypeError),
    Bad("an unknown loss", train(early_stopping_monitor="elbo", **WITH), "`early_stopping_mon", "'elbo'", "'valid"),
    Bad("no validation", train(train_size=1.0, **WITH), "`early_stopping=True`", "there are none", "train_size=0.9"),
    Bad("misspelt epochs", train(epochs=3), "`train`", "'epochs'", "'max_epochs'", TypeError),
    Bad("a setting of the plan", train(plan_kwargs={"lrs": 1}), "`plan_kwargs`", "'lrs'", "'lr'", TypeError),
    Bad("no epoch", train(max_epochs=0), "`max_epochs`", "0", WHOLE),
    Bad("half an epoch", train(max_epochs=0.5), "`max_epochs`", "0.5", WHOLE),
    Bad("empty minibatches", train(batch_size=0), "`batch_size`", "0", WHOLE),
    Bad("more than all cells", train(train_size=1.5), "`train_size`", "1.5", "(0, 1]"),
    Bad("a share of none", train(train_size=0), "`train_size`", "0", "(0, 1]"),
    Bad("a split as text", train(train_size="0.9"), "`train_size`", "'0.9'", "(0, 1]"),
    Bad("overlapping shares", train(train_size=0.9, validation_size=0.2), "`validation_size`", "0.2", "at most 1"),
    Bad("nothing held out", train(validation_size=1.0), "`validation_size`", "1.0", "[0, 1)"),
    Bad("a single cell", train(n_cells=1), "`adata`", "1 cell,", "train_size=1.0"),
    Bad("two cells", train(n_cells=2), "`adata`", "2 cells,", "train_size=1.0"),
    Bad("no number of epochs between validations", train(check_val_every_n_epoch=0), "`check_val_", "0", WHOLE),
    Bad("steps as text", train(max_steps="3"), "`max_steps`", "'3'", "whole number of at least -1"),
    Bad("half a patience", train(early_stopping_patience=2.5, **WITH), "`early_stopping_pat", "2.5", "at least 0"),
    *(
        Bad(f"precision {value}", train(precision=value), "`precision`", repr(value), "'32-true', 'bf16-mixed', '16-m")
        for value in ("fp8", "64-true", "bf16-true", 8)
    ),
    Bad("seven CPUs", train(devices=7), "`devices`", "7", "`strategy`"),
    Bad("no such accelerator", train(accelerator="xx"), "`accelerator`", "'xx'", "'cpu'"),
    *(
        Bad(f"a split {what}", train(**split(*parts)), "external_indexing", value, way_out)
        for what, parts, value, way_out in [
            ("with a cell twice", ([0, 1, 2], [2, 3]), "2", "each cell once"),
            ("beyond the cells", ([0, 1, 60], []), "60", "60 cells"),
            ("without training cells", ([], [0]), "no training cell", "Pass a list"),
            ("of four parts", ([0], [1], [2], [3]), "list", "up to three arrays"),
        ]
    ),
    Bad("names", train(datasplitter_kwargs={"external_indexing": ["a"]}), "external_indexing", "no pos", "Pass"),
    Bad("a GPU that is not there", train(accelerator="gpu"), "`accelerator`", "'gpu'", "pass 'cpu'"),
    Bad("the GPU of a Mac", train(accelerator="mps"), "`accelerator`", "double precision", "pass 'cpu'"),
    Bad("an unknown device", train(accelerator="quantum"), "accelerator", "quantum", "cpu"),
]


@pytest.mark.parametrize("row", ids(MAKING))
def test_models_that_cannot_be_made_or_trained(row: Bad, cells: AnnData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    check(row, cells)
