"""What people see of an analysis: one HTML page, a terminal text, CSV tables, JSON, PNG figures.

Text goes out, data come in: nothing here computes a statistic. :func:`html`, :func:`terminal`, :func:`json` and :func:`csv` take
an :class:`venturi.analysis.Analysis` or a :class:`venturi.analysis.Comparison`, :func:`png` an analysis. The first three return
text or a renderable; :func:`csv` and :func:`png` write files into a directory and return their paths.

Read :func:`html` first.
"""

from venturi.report.json import json
from venturi.report.page import html
from venturi.report.png import png
from venturi.report.tables import csv
from venturi.report.terminal import terminal

__all__ = ["csv", "html", "json", "png", "terminal"]
