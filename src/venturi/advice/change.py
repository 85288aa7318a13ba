"""The change of a verdict in the scenario of its run, for ``venturi advise --apply``."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from venturi.advice.tool_options import Ability
from venturi.advice.verdict import Verdict
from venturi.errors import PlanError
from venturi.mover import movers
from venturi.units import parse_rate_bit_per_s

__all__ = ["changed_scenario"]

FASTER = 10
"""Rate factor for a faster link as a purchase."""

FILES_PER_CALL = 16
"""Number of files that share one start and one login."""

AT_A_TIME = 8
"""Number of simultaneous files, commands or requests."""

_ABILITIES: Mapping[Ability, tuple[str, ...]] = {
    "pipelining": ("pipelining",),
    "files": ("concurrency", "parallel", "transfers"),
    "requests": ("requests",),
}
"""Ability → names of the options of movers."""


def changed_scenario(scenario: Mapping[str, Any], verdict: Verdict) -> tuple[dict[str, Any], str]:
    """Return the scenario without the limit of a verdict, and the change as a phrase.

    If the limit is a part of the testbed (a disk, link, quota or loss), it is removed, as if the part were bought. For
    other limits, the setting of the verdict is applied: a kernel setting of a host, or an option of the mover or of a
    service.

    Parameters
    ----------
    scenario
        Scenario of the run, as its plan stores it.
    verdict
        Verdict of the run.

    Raises
    ------
    PlanError
        If no change of the scenario removes the limit.
    """
    changed = copy.deepcopy(dict(scenario))
    changed["name"] = f"{scenario['name']}-applied"
    testbed, resource = changed.get("testbed") or {}, verdict.resource
    match verdict.cause:
        case "source-disk" | "destination-disk":
            name = _named(resource, testbed.get("storage") or {}, verdict)
            key = "read_rate" if verdict.cause == "source-disk" else "write_rate"
            _remove(testbed["storage"][name], key, verdict)
            return changed, f"storage {name} without {key}"
        case "source-cpu" | "destination-cpu" if "quota" in resource:
            name = _named(resource, testbed.get("host") or {}, verdict)
            _remove(testbed["host"][name], "cpu_limit", verdict)
            return changed, f"host {name} without cpu_limit"
        case "receive-window" | "send-buffer":
            return changed, _change_buffers(testbed, verdict)
        case "loss":
            lossy = [name for name, link in (testbed.get("link") or {}).items() if link.pop("loss", None) is not None]
            if lossy:
                return changed, f"link {', '.join(lossy)} without loss"
        case "link":
            name = _link(resource, testbed, verdict)
            link = testbed["link"][name]
            link["rate"] = f"{FASTER * parse_rate_bit_per_s(link['rate'])!r} b/s"
            return changed, f"link {name} {FASTER} times as fast"
        case "policer":
            name = _link(resource, testbed, verdict)
            _remove(testbed["link"][name], "queue", verdict)
            return changed, f"link {name} with the usual queue"
        case "server-slots":
            services = testbed.get("service") or {}
            name = _named(resource, services, verdict)
            options = services[name].get("options") or {}
            limits = [key for key in ("ready", "connections") if options.pop(key, None) is not None]
            if limits:
                return changed, f"service {name} without {' and '.join(limits)}"
        case "rate-limit":
            return changed, _remove_rate(changed, verdict)
        case "file-latency" | "client":
            return changed, _overlap(changed, verdict)
        case "start-up" | "authentication":
            workload = changed["workload"]
            if workload.get("kind") == "sweep":
                table = workload["factors"] if "files_per_call" in workload["factors"] else workload
                before = table.get("files_per_call", 1)
                table["files_per_call"] = (
                    [FILES_PER_CALL * number for number in before]
                    if isinstance(before, list)
                    else FILES_PER_CALL * before
                )
                return changed, f"{FILES_PER_CALL} times as many files per call"
        case _:
            pass
    raise _not_possible(verdict)


def _not_possible(verdict: Verdict) -> PlanError:
    if verdict.cause is None:
        return PlanError(
            f"--apply: expected a verdict, found none: the evidence does not show the limit. Next: {verdict.probe or 'repeat the run'}."
        )
    text = f"{verdict.counterfactual.change}, then run the scenario again" if verdict.counterfactual else "change it"
    return PlanError(
        f"--apply: expected a limit that one key of the scenario removes, found {verdict.resource}. Edit the scenario: {text}."
    )


def _remove(table: dict[str, Any], key: str, verdict: Verdict) -> None:
    if table.pop(key, None) is None:
        raise _not_possible(verdict)


def _named(resource: str, names: Iterable[str], verdict: Verdict) -> str:
    """Return the part of the testbed that a resource names: ``data`` in ``the disk of storage data on cern``."""
    # Names follow the word "of". The storage precedes its host.
    words = resource.partition(" of ")[2].removeprefix("the service ").removeprefix("storage ").split()
    found = [word for word in words if word in set(names)]
    if not found:
        raise _not_possible(verdict)
    return found[0]


def _link(resource: str, testbed: Mapping[str, Any], verdict: Verdict) -> str:
    """Return the link of the scenario for a link of the plan, such as ``r1>dst``."""
    for word in resource.split():
        ends = {end.partition(".")[0] for end in word.split(">")}
        for name, link in (testbed.get("link") or {}).items():
            if len(ends) == 2 and {end.partition(".")[0] for end in link["between"]} == ends and "rate" in link:
                return str(name)
    raise _not_possible(verdict)


def _change_buffers(testbed: dict[str, Any], verdict: Verdict) -> str:
    """Set the kernel settings of the verdict in a new TCP profile of the host."""
    setting = next((one for one in verdict.settings if one.kind == "sysctl" and one.host in testbed["host"]), None)
    if setting is None:
        raise _not_possible(verdict)
    values = dict(word.split("=", 1) for word in shlex.split(setting.change) if "=" in word)
    # A lab applies TCP settings. Limits of the whole machine do not apply to them.
    values = {name: value for name, value in values.items() if name.startswith("net.ipv4.")}
    host, profiles = testbed["host"][setting.host], testbed.setdefault("tcp", {})
    name = f"{setting.host}-applied"
    profiles[name] = {**(profiles.get(host.get("tcp")) or {}), **values}
    host["tcp"] = name
    return f"host {setting.host} with {', '.join(f'{key} = {value}' for key, value in values.items())}"


def _remove_rate(changed: dict[str, Any], verdict: Verdict) -> str:
    """Remove the rate of a mover or service that the resource names: ``the option rate of curl``."""
    words = verdict.resource.split()
    key, name = words[words.index("option") + 1], words[-1]
    table = (
        (changed["testbed"].get("service") or {}).get(name) or {}
        if "service" in words
        else {"options": changed["workload"].get("options")}
    )
    options = table.get("options") or {}
    found = next((option for option in options if key.startswith(option)), None)
    if found is None:
        raise _not_possible(verdict)
    del options[found]
    return f"{'service ' if 'service' in words else ''}{name} without {found}"


def _overlap(changed: dict[str, Any], verdict: Verdict) -> str:
    """Let the mover send commands or requests early, or move several files at a time."""
    workload = changed["workload"]
    mover = movers().get(str(workload.get("mover")))
    if mover is None:
        raise _not_possible(verdict)
    abilities: tuple[Ability, ...] = (
        ("pipelining", "files") if verdict.cause == "file-latency" else ("requests", "files")
    )
    for ability in abilities:
        for option in mover.options:
            if option.name in _ABILITIES[ability] and option.name not in workload["factors"]:
                value: bool | int = True if option.kind == "boolean" else 32 if ability != "files" else AT_A_TIME
                if option.kind in ("boolean", "integer") and workload.get("options", {}).get(option.name) != value:
                    workload.setdefault("options", {})[option.name] = value
                    return f"{mover.name} with {option.name} = {str(value).lower()}"
    if workload.get("kind") == "sweep" and "files" not in workload["factors"]:
        workload["factors"]["files"] = [AT_A_TIME]
        return f"{AT_A_TIME} processes of {mover.name} at the same time"
    raise _not_possible(verdict)
