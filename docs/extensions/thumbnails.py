"""Show a figure of each tutorial in the list of tutorials: the output of the cell with the tag "thumbnail"."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import PurePosixPath

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

INDEX = "tutorials/index"
logger = logging.getLogger(__name__)


def figures(notebook: nodes.document) -> Iterator[nodes.image]:
    """Yield the figures of cells with the tag."""
    for cell in notebook.findall(nodes.container):
        if "tag_thumbnail" in cell["classes"]:
            yield from cell.findall(nodes.image)


def add_thumbnails(app: Sphinx, doctree: nodes.document, name: str) -> None:
    """Put the figure of each executed tutorial into the empty first entry of its row."""
    if name != INDEX or app.config.nb_execution_mode == "off":
        return
    for row in doctree.findall(nodes.row):
        empty, *entries = row.findall(nodes.entry)
        link = next(entries[0].findall(nodes.reference), None)
        if link is None:
            continue
        tutorial = f"tutorials/{PurePosixPath(link['refuri']).stem}"
        figure = next(figures(app.env.get_doctree(tutorial)), None)
        if figure is None:
            logger.warning("%s has no figure with the tag thumbnail.", tutorial)
            continue
        thumbnail = deepcopy(figure)
        thumbnail.attributes.update(alt=f"A figure of the tutorial {link.astext()}", classes=["thumbnail"])
        picture = nodes.reference("", "", thumbnail, internal=True, refuri=link["refuri"])
        empty += nodes.paragraph("", "", picture)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-resolved", add_thumbnails)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
