"""Who produces, sends, receives and submits in ``tiers``, and what files that takes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from venturi.plan import Dataset
from venturi.scenario.words import Problem, path_text
from venturi.testbed.network import scaled_bytes
from venturi.workload.design import scale_clashes
from venturi.workload.layout import MAX_DATASET_FILES
from venturi.workload.partners import Partners, partner_weights
from venturi.workload.sites import Exchange, Machine, data_set, machines_of

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.tiers import Tiers

__all__ = ["Layout", "lay_out"]


@dataclass(frozen=True)
class Layout:
    """What the plan is made from.

    Attributes
    ----------
    events
        Host → events that it produces.
    senders, submitters
        Machines of tier 2 and tier 3.
    receivers, centres
        By model and host: who may get a file, and who may get a job, with their weights.
    datasets
        ``events-HOST``, ``input-HOST`` and ``result-HOST``.
    """

    machines: tuple[Machine, ...]
    tiers: Mapping[str, int]
    exchange: Exchange
    events: Mapping[str, int]
    senders: tuple[Machine, ...]
    submitters: tuple[Machine, ...]
    receivers: Mapping[tuple[str, str], Partners]
    centres: Mapping[tuple[str, str], Partners]
    datasets: Mapping[str, Dataset] = field(default_factory=dict)

    def to_send(self, site: str | None = None) -> int:
        """Return the files that machines of tier 2 send, of one site or in all."""
        return sum(self.events[own.host] for own in self.senders if site in (None, own.site))


def lay_out(scenario: Scenario, tiers: Tiers, parts: ResolvedTestbed, problems: list[Problem]) -> Layout | None:
    """Return who does what, or ``None`` with what is wrong appended to ``problems``."""
    before = len(problems)
    sizes = (tiers.event_size, tiers.jobs.upload, tiers.jobs.download)
    clash = scale_clashes({size: scaled_bytes(size, scenario.scale) for size in sizes})
    if clash:
        problems.append(("scale", clash))
    machines = machines_of(scenario, tiers.site, parts, problems)
    exchange = Exchange(scenario, tiers.mover, tiers.options, tiers.timeout, parts, problems)
    _check_tiers(tiers, problems)
    if len(problems) > before:
        return None
    level = {name: site.tier for name, site in tiers.site.items()}
    events = _events(tiers, machines, problems)
    senders = tuple(own for own in machines if level[own.site] == 2)
    submitters = tuple(own for own in machines if level[own.site] == 3)
    receivers, centres = _partners(tiers, machines, senders, submitters)
    layout = Layout(machines, level, exchange, events, senders, submitters, receivers, centres)
    for (_, host), able in (*receivers.items(), *centres.items()):
        own = next(machine for machine in machines if machine.host == host)
        if not able:
            problems.append(("workload.site", f"expected machines at another site for {host}, found none"))
        exchange.check((own, other) for other in able)
    if len(problems) > before:
        return None
    sets = _datasets(scenario, tiers, layout)
    return Layout(machines, level, exchange, events, senders, submitters, receivers, centres, sets)


def _check_tiers(tiers: Tiers, problems: list[Problem]) -> None:
    there = {site.tier for site in tiers.site.values()}
    problems += [
        ("workload.site", f"expected a site of tier {tier} or more, found none")
        for tier in (1, 2, 3)
        if tier not in there
    ]
    total = sum(site.share for site in tiers.site.values())
    if abs(total - 1) > 1e-9:
        problems.append(("workload.site", f"expected shares that add up to 1, found {total:g}"))
    for name, site in tiers.site.items():
        where = path_text(("workload", "site", name, "share"))
        if site.tier == 3 and site.share:
            problems.append((where, f"expected 0 (a site of tier 3 produces nothing), found {site.share:g}"))
        if site.tier == 2 and not site.share:
            problems.append((where, "expected a share above 0 (a site of tier 2 sends what it produces), found 0"))
        produced = site.share * tiers.events
        if abs(produced - round(produced)) > 1e-6:
            problems.append((where, f"expected whole events, found {site.share:g} of {tiers.events} = {produced:g}"))


def _events(tiers: Tiers, machines: Sequence[Machine], problems: list[Problem]) -> dict[str, int]:
    """Return host → events: those of a site dealt out to its machines, the first ones get what does not divide."""
    found = dict.fromkeys((machine.host for machine in machines), 0)
    for name, site in tiers.site.items():
        here = [machine.host for machine in machines if machine.site == name]
        total = round(site.share * tiers.events)
        for index, host in enumerate(here):
            found[host] = total // len(here) + (index < total % len(here))
    if max(found.values(), default=0) > MAX_DATASET_FILES:
        problems.append(("workload.events", f"expected at most {MAX_DATASET_FILES} of a machine, found more"))
    return found


def _partners(
    tiers: Tiers, machines: Sequence[Machine], senders: Sequence[Machine], submitters: Sequence[Machine]
) -> tuple[dict[tuple[str, str], Partners], dict[tuple[str, str], Partners]]:
    site = tiers.site
    count = {name: sum(1 for machine in machines if machine.site == name) for name in site}
    upper = {own.host: 1.0 for own in machines if site[own.site].tier == 1}
    by_data = {
        own.host: (site[own.site].share if tiers.jobs.to == "data" else 1.0) / count[own.site]
        for own in machines
        if site[own.site].tier < 3
    }
    receivers: dict[tuple[str, str], Partners] = {}
    centres: dict[tuple[str, str], Partners] = {}
    for model, own in itertools.product(tiers.models, (*senders, *submitters)):
        flat = model == "flat"
        anybody = partner_weights(own, machines, tiers.choice, own_site=False) if flat else {}
        if own in senders:
            receivers[model, own.host] = Partners(machines, anybody if flat else upper)
        else:
            centres[model, own.host] = Partners(machines, anybody if flat else by_data)
    return receivers, centres


def _datasets(scenario: Scenario, tiers: Tiers, layout: Layout) -> dict[str, Dataset]:
    found = {}
    asked = {other.host for able in layout.centres.values() for other in able}
    for machine in layout.machines:
        if layout.events[machine.host]:
            events = data_set(scenario, machine.place, tiers.event_size, layout.events[machine.host])
            found[f"events-{machine.host}"] = events
        if machine in layout.submitters:
            found[f"input-{machine.host}"] = data_set(scenario, machine.place, tiers.jobs.upload)
        if machine.host in asked:
            found[f"result-{machine.host}"] = data_set(scenario, machine.place, tiers.jobs.download)
    return found
