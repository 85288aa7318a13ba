"""Tool comparison, and byte counts of tools that move whole blocks or run for a fixed time, with planted runs."""

from __future__ import annotations

import pytest
from planted_tools import ToolOutput, tool_run

from venturi.analysis import AnalyseOptions, analyse
from venturi.analysis.sections.tools import COUNTERPARTS, tools_section
from venturi.mover import BUILT_IN
from venturi.study.library import library

MEBIBYTE = 1 << 20
SIZE = 64 * MEBIBYTE
NO_FITS = AnalyseOptions(fits=False)


def about(run):
    return analyse(run, NO_FITS).about


def table(section, name):
    found = next(table for table in section.tables if table.name == name)
    return [dict(zip((column.name for column in found.columns), row, strict=True)) for row in found.rows]


def disk(mover, rates, **tool):
    return ToolOutput(mover, SIZE, [SIZE / rate for rate in rates], tool=tool, at="a")


def network(mover, streams, rate, **more):
    size = 10_000_000
    tool = {"tool_bytes": size, "tool_rate_bytes_per_s": rate, **more}
    return ToolOutput(mover, size, [size / rate, size / rate], {"streams": streams, "length_bytes": 65_536}, tool)


BONNIE = {"tool": {"write_bytes_per_s": 2.2e7, "read_bytes_per_s": 4.0e7, "rewrite_bytes_per_s": 1e7}}


@pytest.fixture(scope="module")
def section(tmp_path_factory):
    points = [
        disk("fio-write", [2e7, 2e7]), disk("fio-read", [4.9e7, 5.1e7], tool_rate_bytes_per_s=5e7), disk("bonnie", [1e7, 1e7], **BONNIE),
        *(network("iperf3", n, rate) for n, rate in ((1, 5e6), (4, 1e7))), *(network("nuttcp", n, rate) for n, rate in ((1, 4e6), (4, 1e7))),
    ]  # fmt: skip
    run = tool_run(tmp_path_factory.mktemp("tools"), points)
    return tools_section(run, about(run))


def test_a_tool_that_reports_both_directions_counts_in_both_without_its_rewrites(section):
    rates = {(row["tool"], row["operation"]): row["rate_bytes_per_s"] for row in table(section, "disk-rates")}
    assert rates == {
        ("bonnie", "write"): 2.2e7, ("bonnie", "read"): 4e7, ("fio", "write"): pytest.approx(2e7), ("fio", "read"): pytest.approx(5e7),
    }  # fmt: skip


def test_file_size_is_compared_with_memory_and_each_rate_has_the_disk_limit(section):
    for row in table(section, "disk-rates"):
        assert (row["memory_bytes"], row["file_to_memory_ratio"]) == (32 * MEBIBYTE, 2)
        assert row["limit_bytes_per_s"] == {"write": 2e7, "read": 5e7}[row["operation"]]
    assert "smaller than" not in section.sentence


def test_files_that_fit_into_twice_the_memory_are_reported(tmp_path):
    small = [
        ToolOutput(mover, 16 * MEBIBYTE, [1.0], tool=tool, at="a")
        for mover, tool in (("fio-write", {}), ("bonnie", BONNIE))
    ]
    run = tool_run(tmp_path, small)
    assert "smaller than 2 times the memory on a" in tools_section(run, about(run)).sentence


def test_two_tools_are_compared_at_the_same_host_direction_and_streams(section):
    disks = {row["operation"]: row["tools_ratio"] for row in table(section, "disk-tools")}
    assert disks == {"write": pytest.approx(1.1), "read": pytest.approx(0.8)}
    networks = {row["streams"]: row["tools_ratio"] for row in table(section, "network-tools")}
    assert networks == {1: pytest.approx(1.25), 4: pytest.approx(1.0)}
    assert "on one disk differ by a factor of at most 1.25 (2 comparisons)" in section.sentence


def test_the_slower_of_disk_and_network_is_the_limit(section):
    (row,) = table(section, "disk-and-network")
    assert row["network_bit_per_s"] == pytest.approx(8e7)
    assert row["disk_write_bit_per_s"] == pytest.approx(8 * 2.1e7)
    assert (row["limits_writing"], row["limits_reading"]) == ("network", "network")


def test_one_tool_of_each_kind_gives_no_section(tmp_path):
    run = tool_run(tmp_path, [disk("fio-write", [2e7]), network("iperf3", 1, 5e6)])
    assert tools_section(run, about(run)) is None


def test_the_counterparts_of_our_tools_are_in_the_tables_of_the_report():
    columns = set(library().tables["004-disk"].columns)
    assert {
        f"{COUNTERPARTS[tool]}_{direction}_bytes_per_s"
        for tool in ("bonnie", "fio")
        for direction in ("write", "read")
    } <= columns
    assert {COUNTERPARTS[tool] for tool in ("iperf3", "nuttcp")} == {
        row["tool"] for row in library().tables["004-network"].rows
    }


# --- byte counts


def account(run, party):
    analysis = analyse(run, NO_FITS)
    found = next((one for one in analysis.accounts if one.party.startswith(party)), None)
    return found, {finding.code for finding in analysis.findings}


