"""A contract test for model classes: what users may rely on, whatever the network and the process."""

from ._check_model import CHECKS, check_model

__all__ = ["CHECKS", "check_model"]
