"""Models that are handed on: the folder of scvi-tools' hub, with a card that says what the model is."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from scdiffgen._messages import listed
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.conditions import ConditionSpec
from scdiffgen.data import categories_of_condition, required_state

from ._saving import Saving

if TYPE_CHECKING:
    from scvi.hub import HubModel

CARD = """\
# {title}

{description}

{summary}. Made with scdiffgen {version}, trained on {n_cells:,} cells. It generates cells, as counts of molecules, from
what it is told about them.

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
"""


class Hub(Saving):
    """Models as folders that scvi-tools' hub uploads and downloads."""

    def save_for_hub(
        self,
        dir_path: str | os.PathLike[str],
        *,
        title: str,
        license_info: str,
        description: str = "",
        save_anndata: bool = False,
        overwrite: bool = False,
    ) -> HubModel:
        """Save the model with what scvi-tools' hub asks for: its metadata, and a card that describes it.

        The card lists the registered conditions and how to use the model. scvi-tools' own ``HubModelCardHelper`` writes
        cards for models of scvi-tools alone.

        Parameters
        ----------
        dir_path
            Folder for the model; it is made.
        title
            Heading of the card.
        license_info
            Licence of the model, as Hugging Face abbreviates it, such as ``"cc-by-4.0"``.
        description
            What the cells are, and whatever else there is to say; Markdown.
        save_anndata
            Whether the cells are saved, and so uploaded, too.
        overwrite
            Whether a model that is there is replaced.

        Returns
        -------
        What :meth:`scvi.hub.HubModel.push_to_huggingface_hub` and :meth:`~scvi.hub.HubModel.push_to_s3` upload.

        Raises
        ------
        ImportError
            If ``huggingface_hub`` is not installed.
        RuntimeError
            If the model is not trained.
        ValueError
            If the folder exists and is not to be overwritten.

        Examples
        --------
        >>> hub = model.save_for_hub("pbmc_hub/", title="Blood", license_info="mit")  # doctest: +SKIP
        >>> hub.push_to_huggingface_hub("owner/pbmc", push_anndata=False)  # doctest: +SKIP
        """
        try:
            from huggingface_hub import ModelCard, ModelCardData
            from scvi.hub import HubMetadata, HubModel
        except ImportError as error:
            raise ImportError("`save_for_hub` needs `huggingface_hub`: pip install 'scdiffgen[hub]'.") from error
        self._require_training()
        self.save(dir_path, overwrite=overwrite, save_anndata=save_anndata)
        metadata = HubMetadata(
            scvi_version=version("scvi-tools"),
            anndata_version=version("anndata"),
            model_cls_name=type(self).__name__,
            model_parent_module="scdiffgen.model",
        )
        tags = ["biology", "genomics", "single-cell", f"model_cls_name:{metadata.model_cls_name}"]
        header = ModelCardData(license=license_info, library_name="scvi-tools", tags=tags)
        card = ModelCard(f"---\n{header.to_yaml()}\n---\n\n{self._card(title, description)}")
        hub = HubModel(os.fspath(Path(dir_path)), metadata=metadata, model_card=card)
        hub.save(overwrite=True)
        return hub

    def _card(self, title: str, description: str) -> str:
        """Text of the card."""
        specs = self.module.specs
        first = next((spec for spec in specs if spec.kind == "category"), None)
        example = "" if first is None else f"{first.name!r}: {categories_of_condition(self.registry, first)[0]!r}"
        return CARD.format(
            title=title,
            description=description,
            summary=self._model_summary_string,
            version=version("scdiffgen"),
            n_cells=len(self.training_library_),
            conditions="\n".join(f"- `{spec.name}`: {self._said_of(spec)}" for spec in specs) or "None.",
            example=f"{{{example}}}",
        )

    def _said_of(self, spec: ConditionSpec) -> str:
        """What values a condition takes."""
        if spec.kind == "category":
            return listed(categories_of_condition(self.registry, spec))
        state = required_state(self.registry, spec.registry_key)
        if spec.registry_key == REGISTRY_KEYS.PERTURBATION:
            unit = f" ({spec.transform.unit})" if spec.transform.unit else ""
            return f"combinations of {listed(state['names'])}" + (f" with doses{unit}" if spec.has_values else "")
        if spec.kind == "hierarchy":
            return f"levels {listed(state['columns'])}"
        return "a number"
