"""Files on existing servers: ``venturi-engine file`` in the shell of a host, and operations of agents on such files.

An operation of the plan refers to a file by an absolute path, or by a URL. This module executes operations on URLs. The
controller first records each file that an operation can create. Then the shell of the host with the credentials
executes the requests.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

from venturi.backend.remote_shell import RemoteHostShell
from venturi.errors import BackendError
from venturi.messages import quote_value
from venturi.plan.header import Storage
from venturi.run.created import CreatedFile, CreatedJournal
from venturi.units import format_bytes

__all__ = ["FileClient", "RequestClient", "UrlFiles", "create_root", "is_url", "remove_created", "run_directory"]

BATCH_REQUESTS = 500
"""Number of requests in one ``venturi-engine file batch``, because its output must fit into the kept output of a command."""

CONCURRENCY = 4
"""Number of concurrent requests at a server. More would disturb its other clients."""

REQUEST_TIMEOUT_S = 60.0
"""Limit of each wait in a request: for a connection, a response, and the next bytes."""

SLOWEST_BYTES_PER_S = 1e5
"""Assumed minimum rate for the time limit of a batch that transfers bytes."""

LATE_PAUSE_S = 0.1
"""Pause between checks of a file that a server can complete late."""

_FLAT_SCHEMES = ("s3", "s3s")
"""Schemes without directories."""

Result = dict[str, Any]


class RequestClient(Protocol):
    """Executor of requests on the files of a host, in their order: :class:`FileClient`."""

    def requests(self, requests: Sequence[Mapping[str, Any]]) -> list[Result]: ...  # noqa: D102 - described above


class FileClient:
    """``venturi-engine file`` on one host.

    Parameters
    ----------
    shell
        Shell of the host.
    """

    def __init__(self, shell: RemoteHostShell) -> None:
        self._shell = shell

    def requests(self, requests: Sequence[Mapping[str, Any]]) -> list[Result]:
        """Execute requests, several at the same time, and return their results in the same order.

        The result of a failed request has the key ``error`` with ``kind`` and ``message``.

        Raises
        ------
        BackendError
            If the host is not available.
        """
        found: list[Result] = []
        for first in range(0, len(requests), BATCH_REQUESTS):
            found += self._batch(requests[first : first + BATCH_REQUESTS])
        return found

    def _batch(self, requests: Sequence[Mapping[str, Any]]) -> list[Result]:
        lines = [json.dumps({"id": number, **request}) for number, request in enumerate(requests)]
        size = sum(int(request.get("size_bytes") or 0) for request in requests)
        limit_s = (len(requests) + 1) * 2 * REQUEST_TIMEOUT_S + size / SLOWEST_BYTES_PER_S
        argv = [
            self._shell.engine, "file", "batch", "--concurrency", str(CONCURRENCY), "--timeout", f"{REQUEST_TIMEOUT_S:g}",
        ]  # fmt: skip
        completed = self._shell.run(argv, stdin="\n".join(lines) + "\n", timeout_s=limit_s)
        results: dict[int, Result] = {}
        for line in completed.stdout.splitlines():
            try:
                content = json.loads(line)
                results[int(content["id"])] = content
            except (ValueError, KeyError, TypeError):
                continue
        output = completed.stderr.strip().splitlines()
        reason = output[-1] if output else f"exit code {completed.returncode}"
        return [
            results.get(number)
            or _failure(
                f"{self._shell.name}: expected a result of venturi-engine file for {request['url']}, found none ({reason}). Check the host."
            )
            for number, request in enumerate(requests)
        ]


class UrlFiles:
    """Operations of agents on the files of storages with a URL.

    Parameters
    ----------
    storages
        Storages of the plan.
    directory
        Directory of the run in each storage.
    journal
        Journal of created files.
    client
        Function that returns the client of a host, or raises :class:`BackendError` if there is none.
    """

    def __init__(
        self,
        storages: Mapping[str, Storage],
        directory: str,
        journal: CreatedJournal,
        client: Callable[[str], RequestClient],
    ) -> None:
        self._storages = {
            name: storage for name, storage in storages.items() if storage.url is not None and not storage.existing
        }
        self._directory = directory
        self._journal = journal
        self._client = client
        self._roots = {_join(str(storage.url), directory): name for name, storage in self._storages.items()}
        self._directories: set[str] = set()
        # Files of an earlier session that was killed.
        self._old = {one.url for one in journal.remaining}

    def check_access(self) -> None:
        """Check that each storage allows creating and removing files, and create its directory of the run.

        Raises
        ------
        BackendError
            If a storage does not allow it, or if the directory already exists.
        """
        for name, storage in self._storages.items():
            host, where = str(storage.host), f"testbed.storage.{name}: {storage.host}"
            url = str(storage.url)
            create_root(self._client(host), self._journal, host, url, self._directory, where=where)
            self._directories.add(_join(url, self._directory))

    def execute(self, host: str, operation: Mapping[str, Any]) -> dict[str, Any]:
        """Execute an operation on URLs with the credentials of a host, and return its outcome.

        Raises
        ------
        BackendError
            If it fails.
        RunError
            If the journal of the run cannot be written.
        """
        client = self._client(host)
        match operation["operation"]:
            case "prepare" if operation["files"].get("names"):
                return self._measure_existing(client, operation["files"], operation["cache"])
            case "prepare":
                return self._prepare(host, client, operation["files"], operation["cache"])
            case "drop_caches":
                return _prepared(operation["files"], "cold", 0, 0)
            case "clear":
                return self._clear(host, client, operation)
            case "check":
                end_s = time.monotonic() + float(operation["grace_s"])
                states = [self._check(client, destination, end_s) for destination in operation["destinations"]]
                return {"kind": "checked", "destinations": states}
            case "remove":
                errors = [self._remove(host, client, destination) for destination in operation["destinations"]]
                return {"kind": "removed", "errors": errors}
            case "link":
                raise BackendError(
                    f"{operation['directory']}: cannot create links on an existing server; use a mover that reads a list of files"
                )
            case other:
                raise BackendError(f"expected an operation on files, found {quote_value(other)}; report this bug")

    def _measure_existing(self, client: RequestClient, files: Mapping[str, Any], cache: str) -> dict[str, Any]:
        """Return the sizes of files of the user."""
        names = [str(name) for name in files["names"]]
        urls = [_join(str(files["directory"]), name) for name in names]
        stats = client.requests([{"command": "stat", "url": url} for url in urls])
        for number, (url, stat) in enumerate(zip(urls, stats, strict=True), int(files["first"])):
            if "error" in stat:
                return _not_prepared(files, f"cannot use {url}: {_message(stat)}")
            size, limit = stat.get("size_bytes"), _size(files["sizes"], number)
            if size is None or size > limit:
                found = "no file" if size is None else f"{size} bytes"
                return _not_prepared(
                    files,
                    f"{url}: expected a file of at most {limit} bytes (size of the plan), found {found}; raise the size,"
                    " or remove it from the list",
                )
        sizes = {name: stat["size_bytes"] for name, stat in zip(names, stats, strict=True)}
        return _prepared(files, cache, 0, len(names)) | {"sizes": sizes}

    def _prepare(self, host: str, client: RequestClient, files: Mapping[str, Any], cache: str) -> dict[str, Any]:
        """Create the missing files of a dataset."""
        numbers = range(int(files["first"]), int(files["first"]) + int(files["files"]))
        urls = {number: _join(str(files["directory"]), f"{number:06d}") for number in numbers}
        sizes = {number: _size(files["sizes"], number) for number in numbers}
        present = [number for number in numbers if urls[number] in self._journal]
        stats = client.requests([{"command": "stat", "url": urls[number]} for number in present])
        whole = {
            number for number, stat in zip(present, stats, strict=True) if stat.get("size_bytes") == sizes[number]
        }
        # Files of a killed session can be incomplete.
        incomplete = [
            urls[number]
            for number, stat in zip(present, stats, strict=True)
            if number not in whole and _kind(stat) != "not_found"
        ]
        for url, removed in zip(
            incomplete, client.requests([{"command": "remove", "url": url} for url in incomplete]), strict=True
        ):
            if "error" in removed:
                return _not_prepared(files, f"cannot remove the incomplete file {url}: {_message(removed)}")
        missing = [number for number in numbers if number not in whole]
        if missing:
            self._make_directory(host, client, str(files["directory"]))
        self._add(host, [urls[number] for number in missing])
        created = client.requests(
            [
                {
                    "command": "create", "url": urls[number], "size_bytes": sizes[number], "seed": files["seed"],
                    "index": number,
                }
                for number in missing
            ]
        )  # fmt: skip
        for number, result in zip(missing, created, strict=True):
            if "error" in result:
                return _not_prepared(
                    files, f"cannot create {urls[number]} of {format_bytes(sizes[number])}: {_message(result)}"
                )
        return _prepared(files, cache, len(missing), len(whole))

    def _clear(self, host: str, client: RequestClient, operation: Mapping[str, Any]) -> dict[str, Any]:
        """Create the parent directories of a destination, and remove the remains of a killed session."""
        url, files = str(operation["path"]), operation.get("files")
        if operation.get("source") == url:
            raise BackendError(f"destination {url}: expected another file than the source; report this bug")
        targets = [_join(url, name) for name in _names(files)] if files else [url]
        self._make_directory(host, client, url if files else url.rpartition("/")[0])
        self._add(host, targets)
        if not operation["started"]:
            old = [target for target in targets if target in self._old]
            for error in self._remove_urls(client, old):
                if error:
                    raise BackendError(f"destination {url}: cannot remove an earlier file: {error}")
            self._add(host, old)
            self._old -= set(old)
        return {"kind": "cleared", "removal": "keep" if operation["keep"] else "remove", "siblings": None}

    def _check(self, client: RequestClient, destination: Mapping[str, Any], end_s: float) -> dict[str, Any]:
        """Return the state of a destination. Wait for a file that the server completes late."""
        try:
            received = self._received(client, destination)
            first_bytes, start_s = received["bytes"], time.monotonic()
            while destination["late"] and received["lacking"] is not None and time.monotonic() < end_s:
                time.sleep(LATE_PAUSE_S)
                received = self._received(client, destination)
                if received["lacking"] is None:
                    received["late"] = {"first_bytes": first_bytes, "wait_s": time.monotonic() - start_s}
            if received["lacking"] is None and destination.get("checksum"):
                received |= self._compare(client, destination)
        except BackendError as error:
            return {"error": str(error)}
        return {"received": received}

    def _received(self, client: RequestClient, destination: Mapping[str, Any]) -> dict[str, Any]:
        url, files, requested = (
            str(destination["path"]),
            destination.get("files"),
            int(destination["requested_bytes"]),
        )
        names = _names(files) if files else [""]
        urls = [_join(url, name) if name else url for name in names]
        stats = client.requests([{"command": "stat", "url": one} for one in urls])
        total, more, lacking = 0, False, []
        for index, (one, stat) in enumerate(zip(urls, stats, strict=True)):
            size = self._stored_bytes(client, one, stat)
            expected = requested
            if files:
                sizes = files.get("sizes")
                expected = _size(sizes, int(files["first"]) + index) if sizes is not None else 0
                if size is None or size < expected:
                    found = "does not exist" if size is None else f"has {size} bytes"
                    lacking.append(f"`{names[index]}`, {found}")
            total += size or 0
            more |= size is not None and size > expected and bool(not files or files.get("sizes"))
        text = None
        if lacking:
            text = (
                f"expected {len(urls)} files and {requested} bytes at the receiver, found {len(urls) - len(lacking)} complete"
                f" files and {total} bytes; the first incomplete file, {lacking[0]}"
            )
        elif total < requested:
            text = f"expected {requested} bytes at the receiver, found {total}"
        return {"bytes": total, "lacking": text, "more": more or total > requested, "late": None}

    def _stored_bytes(self, client: RequestClient, url: str, stat: Mapping[str, Any]) -> int | None:
        """Return the size of a file or the total size of the files in a directory, or None if the path does not exist."""
        if _kind(stat) == "not_found":
            return None
        if "error" in stat:
            raise BackendError(_message(stat))
        if stat.get("kind") != "directory":
            return int(stat.get("size_bytes") or 0)
        (listed,) = client.requests([{"command": "list", "url": url}])
        if "error" in listed:
            raise BackendError(_message(listed))
        return sum(self._stored_bytes(client, _join(url, entry["name"]), entry) or 0 for entry in listed["entries"])

    def _compare(self, client: RequestClient, destination: Mapping[str, Any]) -> dict[str, Any]:
        """Compare source and destination by checksums."""
        check, files = destination["checksum"], destination.get("files")
        names = _names(files) if files else [""]
        source, url = str(check["source"]), str(destination["path"])

        def requests(base: str) -> list[dict[str, Any]]:
            base = base if is_url(base) else f"file://{base}"
            return [
                {"command": "checksum", "url": _join(base, name) if name else base, "algorithm": check["algorithm"]}
                for name in names
            ]

        sent = self._client(str(check["source_host"])).requests(requests(source))
        received = client.requests(requests(url))
        for request, one, other in zip(requests(url), sent, received, strict=True):
            for result in (one, other):
                if "error" in result:
                    return {"differs": f"cannot compare checksums: {_message(result)}"}
            if one["value"] != other["value"]:
                return {
                    "differs": f"expected the {check['algorithm']} {one['value']} of the source at {request['url']}, found"
                    f" {other['value']}; the file was damaged on its path, or changed"
                }
        return {"checksum": f"{check['algorithm']}:{sent[0]['value']}" if not files else None}

    def _remove(self, host: str, client: RequestClient, destination: Mapping[str, Any]) -> str | None:
        """Remove a destination, and return the reason if part of it remains."""
        url, files = str(destination["path"]), destination.get("files")
        if destination["removal"] == "keep":
            return None
        targets = [_join(url, name) for name in _names(files)] if files else []
        # Requests of one call run at the same time, so the directory is removed in another call.
        errors = [error for group in (targets, [url]) for error in self._remove_urls(client, group) if error]
        self._directories.discard(url)
        return errors[0] if errors else None

    def _remove_urls(self, client: RequestClient, urls: Sequence[str]) -> list[str | None]:
        """Remove files and directories in this order, and return the reason for each that remains."""
        results = client.requests([{"command": "remove", "url": url} for url in urls])
        errors: list[str | None] = []
        for url, result in zip(urls, results, strict=True):
            error = _remains(client, url, result)
            if error is None:
                self._journal.remove([url])
            errors.append(error)
        return errors

    def _make_directory(self, host: str, client: RequestClient, url: str) -> None:
        """Create a directory and its parents, before concurrent requests need it."""
        if url in self._directories or urlsplit(url).scheme in _FLAT_SCHEMES:
            return
        self._journal.add(CreatedFile(host, one, directory=True) for one in self._parents(f"{url}/"))
        (made,) = client.requests([{"command": "mkdir", "url": url}])
        # A server of HTTP without WebDAV has no such command, and creates directories with their files.
        if "error" in made and _kind(made) != "unsupported":
            raise BackendError(f"cannot create the directory {url}: {_message(made)}")
        self._directories.add(url)

    def _add(self, host: str, urls: Sequence[str]) -> None:
        """Record files and their parent directories."""
        parents = dict.fromkeys(parent for url in urls for parent in self._parents(url))
        self._journal.add(CreatedFile(host, parent, directory=True) for parent in parents)
        self._journal.add(CreatedFile(host, url) for url in urls)

    def _parents(self, url: str) -> list[str]:
        """Return the directories of a file below the directory of the run, starting with the top one."""
        root = next((root for root in self._roots if url.startswith(f"{root}/")), None)
        if root is None:
            raise BackendError(
                f"expected a file in the directory {self._directory} of a storage, found {url}; report this bug"
            )
        parts = url.removeprefix(f"{root}/").split("/")[:-1]
        return [root, *("/".join([root, *parts[: index + 1]]) for index in range(len(parts)))]


def create_root(
    client: RequestClient, journal: CreatedJournal, host: str, url: str, directory: str, *, where: str
) -> bool:
    """Check that a directory of a server allows creating and removing files, and create a directory of Venturi there.

    Return whether it exists, because a server of HTTP without WebDAV creates it with its first file.

    Parameters
    ----------
    client
        Client of the host.
    journal
        Journal of created files.
    host
        Host whose credentials are used.
    url
        Directory of the user.
    directory
        Name of the new directory.
    where
        Start of messages.

    Raises
    ------
    BackendError
        If the directory does not allow it, or the new directory already exists and is not in the journal.
    """
    (access,) = client.requests([{"command": "access", "url": url, "no_probe": True}])
    _check_permissions(where, url, access)
    root = _join(url, directory)
    is_old = root in journal
    journal.add([CreatedFile(host, root, directory=True)])
    if urlsplit(url).scheme in _FLAT_SCHEMES:
        (made,) = client.requests([{"command": "list", "url": root}])
        is_new = not made.get("entries")
    else:
        (made,) = client.requests([{"command": "mkdir", "url": root}])
        is_new = made.get("created", True) is not False
    if (error := made.get("error")) and error.get("kind") not in ("unsupported", "not_found"):
        journal.remove([root])
        raise BackendError(f"{where}: cannot create {root}: {_message(made)}")
    if not is_new and not is_old:
        journal.remove([root])
        raise BackendError(f"{where}: expected no directory {root}, found one of another run; start a new run")
    if access.get("create") is None or access.get("remove") is None:
        (access,) = client.requests([{"command": "access", "url": url if "error" in made else root}])
        _check_permissions(where, url, access)
    return "error" not in made


def _check_permissions(where: str, url: str, access: Mapping[str, Any]) -> None:
    detail = str(access.get("detail") or "use other credentials")
    if "error" in access:
        raise BackendError(f"{where}: cannot check the access to {url}: {_message(access)}")
    for key, action in (("create", "create"), ("remove", "remove")):
        if access.get(key) is False:
            raise BackendError(
                f"{where}: expected credentials that can {action} files in {url}, found credentials that cannot: {detail}"
            )


def remove_created(
    journal: CreatedJournal,
    client: Callable[[str], RequestClient],
    *,
    on_removed: Callable[[str], None] = lambda url: None,
) -> list[str]:
    """Remove all files and directories of a journal, and return the reason for each that remains.

    Parameters
    ----------
    journal
        Journal of the run.
    client
        Function that returns the client of a host, or raises :class:`BackendError` if there is none.
    on_removed
        Called with the URL of each file and directory that existed.
    """
    remaining = journal.remaining[::-1]
    problems: list[str] = []
    for host in dict.fromkeys(one.host for one in remaining):
        own = [one for one in remaining if one.host == host]
        # Files first, several at the same time, then the directories, each after its contents.
        levels: dict[int, list[str]] = {}
        for one in sorted(own, key=lambda one: one.url.count("/"), reverse=True):
            levels.setdefault(one.url.count("/") if one.directory else -1, []).append(one.url)
        groups = [levels.pop(-1, []), *levels.values()]
        try:
            for group in groups:
                results = client(host).requests([{"command": "remove", "url": url} for url in group])
                for url, result in zip(group, results, strict=True):
                    problem = _remains(client(host), url, result)
                    if problem is not None:
                        problems.append(problem)
                        continue
                    journal.remove([url])
                    if _kind(result) != "not_found":
                        on_removed(url)
        except BackendError as error:
            problems.append(str(error))
    return problems


def run_directory(run_name: str, created_unix_ns: int) -> str:
    """Return the name of the directory of a run in storages with a URL.

    Examples
    --------
    >>> run_directory("sweep-20261129T190000Z", 1_795_978_800_123_456_789)
    'venturi-sweep-20261129T190000Z-ob1ez9'
    """
    digits, number = "", created_unix_ns % 36**6
    while len(digits) < 6:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    name = "".join(
        letter if (letter.isalnum() and letter.isascii()) or letter in "._-" else "-" for letter in run_name
    )
    return f"venturi-{name}-{digits}"


def is_url(path: object) -> bool:
    """Return whether the path of an operation is a URL."""
    return "://" in str(path)


def _remains(client: RequestClient, url: str, result: Mapping[str, Any]) -> str | None:
    """Return the reason why a file remains after a removal. A directory with entries of this run is removed with them."""
    if "error" not in result or _kind(result) == "not_found":
        return None
    if _kind(result) != "exists":
        return _message(result)
    (listed,) = client.requests([{"command": "list", "url": url}])
    if "error" in listed:
        return _message(listed)
    entries = [_join(url, entry["name"]) for entry in listed["entries"]]
    results = client.requests([{"command": "remove", "url": entry} for entry in entries])
    for entry, removed in zip(entries, results, strict=True):
        error = _remains(client, entry, removed)
        if error is not None:
            return error
    (again,) = client.requests([{"command": "remove", "url": url}])
    return None if "error" not in again or _kind(again) == "not_found" else _message(again)


def _prepared(files: Mapping[str, Any], cache: str, made: int, reused: int) -> dict[str, Any]:
    """Return the outcome of a preparation. The cache of a server is unknown."""
    detail = {
        "dataset": files["dataset"],
        "first": files["first"],
        "files": files["files"],
        "made": made,
        "reused": reused,
    }
    findings = []
    if cache != "as_is":
        findings = [
            {
                "code": "cache-unknown",
                "subject": files["dataset"],
                "evidence": "existing servers do not report which files are in their memory",
                "advice": "the recorded cache state is `as_is`; Venturi did not change it",
            }
        ]
    return {
        "kind": "prepared",
        "event": {"kind": "dataset", "detail": detail} if made else None,
        "cache": {"state": "as_is", "method": "none", "resident_ratio": None},
        "findings": findings,
        "failed": False,
    }


def _not_prepared(files: Mapping[str, Any], error: str) -> dict[str, Any]:
    finding = {
        "code": "prepare-failed",
        "subject": files["dataset"],
        "evidence": error,
        "advice": "the trial failed before its transfers started; fix the cause and run the scenario again",
    }
    return {"kind": "prepared", "event": None, "cache": None, "findings": [finding], "failed": True}


def _names(files: Mapping[str, Any]) -> list[str]:
    first = int(files["first"])
    return [f"{number:06d}" for number in range(first, first + int(files["files"]))]


def _size(groups: Iterable[Mapping[str, Any]], number: int) -> int:
    """Return the size of a file. The groups of files repeat in a cycle."""
    groups = list(groups)
    left = number % sum(int(group["files"]) for group in groups)
    for group in groups:
        if left < int(group["files"]):
            return int(group["size_bytes"])
        left -= int(group["files"])
    return 0


def _join(url: str, name: str) -> str:
    return f"{url}{name}" if url.endswith("/") else f"{url}/{name}"


def _kind(result: Mapping[str, Any]) -> str | None:
    """Return the kind of the error of a result."""
    error = result.get("error")
    return str(error.get("kind")) if isinstance(error, Mapping) else None


def _message(result: Mapping[str, Any]) -> str:
    error = result.get("error")
    return str(error.get("message")) if isinstance(error, Mapping) else "no result"


def _failure(message: str) -> Result:
    return {"error": {"kind": "other", "message": message}}
