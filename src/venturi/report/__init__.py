"""What people see of an analysis: one HTML page, a terminal text, CSV tables, JSON, PNG figures.

Text goes out, data come in: nothing here computes a statistic. :func:`html`, :func:`terminal`, :func:`json` and :func:`csv` take
an :class:`venturi.analysis.Analysis` or a :class:`venturi.analysis.Comparison`, :func:`png` an analysis. The first three return
text or a renderable; :func:`csv` and :func:`png` write files into a directory and return their paths. The functions of ``single`` do the
same of a chapter that stands alone.

Read :func:`html` first.
"""

from venturi.report.json import json
from venturi.report.page import html
from venturi.report.png import png
from venturi.report.single import single_html, single_terminal, write_single
from venturi.report.tables import csv
from venturi.report.terminal import terminal

__all__ = ["csv", "html", "json", "png", "single_html", "single_terminal", "terminal", "write_single"]
