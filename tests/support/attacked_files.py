"""Files of models that hang, fill the memory, or give wrong cells if their sizes and values are believed.

Each attack changes the file of a genuine model in a folder. As a script, ``attacked_files.py FOLDER``, this loads each
in a child with little memory and time, and prints a line of JSON: which attack, how it was read, and how that ended.
"""

import json
import os
import pickle
import resource
import shutil
import struct
import sys
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scdiffgen.io import plain_data
from scdiffgen.model import LatentOptions, NetworkOptions, TokenDiffusion

GENUINE = Path(__file__).parents[1] / "saved_models/0.1.0/model.pt"
MEMORY, SECONDS = 4 * 2**30, 20
HUGE = 2_000_000_000

Attack = Callable[[Path], None]
ATTACKS: list[Attack] = []


def attack(act: Attack) -> Attack:
    ATTACKS.append(act)
    return act


def named(name: str) -> Callable[[Attack], Attack]:
    def add(act: Attack) -> Attack:
        act.__name__ = name
        return attack(act)

    return add


class Call:
    """When it is unpickled, a call of a function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.reduced = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.reduced


def changed(file: Path, place: str, value: Any) -> None:
    """Save the genuine model with another value at a place in the file."""
    whole = inner = torch.load(GENUINE, weights_only=False)
    *above, last = place.split("/")
    for name in above:
        inner = inner[name]
    inner[last] = value
    torch.save(whole, file, pickle_module=plain_data)


OPTIONS, SUMMARY = "attr_dict/init_params_/non_kwargs", "attr_dict/training_summary_"
COUNTS = "attr_dict/registry_/field_registries/X/state_registry"
ANYWHERE = "attr_dict/registry_/setup_args/control"


BIAS = "model_state_dict/denoiser.network.readout.bias"
LONG, SHORT, MANY = "x" * 1_000_000, ["x"] * 100_000, (100_001,)


def texts(entries: Any, shape: tuple[int, ...], dtype: str) -> Call:
    return Call(plain_data.as_object_array, entries, shape, dtype)


def table_of_numbers() -> dict[str, Call]:
    """pandas would repeat each down the index."""
    columns, index = (np.array([f"c{i}" for i in range(n)], dtype=object) for n in (30_000, 60_000))
    return {"train_loss": Call(plain_data.as_frame, columns, [0.5] * 30_000, index, "epoch")}


def doubled(times: int) -> list[Any]:
    return ["x"] if times == 0 else [inner := doubled(times - 1), inner]


class Enlarged:
    """A tensor that is larger than its storage."""

    def __reduce__(self) -> tuple[Any, ...]:
        made, arguments, *_ = torch.zeros(1).__reduce_ex__(2)
        return made, arguments, (arguments[0], 0, (HUGE,), (0,))


# Another value at a place of the file, made when the attack is.
PLACES: dict[str, tuple[str, Callable[[], Any]]] = {
    # options and registries of networks that the file has no weights for
    "a_million_layers": (f"{OPTIONS}/n_layers", lambda: 1_000_000),
    "two_billion_tokens": (f"{OPTIONS}/n_tokens", lambda: HUGE),
    "tokens_of_two_billion_numbers": (f"{OPTIONS}/token_dim", lambda: HUGE),
    "a_number_of_tokens_with_six_hundred_digits": (f"{OPTIONS}/n_tokens", lambda: 10**600),
    "a_hidden_layer_of_two_billion_units": (f"{OPTIONS}/network", lambda: NetworkOptions(n_hidden=HUGE)),
    "latent_tokens_of_two_billion_numbers": (f"{OPTIONS}/process", lambda: LatentOptions(latent_dim=HUGE)),
    "two_billion_genes": (f"{COUNTS}/n_vars", lambda: HUGE),
    "weights_that_repeat_one_value": (BIAS, lambda: torch.zeros(1).expand(HUGE)),
    # arrays and tables
    "text_of_two_gigabytes_an_entry": (ANYWHERE, lambda: texts(["x"] * 1000, (1000,), "<U500000000")),
    "one_long_text_among_many_short_ones": (ANYWHERE, lambda: texts([LONG, *SHORT], MANY, "<U1000000")),
    "text_as_wide_as_its_longest_entry": (ANYWHERE, lambda: texts([LONG, *SHORT], MANY, "<U0")),
    # the entries are themselves an array, whose length the pickle does not show
    "numbers_written_as_wide_text": (ANYWHERE, lambda: texts(np.zeros(300_000, np.uint8), (300_000,), "<U100000")),
    "an_array_of_two_billion_entries": (ANYWHERE, lambda: texts(["x"], (HUGE,), "|O")),
    "one_list_as_ten_thousand_arrays": (ANYWHERE, lambda: [texts(SHORT, (100_000,), "|O") for _ in range(10_000)]),
    "a_scalar_of_two_gigabytes": (ANYWHERE, lambda: Call(plain_data.as_scalar, HUGE, "|V8")),
    "bytes_of_two_gigabytes": (ANYWHERE, lambda: Call(bytearray, HUGE)),  # PyTorch lets any file call this
    "a_table_of_numbers_without_rows": ("attr_dict/history_", table_of_numbers),
    "library_sizes_of_two_billion_cells": (
        f"{SUMMARY}/library",
        lambda: Call(plain_data.as_array, torch.ones(1).expand(HUGE)),
    ),
    "overlapping_rows": (
        f"{SUMMARY}/library",
        lambda: Call(plain_data.as_array, torch.arange(100_000.0).as_strided((50_000, 50_000), (1, 1))),
    ),
    "a_tensor_that_is_enlarged_after_it_was_made": (ANYWHERE, Enlarged),
    "lists_that_double_sixty_times": (ANYWHERE, lambda: doubled(60)),
    # what a model is given besides its weights
    "a_method_that_is_replaced": ("attr_dict/generate", lambda: "nothing"),
    "a_class_that_is_replaced": ("attr_dict/__class__", lambda: "nothing"),
}
for name, (place, make) in PLACES.items():
    named(name)(lambda file, place=place, make=make: changed(file, place, make()))


@attack
def one_storage_as_twenty_thousand_weights(file: Path) -> None:
    whole, values = torch.load(GENUINE, weights_only=False), torch.zeros(100_000)
    whole["model_state_dict"] |= {f"w{i}": values.view(100_000) for i in range(20_000)}
    torch.save(whole, file, pickle_module=plain_data)


# Pickles.


class _Storage:
    pass


def written(file: Path, code: bytes, data: bytes = b"") -> None:
    """An archive as PyTorch writes it, of a pickle and one storage."""
    writer = torch._C.PyTorchFileWriter(str(file))
    writer.write_record("data.pkl", code, len(code))
    writer.write_record("data/0", data, len(data))
    writer.write_end_of_file()


@attack
def a_storage_that_says_it_is_larger_than_it_is(file: Path) -> None:
    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            return ("storage", torch.FloatStorage, "0", "cpu", HUGE) if isinstance(obj, _Storage) else None

    pickled = BytesIO()
    arguments = _Storage(), 0, (HUGE,), (1,), False, {}
    Pickler(pickled, protocol=2).dump(Call(torch._utils._rebuild_tensor_v2, *arguments))
    written(file, pickled.getvalue(), bytes(4))


@attack
def a_million_containers_in_each_other(file: Path) -> None:
    written(file, b"\x80\x02)" + b"\x85" * 1_000_000 + b".")


@attack
def a_key_that_doubles_sixty_times(file: Path) -> None:
    """Its hash would take for ever, while the file is read."""
    steps = b"".join(b"q%ch%c\x86" % (i, i) for i in range(60))
    written(file, b"\x80\x02}" + b")" + steps + b"Ns.")


@attack
def lists_that_are_doubled_from_the_outside(file: Path) -> None:
    """All are empty when they are put into each other."""
    made = b"".join(b"]q%c" % i for i in range(60))
    filled = b"".join(b"h%c(h%ch%ce" % (i, i + 1, i + 1) for i in range(59))
    written(file, b"\x80\x02(" + made + filled + b"t.")


@attack
def a_list_within_itself(file: Path) -> None:
    written(file, b"\x80\x02]q\x00h\x00a.")


# Archives.


def repacked(file: Path, compression: int) -> None:
    """The same archive with compressed members, and the end of the directory as PyTorch writes it."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    content, end = file.read_bytes()[:-22], file.read_bytes()[-22:]
    n, length, first = struct.unpack("<HII", end[10:20])
    zip64 = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, n, n, length, first)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, len(content), 1)
    file.write_bytes(content + zip64 + locator + end)


