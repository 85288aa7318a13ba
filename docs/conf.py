"""Sphinx configuration: MyST pages, the default theme, no extension from elsewhere."""

from venturi import __version__

project = "Venturi"
author = "The Venturi authors"
copyright = author
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_title = "Venturi"
autodoc_typehints = "description"
napoleon_use_ivar = True
suppress_warnings = ["ref.python"]  # attributes of several result types share names such as "low"
