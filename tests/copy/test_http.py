"""Copies from, to and between HTTP and WebDAV servers: nginx, XRootD and our own."""

import os
import random
import signal
import subprocess

import pytest
from copykit import copy, end_of, events, leftovers, tree_of
from httpkit import DAV_MODULE, nginx, venturi, xrootd

from testkit import needs_programs, throwaway_certificates, wait_until

NAMES = {"empty": 0, "one": 1, "a b&ä%41#?": 17, "unit": 1 << 20, "large": (9 << 20) + 5}

needs_nginx = pytest.mark.skipif(not DAV_MODULE.exists(), reason="not installed: libnginx-mod-http-dav-ext")


def fill(directory):
    """Create files of all sizes, and the same files in a deeper directory."""
    for location in (directory, directory / "deep" / "er"):
        location.mkdir(parents=True, exist_ok=True)
        for name, size in NAMES.items():
            (location / name).write_bytes(os.urandom(size))
            os.utime(location / name, (1_600_000_000, 1_600_000_000))
    (directory / "bare").mkdir()
    return directory


def contents(root):
    """Return the files with their bytes and the directories below a directory, without times."""
    return {name: change[-1] if len(change) > 3 else None for name, change in tree_of(root, times=False).items()}


def round_trip(engine, url, tmp_path, *arguments, **changes):
    """Copy a tree to a server twice and back, and check that the second upload moves nothing."""
    source = fill(tmp_path / "source")
    up = end_of(events(engine, "-r", *arguments, source, f"{url}/up/", **changes))
    again = end_of(events(engine, "-r", *arguments, source, f"{url}/up/", **changes))
    down = end_of(events(engine, "-r", *arguments, f"{url}/up/source", tmp_path / "back", **changes))
    assert (up["files"], up["errors"], down["files"]) == (10, 0, 10)
    assert (again["files"], again["kept"]) == (0, 10)
    assert contents(tmp_path / "back") == contents(source)
    assert leftovers(tmp_path) == []


@needs_programs("nginx")
@needs_nginx
def test_a_tree_is_copied_to_nginx_and_back_and_downloads_keep_times(engine, tmp_path):
    (tmp_path / "served").mkdir()
    with nginx(tmp_path / "served", tmp_path) as url:
        round_trip(engine, url, tmp_path)
        again = end_of(events(engine, "-r", f"{url}/up/source", tmp_path / "back", "-T"))
        assert (again["files"], again["kept"]) == (0, 10)


@needs_programs("xrootd")
def test_a_tree_is_copied_to_xrootd_and_back_with_checksum_verification(engine, tmp_path):
    (tmp_path / "served").mkdir()
    (tmp_path / "x").mkdir()
    with xrootd(tmp_path / "served", tmp_path / "x") as url:
        source = tmp_path / "source"
        source.mkdir()
        for name, size in NAMES.items():
            (source / name.split("%")[0]).write_bytes(os.urandom(size))
        arguments = ["-r", "--verify", "--existing", "replace"]
        up = end_of(events(engine, *arguments, source, f"{url}/up/"))
        down = end_of(events(engine, *arguments, f"{url}/up/source", tmp_path / "back"))
        assert (up["files"], down["files"], down["errors"]) == (5, 5, 0)
        assert contents(tmp_path / "back") == contents(source)


@needs_programs("xrootd")
def test_xrootd_without_checksums_serves_files_and_existing_files_are_kept(engine, tmp_path):
    for name in ("served", "x", "source"):
        (tmp_path / name).mkdir()
    for name, size in NAMES.items():
        (tmp_path / "source" / name.split("%")[0]).write_bytes(os.urandom(size))
    with xrootd(tmp_path / "served", tmp_path / "x", checksums=False) as url:
        up = end_of(events(engine, "-r", tmp_path / "source", f"{url}/up/"))
        for existing in ("update", "keep"):
            again = end_of(events(engine, "-r", "--existing", existing, tmp_path / "source", f"{url}/up/"))
            assert (again["files"], again["kept"]) == (0, 5)
        down = end_of(events(engine, "-r", f"{url}/up/source", tmp_path / "back"))
        assert (up["files"], down["files"], down["errors"]) == (5, 5, 0)
        assert contents(tmp_path / "back") == contents(tmp_path / "source")
        output = copy(engine, "--verify", f"{url}/up/source/one", tmp_path / "one", code=3).stderr.decode()
    assert "405 Method Not Allowed" in output


