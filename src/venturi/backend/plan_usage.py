"""Storages and services that the actors of each host use, from the lines of a plan."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from venturi.plan import Header
from venturi.run.directory import PLAN

__all__ = ["HostUsage", "actor_lines", "plan_usage", "users_of"]

_STRING = rb'((?:[^"\\]|\\.)*)"'
_HOST = re.compile(rb'\s*\{\s*"actor":\s*"(?:[^"\\]|\\.)*",\s*"host":\s*"' + _STRING)
_STORAGE = re.compile(rb'"(?:source|destination)":\s*"([^":\\]*):')
_DATASET = re.compile(rb'"dataset":\s*"' + _STRING)
_SERVICE = re.compile(rb'_via":\s*"([^"/\\]*)/')
_DRAWN = re.compile(rb'"(?:source|destination|source_via|destination_via)":\s*\{')
_BETWEEN = re.compile(
    rb'"source_via":\s*"([^"/\\]*)/[^"]*"[^{}]*?"destination_via":\s*"([^"/\\]*)/'
    rb'|"destination_via":\s*"([^"/\\]*)/[^"]*"[^{}]*?"source_via":\s*"([^"/\\]*)/'
)


@dataclass
class HostUsage:
    """Storages and services that the actors of one host use.

    Attributes
    ----------
    storages, services
        Names of the plan.
    between
        Pairs of services that the host directs transfers between.
    """

    storages: set[str] = field(default_factory=set)
    services: set[str] = field(default_factory=set)
    between: set[tuple[str, str]] = field(default_factory=set)


def actor_lines(directory: Path) -> Iterator[tuple[str, bytes]]:
    """Yield host and text of each actor line of the plan of a run."""
    with (directory / PLAN).open("rb") as lines:
        next(lines, None)
        for line in lines:
            found = _HOST.match(line)
            # The regular expression avoids parsing a line that can have a million transfers.
            host = json.loads(b'"' + found[1] + b'"') if found else json.loads(line)["host"]
            yield host, line.strip()


def plan_usage(directory: Path, header: Header) -> dict[str, HostUsage]:
    """Return host → usage for the plan of a run.

    Parameters
    ----------
    directory
        Directory of the run.
    header
        Header of its plan.
    """
    usage = {name: HostUsage() for name in header.hosts}
    for host, line in actor_lines(directory):
        found = usage.setdefault(host, HostUsage())
        found.storages |= {_text(name) for name in set(_STORAGE.findall(line))} & set(header.storages)
        for dataset in {_text(name) for name in set(_DATASET.findall(line))} & set(header.datasets):
            found.storages.add(header.datasets[dataset].storage)
        found.services |= {_text(name) for name in set(_SERVICE.findall(line))} & set(header.services)
        for first, second, third, fourth in set(_BETWEEN.findall(line)):
            pair = (_text(first or fourth), _text(second or third))
            if set(pair) <= set(header.services):
                found.between.add(pair)
        if _DRAWN.search(line):  # drawn at random from the header: any of them
            found.storages |= set(header.storages)
            found.services |= set(header.services)
    return usage


def users_of(host: str, usage: Mapping[str, HostUsage], header: Header) -> set[str]:
    """Return the hosts whose actors use services or storages of a host. They cannot continue without its shell."""
    services = {name for name, service in header.services.items() if service.host == host}
    storages = {name for name, storage in header.storages.items() if storage.host == host}
    on_servers = {name for name in storages if header.storages[name].url is not None}
    return {
        name
        for name, used in usage.items()
        if used.services & services or used.storages & (storages if name != host else on_servers)
    }


def _text(name: bytes) -> str:
    return name.decode(errors="replace")
