"""Parts of report sections: heat maps, dashed lines, and tables that are shortened on the page."""

import csv

from venturi.analysis.section import Column, Figure, HeatMap, Panel, ReportSection, Series, Table
from venturi.report.figures_section import section_pictures
from venturi.report.single import single_html
from venturi.report.tables_section import write_sections

ROWS = tuple((f"site{number}", number * 1e6) for number in range(5))
TABLE = Table(
    "rates", "Rates", (Column("site", "Site"), Column("rate_bit_per_s", "Rate")), ROWS, max_shown=2
)  # fmt: skip
DASHED = Figure("time", "Rates", (Panel("Rates", "time_s", "rate_bit_per_s", (
    Series("requested", (0.0, 60.0, 120.0), (1e6, 1e6, 0.0), style="steps"),
    Series("predicted", (30.0, 90.0), (9e5, None), style="dashes"),
    Series("reached", (30.0, 90.0), (8e5, 9e5)),
)),), "Rates over time.")  # fmt: skip
HEAT = HeatMap("pairs", "Reached", ("a", "b"), ("a", "c"), (("a", "c", 0.5), ("b", "a", 1.0)), "Sources are rows.")
SECTION = ReportSection("load", "Load", "A sentence.", (TABLE,), (DASHED,), heat_maps=(HEAT,))


def test_the_page_has_the_first_rows_and_csv_has_all(tmp_path):
    page = single_html(SECTION, "title", section_pictures(SECTION))
    assert "site1" in page and "site2" not in page
    assert "3 more rows in rates.csv" in page
    (path,) = write_sections([SECTION], tmp_path)
    assert [row["site"] for row in csv.DictReader(path.read_text().splitlines())] == [name for name, _ in ROWS]


def test_a_section_has_pictures_of_its_figures_and_heat_maps():
    time, pairs = section_pictures(SECTION)
    assert (time.name, pairs.name) == ("load-time", "load-pairs")
    steps, predicted, reached = time.figure.axes[0].lines
    # The lines differ without colour: steps, dashes, and markers.
    assert steps.get_drawstyle() == "steps-post"
    assert predicted.is_dashed() and predicted.get_marker() in (None, "None", "")
    assert not reached.is_dashed() and reached.get_marker() == "o"
    texts = [text.get_text() for text in pairs.figure.axes[0].texts]
    assert sorted(texts) == ["100 %", "50 %"]
    assert pairs.alt == "Reached. 2 pairs, from 50 % to 100 %."
