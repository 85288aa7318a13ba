"""Reports of lab runs: storages, empty files, links, connections, byte counts, published tables."""

import csv as csv_reader
import io
import json as json_reader
import re
from html import unescape

import numpy as np
import pytest
from planted import product
from planted_lab import World, lab_run
from rich.console import Console

from venturi import report
from venturi.analysis import analyse
from venturi.report.figures import pictures


def seconds(factors, direction):
    rng = np.random.default_rng(factors["trial"] * 100 + factors["slot"])
    fixed = 0.05 if factors["source_service"] == "plain" else 0.2
    return (fixed + factors["files"] * factors["size_bytes"] / 1e7) * (1 + 0.02 * float(rng.standard_normal()))


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    points = product(source_service=["plain", "ga"], files=[1, 2], size_bytes=[0, 10**6, 2 * 10**6, 4 * 10**6])
    world = World(
        seconds=seconds, source_service=lambda f: f["source_service"], sent_again=0.01, window_bytes=100_000
    )
    return analyse(lab_run(tmp_path_factory.mktemp("lab"), points, world))


@pytest.fixture(scope="module")
def bidirectional(tmp_path_factory):
    world = World(bidirectional=True, scale=0.1, scenario={"study": "infn-gpfs/group3"}, source=lambda f: "gpfs",
                  destination=lambda f: "gpfs")  # fmt: skip
    points = product(direction=["two ways"], streams=[1, 10], files=[1, 5, 10], size_bytes=[10**6])
    return analyse(lab_run(tmp_path_factory.mktemp("two"), points, world))


def terminal_text(result, width=80, *, full=True):
    console = Console(width=width, file=io.StringIO(), no_color=True, force_terminal=False)
    console.print(report.terminal(result, full=full))
    return console.file.getvalue()


def page_text(result):
    text = re.sub(r"<style>.*?</style>", "", report.html(result), flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).replace("\u00a0", " ").split())


def test_the_page_describes_the_emulated_network_with_its_links_servers_and_versions(lab):
    text = page_text(lab)
    assert text.index(lab.conclusion[:40]) < text.index(lab.setting.replace(" (", " (")[:30])
    for words in ("over an emulated network (100 Mb/s, RTT 20 ms)", "a>r", "5 ms", "125 kB", "server 1.2-3", "round-trip times are not scaled", "gsi",
                  "the receivers' kernels: received", "Fixed cost per transfer", "ga (gsi)", "plain (anonymous)"):  # fmt: skip
        assert words in text, words
    assert "None" not in text


def test_terminal_output_has_every_section_of_a_lab_run_within_80_columns(lab, bidirectional):
    for analysis in (lab, bidirectional):
        text = terminal_text(analysis)
        assert max(map(len, text.splitlines())) <= 80
        for title in (
            "Links",
            "Byte counts along the route",
            "TCP data connections",
        ):
            assert title in text
    assert "Fixed cost: times of empty files" in terminal_text(lab)
    assert "Storage throughput" in terminal_text(bidirectional)


def test_a_scaled_run_reports_the_factor_of_published_rates(bidirectional):
    for text in (page_text(bidirectional), " ".join(terminal_text(bidirectional).split())):
        assert "× 0.1" in text
        assert "scale 0.1" in text.lower()


def test_the_table_of_storages_has_both_directions(bidirectional):
    text = page_text(bidirectional)
    table = text.partition("Bytes read from and written to each storage")[2].partition("Mean totals")[0]
    assert table.count(" forward ") >= 6
    assert table.count(" reverse ") >= 6


def test_figures_of_empty_files_and_links_have_descriptions(lab):
    drawn = pictures(lab)
    assert [picture.name for picture in drawn["fixed"]] == ["fixed-cost", "corrected"]
    (links,) = drawn["links"]
    assert "a>r up to" in links.alt
    assert re.search(r"medians from \d", drawn["fixed"][0].alt)


def test_csv_and_json_have_the_data_of_the_page(lab, tmp_path):
    paths = {path.stem: path for path in report.csv(lab, tmp_path)}
    assert {"storages", "fixed_costs", "fixed_cost_ratios", "links", "link_use", "sockets", "byte_accounts"} <= set(
        paths
    )
    rows = list(csv_reader.DictReader(paths["storages"].read_text().splitlines()))
    assert {(row["storage"], row["write_requested"], row["write_bytes_per_s"] == "") for row in rows} == {
        ("src", "False", True),
        ("dst", "True", False),
    }
    document = json_reader.loads(report.json(lab))
    assert len(document["fixed_costs"]) == 4
    assert document["testbed"]["packages"] == {"server": "1.2-3"}


def test_a_published_table_has_every_published_row_and_marks_rates_without_requests(tmp_path):
    points = product(source=["gpfs", "tmp"], destination=["gpfs"], streams=[1], files=[1, 5], size_bytes=[10**6])
    world = World(source=lambda f: f["source"], destination=lambda f: "gpfs", destination_service="ga",
                  scenario={"study": "infn-gpfs/group2"})  # fmt: skip
    analysis = analyse(lab_run(tmp_path, points, world))
    text = page_text(analysis)
    table = text.partition("GPFS read and write rate")[2].partition("slips in print")[0]
    assert table.count("0 (no request)") == 18
    assert "275 MB/s" in table
    assert "001-E07" in table
    shown = terminal_text(analysis)
    assert max(map(len, shown.splitlines())) <= 80
    assert "0: no request to read or write" in shown
