"""Set-ups of closed-loop clients beside each other: option against option, direction against direction, what if an interface were healthy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from venturi.analysis.chapter import Column, Scalar, Table
from venturi.analysis.chapters.clients_cells import Cell
from venturi.analysis.words import bit_rate

__all__ = ["KEYS", "column_of", "comparisons_table", "directions_table", "interfaces_table", "key_of", "labels_of"]

KEYS = ("direction", "processes", "affinity", "pairing", "clients")
"""Factors by which a row of a published table is that of a cell; where the published table has them."""

Rates = Mapping[tuple[Scalar, ...], float]
"""Published rates by the values of :data:`KEYS`, in bit/s."""


def key_of(cell: Cell) -> tuple[Scalar, ...]:
    """Return the values of :data:`KEYS`."""
    return tuple(cell.factors.get(key) for key in KEYS)


def labels_of(cells: Sequence[Cell]) -> list[str]:
    """Return the factors that tell cells apart, in their order."""
    names = dict.fromkeys(name for cell in cells for name in cell.factors)
    hidden = ("clients_per_nic", "size_bytes", "group")
    kept = [
        name
        for name in names
        if name not in hidden and (name in KEYS or len({c.factors.get(name) for c in cells}) > 1)
    ]
    return kept or ["group"]


def column_of(name: str) -> Column:
    """Return the column of a factor."""
    return Column("clients_per_machine" if name == "clients" else name, name.replace("_", " "))


def comparisons_table(cells: Sequence[Cell], published: Rates) -> Table:
    """Return each factor that has two values, one against the other, all else the same."""
    rows: list[tuple[Scalar, ...]] = []
    for name in [name for name in labels_of(cells) if name != "processes_by_host"]:
        values = sorted({cell.factors.get(name) for cell in cells}, key=str)
        if len(values) != 2 or None in values:
            continue
        first, second = values
        for cell in cells:
            twin = _twin(cell, name, second, cells) if cell.factors.get(name) == first else None
            if twin is None or not cell.rate_bit_per_s or not twin.rate_bit_per_s:
                continue
            here, there = published.get(key_of(cell)), published.get(key_of(twin))
            besides = ", ".join(
                f"{key.replace('_', ' ')} {cell.factors[key]}" for key in labels_of(cells) if key != name
            )
            rows.append(
                (name, first, second, besides, cell.rate_bit_per_s, twin.rate_bit_per_s, twin.rate_bit_per_s / cell.rate_bit_per_s,
                 there / here if here and there else None)
            )  # fmt: skip
    columns = (
        Column("option", "option"), Column("first", "off, or first"), Column("second", "on, or second"), Column("besides", "all else"),
        Column("first_bit_per_s", "rate, first"), Column("second_bit_per_s", "rate, second"), Column("second_ratio", "second to first"),
        Column("published_ratio", "published, second to first", published=True),
    )  # fmt: skip
    notes = [_affinity_note(cells)] if any(row[0] == "affinity" for row in rows) else []
    notes += [_clients_note(cells)] if any(row[0] == "clients" for row in rows) else []
    return Table("clients-comparisons", "One option against the other", columns, tuple(rows), " ".join(notes).strip())


def _affinity_note(cells: Sequence[Cell]) -> str:
    """Say why binding to cores does not show; nothing where processes are not held to a rate."""
    limits = [(cell.put_in_bit_per_s or 0.0) / float(str(cell.factors.get("processes") or 1)) for cell in cells]
    if not all(limits):
        return ""
    return (
        f"Affinity cannot show here: the testbed holds a process to {bit_rate(max(limits))}, so that its core matters only if it cannot do that, "
        "and all hosts of a lab share the cores of one machine. Ratios of affinity tell how far two measurements of one thing are apart."
    )


def _clients_note(cells: Sequence[Cell]) -> str:
    shares = [cell.busy_ratio for cell in cells if cell.busy_ratio is not None]
    if not shares:
        return ""
    return (
        f"Of what the processes may send, as few clients as here get about {min(shares):.0%} to {max(shares):.0%}: a process that nobody "
        "happens to have chosen is idle. Where that share differs more than the printed rates do, more clients help here for another reason "
        "than there."
    )


def _twin(cell: Cell, name: str, value: Scalar, cells: Sequence[Cell]) -> Cell | None:
    """Return the cell that differs in this factor alone; the group's name and what follows from the factor do not count."""
    follows = {name, "group", "clients_per_nic"}
    wanted = {key: one for key, one in cell.factors.items() if key not in follows}
    for other in cells:
        if (
            other.factors.get(name) == value
            and {k: v for k, v in other.factors.items() if k not in follows} == wanted
        ):
            return other
    return None


