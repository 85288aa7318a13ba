"""Scenario of a probe: the workload ``inject`` with the kinds of transfers of a load, at one rate.

``venturi run`` can execute it on every backend. With even arrivals, the transfers of each size start at equal intervals.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from venturi.errors import PlanError
from venturi.mover import Mover
from venturi.plan import Call
from venturi.plan.estimate import ASSUMED_RATE_BYTES_PER_S
from venturi.plan.header import OptionValue
from venturi.prediction.offered import OfferedLoad, TransferKind, offered_load
from venturi.prediction.peak_finder import LoadOrder
from venturi.scenario import Scenario, scenario_from
from venturi.scenario.fields import format_duration_exact
from venturi.scenario.tools import resolve_movers
from venturi.units import BITS_PER_BYTE, format_bytes_exact
from venturi.workload import expand

__all__ = ["LoadScenario", "load_scenario_of"]

MIN_LEAD_S = 2.0
"""Time before the first transfer, for the creation of the files."""

MAX_EXAMPLE_S = 1e4
"""Duration of an example with one transfer per second; it can lack sizes that are very rare."""

SUFFIX = "confirm"


@dataclass(frozen=True)
class LoadScenario:
    """Scenario whose load can be set.

    Attributes
    ----------
    document
        Scenario without the rates of its flows.
    fractions
        Fraction of the transfers of each flow.
    stream_bytes
        Size of each stream of transfers with even arrivals.
    even
        Whether the transfers start at even intervals, not at random times.
    lead_s
        Time before the first transfer.
    directory
        Base directory of its files.
    """

    document: Mapping[str, Any]
    fractions: Mapping[str, float]
    stream_bytes: tuple[float, ...]
    even: bool
    lead_s: float
    directory: Path

    def at(self, order: LoadOrder, seed_offset: int = 0) -> Scenario:
        """Return the scenario of a probe.

        Raises
        ------
        ScenarioError
            If the scenario is not valid, for example because a transfer has no route.
        """
        workload = self.document["workload"]
        end = format_duration_exact(round(order.duration_s, 6))
        flows = {
            name: {**flow, "rate": f"{order.per_s * self.fractions[name] * 3600:.9f} /h", "end": end}
            for name, flow in workload["flow"].items()
        }
        document = {**self.document, "workload": {**workload, "flow": flows}}
        # The files of the transfers have names with the seed, so even arrivals keep the seed and the files.
        if not self.even:
            document["seed"] = int(document.get("seed", 1)) + seed_offset
        return scenario_from(document, str(document["name"]), directory=self.directory)

    def example(self) -> Scenario:
        """Return a scenario with a few transfers of each size, to check it."""
        least = min(
            float(weight) * self.fractions[name]
            for name, flow in self.document["workload"]["flow"].items()
            for weight in flow["weights"]
        )
        return self.at(LoadOrder(1.0, min(MAX_EXAMPLE_S, 10 / least)))


def load_scenario_of(scenario: Scenario, load: OfferedLoad, *, even: bool, directory: Path) -> LoadScenario:
    """Return the scenario of probes of a load.

    Parameters
    ----------
    scenario
        Scenario at scale 1 with the testbed of the load.
    load
        Kinds of transfers.
    even
        Whether the transfers start at even intervals.
    directory
        Base directory of files that the scenario names.

    Raises
    ------
    PlanError
        If the workload ``inject`` cannot run these transfers.
    ScenarioError
        If the scenario of a probe is not valid.
    """
    for kind in load.kinds:
        _check(scenario, load, kind)
    movers = {load.header.calls[kind.call].mover for kind in load.kinds}
    if len(movers) > 1:
        names = ", ".join(sorted(movers))
        raise _error(scenario, "workload.mover", "one mover", names, "select one with --set workload.mover=…")
    (mover,) = movers
    parsers = resolve_movers(scenario)[0]
    flows: dict[str, dict[str, Any]] = {}
    fractions: dict[str, float] = {}
    for number, kinds in enumerate(_routes(load.kinds), 1):
        name, first = f"route{number}", kinds[0]
        fractions[name] = math.fsum(kind.fraction for kind in kinds)
        sizes: dict[int, float] = {}
        for kind in kinds:
            sizes[kind.size_bytes] = sizes.get(kind.size_bytes, 0.0) + kind.fraction
        flows[name] = {
            "source": [first.source_storage],
            "destination": [first.destination_storage],
            "of": "flow",
            "size": [format_bytes_exact(size) for size in sizes],
            "weights": list(sizes.values()),
            "client": "source" if first.host == _host(load, first.source_storage) else "destination",
            "options": dict(_options(parsers[mover], load.header.calls[first.call])),
        }
    lead_s = _lead_s(load)
    timeout_s = max(load.header.calls[kind.call].timeout_s for kind in load.kinds)
    document = {key: value for key, value in scenario.document().items() if key not in ("analyse", "study", "limits")}
    document["name"] = f"{scenario.name}-{SUFFIX}"
    document["measure"] = {**document.get("measure", {}), "transfers": "each"}
    document["workload"] = {
        "kind": "inject", "mover": mover, "arrivals": "even" if even else "poisson", "form": "each",
        "lead": format_duration_exact(lead_s), "timeout": format_duration_exact(timeout_s), "flow": flows,
    }  # fmt: skip
    streams = tuple(float(kind.size_bytes) for kind in load.kinds)
    found = LoadScenario(document, fractions, streams, even, lead_s, directory)
    _check_routes(scenario, load, found)
    return found


def _routes(kinds: Iterable[TransferKind]) -> list[list[TransferKind]]:
    """Return the kinds by their endpoints, client and call; each size of a route once."""
    found: dict[tuple[str, ...], list[TransferKind]] = {}
    for kind in kinds:
        found.setdefault((kind.source_storage, kind.destination_storage, kind.host, kind.call), []).append(kind)
    return list(found.values())


def _check(scenario: Scenario, load: OfferedLoad, kind: TransferKind) -> None:
    storages = load.header.storages
    ends = (kind.source_storage, kind.destination_storage)
    for end in ends:
        if end not in storages:
            raise _error(
                scenario, "workload", "transfers from one storage to another", end, "set storages of two hosts"
            )
    if kind.files != 1:
        advice = "use --set workload.files_per_call=1, or --size"
        raise _error(scenario, "workload", "transfers of one file", f"transfers of {kind.files} files", advice)
    if "proxy" in load.header.calls[kind.call].urls:
        advice = "use a sweep with the URL of the proxy in workload.options.proxy"
        raise _error(scenario, "workload.kind", "transfers without a group of proxies", "some with one", advice)
    hosts = [_host(load, end) for end in ends]
    sites = [scenario.testbed.host[host].site or host for host in hosts]
    if sites[0] == sites[1]:
        found = f"{ends[0]} and {ends[1]} on {sites[0]}"
        raise _error(scenario, "workload", "storages of different hosts and sites", found, "set another destination")
    if kind.host not in hosts:
        found = f"{kind.host} as a third host"
        raise _error(
            scenario, "workload.client", "a client on the host of the source or destination", found, "omit the client"
        )


def _check_routes(scenario: Scenario, load: OfferedLoad, found: LoadScenario) -> None:
    """Check that the probes use the same services as the load: ``inject`` chooses them itself."""
    plan = expand(found.example())
    own = {_ports(kind) for kind in load.kinds}
    other = {_ports(kind) for kind in offered_load(plan).kinds}
    if not other <= own:
        used, chosen = (
            ", ".join(dict.fromkeys(via or "no service" for one in sorted(ports, key=str) for via in one[3:]))
            for ports in (own - other, other - own)
        )
        advice = "leave one service with each storage"
        raise _error(scenario, "testbed.service", used, chosen, advice)


def _ports(kind: TransferKind) -> tuple[str, str, str, str | None, str | None]:
    return kind.host, kind.source_storage, kind.destination_storage, kind.source_via, kind.destination_via


def _options(mover: Mover, call: Call) -> Iterable[tuple[str, Any]]:
    """Yield the options of a call as in a scenario, without the defaults."""
    for option in mover.options:
        value = call.options.get(option.key)
        if value is not None and value != option.default:
            yield option.name, _as_written(option.kind, value)


def _as_written(kind: str, value: OptionValue) -> OptionValue:
    match kind:
        case "size":
            return f"{value} B"
        case "rate":
            return f"{float(value) * BITS_PER_BYTE!r} b/s"  # type: ignore[arg-type]
        case "duration":
            return f"{value} s"
        case _:
            return value


def _host(load: OfferedLoad, storage: str) -> str:
    host = load.header.storages[storage].host
    if host is None:
        raise PlanError(
            f"testbed.storage.{storage}: expected a storage of a host for --confirm, found an existing server;"
            " set a storage with a host"
        )
    return host


def _lead_s(load: OfferedLoad) -> float:
    """Return the time to create one file of each size on each host, in whole seconds."""
    files = {(kind.source_storage, kind.size_bytes) for kind in load.kinds}
    time_s: dict[str, float] = {}
    for storage, size_bytes in files:
        spec = load.header.storages[storage].spec
        rate = (spec.write_bytes_per_s if spec else None) or ASSUMED_RATE_BYTES_PER_S
        host = _host(load, storage)
        time_s[host] = time_s.get(host, 0.0) + size_bytes / rate
    return float(math.ceil(max([MIN_LEAD_S, *time_s.values()])))


def _error(scenario: Scenario, where: str, expected: str, found: str, advice: str) -> PlanError:
    return PlanError(f"{scenario.name}: {where}: expected {expected} for --confirm, found {found}; {advice}")
