"""Saving of a model with a model card for scvi-tools' hub."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from scvi.model.base import BaseModelClass

from scdiffgen._messages import listed
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.conditions import ConditionSpec
from scdiffgen.data import Registry, categories_of_condition, required_state

from ._model_access import require_training
from ._training_summary import training_summary

if TYPE_CHECKING:
    from scvi.hub import HubModel

CARD = """\
# {title}

{description}

{summary}. Trained with scdiffgen {version} on {n_cells:,} cells. It generates cells, as molecule counts, under given
conditions.

## Conditions

{conditions}

## Use

```python
import scdiffgen
from scvi.hub import HubModel

folder = HubModel.pull_from_huggingface_hub("owner/name").local_dir
model = scdiffgen.model.TokenDiffusion.load(folder, adata=False)
cells = model.generate({example}, n_cells=100)
```

Neither the model nor its cells are private: `scdiffgen.metrics.membership_inference` measures how well generated cells
disclose training cells.
"""


def save_with_card(
    model: BaseModelClass, path: str | os.PathLike[str], title: str, license_info: str, description: str, **saved: bool
) -> HubModel:
    """Save a model with metadata and model card; raise unless Hugging Face's client is installed."""
    try:
        from huggingface_hub import ModelCard, ModelCardData
    except ImportError as error:
        raise ImportError("`save_for_hub` needs `huggingface_hub`: pip install 'scdiffgen[hub]'.") from error
    from scvi.hub import HubMetadata, HubModel

    require_training(model)
    model.save(path, **saved)
    versions, name = (version("scvi-tools"), version("anndata")), type(model).__name__
    metadata = HubMetadata(*versions, model_cls_name=name, model_parent_module="scdiffgen.model")
    tags = ["biology", "genomics", "single-cell", f"model_cls_name:{name}"]
    header = ModelCardData(license=license_info, library_name="scvi-tools", tags=tags)
    card = ModelCard(f"---\n{header.to_yaml()}\n---\n\n{card_text(model, title, description)}")
    hub = HubModel(os.fspath(Path(path)), metadata=metadata, model_card=card)
    hub.save(overwrite=True)
    return hub


def card_text(model: BaseModelClass, title: str, description: str) -> str:
    """Write the body of the model card."""
    specs, registry = model.module.specs, model.registry
    labels = [f"{s.name!r}: {categories_of_condition(registry, s)[0]!r}" for s in specs if s.kind == "category"]
    return CARD.format(
        title=title,
        description=description,
        summary=model._model_summary_string,
        version=version("scdiffgen"),
        n_cells=len(training_summary(model).library),
        conditions="\n".join(f"- `{spec.name}`: {_values_of(registry, spec)}" for spec in specs) or "None.",
        example=f"{{{''.join(labels[:1])}}}",
    )


def _values_of(registry: Registry, spec: ConditionSpec) -> str:
    if spec.kind == "category":
        return listed(categories_of_condition(registry, spec))
    state = required_state(registry, spec.registry_key)
    if spec.registry_key == REGISTRY_KEYS.PERTURBATION:
        unit = f" ({spec.transform.unit})" if spec.transform.unit else ""
        return f"combinations of {listed(state['names'])}" + (f" with doses{unit}" if spec.has_values else "")
    if spec.kind == "hierarchy":
        return f"levels {listed(state['columns'])}"
    return "a number"
