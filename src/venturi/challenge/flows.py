r"""Flows of a challenge: each row as rates between pairs of storages, over the links and storages that it uses.

A row between sites with several storages has one flow for each pair, with an equal part of the rate, as in the workload
``inject``. A flow uses its links with headers: one bit of file data is

.. math:: a = \frac{MTU + overhead}{MTU - 52}

bits of a link, where 52 bytes are the headers of IPv4 and TCP with timestamps (RFC 791, 9293, 7323). The simulator and
``advise`` use the same ratio. It is 1 for storages.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from venturi.challenge.table import ChallengeRow, ChallengeTable
from venturi.challenge.testbed import ChallengeStorage, ChallengeTestbed
from venturi.errors import ScenarioError
from venturi.messages import Problem, quote_value, suggestion
from venturi.plan.network import link_bytes_per_byte
from venturi.units import BITS_PER_BYTE

__all__ = ["ChallengeFlows", "ChallengeResource", "ResourceKind", "resolve_challenge"]

ResourceKind: TypeAlias = Literal["link", "read", "write"]

MAX_NAMED = 8
"""Maximum number of names that an error message lists."""


@dataclass(frozen=True, slots=True)
class ChallengeResource:
    """Link in one direction, or the reads or writes of a storage.

    Attributes
    ----------
    name
        Name of the directed link or of the storage.
    site
        Site of the host at an end of the link, or of the storage; ``None`` for links between routers.
    capacity_bit_per_s
        Rate at the start of the challenge; of a link with headers. It is 0 while the link is down.
    """

    kind: ResourceKind
    name: str
    site: str | None
    capacity_bit_per_s: float

    @property
    def title(self) -> str:
        """Name in sentences.

        Examples
        --------
        >>> ChallengeResource("link", "a>core", "Alpha", 1e9).title, ChallengeResource("read", "a", "Alpha", 1e9).title
        ('link a>core', 'storage a (reads)')
        """
        return f"link {self.name}" if self.kind == "link" else f"storage {self.name} ({self.kind}s)"


@dataclass(frozen=True)
class ChallengeFlows:
    """Flows between storages, and the resources that they use.

    Attributes
    ----------
    rows
        Rows of the table.
    pairs
        Source and destination storage of each flow.
    row
        Number of the row of each flow.
    demand_bit_per_s
        Required rate of each flow, as file data.
    usage
        Matrix of flows and resources: bits of a resource per bit of file data.
    resources
        Resources that a flow uses or that have a known capacity, in the order of links and storages.
    changes
        Time in s, number of the resource and its new capacity in bit/s, in the order of time.
    """

    rows: tuple[ChallengeRow, ...]
    pairs: tuple[tuple[ChallengeStorage, ChallengeStorage], ...]
    row: npt.NDArray[np.int64]
    demand_bit_per_s: npt.NDArray[np.float64]
    usage: csr_array
    resources: tuple[ChallengeResource, ...]
    changes: tuple[tuple[float, int, float], ...]


def resolve_challenge(table: ChallengeTable, testbed: ChallengeTestbed) -> ChallengeFlows:
    """Return the flows of a table in a testbed.

    Raises
    ------
    ScenarioError
        For unknown names, pairs within a site, pairs without a route and duplicated rows, with the lines of the table.
    """
    problems: list[Problem] = []
    resources = _Resources(testbed)
    pairs: list[tuple[ChallengeStorage, ChallengeStorage]] = []
    numbers: list[int] = []
    demand: list[float] = []
    entries = _Entries([], [], [])
    seen: dict[tuple[object, object], list[ChallengeRow]] = defaultdict(list)
    for number, row in enumerate(table.rows):
        found = _storage_pairs(row, testbed, problems)
        if found:
            _check_duplicate(row, seen[tuple(one for one, _ in found), tuple(other for _, other in found)], problems)
        for pair in found:
            used = resources.of(row, *pair, problems)
            for resource, ratio in used:
                entries.add(len(pairs), resource, ratio)
            pairs.append(pair)
            numbers.append(number)
            demand.append(row.rate_bit_per_s / len(found))
    if not table.has_end and testbed.network is not None and testbed.network.changes:
        what = 'expected a time such as "2 h" (because the testbed changes links), found nothing; add it'
        problems.append((f"{table.rows[0].where}: end", what))
    if problems:
        raise ScenarioError(problems, table.source)
    known = tuple(resources.known.values())
    return ChallengeFlows(
        table.rows,
        tuple(pairs),
        np.array(numbers, dtype=np.int64),
        np.array(demand),
        entries.matrix(len(pairs), len(known)),
        known,
        tuple(resources.changes()),
    )


@dataclass(frozen=True, slots=True)
class _Entries:
    """Entries of a sparse matrix."""

    flows: list[int]
    resources: list[int]
    ratios: list[float]

    def add(self, flow: int, resource: int, ratio: float) -> None:
        self.flows.append(flow)
        self.resources.append(resource)
        self.ratios.append(ratio)

    def matrix(self, flows: int, resources: int) -> csr_array:
        # A route that passes a link twice has the sum of both entries.
        return csr_array((self.ratios, (self.flows, self.resources)), shape=(flows, resources), dtype=np.float64)


class _Resources:
    """Resources with known capacities, numbered when a flow first uses them."""

    def __init__(self, testbed: ChallengeTestbed) -> None:
        self._testbed = testbed
        self._numbers: dict[tuple[ResourceKind, str], int] = {}
        self._routes: dict[tuple[str, str], list[tuple[int, float]] | None] = {}
        self.known: dict[tuple[ResourceKind, str], ChallengeResource] = {}

    def of(
        self, row: ChallengeRow, source: ChallengeStorage, destination: ChallengeStorage, problems: list[Problem]
    ) -> list[tuple[int, float]]:
        """Return number and bits per bit of file data of each resource of a flow."""
        key = (source.name, destination.name)
        if key not in self._routes:
            self._routes[key] = self._find(source, destination)
        found = self._routes[key]
        if found is None:
            problems.append((f"{row.where}: to", _no_route(source, destination)))
        return found or []

    def changes(self) -> Iterator[tuple[float, int, float]]:
        """Yield the changes of capacities of used links; a link that is down has the capacity 0."""
        network = self._testbed.network
        for change in network.changes if network else ():
            number = self._numbers.get(("link", change.link))
            if number is None or network is None or not {"rate_bit_per_s", "up"} & set(change.set):
                continue
            state = {"rate_bit_per_s": network.links[change.link].rate_bit_per_s, "up": network.links[change.link].up}
            for other in network.changes:
                if other.link == change.link and other.time_s <= change.time_s:
                    state |= {key: other.set[key] for key in state if key in other.set}  # type: ignore[misc]
            yield change.time_s, number, float(state["rate_bit_per_s"]) if state["up"] else 0.0

    def _find(self, source: ChallengeStorage, destination: ChallengeStorage) -> list[tuple[int, float]] | None:
        links = self._testbed.links(source, destination)
        if links is None:
            return None
        found = []
        read, write = self._storage(source, "read"), self._storage(destination, "write")
        if links:
            network, mtu = self._testbed.network, self._testbed.ends_mtu(links)
            assert network is not None
            found = [
                (self._link(name), link_bytes_per_byte(mtu, network.links[name].overhead_bytes)) for name in links
            ]
        return [*found, *((number, 1.0) for number in (read, write) if number is not None)]

    def _link(self, name: str) -> int:
        network = self._testbed.network
        assert network is not None
        link = network.links[name]
        ends = [network.interfaces[node].host for node in (link.origin, link.to) if node in network.interfaces]
        site = self._testbed.site_of_host(ends[0]) if ends else None
        return self._number(ChallengeResource("link", name, site, link.rate_bit_per_s if link.up else 0.0))

    def _storage(self, storage: ChallengeStorage, kind: Literal["read", "write"]) -> int | None:
        """Return the number of the reads or writes of a storage; ``None`` if its rate is not known."""
        spec = self._testbed.parts.storages[storage.name].spec
        rate = None if spec is None else spec.read_bytes_per_s if kind == "read" else spec.write_bytes_per_s
        if rate is None:
            return None
        return self._number(ChallengeResource(kind, storage.name, storage.site, rate * BITS_PER_BYTE))

    def _number(self, resource: ChallengeResource) -> int:
        key = (resource.kind, resource.name)
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers)
            self.known[key] = resource
        return self._numbers[key]


def _storage_pairs(
    row: ChallengeRow, testbed: ChallengeTestbed, problems: list[Problem]
) -> list[tuple[ChallengeStorage, ChallengeStorage]]:
    """Return the pairs of storages of different sites that a row names."""
    ends = []
    for column, name in (("from", row.source), ("to", row.destination)):
        ends.append(testbed.named.get(name, ()))
        if not ends[-1]:
            problems.append((f"{row.where}: {column}", _unknown(name, testbed)))
    pairs = [(one, other) for one in ends[0] for other in ends[1] if one.site != other.site]
    if all(ends) and not pairs:
        what = f"expected another site than {ends[0][0].site}, found {quote_value(row.destination)}"
        problems.append((f"{row.where}: to", f"{what}; name another site"))
    return pairs


def _unknown(name: str, testbed: ChallengeTestbed) -> str:
    if name in testbed.table.host:
        return f"expected a host with a storage, found {quote_value(name)} without one; add a table testbed.storage"
    names = list(testbed.named)
    some = ", ".join(names[:MAX_NAMED]) + (f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else "")
    hint = suggestion(name, names) or f"; use a name of {testbed.source}"
    return (
        f"expected one of the sites, hosts and storages: {some or '(none defined)'}, found {quote_value(name)}{hint}"
    )


def _no_route(source: ChallengeStorage, destination: ChallengeStorage) -> str:
    for storage in (source, destination):
        if not storage.has_route:
            return (
                f"expected a storage of a host (the links of existing servers are unknown), found {storage.name} with url;"
                " replace url by host and path"
            )
    return (
        f"expected a route from {source.host} to {destination.host}, found none;"
        " add a table testbed.link that connects them"
    )


def _check_duplicate(row: ChallengeRow, earlier: list[ChallengeRow], problems: list[Problem]) -> None:
    """Reject a row for the same storages as an earlier row, if their periods overlap."""
    for other in earlier:
        if row.start_s < other.end_s and other.start_s < row.end_s:
            overlap_s = min(row.end_s, other.end_s) - max(row.start_s, other.start_s)
            overlap = f"{overlap_s:g} s" if math.isfinite(overlap_s) else "all the time"
            problems.append(
                (
                    row.where,
                    f"expected one row for {row.source} to {row.destination} at a time, found {other.where} at the"
                    f" same time ({overlap}); merge the rows, or change start and end",
                )
            )
            return
    earlier.append(row)
