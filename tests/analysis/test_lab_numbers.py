"""Runs of an emulated testbed: storages, empty files, byte accounts, connections and links against planted truth."""

import json

import numpy as np
import pytest
from planted import product
from planted_lab import RATE_BIT_PER_S, World, lab_run

from venturi.analysis import AnalyseOptions, analyse, as_plain
from venturi.run import Run, RunWriter

SIZES = product(files=[1, 2], size_bytes=[10**6, 10**7])
NO_FITS = AnalyseOptions(fits=False)


def codes(analysis):
    return {notice.code: notice for notice in analysis.notices}


def at(rates, point, storage, direction="all"):
    (found,) = [r for r in rates if (r.point, r.storage, r.direction) == (point, storage, direction)]
    return found


def by_party(analysis):
    return {account.party.partition(":")[0]: account for account in analysis.accounts}


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    return analyse(lab_run(tmp_path_factory.mktemp("clean"), SIZES))


# --- storages


def test_a_storage_that_is_only_read_has_no_write_rate_and_not_zero(clean):
    source, sink = at(clean.storage_rates, 3, "src"), at(clean.storage_rates, 3, "dst")
    assert (source.read_asked, source.write_asked, source.write_bytes_per_s) == (True, False, None)
    assert (sink.read_asked, sink.write_asked, sink.read_bytes_per_s) == (False, True, None)
    # Two files of 10 MB in the one second that a trial takes.
    assert source.read_bytes_per_s == sink.write_bytes_per_s == pytest.approx(2e7)
    assert source.trials == 4


def test_both_directions_add_up_and_each_is_over_the_time_of_the_whole_trial(tmp_path):
    world = World(two_ways=True, seconds=lambda factors, way: 1.0 if way == "there" else 2.0)
    rates = analyse(lab_run(tmp_path, SIZES, world), NO_FITS).storage_rates
    there, back, both = (at(rates, 3, "src", way) for way in ("there", "back", "all"))
    assert there.read_bytes_per_s == pytest.approx(2e7 / 2)  # the trial lasts as long as its slower direction
    assert there.write_bytes_per_s is None
    assert back.write_bytes_per_s == pytest.approx(2e7 / 2)
    assert (both.read_bytes_per_s, both.write_bytes_per_s) == (there.read_bytes_per_s, back.write_bytes_per_s)


def test_the_interval_of_a_storage_that_has_all_bytes_is_that_of_the_whole_trial(tmp_path):
    scatter = iter(np.random.default_rng(1).normal(1.0, 0.05, 10**5))
    analysis = analyse(lab_run(tmp_path, SIZES, World(seconds=lambda f, w: float(next(scatter))), repeat=6), NO_FITS)
    for rate in analysis.storage_rates:
        if rate.read_asked:
            assert rate.read_interval == analysis.points[rate.point].together_interval


# --- published tables


def test_a_published_table_has_every_row_with_its_ratio_and_no_ratio_where_nothing_was_asked(tmp_path):
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
    assert table.scale == 1.0  # no link is on the way: rates are not scaled
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

    def seconds(factors, way):
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
    assert set(accounts) == {"the receivers' files", "the senders' kernels", "the receivers' kernels", "the wire"}
    assert all(account.agrees for account in accounts.values())
    assert accounts["the wire"].ratio == pytest.approx(1.0, abs=5e-3)
    assert "bytes-disagree" not in codes(clean)


@pytest.mark.parametrize(
    ("world", "party"),
    [
        (World(kernel_misses=0.02), "the senders' kernels"),
        (World(wire_extra=0.05), "the wire"),
        (World(wire_extra=-0.01), "the wire"),
    ],
    ids=["connections missing", "traffic of something else", "packets not counted"],
)
def test_a_count_that_cannot_be_explained_is_a_finding(tmp_path, world, party):
    analysis = analyse(lab_run(tmp_path, SIZES, world), NO_FITS)
    assert by_party(analysis)[party].agrees is False
    assert party in codes(analysis)["bytes-disagree"].evidence
    assert "one of the counts" in analysis.caveat