@needs_programs("xrootd", "openssl")
@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_downloads_from_xrootd_get_the_time_that_only_listings_report(engine, tmp_path, secure):
    (tmp_path / "x").mkdir()
    served = fill(tmp_path / "served")
    for path in [*served.rglob("*%*")]:
        path.unlink()  # listings of XRootD show other names for them
    names = [path.relative_to(served) for path in served.rglob("*") if path.is_file()]
    pki = throwaway_certificates(tmp_path / "pki") if secure else None
    env = {**os.environ, "X509_CERT_DIR": str(pki[0])} if secure else dict(os.environ)
    with xrootd(served, tmp_path / "x", pki) as url:
        (tmp_path / "list").write_text(f"{url}/one {tmp_path}/first\n{url}/unit {tmp_path}/second\n")
        for arguments, found in [
            (["-r", f"{url}/", tmp_path / "tree"], [tmp_path / "tree" / name for name in names]),
            ([f"{url}/one", tmp_path / "one"], [tmp_path / "one"]),
            ([f"{url}/large", tmp_path / "large"], [tmp_path / "large"]),
            (["--list", tmp_path / "list"], [tmp_path / "first", tmp_path / "second"]),
        ]:
            first, again = (end_of(events(engine, *arguments, env=env)) for _ in range(2))
            assert [path.stat().st_mtime for path in found] == [1_600_000_000] * len(found)
            assert (first["files"], again["files"], again["kept"]) == (len(found), 0, len(found))


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_a_tree_is_copied_to_our_server_and_back_with_times_and_checksums(engine, tmp_path, secure):
    (tmp_path / "served").mkdir()
    trust, cert, key = throwaway_certificates(tmp_path / "pki")
    tls = ["--tls-cert", cert, "--tls-key", key] if secure else []
    env = {**os.environ, "X509_CERT_DIR": str(trust)}
    with venturi(engine, tmp_path / "served", tmp_path, "--write", *tls, secure=secure) as url:
        round_trip(engine, url, tmp_path, "--verify", env=env)
        assert (tmp_path / "served" / "up" / "source" / "one").stat().st_mtime == 1_600_000_000
        assert contents(tmp_path / "served" / "up" / "source") == contents(tmp_path / "source")
        if secure:
            stranger = {**env, "X509_CERT_DIR": str(throwaway_certificates(tmp_path / "other")[0])}
            output = copy(engine, f"{url}/up/source/one", tmp_path / "x", code=1, env=stranger).stderr.decode()
            assert f"{url}/up/source/one: expected a trusted server certificate" in output


