"""Conditions of cells: specification, requests, and their numeric form."""

from scdiffgen._codes import Code, GroupTable, Treatment, backoff_levels, group_by_row, have_exactly

from ._conditions import Condition, Conditions, ConditionSpec, MixedConditions, NumberTransform, conditions_from_batch
from ._requests import ADDED, DRAWN, N_CELLS, UNSEEN, Request, request_table
