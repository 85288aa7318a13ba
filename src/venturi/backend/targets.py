"""Targets of ``--hosts FILE``: destinations, addresses and ports of the hosts of a plan, for one user or site.

They are separate from the plan, so that the same plan, byte for byte, runs everywhere. A copy of the file is kept with
the run, so that the run can be resumed.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from venturi.errors import ScenarioError
from venturi.messages import Problem, one_of, quote_value
from venturi.plan.header import Header, Host
from venturi.scenario.problems import complete_message, describe_problems
from venturi.scenario.testbed import HostTable

__all__ = ["TARGETS", "Target", "merged_hosts", "read_targets", "targeted_header"]

TARGETS = "hosts.toml"
"""File of a run directory with the targets of the run."""

_KEYS = ("ssh", "connect", "address", "open_ports", "cache", "environment", "path")
_MAX_LISTED = 8


@dataclass(frozen=True, slots=True)
class Target:
    """One host of a targets file. None: as in the plan.

    Attributes
    ----------
    ssh, connect, address, open_ports, cache, environment
        See :class:`venturi.plan.header.Host`.
    path
        Directory of relative storages on that host.
    """

    ssh: str | None = None
    connect: tuple[str, ...] | None = None
    address: str | None = None
    open_ports: tuple[int, int] | None = None
    cache: str | None = None
    environment: Mapping[str, str] | None = None
    path: str | None = None


def read_targets(path: Path) -> dict[str, Target]:
    """Read a targets file: TOML with a table for each host, such as ``cern = { ssh = "alice@dtn1", path = "/data/alice" }``.

    Raises
    ------
    ScenarioError
        If it cannot be read, or a value is invalid.
    """
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScenarioError([("", f"expected a readable file with hosts, found none ({error.strerror}); check the path")], str(path)
                            ) from error  # fmt: skip
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ScenarioError([("", f"expected TOML, found an error: {error}; correct it")], str(path)) from error
    problems: list[Problem] = []
    targets = {name: _target(name, table, problems) for name, table in document.items()}
    if problems:
        raise ScenarioError([(where, complete_message(what)) for where, what in problems], str(path))
    return targets


def merged_hosts(
    hosts: Mapping[str, Host], targets: Mapping[str, Target], source: str = "--hosts"
) -> dict[str, Host]:
    """Return the hosts of a plan with the values of the targets.

    Parameters
    ----------
    hosts
        Hosts of the header.
    targets
        Result of :func:`read_targets`. A target with ``ssh`` or ``connect`` replaces both. Its ``environment`` is added.
    source
        Name of the file for messages.

    Raises
    ------
    ScenarioError
        If a target is not a host of the plan, or if a host has neither a target nor a connection in the plan. Without
        targets, such a host is this machine.
    """
    if targets:
        _check_names(hosts, targets, source)
    return {name: _merged(host, targets.get(name)) for name, host in hosts.items()}


def targeted_header(header: Header, path: Path | None) -> Header:
    """Return a header with the hosts of a targets file. Only for the execution: a stored plan never contains them.

    Raises
    ------
    ScenarioError
        If the file is invalid.
    """
    if path is None:
        return header
    targets = read_targets(path)
    _check_names(header.hosts, targets, str(path))
    return dataclasses.replace(header, hosts=merged_hosts(header.hosts, targets))


def _check_names(hosts: Mapping[str, Host], targets: Mapping[str, Target], source: str) -> None:
    """Check that each host of a plan has a connection, and that each target is a host of the plan.

    Without the check, servers of a forgotten host would start on this machine. ``node2 = {}`` requests this machine.
    """
    problems: list[Problem] = []
    missing = [
        name for name, host in hosts.items() if name not in targets and host.ssh is None and host.connect is None
    ]
    unknown = []
    for name in (target for target in targets if target not in hosts):
        near = get_close_matches(name, missing, 1)
        if near:
            problems.append((name, complete_message(one_of("the hosts of the plan", hosts, name))))
            missing.remove(near[0])
        else:
            unknown.append(name)
    if unknown:
        problems.append(
            (
                "",
                f"expected only hosts of the plan ({_listed(list(hosts))}), found {_listed(unknown)}; remove other hosts",
            )
        )
    if missing:
        lines = f'{missing[0]} = {{ ssh = "user@host" }}, or {missing[0]} = {{}} for this machine'
        problems.append(
            (
                "",
                f"expected a line for each host of the plan, found none for {_listed(missing)}; add lines such as {lines}",
            )
        )
    if problems:
        raise ScenarioError(problems, source)


def _listed(names: Sequence[str]) -> str:
    """Return names as text, and the number of omitted names."""
    more = len(names) - _MAX_LISTED
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_MAX_LISTED])} and {more} more"


def _merged(host: Host, target: Target | None) -> Host:
    if target is None:
        return host
    changes: dict[str, Any] = {
        key: value for key in ("address", "open_ports", "cache") if (value := getattr(target, key)) is not None
    }
    if target.ssh is not None or target.connect is not None:
        changes |= {"ssh": target.ssh, "connect": target.connect}
    if target.environment:
        changes["environment"] = {**host.environment, **target.environment}
    return dataclasses.replace(host, **changes)


def _target(name: str, table: object, problems: list[Problem]) -> Target:
    if not isinstance(table, dict):
        problems.append((name, f'expected a table such as {{ ssh = "user@host" }}, found {quote_value(table)}'))
        return Target()
    problems += [(f"{name}.{key}", one_of("the keys", _KEYS, key)) for key in table if key not in _KEYS]
    known = {key: value for key, value in table.items() if key in _KEYS}
    path = known.pop("path", None)
    if path is not None and not (isinstance(path, str) and path.startswith("/")):
        problems.append(
            (f"{name}.path", f"expected an absolute path, found {quote_value(path)}; write the full path")
        )
        path = None
    try:
        host = HostTable.model_validate(known)
    except ValidationError as error:
        problems += [(f"{name}.{where}", what) for where, what in describe_problems(error, HostTable, known)]
        return Target()
    if host.ssh is not None and host.connect is not None:
        problems.append((name, "expected `ssh` or `connect`, found both; remove one"))
    return Target(host.ssh, host.connect, host.address, host.open_ports, host.cache, host.environment, path)
