"""Generated table for a testbed like the WLCG: a rate between all pairs of sites, by the product of their link rates.

As with ``of = "capacity"`` in the workload ``inject``, pair (i, j) has the part
:math:`b_i b_j / \\sum_{k \\ne l} b_k b_l` of the total. It is an assumption, not a published traffic matrix.
"""

from __future__ import annotations

from venturi.challenge.table import ChallengeRow, ChallengeTable
from venturi.challenge.testbed import ChallengeTestbed

__all__ = ["generate_table"]


def generate_table(
    testbed: ChallengeTestbed, total_bit_per_s: float, duration_s: float, sizes_bytes: tuple[int, ...]
) -> ChallengeTable:
    """Return a table with a row for each ordered pair of storages of different sites.

    Parameters
    ----------
    testbed
        Testbed with one link for each host, as :func:`venturi.testbed.wlcg.wlcg` generates it.
    total_bit_per_s
        Sum of all rates.
    """
    network = testbed.network
    assert network is not None
    fastest: dict[str, float] = {}
    for link in network.links.values():
        interface = network.interfaces.get(link.origin)
        if interface is not None:
            fastest[interface.host] = max(fastest.get(interface.host, 0.0), link.rate_bit_per_s)
    storages = dict.fromkeys(storage for named in testbed.named.values() for storage in named)
    pairs = [(one, other) for one in storages for other in storages if one.site != other.site]
    weights = [fastest[one.host] * fastest[other.host] for one, other in pairs]
    total = sum(weights)
    rows = tuple(
        ChallengeRow(
            f"pair {one.name} to {other.name}", one.name, other.name, total_bit_per_s * weight / total, 0.0, duration_s, sizes_bytes
        )
        for (one, other), weight in zip(pairs, weights, strict=True)
    )  # fmt: skip
    return ChallengeTable(rows, testbed.source)
