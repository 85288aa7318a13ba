"""Verdicts of simulated runs, from the bottlenecks that the simulator records for each transfer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from venturi.advice.attribute import Attribution, set_up_cause
from venturi.advice.observe import NO_STORAGE, Observation
from venturi.advice.verdict import Cause, Observed
from venturi.run import Run

__all__ = ["attribute_simulated"]

_PLAIN: Mapping[str, tuple[Cause, str]] = {
    "queue": ("server-slots", "the sessions of the server"),
    "outage": ("link", "an outage of a link"),
    "retry": ("server-slots", "pauses before other attempts"),
    "start": ("start-up", "the start of the tool and its session"),
    "redirect": ("start-up", "the redirection to another server"),
    "commands": ("file-latency", "the latency of each file"),
    "file": ("file-latency", "the latency of each file"),
    "open": ("file-latency", "the opening of files"),
    "slow_start": ("start-up", "the slow start of connections"),
    "check": ("file-latency", "the checksum requests"),
    "compute": ("source-cpu", "the computation of the client"),
    "ahead": ("client", "the requests of the client, one after another"),
    "loss": ("loss", "packet loss on the path"),
    "server_cpu": ("server-cpu", "one core of a server"),
    "server_process": ("server-cpu", "one process of a server"),
    "block": ("source-disk", "blocks of a file system, one after another"),
    "nothing": ("unknown", ""),
}


def attribute_simulated(run: Run, one: Observation) -> Attribution:
    """Return the attribution of a simulated trial."""
    rows = run.query(
        """SELECT duration_s, bottleneck FROM transfers WHERE coalesce(trial, '') = $trial AND bottleneck IS NOT NULL
           UNION ALL SELECT duration_s, bottleneck FROM routes WHERE coalesce(trial, '') = $trial AND bottleneck IS NOT NULL""",
        {"trial": one.trial},
    )
    found = Attribution()
    total = float(sum(rows["duration_s"])) if len(rows["duration_s"]) else 0.0
    if total <= 0:
        found.missing.append("bottlenecks of the transfers")
        found.fractions["unknown", ""] = 1.0
        return found
    for duration_s, text in zip(rows["duration_s"], rows["bottleneck"], strict=True):
        for name, fraction in json.loads(str(text)).items():
            key = cause_of(one, str(name))
            found.fractions[key] = found.fractions.get(key, 0.0) + float(fraction) * float(duration_s) / total
    for fraction in found.sorted()[:4]:
        found.evidence.append(Observed(f"{100 * fraction.fraction:.0f} % of the time", fraction.cause))
    return found


def cause_of(one: Observation, name: str) -> tuple[Cause, str]:
    """Return cause and resource of a bottleneck of the simulator (``docs/reference/sim.md``)."""
    kind, _, rest = name.partition(":")
    if name in ("session", "authentication"):
        # The round trips of a login belong to its authentication, as in measured runs.
        return set_up_cause(one)
    if name in ("rate", "pacing"):
        return "rate-limit", _rate_option(one, name)
    if name in _PLAIN:
        return _PLAIN[name]
    match kind:
        case "link":
            return "link", f"the link {rest}"
        case "disk":
            storage, _, direction = rest.rpartition(":")
            host = _host_of(one.header, storage)
            side: Cause = "source-disk" if direction == "read" else "destination-disk"
            return side, f"the disk of storage {storage} on {host}"
        case "memory":
            return "source-disk", f"the page cache of {rest.rpartition(':')[0]}"
        case "cpu" if rest == "machine":
            return "lab", "the machine, which has no free CPU"
        case "cpu":
            side = "destination-cpu" if rest == one.destination and rest != one.source else "source-cpu"
            quota = one.lab(rest).get("cpu_limit_cores")
            return side, f"the CPU quota of {rest}" if quota else f"the CPU of {rest}"
        case "process":
            return "server-cpu", f"one process of the service {rest.partition('#')[0]}"
        case "sessions":
            return "server-cpu", f"all sessions of the service {rest}"
        case "loopback":
            return "source-cpu", f"the TCP stack of {rest}"
        case "client_cpu":
            side = "destination-cpu" if one.client == one.destination != one.source else "source-cpu"
            return side, f"one core of {one.client}"
        case "window":
            return _window(one)
        case _:
            return "unknown", name


def _rate_option(one: Observation, name: str) -> str:
    """Return the option with a rate, of a service or otherwise of the mover."""
    for service in one.services:
        options = ((one.header.get("services") or {}).get(service) or {}).get("options") or {}
        if options.get(f"{name}_bytes_per_s"):
            return f"the option {name} of the service {service}"
    return f"the option {name} of {' and '.join(one.movers) or 'the mover'}"


def _window(one: Observation) -> tuple[Cause, str]:
    """Return the smaller of the two buffers, by the kernel settings of the hosts."""
    send, receive = (
        one.sysctl(host, name)
        for host, name in ((one.source, "net.ipv4.tcp_wmem"), (one.destination, "net.ipv4.tcp_rmem"))
    )
    # Half of a receive buffer is window (ceilings.py).
    if send and receive and float(send.split()[-1]) < 0.5 * float(receive.split()[-1]):
        return "send-buffer", f"the TCP send buffer of {one.source}"
    return "receive-window", f"the TCP receive window of {one.destination}"


def _host_of(header: Mapping[str, Any], storage: str) -> str:
    if storage in NO_STORAGE:
        return "the host"
    return str((header.get("storages") or {}).get(storage, {}).get("host") or "its host")
