"""Message sequences of GridFTP control connections, from captured packets: the start of a call and its first files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from venturi.analysis.format import format_factors
from venturi.analysis.result import About
from venturi.analysis.section import Message
from venturi.analysis.section import Sequence as Diagram
from venturi.run import Run

__all__ = ["sequences"]

MAX_DIAGRAMS = 8
MAX_MESSAGES = 90
"""Messages in one diagram; later ones are similar."""
_MAX_TEXT = 60
_CLIENT = "client"


def sequences(run: Run, services: Sequence[str], about: About) -> tuple[Diagram, ...]:
    """Return a diagram for each of the first points with captured control connections.

    A control connection belongs to the trial during which it started. The time of a message is when the server received
    or sent it, relative to the first message of the call.
    """
    factors = run.factors
    chosen = "".join(f', any_value(t."factor_{name}") AS "factor_{name}"' for name in factors)
    found = run.query(
        f"""WITH heard AS (
                SELECT detail->>'service' AS service, detail->>'client' AS client, min(time_s) AS start_s FROM events
                WHERE kind = 'control' AND detail->>'seen' = 'wire' AND list_contains($services, detail->>'service') GROUP BY ALL),
            held AS (
                SELECT t.point, t.trial, t.slot, any_value(t.start_s) AS start_s, any_value(t.end_s) AS end_s,
                       any_value(split_part(t.source_via, '/', 1)) AS source,
                       any_value(split_part(t.destination_via, '/', 1)) AS destination,
                       list(DISTINCT heard.client) AS clients {chosen}
                FROM transfers t JOIN heard ON heard.start_s BETWEEN t.start_s AND t.end_s
                     AND heard.service IN (split_part(t.source_via, '/', 1), split_part(t.destination_via, '/', 1))
                WHERE t.point IS NOT NULL AND t.outcome = 'ok' GROUP BY t.point, t.trial, t.slot)
            SELECT * FROM held QUALIFY row_number() OVER (PARTITION BY point ORDER BY start_s) = 1 ORDER BY point LIMIT $most""",
        {"services": list(services), "most": MAX_DIAGRAMS},
    )
    count = len(found["point"])
    varied = [name for name in factors if len({str(value) for value in found[f"factor_{name}"]}) > 1]
    diagrams = []
    for index in range(count):
        call = {name: found[name][index] for name in found}
        messages = _messages(run, call)
        ends = [end for end in (call["source"], call["destination"]) if end]
        direction = "third-party" if len(ends) == 2 else "client-server"
        factor_values = {name: _plain(call[f"factor_{name}"]) for name in factors}
        label = format_factors(factor_values, varied) if varied else direction
        diagrams.append(
            Diagram(
                f"control-{int(call['point'])}",
                f"{direction.capitalize()}: {label}",
                (ends[0], _CLIENT, ends[1]) if len(ends) == 2 else (_CLIENT, ends[0]),
                messages[:MAX_MESSAGES],
                _caption(messages),
                "002, figures 3 and 4" if about.study else "",
            )
        )
    return tuple(diagrams)


def _caption(messages: Sequence[Message]) -> str:
    caption = "Each message at the time at which it passed the server; time from the first one. Data is drawn at the start of its transfer."
    left = len(messages) - MAX_MESSAGES
    return caption if left <= 0 else f"{caption} {left} more messages follow."


def _messages(run: Run, call: Mapping[str, Any]) -> tuple[Message, ...]:
    """Return the control messages of a call and the files transferred during them, in the order of time."""
    ends = [end for end in (call["source"], call["destination"]) if end]
    rows = run.query(
        """SELECT time_s, detail->>'service' AS service, detail->>'direction' AS direction, detail->>'line' AS line
           FROM events WHERE kind = 'control' AND detail->>'seen' = 'wire' AND list_contains($ends, detail->>'service')
                AND list_contains($clients, detail->>'client') AND detail->>'direction' != 'note'
                AND time_s BETWEEN $start AND $end + 1
           ORDER BY time_s, (detail->>'number')::BIGINT""",
        {
            "ends": ends,
            "clients": list(call["clients"]),
            "start": float(call["start_s"]),
            "end": float(call["end_s"]),
        },
    )
    found = [
        Message(float(time), _CLIENT if direction == "client" else str(service), str(service) if direction == "client" else _CLIENT, _short(line))
        for time, service, direction, line in zip(rows["time_s"], rows["service"], rows["direction"], rows["line"], strict=True)
    ]  # fmt: skip
    found = sorted([*found, *_data(run, call)], key=lambda message: message.time_s)
    start_s = found[0].time_s if found else 0.0
    return tuple(Message(one.time_s - start_s, one.sender, one.receiver, one.text) for one in found)


def _data(run: Run, call: Mapping[str, Any]) -> list[Message]:
    """Return the files of a call from the log of the sending server, or of the receiving server if a client sends."""
    source, destination = call["source"] or _CLIENT, call["destination"] or _CLIENT
    logged, command = (source, ("RETR", "ERET")) if call["source"] else (destination, ("STOR", "ESTO"))
    rows = run.query(
        """SELECT (detail->>'start_s')::DOUBLE AS time_s, detail->>'path' AS path, (detail->>'file_bytes')::BIGINT AS bytes FROM events
           WHERE kind = 'server-transfer' AND detail->>'service' = $service AND list_contains($commands, detail->>'command')
                 AND (detail->>'start_s')::DOUBLE BETWEEN $start AND $end ORDER BY time_s""",
        {"service": logged, "commands": list(command), "start": float(call["start_s"]), "end": float(call["end_s"])},
    )
    return [
        Message(float(time), source, destination, f"data of {str(path).rsplit('/', 1)[-1]}, {int(size)} B")
        for time, path, size in zip(rows["time_s"], rows["path"], rows["bytes"], strict=True)
    ]


def _short(line: str) -> str:
    """Return the first line of a message, truncated if long."""
    first, *more = line.split("\n")
    text = f"{first} …" if more else first
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 2]} …"


def _plain(value: Any) -> Any:  # noqa: ANN401 - a cell of any column
    factor_values = value.item() if hasattr(value, "item") else value
    return None if factor_values != factor_values else factor_values
