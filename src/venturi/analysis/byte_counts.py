"""Transferred bytes as counted by each party: tools, receivers' files, kernels, and network emulator.

The counts include only transfers between two hosts of an emulated network. Loopback uses no link, and on existing hosts
only the sockets of our own processes are known. A kernel counts the bytes of its sockets to and from other hosts,
including control connections. The emulator counts the bytes that its links delivered to the receiving hosts. From its
count, the link overhead and 52 bytes of headers are subtracted for each packet: 20 of IPv4 and 32 of TCP with time
stamps (RFC 791; RFC 9293; RFC 7323).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from venturi.analysis.result import Counts
from venturi.analysis.result_lab import ByteCount, TestbedResult
from venturi.analysis.series import watching_slack_s
from venturi.analysis.sockets import LIVES, MIN_DATA
from venturi.mover import movers
from venturi.plan.network import TCP_HEADER_BYTES
from venturi.run import Run

__all__ = ["count_bytes", "disagreeing_counts"]

PER_TRANSFER = 65_536
"""Maximum bytes on the control connection of a transfer if the sockets of a host were not recorded."""
PER_CONNECTION = 8_192
"""Bytes of a handshake on a data connection. A GSI handshake with certificates takes about 4 kB each way."""
PROTOCOL_FRACTION = 0.005
"""Overhead of framing: 17 bytes per block in GridFTP's mode E (GFD.20, 3.4), 22 per TLS record of up to 16 KiB."""
SELECTIVE_FRACTION = 0.01
"""Extra headers of selective acknowledgements if a network carries data in both directions."""
MAX_REPORT_BYTES = 53
"""Rounding error of a tool that reports MiB with four decimals (nuttcp)."""
MISSING_FRACTION = 0.001
"""Fraction of the requested bytes that a count can miss between the last sample and the end."""


@dataclass(frozen=True, slots=True)
class _RequestedBytes:
    """Bytes and transfers requested of a party."""

    bytes: float
    transfers: int


def count_bytes(run: Run, testbed: TestbedResult | None, counts: Counts) -> tuple[ByteCount, ...]:
    """Return one row per party with a count.

    The result is empty without an emulated network, or if no bytes crossed it.
    """
    if testbed is None or not testbed.paths:
        return ()
    moved = _moved(run)
    crossing = {pair: row for pair, row in moved.items() if pair[0] != pair[1]}
    if not crossing or not sum(row["requested"] for row in crossing.values()):
        return ()
    whole = _RequestedBytes(
        sum(r["requested"] for r in crossing.values()), int(sum(r["n"] for r in crossing.values()))
    )
    # An unknown part of the failed transfers crossed the network, so kernels and emulator cannot be checked.
    whole_known = counts.transfers_failed == 0 and not _has_earlier_attempts(run)
    kernels = _kernels(run)
    pairs = {host for pair in crossing for host in pair}
    extra = sum(
        k["retransmitted"] + k["small_acked"] + k["small_received"] + PER_CONNECTION * k["connections"]
        for k in kernels.values()
    )
    extra += 0 if pairs <= set(kernels) else PER_TRANSFER * whole.transfers
    found = [
        _plain("the receivers' files", crossing, "received", whole),
        _plain("the tools", crossing, "tool", whole),
    ]
    found += _by_kernel("the senders' kernels: acknowledged", crossing, kernels, 0, "acked", whole_known)
    found += _by_kernel("the receivers' kernels: received", crossing, kernels, 1, "received", whole_known)
    found += _by_emulator(testbed, crossing, extra, whole_known, sockets_known=bool(kernels))
    return tuple(row for row in found if row is not None)


def _has_earlier_attempts(run: Run) -> bool:
    """Return whether failed trials were repeated. The tables only have the last attempt of each trial."""
    return bool(run.query("SELECT count(*) AS n FROM trials WHERE attempts > 1")["n"][0])


