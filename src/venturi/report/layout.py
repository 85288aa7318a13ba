"""The picture of a testbed: its hosts at both sides, its routers between them, on each cable its rate and round trip.

A tree of the cables is drawn from the most central router outwards, half of its branches to each side, and each host in a row of its own, so that
nothing lies over anything else. A host that has cables besides the one towards the centre says so in words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes

from venturi.analysis.result import Analysis
from venturi.analysis.result_lab import Cable, Layout, Node
from venturi.analysis.words import bit_rate, plural
from venturi.report.drawing import FULL, Picture, canvas
from venturi.report.theme import ACCENT, BACKGROUND, INK, MUTED
from venturi.units import format_duration

__all__ = ["layout_pictures"]

MOST_HOSTS = 80
"""Hosts up to which a picture is still read; the table of links has all."""
ROW = 0.3
"""Height of a host, in inches: two lines of words."""
_LINE = 0.11
_MOST_NAMED = 2
"""Storages of a host up to which they are named."""
_SITES_APART = 0.35
"""Space between the branches of a node, in rows."""


@dataclass(eq=False)
class _Place:
    """A node where it stands: ``x`` in columns from the centre, ``y`` in rows from the top."""

    node: Node
    cable: Cable | None = None
    """The one towards the centre."""
    parent: _Place | None = None
    children: list[_Place] = field(default_factory=list)
    further: list[str] = field(default_factory=list)
    """Cables that are not of the tree, in words."""
    x: int = 0
    y: float = 0.0

    @property
    def ends(self) -> int:
        return sum(child.ends for child in self.children) or 1

    def all(self) -> Iterator[_Place]:
        yield self
        for child in self.children:
            yield from child.all()


def layout_pictures(analysis: Analysis) -> list[Picture]:
    """Return the picture of the testbed; empty without one, without links, and with too many hosts to be read."""
    if analysis.testbed is None:
        return []
    layout = analysis.testbed.layout
    hosts = [node for node in layout.nodes if node.is_host]
    if not layout.cables or len(hosts) > MOST_HOSTS:
        return []
    places, rows = _placed(layout)
    _add_further(layout, places)
    row = ROW + _LINE * max(0, max(len(_words(place)) for place in places.values()) - 2)
    figure, axes = canvas((FULL, 0.5 + row * max(rows, 2)))
    for place in places.values():
        _draw_cable(axes, place)
    for place in places.values():
        _draw_node(axes, place)
    columns = [place.x for place in places.values()]
    # Beside the outermost hosts there must be room for their words.
    axes.set_xlim(min(columns) - 0.55, max(columns) + 0.55)
    axes.set_ylim(rows - 0.3, -0.9)
    axes.set_axis_off()
    routers = len(layout.nodes) - len(hosts)
    changed = " as the run began" if analysis.testbed.changes else ""
    return [Picture(
        "testbed", f"The layout of the testbed{changed}",
        "Squares are hosts, with what serves on them and their storages; dots are routers. At a cable: its rate, outwards / inwards where these "
        "differ, and what it adds to a round trip.",
        f"{plural(len(hosts), 'host')} and {plural(routers, 'router')}: {'; '.join(map(_told, layout.cables))}.", figure, wide=True,
    )]  # fmt: skip


def _told(cable: Cable) -> str:
    return f"{cable.begin} to {cable.end} {_cable_words(cable)}"


def _placed(layout: Layout) -> tuple[dict[str, _Place], float]:
    """Return where each node stands, by name, and how many rows that takes; parts that nothing joins stand below each other."""
    beside: dict[str, list[Cable]] = {node.name: [] for node in layout.nodes}
    for cable in layout.cables:
        beside[cable.begin].append(cable)
        beside[cable.end].append(cable)
    places: dict[str, _Place] = {}
    top = 0.0
    for part in _parts(layout, beside):
        root = _grown(_centre(part, beside), {node.name: node for node in part}, beside)
        left, right = _sides(root.children)
        heights = [_stand(branches, side, top) for branches, side in ((left, -1), (right, 1))]
        root.y = top + (max(*heights, top + 1) - top - 1) / 2
        # The shorter side stands in the middle of the longer.
        for branches, height in zip((left, right), heights, strict=True):
            for place in (place for branch in branches for place in branch.all()):
                place.y += (max(heights) - height) / 2
        places |= {place.node.name: place for place in root.all()}
        top = max(*heights, top + 1) + _SITES_APART
    return places, top


def _parts(layout: Layout, beside: Mapping[str, Sequence[Cable]]) -> Iterator[list[Node]]:
    """Yield the nodes of each part that hangs together."""
    seen: set[str] = set()
    for node in layout.nodes:
        if node.name not in seen:
            reached = _distances(node.name, beside)
            seen |= set(reached)
            yield [other for other in layout.nodes if other.name in reached]


def _distances(start: str, beside: Mapping[str, Sequence[Cable]]) -> dict[str, int]:
    """Return how many cables away each node is that can be reached."""
    found = {start: 0}
    for name in (order := [start]):
        for cable in beside[name]:
            other = cable.end if cable.begin == name else cable.begin
            if other not in found:
                found[other] = found[name] + 1
                order.append(other)
    return found


def _centre(part: Sequence[Node], beside: Mapping[str, Sequence[Cable]]) -> Node:
    """Return the node from which the farthest is nearest, a router before a host, then the one with most cables."""

    def rank(node: Node) -> tuple[bool, int, int]:
        return node.is_host, max(_distances(node.name, beside).values()), -len(beside[node.name])

    return min(part, key=rank)


def _grown(centre: Node, nodes: Mapping[str, Node], beside: Mapping[str, Sequence[Cable]]) -> _Place:
    """Return the tree of the shortest ways from a node."""
    root = _Place(centre)
    found = {centre.name: root}
    for place in (order := [root]):
        for cable in beside[place.node.name]:
            other = cable.end if cable.begin == place.node.name else cable.begin
            if other not in found:
                found[other] = _Place(nodes[other], cable, place)
                place.children.append(found[other])
                order.append(found[other])
    return root


def _sides(branches: Sequence[_Place]) -> tuple[list[_Place], list[_Place]]:
    """Return the branches for the left and for the right, as equal in hosts as their order allows."""
    total, left = sum(branch.ends for branch in branches), 0
    for count, branch in enumerate(branches):
        if 2 * left + branch.ends > total:
            return list(branches[:count]), list(branches[count:])
        left += branch.ends
    return list(branches), []


def _stand(branches: Sequence[_Place], side: int, top: float) -> float:
    """Give branches their places below each other; return where the next would begin."""
    for number, branch in enumerate(branches):
        branch.x = (branch.parent.x if branch.parent else 0) + side
        top += _SITES_APART if number and (branch.children or branches[number - 1].children) else 0.0
        if branch.children:
            bottom = _stand(branch.children, side, top)
            branch.y = (branch.children[0].y + branch.children[-1].y) / 2
            top = max(bottom, top + 1)
        else:
            branch.y = top
            top += 1
    return top


def _draw_cable(axes: Axes, place: _Place) -> None:
    """Draw the cable towards the centre: up or down beside the inner node, then level to the outer one."""
    if place.parent is None or place.cable is None:
        return
    inner, side = place.parent, 1 if place.x > 0 else -1
    turn = inner.x + 0.16 * side
    axes.plot([inner.x, turn, turn, place.x], [inner.y, inner.y, place.y, place.y], color=MUTED, zorder=1, solid_joinstyle="round",
              linewidth=1.6 if place.cable.count > 1 else 0.9)  # fmt: skip
    words = _cable_words(place.cable, outwards=place.cable.begin == inner.node.name)
    axes.annotate(words, (turn + 0.04 * side, place.y), xytext=(0, 1.5), textcoords="offset points", fontsize=6.5, color=MUTED, va="bottom",
                  ha="left" if side > 0 else "right")  # fmt: skip


def _draw_node(axes: Axes, place: _Place) -> None:
    host, outer = place.node.is_host, not place.children and place.x != 0
    axes.plot(place.x, place.y, "s" if host else "o", color=ACCENT if host else INK, markersize=6.5, markeredgewidth=0, zorder=3)  # fmt: skip
    name, *more = words = _words(place)
    style: dict[str, Any] = {
        "textcoords": "offset points",
        "fontsize": 7.0,
        "color": INK,
        "linespacing": 1.05,
        "zorder": 4,
    }
    at = (place.x, place.y)
    if outer:
        side = 1 if place.x > 0 else -1
        axes.annotate("\n".join(words), at, (7 * side, 0), ha="left" if side > 0 else "right", va="center", **style)
        return
    ground = {"facecolor": BACKGROUND, "edgecolor": "none", "pad": 0.6, "alpha": 0.9}
    axes.annotate(name, at, (0, 6), ha="center", va="bottom", bbox=ground, **style)
    # Below the cable towards the centre, where no other one is.
    aside = "center" if place.parent is None else "right" if place.x > 0 else "left"
    axes.annotate("\n".join(more), at, (0, -6), ha=aside, va="top", bbox=ground if more else None, **style)


def _words(place: _Place) -> list[str]:
    """Return what stands beside a node, line by line, its name first."""
    node, parent = place.node, place.parent.node.name if place.parent else ""
    site = node.site if node.site and node.site.lower() not in (parent.lower(), node.name.lower()) else None
    services = [kind if count == 1 else f"{count} {kind}" for kind, count in node.services]
    storages = [name for name in node.storages if name.lower() != node.name.lower()]
    if len(storages) > _MOST_NAMED:
        storages = [f"{len(storages)} storages"]
    about = ", ".join([*([site] if site else []), *services, *storages])
    return [node.name, *([about] if about else []), *place.further]


def _add_further(layout: Layout, places: Mapping[str, _Place]) -> None:
    """Add the cables that are not of the tree, each at the host that has it."""
    in_tree = {place.cable for place in places.values()}
    for cable in layout.cables:
        if cable not in in_tree:
            ends = (cable.begin, cable.end) if places[cable.begin].node.is_host else (cable.end, cable.begin)
            words = _cable_words(cable, outwards=ends[0] == cable.begin)
            places[ends[0]].further.append(f"also to {ends[1]}: {words}")


def _cable_words(cable: Cable, *, outwards: bool = True) -> str:
    there, back = cable.rate_bit_per_s, cable.back_rate_bit_per_s
    if not outwards:
        there, back = back, there
    rates = [
        bit_rate(rate) if rate is not None else "no limit" for rate in ((there,) if there == back else (there, back))
    ]
    times = f"{cable.count} × " if cable.count > 1 else ""
    delay = f", {format_duration(cable.rtt_s)}" if cable.rtt_s else ""
    return f"{times}{' / '.join(rates)}{delay}"
