"""Resolution of the workload ``inject``: pairs of each flow, their rates and routes."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from venturi.messages import Problem, one_of, path_text
from venturi.plan import Dataset
from venturi.testbed.network import scaled_bytes
from venturi.units import BITS_PER_BYTE, format_bytes_exact
from venturi.workload.design import MAX_TRIALS, scale_clashes
from venturi.workload.sites import Exchange, SiteHost, build_dataset

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.inject import Flow, Inject

__all__ = ["EACH", "FlowPair", "InjectLayout", "resolve_flows"]

Form = Literal["each", "arrivals"]

EACH = 100_000
"""Default maximum of transfers that are separate trials."""


@dataclass(frozen=True, slots=True)
class FlowPair:
    """Transfers of one size between one pair of storages of a flow, by one call.

    ``per_s``: transfers per second between the ramps. ``bit_per_s``: requested rate of all sizes of the pair, scaled.
    """

    flow: str
    source: SiteHost
    destination: SiteHost
    client: SiteHost
    size_bytes: int
    per_s: float
    bit_per_s: float
    call: str

    @property
    def names(self) -> tuple[str, str, str, str, int]:
        """Names of its random stream."""
        return "inject", self.flow, self.source.storage, self.destination.storage, self.size_bytes


@dataclass(frozen=True)
class InjectLayout:
    """Pairs in the order of flows, sources, destinations and sizes, with their calls and the form of the plan."""

    streams: tuple[FlowPair, ...]
    exchange: Exchange
    datasets: Mapping[tuple[str, int], tuple[str, Dataset]]
    """Storage and size → name and dataset."""
    form: Form
    expected: float
    """Mean number of transfers."""


def resolve_flows(
    scenario: Scenario, inject: Inject, parts: ResolvedTestbed, problems: list[Problem]
) -> InjectLayout | None:
    """Return the resolved flows, or ``None`` after errors, which are appended to ``problems``."""
    before = len(problems)
    sizes = {size for flow in inject.flow.values() for size in flow.size}
    clash = scale_clashes({size: scaled_bytes(size, scenario.scale) for size in sorted(sizes)})
    if clash:
        problems.append(("scale", clash))
    exchange = Exchange(scenario, inject.mover, inject.options, inject.timeout, parts, problems)
    storages = _StorageIndex(scenario, parts)
    streams: list[FlowPair] = []
    for name, flow in inject.flow.items():
        _check_times(name, flow, problems)
        if flow.options:
            where = ("workload", "flow", name, "options")
            exchange.add_call(_call_name(inject, name), {**inject.options, **flow.options}, inject.timeout, where)
        streams += _streams(scenario, name, flow, _call_name(inject, name), storages, problems)
    _check_routes(exchange, streams)
    expected = math.fsum(stream.per_s * inject.flow[stream.flow].shape.full_s for stream in streams)
    in_brief = scenario.measure.transfers == "routes"
    form: Form = "each" if expected <= EACH and not in_brief else "arrivals"
    if inject.form != "auto":
        form = inject.form
    if form == "each" and expected > MAX_TRIALS / 2:
        found = f'{expected:.3g} transfers; use form = "arrivals"'
        problems.append(("workload.form", f'expected at most {MAX_TRIALS // 2} transfers in the form "each", found {found}'))  # fmt: skip
    if len(problems) == before and expected < 1:
        problems.append(("workload.flow", f"expected one or more transfers on average, found {expected:.3g}; increase the rate or the duration"))  # fmt: skip
    if len(problems) > before:
        return None
    return InjectLayout(tuple(streams), exchange, dict(_datasets(scenario, streams)), form, expected)


def _call_name(inject: Inject, flow: str) -> str:
    """Return the name of the call of a flow: a separate call if the flow has its own options."""
    return f"{inject.mover},flow={flow}" if inject.flow[flow].options else inject.mover


def _check_times(name: str, flow: Flow, problems: list[Problem]) -> None:
    where = path_text(("workload", "flow", name))
    if flow.end - flow.start < flow.ramp_up + flow.ramp_down or flow.end <= flow.start:
        found = f"{flow.end - flow.start:g} s for ramps of {flow.ramp_up:g} s and {flow.ramp_down:g} s"
        problems.append(
            (
                f"{where}.end",
                f"expected an end after start and both ramps, found {found}; use a later end or shorter ramps",
            )
        )
    if flow.weights and len(flow.weights) != len(flow.size):
        problems.append(
            (
                f"{where}.weights",
                f"expected a weight for each of {len(flow.size)} sizes, found {len(flow.weights)}; add or remove weights",
            )
        )


class _StorageIndex:
    """Storages by the names of sites, hosts and storages."""

    def __init__(self, scenario: Scenario, parts: ResolvedTestbed) -> None:
        self._named: dict[str, list[SiteHost]] = {}
        fastest = _link_rates(parts)
        for name, storage in scenario.testbed.storage.items():
            host = scenario.testbed.host[storage.host]
            end = SiteHost(storage.host, host.site or storage.host, name, fastest.get(storage.host, 1.0))
            for known in dict.fromkeys((end.site, end.host, name)):
                self._named.setdefault(known, []).append(end)

    def find(self, where: str, names: Iterable[str], problems: list[Problem]) -> list[SiteHost]:
        """Return the distinct storages of these names or patterns."""
        found: dict[str, SiteHost] = {}
        for index, name in enumerate(names):
            known = [name] if name in self._named else fnmatch.filter(self._named, name)
            if not known:
                problems.append((f"{where}[{index}]", one_of("the sites, hosts and storages", self._named, name)))
            found |= {end.storage: end for match in known for end in self._named[match]}
        return list(found.values())


def _link_rates(parts: ResolvedTestbed) -> dict[str, float]:
    """Return the rate of the fastest outgoing link of each host; existing hosts have no links."""
    found: dict[str, float] = {}
    for link in parts.network.links.values() if parts.network else ():
        interface = parts.network.interfaces.get(link.origin) if parts.network else None
        if interface is not None:
            found[interface.host] = max(found.get(interface.host, 0.0), link.rate_bit_per_s)
    return found


def _streams(
    scenario: Scenario, name: str, flow: Flow, call: str, storages: _StorageIndex, problems: list[Problem]
) -> Iterator[FlowPair]:
    where = path_text(("workload", "flow", name))
    sources = storages.find(f"{where}.source", flow.source, problems)
    destinations = storages.find(f"{where}.destination", flow.destination, problems)
    pairs = [(one, other) for one in sources for other in destinations if one.site != other.site]
    if sources and destinations and not pairs:
        problems.append(
            (
                f"{where}.destination",
                "expected storages of other sites than the source, found none; name another site",
            )
        )
    if not pairs or (flow.weights and len(flow.weights) != len(flow.size)):
        return
    weights = [1.0] * len(pairs)
    if flow.of == "capacity":
        weights = [one.weight_bit_per_s * other.weight_bit_per_s for one, other in pairs]
    multiplier = len(pairs) if flow.of == "pair" else 1
    sum_ = math.fsum(weights)
    mean = math.fsum(fraction * size for fraction, size in zip(flow.fractions, flow.size, strict=True))
    per_s = flow.rate.per_s if flow.rate.bit_per_s is None else flow.rate.bit_per_s / BITS_PER_BYTE / mean
    assert per_s is not None
    for (one, other), weight in zip(pairs, weights, strict=True):
        own = per_s * multiplier * weight / sum_
        for size, fraction in zip(flow.size, flow.fractions, strict=True):
            # Sizes and link rates scale together, so the number of transfers does not change.
            request = own * mean * BITS_PER_BYTE * scenario.scale
            yield FlowPair(
                name, one, other, one if flow.client == "source" else other, size, own * fraction, request, call
            )


def _check_routes(exchange: Exchange, streams: Iterable[FlowPair]) -> None:
    """Collect the errors of the routes of each pair."""
    seen: set[tuple[str, str, str]] = set()
    for stream in streams:
        key = (stream.client.host, stream.source.storage, stream.destination.storage)
        if key not in seen:
            seen.add(key)
            exchange.transfer(stream.client, f"{key[1]}:x", f"{key[2]}:x", 0, {})


def _datasets(
    scenario: Scenario, streams: Iterable[FlowPair]
) -> Iterator[tuple[tuple[str, int], tuple[str, Dataset]]]:
    for storage, size in dict.fromkeys((stream.source.storage, stream.size_bytes) for stream in streams):
        name = f"{storage}-{format_bytes_exact(size).replace(' ', '')}"
        yield (storage, size), (name, build_dataset(scenario, storage, size))
