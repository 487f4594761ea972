"""Turn links to files outside the documentation, such as pages of benchmarks, into links to the repository."""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

LINK = re.compile(r"(?<!!)(\[[^\]]*\])\(((?:\.\./)+[^)\s#]+)")


def link_repository(app: Sphinx, name: str, source: list[str]) -> None:
    """Replace the relative path of each such link by the address of the file in the repository."""
    folder, top = Path(app.env.doc2path(name)).parent, Path(app.srcdir).parent

    def address(link: re.Match[str]) -> str:
        path = (folder / link[2]).resolve()
        if path.is_relative_to(app.srcdir) or not path.exists():
            return link[0]
        return f"{link[1]}({app.config.html_theme_options['repository_url']}/blob/main/{path.relative_to(top)}"

    source[0] = LINK.sub(address, source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", link_repository)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
