"""Files that cannot be loaded, and places that cannot be saved to."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bad_input import Bad, check, ids, nothing
from fingerprint import weights_of
from treated_cells import treated_cells

from scdiffgen.io import _plain_data
from scdiffgen.model import TokenDiffusion


def file(spoil: Callable[[Path], Any], **options: Any) -> Callable[[Path], TokenDiffusion]:
    def act(folder: Path) -> TokenDiffusion:
        spoil(folder / "model.pt")
        return TokenDiffusion.load(folder, **{"adata": False, "accelerator": "cpu", **options})

    return act


def cut_at(share: float) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


def flipped_at(share: float) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int(share * len(content))] ^= 0xFF
        path.write_bytes(content)

    return spoil


def reversed_weight(path: Path) -> None:
    weight = torch.load(path, weights_only=False)["model_state_dict"][BIAS].numpy().tobytes()
    path.write_bytes(path.read_bytes().replace(weight, weight[::-1]))


def changed(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], TokenDiffusion]:
    """As another version, or another program, would have written it."""

    def spoil(path: Path) -> None:
        whole = torch.load(path, weights_only=False)
        change(whole)
        torch.save(whole, path, pickle_module=_plain_data)

    return file(spoil)


def put(place: str, value: Any) -> Callable[[Path], TokenDiffusion]:
    *above, last = place.split("/")

    def change(whole: dict[str, Any]) -> None:
        for name in above:
            whole = whole[name]
        whole[last] = value

    return changed(change)


def large_pseudobulks(value: float) -> Callable[[dict[str, Any]], Any]:
    return lambda whole: whole["attr_dict"]["training_summary_"]["pseudobulks"][0]["log_mean"].fill(value)


def at_path(act: str, path: Any) -> Callable[[Path], Any]:
    def go(folder: Path) -> Any:
        place = folder / path if isinstance(path, str) and "model.pt" in path else path
        if act == "save":
            return TokenDiffusion.load(folder, adata=False).save(place)
        return getattr(TokenDiffusion, act)(place)

    return go


def bad(name: str, act: Any, value: str, way_out: str, error: type[Exception] = ValueError) -> Bad:
    return Bad(name, act, "`dir_path`", value, way_out, error)


def load(folder: Path, **options: Any) -> TokenDiffusion:
    return TokenDiffusion.load(folder, adata=False, **options)


AGAIN, VERSION, ABSENT, WHERE = "Copy it again", "load it with that version", FileNotFoundError, "model.pt"
REGISTRY, OPTIONS = "attr_dict/registry_", "attr_dict/init_params_/non_kwargs"
BIAS = "denoiser.network.readout.bias"
GENES = f"{REGISTRY}/field_registries/X/state_registry"
LIBRARY = np.full(120, 100.0, np.float32)
FILES = [
    bad("no folder", lambda f: load(f / "no"), WHERE, "there is no", ABSENT),
    bad("the file, not the folder", lambda f: TokenDiffusion.load(f / WHERE), WHERE, "Pass the folder", ABSENT),
    bad("another prefix", file(nothing, prefix="my_"), "my_model.pt", "`prefix`", ABSENT),
    bad("an empty file", file(lambda p: p.write_bytes(b"")), WHERE, AGAIN),
    bad("a file of text", file(lambda p: p.write_text("hello")), WHERE, AGAIN),
    bad("a file cut in half", file(cut_at(0.5)), "cut short", AGAIN),
    bad("a file without its end", file(cut_at(0.999)), "cut short", AGAIN),
    bad("a damaged beginning", file(flipped_at(0.001)), "damaged", AGAIN),
    bad("a damaged weight", file(reversed_weight), "damaged", AGAIN),
    bad("another file of PyTorch", file(lambda p: torch.save([1.0], p)), "no saved model", "model.save"),
    *(
        bad(f"a weight of {value}", changed(lambda w, v=value: w["model_state_dict"][BIAS].fill_(v)), "finite", VERSION)
        for value in (np.nan, np.inf)
    ),
    bad("genes that occur twice", put(f"{GENES}/column_names", np.array(["gene0"] * 12)), "'gene0'", VERSION),
    *(
        bad(f"pseudobulks of {value}", changed(large_pseudobulks(value)), "pseudobulks", VERSION)
        for value in (1e30, -1e30, np.nan)
    ),
    *(
        bad(f"registration by {name!r}", put(f"{REGISTRY}/setup_method_name", name), repr(name), "'setup_mudata'")
        for name in ("load", "save", "__init__", "train", "setup_datamodule", "", None, 3)
    ),
    bad("a model of another class", put(f"{REGISTRY}/model_name", "SCVI"), "SCVI", "SCVI.load"),
    bad("an option of a later version", put(f"{OPTIONS}/n_heads", 3), "'n_heads'", VERSION),
    bad("a registration of a later version", put(f"{REGISTRY}/setup_args/species_key", None), "'species_key'", VERSION),
    bad("weights of another version", changed(lambda w: w["model_state_dict"].pop(BIAS)), "weights", VERSION),
    bad("weights of another size", put(f"{OPTIONS}/n_tokens", 5), "weights", VERSION),
    *(
        bad(f"library sizes {name}", put("attr_dict/training_summary_/library", sizes), "library sizes", VERSION)
        for name, sizes in [
            ("without a number", np.append(LIBRARY[1:], np.nan)),
            ("below 0", np.append(LIBRARY[1:], -5.0)),
            ("of no cell", np.append(LIBRARY[1:], 1e30)),
            ("of 0 alone", 0 * LIBRARY),
            ("of 0 in one cell", np.append(LIBRARY[1:], 0)),
            ("of one modality more", np.stack([LIBRARY, LIBRARY], 1)),
        ]
    ),
    Bad(
        "cells of another model beside it",
        file(lambda p: (p.parent / "adata.h5ad").write_bytes(b"?"), adata=None),
        "`adata`",
        WHERE,
        "adata=False",
    ),
    Bad("a path for the cells", file(nothing, adata="cells.h5ad"), "`adata`", "str", "read_h5ad(path)", TypeError),
    Bad(
        "cells of other genes",
        file(nothing, adata=treated_cells()[:, :5].copy()),
        "`adata.var_names`",
        "'gene5'",
        "prepare_query_anndata",
    ),
    *(
        bad(f"{place} {value!r}", put(place, value), WHERE, way_out)
        for way_out, place, values in [
            ("model", "attr_dict", (None, 3, {})),
            ("model", REGISTRY, (None, 3, {}, "x")),
            ("model", "attr_dict/init_params_", (None, 3, {}, "x")),
            (VERSION, "attr_dict/training_summary_", (None, 3, {}, "x")),
            (VERSION, "model_state_dict", (None, 3, {})),
        ]
        for value in values
    ),
    Bad("cells that are none", file(nothing, adata=treated_cells()[:0].copy()), "`adata`", "no cells", "adata=False"),
    *(
        bad(f"{act} {path!r}", at_path(act, path), repr(path), "the path of a file or folder")
        for act in ("save", "load", "load_registry")
        for path in (None, "", "a\0b", 3)
    ),
    *(
        bad(f"{act} below a file", at_path(act, f"model.pt/{below}"), "model.pt, which is a file", "another")
        for act in ("save", "load")
        for below in ("x", "x/y")
    ),
    Bad("no GPU to load on", file(nothing, accelerator="cuda"), "`accelerator`", "'cuda'", "pass 'cpu'"),
    bad("a place that is taken", lambda f: load(f).save(f), "already exists", "overwrite=True"),
    bad("a file in the way", lambda f: load(f).save(f / WHERE, overwrite=True), WHERE, "another folder"),
    Bad("a folder as prefix", lambda f: load(f).save(f / "a", prefix="a/b"), "`prefix`", "'a/b'", "`dir_path`"),
]


@pytest.mark.parametrize("row", ids(FILES))
def test_files_that_cannot_be_loaded(
    row: Bad, tiny: TokenDiffusion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    tiny.save(tmp_path / "model")
    check(row, tmp_path / "model")


def places_to_flip(content: bytes) -> list[int]:
    """Some bytes of the first headers, of the directory and of its end, and some of anything."""
    directory = int.from_bytes(content[-50:-42], "little")
    random = np.random.default_rng(0)
    ends = [len(content) - back for back in (1, 5, 9, 12, 22, 27, 34, 42, 50, 58, 70, 90, 98)]
    first = [directory + offset for offset in (0, 4, 6, 8, 10, 12, 16, 20, 24, 28, 30, 32, 38, 42, 46)]
    return [*range(0, 40, 3), *first, *ends, *random.integers(0, len(content), 10).tolist()]


def test_weights_that_are_marked_as_folders_are_found(tiny: TokenDiffusion, tmp_path: Path) -> None:
    """PyTorch would leave their memory as it is."""
    tiny.save(tmp_path, overwrite=True)
    content = bytearray((tmp_path / "model.pt").read_bytes())
    content[content.rindex(b"PK\1\2", 0, content.rindex(b"/data/0")) + 38] ^= 0x10
    (tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(ValueError, match="`dir_path`: .*directory do not match.*Copy it again"):
        load(tmp_path)


def test_a_flipped_byte_is_found_or_changes_nothing(tiny: TokenDiffusion, tmp_path: Path) -> None:
    tiny.save(tmp_path, overwrite=True)
    path, whole, outcomes = tmp_path / "model.pt", (tmp_path / "model.pt").read_bytes(), []
    for place in places_to_flip(whole):
        content = bytearray(whole)
        content[place] ^= 1 << place % 8
        path.write_bytes(content)
        try:
            assert weights_of(TokenDiffusion.load(tmp_path, adata=False, accelerator="cpu")) == weights_of(tiny)
            outcomes.append("the same")
        except ValueError as error:
            assert str(error).startswith(f"`dir_path`: {path}")
            outcomes.append("found")
    assert min(map(outcomes.count, ("the same", "found"))) > 5
