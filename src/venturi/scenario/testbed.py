"""The testbed of a scenario: hosts, storage, routers, links, services; what each of its tables may hold."""

# ruff: noqa: ANN401 - a TOML value is of any type until it has been looked at here
from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, WithJsonSchema, model_validator

from venturi.plan.words import shown
from venturi.scenario.cost import Cost
from venturi.scenario.fields import (
    Delay,
    DelayPair,
    LossText,
    Moment,
    Name,
    Number,
    Part,
    Probability,
    QueueText,
    Rate,
    RatePair,
    Size,
    Text,
    Truth,
    Whole,
    refuse,
)

__all__ = ["Change", "Host", "Link", "Router", "Service", "Storage", "Testbed"]

MAX_CPU = 4095
"""The highest number of a core; Linux is built for 8192 at most."""

MAX_PORTS = 1000
"""Ports of one service."""

MIN_MTU, MAX_MTU = 576, 65521
"""The shortest packet that every IPv4 host must take, and the longest that a TUN device passes with its header."""


def _distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if values.count(value) > 1:
            raise refuse(f'expected distinct values, found "{value}" {values.count(value)} times')
    return values


def _some(cores: tuple[int, ...]) -> tuple[int, ...]:
    if not cores or len(set(cores)) < len(cores):
        raise refuse(f"expected distinct numbers of cores, one or more, found {shown(cores)}")
    return cores


Names = Annotated[tuple[Text, ...], AfterValidator(_distinct)]


class Host(Part):
    """A machine: one that exists, or one that the lab makes."""

    ssh: Text | None = Field(None, description="How it is reached, as for ssh; without it: this machine.")
    memory: Size | None = Field(None, description="For data sets that must be larger than memory.")
    site: Text | None = Field(None, description="Where it stands; for people and pictures.")
    cpus: Annotated[tuple[Annotated[Whole, Field(ge=0, le=MAX_CPU)], ...], AfterValidator(_some)] | None = Field(
        None, description="In the lab: the cores that its processes are pinned to."
    )
    cpu_limit: Annotated[Number, Field(gt=0, le=MAX_CPU)] | None = Field(
        None, description="In the lab: how many cores its processes may use together."
    )
    memory_limit: Size | None = Field(None, description="In the lab: how much memory its processes may use together.")
    congestion_control: Annotated[Text, Field(min_length=1)] | None = Field(
        None, description="In the lab: of its TCP sockets; cubic if not given."
    )
    tcp: Text | None = Field(
        None, description="In the lab: a profile of TCP settings: default, wan, or one of one's own."
    )
    nat: Names = Field((), description="In the lab: where it hides hosts with private addresses behind its own.")


def _directory(path: str) -> str:
    """Refuse what only a shell would understand, and what leads out of the scratch directory by a back door."""
    if path.startswith("~") or "$" in path:
        raise refuse(f"expected a path written out, for no shell reads it, found {shown(path)}")
    if not path.startswith("/") and ".." in path.split("/"):
        raise refuse(f"expected a path below the scratch directory, or one that begins with /, found {shown(path)}")
    return path


class Storage(Part):
    """A directory of a host."""

    host: Text = Field(description="The name of a host.")
    path: Annotated[Text, Field(min_length=1), AfterValidator(_directory)] = Field(
        description="A directory; a relative one is below the scratch directory."
    )
    rate: Rate | None = Field(None, description="Only for the estimate of time.")
    kind: Literal["directory", "tmpfs", "disk"] | None = Field(
        None, description="In the lab: a directory as any other, memory, or a file system of its own."
    )
    size: Size | None = Field(None, description="In the lab: how much it holds.")
    read_rate: Rate | None = Field(None, description="In the lab, of a disk: the fastest that it is read.")
    write_rate: Rate | None = Field(None, description="In the lab, of a disk: the fastest that it is written.")
    shared: Names = Field((), description="Other hosts that have it too, as members of a storage network do.")


class Router(Part):
    """A place where links meet."""

    site: Text | None = Field(None, description="Where it stands; for people and pictures.")


