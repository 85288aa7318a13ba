"""`venturi-engine copy` with unmodified Globus servers: received files are equal, and failures are reported."""

import os

import pytest
from copykit import copy, end_of, events, leftovers, tree_of
from ftpkit import SIZES, Server, below, content, contents, large, make_tree

from testkit import needs_programs

pytestmark = needs_programs("globus-gridftp-server")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--fixed"],
        ["--streams", "4"],
        ["--concurrency", "3", "--pipelining", "2"],
        ["--fixed", "--streams", "2", "--pipelining", "64", "--block", "64KiB", "--window", "256KiB"],
    ],
)
def test_a_tree_is_unchanged_after_upload_or_download(engine, server, here, words):
    make_tree(here / "tree")
    there = below(server, here)
    output = events(engine, "-r", *words, "tree", f"{there}/up")
    assert (end_of(output)["files"], end_of(output)["links"]) == (40, 1)
    assert contents(here / "up") == contents(here / "tree")
    output = events(engine, "-r", *words, f"{there}/tree", "down")
    assert (end_of(output)["files"], end_of(output)["links"], end_of(output)["errors"]) == (40, 1, 0)
    # Servers report and set times in whole seconds, and do not set the times of links.
    kept = {name: what for name, what in tree_of(here / "down").items() if name != b"d0/link"}
    assert kept == {name: what for name, what in tree_of(here / "tree").items() if name != b"d0/link"}
    assert leftovers(here) == []


def test_modes_and_times_are_kept_at_the_server(engine, server, here):
    make_tree(here / "tree")
    copy(engine, "-r", "tree", f"{below(server, here)}/up")
    seen = {name: what[1:3] for name, what in tree_of(here / "up").items() if name != b"d0/link"}
    assert seen == {name: what[1:3] for name, what in tree_of(here / "tree").items() if name != b"d0/link"}


def test_a_repeated_copy_moves_nothing_and_a_later_one_only_the_changed_file(engine, server, here):
    make_tree(here / "tree")
    there = below(server, here)
    for words in (["tree/", f"{there}/up"], [f"{there}/tree/", "down"]):
        assert end_of(events(engine, "-r", *words))["files"] == 40
        again = end_of(events(engine, "-r", *words))
        assert (again["files"], again["kept"], again["moved_bytes"]) == (0, 41, 0)
    changed = next(path for path in sorted((here / "tree").rglob("*")) if path.is_file())
    changed.write_bytes(b"changed")
    changed.chmod(0o644)
    for words, copied in ((["tree/", f"{there}/up"], here / "up"), ([f"{there}/tree/", "down"], here / "down")):
        assert end_of(events(engine, "-r", *words))["files"] == 1
        assert (copied / changed.relative_to(here / "tree")).read_bytes() == b"changed"


def test_hundreds_of_small_files_are_pipelined_and_each_has_its_own_bytes(engine, server, here):
    (here / "many").mkdir()
    for number in range(600):
        (here / "many" / f"f{number:04}").write_bytes(content(number, 1000))
    there = below(server, here)
    copy(engine, "-r", f"{there}/many", "down")
    copy(engine, "-r", "many", f"{there}/up")
    for copied in ("down", "up"):
        assert contents(here / copied) == contents(here / "many")


def test_a_failed_file_does_not_affect_other_files(engine, server, here):
    """The bytes of a rejected file are never stored in the next one (reference: protocols, section 6)."""
    (here / "many").mkdir()
    for number in range(60):
        (here / "many" / f"f{number:02}").write_bytes(content(number, 1000))
    (here / "closed").mkdir(mode=0o755)
    there = below(server, here)
    pairs = [
        (f"many/f{number:02}", f"{there}/{'closed' if number % 20 == 7 else 'up'}/f{number:02}")
        for number in range(60)
    ]
    (here / "up").mkdir()
    (here / "up").chmod(0o777)
    (here / "list").write_text("".join(f"{source} {copied}\n" for source, copied in pairs))
    output = copy(engine, "--list", "list", code=3).stderr.decode()
    assert output.count("closed/f") == 3 and "Permission denied" in output
    assert list((here / "closed").iterdir()) == []
    for number in range(60):
        if number % 20 != 7:
            assert (here / "up" / f"f{number:02}").read_bytes() == content(number, 1000)
    (here / "list").write_text(
        "".join(
            f"{there}/many/{'none' if number % 20 == 7 else 'f'}{number:02} {here}/g{number:02}\n"
            for number in range(60)
        )
    )
    assert copy(engine, "--list", "list", code=3).stderr.decode().count("expected a file or directory") == 3
    for number in range(60):
        assert (here / f"g{number:02}").exists() == (number % 20 != 7)
        if number % 20 != 7:
            assert (here / f"g{number:02}").read_bytes() == content(number, 1000)
    assert leftovers(here) == []


def test_destination_rules_and_patterns_are_those_of_local_copies(engine, server, here):
    make_tree(here / "tree", files=10)
    (here / "there").mkdir()
    (here / "there").chmod(0o777)
    (here / "a.root").write_bytes(b"1")
    (here / "b.root").write_bytes(b"2")
    there = below(server, here)
    for words, made in (
        ([f"{there}/a.root", "new"], "new"),
        ([f"{there}/a.root", "there"], "there/a.root"),
        ([f"{there}/a.root", "made/"], "made/a.root"),
        ([f"{there}/*.root", "there"], "there/b.root"),
        (["-r", f"{there}/tree", "there"], "there/tree/empty"),
        (["-r", f"{there}/tree/", "into"], "into/empty"),
        (["--mkpath", "a.root", f"{there}/x/y/z"], "x/y/z"),
        (["a.root", "b.root", f"{there}/there/"], "there/b.root"),
        (["-r", "tree", f"{there}/there"], "there/tree/empty"),
        (["--files-from", "-", there, "listed"], "listed/b.root"),
    ):
        copy(engine, *words, input=b"a.root\nb.root\n")
        assert (here / made).exists(), words
    output = copy(engine, f"{there}/*.none", "x", code=1).stderr.decode()
    assert "expected matches of the pattern, found none" in output