def directions_table(cells: Sequence[Cell], published: Rates) -> Table:
    """Return direction against direction, the fewest and the most processes of each: their numbers differ from one to the other."""
    measured = [cell for cell in cells if cell.rate_bit_per_s and isinstance(cell.factors.get("processes"), int)]
    directions = list(dict.fromkeys(str(c.factors["direction"]) for c in measured if "direction" in c.factors))
    first, second = directions if len(directions) == 2 else ("", "")
    alike = [name for name in ("pairing", "clients", "affinity", "mover") if name in labels_of(cells)]
    rows: list[tuple[Scalar, ...]] = []
    for values in dict.fromkeys(tuple(cell.factors.get(name) for name in alike) for cell in measured):
        same = [cell for cell in measured if tuple(cell.factors.get(name) for name in alike) == values]
        ways = [[cell for cell in same if cell.factors.get("direction") == way] for way in (first, second)]
        if not all(ways):
            continue
        several = all(len({cell.factors["processes"] for cell in way}) > 1 for way in ways)
        for which, choose in (("fewest", min), ("most", max))[0 if several else 1 :]:
            here, there = (choose(way, key=lambda cell: int(str(cell.factors["processes"]))) for way in ways)
            printed, also = published.get(key_of(here)), published.get(key_of(there))
            rows.append(
                (*values, which, here.factors["processes"], here.rate_bit_per_s, there.factors["processes"], there.rate_bit_per_s,
                 (there.rate_bit_per_s or 0) / (here.rate_bit_per_s or 1), also / printed if also and printed else None)
            )  # fmt: skip
    columns = (
        *(column_of(name) for name in alike), Column("which", "processes"),
        Column("first_processes", f"processes, {first}"), Column("first_bit_per_s", f"rate, {first}"),
        Column("second_processes", f"processes, {second}"), Column("second_bit_per_s", f"rate, {second}"),
        Column("second_ratio", "second to first"), Column("published_ratio", "published, second to first", published=True),
    )  # fmt: skip
    note = "The two sites have other numbers of processes, so the fewest of each stand beside each other, and the most; all else is the same."
    return Table("clients-directions", f"{first} against {second}", columns, tuple(rows), note)


def interfaces_table(cells: Sequence[Cell]) -> Table:
    """Return the interfaces that are worse than others of their host, and what all would come to at most if they were as good."""
    names = labels_of(cells)
    rows: list[tuple[Scalar, ...]] = []
    for cell in cells:
        for one in cell.worse:
            kept = cell.total[0].kept_ratio if cell.total else None
            if kept is None or not cell.rate_bit_per_s or not one.others_bit_per_s:
                continue
            healthy = _healthy_bit_per_s(cell, max(0.0, one.others_bit_per_s - one.rate_bit_per_s) * kept)
            head = tuple(cell.factors.get(name) for name in names)
            rows.append(
                (*head, one.name, one.rate_bit_per_s, one.others_bit_per_s, one.rate_bit_per_s / one.others_bit_per_s, cell.rate_bit_per_s,
                 healthy, healthy / cell.rate_bit_per_s)
            )  # fmt: skip
    columns = (
        *(column_of(name) for name in names),
        Column("interface", "interface"), Column("rate_bit_per_s", "its rate"), Column("others_bit_per_s", "the others of its host, mean"),
        Column("others_ratio", "it to the others"), Column("all_bit_per_s", "all clients"),
        Column("healthy_bit_per_s", "all, were it healthy: at most"), Column("gain_ratio", "at most to measured"),
    )  # fmt: skip
    note = (
        "Rates of interfaces are those on the wire. Were it healthy, it would carry what the others of its host do, and these no less: that is "
        "the most, for where servers limit, what one interface does not carry others do already. No more is counted than processes may send."
    )
    return Table("clients-interfaces", "What if all interfaces were healthy?", columns, tuple(rows), note)


def _healthy_bit_per_s(cell: Cell, missing_bit_per_s: float) -> float:
    """Return the rate with what is missing, no more than the processes may send, and no less than was measured."""
    measured = cell.rate_bit_per_s or 0.0
    most = float("inf") if cell.put_in_bit_per_s is None else cell.put_in_bit_per_s * (cell.busy_ratio or 1.0)
    return max(measured, min(measured + missing_bit_per_s, most))
