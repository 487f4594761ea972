"""Conditions of cells: specification, perturbation syntax, requests, and their numeric form."""

from scdiffgen._codes import Code, GroupTable, Treatment, backoff_levels, group_by_row, have_exactly

from ._conditions import Condition, Conditions
from ._from_batch import conditions_from_batch
from ._mixed_conditions import MixedConditions
from ._perturbation_syntax import DosesByName, PerturbationSyntax, dose_number
from ._request_table import ADDED, DRAWN, N_CELLS, UNSEEN, Request, request_table
from ._spec import ConditionSpec, NumberTransform