def _between(value: Any) -> tuple[str, str]:
    if not isinstance(value, (list, tuple)) or len(value) != 2 or not all(isinstance(end, str) for end in value):
        raise refuse(f'expected two names such as ["a", "core"], found {shown(value)}')
    return value[0], value[1]


class Link(Part):
    """A link, both directions of it."""

    between: Annotated[
        tuple[str, str],
        PlainValidator(_between),
        PlainSerializer(list),
        WithJsonSchema({"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}),
    ] = Field(description="Its two ends: a router, a host (its next interface), or host.eth1 (that interface).")
    rate: RatePair = Field(description="Of each direction; two values: there, back.")
    delay: DelayPair | None = Field(None, description="One way.")
    rtt: Delay | None = Field(None, description="Both ways together, in place of delay.")
    jitter: Delay = Field(0.0, description="Standard deviation of the delay.")
    queue: QueueText | None = Field(None, description="What waits before it: a size, or multiples of the BDP.")
    loss: LossText | None = Field(None, description="Probability that a packet is lost, or a table for bursts.")
    reorder: Probability = Field(0.0, description="Probability that a packet overtakes those before it.")
    mtu: Annotated[Whole, Field(ge=MIN_MTU, le=MAX_MTU)] | None = Field(
        None, description="Longest packet of the interfaces at its ends, in bytes; 1500 if not given."
    )
    overhead: Size = Field(0, description="What a packet takes beyond its IP bytes, such as 38 B for Ethernet.")
    offload: Truth = Field(True, description="Whether the interfaces at its ends cut large packets themselves.")
    private: Names = Field((), description="Ends that have a private address.")


class Change(Part):
    """What becomes different on a link during a run."""

    at: Moment = Field(description="When, counted from the start of the run.")
    link: Text = Field(description='A link (both directions), or one direction as "a>core".')
    rate: RatePair | None = Field(None, description="New rate.")
    delay: DelayPair | None = Field(None, description="New delay, one way.")
    jitter: Delay | None = Field(None, description="New standard deviation of the delay.")
    queue: QueueText | None = Field(None, description="New queue.")
    loss: LossText | None = Field(None, description="New loss; 0 ends it.")
    reorder: Probability | None = Field(None, description="New probability of reordering.")
    up: Truth | None = Field(None, description="false: an outage begins; true: it ends.")


def _ports(value: Any) -> int | tuple[int, ...]:
    if type(value) is int and 1 <= value <= MAX_PORTS:
        return value
    if isinstance(value, (list, tuple)) and 1 <= len(value) <= MAX_PORTS:
        numbers = tuple(port for port in value if type(port) is int and 1 <= port <= 65535)
        if len(set(numbers)) == len(value):
            return numbers
    raise refuse(
        f"expected how many ports (1 to {MAX_PORTS}) or a list of distinct port numbers, found {shown(value)}"
    )


class Service(Part):
    """A server program on a host."""

    kind: Text = Field(description="Which program.")
    host: Text = Field(description="The name of a host.")
    storage: Names = Field((), description="The storages that it serves.")
    interface: Text | None = Field(
        None, description="The device whose address it serves on; the host's first if not given."
    )
    after: Names = Field((), description="Services that must be ready before it starts.")
    options: Annotated[
        dict[str, Any],
        WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "integer", "boolean"]}}),
    ] = Field({}, description="Options of its kind.")
    ports: Annotated[
        int | tuple[int, ...],
        PlainValidator(_ports),
        PlainSerializer(lambda ports: ports if isinstance(ports, int) else list(ports)),
        WithJsonSchema(
            {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "array", "items": {"type": "integer"}}]}
        ),
    ] = Field(1, description="How many ports it listens on, or which.")


def _settings(value: Any) -> dict[str, str]:
    """Return kernel settings by their dotted names; TOML makes tables of dots that are not quoted."""
    found: dict[str, str] = {}
    _flatten(value, "", found)
    return found


