"""Runs of an emulated testbed compared with planted values: storages, empty files, byte counts, connections and links."""

import json

import numpy as np
import pytest
from planted import product
from planted_lab import HOST_COUNTERS, RATE_BIT_PER_S, World, lab_run

from venturi.analysis import AnalyseOptions, analyse, as_plain
from venturi.run import Finding, Run, RunWriter

SIZES = product(files=[1, 2], size_bytes=[10**6, 10**7])
NO_FITS = AnalyseOptions(fits=False)


def codes(analysis):
    return {finding.code: finding for finding in analysis.findings}


def at(rates, point, storage, direction="all"):
    (found,) = [r for r in rates if (r.point, r.storage, r.direction) == (point, storage, direction)]
    return found


def by_party(analysis):
    return {account.party.partition(":")[0]: account for account in analysis.accounts}


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    return analyse(lab_run(tmp_path_factory.mktemp("clean"), SIZES))


# --- storages


def test_a_storage_that_is_only_read_has_no_write_rate_instead_of_zero(clean):
    source, sink = at(clean.storage_rates, 3, "src"), at(clean.storage_rates, 3, "dst")
    assert (source.read_requested, source.write_requested, source.write_bytes_per_s) == (True, False, None)
    assert (sink.read_requested, sink.write_requested, sink.read_bytes_per_s) == (False, True, None)
    # A trial moves two files of 10 MB in one second.
    assert source.read_bytes_per_s == sink.write_bytes_per_s == pytest.approx(2e7)
    assert source.trials == 4


def test_rates_of_both_directions_are_over_the_whole_trial_and_add_up(tmp_path):
    world = World(bidirectional=True, seconds=lambda factors, direction: 1.0 if direction == "forward" else 2.0)
    rates = analyse(lab_run(tmp_path, SIZES, world), NO_FITS).storage_rates
    there, back, both = (at(rates, 3, "src", direction) for direction in ("forward", "reverse", "all"))
    assert there.read_bytes_per_s == pytest.approx(2e7 / 2)  # the trial lasts as long as its slower direction
    assert there.write_bytes_per_s is None
    assert back.write_bytes_per_s == pytest.approx(2e7 / 2)
    assert (both.read_bytes_per_s, both.write_bytes_per_s) == (there.read_bytes_per_s, back.write_bytes_per_s)


def test_a_storage_with_all_bytes_has_the_interval_of_the_whole_trial(tmp_path):
    scatter = iter(np.random.default_rng(1).normal(1.0, 0.05, 10**5))
    analysis = analyse(lab_run(tmp_path, SIZES, World(seconds=lambda f, w: float(next(scatter))), repeat=6), NO_FITS)
    for rate in analysis.storage_rates:
        if rate.read_requested:
            assert rate.read_interval == analysis.points[rate.point].together_interval


# --- published tables


def test_a_published_table_has_every_row_and_ratios_only_for_requested_rates(tmp_path):
    ends = {"source": ["gpfs", "tmp"], "destination": ["gpfs", "tmp"], "streams": [1, 10, 20], "files": [1, 5, 10]}
    points = [p for p in product(**ends, size_bytes=[10**7]) if "gpfs" in (p["source"], p["destination"])]
    points = [p for p in points if p["streams"] != 20]
    world = World(
        source=lambda f: f["source"], destination=lambda f: f["destination"], destination_service="ga",
        scenario={"study": "infn-gpfs/group2"}, scale=0.1,
    )  # fmt: skip
    (table,) = analyse(lab_run(tmp_path, points, world, repeat=2), NO_FITS).published_tables
    rows = {tuple(row.factors.values()): row for row in table.rows}
    assert len(table.rows) == 27
    assert table.scale == 1.0  # no link is on the route, so rates are not scaled
    both = rows["gpfs", "gpfs", 1, 5]
    assert both.published == {"write_bytes_per_s": 136e6, "read_bytes_per_s": 136e6}
    assert both.ours["read_bytes_per_s"] == pytest.approx(5e7)
    assert both.ratio["write_bytes_per_s"] == pytest.approx(5e7 / 136e6)
    reading = rows["gpfs", "tmp", 10, 10]
    assert (reading.published["write_bytes_per_s"], reading.ours["write_bytes_per_s"]) == (0.0, None)
    assert reading.ratio["write_bytes_per_s"] is None
    assert reading.ratio["read_bytes_per_s"] == pytest.approx(1e8 / 72e6)
    missing = rows["gpfs", "gpfs", 20, 1]
    assert (missing.point, set(missing.ours.values())) == (None, {None})
    assert rows["gpfs", "gpfs", 1, 1].errata == ("001-E07",)


