"""Directories of the user as sources, without a list of files: Venturi lists them and never changes them."""

import hashlib
import json
import os
import signal
import subprocess

import pytest
from existingkit import (
    LIMIT_S,
    VENTURI,
    ftp,
    gridftp,
    problems,
    rows,
    run,
    s3,
    scenario,
    servers,
    sftp,
    webdav,
    xrootd,
)
from test_existing_servers import MOVERS

from testkit import living_processes, needs_programs, wait_until

FILES = {"b.root": 5, "run1/a.root": 70_000, "run1/deep/c.root": 30_000}
"""Files that a run of three files up to 100 kB uses."""
OTHERS = {"run1/large.root": 200_000, "run2/has space": 10, "z.root": 1_000}
"""Files that the run does not use: too large, a name that URLs cannot contain, and one more than needed."""


def fill(directory):
    for name, size in (FILES | OTHERS).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * (size // len(name)) + b"x" * (size % len(name)))


def state(directory):
    """Return all state of a directory and its files that a change would alter."""
    found = {}
    for path in [directory, *directory.rglob("*")]:
        status = path.stat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(directory))] = (
            status.st_ino, status.st_mode, status.st_uid, status.st_size, status.st_mtime_ns, status.st_ctime_ns, content,
        )  # fmt: skip
    return found


@pytest.mark.parametrize(
    "kinds",
    [(webdav, gridftp, xrootd), (ftp, sftp, s3)],
    ids=lambda kinds: " ".join(kind.__name__ for kind in kinds),
)
def test_a_source_directory_without_a_file_list_is_listed_and_transferred_unchanged(kinds, tmp_path):
    needs_programs(*(program for kind in kinds for program in MOVERS[kind]))
    with servers(*kinds) as started:
        tops = [
            server.work / "s3/bucket" if kind is s3 else server.root
            for kind, server in zip(kinds, started, strict=True)
        ]
        for top in tops:
            fill(top / "mine")
        before = [state(top / "mine") for top in tops]
        names = [kind.__name__ for kind in kinds]
        storages = {
            name: f'url = "{server.below("mine")}"\nexisting = true'
            for name, server in zip(names, started, strict=True)
        }
        path = scenario(
            tmp_path, storages, destination="disk", files=[3],
            environment={key: value for server in started for key, value in server.environment.items()},
            factors={"mover": [MOVERS[kind][0] for kind in kinds], "source": names},
            more='[workload.sweep]\nzip = [["mover", "source"]]',
        )  # fmt: skip
        _, found = run(path)
        assert problems(found) == []
        transfers = rows(found, "source", "requested_bytes", "received_bytes", "outcome")
        assert set(transfers) == {
            (f"{name}:{file}", size, size, "ok") for name in names for file, size in FILES.items()
        }
        assert [state(top / "mine") for top in tops] == before


def test_a_local_directory_is_a_source_and_a_resumed_run_uses_the_same_files(tmp_path):
    mine, token = tmp_path / "mine", f"listed-{os.getpid()}"
    fill(mine)
    before = state(mine)
    # The second transfer waits in the first session only.
    script = (
        f"case $2 in *t0000001-*) test -e {tmp_path}/killed || {{{{ touch {tmp_path}/started; exec sleep 1000; }}}};; esac;"
        " exec cp $1 $2"
    )
    mover = f'[mover.waiting]\nargv = ["sh", "-c", {json.dumps(script)}, "sh", "{{source}}", "{{destination}}"]'
    path = scenario(
        tmp_path, {"mine": f'host = "here"\npath = "{mine}"\nexisting = true'}, mover="waiting", source="mine",
        destination="disk", files=[3], repeat=2, more=mover,
    )  # fmt: skip
    words = [*VENTURI, "run", str(path), "--yes", "--runs", str(tmp_path / "runs")]
    started = subprocess.Popen(
        words, cwd=tmp_path, env={**os.environ, "VENTURI_TEST": token}, stderr=subprocess.DEVNULL
    )
    wait_until((tmp_path / "started").exists, "the second trial", LIMIT_S)
    for pid in living_processes(token):
        os.kill(pid, signal.SIGKILL)
    started.wait()
    wait_until(lambda: not living_processes(token), "the end of all processes")
    assert state(mine) == before
    (tmp_path / "killed").touch()
    # A new file would be the first one of a new run.
    (mine / "aaa.root").write_bytes(b"new")
    _, found = run(path, "--resume")
    expected = [(f"mine:{name}", "ok") for name in FILES] * 2
    assert sorted(rows(found, "source", "outcome")) == sorted(expected)
    (mine / "aaa.root").unlink()
    assert {name: one for name, one in state(mine).items() if name != "."} == {
        name: one for name, one in before.items() if name != "."
    }
    # The plan has no file names, so it is the same for every directory.
    assert "a.root" not in (found.path / "plan.jsonl").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["workload.factors.files=[6]"], "expected 6 files of at most 100 kB in "),
        (['testbed.storage.mine.path="/nonexistent/mine"'], "testbed.storage.mine.existing: cannot list file:///nonexistent"),
    ],
    ids=["too few files", "no directory"],
)  # fmt: skip
def test_an_unsuitable_directory_ends_the_run_with_its_location(change, message, tmp_path):
    fill(tmp_path / "mine")
    table = 'host = "here"\npath = "' + str(tmp_path / "mine") + '"\nexisting = true'
    path = scenario(tmp_path, {"mine": table}, mover="cp", source="mine", destination="disk", files=[3])
    done, _ = run(path, "--set", *change, code=1)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
