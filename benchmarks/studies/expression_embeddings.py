"""What does an encoder gain from embedded counts? Embeddings of expression compared, also on counts never trained on.

``python -m benchmarks.studies.expression_embeddings --data kang --seeds 0 1 2 --left-out``

Scores are on the *other real cells* of the benchmark, which it neither trains on nor reports. With ``--left-out`` each
variant is trained a second time with the counts 3, 6 and 7 hidden from the encoder, as if the genes had no molecules,
and scored with them: an embedding that interpolates between counts does little worse than trained on all. Hidden when
scored as well, they show what is lost without them. Runs are lines of a file; the table shows the last of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import torch
from torch import Tensor

from benchmarks._data import available, load_split
from benchmarks._scores import likelihoods
from benchmarks._variants import Run, fit_variant, study_options, study_runs, study_table, variant_scores
from scdiffgen.diffusion import with_values
from scdiffgen.model import NetworkOptions, TokenDiffusion
from scdiffgen.nn._options import NumberKind

KINDS = get_args(NumberKind)
ATTENTION = {f"attention, {kind}": {"encoder": "cross_attention", "expression_embedding": kind} for kind in KINDS}
VARIANTS: dict[str, dict[str, Any]] = {"log1p": {}, **{kind: {"expression_embedding": kind} for kind in KINDS}}
LEFT_OUT = (3.0, 6.0, 7.0)


def without_left_out(state: Tensor) -> Tensor:
    """Corrupted cells, CSR or dense, in which genes with a count that is left out have no molecules."""
    values = state if state.layout == torch.strided else state.values()
    shown = values.masked_fill(torch.isin(values, values.new_tensor(LEFT_OUT)), 0)
    return shown if state.layout == torch.strided else with_values(state, shown)


@contextmanager
def hidden_counts(model: TokenDiffusion) -> Iterator[None]:
    """Hide the counts that are left out from the encoders of a model; noise level and urn see all molecules."""
    encoders = [denoiser.network.trunk.encoder for denoiser in model.module.denoisers]
    for encoder in encoders:
        encoder.read = lambda state, read=encoder.read: read(without_left_out(state))
    try:
        yield
    finally:
        for encoder in encoders:
            del encoder.read


def table(runs: Sequence[Run]) -> str:
    """A row an embedding, and what it was trained on."""
    digits = {"nats per molecule": 4, "nats, counts hidden": 4, "forest AUC, components": 3, "forest AUC, genes": 3}
    return study_table(runs, {**digits, "seconds": 0})


def main(arguments: Sequence[str] | None = None) -> None:
    about = "benchmarks.studies.expression_embeddings", __doc__.splitlines()[0]
    parser = study_options(*about, available(), available()[:1], [0, 1, 2], [*VARIANTS, *ATTENTION])
    parser.set_defaults(variants=[*VARIANTS])
    parser.add_argument("--left-out", action="store_true", help="train again with some counts hidden")
    options = parser.parse_args(arguments)

    def measured(name: str, seed: int) -> Iterator[tuple[str, Run]]:
        split = load_split(name, seed)
        split = replace(split, held_out=split.other)
        for variant in options.variants:
            network = NetworkOptions(**(VARIANTS | ATTENTION)[variant])
            fit = partial(fit_variant, split, {"network": network}, 2 if options.quick else None)
            model, seconds = fit()
            yield variant, {"trained on": "all", "scores": {**variant_scores(model, split), "seconds": seconds}}
            if options.left_out:
                model, seconds = fit(hidden_counts)
                scores = {**variant_scores(model, split), "seconds": seconds}
                with hidden_counts(model):
                    scores["nats, counts hidden"] = likelihoods(model, split, seed=seed)["scdiffgen"]
                yield variant, {"trained on": "all but 3, 6, 7", "scores": scores}

    print(table(study_runs(options, "study-expression-embeddings.jsonl", measured)))


if __name__ == "__main__":
    main()
