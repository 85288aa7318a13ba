"""Who is chosen how often: shares of partners by the bandwidth of their sites, and the draw that has these shares."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping, Sequence

from venturi.workload.sites import Machine
from venturi.workload.streams import draw_unit

__all__ = ["Partners", "partner_weights"]


def partner_weights(own: Machine, machines: Sequence[Machine], choice: str, own_site: bool) -> dict[str, float]:
    """Return host → weight of all partners that a machine may choose; the weights have no common sum.

    Parameters
    ----------
    choice
        ``"machine"``: a partner weighs the bandwidth of its site. ``"site"``: the site does, shared by those of its machines
        that may be chosen (report 004 leaves open which: erratum 004-E13).
    own_site
        Whether others of the machine's own site may be chosen.
    """
    able = [other for other in machines if other.host != own.host and (own_site or other.site != own.site)]
    beside = {other.site: sum(1 for one in able if one.site == other.site) for other in able}
    return {o.host: o.weight_bit_per_s / (beside[o.site] if choice == "site" else 1) for o in able}


class Partners:
    """The partners of one machine, drawn with the shares of their weights."""

    def __init__(self, machines: Sequence[Machine], weights: Mapping[str, float]) -> None:
        self._able = [machine for machine in machines if machine.host in weights]
        self._up_to = list(itertools.accumulate(weights[machine.host] for machine in self._able))

    def __bool__(self) -> bool:
        return bool(self._able)

    def __iter__(self) -> itertools.chain[Machine]:
        return itertools.chain(self._able)

    def draw(self, seed: int, *names: str | int) -> Machine:
        """Return the partner that belongs to these names."""
        at = draw_unit(seed, *names) * self._up_to[-1]
        return self._able[min(bisect.bisect_right(self._up_to, at), len(self._able) - 1)]
