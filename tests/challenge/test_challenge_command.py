"""`venturi challenge` as a user runs it: result, files, scenario for the simulator, plan for Rucio, and errors."""

import csv
import json
import subprocess
import sys
from collections import Counter
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from challengekit import PAYLOAD, star
from typer.testing import CliRunner

from venturi import simulate
from venturi.challenge import ChallengeRow, ChallengeTable, build_testbed, check_feasibility
from venturi.challenge.scenario import challenge_scenario
from venturi.cli.root import app
from venturi.report.toml import as_toml
from venturi.scenario import load_scenario
from venturi.units import parse_duration
from venturi.workload import expand

BED = {"Alpha": "200 Mb/s", "Beta": "100 Mb/s", "Gamma": "100 Mb/s"}
SERVERS = ("alpha", "beta", "gamma")
HEAD = "from,to,rate,start,end,sizes\n"
FEASIBLE = (
    HEAD + "Alpha,Beta,40 Mb/s,0,60 s,2 MB\nAlpha,Gamma,30 Mb/s,0,60 s,2 MB\nBeta,Gamma,50 Mb/s,20 s,60 s,1 MB;2 MB\n"
)
TOO_MUCH = HEAD + "Alpha,Gamma,90 Mb/s,0,120 s,2 MB\nBeta,Gamma,40 Mb/s,0,120 s,2 MB\n"


