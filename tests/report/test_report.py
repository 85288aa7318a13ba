"""Report formats are complete, well-formed and self-contained, including those of unusual runs."""

import csv as csv_reader
import io
import itertools
import json as json_reader
import re
import tomllib
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from planted import planted_run, product, share_law
from rich.console import Console

from venturi import report
from venturi.analysis import analyse, compare
from venturi.plan import plan_lines
from venturi.report.figures import MAX_HOSTS, pictures
from venturi.report.page import _formula
from venturi.report.svg import css_variables, inline_svg
from venturi.report.theme import VARIABLES
from venturi.report.toml import as_toml
from venturi.scenario import load_scenario
from venturi.study import reports, study
from venturi.workload import expand

GRID = product(files=[1, 2, 5, 10, 15, 20, 25, 30, 35, 40, 45], size_bytes=[10**5, 10**6, 10**7])
VOID = {"meta", "br", "hr", "img", "input", "link", "col", "wbr"}
ATTACK = "</pre><script>alert(1)</script>"


class Page(HTMLParser):
    """Collects links of a page, and rejects tags that do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        values = dict(attrs)
        if "id" in values:
            self.ids.append(values["id"])
        self.links += [
            values[key] for key in ("href", "src", "xlink:href", "action", "data", "poster") if key in values
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def terminal_text(result, width=80, *, full=True):
    console = Console(width=width, file=io.StringIO(), no_color=True, force_terminal=False)
    console.print(report.terminal(result, full=full))
    return console.file.getvalue()


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A run with all features: a study, failures with a hostile message, counters, published values."""

    def law(factors, rng):
        return 0.002 + share_law(factors, rng)

    run = planted_run(
        tmp_path_factory.mktemp("full"), GRID, law, samples=True, scenario={"study": "cnaf/cp", "scale": 0.01},
        fails=lambda f, r, s: ATTACK if f["files"] == 45 and s == 44 else None,
        per_transfer={"read_disk_bytes": 0.03, "write_call_bytes": 1.0},
    )  # fmt: skip
    return analyse(run)


@pytest.fixture(scope="module")
def page(full):
    return report.html(full)


def test_the_page_is_well_formed_with_unique_ids_and_valid_links(page):
    parsed = Page(page)
    assert len(parsed.ids) == len(set(parsed.ids))
    assert {link.removeprefix("#") for link in parsed.links if link.startswith("#")} <= set(parsed.ids)


def test_the_page_has_no_external_references_and_one_script_without_requests(page):
    parsed = Page(page)
    assert all(link.startswith(("#", "data:")) for link in parsed.links)
    assert parsed.tags.count("script") == 1
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    assert not re.search(r"fetch|XMLHttpRequest|import|innerHTML|eval|document\.write", script)
    assert set(re.findall(r"https?://[^\s\"'<)]+", page)) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def test_text_from_the_run_is_escaped(page):
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_the_page_leads_with_the_summary_and_shows_failures_claims_and_published_values(page, full):
    text = " ".join(" ".join(Page(page).text).replace("\u00a0", " ").split())
    assert (
        text.index(full.headline.text)
        < text.index("Total throughput against number")
        < text.index("With files of 10 MB")
        < text.index("TB/h")
    )
    for words in (f"{full.counts.transfers_failed} of {full.counts.transfers:,} transfers failed",
                  "page cache", "760 MB/s", "000-E03", "throughput per file falls", "Not tested in this run",
                  full.about.plan_sha256, "venturi run planted.toml", "SHA-256",
                  reports()["000"].full_reference(), "docs/reference/bibliography.md#report-000"):  # fmt: skip
        assert words in text


def test_every_figure_has_a_title_and_a_description_with_numbers(page):
    figures = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)
    assert len(figures) == 5  # against files, against size, together, order, counters
    for figure in figures:
        assert 'role="img"' in figure
        assert re.search(r"<title[^>]*>[^<]+</title><desc[^>]*>[^<]*\d[^<]*</desc>", figure)


def test_each_marker_has_its_series_value_and_position_on_hover(page, full):
    figures = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)
    total = next(svg for svg in figures if "Total throughput against" in svg)
    values = re.findall(r"<use [^>]*><title>([^<]*)</title></use>", total)
    assert len(values) >= sum(len(load.files) for load in full.loads)
    assert all(re.search(r" in total: [\d.,]+\nnumber of parallel files: \d+$", value) for value in values)


