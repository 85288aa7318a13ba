import errno
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from venturi.errors import RunError
from venturi.run import journal
from venturi.run.journal import AppendFile, complete_bytes, max_line_bytes


def write(path, contents):
    file = AppendFile(path, durable=True)
    for content in contents:
        file.append(content)
    file.close()


def read(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_lines_are_read_in_the_order_in_which_they_were_appended(tmp_path):
    contents = [{"number": number, "text": 'é\n"' * number} for number in range(100)]
    write(tmp_path / "journal.jsonl", contents)
    assert read(tmp_path / "journal.jsonl") == contents


def test_flush_returns_after_the_lines_are_readable(tmp_path):
    file = AppendFile(tmp_path / "journal.jsonl", durable=True)
    for number in range(3):
        file.append({"number": number})
        file.flush()
        assert len(read(tmp_path / "journal.jsonl")) == number + 1
    file.close()


def test_many_lines_share_one_fsync(tmp_path, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(journal.os, "fsync", lambda descriptor: (synced.append(descriptor), real(descriptor))[1])
    write(tmp_path / "journal.jsonl", [{"number": number} for number in range(10_000)])
    assert len(read(tmp_path / "journal.jsonl")) == 10_000
    assert 1 <= len(synced) < 1_000


@given(
    cut=st.integers(min_value=0, max_value=400),
    garbage=st.sampled_from([b"", b"\0" * 50, b"\0" * 9 + b"\n", b"}{\n", b"[]\n"]),
)
def test_complete_lines_survive_any_torn_end_of_the_file(tmp_path_factory, cut, garbage):
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    contents = [{"trial": f"t{number:07d}"} for number in range(15)]
    whole = b"".join(json.dumps(content, separators=(",", ":")).encode() + b"\n" for content in contents)
    path.write_bytes(whole[:cut] + garbage)
    write(path, [{"trial": "new"}])
    columns_sql = whole[:cut].count(b"\n")
    assert read(path) == [*contents[:columns_sql], {"trial": "new"}]


def test_a_reader_sees_only_complete_lines(tmp_path):
    path = tmp_path / "journal.jsonl"
    assert complete_bytes(path) == 0
    path.write_bytes(b'{"a":1}\n{"b":')
    assert complete_bytes(path) == len(b'{"a":1}\n')
    path.write_bytes(b"x" * 200_000)
    assert complete_bytes(path) == 0


def test_a_full_disk_is_reported_immediately_and_leaves_no_torn_line(tmp_path, monkeypatch):
    path = tmp_path / "journal.jsonl"
    file = AppendFile(path, durable=True)
    file.append({"number": 0})
    file.flush()
    real = os.write

    def full(descriptor, content):
        if descriptor != file._descriptor:
            return real(descriptor, content)
        if len(content) > 3:
            return real(descriptor, content[:3])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(journal.os, "write", full)
    file.append({"n": 1})
    with pytest.raises(RunError, match=r"No space left on device.*are safe"):
        file.flush()
    with pytest.raises(RunError, match="Free disk space, then resume"):
        file.append({"number": 2})
    with pytest.raises(RunError):
        file.close()
    file.close()
    assert read(path) == [{"number": 0}]


def test_a_number_that_is_not_valid_json_is_rejected(tmp_path):
    file = AppendFile(tmp_path / "journal.jsonl", durable=True)
    with pytest.raises(ValueError, match="JSON"):
        file.append({"rate": float("nan")})
    file.close()


def test_a_file_in_a_missing_directory_is_a_clear_error(tmp_path):
    with pytest.raises(RunError, match=r"gone/journal.jsonl: cannot open"):
        AppendFile(tmp_path / "gone" / "journal.jsonl", durable=True)


@given(
    lengths=st.lists(st.integers(min_value=0, max_value=40), max_size=30),
    tail=st.integers(min_value=0, max_value=40),
    usual=st.integers(min_value=1, max_value=30),
)
def test_the_maximum_line_length_is_exact_and_at_least_the_usual_length(tmp_path_factory, lengths, tail, usual):
    path = tmp_path_factory.mktemp("lines") / "lines"
    path.write_bytes(b"".join(b"x" * length + b"\n" for length in lengths) + b"x" * tail)
    assert max_line_bytes(path, usual) == max([usual, tail, *(length + 1 for length in lengths)])


def test_the_length_of_a_line_over_many_blocks_is_exact(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"x" * 9 + b"\n" + b"y" * 300_000 + b"\n" + b"z\n")
    assert max_line_bytes(path, 20) == 300_001
