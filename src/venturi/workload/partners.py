"""Random selection of transfer partners, weighted by the bandwidth of their sites."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping, Sequence

from venturi.workload.sites import SiteHost
from venturi.workload.streams import draw_unit

__all__ = ["Partners", "compute_partner_weights"]


def compute_partner_weights(
    own: SiteHost, machines: Sequence[SiteHost], choice: str, own_site: bool
) -> dict[str, float]:
    """Return the weight of each possible partner of a host, by host; weights are not normalised.

    Parameters
    ----------
    choice
        ``"machine"``: the weight of a host is the bandwidth of its site. ``"site"``: the bandwidth is divided among the
        possible partners of the site. Report 004 does not define it: erratum 004-E13.
    own_site
        Whether partners can be in the site of the host.
    """
    candidates = [other for other in machines if other.host != own.host and (own_site or other.site != own.site)]
    site_count = {other.site: sum(1 for one in candidates if one.site == other.site) for other in candidates}
    return {o.host: o.weight_bit_per_s / (site_count[o.site] if choice == "site" else 1) for o in candidates}


class Partners:
    """Partners of one host, drawn with probabilities proportional to their weights."""

    def __init__(self, machines: Sequence[SiteHost], weights: Mapping[str, float]) -> None:
        self._candidates = [machine for machine in machines if machine.host in weights]
        self._up_to = list(itertools.accumulate(weights[machine.host] for machine in self._candidates))

    def __bool__(self) -> bool:
        return bool(self._candidates)

    def __iter__(self) -> itertools.chain[SiteHost]:
        return itertools.chain(self._candidates)

    def draw(self, seed: int, *names: str | int) -> SiteHost:
        """Return the partner of the random stream with these names."""
        at = draw_unit(seed, *names) * self._up_to[-1]
        return self._candidates[min(bisect.bisect_right(self._up_to, at), len(self._candidates) - 1)]
