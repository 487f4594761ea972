"""How models and results show themselves in a notebook: the text that `print` shows, and tables to unfold."""

from collections.abc import Mapping, Sequence
from html import escape

import pandas as pd
from scvi.model.base import BaseModelClass


def folded(title: str, lines: Sequence[str], tables: Mapping[str, pd.DataFrame]) -> str:
    """HTML of a title, lines under it, and tables that are folded."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    shown = {name: table.to_html(max_rows=20, float_format="%.3g", na_rep="") for name, table in tables.items()}
    details = "".join(f"<details><summary>{escape(name)}</summary>{table}</details>" for name, table in shown.items())
    return f"<div><b>{escape(title)}</b><ul>{items}</ul>{details}</div>"


def model_as_html(model: BaseModelClass) -> str:
    """The summary of a model, and the arguments it was registered and made with."""
    title, *lines = model.summary_string.split("\n")
    setup = model.registry["setup_args"]
    made_with = {k: v for part in model.init_params_.values() for k, v in part.items()}
    tables = {"Registered with": setup, "Made with": made_with}
    given = {name: pd.Series({k: repr(v) for k, v in part.items() if v is not None}) for name, part in tables.items()}
    return folded(title, lines, {name: values.to_frame("") for name, values in given.items() if len(values)})
