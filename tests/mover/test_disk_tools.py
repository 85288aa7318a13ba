"""fio and bonnie++ with the real programs: bytes moved, rejected calls, and agreement between two tools on one disk."""

from __future__ import annotations

import os
import shutil

import pytest
from callkit import call_with, execute, transfer_argv

from venturi.mover import BUILT_IN, OptionError

MEBIBYTE = 1 << 20
SIZE = 8 * MEBIBYTE


def run_mover(name, source, destination, size, **options):
    """Execute a call and return its record, even if it failed."""
    call = call_with(BUILT_IN[name], **options)
    for tool in call.requires:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    return execute(transfer_argv(call, source, destination, size))


@pytest.mark.parametrize(
    "options", [{}, {"block": "64 KiB", "engine": "libaio", "depth": 4}, {"fsync": False}], ids=str
)
def test_fio_writes_the_requested_bytes_and_reports_them(options, tmp_path):
    record = run_mover("fio-write", "/dev/zero", tmp_path / "w", SIZE, **options)
    report = BUILT_IN["fio-write"].parse(record)
    assert report.bytes == SIZE == (tmp_path / "w").stat().st_size
    # The data are not zeros, so a compressing storage has no advantage.
    assert len(set((tmp_path / "w").read_bytes()[:4096])) > 100


def test_fio_reads_the_whole_file_and_its_rate_uses_the_time_reported_by_fio(tmp_path):
    (tmp_path / "r").write_bytes(os.urandom(SIZE))
    record = run_mover("fio-read", tmp_path / "r", "/dev/null", SIZE, block="256 KiB")
    report = BUILT_IN["fio-read"].parse(record)
    assert report.bytes == SIZE
    assert report.duration_s is not None
    if report.duration_s > 0:
        assert report.rate_bytes_per_s == pytest.approx(SIZE / report.duration_s)
    assert (tmp_path / "r").stat().st_size == SIZE


@pytest.mark.parametrize("name", ["fio-read", "fio-write"])
def test_a_size_that_is_not_a_multiple_of_the_fio_block_is_rejected(name, tmp_path):
    (tmp_path / "f").write_bytes(bytes(SIZE))
    ends = (tmp_path / "f", "/dev/null") if name == "fio-read" else ("/dev/zero", tmp_path / "w")
    record = run_mover(name, *ends, SIZE - 1)
    assert record["exit_code"] == 2
    assert f"expected a size of whole blocks of 1048576 B, found {SIZE - 1} B" in record["stderr"]


def test_bonnie_removes_its_files_and_reports_available_rates(tmp_path):
    record = run_mover("bonnie", "/dev/zero", tmp_path / "b", SIZE, memory="4 MiB")
    assert record["outcome"] == "ok", record
    report = BUILT_IN["bonnie"].parse(record)
    assert list((tmp_path / "b").iterdir()) == []
    assert report.bytes is None
    assert report.detail["version"].startswith("2.")
    assert all(value > 0 for name, value in report.detail.items() if name.endswith("_per_s"))


def test_bonnie_rejects_a_file_smaller_than_twice_the_given_memory(tmp_path):
    record = run_mover("bonnie", "/dev/zero", tmp_path / "b", SIZE, memory="8 MiB")
    assert record["exit_code"] == 1
    assert "File size should be double RAM" in record["stderr"]


def test_a_size_that_is_not_a_multiple_of_a_mebibyte_is_rejected_for_bonnie(tmp_path):
    record = run_mover("bonnie", "/dev/zero", tmp_path / "b", SIZE + 1, memory="4 MiB")
    assert record["exit_code"] == 2
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"block": "3 KiB"}, "a power of 2, found 3072 B"), ({"block": "2 MiB"}, "256 B to 1 MiB"),
     ({"memory": "1000 kB"}, "a memory of whole MiB, found 1000000 B")],
)  # fmt: skip
def test_option_values_that_bonnie_does_not_support_are_rejected_with_a_message(options, message):
    with pytest.raises(OptionError, match=message):
        call_with(BUILT_IN["bonnie"], **options)