def test_what_was_sent_again_explains_what_the_wire_has_more(tmp_path):
    analysis = analyse(lab_run(tmp_path, SIZES, World(wire_extra=0.05, sent_again=0.06)), NO_FITS)
    assert by_party(analysis)["the wire"].agrees is True


def test_transfers_that_failed_keep_kernels_and_wire_from_being_judged(tmp_path):
    world = World(kernel_misses=0.02, fails=lambda factors, slot: factors["files"] == 2 and slot == 1)
    accounts = by_party(analyse(lab_run(tmp_path, SIZES, world), NO_FITS))
    assert accounts["the senders' kernels"].agrees is None
    assert "not judged" in accounts["the wire"].note
    assert accounts["the receivers' files"].agrees is True


def test_so_do_those_that_were_carried_out_once_more_and_have_left_the_tables(tmp_path):
    world = World(fails=lambda factors, slot: factors["files"] == 2 and slot == 1)
    run = lab_run(tmp_path, SIZES, world)
    run.close()
    lines = [json.loads(line) for line in (run.path / "journal.jsonl").read_text().splitlines()]
    with RunWriter.resume(run.path, retry_failed=True) as again:
        again.begin_session({})
        for record in (line["trial"] for line in lines if line.get("trial", {}).get("outcome") == "failed"):
            mended = [
                {**transfer, "outcome": "ok", "received_bytes": transfer["asked_bytes"]}
                for transfer in record["transfers"]
            ]
            assert again.trial({**record, "outcome": "ok", "transfers": mended}, record["host"]) == "ok"
    analysis = analyse(Run.open(run.path), NO_FITS)
    assert analysis.counts.transfers_failed == 0
    assert by_party(analysis)["the senders' kernels"].agrees is None
    assert by_party(analysis)["the receivers' files"].agrees is True


def test_a_host_that_was_not_watched_to_the_end_is_left_out_and_named(tmp_path):
    accounts = by_party(analyse(lab_run(tmp_path, SIZES, World(unwatched=("b",))), NO_FITS))
    assert "the receivers' kernels" not in accounts
    assert accounts["the senders' kernels"].agrees is True
    two_ways = by_party(analyse(lab_run(tmp_path / "2", SIZES, World(unwatched=("b",), two_ways=True)), NO_FITS))
    assert "of a only: the sockets of b" in two_ways["the senders' kernels"].note
    assert two_ways["the senders' kernels"].asked_bytes == two_ways["the receivers' kernels"].asked_bytes
    assert two_ways["the senders' kernels"].agrees is True


def test_bytes_that_stay_on_one_host_are_on_no_wire(tmp_path):
    analysis = analyse(lab_run(tmp_path, SIZES, World(destination_service="ga")), NO_FITS)
    assert analysis.accounts == ()
    assert analysis.testbed.local_transfers == 4 * 6
    assert analysis.setting == "All bytes stayed on a, over loopback: of the emulated testbed no link was used."


# --- connections and links


def test_connections_are_summed_up_by_point_with_the_window_in_effect_beside_the_asked_one(tmp_path):
    world = World(window_bytes=200_000, sent_again=0.02)
    summaries = analyse(lab_run(tmp_path, SIZES, world), NO_FITS).sockets
    assert [summary.connections for summary in summaries] == [4, 4, 8, 8]  # control channels are not among them
    for summary in summaries:
        assert (summary.asked_window_bytes, summary.window_bytes) == (200_000, 70_000)
        assert (summary.rtt_s, summary.least_rtt_s) == (0.012, 0.010)  # not the last record's, when nothing flows
        assert summary.retransmitted_ratio == pytest.approx(0.02 / 1.02, rel=1e-3)
        assert summary.receive_window_limited_ratio == pytest.approx(0.25)
        assert summary.congestion_control == "cubic"


def test_a_connection_whose_end_comes_in_the_next_trial_belongs_to_its_own(tmp_path):
    points = [{"files": 1, "size_bytes": 0}, {"files": 1, "size_bytes": 10**7}]
    summaries = analyse(lab_run(tmp_path, points, World(closed_late_s=0.3)), NO_FITS).sockets
    assert [(s.point, s.connections) for s in summaries] == [(1, 4)]