@pytest.fixture
def challenge(tmp_path, monkeypatch):
    """Return a function that runs the command in a directory with a testbed and a table."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "testbed.toml").write_text(as_toml(star(BED, services=SERVERS)))

    def run(text, *words, name="rates.csv"):
        (tmp_path / name).write_text(text)
        return CliRunner().invoke(app, ["challenge", name, "--testbed", "testbed.toml", *map(str, words)])

    return run


def terminal(directory, *words):
    """Run the command in its own process, as a user does."""
    venturi = Path(sys.executable).parent / "venturi"
    return subprocess.run(
        [venturi, "challenge", *words], cwd=directory, capture_output=True, text=True, check=False, timeout=120
    )


def test_the_first_line_is_the_result_and_limits_follow(tmp_path):
    (tmp_path / "testbed.toml").write_text(as_toml(star(BED)))
    (tmp_path / "rates.csv").write_text(TOO_MUCH)
    done = terminal(tmp_path, "rates.csv", "--testbed", "testbed.toml")
    assert (done.returncode, done.stderr) == (0, "")
    first, *rest = done.stdout.splitlines()
    assert first == "Not feasible: 2 of 2 rows miss their rate; link core>gamma needs 135 % of its capacity."
    assert any("link core>gamma" in line and "142 Mb/s" in line for line in rest)


def test_json_has_every_row_resource_and_site(challenge):
    feasible = json.loads(challenge(FEASIBLE, "--json").stdout)
    assert (
        feasible["sentence"] == "Feasible: all 3 rows reach their rate; link core>gamma needs 82.9 % of its capacity."
    )
    found = json.loads(challenge(TOO_MUCH, "--json", "--uncertainty", 0.05).stdout)
    assert (found["feasible"], found["verdict"], found["missing_rows"]) == (False, "not feasible", 2)
    assert [row["from"] for row in found["rows"]] == ["Alpha", "Beta"]
    row = found["rows"][0]
    assert row["expected_bit_per_s"] == pytest.approx(1e8 * PAYLOAD * 90 / 130)
    assert row["low_bit_per_s"] < row["expected_bit_per_s"] <= row["high_bit_per_s"]
    assert found["capacity_range"]["uncertainty"] == 0.05
    assert found["limiting"] == ["link core>gamma"]
    assert {site["site"] for site in found["sites"]} == {"Alpha", "Beta", "Gamma"}


def test_the_directory_has_a_page_tables_and_a_heat_map(challenge, tmp_path):
    assert challenge(TOO_MUCH, "-o", "out").exit_code == 0
    page = (tmp_path / "out" / "challenge.html").read_text()
    assert "Not feasible: 2 of 2 rows" in page
    assert "<svg" in page
    assert (tmp_path / "out" / "challenge-reached.png").read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader(StringIO((tmp_path / "out" / "challenge-rows.csv").read_text())))
    assert [(row["from"], row["to"], row["limit"]) for row in rows] == [
        ("Alpha", "Gamma", "link core>gamma"),
        ("Beta", "Gamma", "link core>gamma"),
    ]
    resources = list(csv.DictReader(StringIO((tmp_path / "out" / "challenge-resources.csv").read_text())))
    assert float(resources[0]["use_ratio"]) == pytest.approx(1.3 / PAYLOAD)


def simulated(path):
    """Run a scenario in the simulator and return its run."""
    return simulate(path, overrides=['measure.interval="1 s"', "measure.counters=[]"])


def carried_mbps(run, link, start_s, end_s):
    """Return the mean rate of file data over a link, from the counter of the simulated link."""
    series = run.query(f"SELECT time_s, value FROM samples WHERE counter = 'link.{link}.bytes' ORDER BY time_s")
    sent = np.interp([start_s, end_s], series["time_s"], series["value"])
    return (sent[1] - sent[0]) * 8 / (end_s - start_s) * PAYLOAD / 1e6


def test_the_simulator_reaches_the_rates_of_a_feasible_scenario(challenge, tmp_path, engine):
    assert challenge(FEASIBLE, "--scenario", "inject.toml").exit_code == 0
    scenario = load_scenario(tmp_path / "inject.toml")
    lead_s = scenario.workload.lead
    assert expand(scenario).header.totals.bytes == pytest.approx((40e6 * 60 + 30e6 * 60 + 50e6 * 40) / 8, rel=0.01)
    run = simulated(tmp_path / "inject.toml")
    found = run.query(
        "SELECT factor_source AS source, factor_destination AS destination, sum(received_bytes) * 8 AS bits, "
        "max(start_s - intended_s) AS late_s, max(duration_s) AS duration_s FROM transfers GROUP BY ALL ORDER BY ALL"
    )
    assert list(zip(found["source"], found["destination"], strict=True)) == [
        ("Alpha", "Beta"),
        ("Alpha", "Gamma"),
        ("Beta", "Gamma"),
    ]
    # The rates of whole files: within one file of 1 % of the row.
    assert found["bits"] / np.array([60, 60, 40]) / 1e6 == pytest.approx([40, 30, 50], rel=0.02)
    assert max(found["late_s"]) == 0
    assert max(found["duration_s"]) < 2
    for link, start_s, end_s, rate in (
        ("alpha>core", 5, 60, 70), ("core>beta", 5, 60, 40), ("core>gamma", 5, 20, 30), ("core>gamma", 25, 60, 80),
    ):  # fmt: skip
        assert carried_mbps(run, link, lead_s + start_s, lead_s + end_s) == pytest.approx(rate, rel=0.04)


def test_the_simulator_shares_a_full_link_as_expected(challenge, tmp_path, engine):
    done = challenge(TOO_MUCH, "--scenario", "inject.toml", "--json")
    expected = [row["expected_bit_per_s"] / 1e6 for row in json.loads(done.stdout)["rows"]]
    run = simulated(tmp_path / "inject.toml")
    lead_s = load_scenario(tmp_path / "inject.toml").workload.lead
    # Each source sends one row, so its access link shows the rate of the row. After 20 s, the backlog is large.
    reached = [carried_mbps(run, link, lead_s + 20, lead_s + 120) for link in ("alpha>core", "beta>core")]
    assert reached == pytest.approx(expected, rel=0.02)


def test_changes_of_links_move_with_the_lead_time_of_the_scenario(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    change = [{"at": "10 s", "link": "beta", "rate": "50 Mb/s"}]
    (tmp_path / "testbed.toml").write_text(as_toml(star(BED, services=SERVERS, change=change)))
    (tmp_path / "rates.csv").write_text(HEAD + "Alpha,Beta,80 Mb/s,0,500 s,2 GB\n")
    done = CliRunner().invoke(
        app, ["challenge", "rates.csv", "--testbed", "testbed.toml", "--scenario", "inject.toml"]
    )
    assert done.exit_code == 0, done.exception
    scenario = load_scenario(tmp_path / "inject.toml")
    # One file of 2 GB at the assumed 200 MB/s.
    assert (scenario.workload.lead, scenario.testbed.change[0].at) == (10, 20)


def test_the_plan_for_rucio_has_every_pair_of_storages(challenge, tmp_path):
    assert challenge(FEASIBLE, "--rucio", "plan.json", "--starts-at", "2027-02-01T08:00:00+01:00").exit_code == 0
    entries = json.loads((tmp_path / "plan.json").read_text())
    assert entries[2] == {
        "src_rse": "beta", "dst_rse": "gamma", "rate_mbps": 50.0, "start": "2027-02-01 07:00:20", "end": "2027-02-01 07:01:00",
    }  # fmt: skip
    assert challenge(FEASIBLE, "--rucio", "plan.json").exit_code == 0
    assert [(entry["start"], entry["end"]) for entry in json.loads((tmp_path / "plan.json").read_text())][2] == (
        20.0,
        60.0,
    )
    assert challenge(FEASIBLE, "--rucio", "plan.csv", "--starts-at", "2027-02-01 08:00:00").exit_code == 0
    rows = list(csv.DictReader(StringIO((tmp_path / "plan.csv").read_text())))
    assert [(row["src_rse"], row["dest_rse"], row["inject_rate"]) for row in rows] == [
        ("alpha", "beta", "40"),
        ("alpha", "gamma", "30"),
        ("beta", "gamma", "50"),
    ]


def test_a_generated_grid_has_the_requested_total(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(
        app, ["challenge", "--wlcg", "10", "--total", "100 Gb/s", "--json", "--scenario", "inject.toml"]
    )
    assert done.exit_code == 0, done.exception
    found = json.loads(done.stdout)
    assert len(found["rows"]) == 90
    assert sum(row["required_bit_per_s"] for row in found["rows"]) == pytest.approx(1e11)
    assert len(load_scenario(tmp_path / "inject.toml").workload.flow) == 90


STEADY = "from,to,rate\nAlpha,Beta,1 Gb/s\n"


@pytest.mark.parametrize(
    ("text", "words", "part"),
    [
        (HEAD + "Alpha,Beta,10,0,1 h,1 GB\n", (), 'rates.csv: line 2: rate: expected a rate such as "10 Gb/s", found "10" without a unit'),
        (HEAD + "Alpha,Nowhere,1 Gb/s,0,1 h,1 GB\n", (), 'rates.csv: line 2: to: expected one of the sites, hosts and storages: Alpha'),
        (STEADY, ("--scenario", "inject.toml"), "rates.csv: line 2: end: expected a time"),
        (STEADY, ("--rucio", "plan.json"), "rates.csv: line 2: end: expected a time"),
        (FEASIBLE, ("--rucio", "plan.csv"), "--starts-at"),
        (FEASIBLE, ("--rucio", "plan.json", "--starts-at", "soon"), 'found "soon"'),
        (FEASIBLE, ("--scenario", "inject.toml", "--mover", "xrdcopy"), 'found "xrdcopy"'),
        (FEASIBLE, ("--scenario", "missing/inject.toml"), "directory missing does not exist"),
    ],
)  # fmt: skip
def test_mistakes_have_a_location_and_a_next_step(challenge, text, words, part):
    done = challenge(text, *words)
    assert done.exit_code == 1
    assert part in str(done.exception)


def test_mistakes_on_the_command_line_have_exit_code_2(challenge, tmp_path):
    for words in (["--wlcg", "10"], ["rates.csv"], ["rates.csv", "--testbed", "testbed.toml", "--wlcg", "10"], ["--testbed", "testbed.toml"]):  # fmt: skip
        (tmp_path / "rates.csv").write_text(FEASIBLE)
        done = CliRunner().invoke(app, ["challenge", *words])
        assert done.exit_code == 2, words
        assert "expected" in done.output


def test_a_total_without_a_rate_names_its_option():
    done = CliRunner().invoke(app, ["challenge", "--wlcg", "10", "--total", "1 Tb"])
    assert done.exit_code == 1
    assert str(done.exception).startswith("--total: expected a rate such as")


def test_a_link_without_rate_is_an_error_without_a_traceback(tmp_path):
    document = star(BED)
    del document["testbed"]["link"]["beta"]["rate"]
    (tmp_path / "testbed.toml").write_text(as_toml(document))
    (tmp_path / "rates.csv").write_text(FEASIBLE)
    done = terminal(tmp_path, "rates.csv", "--testbed", "testbed.toml")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("venturi: testbed.toml: testbed.link.beta.rate: expected")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("seed", [0, 3])
def test_the_simulator_agrees_for_random_tables_with_several_full_links(seed, engine):
    draw = np.random.default_rng(seed)
    names = [f"S{number}" for number in range(5)]
    rates = {name: f"{draw.choice([60, 100, 150])} Mb/s" for name in names}
    bed = build_testbed(star(rates, services=[name.lower() for name in names]), "testbed")
    pairs = [(one, other) for one in names for other in names if one != other and draw.random() < 0.7]
    rows = tuple(
        ChallengeRow(f"line {number}", *pair, draw.uniform(8e6, 55e6), 0.0, 120.0, (2_000_000,))
        for number, pair in enumerate(pairs, 2)
    )
    table = ChallengeTable(rows, "rates.csv")
    result = check_feasibility(table, bed)
    assert len(result.limiting) >= 3
    document = challenge_scenario(table, bed, "random") | {"measure": {"interval": "1 s", "counters": []}}
    run = simulate(document)
    lead_s = parse_duration(document["workload"]["lead"])
    expected = Counter()
    for row in result.rows:
        expected[f"{row.row.source.lower()}>core"] += row.expected_bit_per_s / 1e6
        expected[f"core>{row.row.destination.lower()}"] += row.expected_bit_per_s / 1e6
    reached = {link: carried_mbps(run, link, lead_s + 40, lead_s + 120) for link in expected}
    # Equal round trips and file sizes: both are processor sharing, and the rest is the granularity of files.
    assert reached == pytest.approx(dict(expected), rel=0.02)
