"""Resolution of the workload ``tiers``: roles of the hosts, and datasets."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from venturi.messages import Problem, path_text
from venturi.plan import Dataset
from venturi.testbed.network import scaled_bytes
from venturi.workload.design import scale_clashes
from venturi.workload.layout import MAX_DATASET_FILES
from venturi.workload.partners import Partners, compute_partner_weights
from venturi.workload.sites import Exchange, SiteHost, build_dataset, list_site_hosts

if TYPE_CHECKING:
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed
    from venturi.workload.tiers import Tiers

__all__ = ["TiersLayout", "resolve_tiers"]


@dataclass(frozen=True)
class TiersLayout:
    """Resolved workload.

    Attributes
    ----------
    events
        Number of events by host.
    senders, submitters
        Hosts of tier 2 and tier 3.
    receivers, centres
        Possible receivers of files and of jobs, by model and host, with weights.
    datasets
        ``events-HOST``, ``input-HOST`` and ``result-HOST``.
    """

    machines: tuple[SiteHost, ...]
    tiers: Mapping[str, int]
    exchange: Exchange
    events: Mapping[str, int]
    senders: tuple[SiteHost, ...]
    submitters: tuple[SiteHost, ...]
    receivers: Mapping[tuple[str, str], Partners]
    centres: Mapping[tuple[str, str], Partners]
    datasets: Mapping[str, Dataset] = field(default_factory=dict)

    def to_send(self, site: str | None = None) -> int:
        """Return the number of files that hosts of tier 2 send, for one site or in total."""
        return sum(self.events[own.host] for own in self.senders if site in (None, own.site))


def resolve_tiers(
    scenario: Scenario, tiers: Tiers, parts: ResolvedTestbed, problems: list[Problem]
) -> TiersLayout | None:
    """Return the resolved workload, or ``None`` after errors, which are appended to ``problems``."""
    before = len(problems)
    sizes = (tiers.event_size, tiers.jobs.upload, tiers.jobs.download)
    clash = scale_clashes({size: scaled_bytes(size, scenario.scale) for size in sizes})
    if clash:
        problems.append(("scale", clash))
    machines = list_site_hosts(scenario, tiers.site, parts, problems)
    exchange = Exchange(scenario, tiers.mover, tiers.options, tiers.timeout, parts, problems)
    _check_tiers(tiers, problems)
    if len(problems) > before:
        return None
    level = {name: site.tier for name, site in tiers.site.items()}
    events = _events(tiers, machines, problems)
    senders = tuple(own for own in machines if level[own.site] == 2)
    submitters = tuple(own for own in machines if level[own.site] == 3)
    receivers, centres = _partners(tiers, machines, senders, submitters)
    layout = TiersLayout(machines, level, exchange, events, senders, submitters, receivers, centres)
    for (_, host), candidates in (*receivers.items(), *centres.items()):
        own = next(machine for machine in machines if machine.host == host)
        if not candidates:
            problems.append(("workload.site", f"expected hosts at another site for {host}, found none; add a site"))
        exchange.check((own, other) for other in candidates)
    if len(problems) > before:
        return None
    sets = _datasets(scenario, tiers, layout)
    return TiersLayout(machines, level, exchange, events, senders, submitters, receivers, centres, sets)


def _check_tiers(tiers: Tiers, problems: list[Problem]) -> None:
    tiers_present = {site.tier for site in tiers.site.values()}
    problems += [
        ("workload.site", f"expected one or more sites of tier {tier}, found none; set tier = {tier} for a site")
        for tier in (1, 2, 3)
        if tier not in tiers_present
    ]
    total = sum(site.share for site in tiers.site.values())
    if abs(total - 1) > 1e-9:
        problems.append(("workload.site", f"expected shares with sum 1, found {total:g}; change the shares"))
    for name, site in tiers.site.items():
        where = path_text(("workload", "site", name, "share"))
        if site.tier == 3 and site.share:
            problems.append(
                (where, f"expected 0 (sites of tier 3 produce no events), found {site.share:g}; remove share")
            )
        if site.tier == 2 and not site.share:
            problems.append(
                (where, "expected a share above 0 (sites of tier 2 send their events), found 0; add share")
            )
        produced = site.share * tiers.events
        if abs(produced - round(produced)) > 1e-6:
            problems.append(
                (
                    where,
                    f"expected a whole number of events, found {site.share:g} × {tiers.events} = {produced:g}; change share or events",
                )
            )


def _events(tiers: Tiers, machines: Sequence[SiteHost], problems: list[Problem]) -> dict[str, int]:
    """Return the number of events by host: the events of a site, distributed evenly; the first hosts get the remainder."""
    found = dict.fromkeys((machine.host for machine in machines), 0)
    for name, site in tiers.site.items():
        site_hosts = [machine.host for machine in machines if machine.site == name]
        total = round(site.share * tiers.events)
        for index, host in enumerate(site_hosts):
            found[host] = total // len(site_hosts) + (index < total % len(site_hosts))
    if max(found.values(), default=0) > MAX_DATASET_FILES:
        problems.append(
            ("workload.events", f"expected at most {MAX_DATASET_FILES} events of a host, found more; reduce events")
        )
    return found


def _partners(
    tiers: Tiers, machines: Sequence[SiteHost], senders: Sequence[SiteHost], submitters: Sequence[SiteHost]
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
        flat_weights = compute_partner_weights(own, machines, tiers.choice, own_site=False) if flat else {}
        if own in senders:
            receivers[model, own.host] = Partners(machines, flat_weights if flat else upper)
        else:
            centres[model, own.host] = Partners(machines, flat_weights if flat else by_data)
    return receivers, centres


def _datasets(scenario: Scenario, tiers: Tiers, layout: TiersLayout) -> dict[str, Dataset]:
    found = {}
    request = {other.host for candidates in layout.centres.values() for other in candidates}
    for machine in layout.machines:
        if layout.events[machine.host]:
            events = build_dataset(scenario, machine.storage, tiers.event_size, layout.events[machine.host])
            found[f"events-{machine.host}"] = events
        if machine in layout.submitters:
            found[f"input-{machine.host}"] = build_dataset(scenario, machine.storage, tiers.jobs.upload)
        if machine.host in request:
            found[f"result-{machine.host}"] = build_dataset(scenario, machine.storage, tiers.jobs.download)
    return found
