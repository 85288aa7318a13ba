"""What is at the places of copies here and at our own server, of FTP and of HTTP alike: what is kept, refused, and where copies come to be."""

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
def places(engine, tmp_path, monkeypatch):
    """Have a server of FTP and HTTP, and a folder of our own to be in; yields how the server's folder is named by each way."""
    (tmp_path / "served").mkdir()
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path / "own")
    log = tmp_path / "serve.jsonl"
    doors = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    with log.open("wb") as out:
        command = [engine, "serve", tmp_path / "served", *doors, "--write", "--json"]
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


def tree(folder, names=("one", "two", "three")):
    """Make a tree with a few files and one in a directory."""
    (folder / "deep").mkdir(parents=True)
    for path in [*(folder / name for name in names), folder / "deep" / "four"]:
        path.write_bytes(path.name.encode())
        os.utime(path, (1_600_000_000, 1_600_000_000))
    return folder


def begun(engine, source, copied, lost):
    """Leave an unfinished copy of a tree, as a disk may be after a power cut: a name, size and time are there, the bytes are not; and the journal is of that boot."""
    (copied / lost).mkdir(parents=True)
    copy(engine, "-r", "-T", source, copied, code=3)
    (copied / lost).rmdir()
    (copied / lost).write_bytes(b"\0" * len(lost))
    os.utime(copied / lost, (1_600_000_000, 1_600_000_000))
    (journal,) = copied.glob(".venturi-*.journal")
    journal.write_text("venturi copy 1\nanother boot\n")


def test_after_a_crash_of_the_machine_checksums_tell_what_of_a_tree_is_whole(engine, places, tmp_path):
    source, copied = tree(tmp_path / "served" / "tree"), tmp_path / "copied"
    begun(engine, f"{places['ftp']}/tree", copied, "two")
    told = events(engine, "-r", f"{places['ftp']}/tree", copied)
    assert (end_of(told)["files"], end_of(told)["kept"]) == (1, 3)
    (resumed,) = (event for event in told if event.get("what") == "resumed")
    assert "told by content, since the machine was started anew" in resumed["reason"]
    assert (copied / "two").read_bytes() == (source / "two").read_bytes()
    assert leftovers(copied) == []


def test_after_a_crash_of_the_machine_files_of_a_server_without_checksums_come_again(engine, tmp_path):
    names = ["f1", "f2", "f3"]
    peer = FakePeer({f"/d/{name}": name.encode() for name in names}, folders=["/d"])
    try:
        begun(engine, peer.url("/d"), tmp_path / "copied", "f2")
        end = end_of(events(engine, "-r", peer.url("/d"), tmp_path / "copied"))
    finally:
        peer.stop()
    assert (end["files"], end["kept"]) == (3, 0)
    assert [(tmp_path / "copied" / name).read_bytes() for name in names] == [name.encode() for name in names]


@pytest.mark.parametrize("existing", ["update", "replace", "keep"])
@pytest.mark.parametrize("what", ["a named pipe", "a socket", "a device"])
@pytest.mark.parametrize("way", ["ftp", "http"])
def test_no_file_from_a_server_takes_the_place_of_a_pipe_a_socket_or_a_device(
    engine, places, tmp_path, way, what, existing
):
    tree(tmp_path / "served" / "tree")
    (tmp_path / "copied").mkdir()
    place = tmp_path / "copied" / "one"
    if what == "a named pipe":
        os.mkfifo(place)
    elif what == "a socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(place))
    else:
        try:
            os.mknod(place, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("whoever runs this may make no devices")
    before = place.lstat()
    for words in ([f"{places[way]}/tree/one", place], ["-r", f"{places[way]}/tree/", tmp_path / "copied"]):
        if existing == "keep":
            assert end_of(events(engine, "--existing", existing, *words))["kept"] == 1
        else:
            told = copy(engine, "--existing", existing, *words, code=3).stderr.decode()
            assert f"{place}: expected a file or nothing, found {what}" in told
        after = place.lstat()
        assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)


WAYS = ["local to local", "ftp to local", "local to ftp", "http to local", "local to http", "http to http"]


def ends(places, tmp_path, way):
    """Return the place of a source and that of a copy by some way, and where both are here."""
    source, _, copied = way.partition(" to ")
    here = tmp_path / ("own" if copied == "local" else "served") / "copied"
    tree(tmp_path / ("own" if source == "local" else "served") / "tree")
    named = places | {"local": tmp_path / "own"}
    return f"{named[source]}/tree", f"{named[copied]}/copied", here


@pytest.mark.parametrize("way", WAYS)
def test_a_destination_of_a_list_that_ends_in_a_slash_is_a_directory(engine, places, tmp_path, way):
    source, copied, here = ends(places, tmp_path, way)
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