# --- empty files


def test_the_cost_of_authentication_is_found_as_a_distribution_and_as_a_ratio(tmp_path):
    rng = np.random.default_rng(2)

    def seconds(factors, direction):
        if factors["size_bytes"]:
            return 1.0
        return (0.3 if factors["source_service"] == "ga" else 0.1) * float(np.exp(0.05 * rng.standard_normal()))

    points = product(source_service=["plain", "ga"], files=[1, 3], size_bytes=[0, 10**6])
    world = World(seconds=seconds, source_service=lambda f: f["source_service"])
    analysis = analyse(lab_run(tmp_path, points, world, repeat=12), NO_FITS)
    assert len(analysis.fixed_costs) == 4
    for cost in analysis.fixed_costs:
        expected = 0.3 if cost.factors["source_service"] == "ga" else 0.1
        assert cost.median_s == pytest.approx(expected, rel=0.06)
        ordered = (cost.least_s, cost.lower_quartile_s, cost.median_s, cost.upper_quartile_s, cost.greatest_s)
        assert list(ordered) == sorted(ordered)
        assert cost.transfers == 12 * cost.factors["files"]
        # Quartiles of a normal distribution lie at ±0.674 deviations.
        assert cost.upper_quartile_s / cost.lower_quartile_s == pytest.approx(np.exp(2 * 0.674 * 0.05), rel=0.06)
    assert len(analysis.fixed_cost_ratios) == 2
    for ratio in analysis.fixed_cost_ratios:
        assert (ratio.value_text, ratio.reference_text) == ("ga (gsi)", "plain (anonymous)")
        assert ratio.ratio.low < 3.0 < ratio.ratio.high
        assert ratio.ratio.high / ratio.ratio.low < 1.2


# --- the same bytes as counted by each party


def test_all_parties_agree_on_the_bytes_of_a_clean_run(clean):
    accounts = by_party(clean)
    assert set(accounts) == {
        "the receivers' files",
        "the senders' kernels",
        "the receivers' kernels",
        "the network emulator",
    }
    assert all(account.agrees for account in accounts.values())
    assert accounts["the network emulator"].ratio == pytest.approx(1.0, abs=5e-3)
    assert "bytes-disagree" not in codes(clean)


@pytest.mark.parametrize(
    ("world", "party"),
    [
        (World(kernel_misses=0.02), "the senders' kernels"),
        (World(wire_extra=0.05), "the network emulator"),
        (World(wire_extra=-0.01), "the network emulator"),
    ],
    ids=["connections missing", "traffic of something else", "packets not counted"],
)
def test_an_unexplained_byte_count_is_a_finding(tmp_path, world, party):
    analysis = analyse(lab_run(tmp_path, SIZES, world), NO_FITS)
    assert by_party(analysis)[party].agrees is False
    assert party in codes(analysis)["bytes-disagree"].evidence
    assert "byte counts" in analysis.caveat


def test_retransmissions_explain_extra_bytes_in_the_emulator(tmp_path):
    analysis = analyse(lab_run(tmp_path, SIZES, World(wire_extra=0.05, sent_again=0.06)), NO_FITS)
    assert by_party(analysis)["the network emulator"].agrees is True


def test_failed_transfers_prevent_the_check_of_kernel_and_emulator_counts(tmp_path):
    world = World(kernel_misses=0.02, fails=lambda factors, slot: factors["files"] == 2 and slot == 1)
    accounts = by_party(analyse(lab_run(tmp_path, SIZES, world), NO_FITS))
    assert accounts["the senders' kernels"].agrees is None
    assert "not checked" in accounts["the network emulator"].note
    assert accounts["the receivers' files"].agrees is True


