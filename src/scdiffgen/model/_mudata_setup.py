"""Registering cells of which several kinds of molecules are counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scdiffgen.data import (
    MuDataManager,
    SetupArguments,
    check_modalities,
    forget_copied_setup,
    modality_fields,
)

from ._base import ModelBase
from ._checks import check_mudata

if TYPE_CHECKING:
    from mudata import MuData


class MuDataSetup(ModelBase):
    """Registration of a MuData."""

    @classmethod
    def setup_mudata(
        cls,
        mdata: MuData,
        modalities: Sequence[str] | None = None,
        layers: Mapping[str, str | None] | None = None,
        labels_key: str | None = None,
        batch_key: str | None = None,
        perturbation_key: str | list[str] | None = None,
        control: str | list[str] = "control",
        perturbation_sep: str = "+",
        dose_key: str | list[str] | None = None,
        dose_unit: str | None = None,
        hierarchy_keys: list[str] | None = None,
        categorical_covariate_keys: list[str] | None = None,
        continuous_covariate_keys: list[str] | None = None,
        text_key: str | None = None,
        perturbation_features_key: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Register a MuData whose modalities are counts: of RNA, protein tags, open chromatin.

        Every modality has its own library sizes and its own read-out; all share the tokens. Cells may lack modalities:
        a cell without a molecule of a modality is one in which it was not measured.

        Parameters
        ----------
        mdata
            Cells.
        modalities
            Keys in ``mdata.mod``, by default all.
        layers
            Layer of the counts of a modality, such as ``{"rna": "counts"}``; those left out have them in ``.X``.
        labels_key, batch_key, perturbation_key, control, perturbation_sep, dose_key, dose_unit, hierarchy_keys
            As in :meth:`setup_anndata`, for columns of ``mdata.obs``.
        categorical_covariate_keys, continuous_covariate_keys, text_key, perturbation_features_key
            The same.
        **kwargs
            As in :meth:`setup_anndata`; any other name raises a ``TypeError``.

        Raises
        ------
        ValueError
            If counts are not counts, a cell has no molecule of any modality, or as in :meth:`setup_anndata`.
        KeyError
            If a key is not in ``mdata``.
        TypeError
            If an argument is unknown, or ``mdata`` is no MuData.

        Examples
        --------
        >>> import scdiffgen
        >>> mdata = scdiffgen.datasets.simulate_cite(n_cells=50)
        >>> scdiffgen.model.TokenDiffusion.setup_mudata(mdata, labels_key="cell_type")
        """
        setup_method_args = cls._get_setup_method_args(**locals())
        check_mudata(mdata, may_be_view=False)
        names = check_modalities(mdata, modalities, layers, transfer=kwargs.get("source_registry") is not None)
        setup_args = setup_method_args["setup_args"]
        setup_args |= {"modalities": names, "layers": dict(layers or {})}
        forget_copied_setup(mdata, cls._setup_adata_manager_store)
        of_conditions = {key: value for key, value in setup_args.items() if key not in ("modalities", "layers")}
        conditions = SetupArguments(**of_conditions).condition_fields()
        manager = MuDataManager([*modality_fields(names, layers or {}), *conditions], setup_method_args)
        manager.register_fields(mdata, **kwargs)
        cls.register_manager(manager)
