"""Reports of an analysis: one HTML page, terminal text, CSV tables, JSON and PNG figures.

This package formats results and computes no statistics. Its functions take a :class:`venturi.analysis.Analysis`. All
except :func:`png` also take a :class:`venturi.analysis.RunComparison`. The page, the terminal text and JSON also take
:class:`venturi.analysis.Scenarios`.

:func:`html`, :func:`terminal` and :func:`json` return text or a renderable. :func:`csv` and :func:`png` write files
into a directory and return their paths. The functions of ``single`` do the same for a single report section.

Read :func:`html` first.
"""

from venturi.report.json import json
from venturi.report.page import html
from venturi.report.png import png
from venturi.report.single import single_html, single_terminal, write_single
from venturi.report.tables import csv
from venturi.report.terminal import terminal

__all__ = ["csv", "html", "json", "png", "single_html", "single_terminal", "terminal", "write_single"]
