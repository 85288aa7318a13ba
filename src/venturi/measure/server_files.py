"""Files of a measurement on existing servers: transfers and removal by ``venturi-engine file``; new files are recorded first."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeVar
from urllib.parse import urlsplit

from venturi.backend.remote_shell import RemoteHostShell
from venturi.backend.shell_client import ShellError
from venturi.backend.url_files import FileClient, create_root
from venturi.errors import MeasureError
from venturi.measure.engine import call_engine_records
from venturi.measure.leftovers import CLIENT
from venturi.run.created import CreatedFile, CreatedJournal
from venturi.testbed.service_ports import SCHEME_PORTS

__all__ = ["ServerEnd", "ServerError", "ServerFiles", "direct_family"]

_FINISH_S = 20.0
"""Time for active transfers to finish after an interrupt; a second interrupt ends them immediately."""

_TIMEOUT_S = 60.0
"""Longest wait of a transfer without progress."""

_PROBES = 5
_PROBE_TIMEOUT_S = 5.0
_PORTS = SCHEME_PORTS | {"dav": 80, "s3": 80, "s3s": 443, "srm": 8443}
_FAMILIES = (("ftp", "gsiftp"), ("http", "https", "dav", "davs"), ("root", "roots"))
_DIRECT = ("pulled", "pushed", "between servers")
"""Methods of ``venturi copy`` that pass no byte through its host."""


_Result = TypeVar("_Result")


class ServerError(MeasureError):
    """Failed operation on a server.

    Attributes
    ----------
    kind
        Kind of the error (``docs/reference/file.md``).
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class ServerEnd:
    """End of a path on an existing server.

    Attributes
    ----------
    url
        Directory or file of the user.
    prefix
        Start of the URLs of new files, usually a directory of the measurement; None: `url` is a file.
    size_bytes
        Size of the file.
    rtt_s
        Smallest round-trip time of a connection; None: unknown.
    """

    url: str
    prefix: str | None = None
    size_bytes: int | None = None
    rtt_s: float | None = None

    @property
    def name(self) -> str:
        """Host of the URL."""
        return urlsplit(self.url).hostname or self.url


def direct_family(source: str, destination: str) -> str | None:
    """Return the protocol of direct copies between two servers, or None if they have no common protocol.

    Examples
    --------
    >>> direct_family("gsiftp://a/x", "ftp://b/y"), direct_family("root://a//x", "davs://b/y")
    ('ftp', None)
    """
    schemes = {urlsplit(url).scheme for url in (source, destination)}
    return next((family[0] for family in _FAMILIES if schemes <= set(family)), None)


