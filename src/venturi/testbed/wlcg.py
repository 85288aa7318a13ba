"""Testbeds like the Worldwide LHC Computing Grid, drawn from a seed: sites in tiers, their links, disks, and a backbone between regions.

What is known and what is assumed:

- One tier 0, 13 tiers 1 and about 160 tiers 2; tier 0 gives less than 20 % of the whole (WLCG, *Tier centres*,
  wlcg-public.web.cern.ch). Of other numbers of sites the shares are kept. Tier 0 is given 20 % of the disk here, tier 1 and tier 2
  40 % each (assumed); within a tier it is drawn, log-normal.
- Links of sites: from 10 Gb/s, as all tiers 1 once had to CERN (home.cern, *The Grid: a system of tiers*), to the 400 Gb/s that a
  tier 2 has had since 2025 (FZU Prague, CHEP 2026, indico.cern.ch/event/1471803); which share has which is assumed. The larger disk of a tier has
  the faster link.
- Round-trip times follow from coordinates: a site is drawn around the hub of its region, packets pass the hubs, light in fibre
  takes 5 µs/km, and fibre is half as long again as the great circle (assumed).
- A disk gives 1 GB/s for each PB (assumed).

All sites hang on hubs, and hubs on each other: 200 sites are 40,000 pairs, and some hundred links. Every number comes from a draw of its own
name, so that the same seed gives the same bytes, and one site more changes no link of the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

from venturi.errors import ScenarioError
from venturi.workload.streams import draw_unit

__all__ = ["MAX_SITES", "MIN_SITES", "SHARE_UNITS", "Purpose", "wlcg"]

MIN_SITES, MAX_SITES = 4, 450
"""A site of each tier at least, and two of tier 2; at most what a network has interfaces for, and some to spare."""

Purpose = Literal["inject", "peers", "tiers"]

SHARE_UNITS = 10_000
"""Shares of ``tiers`` are multiples of 1 in so many: events in multiples of that are whole at each site."""

_TIER1_OF_ALL = 13 / 174
_SHARES = {0: 0.2, 1: 0.4, 2: 0.4}
_DISK_PB = 1000.0
_SPREAD = {0: 0.0, 1: 0.5, 2: 0.9}
"""Standard deviation of the logarithm of a site's disk."""

_LINKS_GBPS: dict[int, tuple[tuple[float, int], ...]] = {
    0: ((1.0, 1600),),
    1: ((0.35, 100), (0.75, 200), (0.95, 400), (1.0, 800)),
    2: ((0.25, 10), (0.4, 20), (0.55, 40), (0.88, 100), (0.97, 200), (1.0, 400)),
}
"""Tier → up to which part of the sites, by disk, which link."""

_FIBRE_S_PER_KM = 5e-6
_DETOUR = 1.5
_EARTH_KM = 6371.0
_SERVICE = "xrootd"


@dataclass(frozen=True, slots=True)
class _Hub:
    """A region: where its exchange is, which part of the sites it has, and how far from it they are (standard deviation)."""

    name: str
    latitude: float
    longitude: float
    share: float
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
        How many, of all tiers; each is a host with a storage and an XRootD server.
    seed
        Of all draws.
    purpose
        Also write ``workload.site`` for a workload of this kind (``"inject"`` needs none), with the shares of production for
        ``"tiers"``: every second site of tier 2 produces, by its disk, in units of 1/:data:`SHARE_UNITS`, the others submit jobs.

    Raises
    ------
    ScenarioError
        If there cannot be so many sites.

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
        whole = math.fsum(weights.values())
        for name in names:
            hub = _HUBS[0] if tier == 0 else _hub_of(draw_unit(seed, "wlcg", name, "region"))
            # Two coordinates, normal each: the distance from the hub is Rayleigh.
            away_km = 10.0 if tier == 0 else hub.around_km * math.sqrt(-2 * math.log(_open_unit(seed, name, "place")))
            yield _Site(
                name, tier, hub, _DISK_PB * _SHARES[tier] * weights[name] / whole, _link_of(tier, ranks[name]), _delay_s(away_km)
            )  # fmt: skip


def _open_unit(seed: int, *names: str) -> float:
    """Return a number within (0, 1), ends excluded."""
    return max(draw_unit(seed, "wlcg", *names), 2.0**-53)


def _hub_of(drawn: float) -> _Hub:
    below = 0.0
    for hub in _HUBS:
        below += hub.share
        if drawn < below:
            return hub
    return _HUBS[-1]


def _link_of(tier: int, rank: float) -> int:
    return next(rate for up_to, rate in _LINKS_GBPS[tier] if rank <= up_to)


def _delay_s(distance_km: float) -> float:
    return distance_km * _DETOUR * _FIBRE_S_PER_KM


def _great_circle_km(one: _Hub, other: _Hub) -> float:
    """Return the distance of two hubs: haversine formula."""
    a, b = math.radians(one.latitude), math.radians(other.latitude)
    turn = math.radians(other.longitude - one.longitude)
    half = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(turn / 2) ** 2
    return 2 * _EARTH_KM * math.asin(math.sqrt(half))


def _micros(delay_s: float) -> str:
    # Whole microseconds: what differs between mathematical libraries is far below.
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
    shares = _shares(producing)
    for site in sites:
        part: dict[str, Any] = {"link": site.name}
        if purpose == "tiers":
            part["tier"] = 1 if site.tier < 2 else 2 if site.name in shares else 3
            if site.name in shares:
                part["share"] = shares[site.name] / SHARE_UNITS
        yield site.name, part


def _shares(weights: dict[str, float]) -> dict[str, int]:
    """Return whole numbers of at least 1 that add up to :data:`SHARE_UNITS`, by weight: the largest remainders are rounded up."""
    whole = math.fsum(weights.values())
    exact = {name: 1 + (SHARE_UNITS - len(weights)) * weight / whole for name, weight in weights.items()}
    found = {name: int(share) for name, share in exact.items()}
    left = SHARE_UNITS - sum(found.values())
    for name in sorted(exact, key=lambda name: (found[name] - exact[name], name))[:left]:
        found[name] += 1
    return found
