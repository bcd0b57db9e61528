"""Sphinx's settings. `generate` writes the pages that are not written by hand.

``sphinx-build -W --keep-going docs OUTPUT`` builds the site. It fetches nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import generate  # noqa: E402  # it is next to this file

import dasfprof  # noqa: E402

project = "dasfprof"
author = "the dasfprof developers"
copyright = f"2026, {author}"
release = dasfprof.__version__
version = ".".join(release.split(".")[:2])

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_design",
]
smartquotes = False  # of options such as --json
exclude_patterns = ["_build", "files"]
default_role = "code"

# --- Pages in Markdown, and notebooks as they were executed before the build ----------------------

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
# The tests execute each notebook; the site's own workflow does so once, for their outputs.
nb_execution_mode = "force" if os.environ.get("DASFPROF_DOCS_EXECUTE") else "off"
if nb_execution_mode == "force":  # on a busy host workers restart more slowly than Dask waits
    os.environ.setdefault("DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT", "10m")
    os.environ.setdefault("DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT", "2m")
nb_execution_excludepatterns = ["gallery/tutorial_gpu.ipynb"]  # it needs a GPU
nb_execution_timeout = 300
nb_execution_raise_on_error = True

# --- Python's objects -----------------------------------------------------------------------------

autodoc_typehints = "none"
autosummary_generate = False
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# --- What Sphinx checks ---------------------------------------------------------------------------

# Types in docstrings are prose ("array of float"), so that not every name of them is a reference.
nitpicky = False
# External addresses are listed by the builder "linkcheck", which needs a network.
linkcheck_timeout = 20
linkcheck_anchors = False

# --- Appearance: Dask's theme builds on this theme, which loads nothing from other hosts ----------

html_theme = "sphinx_book_theme"
html_title = f"dasfprof {version}"
html_static_path = ["_static"]
html_css_files = ["dasfprof.css"]
html_extra_path = ["files"]
html_show_sourcelink = False
html_theme_options = {
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "home_page_in_toc": True,
    "use_download_button": False,
    "use_fullscreen_button": False,
    "pygments_light_style": "friendly",
    "pygments_dark_style": "native",
}


def setup(app) -> None:
    """Have the generated pages written before Sphinx looks for pages."""
    app.connect("config-inited", lambda *_: generate.write(HERE), priority=100)
    app.connect("source-read", generate.complete)
