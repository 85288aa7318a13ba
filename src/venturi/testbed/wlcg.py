"""Testbeds like the Worldwide LHC Computing Grid, drawn from a seed: sites in tiers, links, disks, and a backbone.

Sources and assumptions:

- There are one tier 0, 13 tiers 1 and about 160 tiers 2, and tier 0 provides less than 20 % of the total (WLCG, *Tier
  centres*, wlcg-public.web.cern.ch). Other numbers of sites keep these fractions. Here, tier 0 has 20 % of the disk, tier 1
  and tier 2 have 40 % each (assumed). Within a tier, disk sizes are log-normal.
- Links of sites range from 10 Gb/s, which all tiers 1 once had to CERN (home.cern, *The Grid: a system of tiers*), to the
  400 Gb/s of a tier 2 since 2025 (FZU Prague, CHEP 2026, indico.cern.ch/event/1471803). The distribution between is assumed.
  Within a tier, a site with a larger disk has a faster link.
- Round-trip times follow from coordinates. A site is drawn around the hub of its region, and packets pass the hubs. Light in
  fibre takes 5 µs/km, and a fibre is 1.5 times as long as the great circle (assumed).
- A disk provides 1 GB/s for each PB (assumed).

Sites connect to hubs, and hubs to each other, so 200 sites have 40,000 pairs but only some hundred links. Each number comes
from a separately named draw. So the same seed gives the same bytes, and an additional site changes no link of other sites.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

from venturi.errors import ScenarioError
from venturi.workload.streams import draw_unit

__all__ = ["FRACTION_UNITS", "MAX_SITES", "MIN_SITES", "Purpose", "wlcg"]

MIN_SITES, MAX_SITES = 4, 450
"""At least one site of tiers 0 and 1, and two of tier 2. At most the interfaces of one network, with some to spare."""

Purpose = Literal["inject", "peers", "tiers"]

FRACTION_UNITS = 10_000
"""Fractions of ``tiers`` are multiples of 1/10,000, so multiples of 10,000 events give whole numbers at each site."""

_TIER1_OF_ALL = 13 / 174
_DISK_FRACTIONS = {0: 0.2, 1: 0.4, 2: 0.4}
_DISK_PB = 1000.0
_SPREAD = {0: 0.0, 1: 0.5, 2: 0.9}
"""Standard deviation of the logarithm of a site's disk."""

_LINKS_GBPS: dict[int, tuple[tuple[float, int], ...]] = {
    0: ((1.0, 1600),),
    1: ((0.35, 100), (0.75, 200), (0.95, 400), (1.0, 800)),
    2: ((0.25, 10), (0.4, 20), (0.55, 40), (0.88, 100), (0.97, 200), (1.0, 400)),
}
"""Tier → pairs of cumulative fraction of the sites, ordered by disk, and link rate."""

_FIBRE_S_PER_KM = 5e-6
_DETOUR = 1.5
_EARTH_KM = 6371.0
_SERVICE = "xrootd"


@dataclass(frozen=True, slots=True)
class _Hub:
    """Region: coordinates of its hub, fraction of all sites, and standard deviation of their distance from the hub."""

    name: str
    latitude: float
    longitude: float
    fraction: float
    around_km: float


