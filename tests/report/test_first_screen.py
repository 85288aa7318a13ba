"""The headline and the first screen of a report, for small simulated runs of every kind of workload."""

import io
import json
import os
import re
import shutil
import tomllib

import numpy as np
import pytest
from planted import planted_run, product
from rich.console import Console
from workload_samples import SAMPLES, TRACE

from testkit import needs_programs
from venturi import report
from venturi.analysis import analyse
from venturi.analysis.headline import MAX_WORDS
from venturi.backend import SimBackend
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import load_scenario, scenario_from
from venturi.study import study
from venturi.units import format_rate, parse_rate_bit_per_s
from venturi.workload import expand

STUDIES = {"srm": "ani/srm", "managed": "ani/managed"}
LINES = 24 - 2
"""Lines of a screen without the path of the page and the prompt of the shell."""


@pytest.fixture(scope="module")
def analysis_of(tmp_path_factory, engine):
    """Return a function that simulates a workload once, and analyses it."""
    known = {}

    def simulated(kind):
        if kind not in known:
            directory = tmp_path_factory.mktemp(kind.replace(" ", "-"))
            (directory / "trace.csv").write_text(TRACE)
            if kind in STUDIES:
                chosen = study(STUDIES[kind])
                scenario = load_scenario(chosen.scenario_path, overrides=chosen.overrides(quick=True, on="sim"))
            else:
                scenario = scenario_from(tomllib.loads(SAMPLES[kind].replace("TRACE", str(directory / "trace.csv"))))
            write_plan(expand(scenario), directory / "plan.jsonl")
            with RunWriter.create(directory / "runs", directory / "plan.jsonl", backend="sim") as run:
                assert SimBackend(engine=engine).execute(run).state == "complete"
            known[kind] = analyse(Run.open(run.path))
        return known[kind]

    return simulated


def screen(analysis, width, *, soft_wrap=True):
    """Return the output on a console like that of the commands."""
    console = Console(width=width, file=io.StringIO(), no_color=True, force_terminal=False, soft_wrap=soft_wrap)
    console.print(report.terminal(analysis), markup=False)
    return console.file.getvalue()


