"""Where a copy comes to be: the rules of `cp`, and of `rsync` for a trailing slash."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from copykit import copy, end_of, events, leftovers, tree_of


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder to be in, with a file, another and a directory with a file."""
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "other").write_bytes(b"22")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inner").write_bytes(b"333")
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "made"),
    [
        (["file", "new"], "new"),
        (["file", "there"], "there/file"),
        (["file", "there/"], "there/file"),
        (["file", "made/"], "made/file"),
        (["file", "other", "there"], "there/other"),
        (["-r", "folder", "new"], "new/inner"),
        (["-r", "folder", "there"], "there/folder/inner"),
        (["-r", "folder/", "there"], "there/inner"),
        (["-r", "folder/.", "there"], "there/inner"),
        (["-r", "folder/", "new"], "new/inner"),
        (["-r", "-T", "folder", "there"], "there/inner"),
        (["-r", "folder", "file", "there"], "there/folder/inner"),
        (["--mkpath", "file", "a/b/c"], "a/b/c"),
        (["f*e", "there"], "there/file"),
        (["-r", "*o*", "made/"], "made/folder/inner"),
        (["-r", "f*/", "there"], "there/inner"),
        (["-r", "f*/", "there/"], "there/inner"),
        (["-r", "f*r/.", "there"], "there/inner"),
        (["./file", "there/."], "there/file"),
    ],
)
def test_a_copy_comes_to_be_where_users_of_cp_and_rsync_expect_it(engine, here, words, made):
    copy(engine, *words)
    assert (here / made).exists()
    assert leftovers(here) == []


def test_urls_of_files_are_paths(engine, here):
    copy(engine, f"file://{here}/file", f"file://{here}/a%20name")
    assert (here / "a name").read_bytes() == b"1"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["file", "other", "new"], 1, "new: expected a directory for several sources, found none; make it"),
        (["none*", "new"], 1, "none*: expected something of that pattern, found nothing"),
        (["file"], 1, "SRC DST: expected a source and a destination; see --help, found one place"),
        (["root://host//file", "new"], 1, "found a place of `root:`"),
        (["file", "other/"], 1, "expected a directory, found something else"),
        (["--concurrency", "0", "file", "new"], 2, "'0' for '--concurrency <N>': expected 1 to 1024"),
        (["--concurrency", "many", "file", "new"], 2, "'many' for '--concurrency <N>': expected 1 to 1024"),
        (["--streams", "257", "file", "new"], 2, "'257' for '--streams <N>': expected 1 to 256"),
        (
            ["--block", "1", "file", "new"],
            2,
            "'1' for '--block <SIZE>': expected a size from 4KiB to 1GiB, such as 256KiB",
        ),
        (["--nonsense", "file", "new"], 2, "--nonsense"),
        (["folder", "new"], 3, "folder: expected a file, found a directory; say --recursive"),
        (["none", "new"], 3, "none: expected a file or directory, found No such file or directory; name one"),
        (
            ["file", "none/new"],
            3,
            "none: expected a directory to copy into, found No such file or directory; make it",
        ),
        (["file", "file"], 3, "file: expected a file or nothing, found the source itself; name another"),
        (["-r", "folder", "folder/in"], 3, "expected a directory to be copied, found the copy itself"),
        (["-T", "file", "folder"], 3, "folder: expected a file or nothing, found a directory; remove it"),
        (
            ["--streams", "4", "file", "new"],
            1,
            "--streams: expected a place at a server as source or destination, found",
        ),
        (
            ["--method", "kernel", "ftp://127.0.0.1:1/file", "new"],
            1,
            "--method: expected places of this host alone, found one of FTP",
        ),
        (
            ["--direct", "ftp://127.0.0.1:1/file", "new"],
            1,
            "--direct: expected places of this host alone, found one of FTP",
        ),
        (["--preserve", "all", "file", "http://127.0.0.1:1/new"], 1, "--preserve: expected mode and times, which is"),
        (
            ["--pipelining", "4", "http://127.0.0.1:1/file", "new"],
            1,
            "--pipelining: expected a place at a server of FTP",
        ),
        (
            ["--pacing", "1 Gb/s", "file", "new"],
            1,
            "--pacing: expected this host as source and a server as destination",
        ),
        (
            ["--pacing", "1 Gb/s", "ftp://127.0.0.1:1/file", "new"],
            1,
            "the sender who paces (`venturi serve --pacing`)",
        ),
        (["--pacing", "1 Gb/s", "http://127.0.0.1:1/file", "http://127.0.0.1:1/new"], 1, "found another source"),
        (
            ["--pacing", "1000", "file", "ftp://127.0.0.1:1/new"],
            2,
            "'1000' for '--pacing <RATE>': expected a rate from 64 kb/s to 1 Tb/s",
        ),
    ],
)
def test_what_cannot_be_is_told_with_what_was_expected_and_what_to_do(engine, here, words, code, told):
    before = {name: what for name, what in tree_of(here, times=False).items() if name != b"folder/in"}
    assert told in copy(engine, *words, code=code).stderr.decode()
    after = tree_of(here, times=False)
    assert {name: after[name] for name in before} == before


