"""Studies of document 004 on single routes and machines have the published grids, routes and limits."""

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


PUBLISHED = {
    *(("at-catania", n, 256 << 10) for n in (1, 2, 4)),
    *((to, n, 256 << 10) for to in ("at-houston", "at-prague") for n in (1, 2, 4, 6)),
    *(("at-prague-tuned", n, 1 << 20) for n in (1, 4)),
}
"""Figures 8 to 20: destination, streams, I/O block."""


@pytest.mark.parametrize(("name", "mover"), [("alice/matrix", "globus-url-copy"), ("alice/matrix-bbftp", "bbftp")])
def test_the_matrix_has_the_points_of_figures_8_to_20(name, mover):
    found = [row for row in factors_of(name) if row["mover"] == mover]
    more = {("at-prague", n, 1 << 20) for n in (1, 4)} | {("at-prague-tuned", n, 256 << 10) for n in (1, 4)}
    expected = PUBLISHED | (more if name == "alice/matrix" else set())
    assert {(row["destination"], row["streams"], row["block_bytes"]) for row in found} == expected
    sizes = {row["size_bytes"] for row in found}
    assert (min(sizes), max(sizes)) == (10_000_000, 800_000_000)
    assert load_scenario(study(name).scenario_path).workload.repeat == 5


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", MATRIX)
def test_every_variant_has_all_routes_and_tuned_and_default_settings(name, variant):
    header = plan_of(name, variant).header
    found = factors_of(name, variant)
    for mover in {
        "alice/matrix": ("globus-url-copy", "xrdcp"),
        "alice/matrix-bbftp": ("bbftp", "globus-url-copy", "xrdcp"),
    }[name]:
        own = {row["destination"] for row in found if row["mover"] == mover}
        assert {"at-prague", "at-prague-tuned"} <= own
        assert mover == "xrdcp" or {"at-catania", "at-houston"} <= own
    for row in found:
        receiver = header.storages[row["destination"]].host
        sender = header.storages[row["source"]].host
        assert header.hosts[sender].lab.sysctls == header.hosts[receiver].lab.sysctls
    requested = {
        row["window_bytes"] for row in found if row["destination"] == "at-prague" and row["mover"] != "xrdcp"
    }
    assert len(requested) >= 3  # a threshold needs at least three values


def test_default_settings_match_linux_2_4():
    """Linux 2.4, net/ipv4/tcp.c: sysctl_tcp_rmem and sysctl_tcp_wmem."""
    header = plan_of("alice/matrix", "quick").header
    for host in ("cnaf", "catania", "houston", "prague"):
        settings = header.hosts[host].lab.sysctls
        assert settings["net.ipv4.tcp_rmem"] == f"4096 87380 {2 * 87380}"
        assert settings["net.ipv4.tcp_wmem"] == f"4096 {16 << 10} {128 << 10}"


@pytest.mark.parametrize("name", MATRIX)
def test_the_routes_match_table_5_with_the_preferred_bandwidths(name):
    header = plan_of(name).header
    for row in library().tables["004-routes"].rows:
        host = str(row["site"]).lower()
        assert path_rtt_s(header, "cnaf", host) == pytest.approx(row["rtt_s"])
        assert bottleneck_bit_per_s(header, "cnaf", host) == row["bandwidth_preferred_bit_per_s"]
    assert path_rtt_s(header, "cnaf-tuned", "prague-tuned") == path_rtt_s(header, "cnaf", "prague")
    tuned, plain = header.hosts["prague-tuned"].lab.sysctls, header.hosts["prague"].lab.sysctls
    assert int(tuned["net.ipv4.tcp_rmem"].split()[2]) > int(plain["net.ipv4.tcp_rmem"].split()[2])


def test_xrdcp_gets_no_window_option():
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
def test_every_disk_file_is_at_least_twice_the_memory_limit_of_its_host(variant):
    """bonnie++ gets the memory limit of the processes on its host, and files are twice that in every variant (004, L133)."""
    header = plan_of("alice/characterise", variant).header
    for row in factors_of("alice/characterise", variant):
        if row["mover"] in ("iperf3", "nuttcp"):
            continue
        limit = header.hosts[row["client"]].lab.memory_limit_bytes
        assert row["size_bytes"] >= 2 * limit
        assert {call.options["memory_bytes"] for call in header.calls.values() if call.mover == "bonnie"} == {limit}


def test_disks_have_the_published_bonnie_rates_and_links_fit_the_upgraded_access_rates():
    header = plan_of("alice/characterise").header
    for row in library().tables["004-disk"].rows:
        storage = header.storages[f"disk-{row['machine']}"].spec
        assert (storage.write_bytes_per_s, storage.read_bytes_per_s) == (
            row["bonnie_write_bytes_per_s"],
            row["bonnie_read_bytes_per_s"],
        )
    for row in library().tables["004-limits"].rows:
        rate = bottleneck_bit_per_s(header, row["machine"], "cnaf")
        assert row["network_bit_per_s"] < rate <= row["access_upgraded_bit_per_s"]


def test_thresholds_in_the_library_match_the_text_of_the_report():
    rows = library().tables["004-windows"].rows
    assert [(row["site"], row["streams"], row["threshold_bytes"]) for row in rows] == [
        ("Catania", 1, 128_000),
        ("Houston", 6, 128_000),
    ]


def test_the_alice_studies_are_listed_with_their_experiments():
    assert {"alice/characterise", *MATRIX} <= set(studies())
    assert study("alice/characterise").experiments == ("004-DISK", "004-NET")


def test_only_bbftp_calls_of_the_bbftp_study_require_bbftp():
    calls = plan_of("alice/matrix-bbftp", "quick").header.calls.values()
    assert {call.mover for call in calls} == {"bbftp", "globus-url-copy", "xrdcp"}
    for call in calls:
        assert ("bbftp" in call.requires) == (call.mover == "bbftp")
