"""Contract test of model classes, independent of network and process."""

from ._check_model import CHECKS, check_model

__all__ = ["CHECKS", "check_model"]
