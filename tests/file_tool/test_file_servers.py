"""One set of rules for all protocols, each with a third-party server."""

import os
import shutil
import threading
import time
from pathlib import Path

import pytest
from filekit import PROGRAMS, SERVERS, Batch, batch, call, checksum

SIZES = (0, 1, 1_000_003, 3_145_728)
_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"


@pytest.fixture(scope="module", params=SERVERS)
def server(request, tmp_path_factory):
    """A server with an empty directory, and a batch for requests to it."""
    lacking = [name for name in PROGRAMS.get(request.param, []) if shutil.which(name, path=_PATH) is None]
    if lacking:
        pytest.skip(f"not installed: {', '.join(lacking)}")
    with SERVERS[request.param](tmp_path_factory.mktemp(request.param)) as found:
        found.name = request.param
        found.top = found.url.removesuffix("/")
        found.batch = Batch(found.environment)
        # Directories of S3 disappear with their last object.
        found.has_directories = request.param != "s3"
        yield found
        found.batch.close()


@pytest.fixture
def file(server):
    """The batch of the server. All files must be gone at the end."""
    yield server.batch
    assert server.files() == []


def remove(server, *paths):
    """Remove files, then directories."""
    for path in paths:
        found = server.batch.result("remove", f"{server.top}/{path}")
        missing = found.get("error", {}).get("kind") == "not_found" and not server.has_directories
        assert found == {"removed": True} or missing, (path, found)


def test_a_file_exists_from_create_to_remove(server, file):
    directory, created = f"{server.top}/deep/down", {}
    for index, size in enumerate(SIZES):
        url = f"{directory}/file{index}"
        assert file.error("stat", url)[0] == "not_found"
        made = file.result("create", url, size_bytes=size, seed=7, index=index)
        content = (server.root / f"deep/down/file{index}").read_bytes()
        assert len(content) == made["size_bytes"] == size
        assert {name: checksum(content, name) for name in ("adler32", "md5", "sha256")} == made["checksums"]
        found = file.result("stat", url)
        assert (found["kind"], found["size_bytes"]) == ("file", size)
        assert abs(found["modified_s"] - time.time()) < 600
        created[f"file{index}"] = size
    found = file.result("stat", directory)
    assert (found["kind"], found["size_bytes"]) == ("directory", None)
    entries = file.result("list", directory)["entries"]
    assert [entry["name"] for entry in entries] == sorted(created)
    assert {entry["name"]: entry["size_bytes"] for entry in entries} == created
    assert {entry["kind"] for entry in entries} == {"file"}
    (down,) = file.result("list", f"{server.top}/deep")["entries"]
    assert (down["name"], down["kind"]) == ("down", "directory")
    remove(server, *(f"deep/down/{name}" for name in created), "deep/down", "deep")
    assert file.error("stat", directory)[0] == "not_found"


def test_nothing_is_overwritten_and_no_tree_is_removed(server, file):
    url = f"{server.top}/kept/file"
    file.result("create", url, size_bytes=1000)
    before = (server.root / "kept/file").read_bytes()
    kind, message = file.error("create", url, size_bytes=5)
    assert kind == "exists" and message.startswith(f"{url}: cannot create the file: ")
    assert file.error("remove", f"{server.top}/kept")[0] == "exists"
    assert (server.root / "kept/file").read_bytes() == before
    assert file.error("list", url)[0] == "invalid"
    for command in ("list", "checksum", "remove", "stat"):
        assert file.error(command, f"{server.top}/none")[0] == "not_found", command
    remove(server, "kept/file", "kept")


def test_a_checksum_is_that_of_the_stored_bytes(server, file):
    """The server computes the algorithms that it supports; for the others, the file is read."""
    url = f"{server.top}/sum"
    sums = file.result("create", url, size_bytes=300_007, seed=1)["checksums"]
    for algorithm, value in sums.items():
        read = file.result("checksum", url, algorithm=algorithm, by="reading")
        assert read == {"algorithm": algorithm, "value": value, "by": "reading", "size_bytes": 300_007}
        assert file.result("checksum", url, algorithm=algorithm)["value"] == value
    usual = file.result("checksum", url)
    assert usual["value"] == sums[usual["algorithm"]]
    assert usual["by"] == ("reading" if server.name in ("ftp", "old-ftp", "apache", "sftp") else "server")
    if usual["by"] == "reading":
        assert file.error("checksum", url, by="server")[0] == "unsupported"
    remove(server, "sum")


