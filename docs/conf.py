"""Sphinx configuration: MyST pages in the theme Furo, formulas as MathML; a page makes no request to another server."""

import tomllib
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from latex2mathml.converter import convert
from pygments.lexers.special import TextLexer
from sphinx.addnodes import download_reference
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.writers.html5 import HTML5Translator

from venturi import __version__

project = "Venturi"
author = "The Venturi authors"
copyright = author
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
autodoc_typehints = "description"
napoleon_use_ivar = True
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # signatures name types of other packages and private types
suppress_warnings = ["ref.python"]  # attributes of several result types share names such as "low"

html_theme = "furo"
html_title = "Venturi"
html_static_path = ["_static"]
html_css_files = ["venturi.css"]
html_math_renderer = "mathml"
html_show_sourcelink = False
html_copy_source = False


def visit_math(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula of a sentence as MathML."""
    self.body.append(convert(node.astext()))
    raise nodes.SkipNode


def visit_math_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a displayed formula as MathML, in a box that scrolls if the formula is wider than the page."""
    self.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>\n')
    raise nodes.SkipNode


def visit_download(self: HTML5Translator, node: download_reference) -> None:
    """Write a link to a file; the browser shows linked HTML reports instead of saving them."""
    HTML5Translator.visit_download_reference(self, node)
    if str(node.get("filename", "")).endswith(".html"):
        self.body[-1] = self.body[-1].replace(' download=""', "")


def depart_download(self: HTML5Translator, node: download_reference) -> None:
    """End a link to a file."""
    HTML5Translator.depart_download_reference(self, node)


class Gallery(SphinxDirective):
    """List of the reports of docs/gallery/gallery.toml, each with a link to its page, which docs/gallery/build.py makes."""

    option_spec: ClassVar = {}

    def run(self) -> list[nodes.Node]:
        """Return the list, with one item per report."""
        path = Path(self.env.srcdir) / "gallery" / "gallery.toml"
        self.env.note_dependency(str(path))
        cards = nodes.bullet_list(classes=["gallery"])
        for report in tomllib.loads(path.read_text(encoding="utf-8"))["report"]:
            link = nodes.reference("", report["title"], refuri=f"gallery/{report['name']}.html")
            text, _ = self.parse_inline(report["text"])
            cards += nodes.list_item("", nodes.paragraph("", "", link), nodes.paragraph("", "", *text))
        return [cards]


def setup(app: Sphinx) -> None:
    """Register the writers of formulas and of links to files, the gallery, and CSV as plain text."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    app.add_node(download_reference, override=True, html=(visit_download, depart_download))
    app.add_directive("gallery", Gallery)
    app.add_lexer("csv", TextLexer)