def test_a_dry_run_tells_and_does_nothing(engine, here):
    before = tree_of(here)
    told = events(engine, "-r", "--dry-run", "folder", "file", "made/")
    assert {event["path"]: event["outcome"] for event in told if event["event"] == "file"} == {
        "made/file": "would copy", "made/folder/inner": "would copy",
    }  # fmt: skip
    assert end_of(told)["files"] == 2
    assert tree_of(here) == before


def test_lists_name_files_whatever_bytes_their_names_have(engine, here):
    odd = b"a\nb\xff"
    (here / "folder" / os.fsdecode(odd)).write_bytes(b"odd")
    copy(engine, "-0", "--files-from", "-", ".", "out", input=b"file\0folder/" + odd + b"\0")
    assert tree_of(here / "out", times=False).keys() == {b".", b"file", b"folder", b"folder/" + odd}
    (here / "list").write_text(f"file {here}/pair1\nfile://{here}/other pair2\n")
    copy(engine, "--list", "list")
    assert ((here / "pair1").read_bytes(), (here / "pair2").read_bytes()) == (b"1", b"22")
    copy(engine, "--files-from", "-", ".", "crlf", input=b"file\r\n\r\nfolder/inner\r\n")
    assert tree_of(here / "crlf", times=False).keys() == {b".", b"file", b"folder", b"folder/inner"}
    assert "list, line 1" in copy(engine, "--list", "/dev/stdin", code=1, input=b"one\n").stderr.decode().replace(
        "/dev/stdin", "list"
    )


def test_of_several_sources_for_one_place_the_last_wins_however_long_the_first_takes(engine, here):
    (here / "first").mkdir()
    (here / "first" / "inner").write_bytes(bytes(50_000_000))
    copy(engine, "-r", "first/", "folder/", "there")
    assert (here / "there" / "inner").read_bytes() == b"333"
    copy(engine, "--list", "-", input=b"first/inner there/y\nother there/y\n")
    assert (here / "there" / "y").read_bytes() == b"22"
    assert leftovers(here) == []


def test_a_list_cannot_lead_out_of_the_destination(engine, here):
    told = copy(engine, "--files-from", "-", "folder", "there", code=1, input=b"../file\n").stderr.decode()
    assert "expected a name below the source, without `..`, found ../file" in told


def test_links_stay_links_unless_they_are_to_be_followed(engine, here):
    (here / "folder" / "link").symlink_to("../file")
    (here / "folder" / "round").symlink_to(".")
    (here / "folder" / "dead").symlink_to("nowhere")
    copy(engine, "-r", "folder", "kept")
    assert (here / "kept" / "link").readlink() == Path("../file")
    assert tree_of(here / "kept") == tree_of(here / "folder")
    told = copy(engine, "-r", "-L", "folder", "followed", code=3).stderr.decode()
    assert not (here / "followed" / "link").is_symlink()
    assert (here / "followed" / "link").read_bytes() == b"1"
    assert "folder/round: expected a directory to be copied, found one that it is in, through a link" in told
    assert "folder/dead: expected to see what it is, found No such file or directory; mend the link, or leave" in told
    copy(engine, "folder/link", "of a link")
    assert not (here / "of a link").is_symlink()


