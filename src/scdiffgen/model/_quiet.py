"""Suppression of messages of other packages, unless ``scvi.settings.verbosity`` requests them."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

LIGHTNING = ("lightning.pytorch", "lightning.fabric", "pytorch_lightning")  # the last one is used if imported
TO_LIGHTNING = (
    r".*isinstance\(treespec, LeafSpec\)",
    r"The number of training batches \(\d+\) is smaller than",
    r"Total length of `\w+` across ranks is zero",
)


@contextmanager
def less_chatter(*loggers: str) -> Iterator[None]:
    """Silence INFO messages of loggers and warnings about Lightning's internals, except at ``logging.DEBUG``."""
    if logging.getLogger("scvi").level <= logging.DEBUG:
        yield
        return
    chosen = [logging.getLogger(name) for name in loggers]
    before = [logger.level for logger in chosen]
    for logger in chosen:
        logger.setLevel(max(logger.level, logging.getLogger("scvi").level, logging.WARNING))
    try:
        with warnings.catch_warnings():
            for message in TO_LIGHTNING:
                warnings.filterwarnings("ignore", message=message)
            yield
    finally:
        for logger, level in zip(chosen, before, strict=True):
            logger.setLevel(level)
