"""Diagram of a testbed: hosts at both sides, routers between them, links with rate and round-trip time.

The diagram is a tree of links from the most central router, with half of the branches on each side. Each host has a
separate row, so nothing overlaps. Links of a host outside of the tree are listed as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes

from venturi.analysis.format import plural
from venturi.analysis.result import Analysis
from venturi.analysis.result_lab import LinkBundle, Node, TestbedDiagram
from venturi.report.drawing import FULL, Picture, canvas
from venturi.report.theme import ACCENT, BACKGROUND, INK, MUTED
from venturi.units import format_bit_rate, format_duration

__all__ = ["diagram_pictures"]

MAX_HOSTS = 80
"""Maximum hosts of a readable diagram. The table of links has all."""
ROW = 0.3
"""Height of a host, in inches: two lines of text."""
_LINE = 0.11
_MAX_NAMED_STORAGES = 2
"""Maximum storages of a host with their names."""
_BRANCH_GAP = 0.35
"""Gap between the branches of a node, in rows."""


@dataclass(eq=False)
class _NodePosition:
    """Position of a node: ``x`` in columns from the centre, ``y`` in rows from the top."""

    node: Node
    bundle: LinkBundle | None = None
    """Link towards the centre."""
    parent: _NodePosition | None = None
    children: list[_NodePosition] = field(default_factory=list)
    extra_links: list[str] = field(default_factory=list)
    """Labels of links outside of the tree."""
    x: int = 0
    y: float = 0.0

    @property
    def leaf_count(self) -> int:
        return sum(child.leaf_count for child in self.children) or 1

    def all(self) -> Iterator[_NodePosition]:
        yield self
        for child in self.children:
            yield from child.all()


def diagram_pictures(analysis: Analysis) -> list[Picture]:
    """Return the diagram of the testbed, or nothing without testbed, without links, or with too many hosts."""
    if analysis.testbed is None:
        return []
    layout = analysis.testbed.layout
    hosts = [node for node in layout.nodes if node.is_host]
    if not layout.link_bundles or len(hosts) > MAX_HOSTS:
        return []
    positions, rows = _arrange_nodes(layout)
    _add_extra_links(layout, positions)
    row = ROW + _LINE * max(0, max(len(_label_lines(position)) for position in positions.values()) - 2)
    figure, axes = canvas((FULL, 0.5 + row * max(rows, 2)))
    for position in positions.values():
        _draw_bundle(axes, position)
    for position in positions.values():
        _draw_node(axes, position)
    columns = [position.x for position in positions.values()]
    # Space for the labels of the outermost hosts.
    axes.set_xlim(min(columns) - 0.55, max(columns) + 0.55)
    axes.set_ylim(rows - 0.3, -0.9)
    axes.set_axis_off()
    routers = len(layout.nodes) - len(hosts)
    changed = " at the start of the run" if analysis.testbed.changes else ""
    return [Picture(
        "testbed", f"Testbed layout{changed}",
        "Squares are hosts, with their services and storages; dots are routers. Links show the rate (outward / inward if these "
        "differ) and their part of the round-trip time.",
        f"{plural(len(hosts), 'host')} and {plural(routers, 'router')}: {'; '.join(map(_describe_bundle, layout.link_bundles))}.", figure, wide=True,
    )]  # fmt: skip


def _describe_bundle(bundle: LinkBundle) -> str:
    return f"{bundle.start_node} to {bundle.end} {_bundle_label(bundle)}"


def _arrange_nodes(layout: TestbedDiagram) -> tuple[dict[str, _NodePosition], float]:
    """Return the positions by node name, and the number of rows. Unconnected components are below each other."""
    bundles_by_node: dict[str, list[LinkBundle]] = {node.name: [] for node in layout.nodes}
    for bundle in layout.link_bundles:
        bundles_by_node[bundle.start_node].append(bundle)
        bundles_by_node[bundle.end].append(bundle)
    positions: dict[str, _NodePosition] = {}
    top = 0.0
    for component in _components(layout, bundles_by_node):
        root = _build_tree(
            _centre(component, bundles_by_node), {node.name: node for node in component}, bundles_by_node
        )
        left, right = _split_branches(root.children)
        heights = [_arrange_branches(branches, side, top) for branches, side in ((left, -1), (right, 1))]
        root.y = top + (max(*heights, top + 1) - top - 1) / 2
        # Centre the shorter side.
        for branches, height in zip((left, right), heights, strict=True):
            for position in (position for branch in branches for position in branch.all()):
                position.y += (max(heights) - height) / 2
        positions |= {position.node.name: position for position in root.all()}
        top = max(*heights, top + 1) + _BRANCH_GAP
    return positions, top


def _components(layout: TestbedDiagram, bundles_by_node: Mapping[str, Sequence[LinkBundle]]) -> Iterator[list[Node]]:
    """Yield the nodes of each connected component."""
    seen: set[str] = set()
    for node in layout.nodes:
        if node.name not in seen:
            reached = _measure_distances(node.name, bundles_by_node)
            seen |= set(reached)
            yield [other for other in layout.nodes if other.name in reached]


def _measure_distances(start: str, bundles_by_node: Mapping[str, Sequence[LinkBundle]]) -> dict[str, int]:
    """Return the distance of each reachable node, in links."""
    found = {start: 0}
    for name in (order := [start]):
        for bundle in bundles_by_node[name]:
            other = bundle.end if bundle.start_node == name else bundle.start_node
            if other not in found:
                found[other] = found[name] + 1
                order.append(other)
    return found


def _centre(component: Sequence[Node], bundles_by_node: Mapping[str, Sequence[LinkBundle]]) -> Node:
    """Return the central node: a router if possible, with the smallest maximum distance, then with most links."""

    def rank(node: Node) -> tuple[bool, int, int]:
        return (
            node.is_host,
            max(_measure_distances(node.name, bundles_by_node).values()),
            -len(bundles_by_node[node.name]),
        )

    return min(component, key=rank)


def _build_tree(
    centre: Node, nodes: Mapping[str, Node], bundles_by_node: Mapping[str, Sequence[LinkBundle]]
) -> _NodePosition:
    """Return the tree of shortest paths from a node."""
    root = _NodePosition(centre)
    found = {centre.name: root}
    for position in (order := [root]):
        for bundle in bundles_by_node[position.node.name]:
            other = bundle.end if bundle.start_node == position.node.name else bundle.start_node
            if other not in found:
                found[other] = _NodePosition(nodes[other], bundle, position)
                position.children.append(found[other])
                order.append(found[other])
    return root


def _split_branches(branches: Sequence[_NodePosition]) -> tuple[list[_NodePosition], list[_NodePosition]]:
    """Return the branches for the left and right sides, with similar numbers of hosts."""
    total, left = sum(branch.leaf_count for branch in branches), 0
    for count, branch in enumerate(branches):
        if 2 * left + branch.leaf_count > total:
            return list(branches[:count]), list(branches[count:])
        left += branch.leaf_count
    return list(branches), []


def _arrange_branches(branches: Sequence[_NodePosition], side: int, top: float) -> float:
    """Set the positions of branches below each other, and return the next free row."""
    for number, branch in enumerate(branches):
        branch.x = (branch.parent.x if branch.parent else 0) + side
        top += _BRANCH_GAP if number and (branch.children or branches[number - 1].children) else 0.0
        if branch.children:
            bottom = _arrange_branches(branch.children, side, top)
            branch.y = (branch.children[0].y + branch.children[-1].y) / 2
            top = max(bottom, top + 1)
        else:
            branch.y = top
            top += 1
    return top


def _draw_bundle(axes: Axes, position: _NodePosition) -> None:
    """Draw the link towards the centre: vertical near the inner node, then horizontal to the outer node."""
    if position.parent is None or position.bundle is None:
        return
    inner, side = position.parent, 1 if position.x > 0 else -1
    turn = inner.x + 0.16 * side
    axes.plot([inner.x, turn, turn, position.x], [inner.y, inner.y, position.y, position.y], color=MUTED, zorder=1, solid_joinstyle="round",
              linewidth=1.6 if position.bundle.count > 1 else 0.9)  # fmt: skip
    label = _bundle_label(position.bundle, outwards=position.bundle.start_node == inner.node.name)
    axes.annotate(label, (turn + 0.04 * side, position.y), xytext=(0, 1.5), textcoords="offset points", fontsize=6.5, color=MUTED, va="bottom",
                  ha="left" if side > 0 else "right")  # fmt: skip


def _draw_node(axes: Axes, position: _NodePosition) -> None:
    host, outer = position.node.is_host, not position.children and position.x != 0
    axes.plot(position.x, position.y, "s" if host else "o", color=ACCENT if host else INK, markersize=6.5, markeredgewidth=0, zorder=3)  # fmt: skip
    name, *more = label = _label_lines(position)
    style: dict[str, Any] = {
        "textcoords": "offset points",
        "fontsize": 7.0,
        "color": INK,
        "linespacing": 1.05,
        "zorder": 4,
    }
    at = (position.x, position.y)
    if outer:
        side = 1 if position.x > 0 else -1
        axes.annotate("\n".join(label), at, (7 * side, 0), ha="left" if side > 0 else "right", va="center", **style)
        return
    label_box = {"facecolor": BACKGROUND, "edgecolor": "none", "pad": 0.6, "alpha": 0.9}
    axes.annotate(name, at, (0, 6), ha="center", va="bottom", bbox=label_box, **style)
    # Below the link towards the centre, where the diagram is empty.
    alignment = "center" if position.parent is None else "right" if position.x > 0 else "left"
    axes.annotate("\n".join(more), at, (0, -6), ha=alignment, va="top", bbox=label_box if more else None, **style)


def _label_lines(position: _NodePosition) -> list[str]:
    """Return the label lines of a node, its name first."""
    node, parent = position.node, position.parent.node.name if position.parent else ""
    site = node.site if node.site and node.site.lower() not in (parent.lower(), node.name.lower()) else None
    services = [kind if count == 1 else f"{count} {kind}" for kind, count in node.services]
    storages = [name for name in node.storages if name.lower() != node.name.lower()]
    if len(storages) > _MAX_NAMED_STORAGES:
        storages = [f"{len(storages)} storages"]
    about = ", ".join([*([site] if site else []), *services, *storages])
    return [node.name, *([about] if about else []), *position.extra_links]


def _add_extra_links(layout: TestbedDiagram, positions: Mapping[str, _NodePosition]) -> None:
    """Add the links outside of the tree to the labels of their hosts."""
    in_tree = {position.bundle for position in positions.values()}
    for bundle in layout.link_bundles:
        if bundle not in in_tree:
            endpoints = (
                (bundle.start_node, bundle.end)
                if positions[bundle.start_node].node.is_host
                else (bundle.end, bundle.start_node)
            )
            label = _bundle_label(bundle, outwards=endpoints[0] == bundle.start_node)
            positions[endpoints[0]].extra_links.append(f"also to {endpoints[1]}: {label}")


def _bundle_label(bundle: LinkBundle, *, outwards: bool = True) -> str:
    outward, inward = bundle.rate_bit_per_s, bundle.back_rate_bit_per_s
    if not outwards:
        outward, inward = inward, outward
    rates = [
        format_bit_rate(rate) if rate is not None else "no limit"
        for rate in ((outward,) if outward == inward else (outward, inward))
    ]
    times = f"{bundle.count} × " if bundle.count > 1 else ""
    delay = f", {format_duration(bundle.rtt_s)}" if bundle.rtt_s else ""
    return f"{times}{' / '.join(rates)}{delay}"
