"""Read the section "Returns" as prose, because the type that is returned stands in the annotation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sphinx.ext.napoleon import NumpyDocstring

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def _parse_returns_section(self: NumpyDocstring, section: str) -> list[str]:
    prose = self._dedent(self._consume_to_next_section())
    return [":returns:", "", *self._indent(prose, 4), ""]


def setup(app: Sphinx) -> dict[str, bool]:
    """Replace napoleon's reader of the section, which takes the first line for a type."""
    NumpyDocstring._parse_returns_section = _parse_returns_section
    return {"parallel_read_safe": True, "parallel_write_safe": True}
