"""Destinations on this host and at our own FTP and HTTP server: existing, rejected and final paths."""

import json
import os
import socket
import stat
import subprocess
import threading

import pytest
from copykit import copy, end_of, events, leftovers
from fakepeer import FakePeer
from ftpkit import below
from httpkit import puppet

from testkit import needs_programs, wait_until


@pytest.fixture
def locations(engine, tmp_path, monkeypatch):
    """Yield the locations of a directory on an FTP and an HTTP server, and enter another directory."""
    (tmp_path / "served").mkdir()
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path / "own")
    log = tmp_path / "serve.jsonl"
    service_ports = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    with log.open("wb") as out:
        command = [engine, "serve", tmp_path / "served", *service_ports, "--write", "--json"]
        process = subprocess.Popen(command, stdout=out)
    with process:
        wait_until(lambda: b"\n" in log.read_bytes(), "the server to listen", 20)
        started = json.loads(log.read_text().split("\n")[0])
        yield {
            "local": tmp_path / "served",
            "ftp": f"ftp://{started['listen'][0]}",
            "http": f"http://{started['http'][0]}",
        }
        process.kill()


def tree(directory, names=("one", "two", "three")):
    """Create a tree with a few files and one in a subdirectory."""
    (directory / "deep").mkdir(parents=True)
    for path in [*(directory / name for name in names), directory / "deep" / "four"]:
        path.write_bytes(path.name.encode())
        os.utime(path, (1_600_000_000, 1_600_000_000))
    return directory


def leave_unfinished(engine, source, copied, lost):
    """Leave an unfinished copy of a tree, as after a power cut.

    A name, size and time are correct, the bytes are lost, and the journal has another boot id.
    """
    (copied / lost).mkdir(parents=True)
    copy(engine, "-r", "-T", source, copied, code=3)
    (copied / lost).rmdir()
    (copied / lost).write_bytes(b"\0" * len(lost))
    os.utime(copied / lost, (1_600_000_000, 1_600_000_000))
    (journal,) = copied.glob(".venturi-*.journal")
    journal.write_text("venturi copy 1\nanother boot\n")


def test_after_a_host_crash_checksums_decide_which_files_of_a_tree_are_complete(engine, locations, tmp_path):
    source, copied = tree(tmp_path / "served" / "tree"), tmp_path / "copied"
    leave_unfinished(engine, f"{locations['ftp']}/tree", copied, "two")
    output = events(engine, "-r", f"{locations['ftp']}/tree", copied)
    assert (end_of(output)["files"], end_of(output)["kept"]) == (1, 3)
    (resumed,) = (event for event in output if event.get("setting") == "resumed")
    assert "by content, because the host" in resumed["reason"]
    assert (copied / "two").read_bytes() == (source / "two").read_bytes()
    assert leftovers(copied) == []


def test_after_a_host_crash_files_of_a_server_without_checksums_are_copied_again(engine, tmp_path):
    names = ["f1", "f2", "f3"]
    peer = FakePeer({f"/d/{name}": name.encode() for name in names}, directories=["/d"])
    try:
        leave_unfinished(engine, peer.url("/d"), tmp_path / "copied", "f2")
        end = end_of(events(engine, "-r", peer.url("/d"), tmp_path / "copied"))
    finally:
        peer.stop()
    assert (end["files"], end["kept"]) == (3, 0)
    assert [(tmp_path / "copied" / name).read_bytes() for name in names] == [name.encode() for name in names]


