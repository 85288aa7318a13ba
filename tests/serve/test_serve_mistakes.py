"""Messages of `venturi serve` for invalid arguments, and reports of automatic choices.

A message has the expected value, the found value and the next step.
"""

import subprocess
import urllib.request
from pathlib import Path

import pytest
from servekit import run, serving

from testkit import throwaway_certificates

FTP, HTTP = ["--listen", "127.0.0.1:0"], ["--http", "127.0.0.1:0"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Return a directory with files to serve, a certificate, its key and invalid files."""
    root = tmp_path_factory.mktemp("mistakes")
    (root / "data").mkdir()
    (root / "data" / "file").write_bytes(b"content")
    _, cert, key = throwaway_certificates(root)
    cert.rename(root / "cert")
    key.rename(root / "key")
    (root / "empty").write_text("# nobody\n\n")
    (root / "words").write_text("no certificate\n")
    return root


GSI = ["--cert", "cert", "--key", "key", "--ca-dir", "trust"]
TLS = ["--https", "127.0.0.1:0", "--tls-cert"]
NO_FILE = "found No such file or directory; "


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ([*FTP, "--tls-cert", "cert", "--tls-key", "key"], "--tls-cert: expected --https as well"),
        ([*HTTP, "--tls-cert", "cert", "--tls-key", "key"], "--tls-cert: expected --https as well"),
        ([*HTTP, *GSI, "--grid-mapfile", "empty"], "--cert: expected --listen as well, because the option applies to gsiftp"),
        ([*FTP, "--tokens", "words"], "--tokens: expected --http or --https as well"),
        (["--issuers", "words"], "--issuers: expected --http or --https as well"),
        ([*HTTP, "--data-ports", "50000-50010"], "--data-ports: expected --listen as well, because the option applies to FTP, found only HTTP"),
        ([*HTTP, "--public-address", "192.0.2.7"], "--public-address: expected --listen as well"),
        ([*HTTP, "--streams", "4"], "--streams: expected --listen as well"),
        ([*HTTP, "--block", "64KiB"], "--block: expected --listen as well"),
        ([*FTP, "--anonymous"], "--anonymous: expected --users, --cert, --tokens or --issuers as well, found neither"),
        ([*HTTP, "--third-party", "--write"], "--third-party: expected --users, --cert, --tokens or --issuers as well, found neither"),
        ([*FTP, "--sync"], "--sync: expected --write as well"),
        ([*HTTP, "--memory", "32MiB"], "--memory: expected --write as well"),
        ([*FTP, "--users", "empty"], "empty: expected a file of users of at most 16 MiB, found no user"),
        ([*FTP, *GSI, "--grid-mapfile", "empty"], "empty: expected a line `\"/name/of/a/certificate\" user` for each user, found no user"),
        ([*FTP, "--cert", "words", "--key", "key", "--grid-mapfile", "empty", "--ca-dir", "trust"], "words: expected a valid file for gsiftp, found expected"),
        ([*TLS, "nowhere", "--tls-key", "key"], f"nowhere: expected a certificate and its key in PEM, without a password, {NO_FILE}choose other files with --tls-cert"),
        ([*TLS, "cert", "--tls-key", "nowhere"], f"nowhere: expected a certificate and its key in PEM, without a password, {NO_FILE}choose other files with --tls-cert"),
        ([*TLS, "words", "--tls-key", "key"], "words: expected a certificate and its key in PEM, without a password, found no certificate; "),
        ([*TLS, "cert", "--tls-key", "cert"], "cert: expected a certificate and its key in PEM, without a password, found no private key; "),
        (["--http", "192.0.2.1:80"], "192.0.2.1:80: expected a free address and port of this host, found Cannot assign requested address; choose another with --http"),
    ],
)  # fmt: skip
def test_ineffective_options_and_invalid_files_are_rejected_with_advice(engine, directory, arguments, output):
    done = run(engine, "serve", "data", *arguments, code=1, cwd=directory)
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"venturi serve: {output}"), line
    assert "os error" not in line


def test_an_invalid_public_address_is_reported(engine, directory):
    assert "such as 192.0.2.7" in run(engine, "serve", directory, "--public-address", "here", code=2).stderr


def test_json_and_quiet_cannot_be_combined(engine, directory):
    assert (
        "'--json' cannot be used with '--quiet'"
        in run(engine, "serve", directory, "--json", "--quiet", code=2).stderr
    )


def scraped(address):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
        return response.read()


def test_a_metrics_port_chosen_by_the_kernel_is_reported(engine, directory, tmp_path):
    with serving(engine, directory / "data", tmp_path, "--metrics", "0") as server:
        assert b"venturi_serve_sessions 0" in scraped(server.events("start")[0]["metrics"])
    with serving(engine, directory / "data", tmp_path) as server:
        assert "metrics" not in server.events("start")[0]
    with subprocess.Popen(
        [engine, "serve", directory / "data", *FTP, "--metrics", "0"], stderr=subprocess.PIPE, text=True
    ) as process:
        line = process.stderr.readline()
        assert b"venturi_serve_sessions 0" in scraped(line.partition("counters at http://")[2].partition("/")[0])
        process.terminate()


def test_a_full_disk_for_the_log_does_not_end_the_server(engine, directory):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([engine, "serve", "nowhere"], stdout=full, stderr=full, timeout=30, check=False)
    assert done.returncode == 1
    arguments = [engine, "serve", directory / "data", *FTP, "--json"]
    with Path("/dev/full").open("wb") as full:
        process = subprocess.Popen(arguments, stdout=full, stderr=subprocess.PIPE, text=True)
    with process:
        line = process.stderr.readline()
        assert line.startswith("venturi serve: standard output: cannot write log lines: No space")
        process.terminate()
        assert process.wait(30) == 0
