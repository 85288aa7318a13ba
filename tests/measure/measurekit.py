"""Samples for tests of the evaluation: five parts with planted rates."""

import dataclasses

import numpy as np

from venturi.measure.evaluate import PathDescription
from venturi.measure.load import HostLoad
from venturi.measure.result import PARTS, PartSample

DESCRIPTION = PathDescription("a:/source", "b:/destination", "a", "b", connections=4)


def stream_detail(**changes):
    """Return the output of `stream run` with four connections on an idle path."""
    connection = {
        "min_rtt_s": 0.01, "busy_s": 2.0, "receive_window_limited_s": 0.0, "send_buffer_limited_s": 0.0,
        "sent_bytes": 10**8, "retransmitted_bytes": 0, "congestion_control": "cubic",
    }  # fmt: skip
    end = {"cpu_s": 0.1, "cpu_wait_s": 0.0}
    connection.update({key: value for key, value in changes.items() if key in connection})
    end.update({key: value for key, value in changes.items() if key in end})
    sender = {**end, "connections": [dict(connection) for _ in range(4)]}
    return {"connections": 4, "omitted_s": 0.0, "sender": sender, "receiver": dict(end)}


def sample(part, rate_bytes_per_s, *, round=1, load=None, detail=None, one=None, cached=None):
    """Return a sample of 2 s."""
    if detail is None:
        detail = stream_detail() if part == "network" else {"cpu_s": 0.1, "cpu_wait_s": 0.0}
    if part == "network" and one is None:
        one = rate_bytes_per_s
    loads = {side: HostLoad(cores=4, busy_cores=0.5) for side in ("source", "destination")} | (load or {})
    return PartSample(
        part, round, 0.0, round_bytes(rate_bytes_per_s), 2.0, one_connection_bytes_per_s=one, cached=cached, load=loads, detail=detail
    )  # fmt: skip


def round_bytes(rate_bytes_per_s):
    """Return the bytes of 2 s."""
    return int(2 * rate_bytes_per_s)


def rounds(rates, *, noise=0.0, seed=1, count=5, changes=None):
    """Return samples of all rounds with lognormal noise around planted medians; ``changes`` has keyword arguments for a part."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(1, count + 1):
        for part in PARTS:
            if part in rates:
                factor = float(np.exp(noise * rng.standard_normal()))
                more = (changes or {}).get(part, {})
                found.append(sample(part, rates[part] * factor, round=number, **more))
    return found


def with_description(**changes):
    """Return the path description with changes."""
    return dataclasses.replace(DESCRIPTION, **changes)