@pytest.mark.parametrize("way", WAYS[1:])
def test_two_sources_of_a_list_do_not_have_the_same_copy(engine, places, tmp_path, way):
    source, copied, here = ends(places, tmp_path, way)
    here.mkdir()
    for second in (f"{copied}/one", f"{copied}//one"):
        (tmp_path / "list").write_text(f"{source}/one {copied}/\n{source}/two {second}\n")
        told = copy(engine, "--list", tmp_path / "list", code=1).stderr.decode()
        assert "expected a name for each source, found two of the same name" in told
        assert list(here.iterdir()) == []


INTO_ITSELF = [
    ("data", "data/in/new/"),
    ("data/", "data/in"),
    ("data", "data"),
    ("data/in/..", "data/in/new"),
    ("", "data/"),
]


def see_refused(engine, place, here, source, destination):
    """See that a tree is not copied into itself, and that nothing was made."""
    before = sorted(here.rglob("*"))
    told = copy(engine, "-r", "--mkpath", f"{place}/{source}", f"{place}/{destination}", code=3).stderr.decode()
    assert "expected another place than the source, found" in told
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize(("source", "destination"), INTO_ITSELF)
def test_a_tree_of_a_server_of_http_is_not_copied_into_itself(engine, places, tmp_path, source, destination):
    tree(tmp_path / "served" / "data").joinpath("in").mkdir()
    see_refused(engine, places["http"], tmp_path / "served", source, destination)


@needs_programs("globus-gridftp-server")
@pytest.mark.parametrize(("source", "destination"), INTO_ITSELF)
def test_a_tree_of_a_server_of_ftp_is_not_copied_into_itself(engine, server, here, source, destination):
    tree(here / "data").joinpath("in").mkdir()
    see_refused(engine, below(server, here).replace("127.0.0.1", "LOCALHOST"), here, source, destination)


def test_a_tree_of_a_server_is_copied_beside_itself(engine, places, tmp_path):
    tree(tmp_path / "served" / "data")
    copy(engine, "-r", f"{places['http']}/data", f"{places['http']}/data2")
    assert (tmp_path / "served" / "data2" / "deep" / "four").read_bytes() == b"four"


@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["copied", "dry"])
@pytest.mark.parametrize("way", ["local", "ftp", "http"])
def test_no_link_in_the_place_of_a_directory_is_written_through(engine, places, tmp_path, way, dry):
    tree(tmp_path / "served" / "tree")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "own" / "copied").mkdir()
    (tmp_path / "own" / "copied" / "deep").symlink_to(tmp_path / "elsewhere")
    for place in ("copied", "copied/deep"):
        source = f"{places[way]}/tree{'/deep' if place == 'copied/deep' else ''}"
        into = ["-T", source, "copied"] if place == "copied" else [source, "copied"]
        copy(engine, *dry, "-r", *into, code=3)
        assert (tmp_path / "own" / "copied" / "deep").is_symlink()
        assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("way", ["local", "ftp", "http"])
def test_a_destination_may_be_a_link_to_a_directory(engine, places, tmp_path, way):
    tree(tmp_path / "served" / "tree")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "own" / "link").symlink_to(tmp_path / "elsewhere")
    for words in ([f"{places[way]}/tree/", "link"], ["-T", f"{places[way]}/tree", "link"]):
        copy(engine, "-r", *words)
        assert (tmp_path / "own" / "link").is_symlink()
        assert (tmp_path / "elsewhere" / "deep" / "four").read_bytes() == b"four"
        assert leftovers(tmp_path / "elsewhere") == []


@pytest.mark.parametrize("written", ["tree/", "tree/.", "tree/deep/..", "./x/../tree/"])
@pytest.mark.parametrize("way", ["local", "ftp", "http"])
def test_what_is_in_a_directory_comes_to_where_we_are(engine, places, tmp_path, way, written):
    tree(tmp_path / "served" / "tree")
    (tmp_path / "served" / "x").mkdir()
    for _ in range(2):
        copy(engine, "-r", f"{places[way]}/{written}", ".")
        assert sorted(path.name for path in (tmp_path / "own").iterdir()) == ["deep", "one", "three", "two"]


@pytest.mark.parametrize("dots", [".", "x/..", "%2e"])
def test_dots_in_the_path_of_http_are_taken_for_what_they_mean(engine, places, tmp_path, dots):
    tree(tmp_path / "served" / "tree")
    url = places["http"]
    copy(engine, f"{url}/{dots}/tree/deep/../one", "copied")
    assert (tmp_path / "own" / "copied").read_bytes() == b"one"
    copy(engine, "copied", f"{url}/tree/{dots}/new")
    copy(engine, "-r", f"{url}/tree/{dots}", f"{url}/other/../second")
    assert (tmp_path / "served" / "tree" / "new").read_bytes() == b"one"
    assert (tmp_path / "served" / "second" / "deep" / "four").read_bytes() == b"four"