@pytest.mark.parametrize("existing", ["update", "replace", "keep"])
@pytest.mark.parametrize("what", ["a named pipe", "a socket", "a device"])
@pytest.mark.parametrize("method", ["ftp", "http"])
def test_a_download_does_not_replace_a_pipe_a_socket_or_a_device(engine, locations, tmp_path, method, what, existing):
    tree(tmp_path / "served" / "tree")
    (tmp_path / "copied").mkdir()
    location = tmp_path / "copied" / "one"
    if what == "a named pipe":
        os.mkfifo(location)
    elif what == "a socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(location))
    else:
        try:
            os.mknod(location, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("whoever runs this may make no devices")
    before = location.lstat()
    for words in (
        [f"{locations[method]}/tree/one", location],
        ["-r", f"{locations[method]}/tree/", tmp_path / "copied"],
    ):
        if existing == "keep":
            assert end_of(events(engine, "--existing", existing, *words))["kept"] == 1
        else:
            output = copy(engine, "--existing", existing, *words, code=3).stderr.decode()
            assert f"{location}: expected a file or " in output and f", found {what}; delete it" in output
        after = location.lstat()
        assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)


METHODS = ["local to local", "ftp to local", "local to ftp", "http to local", "local to http", "http to http"]


def ends(locations, tmp_path, method):
    """Return the source and destination of a copy by a method, and the local path of the destination."""
    source, _, copied = method.partition(" to ")
    here = tmp_path / ("own" if copied == "local" else "served") / "copied"
    tree(tmp_path / ("own" if source == "local" else "served") / "tree")
    named = locations | {"local": tmp_path / "own"}
    return f"{named[source]}/tree", f"{named[copied]}/copied", here


@pytest.mark.parametrize("method", METHODS)
def test_a_list_destination_with_a_trailing_slash_is_a_directory(engine, locations, tmp_path, method):
    source, copied, here = ends(locations, tmp_path, method)
    here.mkdir()
    lines = [f"{source}/{name} {copied}/d/" for name in ("one", "two")]
    lines += [f"{source}/deep {copied}/d/", f"{source}/deep/ {copied}/e/", f"{source}/three {copied}/f"]
    (tmp_path / "list").write_text("\n".join([*lines, lines[0]]))
    for _ in range(2):
        assert end_of(events(engine, "-r", "--list", tmp_path / "list"))["errors"] == 0
        found = {str(path.relative_to(here)): path.read_bytes() for path in here.rglob("*") if path.is_file()}
        assert found == {
            "d/one": b"one",
            "d/two": b"two",
            "d/deep/four": b"four",
            "e/four": b"four",
            "f": b"three",
        }


@pytest.mark.parametrize("method", METHODS[1:])
def test_two_sources_of_a_list_with_the_same_destination_are_rejected(engine, locations, tmp_path, method):
    source, copied, here = ends(locations, tmp_path, method)
    here.mkdir()
    for second in (f"{copied}/one", f"{copied}//one"):
        (tmp_path / "list").write_text(f"{source}/one {copied}/\n{source}/two {second}\n")
        output = copy(engine, "--list", tmp_path / "list", code=1).stderr.decode()
        assert "expected different names for all sources, found two sources with the same name" in output
        assert list(here.iterdir()) == []


INTO_ITSELF = [
    ("data", "data/in/new/"),
    ("data/", "data/in"),
    ("data", "data"),
    ("data/in/..", "data/in/new"),
    ("", "data/"),
]


def see_rejected(engine, location, here, source, destination):
    """Check that a tree is not copied into itself, and that nothing was created."""
    before = sorted(here.rglob("*"))
    output = copy(
        engine, "-r", "--mkpath", f"{location}/{source}", f"{location}/{destination}", code=3
    ).stderr.decode()
    assert "expected a destination outside of the source, found" in output
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize(("source", "destination"), INTO_ITSELF)
def test_a_tree_of_an_http_server_is_not_copied_into_itself(engine, locations, tmp_path, source, destination):
    tree(tmp_path / "served" / "data").joinpath("in").mkdir()
    see_rejected(engine, locations["http"], tmp_path / "served", source, destination)


@needs_programs("globus-gridftp-server")
@pytest.mark.parametrize(("source", "destination"), INTO_ITSELF)
def test_a_tree_of_an_ftp_server_is_not_copied_into_itself(engine, server, here, source, destination):
    tree(here / "data").joinpath("in").mkdir()
    see_rejected(engine, below(server, here).replace("127.0.0.1", "LOCALHOST"), here, source, destination)