def test_figures_use_the_colours_of_the_theme_and_stay_small(page, full):
    drawn = [inline_svg(picture) for group in pictures(full).values() for picture in group]
    for svg in drawn:
        assert not any(swatch.light in svg for swatch in VARIABLES)
        used = set(re.findall(r"var\(--(\w+)\)", svg))
        assert used <= {swatch.variable for swatch in VARIABLES}
    assert sum(map(len, drawn)) < 2e6
    assert len(page) < 2e6
    assert css_variables(dark=False).count("--") == css_variables(dark=True).count("--") == len(VARIABLES)


def test_labels_of_eleven_curves_do_not_overlap(full):
    picture = next(p for p in pictures(full)["curves"] if p.name == "throughput-size")
    axes = picture.figure.axes[0]
    FigureCanvasAgg(picture.figure).draw()
    # An annotation includes its leader in its extent.
    boxes = sorted((Text.get_window_extent(label) for label in axes.texts), key=lambda box: box.y0)
    assert len(boxes) == 11
    assert all(box.x1 <= picture.figure.bbox.x1 for box in boxes)
    assert all(lower.y1 <= upper.y0 + 1.0 for lower, upper in itertools.pairwise(boxes))


def test_terminal_output_fits_80_columns_without_colour(full):
    text = terminal_text(full)
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert " ".join(text.split()).startswith(full.headline.text)
    assert "! transfers-failed" in text
    assert "agrees: throughput per file falls as more files" in text


def test_csv_tables_have_the_points_in_base_units_and_can_be_read_back(full, tmp_path):
    paths = {path.name: path for path in report.csv(full, tmp_path / "new")}
    assert {
        "points.csv",
        "fits.csv",
        "families.csv",
        "totals.csv",
        "claims.csv",
        "published.csv",
        "findings.csv",
        "failures.csv",
    } <= set(paths)
    rows = list(csv_reader.DictReader(paths["points.csv"].read_text().splitlines()))
    assert len(rows) == len(full.points)
    for row, point in zip(rows, full.points, strict=True):
        assert float(row["throughput_bytes_per_s"]) == point.throughput_bytes_per_s
        assert int(row["factor_size_bytes"]) == point.factors["size_bytes"]
    assert "nan" not in paths["points.csv"].read_text().lower()


def test_json_is_strict_and_versioned_with_exact_numbers(full):
    def reject(text):
        raise AssertionError(f"{text} is not JSON")

    document = json_reader.loads(report.json(full), parse_constant=reject)
    assert (document["format"], document["version"]) == ("venturi-analysis", 1)
    assert document["sentence"] == full.sentence
    assert [p["throughput_bytes_per_s"] for p in document["points"]] == [
        p.throughput_bytes_per_s for p in full.points
    ]


def test_each_figure_is_written_to_a_png_file(full, tmp_path):
    paths = report.png(full, tmp_path)
    assert {path.name for path in paths} >= {"throughput-files.png", "throughput-size.png", "total.png"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


EDGES = {
    "empty": {"points": product(files=[1], size_bytes=[10**6]), "done": 0},
    "all failed": {"points": product(files=[2], size_bytes=[10**6]), "fails": lambda f, r, s: "Permission denied"},
    "one point": {"points": product(files=[4], size_bytes=[10**7])},
    "one trial": {"points": product(files=[1], size_bytes=[10**7]), "repeat": 1},
    "one repetition": {"points": GRID[:12], "repeat": 1},
    "zero size": {"points": product(files=[1, 2, 5], size_bytes=[0])},
    "with zero size": {"points": product(files=[1, 2, 5], size_bytes=[0, 10**6, 10**7])},
    "two movers": {"points": product(mover=["read", "read+write"], files=[1, 2, 3], size_bytes=[10**7])},
    "no numeric factor": {"points": product(mover=["cp", "rsync"], files=[1], size_bytes=[10**7])},
    "unfinished": {"points": GRID, "done": 7},
    "no scatter": {"points": GRID[:9], "law": lambda f, rng: 0.25},
}


@pytest.mark.parametrize("name", EDGES)
def test_every_output_format_works_for_a_run_with_little_data(tmp_path, name):
    case = dict(EDGES[name])
    analysis = analyse(planted_run(tmp_path, case.pop("points"), **case))
    text = " ".join(" ".join(Page(report.html(analysis)).text).replace("\u00a0", " ").split())
    assert analysis.conclusion in text
    assert " nan" not in text.lower()
    assert not re.search(r"\bNone\b", text)
    shown = terminal_text(analysis)
    assert max(map(len, shown.splitlines())) <= 80
    json_reader.loads(report.json(analysis))
    assert report.csv(analysis, tmp_path / "csv") or name == "empty"


def test_failures_are_named_if_all_transfers_failed(tmp_path):
    case = dict(EDGES["all failed"])
    analysis = analyse(planted_run(tmp_path, case.pop("points"), **case))
    for text in (terminal_text(analysis), report.html(analysis)):
        assert "Permission denied" in text
        assert "all-failed" in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a·e^(-((x-b)/c)²) + d", "a·e<sup>-((x-b)/c)²</sup> + d"),
        ("s/(t0 + n^gamma·s/B)", "s/(t0 + n<sup>gamma</sup>·s/B)"),
        ("a<b^(c", "a&lt;b<sup>c</sup>"),
    ],
)
def test_exponents_of_formulas_are_superscripts_and_other_text_is_escaped(text, shown):
    assert str(_formula(text)) == f'<span class="formula">{shown}</span>'


