"""Report sections in all formats: content, units, and marked published values."""

import csv as csv_reader
import dataclasses
import json as json_reader
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from planted import planted_run, product
from section_samples import CURVES, HOSTILE, RATES, SECTION
from test_report import Page, terminal_text

from venturi import report
from venturi.analysis import analyse
from venturi.analysis.quantity import axis_scale, format_quantity
from venturi.analysis.section import Column, Figure, Message, Panel, ReportSection, Sequence, Series, Table
from venturi.analysis.sections import SECTIONS
from venturi.report.figures import pictures


@pytest.fixture(scope="module")
def section_analysis(tmp_path_factory):
    """The analysis of a run with a report section."""
    SECTIONS["squid"] = lambda run, about: SECTION
    SECTIONS["nothing"] = lambda run, about: None
    try:
        return analyse(planted_run(tmp_path_factory.mktemp("told"), product(files=[1, 2], size_bytes=[10**6])))
    finally:
        del SECTIONS["squid"], SECTIONS["nothing"]


def with_section(analysis, **parts):
    return dataclasses.replace(analysis, sections=(ReportSection("one", "One", "All there is.", **parts),))


def test_the_page_shows_and_escapes_summary_figures_sequences_and_tables_of_a_section(section_analysis):
    page = report.html(section_analysis)
    text = " ".join(" ".join(Page(page).text).replace("\u00a0", " ").split())
    for words in ("40 clients get 40 Gb/s & more", "50 Gb/s", "Source: 002, figure 1.", "srmPrepareToGet", "no measurements", "13.5 ms"):  # fmt: skip
        assert words in text
    assert HOSTILE not in page
    assert '<a href="#section-squid">' in page
    assert text.index("Caches") < text.index("Throughput per file")


def test_the_first_section_gives_the_summary_unless_the_run_is_a_sweep(section_analysis, tmp_path):
    assert section_analysis.conclusion != SECTION.sentence
    points = product(files=[1, 2], size_bytes=[10**6])
    for name, fails, replied in (
        ("clients", lambda f, r, s: None, True),
        ("nothing", lambda f, r, s: "refused", False),
    ):
        SECTIONS["squid"] = lambda run, about: dataclasses.replace(SECTION, sentence="40 clients get 40 Gb/s")
        try:
            analysis = analyse(
                planted_run(tmp_path / name, points, scenario={"workload": {"kind": "replay"}}, fails=fails)
            )
        finally:
            del SECTIONS["squid"]
        assert (analysis.conclusion == "40 clients get 40 Gb/s.") == replied
        assert analysis.sentence.startswith(analysis.headline.text)
        assert analysis.conclusion in analysis.sentence


def test_only_published_table_cells_are_marked_on_the_page(section_analysis):
    page = report.html(section_analysis)
    row = next(r for r in re.findall(r"<tr>.*?</tr>", page) if '<td class="n">40</td>' in r)
    cells = re.findall(r'<td class="([^"]*)">([^<]*)', row)
    assert [value for kind, value in cells if "published" in kind] == ["50 Gb/s"]


def test_wide_tables_scroll_within_the_page(section_analysis):
    page = report.html(section_analysis)
    for found in re.finditer(r"<table", page):
        assert "scroll" in page[: found.start()].rpartition("<div")[2]


def test_figures_of_sections_have_unique_ids_and_distinct_published_series(
    section_analysis,
):
    drawn = pictures(section_analysis)["section-squid"]
    assert [picture.name for picture in drawn] == ["squid-curves", "squid-bars", "squid-trace", "squid-get"]
    parsed = Page(report.html(section_analysis))
    assert len(parsed.ids) == len(set(parsed.ids))
    ours, published = drawn[0].figure.axes[0].get_lines()[:2]
    assert (ours.get_linestyle(), published.get_linestyle()) == ("-", "--")
    assert "1 Gb/s" not in drawn[0].alt.split("from ")[0]
    assert "952 Mb/s to 13.3 Gb/s" in drawn[0].alt


def test_axes_use_the_unit_of_their_highest_value(section_analysis):
    drawn = {picture.name: picture.figure for picture in pictures(section_analysis)["section-squid"]}
    assert drawn["squid-curves"].axes[0].get_title(loc="left").endswith("rate, Gb/s")
    assert drawn["squid-trace"].axes[0].get_xlabel() == "time, min"
    assert drawn["squid-trace"].axes[0].get_xlim()[1] == pytest.approx(899 / 60, rel=0.03)
    heights = [bar.get_height() for bar in drawn["squid-bars"].axes[0].patches]
    assert sorted(heights) == pytest.approx([1, 1, 1.2, 2, 2, 2.2, 3, 3, 4])  # missing measurements have no bar


