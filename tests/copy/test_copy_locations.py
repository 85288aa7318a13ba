"""Destination of a copy: the rules of `cp`, and of `rsync` for a trailing slash."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from copykit import copy, end_of, events, leftovers, tree_of


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Return the working directory, with two files and a directory that contains a file."""
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
def test_destinations_follow_the_rules_of_cp_and_rsync(engine, here, words, made):
    copy(engine, *words)
    assert (here / made).exists()
    assert leftovers(here) == []


def test_file_urls_are_local_paths(engine, here):
    copy(engine, f"file://{here}/file", f"file://{here}/a%20name")
    assert (here / "a name").read_bytes() == b"1"


@pytest.mark.parametrize(
    ("words", "code", "output"),
    [
        (["file", "other", "new"], 1, "new: expected a directory for several sources, found none; create it"),
        (["none*", "new"], 1, "none*: expected matches of the pattern, found none"),
        (["file"], 1, "SRC DST: expected a source and a destination; see --help, found one path"),
        (["root://host//file", "new"], 1, "found a `root:` URL"),
        (["file", "other/"], 1, "expected a directory, found another file type"),
        (["--concurrency", "0", "file", "new"], 2, "'0' for '--concurrency <N>': expected 1 to 1024"),
        (["--concurrency", "many", "file", "new"], 2, "'many' for '--concurrency <N>': expected 1 to 1024"),
        (["--streams", "257", "file", "new"], 2, "'257' for '--streams <N>': expected 1 to 256"),
        (
            ["--block", "1", "file", "new"],
            2,
            "'1' for '--block <SIZE>': expected a size from 4KiB to 1GiB, such as 256KiB",
        ),
        (["--nonsense", "file", "new"], 2, "--nonsense"),
        (["folder", "new"], 3, "folder: expected a file, found a directory; add --recursive"),
        (["none", "new"], 3, "none: expected a file or directory, found No such file or directory; "),
        (
            ["file", "none/new"],
            3,
            "none: expected a directory to copy into, found No such file or directory; ",
        ),
        (["file", "file"], 3, "file: expected a file or a free name, found the source itself; "),
        (
            ["-r", "folder", "folder/in"],
            3,
            "folder/in: expected a directory outside of the copy, found the copy itself",
        ),
        (["-T", "file", "folder"], 3, "folder: expected a file or a free name, found a directory; "),
        (
            ["--streams", "4", "file", "new"],
            1,
            "--streams: expected a server as source or destination, found",
        ),
        (
            ["--method", "kernel", "ftp://127.0.0.1:1/file", "new"],
            1,
            "--method: expected local paths only, found an FTP server",
        ),
        (
            ["--direct", "ftp://127.0.0.1:1/file", "new"],
            1,
            "--direct: expected local paths only, found an FTP server",
        ),
        (["--preserve", "all", "file", "http://127.0.0.1:1/new"], 1, "--preserve: expected mode and times;"),
        (
            ["--pipelining", "4", "http://127.0.0.1:1/file", "new"],
            1,
            "--pipelining: expected an FTP or GridFTP server",
        ),
        (
            ["--pacing", "1 Gb/s", "file", "new"],
            1,
            "--pacing: expected a local source and a server as destination",
        ),
        (
            ["--pacing", "1 Gb/s", "ftp://127.0.0.1:1/file", "new"],
            1,
            "only the sender can pace",
        ),
        (["--pacing", "1 Gb/s", "http://127.0.0.1:1/file", "http://127.0.0.1:1/new"], 1, "found another source"),
        (
            ["--pacing", "1000", "file", "ftp://127.0.0.1:1/new"],
            2,
            "'1000' for '--pacing <RATE>': expected a rate from 64 kb/s to 1 Tb/s",
        ),
    ],
)
def test_impossible_copies_are_reported_and_change_nothing(engine, here, words, code, output):
    before = {name: what for name, what in tree_of(here, times=False).items() if name != b"folder/in"}
    assert output in copy(engine, *words, code=code).stderr.decode()
    after = tree_of(here, times=False)
    assert {name: after[name] for name in before} == before


def test_a_dry_run_reports_and_does_nothing(engine, here):
    before = tree_of(here)
    output = events(engine, "-r", "--dry-run", "folder", "file", "made/")
    assert {event["path"]: event["outcome"] for event in output if event["event"] == "file"} == {
        "made/file": "would copy", "made/folder/inner": "would copy",
    }  # fmt: skip
    assert end_of(output)["files"] == 2
    assert tree_of(here) == before


def test_lists_accept_file_names_with_any_bytes(engine, here):
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


def test_the_last_source_for_a_destination_wins_even_if_the_first_is_slower(engine, here):
    (here / "first").mkdir()
    (here / "first" / "inner").write_bytes(bytes(50_000_000))
    copy(engine, "-r", "first/", "folder/", "there")
    assert (here / "there" / "inner").read_bytes() == b"333"
    copy(engine, "--list", "-", input=b"first/inner there/y\nother there/y\n")
    assert (here / "there" / "y").read_bytes() == b"22"
    assert leftovers(here) == []


