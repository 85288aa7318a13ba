"""Studies of document 004 on single routes and machines: their grids, routes and limits are the published ones."""

from __future__ import annotations

import pytest

from venturi.plan import Trial
from venturi.scenario import load_scenario
from venturi.study import studies, study
from venturi.study.library import library
from venturi.testbed.paths import bottleneck_bit_per_s, path_rtt_s
from venturi.workload import expand

MATRIX = ("alice/matrix", "alice/matrix-bbftp")
VARIANTS = ("full", "lab", "quick")


def plan_of(name, variant="full"):
    chosen = study(name)
    overrides = chosen.overrides(quick=variant == "quick", full=variant == "full")
    return expand(load_scenario(chosen.scenario_path, overrides=[*overrides, "workload.repeat=1"]))


def factors_of(name, variant="full"):
    return [step.factors for line in plan_of(name, variant).lines for step in line.steps if isinstance(step, Trial)]


@pytest.mark.parametrize("name", MATRIX)
def test_the_matrix_has_the_points_of_figures_8_to_20(name):
    wanted = {("at-catania", n) for n in (1, 2, 4)} | {
        (to, n) for to in ("at-houston", "at-prague") for n in (1, 2, 4, 6)
    }
    wanted |= {("at-prague-tuned", 1), ("at-prague-tuned", 4)}
    found = factors_of(name)
    assert {(row["destination"], row["streams"]) for row in found} == wanted
    assert {row["block_bytes"] for row in found if row["destination"] == "at-prague-tuned"} == {1 << 20}
    assert {row["block_bytes"] for row in found if row["destination"] != "at-prague-tuned"} == {256 << 10}
    sizes = {row["size_bytes"] for row in found}
    assert (min(sizes), max(sizes)) == (10_000_000, 800_000_000)
    assert load_scenario(study(name).scenario_path).workload.repeat == 5


@pytest.mark.parametrize("name", MATRIX)
def test_the_routes_are_those_of_table_5_with_the_preferred_bandwidth_of_prague(name):
    header = plan_of(name).header
    for row in library().tables["004-routes"].rows:
        host = str(row["site"]).lower()
        assert path_rtt_s(header, "cnaf", host) == pytest.approx(row["rtt_s"])
        assert bottleneck_bit_per_s(header, "cnaf", host) == row["bandwidth_preferred_bit_per_s"]
    assert path_rtt_s(header, "cnaf-tuned", "prague-tuned") == path_rtt_s(header, "cnaf", "prague")
    tuned, plain = header.hosts["prague-tuned"].lab.sysctls, header.hosts["prague"].lab.sysctls
    assert int(tuned["net.ipv4.tcp_rmem"].split()[2]) > int(plain["net.ipv4.tcp_rmem"].split()[2])


def test_xrdcp_is_asked_for_no_window():
    calls = plan_of("alice/matrix").header.calls
    assert {"window_bytes" in call.options for call in calls.values() if call.mover == "xrdcp"} == {False}
    assert {call.mover for call in calls.values()} == {"globus-url-copy", "xrdcp", "iperf3"}


def test_the_characterisation_has_the_machines_and_streams_of_tables_2_to_4():
    found = factors_of("alice/characterise")
    machines = {row["machine"] for row in library().tables["004-network"].rows}
    network = {(row["client"], row["streams"], row["mover"]) for row in found if row["mover"] in ("iperf3", "nuttcp")}
    assert network == {(m, n, tool) for m in machines for n in (1, 2, 4, 8, 16, 32) for tool in ("iperf3", "nuttcp")}
    disk = {(row["client"], row["mover"]) for row in found if row["mover"] not in ("iperf3", "nuttcp")}
    assert disk == {
        (row["machine"], tool)
        for row in library().tables["004-disk"].rows
        for tool in ("bonnie", "fio-read", "fio-write")
    }


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_file_on_a_disk_is_twice_the_memory_that_the_test_may_use(variant):
    """What bonnie++ is told is the limit of its host's processes, and files are twice that in every variant (004, L133)."""
    header = plan_of("alice/characterise", variant).header
    for row in factors_of("alice/characterise", variant):
        if row["mover"] in ("iperf3", "nuttcp"):
            continue
        limit = header.hosts[row["client"]].lab.memory_limit_bytes
        assert row["size_bytes"] >= 2 * limit
        assert {call.options["memory_bytes"] for call in header.calls.values() if call.mover == "bonnie"} == {limit}


def test_disks_are_made_to_give_what_bonnie_found_and_links_what_is_left_after_the_upgrades():
    header = plan_of("alice/characterise").header
    for row in library().tables["004-disk"].rows:
        storage = header.places[f"disk-{row['machine']}"].storage
        assert (storage.write_bytes_per_s, storage.read_bytes_per_s) == (
            row["bonnie_write_bytes_per_s"],
            row["bonnie_read_bytes_per_s"],
        )
    for row in library().tables["004-limits"].rows:
        rate = bottleneck_bit_per_s(header, row["machine"], "cnaf")
        assert row["network_bit_per_s"] < rate <= row["access_upgraded_bit_per_s"]


def test_thresholds_in_the_library_are_those_of_the_text():
    rows = library().tables["004-windows"].rows
    assert [(row["site"], row["streams"], row["threshold_bytes"]) for row in rows] == [
        ("Catania", 1, 128_000),
        ("Houston", 6, 128_000),
    ]


def test_the_studies_are_found_and_each_names_what_it_carries_out():
    assert {"alice/characterise", *MATRIX} <= set(studies())
    assert study("alice/characterise").experiments == ("004-DISK", "004-NET")


def test_what_the_study_of_bbftp_needs_is_named_in_its_calls():
    for call in plan_of("alice/matrix-bbftp", "quick").header.calls.values():
        assert "bbftp" in call.requires