def _flatten(value: Any, name: str, found: dict[str, str]) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _flatten(item, f"{name}.{key}" if name else str(key), found)
    elif name and (isinstance(value, str) or type(value) is int):
        found[name] = " ".join(str(value).split())
    else:
        where = f" under {name}" if name else ""
        raise refuse(f'expected a text or a whole number such as "4096 131072 33554432"{where}, found {shown(value)}')


Settings = Annotated[
    dict[str, str],
    PlainValidator(_settings),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "integer", "object"]}}),
]


class Testbed(Part):
    """Where things are."""

    host: dict[Name, Host] = Field({}, description="The machines, by name.")
    router: dict[Name, Router] = Field({}, description="The routers, by name.")
    link: dict[Name, Link] = Field({}, description="The links, by name.")
    change: tuple[Change, ...] = Field((), description="What becomes different on links, and when.")
    tcp: dict[Name, Settings] = Field({}, description="Profiles of TCP settings: sysctls of a host, by name.")
    storage: dict[Name, Storage] = Field({}, description="The storages, by name.")
    service: dict[Name, Service] = Field({}, description="The server programs, by name.")
    cost: Cost | None = Field(None, description="What transfers cost in a simulated world, where not by default.")
    without: Names = Field(
        (),
        exclude=True,
        description="Hosts that are left out, with the links, storages and services that are theirs.",
    )

    @model_validator(mode="before")
    @classmethod
    def _leave_out(cls, written: Any) -> Any:
        """Leave out what ``without`` says, so that an override makes a testbed smaller; a document that is written has no trace of it."""
        names = written.get("without") if isinstance(written, dict) else None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return written
        hosts = written.get("host") if isinstance(written.get("host"), dict) else {}
        # What is left in it names no host, and is refused where names are checked.
        unknown = [name for name in dict.fromkeys(names) if name not in hosts]
        return {**_reduced(written, set(names)), "without": unknown}

    @property
    def is_lab(self) -> bool:
        """Whether it is one that has to be made: a network, services, limits of hosts, file systems of its own."""
        return bool(
            self.router
            or self.link
            or self.service
            or any(_is_made(host) for host in self.host.values())
            or any(storage.kind is not None for storage in self.storage.values())
        )


def _reduced(written: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """Return a testbed without these hosts. What is not of the form that it should have is left for the models to refuse."""

    def stays(kind: str, part: Any) -> bool:
        if not isinstance(part, dict):
            return True
        if kind == "link":
            ends = part.get("between")
            return not isinstance(ends, list) or not any(str(end).partition(".")[0] in names for end in ends)
        return part.get("host") not in names

    found = dict(written)
    if isinstance(found.get("host"), dict):
        found["host"] = {name: host for name, host in found["host"].items() if name not in names}
    for kind in ("link", "storage", "service"):
        if isinstance(found.get(kind), dict):
            found[kind] = {name: part for name, part in found[kind].items() if stays(kind, part)}
    if isinstance(found.get("storage"), dict):
        found["storage"] = {name: _unshared(part, names) for name, part in found["storage"].items()}
    if isinstance(found.get("cost"), dict):
        found["cost"] = _costs_of_what_is_left(found["cost"], written, found)
    return found


def _costs_of_what_is_left(cost: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    left = dict(cost)
    for kind in ("host", "storage", "service"):
        if isinstance(cost.get(kind), dict) and isinstance(before.get(kind), dict):
            gone = before[kind].keys() - after[kind].keys()
            left[kind] = {name: part for name, part in cost[kind].items() if name not in gone}
    return left


def _unshared(storage: Any, names: set[str]) -> Any:
    if not isinstance(storage, dict) or not isinstance(storage.get("shared"), list):
        return storage
    return {**storage, "shared": [host for host in storage["shared"] if host not in names]}


def _is_made(host: Host) -> bool:
    made = (host.cpus, host.cpu_limit, host.memory_limit, host.congestion_control, host.tcp)
    return bool(host.nat) or any(value is not None for value in made)