def _moved(run: Run) -> dict[tuple[str, str], dict[str, float]]:
    """Return requested, received and tool-reported bytes of successful transfers, by sending and receiving host.

    ``over`` is the number of additional bytes that tools can move because they move whole blocks. ``under`` is their
    maximum rounding error. If a call runs for a time or reads in parts, its requested bytes are the bytes that its tool
    reports. ``dropped`` is the number of bytes that the receiver did not wait for. The receiver of iperf3 closes its
    connections after the sender's last block, so no kernel acknowledges the bytes in flight.
    """
    services = {name: str(service["host"]) for name, service in (run.header.get("services") or {}).items()}
    rows = run.query(
        """SELECT host, call, split_part(coalesce(source_via, ''), '/', 1) AS source,
                  split_part(coalesce(destination_via, ''), '/', 1) AS destination, count(*) AS n,
                  coalesce(sum(requested_bytes), 0)::DOUBLE AS requested, sum(received_bytes)::DOUBLE AS received,
                  sum(requested_bytes) FILTER (received_bytes IS NOT NULL)::DOUBLE AS received_of,
                  sum(tool_bytes)::DOUBLE AS tool, sum(requested_bytes) FILTER (tool_bytes IS NOT NULL)::DOUBLE AS tool_of,
                  sum(greatest(requested_bytes - tool_received_bytes, 0))::DOUBLE AS dropped,
                  sum(greatest(tool_bytes - tool_received_bytes, 0))::DOUBLE AS late
           FROM transfers WHERE outcome = 'ok' GROUP BY ALL ORDER BY ALL"""
    )
    names = ("n", "requested", "received", "received_of", "tool", "tool_of", "over", "under", "dropped", "late")
    found: dict[tuple[str, str], dict[str, float]] = {}
    for index, host in enumerate(rows["host"]):
        pair = tuple(services.get(str(rows[side][index]), str(host)) for side in ("source", "destination"))
        row = found.setdefault((pair[0], pair[1]), dict.fromkeys(names, 0.0))
        counts = {name: _finite(rows[name][index]) for name in names if name in rows}
        for name, value in _by_its_call(run, rows["call"][index], counts).items():
            row[name] += value
    return found


def _by_its_call(run: Run, call: object, counts: dict[str, float]) -> dict[str, float]:
    """Return the sums of one call, adjusted for its options."""
    called = (run.header.get("calls") or {}).get(call) or {}
    block = block_bytes(called)
    if only_tool_knows_bytes(called):
        return {**counts, "requested": counts["tool"], "tool": 0.0, "tool_of": 0.0, "dropped": counts["late"]}
    if block is None:
        return {**counts, "dropped": 0.0}
    most = counts["n"] * block * int((called.get("options") or {}).get("streams") or 1)
    return {**counts, "over": most, "under": counts["n"] * MAX_REPORT_BYTES}


def only_tool_knows_bytes(call: Mapping[str, Any]) -> bool:
    """Return whether only the tool knows the number of bytes, because it runs for a time or reads a file in parts."""
    timed = (call.get("options") or {}).get("time_s") is not None
    return timed or getattr(movers().get(str(call.get("mover"))), "partial", False)


def block_bytes(call: Mapping[str, Any]) -> int | None:
    """Return the size of the blocks that a call moves, which includes a whole last block.

    None if it moves the exact bytes.
    """
    block = (call.get("options") or {}).get("length_bytes")
    return block if isinstance(block, int) and not isinstance(block, bool) else None


def _finite(value: object) -> float:
    return 0.0 if value is None or np.isnan(float(value)) else float(value)  # type: ignore[arg-type]


def _kernels(run: Run) -> dict[str, dict[str, float]]:
    """Return the bytes of each host's sockets to and from other hosts, for hosts that were recorded to the end."""
    rows = run.query(
        f"""WITH {LIVES},
            watched AS (SELECT host, max(time_s) AS until_s FROM samples GROUP BY host),
            needed AS (SELECT max(end_s) AS end_s FROM transfers WHERE outcome = 'ok')
            SELECT lives.host AS host, sum(acked) AS acked, sum(received) AS received, sum(retransmitted) AS retransmitted,
                   count(*) AS connections, sum(acked) FILTER (acked < {MIN_DATA}) AS small_acked,
                   sum(received) FILTER (received < {MIN_DATA}) AS small_received
            FROM lives JOIN watched ON lives.host = watched.host, needed
            WHERE NOT loopback AND watched.until_s >= needed.end_s - $slack GROUP BY 1""",
        {"slack": watching_slack_s(run)},
    )
    names = ("acked", "received", "retransmitted", "connections", "small_acked", "small_received")
    return {
        str(host): {name: float(np.nan_to_num(rows[name][index])) for name in names}
        for index, host in enumerate(rows["host"])
    }


