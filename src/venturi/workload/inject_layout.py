"""Who sends what to whom in ``inject``: the pairs of each flow, what of its rate each has, and the ways between them."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from venturi.plan import Dataset
from venturi.scenario.words import Problem, one_of, path_text
from venturi.testbed.network import scaled_bytes
from venturi.units import BITS_PER_BYTE, format_bytes_exact
from venturi.workload.design import MAX_TRIALS, scale_clashes
from venturi.workload.sites import Exchange, Machine, data_set

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.inject import Flow, Inject

__all__ = ["EACH", "Layout", "Stream", "lay_out"]

Form = Literal["each", "arrivals"]

EACH = 100_000
"""Transfers that are written out each, unless the scenario says otherwise."""


@dataclass(frozen=True, slots=True)
class Stream:
    """One pair of storages in a flow, and the transfers of one size between them by one call.

    ``per_s``: transfers per second on the plateau. ``bit_per_s``: what these and the pair's other sizes ask for, at scale.
    """

    flow: str
    source: Machine
    destination: Machine
    client: Machine
    size_bytes: int
    per_s: float
    bit_per_s: float
    call: str

    @property
    def names(self) -> tuple[str, str, str, str, int]:
        """What its draws belong to."""
        return "inject", self.flow, self.source.place, self.destination.place, self.size_bytes


@dataclass(frozen=True)
class Layout:
    """Streams in the order of flows, sources, destinations and sizes; how they are moved; in which form they are written."""

    streams: tuple[Stream, ...]
    exchange: Exchange
    datasets: Mapping[tuple[str, int], tuple[str, Dataset]]
    """Place and size → name and data set."""
    form: Form
    expected: float
    """Transfers, on average."""


def lay_out(scenario: Scenario, inject: Inject, parts: ResolvedTestbed, problems: list[Problem]) -> Layout | None:
    """Return what the transfers are drawn from, or ``None`` with what is wrong appended to ``problems``."""
    before = len(problems)
    sizes = {size for flow in inject.flow.values() for size in flow.size}
    clash = scale_clashes({size: scaled_bytes(size, scenario.scale) for size in sorted(sizes)})
    if clash:
        problems.append(("scale", clash))
    exchange = Exchange(scenario, inject.mover, inject.options, inject.timeout, parts, problems)
    ends = _Ends(scenario, parts)
    streams: list[Stream] = []
    for name, flow in inject.flow.items():
        _check_times(name, flow, problems)
        if flow.options:
            where = ("workload", "flow", name, "options")
            exchange.add_call(_call_of(inject, name), {**inject.options, **flow.options}, inject.timeout, where)
        streams += _streams(scenario, name, flow, _call_of(inject, name), ends, problems)
    _check_ways(exchange, streams)
    expected = math.fsum(stream.per_s * inject.flow[stream.flow].shape.full_s for stream in streams)
    in_brief = scenario.measure.transfers == "routes"
    form: Form = "each" if expected <= EACH and not in_brief else "arrivals"
    if inject.form != "auto":
        form = inject.form
    if form == "each" and expected > MAX_TRIALS / 2:
        found = f'{expected:.3g} transfers; use form = "arrivals"'
        problems.append(("workload.form", f'expected at most {MAX_TRIALS // 2} transfers that are lines of the plan each ("each"), found {found}'))  # fmt: skip
    if len(problems) == before and expected < 1:
        problems.append(("workload.flow", f"expected rates and times at which a transfer begins, found {expected:.3g} of them on average"))  # fmt: skip
    if len(problems) > before:
        return None
    return Layout(tuple(streams), exchange, dict(_datasets(scenario, streams)), form, expected)


def _call_of(inject: Inject, flow: str) -> str:
    """Return the call by which a flow is carried out: one of its own where it has options of its own."""
    return f"{inject.mover},flow={flow}" if inject.flow[flow].options else inject.mover


def _check_times(name: str, flow: Flow, problems: list[Problem]) -> None:
    where = path_text(("workload", "flow", name))
    if flow.end - flow.start < flow.ramp_up + flow.ramp_down or flow.end <= flow.start:
        found = f"{flow.end - flow.start:g} s for ramps of {flow.ramp_up:g} s and {flow.ramp_down:g} s"
        problems.append(
            (f"{where}.end", f"expected an end after start that leaves time for the ramps, found {found}")
        )
    if flow.weights and len(flow.weights) != len(flow.size):
        problems.append(
            (f"{where}.weights", f"expected a weight for each of {len(flow.size)} sizes, found {len(flow.weights)}")
        )


class _Ends:
    """Storages by the names of sites, hosts and their own."""

    def __init__(self, scenario: Scenario, parts: ResolvedTestbed) -> None:
        self._named: dict[str, list[Machine]] = {}
        fastest = _link_rates(parts)
        for name, storage in scenario.testbed.storage.items():
            host = scenario.testbed.host[storage.host]
            end = Machine(storage.host, host.site or storage.host, name, fastest.get(storage.host, 1.0))
            for known in dict.fromkeys((end.site, end.host, name)):
                self._named.setdefault(known, []).append(end)

    def of(self, where: str, names: Iterable[str], problems: list[Problem]) -> list[Machine]:
        """Return the storages that these names or patterns mean, each once."""
        found: dict[str, Machine] = {}
        for index, name in enumerate(names):
            known = [name] if name in self._named else fnmatch.filter(self._named, name)
            if not known:
                problems.append((f"{where}[{index}]", one_of("the sites, hosts and storages", self._named, name)))
            found |= {end.place: end for match in known for end in self._named[match]}
        return list(found.values())


def _link_rates(parts: ResolvedTestbed) -> dict[str, float]:
    """Return the rate of the fastest link out of each host; hosts that exist have none."""
    found: dict[str, float] = {}
    for link in parts.network.links.values() if parts.network else ():
        interface = parts.network.interfaces.get(link.origin) if parts.network else None
        if interface is not None:
            found[interface.host] = max(found.get(interface.host, 0.0), link.rate_bit_per_s)
    return found


def _streams(
    scenario: Scenario, name: str, flow: Flow, call: str, ends: _Ends, problems: list[Problem]
) -> Iterator[Stream]:
    where = path_text(("workload", "flow", name))
    sources = ends.of(f"{where}.source", flow.source, problems)
    destinations = ends.of(f"{where}.destination", flow.destination, problems)
    pairs = [(one, other) for one in sources for other in destinations if one.site != other.site]
    if sources and destinations and not pairs:
        problems.append((f"{where}.destination", "expected storages of other sites than the source, found none"))
    if not pairs or (flow.weights and len(flow.weights) != len(flow.size)):
        return
    weights = [1.0] * len(pairs)
    if flow.of == "capacity":
        weights = [one.weight_bit_per_s * other.weight_bit_per_s for one, other in pairs]
    whole = len(pairs) if flow.of == "pair" else 1
    sum_ = math.fsum(weights)
    mean = math.fsum(share * size for share, size in zip(flow.shares, flow.size, strict=True))
    per_s = flow.rate.per_s if flow.rate.bit_per_s is None else flow.rate.bit_per_s / BITS_PER_BYTE / mean
    assert per_s is not None
    for (one, other), weight in zip(pairs, weights, strict=True):
        own = per_s * whole * weight / sum_
        for size, share in zip(flow.size, flow.shares, strict=True):
            # Sizes and rates of links shrink together with the scale, so that as many transfers begin.
            asked = own * mean * BITS_PER_BYTE * scenario.scale
            yield Stream(name, one, other, one if flow.client == "source" else other, size, own * share, asked, call)


def _check_ways(exchange: Exchange, streams: Iterable[Stream]) -> None:
    """Note what is wrong with the ways of each pair; the exchange does so when it is asked for a transfer."""
    seen: set[tuple[str, str, str]] = set()
    for stream in streams:
        key = (stream.client.host, stream.source.place, stream.destination.place)
        if key not in seen:
            seen.add(key)
            exchange.transfer(stream.client, f"{key[1]}:x", f"{key[2]}:x", 0, {})


def _datasets(scenario: Scenario, streams: Iterable[Stream]) -> Iterator[tuple[tuple[str, int], tuple[str, Dataset]]]:
    for place, size in dict.fromkeys((stream.source.place, stream.size_bytes) for stream in streams):
        name = f"{place}-{format_bytes_exact(size).replace(' ', '')}"
        yield (place, size), (name, data_set(scenario, place, size))
