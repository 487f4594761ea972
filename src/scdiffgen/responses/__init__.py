"""Responses that training cells show, transferred to contexts, doses and perturbations that were not measured."""

from ._pseudobulks import MIN_CELLS, Pseudobulks, TreatedGroups, pseudobulks
from ._response_model import SOURCES, ResponseModel
from ._transfer import PseudobulkResponse, ResponseTransfer
