"""Measurement of a path between two directories on existing hosts or servers; it finds the part that limits a copy.

Rounds measure five parts in turn: the network alone, reading at the source, writing at the destination, the mover from
memory to memory, and the copy itself. One process, ``venturi-engine shell``, runs on each host and starts other
sub-commands of the engine, such as ``stream`` and ``disk``. A server with a URL is used only through its protocol
(``venturi-engine file``), so its parts are reading, writing and copy. The measurement installs and overwrites nothing,
and it removes only its own files.

Out of scope: progress and tables on a terminal (:mod:`venturi.cli.measure`). Read :func:`measure` first, then
:class:`PathResult`.
"""

from venturi.measure.endpoint import Endpoint, parse_endpoint
from venturi.measure.measure import MeasureOptions, MeasureProgress, measure
from venturi.measure.result import Measurement, PartResult, PartSample, PathResult
from venturi.measure.save import save

__all__ = [
    "Endpoint",
    "MeasureOptions",
    "MeasureProgress",
    "Measurement",
    "PartResult",
    "PartSample",
    "PathResult",
    "measure",
    "parse_endpoint",
    "save",
]
