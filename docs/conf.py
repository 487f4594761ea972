"""Configuration of the documentation.

The build needs no network. ``SCDIFFGEN_DOCS_ONLINE=1`` also links the names of other libraries to their documentation.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib.metadata import version as installed_version
from inspect import cleandoc
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "extensions")]

from pictures.calls import CALLS

# Sphinx reads one folder only, so the notebooks are copied beside their index
for notebook in (HERE.parent / "tutorials").glob("*.ipynb"):
    shutil.copy2(notebook, HERE / "tutorials")

project = "scdiffgen"
author = "scdiffgen developers"
copyright = f"2026, {author}"
release = version = installed_version("scdiffgen")

extensions = [
    "matplotlib.sphinxext.plot_directive",
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinxcontrib.bibtex",
    "sphinx_copybutton",
    "sphinxext.opengraph",
    "llms_txt",
    "repository_links",
    "thumbnails",
    "untyped_returns",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "**.ipynb_checkpoints"]

# the API: every name in the `__all__` of a package has a page
autosummary_generate = True
autosummary_ignore_module_all = False
autosummary_imported_members = True
autodoc_member_order = "groupwise"
autodoc_typehints = "description"
toc_object_entries_show_parents = "hide"
autodoc_typehints_description_target = "documented"
autodoc_typehints_format = "short"
autodoc_type_aliases = {name: name for name in ("ArrayLike", "CountsLike", "Points")}
napoleon_google_docstring = False
napoleon_use_rtype = False

# each function that draws has its picture, under the call that made it
autosummary_context = {"pictures": {name: cleandoc(call) for name, call in CALLS.items()}}
plot_pre_code = "from pictures.cells import *"
plot_include_source = True
plot_html_show_source_link = plot_html_show_formats = False
plot_formats = [("png", 100)]

bibtex_bibfiles = ["references.bib"]
bibtex_reference_style = "author_year"

# notebooks are committed without outputs and run here; what they gave is kept until a notebook changes, or `make clean`
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_build" / "notebooks")
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 900  # seconds for one cell, on a busy machine
nb_merge_streams = True
nb_output_stderr = "remove"  # what other libraries say about loggers and workers
os.environ["TQDM_DISABLE"] = "1"
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

intersphinx_mapping = {
    "anndata": ("https://anndata.scverse.org/en/stable/", None),
    "matplotlib": ("https://matplotlib.org/stable/", None),
    "mudata": ("https://mudata.readthedocs.io/stable/", None),
    "numpy": ("https://numpy.org/doc/stable/", None),
    "pandas": ("https://pandas.pydata.org/docs/", None),
    "python": ("https://docs.python.org/3/", None),
    "scanpy": ("https://scanpy.scverse.org/en/stable/", None),
    "scipy": ("https://docs.scipy.org/doc/scipy/", None),
    "scvi-tools": ("https://docs.scvi-tools.org/en/stable/", None),
    "sklearn": ("https://scikit-learn.org/stable/", None),
    "torch": ("https://docs.pytorch.org/docs/stable/", None),
}
if not os.environ.get("SCDIFFGEN_DOCS_ONLINE"):
    intersphinx_mapping = {}
nitpicky = True  # a name of the package that no page documents is a warning; private names and other libraries are not
nitpick_ignore_regex = [(r"py:.*", r"(?!scdiffgen\.).*|scdiffgen(\.\w+)*\._.*")]

html_theme = "sphinx_book_theme"
html_theme_options = {
    "navbar_persistent": [],  # the sidebar has the search field
    "show_toc_level": 2,
    "repository_url": "https://github.com/scdiffgen/scdiffgen",
    "repository_branch": "main",
    "path_to_docs": "docs",
    "use_repository_button": True,
    "use_issues_button": True,
    "use_edit_page_button": True,
}
ogp_site_url = "https://scdiffgen.readthedocs.io/en/stable/"
ogp_image = "_static/method.png"
html_title = "scdiffgen"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_show_sphinx = False