def test_terminal_output_of_a_section_fits_80_columns_and_names_omitted_data(section_analysis):
    text = terminal_text(section_analysis)
    assert max(map(len, text.splitlines())) <= 80
    assert "10 more rows in the HTML page and squid-rates.csv" in text
    assert re.search(r"more columns? in the HTML page and squid-rates.csv: .*Remark", " ".join(text.split()))
    assert "Rate, published" in text
    assert "Nothing yet" not in text


def test_csv_has_one_file_per_table_with_a_header_and_raw_numbers(section_analysis, tmp_path):
    paths = {path.name: path for path in report.csv(section_analysis, tmp_path)}
    rows = list(csv_reader.DictReader(paths["squid-rates.csv"].read_text().splitlines()))
    assert [float(row["rate_bit_per_s"]) for row in rows] == [1e9 * n for n in range(1, 41)]
    assert rows[2]["rate_published_bit_per_s"] == ""
    assert paths["nothing-yet.csv"].read_text() == "jobs,wall_s\n"
    assert paths["squid-points.csv"].read_text() == "site\nBari\n"  # points.csv belongs to the report
    assert "throughput_bytes_per_s" in paths["points.csv"].read_text()


def test_json_has_the_unmodified_sections(section_analysis):
    (section,) = json_reader.loads(report.json(section_analysis))["sections"]
    assert section["sentence"] == SECTION.sentence
    assert section["tables"][0]["columns"][3] == {
        "name": "rate_published_bit_per_s",
        "title": "Rate",
        "published": True,
    }
    assert len(section["tables"][0]["rows"]) == len(RATES.rows)
    assert section["figures"][0]["panels"][0]["series"][0]["y"][2] is None


@pytest.fixture(scope="module")
def claimed(tmp_path_factory):
    """A run of a study with an erratum (000-E03), and with claims that no table of the report covers."""
    points = product(files=[1, 2, 5], size_bytes=[10**6])
    return analyse(planted_run(tmp_path_factory.mktemp("claimed"), points, scenario={"study": "cnaf/cp"}))


def test_every_output_format_has_the_verdict_on_the_published_table_of_a_claim(claimed, tmp_path):
    claim = "cp, throughput against files: mean R² 0.97 (text) (000-E03)"
    evidence = "0.93 against 0.97, ratio 0.9588"
    shown = " ".join(terminal_text(claimed).split())
    assert f"{claim} this run has no table '000-fits' tables of the report: disagrees: {evidence}" in shown
    page = " ".join(" ".join(Page(report.html(claimed)).text).replace("\u00a0", " ").split())
    assert f"{claim.removesuffix(' (000-E03)')} (000-E03) disagrees {evidence} not tested" in page
    report.csv(claimed, tmp_path)
    rows = {r["id"]: r for r in csv_reader.DictReader((tmp_path / "claims.csv").read_text().splitlines())}
    assert rows["000-cp-fit-files"]["published_evidence"] == evidence
    assert (rows["000-cp-fit-files"]["published_verdict"], rows["000-cp-fit-files"]["errata"]) == (
        "disagrees",
        "000-E03",
    )
    assert rows["falls-with-files"]["published_verdict"] == ""
    plain = {claim["id"]: claim for claim in json_reader.loads(report.json(claimed))["claims"]}
    assert plain["000-total-falls"]["published"]["verdict"] == "agrees"
    assert plain["falls-with-files"]["published"] is None


def test_every_figure_of_a_section_is_written_to_a_png_file(section_analysis, tmp_path):
    names = {path.name for path in report.png(section_analysis, tmp_path)}
    assert {"squid-curves.png", "squid-bars.png", "squid-trace.png", "squid-get.png"} <= names


