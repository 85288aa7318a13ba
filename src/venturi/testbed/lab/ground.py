"""The ground a lab stands on: ``venturi-engine hold``, one process tree that holds mounts, PIDs and a host's namespaces.

When its input ends, because the lab goes down or because the keeper was killed, the kernel ends everything inside.
"""

from __future__ import annotations

import json
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from venturi.errors import BackendError
from venturi.testbed.lab.living import ProcessId

__all__ = ["Ground"]

READY_TIMEOUT_S = 20.0
GONE_TIMEOUT_S = 10.0


class Ground:
    """The namespaces of a lab, held by a child of this process.

    Attributes
    ----------
    init
        Process 1 of the lab, as this machine numbers it.
    hosts
        Host → the process that holds its namespaces.
    user_namespace
        Whether it lies in a user namespace of its own, because this user is not root.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], init: ProcessId, hosts: Mapping[str, int], user_namespace: bool
    ) -> None:
        self.init = init
        self.hosts = hosts
        self.user_namespace = user_namespace
        self._process = process

    @classmethod
    def lay(
        cls,
        engine: Path,
        hosts: Mapping[str, str],
        *,
        binds: Sequence[tuple[Path, Path]],
        tmpfs: Sequence[str],
        log: Path,
    ) -> Ground:
        """Make the namespaces.

        Parameters
        ----------
        engine
            The program.
        hosts
            Host → its host name.
        binds
            What is seen where: pairs of a path outside and the path inside that shows it.
        tmpfs
            Folders that are empty and in memory.
        log
            Where it complains.

        Raises
        ------
        BackendError
            If this machine does not allow it.
        """
        request = {"hosts": dict(hosts), "binds": [[str(a), str(b)] for a, b in binds], "tmpfs": list(tmpfs)}
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [engine, "hold"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                # Ctrl-C on the terminal is for the keeper, which then takes the lab down in order.
                start_new_session=True,
            )
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            record = _first_record(process, log)
            init = ProcessId.of(int(record["pid"]))
            if init is None:
                raise BackendError(f"{log}: expected the lab's process 1, found that it has ended: {_tail(log)}")
            outer = _outer_pids(init.pid)
            return cls(
                process,
                init,
                {host: outer[int(inner)] for host, inner in record["pids"].items()},
                bool(record["user_namespace"]),
            )
        except (BrokenPipeError, KeyError) as error:
            _abandon(process)
            raise BackendError(f"expected namespaces for the lab, found: {_tail(log) or error!r}") from error
        except BaseException:
            _abandon(process)
            raise

    def enter(self, host: str | None = None) -> list[str]:
        """Return the words that carry a command into a host, or into what all hosts share."""
        pid = self.init.pid if host is None else self.hosts[host]
        spaces = ["--mount", "--pid"] if host is None else ["--mount", "--uts", "--net", "--pid"]
        user = ["--user", "--preserve-credentials"] if self.user_namespace else []
        return ["nsenter", "--target", str(pid), *spaces, *user, "--"]

    def beside(self) -> list[str]:
        """Return the words that make a command of this machine a part of the lab: it ends with it, whatever happens.

        It sees this machine's files and processes, and has root's rights over the lab's networks.
        """
        user = ["--user", "--preserve-credentials"] if self.user_namespace else []
        return ["nsenter", "--target", str(self.init.pid), "--pid", *user, "--"]

    @property
    def alive(self) -> bool:
        """Whether it holds."""
        return self.init.alive

    def close(self) -> bool:
        """Let go; return whether everything inside has ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(GONE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        deadline_s = time.monotonic() + GONE_TIMEOUT_S
        while self.init.alive and time.monotonic() < deadline_s:
            time.sleep(0.005)
        return not self.init.alive


def _abandon(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()


def _first_record(process: subprocess.Popen[bytes], log: Path) -> Mapping[str, Any]:
    assert process.stdout is not None
    there, _, _ = select.select([process.stdout], [], [], READY_TIMEOUT_S)
    line = process.stdout.readline() if there else b""
    try:
        record: Mapping[str, Any] = json.loads(line)
    except ValueError:
        record = {}
    if record.get("record") == "ready":
        return record
    said = record.get("message") or _tail(log) or (f"found {line[:80]!r}" if there else "found silence")
    raise BackendError(f"expected the namespaces of the lab within {READY_TIMEOUT_S:g} s: {said}")


def _outer_pids(init: int) -> dict[int, int]:
    """Return PID inside → PID on this machine of the processes below ``init`` (pid_namespaces(7), ``NSpid``)."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        except OSError:
            continue
        pids = fields.get("NSpid", "").split()
        if len(pids) > 1 and int(fields["PPid"]) == init:
            found[int(pids[-1])] = int(pids[0])
    return found


def _tail(log: Path) -> str:
    try:
        return " | ".join(log.read_text(errors="replace").strip().splitlines()[-5:])
    except OSError:
        return ""
