"""The same bytes as each party counted them: tool, receiver's files, sender's and receiver's kernel, and the wire.

Only transfers between two hosts of an emulated network are in it: loopback is on no link, and of real hosts only the sockets
of our own processes are known. A kernel counts what its sockets carried to and from other hosts, control channels
included; the wire what its links delivered to the receiving hosts. Taken off the wire's count are, for each packet, the
link's own overhead and 52 bytes of headers: 20 of IPv4 and 32 of TCP with time stamps (RFC 791; RFC 9293; RFC 7323).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from venturi.analysis.result import Counts
from venturi.analysis.result_lab import ByteAccount, Testbed
from venturi.analysis.series import watching_slack_s
from venturi.analysis.sockets import LIVES, SMALLEST_DATA
from venturi.mover import movers
from venturi.run import Run

__all__ = ["byte_accounts", "disagreeing"]

HEADER_BYTES = 52
PER_TRANSFER = 65_536
"""Bytes that the control channel of a transfer may carry where no kernel was asked."""
PER_CONNECTION = 8_192
"""Bytes of a handshake on a data connection: GSI's with its certificates takes about 4 kB each way."""
PROTOCOL_SHARE = 0.005
"""What framing adds: 17 bytes a block in GridFTP's mode E (GFD.20, 3.4), 22 a TLS record of up to 16 KiB."""
SELECTIVE_SHARE = 0.01
"""What selective acknowledgements add to the headers taken off the wire's count where it carries data both ways."""
TOLD_BYTES = 53
"""What a tool may be off that tells MiB with four decimals (nuttcp)."""
MISSING_SHARE = 0.001
"""A count may be less than the bytes asked for by so much: what came between the last sample and the end."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What was asked of a party: bytes and transfers."""

    bytes: float
    transfers: int


def byte_accounts(run: Run, testbed: Testbed | None, counts: Counts) -> tuple[ByteAccount, ...]:
    """Return one row a party that counted; empty without an emulated network, or if nothing crossed it."""
    if testbed is None or not testbed.paths:
        return ()
    moved = _moved(run)
    crossing = {pair: row for pair, row in moved.items() if pair[0] != pair[1]}
    if not crossing or not sum(row["asked"] for row in crossing.values()):
        return ()
    whole = _Asked(sum(r["asked"] for r in crossing.values()), int(sum(r["n"] for r in crossing.values())))
    # What failed was on the wire in part, and nobody knows how much of it: then nothing above can be judged.
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
    found += _by_wire(testbed, crossing, extra, whole_known, sockets_known=bool(kernels))
    return tuple(row for row in found if row is not None)


def _has_earlier_attempts(run: Run) -> bool:
    """Return whether trials had failed that were carried out once more: the tables hold the last attempt of each alone."""
    return bool(run.query("SELECT count(*) AS n FROM trials WHERE attempts > 1")["n"][0])


def _moved(run: Run) -> dict[tuple[str, str], dict[str, float]]:
    """Return bytes asked for, received and told by tools, by sending and receiving host, of what succeeded.

    ``over`` is what tools may move beyond that, as they move whole blocks; ``under`` what they may be off because they round. A call that goes by the
    clock, or reads in parts, is asked for as many bytes as its tool says it moved. ``dropped`` is what the other end did not wait for: the receiver of iperf3 ends
    its connections when the sender has handed over its last block, and what was on its way then no kernel acknowledges.
    """
    services = {name: str(service["host"]) for name, service in (run.header.get("services") or {}).items()}
    rows = run.query(
        """SELECT host, call, split_part(coalesce(source_via, ''), '/', 1) AS source,
                  split_part(coalesce(destination_via, ''), '/', 1) AS destination, count(*) AS n,
                  coalesce(sum(asked_bytes), 0)::DOUBLE AS asked, sum(received_bytes)::DOUBLE AS received,
                  sum(asked_bytes) FILTER (received_bytes IS NOT NULL)::DOUBLE AS received_of,
                  sum(tool_bytes)::DOUBLE AS tool, sum(asked_bytes) FILTER (tool_bytes IS NOT NULL)::DOUBLE AS tool_of,
                  sum(greatest(asked_bytes - tool_received_bytes, 0))::DOUBLE AS dropped,
                  sum(greatest(tool_bytes - tool_received_bytes, 0))::DOUBLE AS late
           FROM transfers WHERE outcome = 'ok' GROUP BY ALL ORDER BY ALL"""
    )
    names = ("n", "asked", "received", "received_of", "tool", "tool_of", "over", "under", "dropped", "late")
    found: dict[tuple[str, str], dict[str, float]] = {}
    for index, host in enumerate(rows["host"]):
        pair = tuple(services.get(str(rows[side][index]), str(host)) for side in ("source", "destination"))
        row = found.setdefault((pair[0], pair[1]), dict.fromkeys(names, 0.0))
        told = {name: _finite(rows[name][index]) for name in names if name in rows}
        for name, value in _by_its_call(run, rows["call"][index], told).items():
            row[name] += value
    return found


def _by_its_call(run: Run, call: object, told: dict[str, float]) -> dict[str, float]:
    """Return the sums of one call with what its options mean for them."""
    called = (run.header.get("calls") or {}).get(call) or {}
    block = block_bytes(called)
    if tells_what_it_moved(called):
        return {**told, "asked": told["tool"], "tool": 0.0, "tool_of": 0.0, "dropped": told["late"]}
    if block is None:
        return {**told, "dropped": 0.0}
    most = told["n"] * block * int((called.get("options") or {}).get("streams") or 1)
    return {**told, "over": most, "under": told["n"] * TOLD_BYTES}


