"""Storages on existing servers with faults: damaged files, killed runs, weak credentials, invalid scenarios."""

import base64
import json
import os
import signal
import subprocess
import time

import pytest
from existingkit import (
    GFAL_OPTIONS,
    LIMIT_S,
    VENTURI,
    gridftp,
    problems,
    rows,
    run,
    scenario,
    servers,
    srm,
    webdav,
    xrootd_tls,
)

from testkit import living_processes, needs_programs, wait_until
from venturi.errors import ScenarioError
from venturi.run.created import read_created
from venturi.scenario import load_scenario

SIZE = 100_000
_PROGRAMS = {
    webdav: ["apache2"], gridftp: ["globus-gridftp-server", "openssl"], xrootd_tls: ["xrootd", "xrdfs", "openssl"],
    srm: ["globus-gridftp-server", "openssl", "gfal-stat"],
}  # fmt: skip
_MOVER = """\
[mover.{name}]
argv = ["sh", "-c", {script!r}, "sh", "{{source}}", "{{destination}}"]
protocols = ["http"]
"""


def _mover(name, script):
    """Return a mover that runs a script with source and destination."""
    return _MOVER.format(name=name, script=script.replace("{", "{{").replace("}", "}}")).replace("'", '"')


@pytest.mark.parametrize(
    ("script", "outcome", "error"),
    [
        ("head -c 999 $1 | curl -sSf -T - $2", "short", "expected 100000 bytes at the receiver, found 999"),
        ("tr A-Z a-z <$1 | curl -sSf -T - $2", "failed", "expected the adler32 "),
    ],
    ids=["size", "checksum"],
)
def test_a_wrong_size_and_a_wrong_checksum_are_detected(script, outcome, error, tmp_path):
    needs_programs("apache2", "curl")
    with servers(webdav) as (server,):
        storage = f'url = "{server.url}"\nchecksum = "adler32"'
        path = scenario(
            tmp_path, {"far": storage}, mover="liar", source="disk", destination="far", more=_mover("liar", script)
        )
        _, found = run(path, code=3)
        ((found_outcome, found_error, checksum),) = rows(found, "outcome", "error", "checksum")
        assert found_outcome == outcome
        assert error in found_error
        assert checksum is None
        assert server.files() == []


