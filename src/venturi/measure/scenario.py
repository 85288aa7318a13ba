"""Scenario of a measurement: the same copy as an experiment with repetitions, for ``venturi run``."""

from __future__ import annotations

from statistics import median
from typing import Any
from urllib.parse import urlsplit

from venturi.measure.endpoint import Endpoint
from venturi.measure.result import Measurement
from venturi.report.toml import as_toml
from venturi.units import format_bytes_exact

__all__ = ["EXISTING", "existing_list", "scenario_text"]

EXISTING = "source.txt"
"""List of existing files of a scenario: the file of the user that was measured."""

_REPETITIONS = 5
_DEFAULT_BYTES = 100_000_000
_DIRECTORY = "venturi"
"""Below the measured directories: a run creates and removes files only there."""

_MAX_BYTES_FACTOR = 4
"""Byte limit of a run with existing servers, as a multiple of the bytes of its copies, because it also creates the sources."""

_MAX_TIME = "1 h"
_MOVERS: tuple[tuple[str, frozenset[str]], ...] = (
    ("venturi", frozenset({"ftp", "gsiftp"})),
    ("venturi", frozenset({"http", "https", "dav", "davs"})),
    ("xrdcp", frozenset({"root", "roots"})),
    ("rclone", frozenset({"s3", "s3s"})),
    ("sftp", frozenset({"sftp"})),
    ("gfal-copy", frozenset({"ftp", "gsiftp", "http", "https", "davs", "root", "roots", "srm"})),
)
"""Mover for sets of schemes; the first match counts."""


def scenario_text(measurement: Measurement, a: Endpoint, b: Endpoint) -> str | None:
    """Return a scenario as TOML that copies files of three sizes from A to B; None: no mover supports both servers.

    The largest size is the one of the measurement, so that one trial takes a few seconds. Over a network, the copy has
    the connections of the measurement. Its server does not sync: that option belongs to the server, which the scenario
    leaves to `venturi run`.
    """
    document = {
        "venturi": 1,
        "name": "measure",
        **(_hosts_document if _is_between_hosts(a, b) else _servers_document)(measurement, a, b),
    }
    if not document.get("workload"):
        return None
    return (
        "# Written by `venturi measure`. Run it with `venturi run scenario.toml`, then analyse it with `venturi report`.\n"
        f"{as_toml(document)}\n"
    )


def existing_list(measurement: Measurement, a: Endpoint) -> str | None:
    """Return the content of the list :data:`EXISTING`; None: the source is a directory."""
    return None if a.url is None or not _is_existing(measurement) else f"{a.url.rpartition('/')[2]}\n"


def _is_between_hosts(a: Endpoint, b: Endpoint) -> bool:
    return a.url is None and b.url is None


def _is_existing(measurement: Measurement) -> bool:
    """Return whether the source is a file of the user, whose copies have no separate start-up time."""
    return measurement.startup_s[0] is None


def _hosts_document(measurement: Measurement, a: Endpoint, b: Endpoint) -> dict[str, Any]:
    hosts = {"a": a} if a.host == b.host else {"a": a, "b": b}
    directories = {name: host["directory"] for name, host in measurement.environment["hosts"].items()}
    network = len(hosts) > 1
    return {
        "testbed": {
            "host": {name: _host(endpoint) for name, endpoint in hosts.items()},
            "storage": {
                "source": {"host": "a", "path": f"{directories['a']}/{_DIRECTORY}"},
                "destination": {"host": "b" if network else "a", "path": f"{directories['b']}/{_DIRECTORY}"},
            },
        },
        "workload": {
            "kind": "sweep",
            "mover": "venturi",
            "source": "source",
            "destination": "destination",
            "repeat": _REPETITIONS,
            "cache": "cold",
            "factors": {"size": _sizes(_copied_bytes(measurement))},
            "options": {"concurrency": 1, "streams": measurement.connections} if network else {"fsync": True},
        },
    }


def _servers_document(measurement: Measurement, a: Endpoint, b: Endpoint) -> dict[str, Any]:
    schemes = {urlsplit(one.url).scheme for one in (a, b) if one.url is not None}
    mover = next((name for name, known in _MOVERS if schemes <= known), None)
    if mover is None:
        return {}
    host = next((one for one in (a, b) if one.url is None), Endpoint(""))
    is_existing = _is_existing(measurement)
    copied = _copied_bytes(measurement)
    size = round(copied / measurement.connections if is_existing else copied)

    def storage(name: str, endpoint: Endpoint) -> dict[str, object]:
        if endpoint.url is None:
            directory = measurement.environment["hosts"][name]["directory"]
            return {"host": "client", "path": f"{directory}/{_DIRECTORY}"}
        if name == "a" and is_existing:
            return {"host": "client", "url": endpoint.url.rpartition("/")[0], "existing": EXISTING}
        return {"host": "client", "url": endpoint.url}

    return {
        "testbed": {
            "host": {"client": _host(host)},
            "storage": {"source": storage("a", a), "destination": storage("b", b)},
        },
        "workload": {
            "kind": "sweep",
            "mover": mover,
            "source": "source",
            "destination": "destination",
            "repeat": _REPETITIONS,
            "factors": {"size": [format_bytes_exact(size)] if is_existing else _sizes(copied)},
        },
        "limits": {
            "bytes": format_bytes_exact(_round(_MAX_BYTES_FACTOR * _REPETITIONS * size)),
            "time": _MAX_TIME,
        },
    }


def _host(endpoint: Endpoint) -> dict[str, object]:
    return {
        "ssh": endpoint.ssh,
        "connect": None if endpoint.connect is None else list(endpoint.connect),
        "address": endpoint.address,
        "open_ports": f"{endpoint.open_ports[0]}-{endpoint.open_ports[1]}" if endpoint.open_ports else None,
        "cache": endpoint.cache,
        "environment": dict(endpoint.environment) if endpoint.environment else None,
    }


def _copied_bytes(measurement: Measurement) -> float:
    """Return the median size of a measured copy."""
    copies = measurement.paths[0].parts.get("copy")
    sizes = [sample.bytes for sample in copies.samples if sample.error is None] if copies is not None else []
    return median(sizes) if sizes else _DEFAULT_BYTES


def _sizes(largest: float) -> list[str]:
    """Return 1/100 of a size, 1/10 of it and the size, as round numbers."""
    return [format_bytes_exact(max(_round(largest / divisor), 1)) for divisor in (100, 10, 1)]


def _round(number: float) -> int:
    """Return a number with two significant digits."""
    return int(float(f"{number:.1e}"))