def tells_what_it_moved(call: Mapping[str, Any]) -> bool:
    """Return whether only the tool knows how much was to be moved: it goes by the clock, or reads a file in parts."""
    timed = (call.get("options") or {}).get("time_s") is not None
    return timed or getattr(movers().get(str(call.get("mover"))), "partial", False)


def block_bytes(call: Mapping[str, Any]) -> int | None:
    """Return the size of the blocks that a call moves, the last one whole, too; None if it moves to the byte."""
    block = (call.get("options") or {}).get("length_bytes")
    return block if isinstance(block, int) and not isinstance(block, bool) else None


def _finite(value: object) -> float:
    return 0.0 if value is None or np.isnan(float(value)) else float(value)  # type: ignore[arg-type]


def _kernels(run: Run) -> dict[str, dict[str, float]]:
    """Return what each host's sockets carried to and from other hosts, of the hosts that were watched to the end."""
    rows = run.query(
        f"""WITH {LIVES},
            watched AS (SELECT host, max(time_s) AS until_s FROM samples GROUP BY host),
            needed AS (SELECT max(end_s) AS end_s FROM transfers WHERE outcome = 'ok')
            SELECT lives.host AS host, sum(acked) AS acked, sum(received) AS received, sum(retransmitted) AS retransmitted,
                   count(*) AS connections, sum(acked) FILTER (acked < {SMALLEST_DATA}) AS small_acked,
                   sum(received) FILTER (received < {SMALLEST_DATA}) AS small_received
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
    party: str, crossing: Mapping[tuple[str, str], Mapping[str, float]], name: str, whole: _Asked
) -> ByteAccount | None:
    of = sum(row[f"{name}_of"] for row in crossing.values())
    if not of:
        return None
    counted = sum(row[name] for row in crossing.values())
    note = "" if of == whole.bytes else "of the transfers for which there is a count"
    whole_blocks = name == "tool"
    least = of - (sum(row["under"] for row in crossing.values()) if whole_blocks else 0.0)
    most = of + (sum(row["over"] + row["under"] for row in crossing.values()) if whole_blocks else 0.0)
    return ByteAccount(party, counted, of, counted / of, least, most, least - 0.5 < counted < most + 0.5, note)


def _by_kernel(
    party: str, crossing: Mapping[tuple[str, str], Mapping[str, float]], kernels: Mapping[str, Mapping[str, float]],
    side: int, name: str, judged: bool,
) -> Iterable[ByteAccount]:  # fmt: skip
    """Yield the count of the hosts on one side (0: senders, 1: receivers) that were watched."""
    seen = sorted({pair[side] for pair in crossing} & set(kernels))
    own = [row for pair, row in crossing.items() if pair[side] in seen]
    unseen = sorted({pair[side] for pair in crossing} - set(kernels))
    if not own:
        return
    asked = sum(row["asked"] for row in own)
    counted = sum(kernels[host][name] for host in seen)
    # Connections that carried little are control channels, or data channels that carried handshakes: the kernels say how much.
    extra = sum(kernels[host][f"small_{name}"] + PER_CONNECTION * kernels[host]["connections"] for host in seen)
    most = asked * (1 + PROTOCOL_SHARE) + extra + sum(row["over"] for row in own)
    least = asked * (1 - MISSING_SHARE) - sum(row["dropped"] for row in own)
    note = f"of {', '.join(seen)}" + (
        f" only: the sockets of {', '.join(unseen)} were not recorded to the end" if unseen else ""
    )
    yield ByteAccount(party, counted, asked, counted / asked if asked else None, least, most,
                      least <= counted <= most if judged else None, note + _unjudged(judged))  # fmt: skip


def _by_wire(
    testbed: Testbed, crossing: Mapping[tuple[str, str], Mapping[str, float]], extra: float, judged: bool, *,
    sockets_known: bool,
) -> Iterable[ByteAccount]:  # fmt: skip
    receivers = {pair[1] for pair in crossing}
    links = [link for link in testbed.links if link.end.split(".", 1)[0] in receivers and "." in link.end]
    if not links or any(link.bytes is None or link.packets is None for link in links):
        return
    asked = sum(row["asked"] for row in crossing.values())
    counted = sum((link.bytes or 0) - (link.packets or 0) * (link.overhead_bytes + HEADER_BYTES) for link in links)
    both_ways = receivers & {pair[0] for pair in crossing}
    share = PROTOCOL_SHARE + (SELECTIVE_SHARE if both_ways else 0.0)
    most = asked * (1 + share) + extra + sum(row["over"] for row in crossing.values())
    least = asked * (1 - MISSING_SHARE) - sum(row["dropped"] for row in crossing.values())
    note = f"into {', '.join(sorted(receivers))}, less {HEADER_BYTES} bytes of headers a packet"
    judged = judged and sockets_known  # without the kernels nobody knows how much was sent again
    yield ByteAccount("the wire: delivered", counted, asked, counted / asked if asked else None, least, most,
                      least <= counted <= most if judged else None, note + _unjudged(judged))  # fmt: skip


def _unjudged(judged: bool) -> str:
    return "" if judged else "; not judged: what failed, or was sent again, is not known"


def disagreeing(accounts: Sequence[ByteAccount]) -> list[ByteAccount]:
    """Return the accounts that say something else than the bytes asked for, and cannot be explained."""
    return [account for account in accounts if account.agrees is False]