def test_failed_transfers_that_were_retried_prevent_the_check_of_kernel_counts(tmp_path):
    world = World(fails=lambda factors, slot: factors["files"] == 2 and slot == 1)
    run = lab_run(tmp_path, SIZES, world)
    run.close()
    lines = [json.loads(line) for line in (run.path / "journal.jsonl").read_text().splitlines()]
    with RunWriter.resume(run.path, retry_failed=True) as again:
        again.start_session({})
        for record in (line["trial"] for line in lines if line.get("trial", {}).get("outcome") == "failed"):
            repaired = [
                {**transfer, "outcome": "ok", "received_bytes": transfer["requested_bytes"]}
                for transfer in record["transfers"]
            ]
            assert again.trial({**record, "outcome": "ok", "transfers": repaired}, record["host"]) == "ok"
    analysis = analyse(Run.open(run.path), NO_FITS)
    assert analysis.counts.transfers_failed == 0
    assert by_party(analysis)["the senders' kernels"].agrees is None
    assert by_party(analysis)["the receivers' files"].agrees is True


def test_a_host_not_monitored_to_the_end_is_excluded_and_named(tmp_path):
    accounts = by_party(analyse(lab_run(tmp_path, SIZES, World(unwatched=("b",))), NO_FITS))
    assert "the receivers' kernels" not in accounts
    assert accounts["the senders' kernels"].agrees is True
    bidirectional = by_party(
        analyse(lab_run(tmp_path / "2", SIZES, World(unwatched=("b",), bidirectional=True)), NO_FITS)
    )
    assert bidirectional["the senders' kernels"].note.startswith(
        "hosts: a; excluded, because their sockets were not recorded to the end: b"
    )
    assert (
        bidirectional["the senders' kernels"].requested_bytes
        == bidirectional["the receivers' kernels"].requested_bytes
    )
    assert bidirectional["the senders' kernels"].agrees is True


def test_transfers_within_one_host_have_no_network_byte_counts(tmp_path):
    analysis = analyse(lab_run(tmp_path, SIZES, World(destination_service="ga")), NO_FITS)
    assert analysis.accounts == ()
    assert analysis.testbed.local_transfers == 4 * 6
    assert analysis.setting.startswith("All bytes stayed on a")
    assert "no link" in analysis.setting


# --- connections and links


def test_connections_are_summarized_by_point_with_effective_and_requested_windows(tmp_path):
    world = World(window_bytes=200_000, sent_again=0.02)
    summaries = analyse(lab_run(tmp_path, SIZES, world), NO_FITS).sockets
    assert [summary.connections for summary in summaries] == [4, 4, 8, 8]  # control connections are not included
    for summary in summaries:
        assert (summary.requested_window_bytes, summary.window_bytes) == (200_000, 70_000)
        assert (summary.rtt_s, summary.least_rtt_s) == (
            0.012,
            0.010,
        )  # not the value of the last record, which has no traffic
        assert summary.retransmitted_ratio == pytest.approx(0.02 / 1.02, rel=1e-3)
        assert summary.receive_window_limited_ratio == pytest.approx(0.25)
        assert summary.congestion_control == "cubic"


def test_a_connection_that_closes_in_the_next_trial_counts_in_its_own_trial(tmp_path):
    points = [{"files": 1, "size_bytes": 0}, {"files": 1, "size_bytes": 10**7}]
    summaries = analyse(lab_run(tmp_path, points, World(closed_late_s=0.3)), NO_FITS).sockets
    assert [(s.point, s.connections) for s in summaries] == [(1, 4)]


def test_link_use_is_measured_only_while_bytes_flow(tmp_path):
    wire_bytes = RATE_BIT_PER_S / 8
    size = int(wire_bytes * 1448 / 1500)  # one second at the rate of the link
    uses = {use.link: use for use in analyse(lab_run(tmp_path, [{"files": 1, "size_bytes": size}]), NO_FITS).link_use}
    assert set(uses) == {"a>r", "r>b"}  # links that carry only acknowledgements have no row
    assert uses["a>r"].full_bit_per_s == pytest.approx(RATE_BIT_PER_S, rel=0.02)
    assert uses["a>r"].rate_bit_per_s == RATE_BIT_PER_S
    assert uses["r>b"].rate_bit_per_s == 2 * RATE_BIT_PER_S