def test_a_list_cannot_name_files_outside_the_source(engine, here):
    output = copy(engine, "--files-from", "-", "folder", "there", code=1, input=b"../file\n").stderr.decode()
    assert "expected a name below the source, without `..`, found ../file" in output


def test_links_are_copied_as_links_unless_following_is_requested(engine, here):
    (here / "folder" / "link").symlink_to("../file")
    (here / "folder" / "round").symlink_to(".")
    (here / "folder" / "dead").symlink_to("nowhere")
    copy(engine, "-r", "folder", "kept")
    assert (here / "kept" / "link").readlink() == Path("../file")
    assert tree_of(here / "kept") == tree_of(here / "folder")
    output = copy(engine, "-r", "-L", "folder", "followed", code=3).stderr.decode()
    assert not (here / "followed" / "link").is_symlink()
    assert (here / "followed" / "link").read_bytes() == b"1"
    assert (
        "folder/round: expected a directory outside of the copy, found a parent directory, through a link" in output
    )
    assert "folder/dead: expected to read its type, found No such file or directory; fix the link" in output
    copy(engine, "folder/link", "of a link")
    assert not (here / "of a link").is_symlink()


def test_existing_files_are_kept_replaced_or_updated_as_requested(engine, here):
    os.utime("file", (5, 5))
    copy(engine, "file", "there/x")
    for words, kept in ((["file", "there/x"], 1), (["--existing", "replace", "file", "there/x"], 0)):
        assert end_of(events(engine, *words))["kept"] == kept
    (here / "there" / "x").write_bytes(b"9")  # same size, but newer
    assert end_of(events(engine, "--existing", "keep", "file", "there/x"))["kept"] == 1
    assert (here / "there" / "x").read_bytes() == b"9"
    copy(engine, "file", "there/x")
    assert (here / "there" / "x").read_bytes() == b"1"
    (here / "there" / "x").write_bytes(b"8")
    os.utime("there/x", (5, 5))  # same size and time; only the content differs
    assert end_of(events(engine, "file", "there/x"))["kept"] == 1
    assert end_of(events(engine, "--checksum", "file", "there/x"))["files"] == 1
    assert (here / "there" / "x").read_bytes() == b"1"
    os.utime("there/x", (6, 6))
    assert end_of(events(engine, "--checksum", "file", "there/x"))["kept"] == 1
    assert (here / "there" / "x").stat().st_mtime == 5


def test_a_pipe_is_reported_as_skipped_and_created_only_on_request(engine, here):
    os.mkfifo(here / "folder" / "pipe")
    output = events(engine, "-r", "folder", "copy")
    assert [event["path"] for event in output if event["event"] == "skipped"] == ["folder/pipe"]
    assert end_of(output)["skipped"] == 1
    copy(engine, "-r", "--preserve", "special", "folder", "all")
    assert (here / "all" / "pipe").is_fifo()


def test_decisions_are_reported_with_reasons_and_fixed_settings_are_respected(engine, here):
    output = {
        event["setting"]: event for event in events(engine, "-r", "folder", "a") if event["event"] == "decision"
    }
    assert output["workers"]["value"] >= 1
    assert all(decision["reason"] for decision in output.values())
    words = ("-r", "--fixed", "--concurrency", "3", "--block", "64KiB", "folder", "b")
    output = {event["setting"]: event for event in events(engine, *words) if event["event"] == "decision"}
    assert (output["workers"]["value"], output["block_bytes"]["value"]) == (3, 65536)
    assert "workers = 1" in copy(engine, "-v", "--fixed", "-r", "folder", "c").stderr.decode()


def test_non_interactive_copies_print_only_errors(engine, here):
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
def test_the_last_event_reports_a_rejected_command(engine, here, words, code):
    done = copy(engine, "--json", *words, code=code, cwd=here)
    end = end_of([json.loads(line) for line in done.stdout.splitlines()])
    assert (end["outcome"], end["files"]) == ("rejected", 0)
    assert end["reason"] in " ".join(done.stderr.decode().split())


def test_closing_the_event_stream_ends_the_copy(engine, here):
    command = f'"{engine}" copy --json -r folder a | head -n 1; exit "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=20, check=False)
    assert b'"event":"start"' in done.stdout
    assert b"panicked" not in done.stderr


def test_the_python_command_runs_the_engine(engine, here):
    done = subprocess.run(["venturi", "copy", "--json", "-r", "folder", "new"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (here / "new" / "inner").read_bytes() == b"333"
    assert subprocess.run(["venturi", "copy", "folder", "x"], capture_output=True, check=False).returncode == 3
    output = subprocess.run(["venturi", "copy", "--help"], capture_output=True, text=True, check=False).stdout
    assert "--recursive" in output and "Exit codes" in output
