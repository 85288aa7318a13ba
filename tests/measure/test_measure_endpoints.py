"""Endpoints of the command line: hosts, users, paths, and errors with the next step."""

from pathlib import Path

import pytest

from venturi.backend.targets import read_targets
from venturi.errors import MeasureError
from venturi.measure import Endpoint, parse_endpoint


@pytest.mark.parametrize(
    ("text", "ssh", "path"),
    [
        ("dtn1:/scratch", "dtn1", "/scratch"),
        ("alice@dtn1.example.org:/scratch/a b", "alice@dtn1.example.org", "/scratch/a b"),
        ("dtn1:data", "dtn1", "data"),
        ("dtn1:", "dtn1", "."),
        ("dtn1:/with:colon", "dtn1", "/with:colon"),
        ("[fd00::2]:/scratch", "fd00::2", "/scratch"),
        ("alice@[fd00::2]:/scratch", "alice@fd00::2", "/scratch"),
        ("/local/path", None, "/local/path"),
        ("./with:colon", None, str(Path("with:colon").absolute())),
        ("relative", None, str(Path("relative").absolute())),
    ],
)
def test_an_endpoint_is_a_host_with_a_path_or_a_local_path(text, ssh, path):
    assert parse_endpoint(text) == Endpoint(path, ssh=ssh)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected HOST:/PATH, a local path or a URL"),
        ("gopher://dtn1/scratch", "expected a URL with one of the schemes"),
        ("https://alice:word@dtn1/", r"https://alice:\*\*\*@dtn1/: expected a URL without password"),
        ("root://dtn1/scratch", "expected two slashes"),
        ("-oProxyCommand=touch:/tmp", "found an option"),
        ("a b:/tmp", "invalid host name"),
        ("a@b@c:/tmp", "invalid host name"),
    ],
)
def test_an_invalid_endpoint_is_an_error_with_the_next_step(text, message):
    with pytest.raises(MeasureError, match=message):
        parse_endpoint(text)


def test_a_hosts_file_sets_the_connection_of_a_host(tmp_path):
    path = tmp_path / "hosts.toml"
    path.write_text("""
        pod = { connect = ["podman", "exec", "-i", "dtn"], path = "/data/alice", address = "10.0.0.2" }
        dtn = { address = "dtn-data.example.org" }
    """)
    targets = read_targets(path)
    pod = parse_endpoint("pod:run7").at(targets)
    assert (pod.path, pod.ssh, pod.connect) == ("/data/alice/run7", None, ("podman", "exec", "-i", "dtn"))
    assert (pod.address, pod.name) == ("10.0.0.2", "pod")
    dtn = parse_endpoint("dtn:/scratch").at(targets)
    assert (dtn.path, dtn.ssh, dtn.address) == ("/scratch", "dtn", "dtn-data.example.org")
    other = parse_endpoint("other:/scratch")
    assert other.at(targets) == other


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("davs://se.example.org:8443/dteam/", "davs://se.example.org:8443/dteam"),
        ("root://eos.example.org//", "root://eos.example.org//"),
        ("s3://127.0.0.1:9000/bucket", "s3://127.0.0.1:9000/bucket"),
    ],
)
def test_a_url_is_an_existing_server(text, url):
    endpoint = parse_endpoint(text)
    assert (endpoint.url, endpoint.path, endpoint.ssh, str(endpoint)) == (url, "", None, url)


def test_two_directories_of_one_user_and_host_need_one_connection():
    one, other = parse_endpoint("dtn1:/a"), parse_endpoint("dtn1:/b")
    assert one.host == other.host
    assert one.host != parse_endpoint("alice@dtn1:/a").host
    assert parse_endpoint("/a").host == parse_endpoint("/b").host