def _plain(
    party: str, crossing: Mapping[tuple[str, str], Mapping[str, float]], name: str, whole: _RequestedBytes
) -> ByteCount | None:
    of = sum(row[f"{name}_of"] for row in crossing.values())
    if not of:
        return None
    counted = sum(row[name] for row in crossing.values())
    note = "" if of == whole.bytes else "only the transfers with this count"
    whole_blocks = name == "tool"
    least = of - (sum(row["under"] for row in crossing.values()) if whole_blocks else 0.0)
    most = of + (sum(row["over"] + row["under"] for row in crossing.values()) if whole_blocks else 0.0)
    return ByteCount(party, counted, of, counted / of, least, most, least - 0.5 < counted < most + 0.5, note)


def _by_kernel(
    party: str, crossing: Mapping[tuple[str, str], Mapping[str, float]], kernels: Mapping[str, Mapping[str, float]],
    side: int, name: str, checked: bool,
) -> Iterable[ByteCount]:  # fmt: skip
    """Yield the count of the recorded hosts on one side (0: senders, 1: receivers)."""
    seen = sorted({pair[side] for pair in crossing} & set(kernels))
    own = [row for pair, row in crossing.items() if pair[side] in seen]
    unseen = sorted({pair[side] for pair in crossing} - set(kernels))
    if not own:
        return
    requested_bytes = sum(row["requested"] for row in own)
    counted = sum(kernels[host][name] for host in seen)
    # Small connections are control connections, or data connections with only a handshake. The kernels count them.
    extra = sum(kernels[host][f"small_{name}"] + PER_CONNECTION * kernels[host]["connections"] for host in seen)
    most = requested_bytes * (1 + PROTOCOL_FRACTION) + extra + sum(row["over"] for row in own)
    least = requested_bytes * (1 - MISSING_FRACTION) - sum(row["dropped"] for row in own)
    note = f"hosts: {', '.join(seen)}" + (
        f"; excluded, because their sockets were not recorded to the end: {', '.join(unseen)}" if unseen else ""
    )
    yield ByteCount(party, counted, requested_bytes, counted / requested_bytes if requested_bytes else None, least, most,
                      least <= counted <= most if checked else None, note + _unchecked_note(checked))  # fmt: skip


def _by_emulator(
    testbed: TestbedResult, crossing: Mapping[tuple[str, str], Mapping[str, float]], extra: float, checked: bool, *,
    sockets_known: bool,
) -> Iterable[ByteCount]:  # fmt: skip
    receivers = {pair[1] for pair in crossing}
    links = [link for link in testbed.links if link.end.split(".", 1)[0] in receivers and "." in link.end]
    if not links or any(link.bytes is None or link.packets is None for link in links):
        return
    requested_bytes = sum(row["requested"] for row in crossing.values())
    counted = sum(
        (link.bytes or 0) - (link.packets or 0) * (link.overhead_bytes + TCP_HEADER_BYTES) for link in links
    )
    bidirectional = receivers & {pair[0] for pair in crossing}
    fraction = PROTOCOL_FRACTION + (SELECTIVE_FRACTION if bidirectional else 0.0)
    most = requested_bytes * (1 + fraction) + extra + sum(row["over"] for row in crossing.values())
    least = requested_bytes * (1 - MISSING_FRACTION) - sum(row["dropped"] for row in crossing.values())
    note = f"links to {', '.join(sorted(receivers))}, without {TCP_HEADER_BYTES} header bytes per packet"
    checked = checked and sockets_known  # without the kernels the retransmitted bytes are unknown
    yield ByteCount("the network emulator: delivered", counted, requested_bytes, counted / requested_bytes if requested_bytes else None, least, most,
                      least <= counted <= most if checked else None, note + _unchecked_note(checked))  # fmt: skip


def _unchecked_note(checked: bool) -> str:
    return "" if checked else "; not checked: failed and retransmitted bytes are unknown"


def disagreeing_counts(accounts: Sequence[ByteCount]) -> list[ByteCount]:
    """Return the counts that differ from the requested bytes without an explanation."""
    return [account for account in accounts if account.agrees is False]
