"""Rule of thumb: as many connections as windows fit into the bandwidth-delay product.

Source: RFC 7323, section 1.1, and https://fasterdata.es.net/network-tuning/tcp-window-size/ . The number is the product
divided by the largest window, rounded up. If the mover has no streams, the socket buffer is the product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from venturi.tuning.controller import StopTuning
from venturi.tuning.path import TunePath
from venturi.tuning.probe import TuneProbe
from venturi.tuning.settings import TunedSettings

__all__ = ["BdpRule"]


@dataclass(frozen=True, slots=True)
class BdpRule:
    """Streams = bandwidth-delay product / window; one probe."""

    name: str = "bdp"
    summary: str = "Streams = bandwidth-delay product / window, rounded up; one probe."
    source: str = "RFC 7323, section 1.1; fasterdata.es.net, TCP window size"

    def first(self, properties: TunePath) -> TunedSettings:
        """Return the settings of the rule; 4 streams if the product is unknown."""
        bdp, window = properties.bdp_bytes, properties.window_bytes
        number = 4 if bdp is None or not window else math.ceil(bdp / window)
        if properties.most("streams") > 1:
            return properties.limit(TunedSettings(concurrency=1, streams=number))
        if bdp is not None and "window_bytes" in properties.largest:
            return properties.limit(TunedSettings(concurrency=1, window_bytes=math.ceil(bdp)))
        return properties.limit(TunedSettings(concurrency=number))

    def next(self, properties: TunePath, history: Sequence[TuneProbe]) -> TunedSettings | StopTuning:
        """Stop, because the rule has no feedback."""
        return StopTuning("the rule has no feedback", history[-1].settings)