EDGES = {
    "one dot": Panel("p", "clients", "wall_s", (Series("s", (3.0,), (2.0,)),)),
    "zeros": Panel("p", "clients", "rate_bit_per_s", (Series("s", (0.0, 0.0), (0.0, 0.0)),)),
    "zeros on logarithms": Panel("p", "clients", "rate_bit_per_s", (Series("s", (0.0, 1.0), (0.0, 0.0)),), x_log=True, y_log=True),
    "negative": Panel("p", "time_s", "change_ratio", (Series("s", (0.0, 1.0), (-0.5, 0.5)),)),
    "many bars": Panel("p", "time_s", "transfers", (Series("s", tuple(map(float, range(300))), (1.0,) * 300, style="bars"),)),
    "bars and a curve": Panel("p", "window_bytes", "rate_bytes_per_s", (Series("s", (1e6, 2e6), (1e6, 2e6), style="bars"),
                                                                     Series("t", (1e6, 4e6), (2e6, 3e6), published=True))),
    "numbers among words": Panel("p", "site", "jobs", (Series("s", ("Bari", 4.0), (1.0, 2.0), style="bars"),)),
    "nothing measured": Panel("p", "site", "jobs", (Series("s", (1.0,), (None,)),)),
    "not a number": Panel("p", "site", "jobs", (Series("s", (1.0, 2.0), (float("nan"), 3.0)), Series("t", (1.0,), (float("nan"),)))),
    "no series": Panel("p", "site", "jobs", ()),
    "40 curves": Panel("p", "site", "jobs", tuple(Series(f"curve {n}", (1.0, 2.0), (1.0, 2.0 + n)) for n in range(40))),
    "a cloud": Panel("p", "time_s", "jobs", (Series("s", tuple(map(float, range(5000))), (1.0,) * 5000, style="points"),)),
}  # fmt: skip


@pytest.mark.parametrize("name", EDGES)
def test_every_panel_can_be_drawn(section_analysis, name):
    analysis = with_section(section_analysis, figures=(Figure("f", "A figure", (EDGES[name],), "Caption."),))
    for picture in pictures(analysis)["section-one"]:
        FigureCanvasAgg(picture.figure).draw()
        assert "nan" not in picture.alt
    Page(report.html(analysis))


def test_five_panels_are_in_rows_of_at_most_three_with_one_legend(section_analysis):
    figure = Figure("f", "Five", CURVES.panels[:1] * 5, "")
    (picture,) = pictures(with_section(section_analysis, figures=(figure,)))["section-one"]
    columns = {axes.get_subplotspec().colspan.start for axes in picture.figure.axes}
    assert (len(picture.figure.axes), columns, len(picture.figure.legends)) == (5, {0, 1, 2}, 1)


def test_a_long_sequence_is_truncated_and_its_caption_reports_it(section_analysis):
    messages = tuple(Message(float(n), "a", "b", f"message {n}") for n in range(500))
    analysis = with_section(section_analysis, sequences=(Sequence("s", "Much talk", ("a", "b"), messages, "Talk."),))
    (picture,) = pictures(analysis)["section-one"]
    assert "440 later messages omitted" in picture.caption
    assert "500 messages" in picture.alt


def test_tables_with_the_same_name_in_two_sections_get_separate_files(section_analysis, tmp_path):
    table = Table("rates", "Rates", (Column("n", "n"),), ((1,),))
    both = tuple(ReportSection(name, name, "", (table,)) for name in ("one", "two"))
    names = {path.name for path in report.csv(dataclasses.replace(section_analysis, sections=both), tmp_path)}
    assert {"rates.csv", "two-rates.csv"} <= names


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("rate_bit_per_s", 9.41e8, "941 Mb/s"), ("rate_bytes_per_s", 941e6, "941 MB/s"), ("wall_s", 3725.0, "1 h 02 min"),
        ("moved_bytes", 0, "0 B"), ("loss_ratio", 0.001, "0.1 %"), ("of_published_ratio", 12.34, "1,234 %"), ("change_bytes_per_s", -5e6, "−5 MB/s"), ("requests_per_s", 12.5, "12.5 /s"),
        ("year", 2013, "2013"), ("transfers", 1234567, "1,234,567"), ("steady", True, "yes"), ("site", "Bari", "Bari"), ("site", None, "–"), ("wall_s", float("nan"), "–"),
    ],
)  # fmt: skip
def test_the_suffix_of_a_name_is_its_unit(name, value, shown):
    assert format_quantity(name, value) == shown


@given(st.sampled_from(["rate_bit_per_s", "wall_s", "moved_bytes", "cpu_ratio", "jobs"]), st.floats(0, 1e18))
def test_an_axis_with_a_unit_prefix_has_its_highest_value_between_1_and_1000(name, highest):
    scale = axis_scale(name, highest)
    if scale.unit[:1] in "kMGT" and scale.unit:
        assert 1 <= highest / scale.divisor < 1000 * (1 + 1e-9)
