"""What a sentence of a benchmark says, whatever its words: who is named, and the numbers."""

import re
from collections.abc import Sequence

NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?!\w)")


def numbers(sentence: str) -> list[float]:
    """All numbers of a sentence, in order; a digit in a name such as W2 is none."""
    return [float(found.replace(",", "")) for found in NUMBER.findall(sentence)]


def named(sentence: str, names: Sequence[str]) -> list[str]:
    """Those of the names that a sentence holds, in its order."""
    return sorted((name for name in names if name in sentence), key=sentence.index)