def test_clean_removes_the_files_of_a_killed_run_and_nothing_else(tmp_path):
    needs_programs("apache2", "curl")
    token = f"clean-{os.getpid()}"
    with servers(webdav) as (server,):
        (server.root / "mine").write_text("of the user")
        # The mover uploads, but never exits.
        path = scenario(
            tmp_path,
            {"far": server.url},
            mover="waiting",
            source="far",
            destination="far",
            more=_mover(
                "waiting", f"curl -sSf $1 | curl -sSf -T - $2 && touch {tmp_path}/uploaded && exec sleep 1000"
            ),
        )
        words = [*VENTURI, "run", str(path), "--yes", "--runs", str(tmp_path / "runs")]
        started = subprocess.Popen(
            words, cwd=tmp_path, env={**os.environ, "VENTURI_TEST": token}, stderr=subprocess.DEVNULL
        )
        wait_until((tmp_path / "uploaded").exists, "the upload", LIMIT_S)
        for pid in living_processes(token):
            os.kill(pid, signal.SIGKILL)
        started.wait()
        wait_until(lambda: not living_processes(token), "the end of all processes")
        names = server.files()
        assert any(name.endswith("sets/seed1/100kB/000000") for name in names)
        assert any(name.endswith("out/t0000000-000000") for name in names)
        (directory,) = (tmp_path / "runs").glob("existing-*")
        # The journal has each file before it is created.
        recorded = {one.url.removeprefix(server.url) for one in read_created(directory)}
        assert set(names) - {"mine"} <= recorded
        done = subprocess.run(
            [*VENTURI, "clean", "existing", "--runs", str(tmp_path / "runs")],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=LIMIT_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert server.files() == ["mine"]
        removed = {line.removeprefix(f"removed {server.url}") for line in done.stdout.splitlines()}
        assert set(names) - {"mine"} <= removed
        assert read_created(directory) == []


def test_a_resumed_run_has_each_trial_once_and_leaves_no_files(tmp_path):
    needs_programs("apache2", "curl")
    token = f"resume-{os.getpid()}"
    with servers(webdav) as (server,):
        # The third transfer waits in the first session only.
        script = (
            f"curl -sSf -T $1 $2; case $2 in *t0000002-*) test -e {tmp_path}/killed ||"
            f" {{ touch {tmp_path}/uploaded; exec sleep 1000; }};; esac"
        )
        path = scenario(
            tmp_path, {"far": server.url}, mover="waiting", source="disk", destination="far", repeat=4,
            more=_mover("waiting", script),
        )  # fmt: skip
        words = [*VENTURI, "run", str(path), "--yes", "--runs", str(tmp_path / "runs")]
        started = subprocess.Popen(
            words, cwd=tmp_path, env={**os.environ, "VENTURI_TEST": token}, stderr=subprocess.DEVNULL
        )
        wait_until((tmp_path / "uploaded").exists, "the upload", LIMIT_S)
        for pid in living_processes(token):
            os.kill(pid, signal.SIGKILL)
        started.wait()
        (tmp_path / "killed").touch()
        assert server.files() != []
        _, found = run(path, "--resume")
        assert [one[0] for one in rows(found, "outcome")] == ["ok"] * 4
        assert problems(found) == []
        assert server.files() == []


def _token(scope):
    def part(content):
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    claims = {"scope": scope, "exp": int(time.time()) + 3600, "wlcg.ver": "1.0"}
    return f"{part({'alg': 'none'})}.{part(claims)}.c2lnbmF0dXJl"


def test_a_token_without_permission_to_remove_is_reported_before_the_first_write(tmp_path):
    needs_programs("apache2", "curl")
    with servers(webdav) as (server,):
        file = tmp_path / "token"
        file.write_text(_token("storage.read:/ storage.create:/"))
        file.chmod(0o600)
        path = scenario(
            tmp_path, {"far": server.url}, mover="curl", source="disk", destination="far",
            environment={"BEARER_TOKEN_FILE": str(file)},
        )  # fmt: skip
        done, found = run(path, code=1)
        assert "expected credentials that can remove files" in done.stderr
        assert "testbed.storage.far: here" in done.stderr
        assert found is None
        assert not {line.split()[0] for line in (server.work / "access.log").read_text().splitlines()} & {
            "PUT",
            "MKCOL",
        }


@pytest.mark.parametrize(
    ("kind", "mover"),
    [(webdav, "curl"), (gridftp, "globus-url-copy"), (xrootd_tls, "xrdcp"), (srm, "gfal-copy")],
    ids=["dav", "gsiftp", "roots", "srm"],
)
def test_existing_files_are_transferred_with_their_own_sizes_and_kept(kind, mover, tmp_path):
    needs_programs(mover, *_PROGRAMS[kind])
    with servers(kind) as (server,):
        (server.root / "run1").mkdir()
        contents = {"run1/a.root": b"a" * 70_000, "b.root": b"b" * 5}
        for name, content in contents.items():
            (server.root / name).write_bytes(content)
        (tmp_path / "files.txt").write_text("# my files\nrun1/a.root\nb.root\n")
        storages = {"mine": f'url = "{server.url}"\nexisting = "files.txt"', "far": server.below("copies")}
        (server.root / "copies").mkdir()
        (server.root / "copies").chmod(0o777)
        path = scenario(
            tmp_path, storages, source="mine", files=[2], environment=server.environment,
            options=GFAL_OPTIONS if mover == "gfal-copy" else {}, factors={"mover": [mover], "destination": ["disk"]},
        )  # fmt: skip
        _, found = run(path)
        transfers = rows(found, "source", "requested_bytes", "received_bytes", "outcome")
        expected = {("mine:run1/a.root", 70_000, 70_000, "ok"), ("mine:b.root", 5, 5, "ok")}
        assert set(transfers) == expected
        assert {name: (server.root / name).read_bytes() for name in contents} == contents
        assert server.files() == ["b.root", "copies", "run1", "run1/a.root"]
        # The plan limits file sizes, and larger files are not read.
        _, found = run(path, "--set", 'workload.factors.size=["10 kB"]', code=3)
        assert any("expected a file of at most 10000 bytes" in evidence for _, evidence in problems(found))
        with pytest.raises(ScenarioError, match="expected a storage for new files, found mine with existing files"):
            load_scenario(path, ['workload.factors.source=["disk"]', 'workload.factors.destination=["mine"]'])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["limits={}"], 'limits.bytes: expected a limit such as "10 GB" (because far is on existing servers)'),
        (['workload.mover="cp"'], "expected a mover for the schemes of far (davs, root), found cp with no protocol; use "),
        (['workload.mover="globus-url-copy"'], "found globus-url-copy with protocols gsiftp, ftp; use "),
        (['testbed.storage.far.url="tcp://se.example.org/x"'], "expected a URL with one of the schemes gsiftp, "),
        (['testbed.storage.far.url="root://se.example.org/x"'], "expected two slashes before the path of an XRootD URL"),
        (['testbed.storage.far.url="davs://alice:word@se/x"'], "expected a URL without password"),
        (['testbed.storage.far.url="davs://se/x//y"'], "expected a path without empty parts"),
        (['testbed.storage.far.path="/x"'], "expected no path with url, found one"),
        (["testbed.host.other={}"], "testbed.storage.far.host: expected the host whose programs and credentials"),
    ],
    ids=lambda value: value[0].partition("=")[0] if isinstance(value, list) else "",
)  # fmt: skip
def test_an_invalid_storage_on_an_existing_server_is_reported_with_its_location(changes, message, tmp_path):
    urls = '["davs://se.example.org/dir", "root://se.example.org//dir"]'
    path = scenario(tmp_path, {"far": f"url = {urls}"}, mover="curl", source="disk", destination="far")
    if "host.other" in changes[0]:
        changes = [*changes, "testbed.storage.disk2={host='other', path='x'}"]
    with pytest.raises(ScenarioError) as error:
        load_scenario(path, changes)
    assert message in str(error.value)


@pytest.mark.parametrize("backend", ["lab", "sim"])
def test_the_lab_and_the_simulator_reject_existing_servers_with_the_reason(backend, tmp_path):
    path = scenario(tmp_path, {"far": "davs://se.example.org/dir"}, mover="curl", source="disk", destination="far")
    done, _ = run(path, "--on", backend, code=1)
    assert "testbed.storage.far: expected a directory" in done.stderr
    assert "use --on hosts" in done.stderr


def test_the_plan_lists_the_urls_without_the_name_of_a_run(tmp_path):
    path = scenario(tmp_path, {"far": "davs://se.example.org/dir"}, mover="curl", source="disk", destination="far")
    shown = subprocess.run([*VENTURI, "plan", str(path)], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "stores far in davs://se.example.org/dir" in shown.stdout
    assert "server far" in shown.stdout
    lines = subprocess.run(
        [*VENTURI, "plan", str(path), "--lines"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "venturi-existing" not in lines.stdout