def lines_on(shown, width):
    """Return the number of lines on a terminal, which folds long lines."""
    return sum(max(1, -(-len(line) // width)) for line in shown.splitlines())


@pytest.mark.parametrize("kind", [*SAMPLES, *STUDIES])
def test_headline_and_first_screen_of_every_kind_of_workload(analysis_of, kind):
    analysis = analysis_of(kind)
    text = analysis.headline.text
    assert len(text.split()) <= MAX_WORDS
    assert text.endswith(".") and "…" not in text
    assert re.search(r"limit|has no rate", text), "it has a verdict"
    # A number without an interval has a reason in words.
    assert re.search(r"\[.+, .+\]|±|simulated|trial|run|has no rate", text)
    assert json.loads(report.json(analysis))["headline"]["text"] == text
    for width in (80, 120):
        shown = screen(analysis, width)
        lines = shown.splitlines()
        assert lines_on(shown, width) <= LINES
        # Only the command may be longer, so that it can be copied.
        assert lines[-1] == f"  {analysis.next_step.command}"
        assert max(map(len, lines[:-1])) <= width
        assert " ".join(shown.split()).startswith(" ".join(text.split()))
    assert analysis.next_step.command.split()[0] == "venturi"


def rates_in(text):
    """Return the ends of the range of rates at the start of a headline, in bytes/s."""
    low, low_unit, high, unit = re.match(r"([\d.]+)(?: (\w+/s))? to ([\d.]+) (\w+/s)", text).groups()
    return [parse_rate_bit_per_s(f"{number} {own or unit}") / 8 for number, own in ((low, low_unit), (high, None))]


@pytest.mark.parametrize("kind", ["sweep", "many points"])
def test_a_sweep_has_the_range_and_the_best_point_and_no_mean_over_sizes(analysis_of, kind):
    analysis = analysis_of(kind)
    rates = [point.together_bytes_per_s for point in analysis.points]
    assert rates_in(analysis.headline.text) == pytest.approx([min(rates), max(rates)], rel=0.005)
    assert "50 MB and 4 streams" in analysis.headline.text or kind != "sweep"
    assert analysis.headline.bytes_per_s == max(rates)
    means = {
        format_rate(np.mean(rates)),
        format_rate(sum(p.mean_time_s * r for p, r in zip(analysis.points, rates, strict=True))),
    }
    measured = {format_rate(rate) for rate in rates} | {
        format_rate(p.throughput_bytes_per_s) for p in analysis.points
    }
    in_text = set(re.findall(r"[\d.]+ [kMG]B/s", analysis.sentence))
    assert not in_text & means and in_text <= measured
    assert "sizes (" not in analysis.sentence
    # The verdict of the run has the range, too.
    assert rates_in(analysis.bottleneck) == pytest.approx([min(rates), max(rates)], rel=0.005)


def test_one_trial_has_no_interval_and_the_headline_has_the_reason(analysis_of):
    analysis = analysis_of("one point")
    (point,) = analysis.points
    assert analysis.headline.text.startswith(f"{format_rate(point.together_bytes_per_s)} (one")
    assert "trial" in analysis.headline.text


GRID = product(files=[1], size_bytes=[10**6, 10**7])


def scattered(scale):
    return lambda f, rng: f["size_bytes"] / 1e8 * (1 + scale * rng.standard_normal())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"repeat": 6}, r"^\S+ MB/s \[[\d.]+, [\d.]+\]"),
        ({"repeat": 2}, r"^\S+ MB/s \(two trials\)"),
        ({"repeat": 1}, r"^\S+ MB/s \(one trial\)"),
        ({"repeat": 6, "fails": lambda f, r, s: "refused" if r == 0 else None}, r"^1 of 6 transfers failed: [\d.]+ MB/s \["),
        ({"repeat": 6, "fails": lambda f, r, s: "refused"}, r"^Nothing was measured: all 6 transfers failed"),
        ({"repeat": 6, "done": 0}, r"^Nothing was measured: no trial has finished"),
        ({"repeat": 6, "done": 4}, r"^4 of 6 trials done: [\d.]+ MB/s \["),
    ],
)  # fmt: skip
def test_the_headline_starts_with_missing_parts_and_explains_missing_intervals(tmp_path, options, expected):
    analysis = analyse(planted_run(tmp_path, GRID[1:], scattered(0.02), **options))
    assert re.search(expected, analysis.headline.text)
    assert len(analysis.headline.text.split()) <= MAX_WORDS
    assert lines_on(screen(analysis, 80), 80) <= LINES


def test_the_interval_of_the_headline_is_that_of_the_best_point(tmp_path):
    analysis = analyse(planted_run(tmp_path, GRID, lambda f, rng: f["files"] * (0.01 + f["size_bytes"] / 1e8) * (1 + 0.02 * rng.standard_normal())))  # fmt: skip
    best = max(analysis.points, key=lambda point: point.together_bytes_per_s)
    low, high = map(float, re.search(r"\[([\d.]+), ([\d.]+)\]; highest with 10 MB", analysis.headline.text).groups())
    assert (low * 1e6, high * 1e6) == pytest.approx(
        (best.together_interval.low, best.together_interval.high), rel=0.006
    )


def test_points_with_overlapping_intervals_have_no_best_point(tmp_path):
    analysis = analyse(planted_run(tmp_path, GRID, scattered(0.1)))
    assert "no clear difference between 2 points" in analysis.headline.text
    assert "highest with" not in analysis.headline.text


