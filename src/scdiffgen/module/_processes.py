"""Processes by name: process = code x path x denoiser.

A code represents a cell (:class:`CellCode`), a path corrupts the code (:class:`Path`), and a denoiser predicts the
uncorrupted cell (:class:`Denoiser`): a conjugate classical model explains most of the cell, and a network corrects it.
To add a process, write the parts that are new and add a row to ``PROCESSES``
(docs/developer_guide/adding_a_process.md).
"""

from typing import Any, NamedTuple

from ._cell_codes import CellCode, CountCode
from ._denoisers import Denoiser, FactorDenoiser, TokenDenoiser, UrnDenoiser
from ._paths import GaussianPath, Path, Thinning
from ._process_options import Ability, GaussianOptions, LatentOptions
from ._score_code import ScoreCode
from ._token_code import TokenCode


class Process(NamedTuple):
    """Parts of a process."""

    code: type[CellCode]
    path: type[Path]
    denoiser: type[Denoiser]
    options: type[Any] | None = None  # frozen dataclass of plain values with the settings of the process

    @property
    def abilities(self) -> frozenset[Ability]:
        """What methods of the model may ask of the process."""
        return self.code.abilities | self.path.abilities | self.denoiser.abilities


PROCESSES: dict[str, Process] = {
    "thinning": Process(CountCode, Thinning, UrnDenoiser),
    "gaussian": Process(ScoreCode, GaussianPath, FactorDenoiser, GaussianOptions),
    "latent": Process(TokenCode, GaussianPath, TokenDenoiser, LatentOptions),
}


def named_process(process: str | GaussianOptions, n_modalities: int = 1) -> tuple[str, Any]:
    """Return the name and the options of a process, given by name or options."""
    name = next((name for name, row in PROCESSES.items() if type(process) is row.options), process)
    if not isinstance(name, str) or name not in PROCESSES:
        raise ValueError(
            f"`process` is {process!r}: choose one of {list(PROCESSES)}, or pass `GaussianOptions(...)` or "
            "`LatentOptions(...)`."
        )
    if n_modalities > 1 and "several modalities" not in PROCESSES[name].abilities:
        raise ValueError(lacking("TokenDiffusion(mdata)", name, "several modalities"))
    make = PROCESSES[name].options
    return name, make() if make is not None and isinstance(process, str) else process


def lacking(asked: str, name: str, ability: Ability) -> str:
    """Write the error of a method that needs an ability which a process does not have."""
    able = [repr(other) for other, row in PROCESSES.items() if ability in row.abilities]
    return (
        f"`{asked}` needs a process that supports {ability}, but the process of this model is {name!r}: create and "
        f"train a model with `process={' or '.join(able)}`."
    )