def test_a_large_file_is_fetched_in_chunks_concurrently_and_resumes_after_a_kill(engine, tmp_path):
    (tmp_path / "served").mkdir()
    content = random.Random(1).randbytes(100_000_000)
    (tmp_path / "served" / "large").write_bytes(content)
    with venturi(engine, tmp_path / "served", tmp_path) as url:
        command = [engine, "copy", "--concurrency", "3", f"{url}/large", tmp_path / "copy"]
        process = subprocess.Popen(command)

        def started():
            parts = [path for path in tmp_path.iterdir() if path.name.endswith(".part")]
            return process.poll() is not None or any(part.stat().st_blocks > 20_000 for part in parts)

        wait_until(started, "some of it to come", 20)
        process.send_signal(signal.SIGKILL)
        killed = process.wait() != 0
        output = events(engine, "--concurrency", "3", f"{url}/large", tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == content
        assert leftovers(tmp_path) == []
        if killed:
            assert any(event.get("setting") == "bytes_kept" and event["value"] > 0 for event in output)
            assert end_of(output)["moved_bytes"] < len(content)


@pytest.fixture(params=["pull", "through"])
def two(request, engine, tmp_path):
    """Yield the URLs of two servers, which copy between servers or not, and an environment with a token."""
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
    (tmp_path / "tokens").write_text("sesame\n")
    arguments = ["--write", "--tokens", tmp_path / "tokens", *(["--third-party"] if request.param == "pull" else [])]
    with (
        venturi(engine, tmp_path / "a", tmp_path, *arguments) as a,
        venturi(engine, tmp_path / "b", tmp_path, *arguments) as b,
    ):
        yield request.param, a, b, {**os.environ, "BEARER_TOKEN": "sesame"}


def test_a_tree_is_copied_between_servers(engine, tmp_path, two):
    kind, a, b, env = two
    fill(tmp_path / "a" / "tree")
    output = events(engine, "-r", f"{a}/tree", f"{b}/tree", env=env)
    options = {"pull": "pulled", "through": "through the client"}[kind]
    files = [event for event in output if event["event"] == "file"]
    # Some servers do not pull empty files; these go through the client.
    assert {event["method"] for event in files if event["bytes"]} == {options}
    assert {event["method"] for event in files if not event["bytes"]} == {"through the client"}
    assert contents(tmp_path / "b" / "tree") == contents(tmp_path / "a" / "tree")
    assert leftovers(tmp_path) == []


@needs_programs("nginx")
@needs_nginx
def test_bytes_are_pulled_from_and_pushed_to_a_server_without_third_party_copies(engine, tmp_path):
    for name in ("a", "b", "x"):
        (tmp_path / name).mkdir()
    content = os.urandom(3_000_000)
    (tmp_path / "a" / "one").write_bytes(content)
    (tmp_path / "tokens").write_text("sesame\n")
    arguments = ["--write", "--tokens", tmp_path / "tokens", "--third-party"]
    env = {**os.environ, "BEARER_TOKEN": "sesame"}
    with (
        nginx(tmp_path / "a", tmp_path / "x") as plain,
        venturi(engine, tmp_path / "b", tmp_path, *arguments) as ours,
    ):
        for source, destination, options in [
            (f"{plain}/one", f"{ours}/two", "pulled"),
            (f"{ours}/two", f"{plain}/three", "pushed"),
            (f"{plain}/three", f"{plain}/four", "by the server"),
        ]:
            output = events(engine, source, destination, env=env)
            assert [event["method"] for event in output if event["event"] == "file"] == [options]
    assert (tmp_path / "a" / "four").read_bytes() == content


@needs_programs("nginx")
@needs_nginx
@pytest.mark.parametrize("existing", ["update", "replace", "keep"])
def test_a_server_that_mistakes_another_port_for_its_own_is_not_trusted(engine, tmp_path, existing):
    for name in ("a", "b", "x"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "one").write_bytes(os.urandom(3_000_000))
    (tmp_path / "a" / "two").write_text("of nginx")
    (tmp_path / "b" / "four").write_text("old")
    with nginx(tmp_path / "a", tmp_path / "x") as plain, venturi(engine, tmp_path / "b", tmp_path, "--write") as ours:
        for name in ("two", "three", "four"):
            kept = existing == "keep" and name == "four"
            output = events(engine, "--existing", existing, f"{plain}/one", f"{ours}/{name}")
            assert [(end["files"], end["moved_bytes"]) for end in output[-1:]] == [(0, 0) if kept else (1, 3_000_000)]
            assert ((tmp_path / "b" / name).read_bytes() == (tmp_path / "a" / "one").read_bytes()) is not kept
    assert {path.name: path.stat().st_size for path in (tmp_path / "a").iterdir()} == {"one": 3_000_000, "two": 8}


@needs_programs("xrootd", "openssl")
@pytest.mark.parametrize("token", [False, True], ids=["anonymous", "token"])
def test_xrootd_pulls_from_our_server_and_pushes_to_it(engine, tmp_path, token):
    for name in ("a", "b", "x"):
        (tmp_path / name).mkdir()
    content = os.urandom(3_000_000)
    (tmp_path / "a" / "one").write_bytes(content)
    pki = throwaway_certificates(tmp_path / "pki")
    env = {**os.environ, "X509_CERT_DIR": str(pki[0])}
    tls = ["--write", "--tls-cert", pki[1], "--tls-key", pki[2]]
    if token:
        (tmp_path / "tokens").write_text("sesame\n")
        tls += ["--tokens", tmp_path / "tokens"]
        env["BEARER_TOKEN"] = "sesame"
    with (
        xrootd(tmp_path / "b", tmp_path / "x", pki) as theirs,
        venturi(engine, tmp_path / "a", tmp_path, *tls, secure=True) as ours,
    ):
        for source, destination, options in [
            (f"{ours}/one", f"{theirs}/two", "pulled"),
            (f"{theirs}/two", f"{ours}/three", "pushed"),
        ]:
            output = events(engine, source, destination, env=env)
            assert [event["method"] for event in output if event["event"] == "file"] == [options]
            assert end_of(output)["moved_bytes"] == len(content)
    assert (tmp_path / "a" / "three").read_bytes() == content
