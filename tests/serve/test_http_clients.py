"""Third-party clients of HTTP and WebDAV read, list and write."""

import os
import re
import subprocess
import zlib
from urllib.parse import quote

import pytest
from webkit import run, web

from testkit import needs_programs, throwaway_certificates

SIZES = {"empty": 0, "one": 1, "large": 9_000_001, "with blank & ä": 17}


@pytest.fixture(scope="module")
def contents():
    return {name: os.urandom(size) for name, size in SIZES.items()}


@pytest.fixture(scope="module")
def server(engine, tmp_path_factory, contents):
    """A server that all clients can read and write, over HTTP and HTTPS."""
    directory = tmp_path_factory.mktemp("served")
    (directory / "deep" / "er").mkdir(parents=True)
    for name, content in contents.items():
        (directory / name).write_bytes(content)
        (directory / "deep" / "er" / name).write_bytes(content)
    trust, cert, key = throwaway_certificates(tmp_path_factory.mktemp("pki"))
    arguments = ["--write", "--tls-cert", cert, "--tls-key", key]
    with web(engine, directory, tmp_path_factory.mktemp("log"), *arguments) as server:
        server.trust = trust
        server.authority = trust.parent / "ca.pem"
        yield server


@needs_programs("curl")
@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_curl_reads_whole_files_and_ranges_and_writes(server, contents, tmp_path, secure):
    base = server.secure_url if secure else server.url
    trust = ["--cacert", server.authority] if secure else []
    for name, content in contents.items():
        run("curl", "-sSf", *trust, f"{base}/{quote(name)}", "-o", tmp_path / "down")
        assert (tmp_path / "down").read_bytes() == content
        (tmp_path / "up").write_bytes(content)
        run("curl", "-sSf", *trust, "-T", tmp_path / "up", f"{base}/{quote('up ' + name)}")
        assert (server.directory / f"up {name}").read_bytes() == content
    run("curl", "-sSf", *trust, "-r", "1000000-8999999", f"{base}/large", "-o", tmp_path / "range")
    assert (tmp_path / "range").read_bytes() == contents["large"][1000000:9000000]
    run("curl", "-sSf", *trust, "-r", "0-299999,1000000-1399999", f"{base}/large", "-o", tmp_path / "ranges")
    ranges = (tmp_path / "ranges").read_bytes()
    for part in (contents["large"][:300000], contents["large"][1000000:1400000]):
        assert b"\r\n\r\n" + part + b"\r\n--" in ranges


@needs_programs("litmus")
@pytest.mark.parametrize("suite", ["basic", "copymove", "props", "http"])
def test_litmus_fails_only_the_tests_of_dead_properties(server, tmp_path, suite):
    arguments = ["env", f"TESTS={suite}", "litmus", "--keep-going", f"{server.url}/deep/"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60)
    failed = set(re.findall(r"\d+\. (\w+)\.* FAIL", done.stdout))
    # The last one requests properties that the others set.
    assert failed == ({"propset", "propmanyns", "propget"} if suite == "props" else set()), done.stdout
    assert f"summary for `{suite}'" in done.stdout


@needs_programs("davix-get", "davix-put", "davix-ls", "openssl")
def test_davix_reads_writes_and_lists(server, contents, tmp_path):
    run("davix-get", f"{server.url}/large", tmp_path / "a")
    run("davix-get", "--capath", server.trust, f"{server.secure_url}/large", tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == contents["large"]
    run("davix-put", tmp_path / "a", f"{server.url}/davix")
    assert (server.directory / "davix").read_bytes() == contents["large"]
    listed = run("davix-ls", "-l", f"{server.url}/deep/er/").splitlines()
    assert {line.split()[-1]: int(line.split()[2]) for line in listed}["large"] == SIZES["large"]


@needs_programs("gfal-copy", "gfal-sum", "gfal-rm")
def test_gfal_copies_in_both_directions_with_checksums_and_removes(server, contents, tmp_path):
    python = {"GFAL_PYTHONBIN": "/usr/bin/python3"}
    base = server.url.replace("http:", "dav:")
    run("gfal-copy", "-f", "-K", "ADLER32", f"{base}/large", f"file://{tmp_path}/gfal", **python)
    assert (tmp_path / "gfal").read_bytes() == contents["large"]
    run("gfal-copy", "-f", "-K", "ADLER32", f"file://{tmp_path}/gfal", f"{base}/gfal", **python)
    assert (server.directory / "gfal").read_bytes() == contents["large"]
    assert run("gfal-sum", f"{base}/gfal", "ADLER32", **python).split()[1] == f"{zlib.adler32(contents['large']):08x}"
    run("gfal-rm", f"{base}/gfal", **python)
    assert not (server.directory / "gfal").exists()


@needs_programs("rclone")
def test_rclone_copies_a_tree_in_both_directions_and_purges_it(server, contents, tmp_path):
    existing = [f"--webdav-url={server.url}", "--config", "/dev/null"]
    run("rclone", "copy", *existing, ":webdav:deep", tmp_path / "tree")
    assert {path.name: path.read_bytes() for path in (tmp_path / "tree" / "er").iterdir()} == contents
    run("rclone", "copy", *existing, tmp_path / "tree", ":webdav:copied")
    copied = server.directory / "copied"
    assert {path.name: path.read_bytes() for path in (copied / "er").iterdir()} == contents
    run("rclone", "purge", *existing, ":webdav:copied")
    assert not copied.exists()


@needs_programs("wget")
def test_wget_resumes_and_follows_the_links_of_directories(server, contents, tmp_path):
    (tmp_path / "large").write_bytes(contents["large"][:5_000_000])
    run("wget", "-q", "-c", "-O", tmp_path / "large", f"{server.url}/large")
    assert (tmp_path / "large").read_bytes() == contents["large"]
    run("wget", "-q", "-r", "-np", "-nH", "-P", tmp_path / "r", f"{server.url}/deep/")
    for name, content in contents.items():
        assert (tmp_path / "r" / "deep" / "er" / name).read_bytes() == content