def test_a_tree_of_a_server_is_copied_next_to_itself(engine, locations, tmp_path):
    tree(tmp_path / "served" / "data")
    copy(engine, "-r", f"{locations['http']}/data", f"{locations['http']}/data2")
    assert (tmp_path / "served" / "data2" / "deep" / "four").read_bytes() == b"four"


@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["copied", "dry"])
@pytest.mark.parametrize("method", ["local", "ftp", "http"])
def test_a_link_at_the_destination_of_a_directory_is_not_followed(engine, locations, tmp_path, method, dry):
    tree(tmp_path / "served" / "tree")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "own" / "copied").mkdir()
    (tmp_path / "own" / "copied" / "deep").symlink_to(tmp_path / "elsewhere")
    for location in ("copied", "copied/deep"):
        source = f"{locations[method]}/tree{'/deep' if location == 'copied/deep' else ''}"
        into = ["-T", source, "copied"] if location == "copied" else [source, "copied"]
        copy(engine, *dry, "-r", *into, code=3)
        assert (tmp_path / "own" / "copied" / "deep").is_symlink()
        assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("method", ["local", "ftp", "http"])
def test_a_destination_may_be_a_link_to_a_directory(engine, locations, tmp_path, method):
    tree(tmp_path / "served" / "tree")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "own" / "link").symlink_to(tmp_path / "elsewhere")
    for words in ([f"{locations[method]}/tree/", "link"], ["-T", f"{locations[method]}/tree", "link"]):
        copy(engine, "-r", *words)
        assert (tmp_path / "own" / "link").is_symlink()
        assert (tmp_path / "elsewhere" / "deep" / "four").read_bytes() == b"four"
        assert leftovers(tmp_path / "elsewhere") == []


@pytest.mark.parametrize("written", ["tree/", "tree/.", "tree/deep/..", "./x/../tree/"])
@pytest.mark.parametrize("method", ["local", "ftp", "http"])
def test_the_contents_of_a_directory_are_copied_to_the_current_directory(
    engine, locations, tmp_path, method, written
):
    tree(tmp_path / "served" / "tree")
    (tmp_path / "served" / "x").mkdir()
    for _ in range(2):
        copy(engine, "-r", f"{locations[method]}/{written}", ".")
        assert sorted(path.name for path in (tmp_path / "own").iterdir()) == ["deep", "one", "three", "two"]


@pytest.mark.parametrize("dots", [".", "x/..", "%2e"])
def test_dot_segments_in_http_paths_are_resolved(engine, locations, tmp_path, dots):
    tree(tmp_path / "served" / "tree")
    url = locations["http"]
    copy(engine, f"{url}/{dots}/tree/deep/../one", "copied")
    assert (tmp_path / "own" / "copied").read_bytes() == b"one"
    copy(engine, "copied", f"{url}/tree/{dots}/new")
    copy(engine, "-r", f"{url}/tree/{dots}", f"{url}/other/../second")
    assert (tmp_path / "served" / "tree" / "new").read_bytes() == b"one"
    assert (tmp_path / "served" / "second" / "deep" / "four").read_bytes() == b"four"


@pytest.mark.parametrize(
    ("words", "source", "location"),
    [
        (["-r"], "tree", "fresh"),
        (["-r"], "tree", "fresh/"),
        (["-r"], "tree/", "fresh/"),
        (["-r", "--mkpath"], "tree", "way/fresh"),
        ([], "tree/one", "fresh/"),
        (["--mkpath"], "tree/one", "way/fresh/"),
        (["--mkpath"], "tree/one", "way/fresh"),
    ],
)
@pytest.mark.parametrize("method", ["local", "ftp", "http"])
def test_a_dry_run_reports_the_same_files_as_the_copy(engine, locations, tmp_path, method, words, source, location):
    tree(tmp_path / "served" / "tree")
    dry = events(engine, "--dry-run", *words, f"{locations[method]}/{source}", location)
    assert list((tmp_path / "own").iterdir()) == []
    output = events(engine, *words, f"{locations[method]}/{source}", location)

    def files(output):
        return sorted((event["path"], event["bytes"]) for event in output if event["event"] == "file")

    assert files(dry) == files(output) != []
    assert [end_of(dry)[key] for key in ("files", "bytes")] == [end_of(output)[key] for key in ("files", "bytes")]


