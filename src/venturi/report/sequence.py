"""Message sequence diagrams: who said what to whom, time running down."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from venturi.analysis.chapter import Message, Sequence
from venturi.analysis.words import plural
from venturi.report.drawing import FULL, Picture, file_name
from venturi.report.theme import ACCENT, BACKGROUND, GRID, INK, MUTED, SECOND
from venturi.units import format_duration

__all__ = ["MOST_MESSAGES", "sequence_picture"]

MOST_MESSAGES = 60
"""Messages drawn; a picture of more is no longer read."""
LONGEST_TEXT = 64
ROW = 0.27
"""Height of a message, in inches. Rows are of one height, as most exchanges take microseconds between seconds of silence."""


def sequence_picture(chapter: str, sequence: Sequence) -> Picture:
    """Return the drawing of a sequence: a vertical line a party, an arrow a message, its time at the left."""
    shown = sorted(sequence.messages, key=lambda message: message.time_s)[:MOST_MESSAGES]
    parties = list(dict.fromkeys([*sequence.parties, *(p for m in shown for p in (m.sender, m.receiver))]))
    figure = Figure(figsize=(FULL, 0.7 + ROW * len(shown)), layout=ConstrainedLayoutEngine(h_pad=0.02, w_pad=0.03))
    axes = figure.add_subplot()
    _draw_parties(axes, parties, len(shown))
    start = shown[0].time_s
    for row, message in enumerate(shown):
        _draw_message(axes, message, parties, row)
        axes.text(-0.62, row, format_duration(message.time_s - start), ha="right", va="center", fontsize=7.5, color=MUTED)  # fmt: skip
    left_out = len(sequence.messages) - len(shown)
    source = f" Redraws {sequence.source}." if sequence.source else ""
    more = f" {plural(left_out, 'later message')} not drawn." if left_out else ""
    told = "; ".join(f"{m.sender} to {m.receiver}: {m.text}" for m in shown[:20])
    return Picture(
        name=file_name(chapter, {"sequence": sequence.name}), title=sequence.title,
        caption=f"{sequence.caption} At the left: time since the first message; rows are not to scale.{source}{more}",
        alt=f"{sequence.title}. {plural(len(sequence.messages), 'message')} among {', '.join(parties)}, over"
            f" {format_duration(shown[-1].time_s - start)}. {told}.",
        figure=figure, wide=True,
    )  # fmt: skip


def _draw_parties(axes: Axes, parties: list[str], rows: int) -> None:
    for place, party in enumerate(parties):
        axes.plot([place, place], [-0.6, rows - 0.3], color=GRID, linewidth=1.2, zorder=1)
        axes.text(place, -0.9, party, ha="center", va="bottom", fontsize=8.5, color=INK, fontweight="bold")
    axes.set_xlim(-1.0, len(parties) - 0.3)
    axes.set_ylim(rows - 0.2, -1.9)
    axes.set_axis_off()


def _draw_message(axes: Axes, message: Message, parties: list[str], row: int) -> None:
    start, end = parties.index(message.sender), parties.index(message.receiver)
    text = message.text if len(message.text) <= LONGEST_TEXT else message.text[: LONGEST_TEXT - 1] + "…"
    colour = ACCENT if end >= start else SECOND
    if start == end:
        axes.plot(start, row, "o", color=colour, markersize=3.6, zorder=3)
        axes.annotate(text, (start, row), xytext=(6, 0), textcoords="offset points", va="center", fontsize=7.5, color=INK,
                      bbox={"facecolor": BACKGROUND, "edgecolor": "none", "pad": 0.8})  # fmt: skip
        return
    axes.annotate("", xy=(end, row), xytext=(start, row), zorder=2,
                  arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1.0, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 8})  # fmt: skip
    axes.text((start + end) / 2, row - 0.08, text, ha="center", va="bottom", fontsize=7.5, color=INK, zorder=3)
