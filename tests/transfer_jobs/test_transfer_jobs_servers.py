"""Transfer jobs with real GridFTP and XRootD servers."""

import json
import shutil
import time
from pathlib import Path

import pytest
from bare import lacking
from jobkit import VENTURI, make_files

GRIDFTP = pytest.mark.skipif(lacking("gridftp") is not None, reason=str(lacking("gridftp")))
XROOTD = pytest.mark.skipif(lacking("xrootd") is not None, reason=str(lacking("xrootd")))


def transfer(lab, *words, status=0, **environment):
    """Run `venturi transfer` on host c and return its output."""
    done = lab.run("c", *VENTURI, "transfer", *map(str, words), timeout_s=300, environment=environment)
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout)


def write_list(storage, lines):
    path = storage / "list"
    path.write_text("".join(f"{' '.join(map(str, line))}\n" for line in lines))
    return path


@GRIDFTP
def test_third_party_copies_transfer_many_files_per_call_and_are_verified_on_the_servers(lab):
    source, target = lab.storage("from", "a"), lab.storage("to", "b")
    files = make_files(source, 10, 5_000)
    contexts = [
        lab.context("gsi-a", "gridftp", "a", auth="gsi", storages=["from"]),
        lab.context("gsi-b", "gridftp", "b", auth="gsi", storages=["to"]),
    ]
    with lab.running(contexts[0]), lab.running(contexts[1]):
        url = {host: f"gsiftp://{host}.lab.test:2811" for host in "ab"}
        lines = [(f"{url['a']}{path}", f"{url['b']}{target / path.name}", "5000B") for path in files]
        list_ = write_list(
            lab.storage("lists", "c"), [*lines, (f"{url['a']}{source}/none", f"{url['b']}{target}/none")]
        )
        output = transfer(
            lab, "submit", list_, "--run", "--json", "--queue", list_.with_name("queue"), "--files-per-call", 6, "--concurrency", 2,
            status=3,
        )  # fmt: skip
    (job,) = output["jobs"]
    assert [(target / path.name).read_bytes() for path in files] == [path.read_bytes() for path in files]
    assert job["transfers"] == {"done": 10, "failed": 1}
    assert job["causes"] == {"no-such-file": 1}
    assert job["done_bytes"] == 50_000
    assert job["verified"] == 10, job["unverified"]


@XROOTD
def test_checksums_of_an_xrootd_server_are_verified_and_its_errors_classified(lab):
    storage, local = lab.storage("xrootd", "a"), lab.storage("client", "c")
    files = make_files(local / "in", 3)
    served = make_files(storage / "in", 3, seed=2)
    url = f"root://a.lab.test:1094/{storage}"
    with lab.running(lab.context("plain", "xrootd", "a", storages=["xrootd"])):
        up = [(path, f"{url}/up/{path.name}") for path in files]
        down = [(f"{url}/in/{path.name}", local / "down" / path.name) for path in served]
        odd = [
            (f"{url}/in/none", local / "none"),
            (f"{url}/in/00000", "root://a.lab.test:1094//nowhere/x"),
            (files[0], f"{url}/c adler32:1"),
        ]
        list_ = write_list(local, [*up, *down, *odd])
        output = transfer(lab, "submit", list_, "--run", "--json", "--queue", local / "queue", status=3)
        lost = transfer(lab, "status", "--failed", "--json", "--queue", local / "queue")["failed"]
    (job,) = output["jobs"]
    assert [(storage / "up" / path.name).read_bytes() for path in files] == [path.read_bytes() for path in files]
    assert [(local / "down" / path.name).read_bytes() for path in served] == [path.read_bytes() for path in served]
    assert {row["line"]: row["cause"] for row in lost} == {7: "no-such-file", 8: "denied", 9: "not-as-listed"}, lost
    assert job["verified"] == 6, job["unverified"]
    assert job["attempts"] == 9
    assert not (local / "none").exists()


