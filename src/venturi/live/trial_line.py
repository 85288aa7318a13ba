"""Fast reader of a trial line of the journal: only the keys that a live view needs.

The transfers are the last key of a trial (:meth:`venturi.run.RunWriter.trial`), and about nine tenths of its line. Parsing
them as JSON would take most of the CPU time of a view. So the values of successful transfers are cut out of the bytes:
inside a JSON string, quotes are escaped, so a quoted name is always a key. Each line with an unexpected form is parsed
as JSON instead, as are all lines with failures, whose messages are needed.
"""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["parse_record"]

_START = b'{"trial":{"trial":"'
_TRANSFERS = b',"transfers":['
_HEAD = re.compile(
    rb'\{"trial":\{"trial":"([^"\\]+)","actor":"[^"\\]*","start_s":([\d.e+-]+),"end_s":([\d.e+-]+),"outcome":"ok",'
    rb'"cache":(?:null|\{[^{}]*\}),"findings":\[\],"position":\d+,"session":(\d+),"host":"([^"\\]+)","point":\d+,'
    rb'"repetition":\d+,"block":\d+,"factors":\{[^{}]*\}\Z'
)
_OUTCOME, _MOVER = b'"outcome":"', b'"mover":"'
_VALUES = re.compile(
    rb'"requested_bytes":(?:null|\d+),"received_bytes":(\d+),[^{}]{0,200}?'
    rb'"start_s":([\d.e+-]+),"end_s":([\d.e+-]+),"duration_s":[\d.e+-]+,"outcome":"ok"'
)
_NAME = re.compile(rb'"mover":"([^"\\]+)"\}')


def parse_record(line: bytes) -> dict[str, Any]:
    """Return a line of the journal as an object; of a successful trial and its transfers, only some keys.

    A line that is not a JSON object gives an empty dict.

    Examples
    --------
    >>> parse_record(b'{"finding":{"code":"x"}}')
    {'finding': {'code': 'x'}}
    """
    if line.startswith(_START) and (cut := line.find(_TRANSFERS)) > 0:
        transfers = _transfers(line, cut + len(_TRANSFERS))
        if transfers is not None:
            head = _head(line[:cut])
            if head.get("outcome") == "ok":
                return {"trial": {**head, "transfers": transfers}}
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _head(text: bytes) -> dict[str, Any]:
    """Return the keys of a trial before its transfers. From a usual line, return only the keys of a view."""
    if (values := _HEAD.match(text)) is not None:
        try:
            times = {"start_s": float(values[2]), "end_s": float(values[3])}
        except ValueError:
            return {}
        return {"trial": values[1].decode(), **times, "outcome": "ok", "session": int(values[4]), "host": values[5].decode()}  # fmt: skip
    try:
        head = json.loads(text.decode() + "}}")["trial"]
    except (ValueError, KeyError, TypeError):
        return {}
    return head if isinstance(head, dict) else {}


def _transfers(line: bytes, start: int) -> list[dict[str, Any]] | None:
    """Return the successful transfers from ``start`` on; None if the line has another form, or a failure."""
    found: list[dict[str, Any]] = []
    position = start
    while (values := _VALUES.search(line, position)) is not None:
        name = _NAME.match(line, line.find(_MOVER, values.end()))
        if name is None:
            return None
        try:
            start_s, end_s = float(values[2]), float(values[3])
        except ValueError:
            return None
        found.append({"mover": name[1].decode(), "received_bytes": int(values[1]), "start_s": start_s, "end_s": end_s, "outcome": "ok"})  # fmt: skip
        position = name.end()
    # A transfer that was not found has an outcome, too.
    return found if found and line.count(_OUTCOME, start) == len(found) and line.endswith(b"}]}}") else None
