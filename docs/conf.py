"""The documentation site: `make docs` builds it and fails at any warning.

Sphinx, because the packages of the field (nilearn, nibabel, scikit-learn) have it; MyST, so that the same pages read
well without the site; numpydoc, because docstrings follow it.
"""

import sys
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import bolt  # noqa: E402

project = "BolT"
author = "the BolT developers"
version = release = bolt.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc", "sphinx_copybutton"]
myst_heading_anchors = 4
autodoc_typehints = "none"  # numpydoc's sections state the types
numpydoc_show_class_members = False
html_theme = "furo"
html_title = "BolT"
html_show_sourcelink = False
html_show_copyright = False

INCLUDED = {
    "../CONTRIBUTING.md": "contributing.md",
    "../CHANGELOG.md": "changelog.md",
    "../benchmarks/README.md": "benchmarks.md",
}
"""Pages outside of this folder, and the pages of the site that include them."""


def link_included(app: Any, page: str, source: list[str]) -> None:
    """Let links to pages outside of this folder lead to their places in the site."""
    for outside, inside in INCLUDED.items():
        source[0] = source[0].replace(f"]({outside}", f"]({inside}")


def setup(app: Any) -> None:
    """Connect to Sphinx's events."""
    app.connect("source-read", link_included)
    app.add_lexer("tsv", TextLexer)