def test_links_are_full_while_bytes_flow_whatever_the_whole_trial_says(tmp_path):
    wire_bytes = RATE_BIT_PER_S / 8
    size = int(wire_bytes * 1448 / 1500)  # one second at the rate of the link
    uses = {use.link: use for use in analyse(lab_run(tmp_path, [{"files": 1, "size_bytes": size}]), NO_FITS).link_use}
    assert set(uses) == {"a>r", "r>b"}  # acknowledgements alone are not worth a row
    assert uses["a>r"].full_bit_per_s == pytest.approx(RATE_BIT_PER_S, rel=0.02)
    assert uses["a>r"].rate_bit_per_s == RATE_BIT_PER_S
    assert uses["r>b"].rate_bit_per_s == 2 * RATE_BIT_PER_S


def test_the_busiest_links_are_drawn_in_time_with_their_traffic(clean):
    by_link = {series.link: series for series in clean.links}
    assert set(by_link) == {"a>r", "r>b"}
    series = by_link["a>r"]
    width = 0.1  # there are fewer samples than bins: each stands alone
    (link,) = [link for link in clean.testbed.links if link.name == "a>r"]
    assert float(series.mean_bytes_per_s.sum() * width) == pytest.approx(link.bytes, rel=0.02)
    assert np.nanmax(series.queue_high_bytes) == link.queue_high_bytes == 40_000


# --- where it was


def test_the_sentence_says_between_which_hosts_over_which_network_at_which_scale(clean, tmp_path):
    assert clean.setting == "The bytes went from a to b over an emulated network (100 Mb/s, RTT 20 ms)."
    assert clean.setting in clean.sentence
    (path,) = clean.testbed.paths
    assert path.links == ("a>r", "r>b")
    assert (path.rate_bit_per_s, path.rtt_s) == (RATE_BIT_PER_S, pytest.approx(0.02))
    assert clean.testbed.packages == {"server": "1.2-3"}
    scaled = analyse(lab_run(tmp_path, SIZES, World(scale=0.1, two_ways=True)), NO_FITS)
    assert scaled.setting == (
        "The bytes went between a and b over an emulated network (100 Mb/s, RTT 20 ms); sizes and rates are 0.1 of those"
        " in the scenario."
    )
    assert scaled.testbed.rates_scale == 0.1
    assert "rates of links, are 0.1" in codes(scaled)["scaled"].evidence


def test_a_host_of_a_lab_shows_its_own_processor_time_and_the_disks_of_the_machine_count_once(clean):
    assert [series.host for series in clean.series] == ["a", "b"]
    for series in clean.series:
        processor = next(trace for trace in series.traces if trace.name == "processor")
        assert np.allclose(processor.mean, 0.25)  # half a core of the two that it is pinned to
    span = clean.series[0].traces[0].time_s
    assert clean.conservation.device_written_bytes == pytest.approx(5e6 * (span[-1] + 0.1), rel=0.1)


def test_other_load_in_a_lab_is_what_neither_its_hosts_nor_its_network_used(clean, tmp_path):
    # Two of four cores are busy, one of them with the two hosts.
    assert "25 % of all processor time" in codes(clean)["other-load"].evidence
    unknown = analyse(lab_run(tmp_path, SIZES, World(unwatched=("b",))), NO_FITS)
    assert "other-load" not in codes(unknown)


def test_the_servers_work_is_not_taken_for_that_of_the_client(clean):
    assert clean.conservation.write_call_ratio is None
    assert "kernel-count-differs" not in codes(clean)


def test_the_analysis_of_a_lab_run_is_plain_data(clean):
    document = json.loads(json.dumps(as_plain(clean), allow_nan=False))
    assert document["testbed"]["links"][0]["rate_bit_per_s"] == RATE_BIT_PER_S
    assert {account["agrees"] for account in document["accounts"]} == {True}
