"""Movers: command line of each tool, bytes moved, and parsing of its output."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from callkit import argv_of, call_with
from hypothesis import given, settings
from hypothesis import strategies as st

import venturi.mover
from venturi.errors import UnitError
from venturi.mover import (
    BUILT_IN,
    Command,
    Option,
    OutputError,
    ToolReport,
    movers,
    movers_reference,
    resolve_options,
)
from venturi.mover.command import PLACEHOLDERS, placeholders

OUTPUTS = Path(__file__).parent / "outputs"
CONTENT = os.urandom(300_001)


def run(mover, source, destination, size, **options):
    """Run a mover as an agent does, and return its transfer record."""
    call = call_with(mover, **options)
    for tool in call.requires:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    argv = argv_of(call, source=str(source), destination=str(destination), bytes=str(size), files="1", slot="0")
    done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}, check=False)
    assert done.returncode == 0, done.stderr
    return {"stdout": done.stdout if call.capture else None, "stderr": done.stderr if call.capture else None}


RUNS = [
    ("cp", {}), ("cp", {"fsync": True}), ("cp", {"reflink": "auto"}), ("rsync", {}), ("rsync", {"fsync": True, "inplace": True}),
    ("rclone", {}), ("rclone", {"checksum": False, "streams": 2, "transfers": 3}),
    ("venturi", {}), ("venturi", {"fsync": True, "direct": True, "block": "64 KiB"}), ("venturi", {"verify": True, "fixed": True, "concurrency": 2}),
]  # fmt: skip


@pytest.mark.parametrize("content", [CONTENT, b"", b"x"], ids=["some", "empty", "one byte"])
@pytest.mark.parametrize(("name", "options"), RUNS, ids=str)
def test_a_mover_copies_every_byte_and_reports_it(name, options, content, tmp_path):
    source, destination = tmp_path / "a source", tmp_path / "its copy"
    source.write_bytes(content)
    record = run(BUILT_IN[name], source, destination, len(content), **options)
    assert destination.read_bytes() == content
    report = BUILT_IN[name].parse(record)
    assert report is None if name == "cp" else report.bytes == len(content)


@pytest.mark.parametrize("options", [{}, {"block": "4 KiB"}], ids=str)
@pytest.mark.parametrize("size", [0, 1, 300_001])
def test_read_and_write_transfer_the_requested_number_of_bytes(options, size, tmp_path):
    source, destination = tmp_path / "source", tmp_path / "destination"
    source.write_bytes(CONTENT[:size])
    assert BUILT_IN["read"].parse(run(BUILT_IN["read"], source, "/dev/null", size, **options)).bytes == size
    record = run(BUILT_IN["write"], "/dev/zero", destination, size, fsync=True, **options)
    assert BUILT_IN["write"].parse(record).bytes == size
    assert destination.read_bytes() == bytes(size)


def test_direct_reads_and_writes_include_a_partial_last_block(tmp_path):
    probe = tmp_path / "probe"
    probe.write_bytes(CONTENT)
    try:
        os.close(os.open(probe, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        pytest.skip("the file system of the tests has no O_DIRECT")
    record = run(BUILT_IN["write"], "/dev/zero", tmp_path / "w", 300_001, direct=True, block="64 KiB")
    assert BUILT_IN["write"].parse(record).bytes == 300_001 == (tmp_path / "w").stat().st_size
    assert BUILT_IN["read"].parse(run(BUILT_IN["read"], probe, "/dev/null", 300_001, direct=True)).bytes == 300_001


def test_cp_syncs_the_file_only_if_requested():
    plain, synced = call_with(BUILT_IN["cp"]), call_with(BUILT_IN["cp"], fsync=True)
    assert plain.argv == ("cp", "--reflink=never", "{source}", "{destination}")
    assert synced.argv[:3] == ("sh", "-c", 'cp --reflink=never "$1" "$2" && exec sync "$2"')
    assert synced.requires == ("sh", "cp", "sync")


def test_cp_without_reflink_makes_no_kernel_copy_calls(tmp_path):
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    (tmp_path / "a").write_bytes(CONTENT)
    calls = {}
    for mode in ("never", "auto"):
        argv = argv_of(
            call_with(BUILT_IN["cp"], reflink=mode), source=str(tmp_path / "a"), destination=str(tmp_path / mode)
        )
        log = tmp_path / f"{mode}.log"
        done = subprocess.run(
            ["strace", "-o", log, "-e", "trace=copy_file_range,ioctl", *argv], capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip(f"strace may not trace here: {done.stderr.decode().strip()[:80]}")
        calls[mode] = set(re.findall(r"^(copy_file_range|ioctl)\(.*(?:FICLONE|copy)?", log.read_text(), re.MULTILINE))
    assert calls["never"] == set()
    assert calls["auto"]


RECORDED = {
    "dd-9.1-read": ("read", "stderr", 3_000_000, 3_000_000 / 0.00350918),
    "dd-9.1-small": ("write", "stderr", 100, 100 / 6.5148e-05),
    "dd-9.1-one-byte": ("write", "stderr", 1, 1 / 2.712e-05),
    "dd-9.1-empty": ("read", "stderr", 0, None),
    "rsync-3.5.0": ("rsync", "stdout", 3_000_000, None),
    "rsync-3.5.0-large": ("rsync", "stdout", 400_000_000, 266_731_846.67),
    "rsync-3.5.0-empty": ("rsync", "stdout", 0, None),
    "rclone-1.60.1": ("rclone", "stderr", 3_000_000, None),
    "rclone-1.60.1-large": ("rclone", "stderr", 400_000_000, None),
    "rclone-1.60.1-empty": ("rclone", "stderr", 0, None),
    "venturi-0.1.0": ("venturi", "stdout", 3_000_000, None),
    "venturi-0.1.0-large": ("venturi", "stdout", 400_000_000, None),
    "venturi-0.1.0-empty": ("venturi", "stdout", 0, None),
}


def test_every_recorded_output_has_an_expected_result():
    assert {path.stem for path in OUTPUTS.glob("*.txt")} == set(RECORDED)


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_output_is_parsed_to_the_expected_report(name):
    mover, stream, size, rate = RECORDED[name]
    report = BUILT_IN[mover].parse({"stdout": "", "stderr": "", stream: (OUTPUTS / f"{name}.txt").read_text()})
    assert report.bytes == size
    if rate is not None:
        assert report.rate_bytes_per_s == pytest.approx(rate)
    if size == 0:
        assert not report.rate_bytes_per_s or mover == "rsync"


@pytest.mark.parametrize("name", RECORDED)
def test_truncated_or_missing_output_is_an_error_that_keeps_the_text(name):
    mover, stream, *_ = RECORDED[name]
    whole = (OUTPUTS / f"{name}.txt").read_text()
    for text in ("", whole[: len(whole) // 3], "something else\n"):
        with pytest.raises(OutputError) as caught:
            BUILT_IN[mover].parse({"stdout": "", "stderr": "", stream: text})
        assert caught.value.text == text
    with pytest.raises(OutputError):
        BUILT_IN[mover].parse({"stdout": None, "stderr": None})


@given(st.text(max_size=200), st.sampled_from(["read", "rsync", "rclone", "venturi"]))
@settings(deadline=None)
def test_parsers_accept_arbitrary_output_or_raise_an_output_error(text, name):
    try:
        report = BUILT_IN[name].parse({"stdout": text, "stderr": text})
    except OutputError:
        return
    assert isinstance(report, ToolReport)


@pytest.mark.parametrize(
    "line",
    ['{"stats": 3}', '{"stats": {"bytes": "x", "speed": 1, "elapsedTime": 1}}', "[]", '{"stats": {"bytes": 1e999, "speed": 1}}',
     '{"stats": {"bytes": 1, "speed": 1, "elapsedTime": NaN}}', "[" * 5000],
)  # fmt: skip
def test_malformed_statistics_are_rejected(line):
    with pytest.raises(OutputError):
        BUILT_IN["rclone"].parse({"stderr": line})


def test_events_of_venturi_copy_report_its_decisions_and_its_copy_method():
    report = BUILT_IN["venturi"].parse({"stdout": (OUTPUTS / "venturi-0.1.0-large.txt").read_text()})
    assert (report.detail["workers"], report.detail["method"], report.detail["moved_bytes"]) == (
        2,
        "buffers",
        400_000_000,
    )
    assert report.rate_bytes_per_s == pytest.approx(400_000_000 / report.duration_s)
    whole = (OUTPUTS / "venturi-0.1.0-large.txt").read_text()
    cut = BUILT_IN["venturi"].parse({"stdout": whole[:150] + "\n[… 70000 bytes left out …]\n" + whole[-500:]})
    assert (cut.bytes, cut.duration_s, "workers" in cut.detail) == (report.bytes, report.duration_s, False)
    for wrong in (
        '{"event": "end"}',
        '{"event": "end", "bytes": NaN, "duration_s": 1}',
        '{"event": "start"}',
        "[]",
        "[" * 5000,
    ):
        with pytest.raises(OutputError):
            BUILT_IN["venturi"].parse({"stdout": wrong})


OPTIONS = {
    "size": Option("block", "size", 1, "", minimum=1), "time": Option("pause", "time", None, ""),
    "rate": Option("limit", "rate", None, ""), "integer": Option("streams", "integer", None, ""), "boolean": Option("verify", "boolean", None, ""),
    "choice": Option("mode", "choice", None, "", choices=("fast", "safe")),
}  # fmt: skip


def test_options_reject_values_above_their_maximum():
    check = {
        Option("streams", "integer", None, "", maximum=4): (4, 5, "expected a whole number, 1 to 4, found 5"),
        Option("block", "size", None, "", minimum=1000, maximum=8000):
            ("8 kB", "8001 B", 'expected a size from "1 kB" to "8 kB", found "8001 B"'),
        Option("limit", "rate", None, "", minimum=8000, maximum=125_000):
            ("1 Mb/s", "2 Mb/s", 'expected a rate from "8 kB/s" to "125 kB/s", found "2 Mb/s"'),
    }  # fmt: skip
    for option, (most, more, output) in check.items():
        option.parse(most)
        with pytest.raises(UnitError) as caught:
            option.parse(more)
        assert str(caught.value).startswith(f"{output}; ")


def test_option_values_are_converted_to_base_units_and_keys_name_the_unit():
    parsed = {kind: OPTIONS[kind].parse(value) for kind, value in
              {"size": "4 KiB", "time": "5 ms", "rate": "8 Mb/s", "integer": 3, "boolean": True, "choice": "safe"}.items()}  # fmt: skip
    assert parsed == {"size": 4096, "time": 0.005, "rate": 1_000_000, "integer": 3, "boolean": True, "choice": "safe"}
    assert [option.key for option in OPTIONS.values()] == [
        "block_bytes",
        "pause_s",
        "limit_bytes_per_s",
        "streams",
        "verify",
        "mode",
    ]


@pytest.mark.parametrize(
    ("kind", "value"),
    [("size", 4), ("size", "4"), ("size", "0"), ("size", "9 EB"), ("size", "9000000 PB"), ("time", 3), ("time", "3 MB"), ("rate", "3 MB"), ("rate", "0"), ("rate", 4), ("integer", 0),
     ("integer", True), ("integer", 1.0), ("integer", "3"), ("integer", 2**63), ("boolean", 1), ("boolean", "true"), ("choice", "both"),
     ("choice", ["fast"])],
)  # fmt: skip
def test_an_option_value_of_the_wrong_kind_is_rejected(kind, value):
    with pytest.raises(UnitError, match=r"expected .*, found "):
        OPTIONS[kind].parse(value)


def test_a_boolean_placeholder_of_a_template_is_a_condition():
    tool = Command(
        "t", ("t", ("-v", "{verify}"), ("-m", "{mode}"), "{source}"), ("t",), (OPTIONS["boolean"], OPTIONS["choice"])
    )
    assert argv_of(tool.call({"verify": True, "mode": None}), source="s") == ["t", "-v", "s"]
    assert argv_of(tool.call({"verify": False, "mode": "fast"}), source="s") == ["t", "-m", "fast", "s"]
    assert argv_of(tool.call({"verify": None, "mode": None}), source="s") == ["t", "s"]
    assert (tool.reads, tool.writes, tool.call({"verify": None, "mode": None}).expect) == (True, False, "nothing")


def test_every_placeholder_of_a_mover_is_known_to_the_agent():
    fixed = {*PLACEHOLDERS, "offset_bytes"}
    for mover in BUILT_IN.values():
        for values in ({}, {option.name: True for option in mover.options if option.kind == "boolean"}):
            call = mover.call(resolve_options(mover, values))
            texts = [
                text for argument in call.argv for text in ([argument] if isinstance(argument, str) else argument)
            ]
            names = {name for text in texts for name in placeholders(text)}
            assert names <= fixed | set(call.options)
            # bonnie++ removes its files.
            assert call.expect == ("destination" if mover.writes and mover.name != "bonnie" else "nothing")


def test_a_template_can_take_lists_and_use_service_ports():
    tool = Command(
        "t", ("t", ("-f", "{list}"), ("-h", "{source_host}")), ("t",), protocols=("http",), local="file://{path}"
    )
    assert (tool.lists, tool.reads, tool.writes, tool.call({}).local) == (True, True, True, "file://{path}")
    assert argv_of(tool.call({}), list="l", source_host=None) == ["t", "-f", "l"]
    plain = Command("t", ("t", "{source}"), ("t",))
    assert (plain.lists, plain.protocols, plain.call({}).local) == (False, (), "{path}")


def test_only_two_movers_write_local_paths_as_file_urls():
    for mover in BUILT_IN.values():
        call = mover.call(resolve_options(mover, {}))
        assert call.local == ("file://{path}" if mover.name in ("globus-url-copy", "gfal-copy") else "{path}")
        assert mover.lists == (mover.name in ("globus-url-copy", "managed", "root-write", "venturi", "xrdcp"))
        local = ("cp", "read", "write", "fio-read", "fio-write", "bonnie", "root-write")
        assert bool(mover.protocols) == (mover.name not in local)


def test_a_download_or_a_single_file_is_started_without_a_shell():
    """The cost of ``sh`` is only paid if it has something to choose."""
    ends = {"source": "u", "source_host": "h", "source_port": 1, "destination": "/d", "bytes": 1}
    for name in ("globus-url-copy", "xrdcp", "curl", "wget", "davix", "venturi"):
        assert argv_of(call_with(BUILT_IN[name]), **ends)[0].startswith(name)
    local = {"source": "/s", "destination": "/d", "bytes": 1}
    for name in ("rsync", "rclone"):
        assert argv_of(call_with(BUILT_IN[name]), **local)[0] == name
        assert argv_of(call_with(BUILT_IN[name]), **ends)[0] == "sh"


def test_pacing_is_passed_to_venturi_copy_with_its_unit():
    argv = argv_of(call_with(BUILT_IN["venturi"], pacing="500 Mb/s"), source="a", destination="b")
    assert argv[argv.index("--pacing") + 1] == "62500000B/s"
    assert "--pacing" not in argv_of(call_with(BUILT_IN["venturi"]), source="a", destination="b")


def test_the_reference_page_matches_the_mover_table():
    page = Path(__file__).parents[2] / "docs" / "reference" / "movers.md"
    assert page.read_text() == movers_reference(), (
        "write it anew: python -c 'import venturi.mover as m; print(m.movers_reference(), end=\"\")'"
    )


def test_the_mover_table_and_the_public_names_match_the_expected_lists():
    assert list(BUILT_IN) == [
        "cp", "read", "write", "fio-read", "fio-write", "bonnie", "rsync", "rclone", "venturi", "root-read", "root-write", "globus-url-copy", "xrdcp",
        "curl", "wget", "davix", "gfal-copy", "scp", "sftp", "bbftp", "iperf3", "nuttcp", "http-load", "managed",
    ]  # fmt: skip
    assert set(BUILT_IN) <= set(movers())
    assert set(venturi.mover.__all__) == {
        "BUILT_IN", "ENTRY_POINTS", "Command", "Mover", "MoverError", "Option", "OptionError",
        "OutputError", "ToolReport", "movers", "movers_reference", "resolve_options",
    }  # fmt: skip
