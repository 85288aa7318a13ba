"""fio and bonnie++ with the real programs: what they move, what they refuse, and that two tools tell of one disk."""

from __future__ import annotations

import os
import shutil

import pytest
from callkit import call_with, carry_out, transfer_argv

from venturi.mover import BUILT_IN, OptionError

MEBIBYTE = 1 << 20
SIZE = 8 * MEBIBYTE


def carry(name, source, destination, size, **options):
    """Carry out a call and return its record, whatever became of it."""
    call = call_with(BUILT_IN[name], **options)
    for tool in call.requires:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    return carry_out(transfer_argv(call, source, destination, size))


@pytest.mark.parametrize(
    "options", [{}, {"block": "64 KiB", "engine": "libaio", "depth": 4}, {"fsync": False}], ids=str
)
def test_fio_writes_as_much_as_was_asked_and_says_so(options, tmp_path):
    record = carry("fio-write", "/dev/zero", tmp_path / "w", SIZE, **options)
    report = BUILT_IN["fio-write"].parse(record)
    assert report.bytes == SIZE == (tmp_path / "w").stat().st_size
    # What was written is no zeros: a storage that compresses has no advantage.
    assert len(set((tmp_path / "w").read_bytes()[:4096])) > 100


def test_fio_reads_the_whole_file_and_its_rate_is_bytes_over_its_own_time(tmp_path):
    (tmp_path / "r").write_bytes(os.urandom(SIZE))
    record = carry("fio-read", tmp_path / "r", "/dev/null", SIZE, block="256 KiB")
    report = BUILT_IN["fio-read"].parse(record)
    assert report.bytes == SIZE
    assert report.duration_s is not None
    if report.duration_s > 0:
        assert report.rate_bytes_per_s == pytest.approx(SIZE / report.duration_s)
    assert (tmp_path / "r").stat().st_size == SIZE


@pytest.mark.parametrize("name", ["fio-read", "fio-write"])
def test_fio_is_not_asked_for_a_part_of_a_block_which_it_would_leave_out_without_a_word(name, tmp_path):
    (tmp_path / "f").write_bytes(bytes(SIZE))
    ends = (tmp_path / "f", "/dev/null") if name == "fio-read" else ("/dev/zero", tmp_path / "w")
    record = carry(name, *ends, SIZE - 1)
    assert record["exit_code"] == 2
    assert f"expected a size of whole blocks of 1048576 B, found {SIZE - 1} B" in record["stderr"]


def test_bonnie_leaves_nothing_of_its_file_and_tells_rates_where_it_could(tmp_path):
    record = carry("bonnie", "/dev/zero", tmp_path / "b", SIZE, memory="4 MiB")
    assert record["outcome"] == "ok", record
    report = BUILT_IN["bonnie"].parse(record)
    assert list((tmp_path / "b").iterdir()) == []
    assert report.bytes is None
    assert report.detail["version"].startswith("2.")
    assert all(value > 0 for name, value in report.detail.items() if name.endswith("_per_s"))


def test_bonnie_refuses_a_file_that_fits_into_the_memory_that_it_is_told(tmp_path):
    record = carry("bonnie", "/dev/zero", tmp_path / "b", SIZE, memory="8 MiB")
    assert record["exit_code"] == 1
    assert "File size should be double RAM" in record["stderr"]


def test_bonnie_is_not_asked_for_a_part_of_a_mebibyte(tmp_path):
    record = carry("bonnie", "/dev/zero", tmp_path / "b", SIZE + 1, memory="4 MiB")
    assert record["exit_code"] == 2
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"block": "3 KiB"}, "a power of 2, found 3072 B"), ({"block": "2 MiB"}, "256 B to 1 MiB"),
     ({"memory": "1000 kB"}, "a memory of whole MiB, found 1000000 B")],
)  # fmt: skip
def test_what_bonnie_has_no_way_to_be_told_is_refused_with_a_sentence(options, message):
    with pytest.raises(OptionError, match=message):
        call_with(BUILT_IN["bonnie"], **options)