def test_impossible_copies_are_reported_without_passwords(engine, server, here):
    there = below(server, here)
    (here / "file").write_bytes(b"1")
    (here / "é").write_bytes(b"1")
    (here / "folder").mkdir()
    os.mkfifo(here / "pipe")
    closed = there.replace(str(server.port), "1")
    for words, code, output in (
        ([f"{there}/none", "x"], 3, "none: expected a file or directory, found 550"),
        ([f"{there}/folder", "x"], 3, "expected a file, found a directory; add --recursive"),
        ([f"{closed}/file", "x"], 1, "expected a successful login, found cannot connect to 127.0.0.1:1"),
        (
            [there.replace("ftp://", "ftp://somebody:secret@") + "/file", "x"],
            1,
            "expected a successful login, found the server rejected the login: `530",
        ),
        (["sshftp://ann:secret@h/file", "x"], 1, "expected no password"),
        (["file", f"{there}/none/x"], 3, "none/x: expected a copy at the server, found"),
        (["file", f"{there}/none/x"], 3, "add --mkpath if its directory does not exist"),
        (["pipe", f"{there}/y"], 3, "pipe: expected a file or directory, found a named pipe"),
        (["/dev/null", f"{there}/y"], 3, "/dev/null: expected a file or directory, found a device"),
        ([f"{there}/%C3%A9", "x"], 3, "expected a name that the server supports"),
        (["é", f"{there}/"], 3, "expected a name that the server supports"),
        ([f"{there}/file", "https://h/x"], 1, "through this host"),
    ):
        printed = copy(engine, *words, code=code).stderr.decode()
        assert output in printed, printed
        assert "secret" not in printed
    printed = copy(engine, "--json", there.replace("ftp://", "ftp://somebody:secret@") + "/file", "x", code=1)
    assert b"secret" not in printed.stdout + printed.stderr
    assert not (here / "x").exists()


def test_a_dry_run_reports_and_does_nothing(engine, server, here):
    make_tree(here / "tree", files=10)
    there = below(server, here)
    before = tree_of(here)
    for words in (["tree", f"{there}/up"], [f"{there}/tree", "down"]):
        output = events(engine, "-r", "--dry-run", *words)
        assert sum(event.get("outcome") == "would copy" for event in output) == 10
        assert tree_of(here) == before


def test_verify_compares_files_at_both_ends_and_checksum_compares_content(engine, server, here):
    (here / "many").mkdir()
    for number in range(20):
        (here / "many" / f"f{number:02}").write_bytes(content(number, SIZES[number % len(SIZES)]))
    large(here / "many" / "large", (130 << 20) + 5)
    there = below(server, here)
    assert end_of(events(engine, "--verify", "-r", "many", f"{there}/up"))["files"] == 21
    assert end_of(events(engine, "--verify", "-r", f"{there}/many", "down"))["files"] == 21
    assert contents(here / "up") == contents(here / "down") == contents(here / "many")
    # Same size and time, but other content.
    for copied in ("up", "down"):
        wrong = here / copied / "f01"
        seen = wrong.stat()
        wrong.write_bytes(b"?")
        os.utime(wrong, (seen.st_atime, seen.st_mtime))
    for words, copied in ((["many/", f"{there}/up"], "up"), ([f"{there}/many/", "down"], "down")):
        assert end_of(events(engine, "-r", *words))["kept"] == 21
        output = end_of(events(engine, "--checksum", "-r", *words))
        assert (output["files"], output["kept"]) == (1, 20)
        assert (here / copied / "f01").read_bytes() == content(1, 1)


def test_copies_between_servers_arrive_and_an_unreadable_file_affects_no_other(engine, server, here):
    other = Server(server.directory)
    try:
        make_tree(here / "tree")
        there, beyond = below(server, here), below(other, here)
        output = events(engine, "-r", f"{there}/tree/", f"{beyond}/third")
        assert end_of(output)["files"] == 40 and end_of(output)["errors"] == 0
        want = {name: what for name, what in contents(here / "tree").items() if name != b"d0/link"}
        assert contents(here / "third") == want
        again = end_of(events(engine, "-r", f"{there}/tree/", f"{beyond}/third"))
        assert (again["files"], again["kept"]) == (0, 40)
        # An unreadable file does not affect others.
        next(path for path in sorted((here / "tree").rglob("*file*")) if path.is_file()).chmod(0)
        output = events(engine, "-r", f"{there}/tree/", f"{beyond}/fourth", code=3)
        assert (end_of(output)["files"], end_of(output)["errors"]) == (39, 1)
        for path in (here / "fourth").rglob("*"):
            if path.is_file():
                assert path.read_bytes() == (here / "tree" / path.relative_to(here / "fourth")).read_bytes()
    finally:
        other.stop()


def test_decisions_are_reported_and_fixed_settings_are_respected(engine, server, here):
    (here / "file").write_bytes(b"1")
    words = [
        "--fixed",
        "--streams",
        "3",
        "--pipelining",
        "7",
        "--concurrency",
        "2",
        f"{below(server, here)}/file",
        "x",
    ]
    output = {event["setting"]: event for event in events(engine, *words) if event["event"] == "decision"}
    assert (output["streams"]["value"], output["pipelining"]["value"], output["sessions"]["value"]) == (3, 7, 2)
    assert all(decision["reason"] for decision in output.values())
