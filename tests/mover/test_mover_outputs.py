"""Recorded outputs of tools by version, which are parsed correctly or rejected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from venturi.mover import BUILT_IN, OutputError, ToolReport

OUTPUTS = Path(__file__).parent / "outputs"
RECORDS = {
    f"{record['tool']} {record['case']}": record
    for path in sorted(OUTPUTS.glob("*.jsonl"))
    for record in map(json.loads, path.read_text(encoding="utf-8").splitlines())
}
GOOD = sorted(name for name, record in RECORDS.items() if record["exit_code"] == 0)
SILENT = ("davix", "scp", "sftp", "xrdcp")
"""Movers without output for a successful transfer."""

DISK_TOOLS = {"bonnie", "fio-read", "fio-write"}

REJECTED = {"curl third-party-no-file", "iperf3 killed", "iperf3 refused"}
"""Failures for which these tools exit with 0; only their output shows them."""

REPORTS_MORE = {
    "curl download": 8_000_000, "curl upload": 8_000_000, "curl empty": 0, "curl https": 8_000_000, "curl third-party-pull": None,
    "curl third-party-push": None, "wget download": 8_000_000, "wget empty": 0, "wget https": 8_000_000, "gfal-copy download": 8_000_000,
    "gfal-copy empty": 0, "gfal-copy third-party": 8_000_000, "gfal-copy third-party-http": 8_000_000, "iperf3 send": 100_007_936,
    "iperf3 receive": 100_007_936, "iperf3 time": 6_063_128_576, "nuttcp send": 100_007_936, "nuttcp receive": 100_007_936,
    "nuttcp one-block": 65_536, "fio-read read": 67_108_864, "fio-read direct": 67_108_864, "fio-write write": 67_108_864,
    "bonnie quick": None, "bbftp download": 8_000_000, "bbftp upload": 8_000_000, "bbftp plain": 8_000_000, "bbftp ports": 8_000_000,
    "http-load once": 8_000_000, "http-load fetches": 32_000_000, "http-load duration": 2_160_000_000,
    "managed copy": 8_000_000, "root-read read": 7_977_298,
    "rsync download": 8_000_000, "rsync upload": 8_000_000, "rsync empty": 0,
    "rclone download": 8_000_000, "rclone upload": 8_000_000, "rclone empty": 0, "rclone third-party": 8_000_000, "rclone new-directory": 8_000_000,
    "bbftp active": 8_000_000, "bbftp gzip": 8_000_000, "bbftp empty": 0,
    "venturi download": 8_000_000, "venturi upload": 8_000_000, "venturi empty": 0, "venturi fixed": 8_000_000, "venturi list": 8_000_000,
}  # fmt: skip


def report_of(name):
    record = RECORDS[name]
    return BUILT_IN[record["tool"]].parse(record)


def test_every_tool_has_recorded_successes_and_failures():
    tools = {record["tool"] for record in RECORDS.values()}
    assert tools == {mover.name for mover in BUILT_IN.values() if mover.protocols} | DISK_TOOLS
    for tool in tools:
        codes = {record["exit_code"] == 0 for record in RECORDS.values() if record["tool"] == tool}
        assert codes == ({True} if tool == "iperf3" else {True, False}), tool


@pytest.mark.parametrize("name", GOOD)
def test_recorded_output_of_successful_transfers_is_parsed(name):
    if name in REJECTED:
        with pytest.raises(OutputError) as caught:
            report_of(name)
        assert caught.value.text == RECORDS[name]["stdout"]
        return
    report = report_of(name)
    if RECORDS[name]["tool"] in SILENT:
        assert report is None
    elif RECORDS[name]["tool"] == "globus-url-copy":
        assert report.bytes is None
        assert report.detail["files_named"] == RECORDS[name]["files"]
    else:
        assert report.bytes == REPORTS_MORE[name]


def test_the_last_output_of_globus_url_copy_is_progress_and_not_a_total():
    """Each progress line overwrites the previous with a carriage return. The counts are from markers during the transfer."""
    long, third = report_of("globus-url-copy long"), report_of("globus-url-copy long-third-party")
    assert long.detail["marker_bytes"] < 100_000_000 == third.detail["marker_bytes"]
    assert long.rate_bytes_per_s == pytest.approx(11.34 * 2**20)
    assert third.rate_bytes_per_s == pytest.approx(12.0e6, rel=0.02)  # a link of 100 Mb/s
    again = report_of("globus-url-copy killed-third-party-restarted")
    assert again.detail["marker_bytes"] < 100_000_000  # although the whole file arrived


def test_iperf3_reports_the_bytes_counted_at_both_ends():
    report = report_of("iperf3 time")
    assert report.received_bytes == 6_061_948_928 < report.bytes
    assert report.rate_bytes_per_s == pytest.approx(report.received_bytes / report.duration_s, rel=1e-3)
    assert report.retransmits == 0
    assert report.detail["congestion_control"] == "reno"
    assert 0 < report.detail["client_cpu_percent"] < 100


def test_an_error_in_the_output_of_iperf3_is_reported_despite_exit_code_zero():
    assert RECORDS["iperf3 refused"]["exit_code"] == 0
    with pytest.raises(
        OutputError, match="without an error in the output of the tool, found unable to connect to server"
    ):
        BUILT_IN["iperf3"].parse(RECORDS["iperf3 refused"])


def test_an_iperf3_report_without_its_middle_is_parsed():
    whole = RECORDS["iperf3 send"]["stdout"]
    cut = whole[:200] + "\n[… 70000 bytes left out …]\n" + whole[-1200:]
    assert BUILT_IN["iperf3"].parse({"stdout": cut}) == report_of("iperf3 send")
    with pytest.raises(OutputError):
        BUILT_IN["iperf3"].parse({"stdout": whole[:200] + whole[-500:]})


def test_nuttcp_counts_in_mebibytes():
    report = report_of("nuttcp send")
    assert report.bytes == report.received_bytes == 1526 * 65536  # 100 MB in whole blocks of 64 KiB
    assert (report.retransmits, report.detail["rtt_s"]) == (0, pytest.approx(7e-5))
    assert report_of("nuttcp receive").retransmits == 0


def test_fio_reports_rate_and_time_of_its_direction():
    report = report_of("fio-read read")
    assert report.rate_bytes_per_s == pytest.approx(67_108_864 / report.duration_s)
    assert 0 < report.detail["mean_latency_s"] < report.duration_s
    with pytest.raises(OutputError, match='its "write"'):
        BUILT_IN["fio-write"].parse({"stdout": RECORDS["fio-read read"]["stdout"].replace('"write"', '"wrote"')})
    with pytest.raises(OutputError, match="no error"):
        BUILT_IN["fio-write"].parse(RECORDS["fio-write disk-full"])


def test_bonnie_reports_rates_in_kibibytes_and_omits_parts_that_were_too_short():
    assert set(report_of("bonnie quick").detail) == {"version"}
    # The example of `man bon_csv2txt` has another form: rates of a call that took long enough, in the fields of
    # `quick`.
    slow = RECORDS["bonnie quick"]["stdout"].replace(
        "+++++,+++,+++++,+++,,,+++++,+++,+++++,+++", "20480,3,10240,2,,,40960,5,123.5,7"
    )
    assert BUILT_IN["bonnie"].parse({"stdout": slow}).detail == {
        "version": "2.00a", "write_bytes_per_s": 20 * 2**20, "rewrite_bytes_per_s": 10 * 2**20, "read_bytes_per_s": 40 * 2**20,
        "seeks_per_s": 123.5,
    }  # fmt: skip


def test_bbftp_reports_the_negotiated_settings():
    """It reports no more: the kernels granted a smaller window than agreed (document 004, 004-E11)."""
    report = report_of("bbftp download")
    assert report.detail == {
        "block_bytes": 1 << 20,
        "send_window_bytes": 128 << 10,
        "receive_window_bytes": 128 << 10,
        "streams": 4,
    }
    assert report.rate_bytes_per_s == pytest.approx(8_000_000 / report.duration_s)
    assert report_of("bbftp empty").rate_bytes_per_s is None


def test_curl_reports_its_phases_in_order():
    detail, report = report_of("curl https").detail, report_of("curl https")
    assert 0 < detail["lookup_s"] < detail["connect_s"] < detail["tls_s"] < report.first_byte_s < report.duration_s
    assert "tls_s" not in report_of("curl download").detail
    assert report.rate_bytes_per_s == pytest.approx(8_000_000 / report.duration_s, rel=1e-3)


@pytest.mark.parametrize("name", [name for name in GOOD if name not in REJECTED and name.split()[0] not in SILENT])
def test_truncated_or_unknown_output_of_a_tool_is_rejected_with_its_text(name):
    record = RECORDS[name]
    stream = "stderr" if record["tool"] in ("rclone", "wget") else "stdout"
    for text in ("", record[stream][:30], "something else\n", None):
        with pytest.raises(OutputError) as caught:
            BUILT_IN[record["tool"]].parse({"stdout": "", "stderr": "", stream: text})
        assert caught.value.text == (text or "")


@pytest.mark.parametrize("name", ["curl download", "iperf3 send"])
@pytest.mark.parametrize("value", ["null", '"x"', "1e999", "NaN", "[]", "{}"])
def test_malformed_numbers_are_rejected(name, value):
    record = RECORDS[name]
    known = {
        "curl": ('"size_download":8000000', '"time_total":0.006889'),
        "iperf3": ('"bytes":\t100007936', '"seconds":\t0.02143'),
    }
    for text in known[record["tool"]]:
        assert text in record["stdout"]
        key = text.split(":")[0]
        with pytest.raises(OutputError):
            BUILT_IN[record["tool"]].parse({**record, "stdout": record["stdout"].replace(text, f"{key}:{value}")})


@given(st.text(max_size=200), st.sampled_from([mover.name for mover in BUILT_IN.values() if mover.protocols]))
@settings(deadline=None)
def test_network_tool_parsers_accept_arbitrary_output_or_raise_an_output_error(text, name):
    try:
        report = BUILT_IN[name].parse({"stdout": text, "stderr": text})
    except OutputError:
        return
    assert report is None or isinstance(report, ToolReport)


def test_exit_codes_of_recorded_failures_match_the_documentation():
    """For the agent, all of these are ``failed``, except that a full disk is ``short`` with xrdcp, which exits with 0."""
    codes = {name: record["exit_code"] for name, record in RECORDS.items()}
    assert codes["xrdcp disk-full"] == 0 == codes["iperf3 refused"] == codes["curl third-party-no-file"]
    assert {codes[f"xrdcp {case}"] for case in ("refused", "killed")} == {51}
    assert {codes[f"xrdcp {case}"] for case in ("no-file", "not-allowed")} == {54}
    assert {code for name, code in codes.items() if name.startswith("globus-url-copy")} == {0, 1}
    assert (codes["curl refused"], codes["curl no-file"], codes["curl killed"], codes["curl disk-full"]) == (
        7,
        22,
        18,
        23,
    )
    assert (codes["wget refused"], codes["wget no-file"], codes["wget killed"], codes["wget disk-full"]) == (
        4,
        8,
        4,
        3,
    )
    assert {code for name, code in codes.items() if name.startswith("davix")} == {0, 255}
    assert (codes["gfal-copy no-file"], codes["gfal-copy disk-full"], codes["gfal-copy refused"]) == (2, 28, 112)
    assert {codes[f"bbftp {case}"] for case in ("no-file", "not-allowed", "disk-full", "disk-full-here")} == {100}
    assert (
        codes["bbftp refused"],
        codes["fio-read no-file"],
        codes["fio-write disk-full"],
        codes["bonnie disk-full"],
    ) == (33, 1, 1, 1)
    assert (codes["scp refused"], codes["scp no-file"], codes["nuttcp refused"]) == (255, 1, 1)
