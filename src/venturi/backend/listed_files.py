"""Directories of the user as sources (``existing = true``): listed once per run, before its first trial.

The plan has numbers instead of names. The agents receive it with the names, as with a list of files.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from venturi.backend.url_files import RequestClient
from venturi.errors import BackendError, RunError
from venturi.plan.header import Dataset, Header, Storage
from venturi.run.directory import replace_text
from venturi.testbed.existing_files import MAX_NAMES
from venturi.units import format_bytes

__all__ = ["LISTED", "ListedFiles"]

LISTED = "existing.json"
"""File of a run with the names, so that a resumed run uses the same files."""

DIRECTORIES_AT_ONCE = 16
"""Number of directories in one call, because their listings must fit into the kept output of a command."""

_SAFE_IN_URL = frozenset(string.ascii_letters + string.digits + "/-._~+,=@:")
"""Allowed characters of a path in a URL: ``is_safe_in_url`` of ``crates/plan/src/service.rs``."""


@dataclass(frozen=True, slots=True)
class ListedFiles:
    """Names of the listed files by dataset. Empty if the plan has no such dataset.

    Attributes
    ----------
    datasets
        Dataset → its entry in the plan.
    names
        Dataset → paths below its storage.
    """

    datasets: Mapping[str, Dataset] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of_run(
        cls, path: Path, header: Header, scratch: Mapping[str, str], client: Callable[[str], RequestClient]
    ) -> ListedFiles:
        """List the directories, or read the names of an earlier session of the run.

        Parameters
        ----------
        path
            Directory of the run.
        header
            Header of its plan.
        scratch
            Host → directory of its relative storages.
        client
            Returns the client of a host.

        Raises
        ------
        BackendError
            If a directory cannot be listed, or has not enough files.
        RunError
            If the names cannot be read or written.
        """
        datasets = {name: dataset for name, dataset in header.datasets.items() if dataset.listed}
        if not datasets:
            return cls()
        file = path / LISTED
        try:
            if file.exists():
                found = json.loads(file.read_text(encoding="utf-8"))
                return cls(datasets, {name: tuple(found[name]) for name in datasets})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{file}: expected the names of existing files, found {error}; start a new run") from error
        names: dict[str, tuple[str, ...]] = {}
        listings: dict[str, list[tuple[str, int]]] = {}
        for name, dataset in datasets.items():
            storage = header.storages[dataset.storage]
            if dataset.storage not in listings:
                url = storage.url or f"file://{Path(scratch.get(str(storage.host), '/')) / storage.path}"
                listings[dataset.storage] = _list_files(dataset.storage, url, client(str(storage.host)))
            names[name] = _select(dataset, storage, listings[dataset.storage])
        try:
            replace_text(file, json.dumps(names) + "\n")
        except OSError as error:
            raise RunError(f"{file}: cannot write it ({error.strerror}); check the free space") from error
        return cls(datasets, names)

    def header(self, header: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the header of a plan with the names."""
        if not self.names:
            return header
        datasets = {
            name: {"storage": entry["storage"], "path": "", "files": len(self.names[name]),
                   "size_bytes": entry["size_bytes"], "seed": entry["seed"], "names": list(self.names[name])}
            if name in self.names
            else entry
            for name, entry in header["datasets"].items()
        }  # fmt: skip
        return {**header, "datasets": datasets}

    def line(self, line: bytes) -> bytes:
        """Return a line of a plan with names instead of numbers."""
        for name, dataset in self.datasets.items():
            names = self.names[name]
            numbered = re.escape(f'"{dataset.storage}:{dataset.path}/'.encode()) + rb'(\d+)"'

            def replaced(
                match: re.Match[bytes], names: tuple[str, ...] = names, storage: str = dataset.storage
            ) -> bytes:
                return json.dumps(f"{storage}:{names[int(match[1])]}").encode()

            line = re.sub(numbered, replaced, line)
        return line


def _list_files(name: str, url: str, client: RequestClient) -> list[tuple[str, int]]:
    """Return path and size of all files below a URL, in the order of their paths."""
    where = f"testbed.storage.{name}.existing"
    found: list[tuple[str, int]] = []
    waiting = [""]
    while waiting:
        directories, waiting = waiting[:DIRECTORIES_AT_ONCE], waiting[DIRECTORIES_AT_ONCE:]
        urls = [_join(url, directory) for directory in directories]
        results = client.requests([{"command": "list", "url": one} for one in urls])
        for directory, one, result in zip(directories, urls, results, strict=True):
            if "error" in result:
                raise BackendError(f"{where}: cannot list {one}: {result['error']['message']}")
            for entry in result["entries"]:
                path = f"{directory}/{entry['name']}" if directory else str(entry["name"])
                if not set(path) <= _SAFE_IN_URL:
                    continue
                if entry["kind"] == "directory":
                    waiting.append(path)
                elif entry["kind"] == "file" and entry["size_bytes"] is not None:
                    found.append((path, int(entry["size_bytes"])))
        if len(found) + len(waiting) > MAX_NAMES:
            raise BackendError(
                f"{where}: expected at most {MAX_NAMES} files and directories below {url}, found more; name a smaller"
                " directory, or a list of files"
            )
    return sorted(found)


def _select(dataset: Dataset, storage: Storage, listing: list[tuple[str, int]]) -> tuple[str, ...]:
    names = [path for path, size in listing if size <= dataset.size_bytes][: dataset.files]
    if len(names) < dataset.files:
        raise BackendError(
            f"testbed.storage.{dataset.storage}.existing: expected {dataset.files} files of at most"
            f" {format_bytes(dataset.size_bytes)} in {storage.url or storage.path} (for a trial), found {len(names)} of"
            f" {len(listing)}; reduce `files`, raise `size`, or add files with names of letters, digits and -._~+,=@:"
        )
    return tuple(names)


def _join(url: str, path: str) -> str:
    if not path:
        return url
    return f"{url}{path}" if url.endswith("/") else f"{url}/{path}"