@attack
def a_compressed_pickle(file: Path) -> None:
    written(file, b"\x80\x02X" + struct.pack("<I", 2**26) + b"x" * 2**26 + b".")
    repacked(file, zipfile.ZIP_DEFLATED)


@attack
def compressed_weights(file: Path) -> None:
    changed(file, BIAS, torch.zeros(2**24))
    repacked(file, zipfile.ZIP_DEFLATED)


@attack
def a_member_that_says_it_is_larger_than_it_is(file: Path) -> None:
    content = bytearray(file.read_bytes())
    entry = content.rindex(b"PK\1\2")
    content[entry + 20 : entry + 28] = struct.pack("<II", 2**31, 2**31)
    file.write_bytes(content)


@attack
def members_that_are_the_same_bytes(file: Path) -> None:
    """A directory that names one member many times over."""
    written(file, b"\x80\x02N.", bytes(1_000_000))
    content = file.read_bytes()
    length, first = struct.unpack_from("<QQ", content, len(content) - 58)
    entries = content[first : first + length]
    start = entries.index(b"PK\1\2", entries.index(b"data.pkl"))
    entry = entries[start : entries.index(b"PK\1\2", start + 4)]
    more = [entry.replace(b"/data/0", b"/data/%c" % letter) for letter in b"abcdefgh"]
    directory = entries + b"".join(more)
    n = content[first:].count(b"PK\1\2") + len(more)
    zip64 = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, n, n, len(directory), first)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, first + len(directory), 1)
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, n, n, len(directory), first, 0)
    file.write_bytes(content[:first] + directory + zip64 + locator + end)