class ServerFiles:
    """Operations on servers from one host.

    Parameters
    ----------
    shell
        Shell of the host.
    journal
        Journal of created files.
    max_rate_bytes_per_s
        Limit of the rate; None: no limit.

    Attributes
    ----------
    is_unfinished
        Whether transfers were interrupted before their end. Their files must be removed after the end of the shell.
    """

    def __init__(self, shell: RemoteHostShell, journal: CreatedJournal, max_rate_bytes_per_s: int | None) -> None:
        self._shell = shell
        self._journal = journal
        self._client = FileClient(shell)
        self._max_rate_bytes_per_s = max_rate_bytes_per_s
        self.is_unfinished = False

    def open(self, url: str, directory: str, *, source: bool) -> ServerEnd:
        """Return an end of the path: create the directory of the measurement, or find the file of the user.

        Parameters
        ----------
        url
            Directory, or file as a source.
        directory
            Name of the new directory.
        source
            Whether it is only read.

        Raises
        ------
        BackendError
            If the URL does not exist, or the credentials are not sufficient.
        """
        (found,) = self._client.requests([{"command": "stat", "url": url}])
        if "error" in found:
            raise ServerError(
                found["error"]["kind"],
                f"{found['error']['message']}. Name an existing directory{' or file' if source else ''}, and check your credentials"
                f" on {self._shell.name}.",
            )
        rtt_s = self._rtt_s(url)
        if found["kind"] == "file":
            if not source:
                raise MeasureError(
                    f"{url}: expected a directory, found a file. Name a directory in which you can write."
                )
            if not found["size_bytes"]:
                raise MeasureError(f"{url}: expected a file with bytes, found an empty one. Name a larger file.")
            return ServerEnd(url, size_bytes=int(found["size_bytes"]), rtt_s=rtt_s)
        base = f"{url}{'' if url.endswith('/') else '/'}{directory}"
        if create_root(self._client, self._journal, CLIENT, url, directory, where=self._shell.name):
            return ServerEnd(url, prefix=f"{base}/", rtt_s=rtt_s)
        # Without a command to list directories, a directory could not be removed safely.
        self._journal.remove([base])
        return ServerEnd(url, prefix=f"{base}-", rtt_s=rtt_s)

    def _rtt_s(self, url: str) -> float | None:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
        if parts.hostname is None or port is None:
            return None
        try:
            return self._shell.connect(parts.hostname, port, count=_PROBES, timeout_s=_PROBE_TIMEOUT_S).rtt_s
        except ShellError:
            # Only the configuration of ssh knows this name, or a proxy is required.
            return None

    def transfer(
        self, transfers: Sequence[tuple[str | None, str | None]], size_bytes: int, *, timeout_s: float
    ) -> float:
        """Transfer files at the same time, and return the time in seconds.

        Parameters
        ----------
        transfers
            Pairs of source (None: memory) and destination (None: nothing).
        size_bytes
            Size of each file.
        timeout_s
            Limit of all transfers together.

        Raises
        ------
        ServerError
            If one fails.
        """
        self._record(transfers)
        lines = [
            json.dumps({"from": source, "to": destination, "size_bytes": size_bytes})
            for source, destination in transfers
        ]
        argv = [self._shell.engine, "file", "stream", "--timeout", f"{_TIMEOUT_S:g}"]
        if self._max_rate_bytes_per_s is not None:
            argv += ["--max-rate", f"{self._max_rate_bytes_per_s}B/s"]
        try:
            done = self._finish(lambda: self._shell.run(argv, stdin="\n".join(lines) + "\n", timeout_s=timeout_s))
        except subprocess.TimeoutExpired as error:
            raise ServerError(
                "timeout",
                f"{self._shell.name}: expected transfers of {len(transfers)} files to end within {timeout_s:.0f} s; check the servers",
            ) from error
        try:
            result = json.loads(done.stdout)
        except ValueError as error:
            reason = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
            raise ServerError(
                "other",
                f"{self._shell.name}: expected a result of venturi-engine file, found none ({reason[0]}). Check the host.",
            ) from error
        if "error" in result:
            raise ServerError(str(result["error"]["kind"]), str(result["error"]["message"]))
        return float(result["duration_s"])

    def copy_directly(self, transfers: Sequence[tuple[str, str]], size_bytes: int, *, timeout_s: float) -> float:
        """Copy files concurrently and directly between the servers, and return the time in seconds.

        Raises
        ------
        MeasureError
            If a direct copy fails, or bytes pass through this host.
        """
        self._record(transfers)
        if direct_family(*transfers[0]) == "root":
            return self._copy_xrootd(transfers, timeout_s)
        names = PurePosixPath(str(self._shell.session)) / "copies"
        self._shell.put(names, b"".join(f"{one}\0{other}\0".encode() for one, other in transfers))
        argv = ["copy", "--json", "--existing", "keep", "--concurrency", len(transfers), "--null", "--list", names]
        records = self._finish(lambda: call_engine_records(self._shell, argv, timeout_s=timeout_s))
        methods = {record.get("method") for record in records if record.get("event") == "file"}
        if not methods <= set(_DIRECT) or records[-1].get("moved_bytes") != size_bytes * len(transfers):
            raise MeasureError("they rejected the copy to each other")
        return float(records[-1]["duration_s"])

    def _copy_xrootd(self, transfers: Sequence[tuple[str, str]], timeout_s: float) -> float:
        def copy(pair: tuple[str, str]) -> str | None:
            try:
                done = self._shell.run(["xrdcp", "--nopbar", "--silent", "--tpc", "only", *pair], timeout_s=timeout_s)
            except subprocess.TimeoutExpired:
                return f"xrdcp did not end within {timeout_s:.0f} s"
            text = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            return None if done.returncode == 0 else text

        started_s = time.monotonic()

        def copy_all() -> list[str]:
            with ThreadPoolExecutor(len(transfers)) as pool:
                return [error for error in pool.map(copy, transfers) if error is not None]

        errors = self._finish(copy_all)
        if errors:
            raise MeasureError(f"{transfers[0][1]}: {errors[0]}")
        return time.monotonic() - started_s

    def remove(self, urls: Sequence[str]) -> None:
        """Remove files; remaining or incomplete files are removed at the end of the measurement."""
        if self.is_unfinished:
            return
        results = self._client.requests([{"command": "remove", "url": url} for url in urls])
        self._journal.remove(
            url
            for url, result in zip(urls, results, strict=True)
            if "error" not in result or result["error"]["kind"] == "not_found"
        )

    def _finish(self, work: Callable[[], _Result]) -> _Result:
        """Run transfers to their end, also after an interrupt: a server could create a file after its removal."""
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(work)
            try:
                return future.result()
            except KeyboardInterrupt:
                try:
                    future.exception(timeout=_FINISH_S)
                except (TimeoutError, KeyboardInterrupt):
                    self.is_unfinished = True
                    self._shell.close()
                raise

    def _record(self, transfers: Sequence[tuple[str | None, str | None]]) -> None:
        new = [url for _, url in transfers if url is not None and not url.startswith("file:")]
        self._journal.add(CreatedFile(CLIENT, url) for url in new)