def test_a_dry_run_fails_where_a_copy_would(engine, locations, tmp_path):
    tree(tmp_path / "served" / "tree")
    (tmp_path / "own" / "file").write_bytes(b"1")
    for method in ("local", "http"):
        for words in (
            ["-r", f"{locations[method]}/tree", "way/fresh"],
            ["-r", "-T", f"{locations[method]}/tree", "file"],
        ):
            copy(engine, "--dry-run", *words, code=3)
            copy(engine, *words, code=3)


@needs_programs("strace")
@pytest.mark.parametrize("error", ["EINVAL", "ENOSYS"])
@pytest.mark.parametrize("method", ["ftp", "http"])
def test_existing_files_are_kept_on_a_file_system_without_rename_noreplace(
    engine, locations, tmp_path, method, error
):
    tree(tmp_path / "served" / "tree")
    (tmp_path / "own" / "tree").mkdir()
    (tmp_path / "own" / "tree" / "one").write_bytes(b"mine")
    # Only this rename call has flags.
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"inject=renameat2:error={error}"]
    words = ["copy", "-r", "--existing", "keep", f"{locations[method]}/tree", "."]
    done = subprocess.run([*strace, engine, *words], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    found = {path.name: path.read_bytes() for path in (tmp_path / "own").rglob("*") if path.is_file()}
    assert found == {"one": b"mine", "two": b"two", "three": b"three", "four": b"four"}


@needs_programs("strace")
def test_a_file_created_during_a_download_is_kept_without_rename_noreplace(engine, tmp_path):
    location, gate = tmp_path / "one", threading.Event()

    def respond(handler, _):
        handler.reply(200, b"half ", length=9)
        handler.wfile.flush()
        gate.wait(60)
        handler.wfile.write(b"half")

    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=renameat2:error=EINVAL"]
    with puppet(respond) as (url, _):
        words = ["copy", "--existing", "keep", f"{url}/one", location]
        with subprocess.Popen([*strace, engine, *words], stderr=subprocess.PIPE) as process:
            wait_until(lambda: leftovers(tmp_path), "the file to come")
            location.write_bytes(b"mine")
            gate.set()
            printed = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 3
    assert f"{location}: expected a free name, found File exists" in printed
    assert location.read_bytes() == b"mine"
    assert leftovers(tmp_path) == []


ONTO_ITSELF = [("tree/one", "tree/one"), ("tree/one", "tree/"), ("tree/deep/../one", "tree/one")]


def see_not_copied(engine, location, directory, source, destination):
    """Check that a file is not copied onto itself for any skip check, and stays unchanged."""
    before = (directory / "tree" / "one").stat()
    for existing in ("update", "replace", "keep"):
        words = ["--existing", existing, f"{location}/{source}", f"{location}/{destination}"]
        output = copy(engine, *words, code=3).stderr.decode()
        assert "expected a destination outside of the source, found the source itself" in output
    after = (directory / "tree" / "one").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert (directory / "tree" / "one").read_bytes() == b"one"


@pytest.mark.parametrize(("source", "destination"), ONTO_ITSELF)
def test_a_file_of_an_http_server_is_not_copied_onto_itself(engine, locations, tmp_path, source, destination):
    tree(tmp_path / "served" / "tree")
    see_not_copied(engine, locations["http"], tmp_path / "served", source, destination)


@needs_programs("globus-gridftp-server")
@pytest.mark.parametrize(("source", "destination"), ONTO_ITSELF)
def test_a_file_of_an_ftp_server_is_not_copied_onto_itself(engine, server, here, source, destination):
    tree(here / "tree")
    see_not_copied(engine, below(server, here), here, source, destination)