# --- comparisons


def test_only_the_busiest_of_many_hosts_are_drawn_and_the_caption_reports_it(full):
    (one,) = full.series
    factor = {f"h{number:02}": (7 * number) % 20 + 1 for number in range(20)}

    def moving(host):
        traces = [
            trace if trace.unit == "ratio" else replace(trace, mean=trace.mean * factor[host]) for trace in one.traces
        ]
        return replace(one, host=host, traces=tuple(traces))

    drawn = pictures(replace(full, series=tuple(map(moving, factor))))["series"]
    busiest = sorted(sorted(factor, key=factor.get)[-MAX_HOSTS:])
    assert [picture.title.split()[-1] for picture in drawn] == busiest
    assert all(f"the {MAX_HOSTS} of 20 hosts that moved most" in picture.caption for picture in drawn)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    base = tmp_path_factory.mktemp("two")
    slow = planted_run(base / "a", GRID[:9], name="before")
    fast = planted_run(base / "b", GRID[:9], lambda f, rng: share_law(f, rng) / 2, name="after")
    return compare(slow, fast)


def test_a_comparison_has_every_output_format(compared, tmp_path):
    page = Page(report.html(compared))
    text = " ".join(" ".join(page.text).split())
    assert text.count("faster") >= 9
    assert all(link.startswith("#") for link in page.links)
    shown = terminal_text(compared)
    assert max(map(len, shown.splitlines())) <= 80
    assert "9 faster" in " ".join(shown.split())
    assert json_reader.loads(report.json(compared))["format"] == "venturi-comparison"
    report.csv(compared, tmp_path)
    rows = list(csv_reader.DictReader((tmp_path / "comparison.csv").read_text().splitlines()))
    assert np.allclose([float(row["ratio"]) for row in rows], 2.0, rtol=0.05)


def test_a_comparison_without_common_points_reports_it(tmp_path):
    a = planted_run(tmp_path / "a", product(files=[1], size_bytes=[10**6]))
    b = planted_run(tmp_path / "b", product(files=[2], size_bytes=[10**6]))
    result = compare(a, b)
    assert "no point in common" in report.html(result)
    assert "no point in common" in terminal_text(result)


# --- TOML


def test_the_scenario_in_a_report_expands_into_the_same_plan(tmp_path):
    chosen = study("cnaf/cp")
    first = expand(load_scenario(chosen.scenario_path, overrides=[*chosen.quick, "workload.repeat=2"]))
    lines = list(plan_lines(first))
    (tmp_path / "again.toml").write_text(as_toml(json_reader.loads(lines[0])["scenario"]))
    assert list(plan_lines(expand(load_scenario(tmp_path / "again.toml")))) == lines


def test_names_with_dollar_signs_are_not_rendered_as_formulas(tmp_path):
    points = product(mover=["$HOME/a$b", "$x^2$"], files=[1, 2, 3], size_bytes=[10**7])
    analysis = analyse(planted_run(tmp_path, points))
    assert "$HOME/a$b" in inline_svg(pictures(analysis)["curves"][0])


KEYS = st.text(max_size=8)
SCALARS = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=12)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=12
)


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_a_scenario_written_as_toml_is_read_back_unchanged(document):
    assert tomllib.loads(as_toml(document)) == document