def test_the_busiest_links_have_time_series_of_their_traffic(clean):
    by_link = {series.link: series for series in clean.links}
    assert set(by_link) == {"a>r", "r>b"}
    series = by_link["a>r"]
    width = 0.1  # fewer samples than bins, so each has its own bin
    (link,) = [link for link in clean.testbed.links if link.name == "a>r"]
    assert float(series.mean_bytes_per_s.sum() * width) == pytest.approx(link.bytes, rel=0.02)
    assert np.nanmax(series.queue_high_bytes) == link.queue_high_bytes == 40_000


# --- setting and machine load


def test_the_summary_names_the_hosts_the_network_and_the_scale(clean, tmp_path):
    assert clean.setting == "The bytes went from a to b over an emulated network (100 Mb/s, RTT 20 ms)."
    assert clean.setting in clean.sentence
    (path,) = clean.testbed.paths
    assert path.links == ("a>r", "r>b")
    assert (path.rate_bit_per_s, path.rtt_s) == (RATE_BIT_PER_S, pytest.approx(0.02))
    assert clean.testbed.packages == {"server": "1.2-3"}
    scaled = analyse(lab_run(tmp_path, SIZES, World(scale=0.1, bidirectional=True)), NO_FITS)
    assert scaled.setting == (
        "The bytes went between a and b over an emulated network (100 Mb/s, RTT 20 ms); sizes and rates are 0.1 times"
        " those in the scenario."
    )
    assert scaled.testbed.rates_scale == 0.1
    assert "sizes and link rates are 0.1" in codes(scaled)["scaled"].evidence


def test_lab_hosts_have_their_own_cpu_time_and_disks_of_the_machine_count_once(clean):
    assert [series.host for series in clean.series] == ["a", "b"]
    for series in clean.series:
        cpu = next(trace for trace in series.traces if trace.name == "processor")
        assert np.allclose(cpu.mean, 0.25)  # half a core of the two that it is pinned to
    span = clean.series[0].traces[0].time_s
    assert clean.conservation.device_written_bytes == pytest.approx(5e6 * (span[-1] + 0.1), rel=0.1)


def test_other_load_in_a_lab_is_cpu_time_not_used_by_its_hosts_or_its_network(clean, tmp_path):
    # Two of four cores are busy, one of them with the two hosts.
    assert "25 % of all" in codes(clean)["other-load"].evidence
    unknown = analyse(lab_run(tmp_path, SIZES, World(unwatched=("b",))), NO_FITS)
    assert "other-load" not in codes(unknown)


@pytest.mark.parametrize(
    ("counters", "severity"),
    [
        # The round-trip time is 20 ms, so a mean lateness of 100 µs adds 1 %.
        ({"emulator.deliveries": 1e4, "emulator.late_sum_s": 0.9}, "note"),
        ({"emulator.deliveries": 1e4, "emulator.late_sum_s": 1.1}, "warning"),
        # A delivery that is 1 s late or more is later than the retransmission timeout.
        ({"emulator.deliveries": 1e4, "emulator.late_sum_s": 0.9, "emulator.late_max_s": 0.2}, "warning"),
        ({}, "warning"),
    ],
)
def test_late_deliveries_are_a_warning_only_if_they_change_round_trips(counters, severity, tmp_path):
    late = {"emulator.late_max_s": 0.001} | counters if counters else {}
    world = World(
        counters={"a": HOST_COUNTERS, "b": HOST_COUNTERS, "network": late},
        findings=[
            Finding("emulator-late", "wire", "99 % of 1000 deliveries were at most 400 µs late", "lower the rates")
        ],
    )
    analysis = analyse(lab_run(tmp_path, SIZES, world), NO_FITS)
    (found,) = [finding for finding in analysis.findings if finding.code == "emulator-late"]
    assert found.severity == severity
    assert ("late" in analysis.caveat) == (severity == "warning")
    assert ("round trip of 20 ms" in found.evidence) == bool(counters)


def test_writes_of_the_server_are_not_attributed_to_the_client(clean):
    assert clean.conservation.write_call_ratio is None
    assert "kernel-count-differs" not in codes(clean)


def test_the_analysis_of_a_lab_run_converts_to_json(clean):
    document = json.loads(json.dumps(as_plain(clean), allow_nan=False))
    assert document["testbed"]["links"][0]["rate_bit_per_s"] == RATE_BIT_PER_S
    assert {account["agrees"] for account in document["accounts"]} == {True}
