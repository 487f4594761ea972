"""Responses that training cells show, transferred to contexts, doses and perturbations that were not measured."""

from ._pseudobulks import MIN_CELLS, Pseudobulks, pseudobulks
from ._response_model import SOURCES, ResponseModel, TransferredResponse
from ._transfer import PseudobulkResponse, ResponseTransfer
from ._treatments import TreatmentCodes, distinct_groups, in_frequent_treatments, treatment_codes

__all__ = [
    "MIN_CELLS",
    "SOURCES",
    "PseudobulkResponse",
    "Pseudobulks",
    "ResponseModel",
    "ResponseTransfer",
    "TransferredResponse",
    "TreatmentCodes",
    "distinct_groups",
    "in_frequent_treatments",
    "pseudobulks",
    "treatment_codes",
]
