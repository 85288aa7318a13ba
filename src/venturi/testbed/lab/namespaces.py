"""Namespaces of a lab: ``venturi-engine namespaces``, a process tree that holds the mounts, PIDs and namespaces of the hosts.

When its standard input closes, because the lab shuts down or its daemon is killed, the kernel kills all processes inside.
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
from venturi.testbed.lab.process_id import ProcessId

__all__ = ["LabNamespaces"]

READY_TIMEOUT_S = 20.0
EXIT_TIMEOUT_S = 10.0


class LabNamespaces:
    """Namespaces of a lab, held by a child of this process.

    Attributes
    ----------
    init
        Process 1 of the lab, with its PID on this machine.
    hosts
        Host → PID of the process that holds its namespaces.
    user_namespace
        Whether the lab has its own user namespace, because this user is not root.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], init: ProcessId, hosts: Mapping[str, int], user_namespace: bool
    ) -> None:
        self.init = init
        self.hosts = hosts
        self.user_namespace = user_namespace
        self._process = process

    @classmethod
    def create(
        cls,
        engine: Path,
        hosts: Mapping[str, str],
        *,
        binds: Sequence[tuple[Path, Path]],
        tmpfs: Sequence[str],
        log: Path,
    ) -> LabNamespaces:
        """Create the namespaces.

        Parameters
        ----------
        engine
            Path of the ``venturi-engine`` program.
        hosts
            Host → host name.
        binds
            Bind mounts: pairs of the path outside and the path inside.
        tmpfs
            Directories with an empty tmpfs.
        log
            File for error output.

        Raises
        ------
        BackendError
            If this machine does not allow namespaces.
        """
        request = {"hosts": dict(hosts), "binds": [[str(a), str(b)] for a, b in binds], "tmpfs": list(tmpfs)}
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [engine, "namespaces"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                # Ctrl-C on the terminal is for the daemon, which then shuts the lab down in order.
                start_new_session=True,
            )
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            record = _first_record(process, log)
            init = ProcessId.of(int(record["pid"]))
            if init is None:
                raise BackendError(f"{log}: process 1 of the lab exited: {_tail(log)}")
            outer = _outer_pids(init.pid)
            return cls(
                process,
                init,
                {host: outer[int(inner)] for host, inner in record["pids"].items()},
                bool(record["user_namespace"]),
            )
        except (BrokenPipeError, KeyError) as error:
            _abandon(process)
            raise BackendError(f"cannot create the namespaces of the lab: {_tail(log) or error!r}") from error
        except BaseException:
            _abandon(process)
            raise

    def enter(self, host: str | None = None) -> list[str]:
        """Return the command prefix that enters a host, or without a host the namespaces shared by all hosts."""
        pid = self.init.pid if host is None else self.hosts[host]
        spaces = ["--mount", "--pid"] if host is None else ["--mount", "--uts", "--net", "--pid"]
        user = ["--user", "--preserve-credentials"] if self.user_namespace else []
        return ["nsenter", "--target", str(pid), *spaces, *user, "--"]

    def join_command(self) -> list[str]:
        """Return the command prefix that makes a command of this machine part of the lab, so that it dies with the lab.

        The command sees the files and processes of this machine, and has root permissions for the lab's networks.
        """
        user = ["--user", "--preserve-credentials"] if self.user_namespace else []
        return ["nsenter", "--target", str(self.init.pid), "--pid", *user, "--"]

    @property
    def alive(self) -> bool:
        """Whether the namespaces exist."""
        return self.init.alive

    def close(self) -> bool:
        """Release the namespaces; return whether all processes inside have exited."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        deadline_s = time.monotonic() + EXIT_TIMEOUT_S
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
    readable, _, _ = select.select([process.stdout], [], [], READY_TIMEOUT_S)
    line = process.stdout.readline() if readable else b""
    try:
        record: Mapping[str, Any] = json.loads(line)
    except ValueError:
        record = {}
    if record.get("record") == "ready":
        return record
    reason = record.get("message") or _tail(log) or (f"found {line[:80]!r}" if readable else "no output")
    raise BackendError(f"cannot create the namespaces of the lab within {READY_TIMEOUT_S:g} s: {reason}")


def _outer_pids(init: int) -> dict[int, int]:
    """Return PID inside → PID on this machine for the children of ``init`` (pid_namespaces(7), ``NSpid``)."""
    found = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            status = (directory / "status").read_text().splitlines()
            fields = dict(line.split(":", 1) for line in status if ":" in line)
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