@attack
def two_directories(file: Path) -> None:
    """Python reads the one before the end, and PyTorch the one that the end points to."""
    content = bytearray(file.read_bytes())
    content[-34:-26] = struct.pack("<Q", len(content) - 98 - 200)
    file.write_bytes(content)


@attack
def another_format_in_front_of_the_archive(file: Path) -> None:
    file.write_bytes(pickle.dumps("x", protocol=2) + file.read_bytes())


# Training cells that no cells are like.


def summarised(name: str, change: Callable[[Any], Any]) -> Attack:
    def act(file: Path) -> None:
        part = torch.load(GENUINE, weights_only=False)["attr_dict"]["training_summary_"][name]
        changed(file, f"{SUMMARY}/{name}", change(part))

    return act


def filled(part: int, value: float) -> Callable[[Any], Any]:
    def change(conditions: Any) -> Any:
        for arrays in conditions.values():
            arrays[part][:] = value
        return conditions

    return change


def second(value: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda library: np.where(np.arange(len(library)) == 1, value, library)


CELLS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "a_library_size_that_is_not_a_number": ("library", second(np.nan)),
    "a_library_size_that_is_negative": ("library", second(-5.0)),
    "a_library_size_that_no_cell_has": ("library", second(1e30)),
    "no_library_sizes": ("library", lambda library: library[:0]),
    "library_sizes_that_are_all_zero": ("library", np.zeros_like),
    "library_sizes_of_other_cells": ("library", lambda library: library[:-1]),
    "categories_that_are_not_registered": ("conditions", filled(0, 1_000_000)),
    "doses_without_end": ("conditions", filled(1, np.inf)),
}
for name, (part, change) in CELLS.items():
    named(name)(summarised(part, change))


def load(folder: Path) -> None:
    model = TokenDiffusion.load(folder, adata=False, accelerator="cpu")
    model.generate(n_cells=2, n_steps=2, silent=True)


READ: dict[str, Callable[[Path], Any]] = {"load_registry": TokenDiffusion.load_registry, "load": load}


def endings(folder: Path) -> list[dict[str, Any]]:
    """How reading a folder ends, each way, and by how many MB the process has grown until then."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    before, found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
    for name, read in READ.items():
        ending = {"attack": folder.name, "read": name, "ended": "read"}
        try:
            read(folder)
        except Exception as error:  # noqa: BLE001
            ending |= {"ended": type(error).__name__, "said": str(error)}
        found.append({**ending, "grown": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024})
    return found


def in_child(folder: Path) -> list[dict[str, Any]]:
    """The same in a process of its own, which may be killed."""
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        with os.fdopen(send, "w") as out:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            out.write(json.dumps(endings(folder)))
        os._exit(0)
    os.close(send)
    with os.fdopen(receive) as printed:
        found = printed.read()
    _, status = os.waitpid(child, 0)
    killed = [{"attack": folder.name, "read": name, "ended": f"killed by signal {status}"} for name in READ]
    return json.loads(found) if found else killed


if __name__ == "__main__":
    torch.set_num_threads(1)
    for act in [None, *ATTACKS]:
        folder = Path(sys.argv[1]) / ("genuine" if act is None else act.__name__)
        folder.mkdir()
        shutil.copy(GENUINE, folder)
        if act is not None:
            act(folder / "model.pt")
        for ending in in_child(folder):
            print(json.dumps(ending), flush=True)
