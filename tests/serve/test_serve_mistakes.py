"""What `venturi serve` says to whoever has mistyped: what was expected, what was found, and what to do; and where it tells what it chose itself."""

import subprocess
import urllib.request
from pathlib import Path

import pytest
from servekit import run, serving

from testkit import throwaway_certificates

FTP, HTTP = ["--listen", "127.0.0.1:0"], ["--http", "127.0.0.1:0"]


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    """A folder with a directory to serve, a certificate and its key, and files that are none of these."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "data").mkdir()
    (folder / "data" / "file").write_bytes(b"content")
    _, cert, key = throwaway_certificates(folder)
    cert.rename(folder / "cert")
    key.rename(folder / "key")
    (folder / "empty").write_text("# nobody\n\n")
    (folder / "words").write_text("no certificate\n")
    return folder


GSI = ["--cert", "cert", "--key", "key", "--ca-dir", "trust"]
TLS = ["--https", "127.0.0.1:0", "--tls-cert"]
NO_FILE = "found No such file or directory; "


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([*FTP, "--tls-cert", "cert", "--tls-key", "key"], "--tls-cert: expected --https besides, since it is for HTTPS"),
        ([*HTTP, "--tls-cert", "cert", "--tls-key", "key"], "--tls-cert: expected --https besides, since it is for HTTPS"),
        ([*HTTP, *GSI, "--grid-mapfile", "empty"], "--cert: expected --listen besides, since it is for gsiftp"),
        ([*FTP, "--tokens", "words"], "--tokens: expected --http or --https besides, since tokens are for HTTP"),
        (["--issuers", "words"], "--issuers: expected --http or --https besides, since tokens are for HTTP"),
        ([*HTTP, "--data-ports", "50000-50010"], "--data-ports: expected --listen besides, since it is for FTP, found HTTP alone"),
        ([*HTTP, "--public-address", "192.0.2.7"], "--public-address: expected --listen besides"),
        ([*HTTP, "--streams", "4"], "--streams: expected --listen besides"),
        ([*HTTP, "--block", "64KiB"], "--block: expected --listen besides"),
        ([*FTP, "--anonymous"], "--anonymous: expected --users, --cert, --tokens or --issuers besides, found none of them"),
        ([*HTTP, "--third-party", "--write"], "--third-party: expected --users, --cert, --tokens or --issuers besides, found none"),
        ([*FTP, "--sync"], "--sync: expected --write besides"),
        ([*HTTP, "--memory", "32MiB"], "--memory: expected --write besides"),
        ([*FTP, "--users", "empty"], "empty: expected a file of users of at most 16 MiB, found no user"),
        ([*FTP, *GSI, "--grid-mapfile", "empty"], "empty: expected a line `\"/name/of/a/certificate\" user` for each user, found no user"),
        ([*FTP, "--cert", "words", "--key", "key", "--grid-mapfile", "empty", "--ca-dir", "trust"], "words: expected a file for gsiftp that can be used, found expected"),
        ([*TLS, "nowhere", "--tls-key", "key"], f"nowhere: expected a certificate and its key in PEM, without a password, {NO_FILE}name others with --tls-cert"),
        ([*TLS, "cert", "--tls-key", "nowhere"], f"nowhere: expected a certificate and its key in PEM, without a password, {NO_FILE}name others with --tls-cert"),
        ([*TLS, "words", "--tls-key", "key"], "words: expected a certificate and its key in PEM, without a password, found no certificate; name others"),
        ([*TLS, "cert", "--tls-key", "cert"], "cert: expected a certificate and its key in PEM, without a password, found no private key; name others"),
        (["--http", "192.0.2.1:80"], "192.0.2.1:80: expected an address and port that are free and ours, found Cannot assign requested address; name another with --http"),
    ],
)  # fmt: skip
def test_what_would_do_nothing_or_cannot_be_read_is_refused_with_what_to_do(engine, ground, words, told):
    done = run(engine, "serve", "data", *words, code=1, cwd=ground)
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"venturi serve: {told}"), line
    assert "os error" not in line


def test_an_address_that_is_none_is_told(engine, ground):
    assert "such as 192.0.2.7" in run(engine, "serve", ground, "--public-address", "here", code=2).stderr


def test_nobody_asks_for_events_and_silence(engine, ground):
    assert (
        "'--json' cannot be used with '--quiet'" in run(engine, "serve", ground, "--json", "--quiet", code=2).stderr
    )


def scraped(address):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return answer.read()


def test_a_port_for_counters_that_the_kernel_chose_is_told(engine, ground, tmp_path):
    with serving(engine, ground / "data", tmp_path, "--metrics", "0") as server:
        assert b"venturi_serve_sessions 0" in scraped(server.events("start")[0]["metrics"])
    with serving(engine, ground / "data", tmp_path) as server:
        assert "metrics" not in server.events("start")[0]
    with subprocess.Popen(
        [engine, "serve", ground / "data", *FTP, "--metrics", "0"], stderr=subprocess.PIPE, text=True
    ) as process:
        line = process.stderr.readline()
        assert b"venturi_serve_sessions 0" in scraped(line.partition("counters at http://")[2].partition("/")[0])
        process.terminate()


def test_a_full_disk_for_what_is_said_ends_no_server(engine, ground):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([engine, "serve", "nowhere"], stdout=full, stderr=full, timeout=30, check=False)
    assert done.returncode == 1
    words = [engine, "serve", ground / "data", *FTP, "--json"]
    with Path("/dev/full").open("wb") as full:
        process = subprocess.Popen(words, stdout=full, stderr=subprocess.PIPE, text=True)
    with process:
        line = process.stderr.readline()
        assert line.startswith(
            "venturi serve: standard output: expected that lines can be written there, found No space"
        )
        process.terminate()
        assert process.wait(30) == 0