def test_what_is_there_is_kept_replaced_or_left_as_asked_for(engine, here):
    os.utime("file", (5, 5))
    copy(engine, "file", "there/x")
    for words, kept in ((["file", "there/x"], 1), (["--existing", "replace", "file", "there/x"], 0)):
        assert end_of(events(engine, *words))["kept"] == kept
    (here / "there" / "x").write_bytes(b"9")  # as long, but newer
    assert end_of(events(engine, "--existing", "keep", "file", "there/x"))["kept"] == 1
    assert (here / "there" / "x").read_bytes() == b"9"
    copy(engine, "file", "there/x")
    assert (here / "there" / "x").read_bytes() == b"1"
    (here / "there" / "x").write_bytes(b"8")
    os.utime("there/x", (5, 5))  # as long and as old: only its content tells
    assert end_of(events(engine, "file", "there/x"))["kept"] == 1
    assert end_of(events(engine, "--checksum", "file", "there/x"))["files"] == 1
    assert (here / "there" / "x").read_bytes() == b"1"
    os.utime("there/x", (6, 6))
    assert end_of(events(engine, "--checksum", "file", "there/x"))["kept"] == 1
    assert (here / "there" / "x").stat().st_mtime == 5


def test_what_is_no_file_is_told_and_made_only_where_asked_for(engine, here):
    os.mkfifo(here / "folder" / "pipe")
    told = events(engine, "-r", "folder", "copy")
    assert [event["path"] for event in told if event["event"] == "skipped"] == ["folder/pipe"]
    assert end_of(told)["left_out"] == 1
    copy(engine, "-r", "--preserve", "special", "folder", "all")
    assert (here / "all" / "pipe").is_fifo()


def test_decisions_are_told_with_their_reasons_and_fixed_ones_are_as_asked_for(engine, here):
    told = {event["what"]: event for event in events(engine, "-r", "folder", "a") if event["event"] == "decision"}
    assert told["workers"]["value"] >= 1
    assert all(decision["reason"] for decision in told.values())
    words = ("-r", "--fixed", "--concurrency", "3", "--block", "64KiB", "folder", "b")
    told = {event["what"]: event for event in events(engine, *words) if event["event"] == "decision"}
    assert (told["workers"]["value"], told["block_bytes"]["value"]) == (3, 65536)
    assert "workers = 1" in copy(engine, "-v", "--fixed", "-r", "folder", "c").stderr.decode()


def test_scripts_hear_nothing_but_errors(engine, here):
    done = copy(engine, "-r", "folder", "a")
    assert (done.stdout, done.stderr) == (b"", b"")
    done = copy(engine, "-q", "none", "b", code=3)
    assert done.stdout == b"" and b"none" in done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["nosuch*", "q"], 1),
        (["ftp://127.0.0.1:1/x", "q"], 1),
        (["gopher://h/x", "q"], 1),
        (["--streams", "2", "one", "q"], 1),
        (["--concurrency", "0", "one", "q"], 2),
        (["--nonsense", "one", "q"], 2),
        ([], 2),
    ],
)
def test_the_last_event_tells_of_an_order_that_was_refused_too(engine, here, words, code):
    done = copy(engine, "--json", *words, code=code, cwd=here)
    end = end_of([json.loads(line) for line in done.stdout.splitlines()])
    assert (end["outcome"], end["files"]) == ("refused", 0)
    assert end["reason"] in " ".join(done.stderr.decode().split())


def test_a_reader_of_events_that_goes_away_ends_the_copy(engine, here):
    command = f'"{engine}" copy --json -r folder a | head -n 1; exit "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=20, check=False)
    assert b'"event":"start"' in done.stdout
    assert b"panicked" not in done.stderr


def test_the_command_of_python_hands_over_to_the_engine(engine, here):
    done = subprocess.run(["venturi", "copy", "--json", "-r", "folder", "new"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (here / "new" / "inner").read_bytes() == b"333"
    assert subprocess.run(["venturi", "copy", "folder", "x"], capture_output=True, check=False).returncode == 3
    told = subprocess.run(["venturi", "copy", "--help"], capture_output=True, text=True, check=False).stdout
    assert "--recursive" in told and "Exit codes" in told
