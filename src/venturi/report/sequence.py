"""Message sequence diagrams, with time from top to bottom."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from venturi.analysis.format import plural
from venturi.analysis.section import Message, Sequence
from venturi.report.drawing import FULL, Picture, file_name
from venturi.report.theme import ACCENT, BACKGROUND, GRID, INK, MUTED, SECOND
from venturi.units import format_duration

__all__ = ["MAX_MESSAGES", "sequence_picture"]

MAX_MESSAGES = 60
"""Maximum messages in a diagram."""
MAX_TEXT_LEN = 64
ROW = 0.27
"""Height of a message, in inches. Rows have equal height, because times range from microseconds to seconds."""


def sequence_picture(section: str, sequence: Sequence) -> Picture:
    """Return the diagram: a vertical line per party, an arrow per message, times at the left."""
    visible = sorted(sequence.messages, key=lambda message: message.time_s)[:MAX_MESSAGES]
    parties = list(dict.fromkeys([*sequence.parties, *(p for m in visible for p in (m.sender, m.receiver))]))
    figure = Figure(figsize=(FULL, 0.7 + ROW * len(visible)), layout=ConstrainedLayoutEngine(h_pad=0.02, w_pad=0.03))
    axes = figure.add_subplot()
    _draw_parties(axes, parties, len(visible))
    start = visible[0].time_s
    for row, message in enumerate(visible):
        _draw_message(axes, message, parties, row)
        axes.text(-0.62, row, format_duration(message.time_s - start), ha="right", va="center", fontsize=7.5, color=MUTED)  # fmt: skip
    omitted = len(sequence.messages) - len(visible)
    source = f" Source: {sequence.source}." if sequence.source else ""
    more = f" {plural(omitted, 'later message')} omitted." if omitted else ""
    messages = "; ".join(f"{m.sender} to {m.receiver}: {m.text}" for m in visible[:20])
    return Picture(
        name=file_name(section, {"sequence": sequence.name}), title=sequence.title,
        caption=f"{sequence.caption} Left: time since the first message. Rows are not to scale.{source}{more}",
        alt=f"{sequence.title}. {plural(len(sequence.messages), 'message')} among {', '.join(parties)}, over"
            f" {format_duration(visible[-1].time_s - start)}. {messages}.",
        figure=figure, wide=True,
    )  # fmt: skip


def _draw_parties(axes: Axes, parties: list[str], rows: int) -> None:
    for index, party in enumerate(parties):
        axes.plot([index, index], [-0.6, rows - 0.3], color=GRID, linewidth=1.2, zorder=1)
        axes.text(index, -0.9, party, ha="center", va="bottom", fontsize=8.5, color=INK, fontweight="bold")
    axes.set_xlim(-1.0, len(parties) - 0.3)
    axes.set_ylim(rows - 0.2, -1.9)
    axes.set_axis_off()


def _draw_message(axes: Axes, message: Message, parties: list[str], row: int) -> None:
    start, end = parties.index(message.sender), parties.index(message.receiver)
    text = message.text if len(message.text) <= MAX_TEXT_LEN else message.text[: MAX_TEXT_LEN - 1] + "…"
    colour = ACCENT if end >= start else SECOND
    if start == end:
        axes.plot(start, row, "o", color=colour, markersize=3.6, zorder=3)
        axes.annotate(text, (start, row), xytext=(6, 0), textcoords="offset points", va="center", fontsize=7.5, color=INK,
                      bbox={"facecolor": BACKGROUND, "edgecolor": "none", "pad": 0.8})  # fmt: skip
        return
    axes.annotate("", xy=(end, row), xytext=(start, row), zorder=2,
                  arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1.0, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 8})  # fmt: skip
    axes.text((start + end) / 2, row - 0.08, text, ha="center", va="bottom", fontsize=7.5, color=INK, zorder=3)