def test_many_points_and_findings_fit_the_screen_and_the_rest_is_announced(tmp_path):
    points = product(files=[1, 2, 5, 10, 20], size_bytes=[10**5, 10**6, 10**7], block_bytes=[4096, 65536])
    fails = lambda f, r, s: f"a long reason {'x' * 200}" if f["files"] == 20 and s == 3 else None  # noqa: E731
    analysis = analyse(planted_run(tmp_path, points, fails=fails, repeat=3))
    for width in (80, 120):
        shown = screen(analysis, width)
        assert lines_on(shown, width) <= LINES
        assert "more rows with lower rates: venturi report --full" in shown
        assert "transfers-failed" in shown
        assert "venturi report" in shown and "--full" in shown
    console = Console(width=80, file=io.StringIO(), no_color=True, force_terminal=False)
    console.print(report.terminal(analysis, full=True), markup=False)
    full = console.file.getvalue()
    assert len(full.splitlines()) > 60
    assert "more rows" not in full


def test_the_page_starts_with_headline_figure_findings_and_next_step_and_folds_the_sections(tmp_path):
    points = product(files=[1, 2, 5], size_bytes=[10**6, 10**7])
    analysis = analyse(planted_run(tmp_path, points, repeat=1))
    page = report.html(analysis)
    positions = [
        page.index(mark) for mark in ("<h1>", "<svg", 'class="findings"', 'class="next"', '<details class="folded"')
    ]
    assert positions == sorted(positions)
    main = page.partition("<main>")[2]
    assert main.count('<details class="folded"') == main.count('<section id="') > 4
    assert all("open" not in tag for tag in re.findall(r"<details[^>]*>", main))


def test_the_verdict_replaces_the_bottlenecks_of_a_simulation_whose_table_stays_in_csv_and_json(
    analysis_of, tmp_path
):
    analysis = analysis_of("sweep")
    assert analysis.verdict is not None
    for text in (screen(analysis, 80), report.html(analysis)):
        assert "Bottlenecks of the transfers" not in text
    assert "bottlenecks" in {section["name"] for section in json.loads(report.json(analysis))["sections"]}
    assert "bottlenecks.csv" in {path.name for path in report.csv(analysis, tmp_path)}


def test_bars_are_blocks_or_ascii_in_proportion_to_the_rate(analysis_of):
    analysis = analysis_of("sweep")
    bars = [line.count("█") for line in screen(analysis, 80).splitlines() if "█" in line]
    assert max(bars) == 10 and min(bars) >= 0
    console = Console(width=80, file=io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace"), no_color=True, force_terminal=False)  # fmt: skip
    console.print(report.terminal(analysis), markup=False)
    console.file.seek(0)
    assert "##########" in console.file.read()


@needs_programs("chromium")
def test_tables_of_the_page_are_sorted_with_keys_and_filtered_and_points_show_their_values(tmp_path):
    sync_api = pytest.importorskip("playwright.sync_api", reason="not installed: playwright")
    points = product(files=[1, 2, 5, 10, 20, 50], size_bytes=[10**5, 10**6, 10**7])
    page = tmp_path / "report.html"
    page.write_text(report.html(analyse(planted_run(tmp_path, points, scattered(0.02)))), encoding="utf-8")
    with sync_api.sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        tab = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments).new_page()
        tab.goto(page.as_uri())
        tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        size = tab.locator("#points th", has_text="size")
        sizes = tab.locator("#points tbody tr:visible td:nth-child(3)")
        size.locator("button").focus()
        for direction, expected in (
            ("ascending", ["100 kB", "1 MB", "10 MB"]),
            ("descending", ["10 MB", "1 MB", "100 kB"]),
        ):
            tab.keyboard.press("Enter")
            assert size.get_attribute("aria-sort") == direction
            assert list(dict.fromkeys(sizes.all_inner_texts())) == expected
        tab.get_by_label("Filter rows: Points").fill("100 kb")
        assert set(sizes.all_inner_texts()) == {"100 kB"}
        assert "6 of 18 rows" in tab.get_by_role("status").all_inner_texts()
        tab.evaluate("scrollTo(0, 0)")
        box = tab.locator(".main-figure svg use").last.bounding_box()
        tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        assert re.search(r"B/s.*: [\d.,]+\n.+: \d+", tab.locator(".main-figure .tip").inner_text())