def blocks(mover, output, *, streams=1, requested=10_000_000, length=131_072, **options):
    given = {"streams": streams, "length_bytes": length, **options}
    return ToolOutput(
        mover,
        requested,
        [1.0, 1.0],
        given,
        {"tool_bytes": output},
        connections=streams,
        window_bytes=10**6,
        flow_bytes_per_s=1e7,
    )


def test_bytes_beyond_the_request_up_to_whole_blocks_are_not_a_disagreement(tmp_path):
    """For 10 MB, iperf3 moves 77 blocks of 128 KiB, as recorded in tests/mover/outputs.

    nuttcp rounds its reported bytes by 53.
    """
    run = tool_run(tmp_path, [blocks("iperf3", 77 * 131_072), blocks("nuttcp", 153 * 65_536 - 50, length=65_536)])
    found, codes = account(run, "the tools")
    assert found.counted_bytes > found.requested_bytes
    assert found.agrees is True
    assert "bytes-disagree" not in codes


@pytest.mark.parametrize("output", [10_000_000 - 131_072, 10_000_000 + 2 * 131_072 + 1000])
def test_a_count_not_explained_by_blocks_disagrees(output, tmp_path):
    found, codes = account(tool_run(tmp_path, [blocks("iperf3", output)]), "the tools")
    assert found.agrees is False
    assert "bytes-disagree" in codes


def test_a_timed_test_counts_the_bytes_moved_by_its_tool_as_requested(tmp_path):
    run = tool_run(tmp_path, [blocks("iperf3", 50_000_000, requested=1000, time_s=4.0)])
    analysis = analyse(run, NO_FITS)
    assert next((one for one in analysis.accounts if one.party == "the tools"), None) is None
    sent = next(one for one in analysis.accounts if one.party.startswith("the senders"))
    assert (sent.requested_bytes, sent.agrees) == (100_000_000, True)


def test_bytes_the_receiver_did_not_wait_for_are_not_missing_in_kernel_counts(tmp_path):
    """Recorded values: of 4 MB, iperf3 reports 4 063 232 B sent and 3 441 896 B received.

    The kernels acknowledged the latter.
    """
    point = blocks("iperf3", 3_441_896, requested=4_000_000)
    cut = ToolOutput("iperf3", 4_000_000, [1.0], point.options, {"tool_bytes": 4_063_232, "tool_received_bytes": 3_441_896, "kernel_bytes": 3_441_896},
               connections=1, window_bytes=10**6, flow_bytes_per_s=1e7)  # fmt: skip
    analysis = analyse(tool_run(tmp_path / "told", [cut]), NO_FITS)
    assert {one.party.partition(":")[0]: one.agrees for one in analysis.accounts if "kernels" in one.party} == {
        "the senders' kernels": True, "the receivers' kernels": True,
    }  # fmt: skip
    lost = ToolOutput("iperf3", 4_000_000, [1.0], point.options, {"tool_bytes": 4_063_232, "tool_received_bytes": 4_063_232, "kernel_bytes": 3_441_896},
                connections=1, window_bytes=10**6, flow_bytes_per_s=1e7)  # fmt: skip
    analysis = analyse(tool_run(tmp_path / "lost", [lost]), NO_FITS)
    assert not any(one.agrees for one in analysis.accounts if "kernels" in one.party)


def test_a_tool_that_moves_whole_blocks_has_no_count_finding(tmp_path):
    run = tool_run(tmp_path, [blocks("iperf3", 4_063_232, requested=4_000_000)])
    assert "tool-count-differs" not in {finding.code for finding in analyse(run, NO_FITS).findings}
    run = tool_run(tmp_path / "exact", [ToolOutput("rsync", 4_000_000, [1.0], {}, {"tool_bytes": 4_063_232}, at="a")])
    assert "tool-count-differs" in {finding.code for finding in analyse(run, NO_FITS).findings}


def test_iperf3_and_nuttcp_have_a_default_block_length():
    for name in ("iperf3", "nuttcp"):
        assert next(option.default for option in BUILT_IN[name].options if option.name == "length") is not None


# --- connections shorter than a sampling interval


def short(congestion_control=None, **options):
    return ToolOutput(
        "iperf3",
        10**7,
        [0.05, 0.05],
        options,
        connections=1,
        window_bytes=10**6,
        congestion_control=congestion_control,
        closed_only=True,
    )


def test_a_connection_seen_only_at_its_end_has_the_congestion_control_of_its_host(tmp_path):
    (found,) = analyse(tool_run(tmp_path, [short()]), NO_FITS).sockets
    assert found.congestion_control == "reno"


def test_congestion_control_is_taken_from_the_socket_then_the_call_then_the_host(tmp_path):
    (requested,) = analyse(tool_run(tmp_path / "1", [short(congestion_control=None)]), NO_FITS).sockets
    assert requested.congestion_control == "reno"
    point = ToolOutput(
        "iperf3",
        10**7,
        [0.05],
        {"congestion_control": "bbr"},
        connections=1,
        window_bytes=1,
        congestion_control=None,
        closed_only=True,
    )
    (requested,) = analyse(tool_run(tmp_path / "2", [point]), NO_FITS).sockets
    assert requested.congestion_control == "bbr"
    (seen,) = analyse(tool_run(tmp_path / "3", [short("cubic")]), NO_FITS).sockets
    assert seen.congestion_control == "cubic"
