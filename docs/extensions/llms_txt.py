"""Write ``llms.txt`` (llmstxt.org): titles of all pages by section, with links to their plain text in ``_sources``."""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx


def write_index(app: Sphinx, exception: Exception | None) -> None:
    if exception or app.builder.format != "html":
        return
    env, root = app.env, app.config.root_doc
    index = env.get_doctree(root)
    summary = next(node.astext() for node in index.findall() if node.tagname == "paragraph").replace("\n", " ")
    lines = [f"# {app.config.project}", f"> {summary}"]
    for section in env.toctree_includes[root]:
        pages = [name for name in [section, *env.toctree_includes.get(section, [])] if "generated/" not in name]
        links = [f"- [{env.titles[name].astext()}]({source_of(app, name)})" for name in pages]
        lines += [f"## {env.titles[section].astext()}", "\n".join(links)]
    (Path(app.outdir) / "llms.txt").write_text("\n\n".join(lines) + "\n", encoding="utf-8")


def source_of(app: Sphinx, name: str) -> str:
    return f"_sources/{name}{Path(app.env.doc2path(name)).suffix}{app.config.html_sourcelink_suffix}"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", write_index)
    return {"parallel_read_safe": True}
