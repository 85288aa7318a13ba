"""Tool against tool, and what tools of whole blocks and of the clock mean for the accounts of bytes: planted runs."""

from __future__ import annotations

import pytest
from planted_tools import Told, tool_run

from venturi.analysis import AnalyseOptions, analyse
from venturi.analysis.chapters.tools import COUNTERPARTS, tools_chapter
from venturi.mover import BUILT_IN
from venturi.study.library import library

MEBIBYTE = 1 << 20
SIZE = 64 * MEBIBYTE
NO_FITS = AnalyseOptions(fits=False)


def about(run):
    return analyse(run, NO_FITS).about


def table(chapter, name):
    found = next(table for table in chapter.tables if table.name == name)
    return [dict(zip((column.name for column in found.columns), row, strict=True)) for row in found.rows]


def disk(mover, rates, **tool):
    return Told(mover, SIZE, [SIZE / rate for rate in rates], tool=tool, at="a")


def network(mover, streams, rate, **more):
    size = 10_000_000
    tool = {"tool_bytes": size, "tool_rate_bytes_per_s": rate, **more}
    return Told(mover, size, [size / rate, size / rate], {"streams": streams, "length_bytes": 65_536}, tool)


BONNIE = {"tool": {"write_bytes_per_s": 2.2e7, "read_bytes_per_s": 4.0e7, "rewrite_bytes_per_s": 1e7}}


@pytest.fixture(scope="module")
def chapter(tmp_path_factory):
    points = [
        disk("fio-write", [2e7, 2e7]), disk("fio-read", [4.9e7, 5.1e7], tool_rate_bytes_per_s=5e7), disk("bonnie", [1e7, 1e7], **BONNIE),
        *(network("iperf3", n, rate) for n, rate in ((1, 5e6), (4, 1e7))), *(network("nuttcp", n, rate) for n, rate in ((1, 4e6), (4, 1e7))),
    ]  # fmt: skip
    run = tool_run(tmp_path_factory.mktemp("tools"), points)
    return tools_chapter(run, about(run))


def test_a_tool_that_tells_both_ways_counts_in_both_and_its_rewriting_in_none(chapter):
    rates = {(row["tool"], row["way"]): row["rate_bytes_per_s"] for row in table(chapter, "disk-rates")}
    assert rates == {
        ("bonnie", "write"): 2.2e7, ("bonnie", "read"): 4e7, ("fio", "write"): pytest.approx(2e7), ("fio", "read"): pytest.approx(5e7),
    }  # fmt: skip


def test_file_memory_and_what_the_disk_was_made_to_give_stand_beside(chapter):
    for row in table(chapter, "disk-rates"):
        assert (row["memory_bytes"], row["file_to_memory_ratio"]) == (32 * MEBIBYTE, 2)
        assert row["limit_bytes_per_s"] == {"write": 2e7, "read": 5e7}[row["way"]]
    assert "smaller than" not in chapter.sentence


def test_files_that_fit_into_twice_the_memory_are_told(tmp_path):
    small = [
        Told(mover, 16 * MEBIBYTE, [1.0], tool=tool, at="a")
        for mover, tool in (("fio-write", {}), ("bonnie", BONNIE))
    ]
    run = tool_run(tmp_path, small)
    assert "files were smaller than 2 times the memory on a" in tools_chapter(run, about(run)).sentence


def test_two_tools_are_compared_at_the_same_machine_way_and_streams(chapter):
    disks = {row["way"]: row["tools_ratio"] for row in table(chapter, "disk-tools")}
    assert disks == {"write": pytest.approx(1.1), "read": pytest.approx(0.8)}
    networks = {row["streams"]: row["tools_ratio"] for row in table(chapter, "network-tools")}
    assert networks == {1: pytest.approx(1.25), 4: pytest.approx(1.0)}
    assert "on one disk differ by a factor of at most 1.25 (2 comparisons)" in chapter.sentence


def test_the_lesser_of_disk_and_network_limits(chapter):
    (row,) = table(chapter, "disk-and-network")
    assert row["network_bit_per_s"] == pytest.approx(8e7)
    assert row["disk_write_bit_per_s"] == pytest.approx(8 * 2.1e7)
    assert (row["limits_writing"], row["limits_reading"]) == ("network", "network")


def test_one_tool_alone_is_no_comparison(tmp_path):
    run = tool_run(tmp_path, [disk("fio-write", [2e7]), network("iperf3", 1, 5e6)])
    assert tools_chapter(run, about(run)) is None


def test_the_tools_of_the_report_that_ours_stand_for_are_those_of_its_tables():
    columns = set(library().tables["004-disk"].columns)
    assert {
        f"{COUNTERPARTS[tool]}_{way}_bytes_per_s" for tool in ("bonnie", "fio") for way in ("write", "read")
    } <= columns
    assert {COUNTERPARTS[tool] for tool in ("iperf3", "nuttcp")} == {
        row["tool"] for row in library().tables["004-network"].rows
    }


# --- accounts of bytes


def account(run, party):
    analysis = analyse(run, NO_FITS)
    found = next((one for one in analysis.accounts if one.party.startswith(party)), None)
    return found, {notice.code for notice in analysis.notices}


