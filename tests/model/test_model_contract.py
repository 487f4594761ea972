"""Models that keep the contract pass, and each fault fails the check that is there to find it."""

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from anndata import AnnData
from masked_genes import MASKING
from model_contract import CHECKS, check_model
from small_cells import SMALL

from scdiffgen.model import TokenDiffusion
from scdiffgen.module import PROCESSES

MODULES: dict[type, Any] = {}
CALLS = itertools.count()


@pytest.mark.parametrize("process", ["thinning", "gaussian", "latent", "masking"])
def test_every_process_keeps_the_contract(process: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROCESSES, "masking", MASKING)
    check_model(TokenDiffusion, options={**SMALL, "process": process}, n_examples=2)


def spoilt(method: str, fault: Callable[..., Any]) -> type[TokenDiffusion]:
    """A subclass in which ``fault(model or class, method of TokenDiffusion, *arguments)`` stands for a method."""

    def faulty(owner: Any, *arguments: Any, **options: Any) -> Any:
        return fault(owner, getattr(super(Spoilt, owner), method), *arguments, **options)

    is_of_class = isinstance(inspect.getattr_static(TokenDiffusion, method), classmethod)
    Spoilt = type("Spoilt", (TokenDiffusion,), {method: classmethod(faulty) if is_of_class else faulty})
    return Spoilt


def shaken(model: TokenDiffusion) -> TokenDiffusion:
    with torch.no_grad():
        for weight in model.module.parameters():
            weight.add_(0.1)
    return model


def trains_one_module(model: TokenDiffusion, train: Callable[..., Any], **options: Any) -> None:
    model.module = MODULES.setdefault(type(model), model.module)
    train(**options)


def shares_the_module(_: type, load: Callable[..., Any], adata: AnnData, reference: Any, **options: Any) -> Any:
    query = load(adata, reference, **options)
    query.module = reference.module
    return query


def any_genes(model: TokenDiffusion, validate: Callable[..., Any], adata: Any = None, *options: Any) -> Any:
    if adata is not None and adata is not model.adata:
        adata.var_names = model.get_var_names()
    return validate(adata, *options)


def encodes_anew(model: TokenDiffusion, read: Callable[..., Any], adata: Any = None, **options: Any) -> Any:
    if adata is not None:
        labels = adata.obs["cell_type"].astype("category")
        adata = adata.to_memory().copy()
        known = model.registry["field_registries"]["labels"]["state_registry"]["categorical_mapping"]
        adata.obs["cell_type"] = known[labels.cat.codes]
    return read(adata, **options)


def writes_into_parents(model: TokenDiffusion, read: Callable[..., Any], adata: Any = None, **options: Any) -> Any:
    if adata is not None and adata.is_view:
        adata._adata_ref.obs["read"] = True
    return read(adata, **options)


def keeps_results(model: TokenDiffusion, generate: Callable[..., Any], *, seed: int, **options: Any) -> Any:
    kept = vars(model).setdefault("kept", {})
    return kept.get(seed) or kept.setdefault(seed, generate(seed=seed, **options))


def counts_calls(model: TokenDiffusion, read: Callable[..., Any], *cells: Any, **options: Any) -> Any:
    model.n_calls = getattr(model, "n_calls", 0) + 1
    return read(*cells, **options) + 0.1 * (model.n_calls > 2)


def learns(model: TokenDiffusion, generate: Callable[..., Any], **options: Any) -> Any:
    model.module.denoiser.network.readout.bias.data.add_(1e-3)  # not of the averaged network, which generates
    return generate(**options)


LATENTS = "get_latent_representation"
FAULTS: list[tuple[str, str, Callable[..., Any], str]] = [
    ("registry", "setup_anndata", lambda _, setup, x, **o: (x.obs.insert(0, "i", 0), setup(x, **o)), "of 'obs'"),
    ("registry", "train", trains_one_module, "after another model of the cells was trained; found"),
    ("saving", "load", lambda _, load, *a, **o: shaken(load(*a, **o)), "after loading with its cells; found"),
    ("saving", "_validate_anndata", any_genes, "ValueError for cells with other genes; found no error"),
    ("query", "load_query_data", lambda _, load, *a, **o: shaken(load(*a, **o)), "of a query model before training"),
    ("query", "load_query_data", shares_the_module, "weights of the reference of a query model to stay the same"),
    ("rows", LATENTS, lambda _, read, x=None, indices=None, **o: read(x, **o), "of shape (4, 16) for `indices=[7"),
    ("rows", LATENTS, lambda _, read, *a, **o: np.sort(read(*a, **o), axis=0), "for `indices=[7, 3, 3, 0]`; found"),
    ("rows", LATENTS, lambda _, read, *a, **o: (x := read(*a, **o)) - x.mean(0), "for `indices="),
    ("forms", LATENTS, lambda _, read, x, **o: read(x, **o) + (x is not None and x.X.dtype == "uint16"), "as uint16;"),
    ("forms", "get_normalized_expression", encodes_anew, "the same `get_normalized_expression` from "),
    ("forms", LATENTS, writes_into_parents, "of a view that is read to stay the same; found changes of 'obs'"),
    ("forms", "setup_anndata", lambda _, do, x, **o: (setattr(x, "X", x.X.round()), do(x, **o)), "for fractions in `s"),
    ("seeds", "generate", lambda _, do, *, seed, **o: do(seed=next(CALLS), **o), "when called again; found"),
    ("seeds", "generate", lambda _, do, *, seed, **o: do(seed=0, **o), "other cells from another seed; found the same"),
    ("seeds", "generate", lambda _, do, *, seed, **o: do(seed=None, **o), "to leave global randomness alone; found"),
    ("seeds", "generate", learns, "weights in `generate` to stay the same; found changes of"),
    ("untrained", "generate", lambda model, do, **o: do(**o) if model.is_trained else model.adata, "before training;"),
    ("calls", "generate", keeps_results, "as of a copy saved after training; found"),
    ("calls", LATENTS, counts_calls, "the same `get_latent_representation` as of a copy saved after training; found"),
]


@pytest.mark.parametrize(("check", "method", "fault", "message"), FAULTS)
def test_each_fault_fails_its_check(check: str, method: str, fault: Callable[..., Any], message: str) -> None:
    with pytest.raises(AssertionError, match=rf"^`Spoilt` fails the check '{check}'\. Expected .*\.$") as raised:
        check_model(spoilt(method, fault), options=SMALL, checks=[check])
    assert message in str(raised.value)


def test_every_check_has_a_fault_and_errors_fail_it_too() -> None:
    assert {check for check, *_ in FAULTS} == set(CHECKS)
    with pytest.raises(AssertionError, match=r"'untrained'\. Expected no error; found TypeError.*n_token"):
        check_model(TokenDiffusion, options={"n_token": 2}, checks=["untrained"])
    with pytest.raises(ValueError, match=r"`checks` names \['seed'\]: choose from"):
        check_model(TokenDiffusion, checks=["seed"])