def test_a_changed_byte_and_a_missing_byte_are_found(server, file):
    url = f"{server.top}/changed"
    sums = file.result("create", url, size_bytes=100_000)["checksums"]
    path = server.root / "changed"
    content = bytearray(path.read_bytes())
    content[50_000] ^= 1
    path.write_bytes(content)
    found = file.result("checksum", url, algorithm="adler32", by="reading")
    assert found["value"] == checksum(content, "adler32") != sums["adler32"]
    if server.name != "s3":  # S3 stores the size as it was written
        path.write_bytes(content[:-1])
        assert file.result("stat", url)["size_bytes"] == 99_999
    remove(server, "changed")


def test_directories_are_created_with_their_parents(server, file):
    url = f"{server.top}/a/b/c"
    if not server.has_directories:
        assert file.result("mkdir", url) == {"created": False}
        bucket = f"{server.top.removesuffix('/bucket')}/another"
        assert [file.result("mkdir", bucket) for _ in range(2)] == [{"created": True}, {"created": False}]
        assert file.result("list", bucket) == {"entries": []}
        assert file.result("remove", bucket) == {"removed": True}
        assert file.error("stat", bucket)[0] == "not_found"
        return
    assert [file.result("mkdir", url) for _ in range(2)] == [{"created": True}, {"created": False}]
    assert file.result("list", url) == {"entries": []}
    remove(server, "a/b/c", "a/b", "a")


def test_access_is_probed_and_leaves_nothing(server, file):
    found = file.result("access", server.url)
    expected = {"create": True, "remove": True, "by": "probe", "detail": None}
    assert {name: found[name] for name in expected} == expected
    assert (found["valid_until_s"] is not None) == (server.name == "gridftp")
    unknown = file.result("access", server.url, no_probe=True)
    assert (unknown["create"], unknown["remove"], unknown["by"]) == (None, None, None)


@pytest.mark.usefixtures("file")
def test_a_batch_of_many_files_keeps_its_order(server):
    """With several concurrent sessions, each request is executed exactly once and results keep the order."""
    # Each XRootD request starts programs.
    count = 10 if server.name == "xrootd" else 40
    urls = [f"{server.top}/many/{number:06}" for number in range(count)]
    own, sizes = {"environment": server.environment}, [1000 + number for number in range(count)]
    requests = [
        {"id": number, "command": "create", "url": url, "size_bytes": sizes[number], "index": number}
        for number, url in enumerate(urls)
    ]
    made = batch(requests, "--concurrency", 4, **own)
    assert [(line["id"], line.get("size_bytes", line)) for line in made] == list(enumerate(sizes))
    # Without a batch, a listing has a line for each entry.
    assert [entry["size_bytes"] for entry in call("list", f"{server.top}/many", **own)] == sizes
    removed = batch([{"command": "remove", "url": url} for url in urls], "--concurrency", 4, **own)
    assert removed == [{"id": None, "removed": True}] * count
    remove(server, "many")


@pytest.mark.usefixtures("file")
def test_clients_that_create_the_same_directories_at_the_same_time_all_succeed(server):
    """Four sessions write into new directories that all of them must create."""
    # Each XRootD request starts programs.
    rounds = 2 if server.name == "xrootd" else 12
    paths = [f"same/{one}/a/b" for one in range(rounds)]
    urls = [f"{server.top}/{path}/file{number}" for path in paths for number in range(4)]
    own = {"environment": server.environment}
    made = batch([{"command": "create", "url": url, "size_bytes": 1000} for url in urls], "--concurrency", 4, **own)
    assert [line for line in made if "error" in line] == []
    batch([{"command": "remove", "url": url} for url in urls], "--concurrency", 4, **own)
    for path in paths:
        remove(server, path, path.removesuffix("/b"), path.removesuffix("/a/b"))
    remove(server, "same")


@pytest.mark.usefixtures("file")
def test_no_credential_is_on_a_command_line(server):
    """The command lines of the engine and its children have no password or key during a batch."""
    secrets = [value for name, value in server.environment.items() if name.startswith("AWS_SECRET")]
    if "NETRC" in server.environment:
        secrets.append(Path(server.environment["NETRC"]).read_text().split()[-1])
    seen, done = set(), threading.Event()

    def watch():
        while not done.is_set():
            for directory in Path("/proc").glob("[0-9]*"):
                try:
                    seen.add((directory / "cmdline").read_bytes())
                except OSError:
                    continue

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        url = f"{server.top}/watched"
        requests = [{"command": "create", "url": url, "size_bytes": 2_000_000}, {"command": "remove", "url": url}]
        assert not any("error" in line for line in batch(requests, environment=server.environment))
    finally:
        done.set()
        watching.join()
    lines = [line for line in seen if b"file\0batch" in line or b"xrd" in line or b"ssh\0" in line]
    assert lines
    assert [line for line in lines if any(secret.encode() in line for secret in secrets)] == []
