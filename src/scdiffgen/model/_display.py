"""Display of models in notebooks."""

from html import escape

from scvi.model.base import BaseModelClass


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