@pytest.mark.parametrize(
    ("words", "source", "place"),
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
@pytest.mark.parametrize("way", ["local", "ftp", "http"])
def test_a_dry_run_tells_what_a_copy_then_does(engine, places, tmp_path, way, words, source, place):
    tree(tmp_path / "served" / "tree")
    dry = events(engine, "--dry-run", *words, f"{places[way]}/{source}", place)
    assert list((tmp_path / "own").iterdir()) == []
    told = events(engine, *words, f"{places[way]}/{source}", place)

    def files(told):
        return sorted((event["path"], event["bytes"]) for event in told if event["event"] == "file")

    assert files(dry) == files(told) != []
    assert [end_of(dry)[key] for key in ("files", "bytes")] == [end_of(told)[key] for key in ("files", "bytes")]


def test_a_dry_run_fails_where_a_copy_would(engine, places, tmp_path):
    tree(tmp_path / "served" / "tree")
    (tmp_path / "own" / "file").write_bytes(b"1")
    for way in ("local", "http"):
        for words in (["-r", f"{places[way]}/tree", "way/fresh"], ["-r", "-T", f"{places[way]}/tree", "file"]):
            copy(engine, "--dry-run", *words, code=3)
            copy(engine, *words, code=3)


@needs_programs("strace")
@pytest.mark.parametrize("error", ["EINVAL", "ENOSYS"])
@pytest.mark.parametrize("way", ["ftp", "http"])
def test_a_file_is_kept_where_the_file_system_cannot_name_one_only_where_nothing_is(
    engine, places, tmp_path, way, error
):
    tree(tmp_path / "served" / "tree")
    (tmp_path / "own" / "tree").mkdir()
    (tmp_path / "own" / "tree" / "one").write_bytes(b"mine")
    # Of the calls that rename, this one alone has flags.
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"inject=renameat2:error={error}"]
    words = ["copy", "-r", "--existing", "keep", f"{places[way]}/tree", "."]
    done = subprocess.run([*strace, engine, *words], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    found = {path.name: path.read_bytes() for path in (tmp_path / "own").rglob("*") if path.is_file()}
    assert found == {"one": b"mine", "two": b"two", "three": b"three", "four": b"four"}


@needs_programs("strace")
def test_what_comes_to_be_under_the_name_meanwhile_is_kept_there_too(engine, tmp_path):
    place, gate = tmp_path / "one", threading.Event()

    def answer(handler, _):
        handler.say(200, b"half ", length=9)
        handler.wfile.flush()
        gate.wait(60)
        handler.wfile.write(b"half")

    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=renameat2:error=EINVAL"]
    with puppet(answer) as (url, _):
        words = ["copy", "--existing", "keep", f"{url}/one", place]
        with subprocess.Popen([*strace, engine, *words], stderr=subprocess.PIPE) as process:
            wait_until(lambda: leftovers(tmp_path), "the file to come")
            place.write_bytes(b"mine")
            gate.set()
            said = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 3
    assert f"{place}: expected a name that it can have, found File exists" in said
    assert place.read_bytes() == b"mine"
    assert leftovers(tmp_path) == []


ONTO_ITSELF = [("tree/one", "tree/one"), ("tree/one", "tree/"), ("tree/deep/../one", "tree/one")]


def see_not_copied(engine, place, folder, source, destination):
    """See that a file is not copied onto itself, however its age is judged, and stays as it is."""
    before = (folder / "tree" / "one").stat()
    for existing in ("update", "replace", "keep"):
        words = ["--existing", existing, f"{place}/{source}", f"{place}/{destination}"]
        told = copy(engine, *words, code=3).stderr.decode()
        assert "expected another place than the source, found the source itself" in told
    after = (folder / "tree" / "one").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert (folder / "tree" / "one").read_bytes() == b"one"


@pytest.mark.parametrize(("source", "destination"), ONTO_ITSELF)
def test_a_file_of_a_server_of_http_is_not_copied_onto_itself(engine, places, tmp_path, source, destination):
    tree(tmp_path / "served" / "tree")
    see_not_copied(engine, places["http"], tmp_path / "served", source, destination)


@needs_programs("globus-gridftp-server")
@pytest.mark.parametrize(("source", "destination"), ONTO_ITSELF)
def test_a_file_of_a_server_of_ftp_is_not_copied_onto_itself(engine, server, here, source, destination):
    tree(here / "tree")
    see_not_copied(engine, below(server, here), here, source, destination)