@XROOTD
def test_transfers_to_an_unreachable_server_are_retried_until_it_returns(lab):
    storage, local = lab.storage("away", "a"), lab.storage("away-client", "c")
    files = make_files(storage, 3)
    lines = [(f"root://a.lab.test:1094/{path}", local / path.name) for path in files]
    words = [
        "submit",
        write_list(local, lines),
        "--queue",
        local / "queue",
        "--backoff",
        "0.2 s",
        "--retries",
        50,
        "--detach",
        "--json",
    ]
    # By default, xrdcp waits two minutes for a connection, five times.
    transfer(lab, *words, XRD_CONNECTIONWINDOW="1", XRD_CONNECTIONRETRY="1", XRD_STREAMERRORWINDOW="0")

    def look():
        return transfer(lab, "status", "--json", "--queue", local / "queue")

    deadline = time.monotonic() + 300
    while not (before := look())["passing"]:
        assert time.monotonic() < deadline, before
    assert set(before["passing"]) == {"unreachable"}
    assert before["transfers"].get("failed", 0) == 0
    with lab.running(lab.context("back", "xrootd", "a", storages=["away"])):
        while (after := look())["state"] != "done":
            assert time.monotonic() < deadline, after
    assert after["verified"] == 3, after
    assert after["retries"] >= 1
    assert after["done_bytes"] == 30_000


@XROOTD
@pytest.mark.parametrize("direction", ["pull", "push"])
def test_http_third_party_copies_bypass_the_client(lab, direction):
    source, target = lab.storage("http-from", "a"), lab.storage("http-to", "b")
    files = make_files(source, 3, 400_000)
    # An XRootD server that pulls a file does not create directories.
    (target / direction).mkdir(mode=0o777)
    (target / direction).chmod(0o777)
    servers = [
        lab.context(f"http-{host}", "xrootd", host, storages=[storage], auth="gsi", tls=True, http=True)
        for host, storage in (("a", "http-from"), ("b", "http-to"))
    ]
    with lab.running(servers[0]) as one, lab.running(servers[1]) as two:
        ends = [
            (one["https"].format(path=path), two["https"].format(path=target / direction / path.name))
            for path in files
        ]
        list_ = write_list(lab.storage(f"http-lists-{direction}", "c"), [(*pair, "400kB") for pair in ends])
        before = carried(lab, "c")
        output = transfer(
            lab, "submit", list_, "--run", "--json", "--queue", list_.with_name("queue"), "--mover", "curl", "--option", "certificate=true",
            "--option", f"third_party={direction}",
        )  # fmt: skip
        through_client = carried(lab, "c") - before
    (job,) = output["jobs"]
    assert [(target / direction / path.name).read_bytes() for path in files] == [path.read_bytes() for path in files]
    assert (job["transfers"], job["done_bytes"]) == ({"done": 3}, 1_200_000)
    assert job["verified"] == 3, job["unverified"]
    # Kernel counters of the client's interface: handshakes and commands of the copies, but not the files.
    assert through_client < 1_200_000 / 4


def carried(lab, host):
    """Return the bytes that an interface has received and sent."""
    done = lab.run(host, "ip", "-j", "-s", "link", "show", "eth0")
    (link,) = json.loads(done.stdout)
    return link["stats64"]["rx"]["bytes"] + link["stats64"]["tx"]["bytes"]


GFAL = pytest.mark.skipif(
    lacking("gridftp") is not None or shutil.which("gfal-copy") is None, reason="needs gfal-copy"
)


@GFAL
def test_a_missing_gfal2_plugin_is_reported_with_its_package_and_not_retried(lab, tmp_path):
    directory = lab.storage("plugins", "c")
    (installed,) = Path("/usr/lib").glob("*/gfal2-plugins")
    shutil.copy(installed / "libgfal_plugin_file.so", directory)
    list_ = write_list(lab.storage("plugin-lists", "c"), [("srm://a.lab.test:8446/x", tmp_path / "x")])
    words = ("submit", list_, "--run", "--json", "--queue", list_.with_name("queue"))
    output = transfer(lab, *words, status=3, GFAL_PLUGIN_DIR=str(directory))
    (lost,) = transfer(lab, "status", "--failed", "--json", "--queue", list_.with_name("queue"))["failed"]
    assert output["jobs"][0]["causes"] == {"no-tool": 1}
    assert (lost["attempts"], lost["error"].endswith("install the Debian package gfal2-plugin-srm")) == (1, True)