_HUBS = (
    _Hub("eu-west", 46.2, 6.1, 0.28, 500.0),
    _Hub("eu-north", 52.4, 4.9, 0.24, 400.0),
    _Hub("eu-east", 50.1, 14.4, 0.14, 500.0),
    _Hub("na-east", 41.9, -87.6, 0.14, 700.0),
    _Hub("na-west", 37.4, -122.1, 0.05, 500.0),
    _Hub("asia", 35.7, 139.7, 0.07, 1200.0),
    _Hub("asia-south", 1.35, 103.8, 0.05, 1500.0),
    _Hub("south", -23.5, -46.6, 0.03, 800.0),
)
_TRUNKS_GBPS = {
    ("eu-west", "eu-north"): 3200, ("eu-west", "eu-east"): 1600, ("eu-north", "eu-east"): 1600, ("eu-north", "na-east"): 3200,
    ("eu-west", "na-east"): 1600, ("na-east", "na-west"): 1600, ("na-west", "asia"): 400, ("asia", "asia-south"): 200,
    ("eu-west", "asia-south"): 400, ("na-east", "south"): 200,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Site:
    name: str
    tier: int
    hub: _Hub
    disk_pb: float
    link_gbps: int
    delay_s: float


def wlcg(sites: int, seed: int, purpose: Purpose | None = None) -> dict[str, Any]:
    """Return a document with ``testbed`` that a scenario can include.

    Parameters
    ----------
    sites
        Number of sites in all tiers; each is a host with a storage and an XRootD server.
    seed
        Seed of all draws.
    purpose
        Also write ``workload.site`` for a workload of this kind (``"inject"`` needs none). For ``"tiers"``, every second site
        of tier 2 produces, by its disk, in units of 1/:data:`FRACTION_UNITS`; the others submit jobs.

    Raises
    ------
    ScenarioError
        If the number of sites is out of range.

    Examples
    --------
    >>> document = wlcg(20, seed=1)
    >>> sorted(document["testbed"]["host"])[:3], document["testbed"]["link"]["t0"]["rate"]
    (['t0', 't1-01', 't2-001'], '1600 Gb/s')
    """
    if not MIN_SITES <= sites <= MAX_SITES:
        raise ScenarioError(
            [("--sites", f"expected {MIN_SITES} to {MAX_SITES} sites, found {sites}")], "testbed wlcg"
        )
    drawn = list(_draw_sites(sites, seed))
    testbed: dict[str, Any] = {
        "router": {hub.name: {"site": hub.name} for hub in _HUBS},
        "host": {site.name: {"site": site.name} for site in drawn},
        "link": {site.name: _access(site) for site in drawn} | dict(_trunks()),
        "storage": {site.name: _storage(site) for site in drawn},
        "service": {site.name: {"kind": _SERVICE, "host": site.name, "storage": [site.name]} for site in drawn},
    }
    document: dict[str, Any] = {"testbed": testbed}
    if purpose in ("peers", "tiers"):
        document["workload"] = {"site": dict(_parts(drawn, purpose))}
    return document


def _draw_sites(sites: int, seed: int) -> Iterator[_Site]:
    tier1 = max(1, round(sites * _TIER1_OF_ALL))
    for tier, count in ((0, 1), (1, tier1), (2, sites - 1 - tier1)):
        width = {0: 0, 1: 2, 2: 3}[tier]
        names = ["t0"] if tier == 0 else [f"t{tier}-{number:0{width}d}" for number in range(1, count + 1)]
        normal = NormalDist(0.0, 1.0)
        ranks = {name: _open_unit(seed, name, "disk") for name in names}
        weights = {name: math.exp(_SPREAD[tier] * normal.inv_cdf(rank)) for name, rank in ranks.items()}
        total = math.fsum(weights.values())
        for name in names:
            hub = _HUBS[0] if tier == 0 else _draw_hub(draw_unit(seed, "wlcg", name, "region"))
            # Two normal coordinates, so the distance from the hub has a Rayleigh distribution.
            away_km = 10.0 if tier == 0 else hub.around_km * math.sqrt(-2 * math.log(_open_unit(seed, name, "place")))
            yield _Site(
                name, tier, hub, _DISK_PB * _DISK_FRACTIONS[tier] * weights[name] / total, _draw_link(tier, ranks[name]), _delay_s(away_km)
            )  # fmt: skip


def _open_unit(seed: int, *names: str) -> float:
    """Return a number in the open interval (0, 1)."""
    return max(draw_unit(seed, "wlcg", *names), 2.0**-53)


def _draw_hub(drawn: float) -> _Hub:
    below = 0.0
    for hub in _HUBS:
        below += hub.fraction
        if drawn < below:
            return hub
    return _HUBS[-1]


def _draw_link(tier: int, rank: float) -> int:
    return next(rate for up_to, rate in _LINKS_GBPS[tier] if rank <= up_to)


def _delay_s(distance_km: float) -> float:
    return distance_km * _DETOUR * _FIBRE_S_PER_KM


def _great_circle_km(one: _Hub, other: _Hub) -> float:
    """Return the distance between two hubs with the haversine formula."""
    a, b = math.radians(one.latitude), math.radians(other.latitude)
    turn = math.radians(other.longitude - one.longitude)
    half = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(turn / 2) ** 2
    return 2 * _EARTH_KM * math.asin(math.sqrt(half))


def _micros(delay_s: float) -> str:
    # Whole microseconds hide the much smaller differences between mathematical libraries.
    return f"{round(delay_s * 1e6)} us"


def _access(site: _Site) -> dict[str, Any]:
    return {
        "between": [site.name, site.hub.name],
        "rate": f"{site.link_gbps} Gb/s",
        "delay": _micros(site.delay_s),
        "mtu": 9000,
    }


def _trunks() -> Iterator[tuple[str, dict[str, Any]]]:
    hubs = {hub.name: hub for hub in _HUBS}
    for (one, other), rate in _TRUNKS_GBPS.items():
        delay = _micros(_delay_s(_great_circle_km(hubs[one], hubs[other])))
        yield f"{one}-{other}", {"between": [one, other], "rate": f"{rate} Gb/s", "delay": delay}


def _storage(site: _Site) -> dict[str, Any]:
    terabytes = max(1, round(site.disk_pb * 1000))
    rate = f"{max(1, round(site.disk_pb * 8))} Gb/s"
    return {
        "host": site.name, "path": "data", "kind": "disk", "size": f"{terabytes} TB", "read_rate": rate, "write_rate": rate,
    }  # fmt: skip


def _parts(sites: list[_Site], purpose: Purpose) -> Iterator[tuple[str, dict[str, Any]]]:
    tier2 = [site for site in sites if site.tier == 2]
    producing = {site.name: site.disk_pb for site in tier2[::2]}
    fractions = _production_fractions(producing)
    for site in sites:
        part: dict[str, Any] = {"link": site.name}
        if purpose == "tiers":
            part["tier"] = 1 if site.tier < 2 else 2 if site.name in fractions else 3
            if site.name in fractions:
                part["share"] = fractions[site.name] / FRACTION_UNITS
        yield site.name, part


def _production_fractions(weights: dict[str, float]) -> dict[str, int]:
    """Return integers of at least 1 with the sum :data:`FRACTION_UNITS`, by weight; the largest remainders round up."""
    total = math.fsum(weights.values())
    exact = {name: 1 + (FRACTION_UNITS - len(weights)) * weight / total for name, weight in weights.items()}
    found = {name: int(fraction) for name, fraction in exact.items()}
    remainder = FRACTION_UNITS - sum(found.values())
    for name in sorted(exact, key=lambda name: (found[name] - exact[name], name))[:remainder]:
        found[name] += 1
    return found