def blocks(mover, told, *, streams=1, asked=10_000_000, length=131_072, **options):
    given = {"streams": streams, "length_bytes": length, **options}
    return Told(
        mover,
        asked,
        [1.0, 1.0],
        given,
        {"tool_bytes": told},
        connections=streams,
        window_bytes=10**6,
        flow_bytes_per_s=1e7,
    )


def test_whole_blocks_beyond_the_bytes_asked_for_are_no_disagreement(tmp_path):
    """iperf3 asked for 10 MB moves 77 blocks of 128 KiB, as recorded in tests/mover/outputs; nuttcp rounds what it tells by 53 bytes."""
    run = tool_run(tmp_path, [blocks("iperf3", 77 * 131_072), blocks("nuttcp", 153 * 65_536 - 50, length=65_536)])
    found, codes = account(run, "the tools")
    assert found.counted_bytes > found.asked_bytes
    assert found.agrees is True
    assert "bytes-disagree" not in codes


@pytest.mark.parametrize("told", [10_000_000 - 131_072, 10_000_000 + 2 * 131_072 + 1000])
def test_a_count_that_no_block_explains_still_disagrees(told, tmp_path):
    found, codes = account(tool_run(tmp_path, [blocks("iperf3", told)]), "the tools")
    assert found.agrees is False
    assert "bytes-disagree" in codes


def test_a_test_by_the_clock_is_asked_for_what_its_tool_moved(tmp_path):
    run = tool_run(tmp_path, [blocks("iperf3", 50_000_000, asked=1000, time_s=4.0)])
    analysis = analyse(run, NO_FITS)
    assert next((one for one in analysis.accounts if one.party == "the tools"), None) is None
    sent = next(one for one in analysis.accounts if one.party.startswith("the senders"))
    assert (sent.asked_bytes, sent.agrees) == (100_000_000, True)


def test_what_the_receiver_did_not_wait_for_is_missing_in_no_kernel(tmp_path):
    """As recorded: of 4 MB iperf3 says that 4 063 232 B were sent and 3 441 896 B received, which is what the kernels acknowledged."""
    point = blocks("iperf3", 3_441_896, asked=4_000_000)
    cut = Told("iperf3", 4_000_000, [1.0], point.options, {"tool_bytes": 4_063_232, "tool_received_bytes": 3_441_896, "kernel_bytes": 3_441_896},
               connections=1, window_bytes=10**6, flow_bytes_per_s=1e7)  # fmt: skip
    analysis = analyse(tool_run(tmp_path / "told", [cut]), NO_FITS)
    assert {one.party.partition(":")[0]: one.agrees for one in analysis.accounts if "kernels" in one.party} == {
        "the senders' kernels": True, "the receivers' kernels": True,
    }  # fmt: skip
    lost = Told("iperf3", 4_000_000, [1.0], point.options, {"tool_bytes": 4_063_232, "tool_received_bytes": 4_063_232, "kernel_bytes": 3_441_896},
                connections=1, window_bytes=10**6, flow_bytes_per_s=1e7)  # fmt: skip
    analysis = analyse(tool_run(tmp_path / "lost", [lost]), NO_FITS)
    assert not any(one.agrees for one in analysis.accounts if "kernels" in one.party)


def test_the_count_of_a_tool_of_whole_blocks_is_no_finding(tmp_path):
    run = tool_run(tmp_path, [blocks("iperf3", 4_063_232, asked=4_000_000)])
    assert "tool-count-differs" not in {notice.code for notice in analyse(run, NO_FITS).notices}
    run = tool_run(tmp_path / "exact", [Told("rsync", 4_000_000, [1.0], {}, {"tool_bytes": 4_063_232}, at="a")])
    assert "tool-count-differs" in {notice.code for notice in analyse(run, NO_FITS).notices}


def test_iperf3_names_its_blocks_so_that_the_account_knows_them():
    for name in ("iperf3", "nuttcp"):
        assert next(option.default for option in BUILT_IN[name].options if option.name == "length") is not None


# --- connections shorter than a sample


def short(congestion_control=None, **options):
    return Told(
        "iperf3",
        10**7,
        [0.05, 0.05],
        options,
        connections=1,
        window_bytes=10**6,
        congestion_control=congestion_control,
        closed_only=True,
    )


def test_a_connection_seen_at_its_end_alone_has_the_congestion_control_that_its_host_was_given(tmp_path):
    (found,) = analyse(tool_run(tmp_path, [short()]), NO_FITS).sockets
    assert found.congestion_control == "reno"


def test_what_the_call_asked_for_comes_before_the_host_and_what_was_seen_before_both(tmp_path):
    (asked,) = analyse(tool_run(tmp_path / "1", [short(congestion_control=None)]), NO_FITS).sockets
    assert asked.congestion_control == "reno"
    point = Told(
        "iperf3",
        10**7,
        [0.05],
        {"congestion_control": "bbr"},
        connections=1,
        window_bytes=1,
        congestion_control=None,
        closed_only=True,
    )
    (asked,) = analyse(tool_run(tmp_path / "2", [point]), NO_FITS).sockets
    assert asked.congestion_control == "bbr"
    (seen,) = analyse(tool_run(tmp_path / "3", [short("cubic")]), NO_FITS).sockets
    assert seen.congestion_control == "cubic"
