"""Testbed of a scenario: tables of hosts, storages, routers, links and services."""

# ruff: noqa: ANN401 - a TOML value has any type before its validation
from __future__ import annotations

import fnmatch
import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from venturi.messages import quote_value
from venturi.scenario.cost import CostTable
from venturi.scenario.fields import (
    Delay,
    DelayPair,
    LossText,
    Moment,
    Name,
    Number,
    Probability,
    QueueText,
    Rate,
    RatePair,
    ScenarioTable,
    Size,
    Text,
    Truth,
    Whole,
    validation_error,
)

__all__ = ["HostTable", "LinkChangeTable", "LinkTable", "RouterTable", "ServiceTable", "StorageTable", "TestbedTable"]

MAX_CPU = 4095
"""Highest number of a core; Linux supports at most 8192 cores."""

MAX_PORTS = 1000
"""Maximum number of ports of a service."""

MAX_PORT = 65535

MIN_MTU, MAX_MTU = 576, 65521
"""Packet size that every IPv4 host must accept, and maximum of a TUN device including its header."""


def _distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if values.count(value) > 1:
            raise validation_error(
                f'expected distinct values, found "{value}" {values.count(value)} times; remove the duplicates'
            )
    return values


def _some(cores: tuple[int, ...]) -> tuple[int, ...]:
    if not cores or len(set(cores)) < len(cores):
        raise validation_error(
            f"expected one or more distinct core numbers, found {quote_value(cores)}; write a list such as [0, 1]"
        )
    return cores


Names = Annotated[tuple[Text, ...], AfterValidator(_distinct)]


def _ssh(destination: str) -> str:
    """Reject an empty destination, and a destination that ssh would read as an option."""
    if not destination or destination.startswith("-") or any(letter.isspace() for letter in destination):
        raise validation_error(
            f"expected an ssh destination such as user@host, found {quote_value(destination)};"
            " write a host, or an alias of the ssh configuration"
        )
    return destination


def _connect(words: Any) -> tuple[str, ...]:
    is_command = isinstance(words, (list, tuple)) and words and all(isinstance(word, str) and word for word in words)
    if is_command and not words[0].startswith("-"):
        return tuple(words)
    raise validation_error(
        'expected the words of a command that starts a program on the host, such as ["podman", "exec", "-i", "dtn"],'
        f" found {quote_value(words)}; write a list of texts"
    )


_HOST_NAME = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?([.][A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*[.]?"
)


def _address(text: str) -> str:
    """Return a host name or an IP address; an IPv6 address without brackets."""
    plain = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        if ":" in plain:
            ipaddress.IPv6Address(plain)
            return plain
        if plain == text and (_HOST_NAME.fullmatch(text) or ipaddress.IPv4Address(text)):
            return text
    except ValueError:
        pass
    raise validation_error(
        f"expected a host name or an IP address without port and scheme, found {quote_value(text)};"
        " write only the name or the address"
    )


def _open_ports(value: Any) -> tuple[int, int]:
    """Return the first and the last port of a range."""
    match = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", value) if isinstance(value, str) else None
    ports = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= ports[0] <= ports[1] <= MAX_PORT:
        raise validation_error(
            f'expected a range of ports such as "50000-50100", found {quote_value(value)}; write the first and the last port'
        )
    return ports


def _cache(path: str) -> str:
    if not path.startswith("/") or ".." in path.split("/"):
        raise validation_error(
            f"expected the full path of a directory of the host, found {quote_value(path)}; start it with /"
        )
    return path


_SECRET = re.compile("TOKEN|SECRET|PASSWORD|PASSWD|KEY", re.IGNORECASE)


def _environment(variables: dict[str, str]) -> dict[str, str]:
    """Reject variables that contain a secret. A scenario is copied into the run and into reports."""
    for name, value in variables.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise validation_error(
                f"expected names of letters, digits and _, found {quote_value(name)}; correct the name of the variable"
            )
        if "\0" in value:
            raise validation_error(f"expected a value of {name} without a null character, found one; remove it")
        if _SECRET.search(name) and value and not value.startswith("/"):
            raise validation_error(
                f"expected no secret in {name} (Venturi stores the scenario with the run), found a literal value;"
                " put the secret in a file of the host and set the path of the file, as in"
                ' BEARER_TOKEN_FILE = "/home/alice/token"'
            )
    return variables


def _server_url(url: str) -> str:
    """Reject a URL without a scheme or a host, and one with a password."""
    try:
        parts = urlsplit(url)
        good = bool(parts.scheme and parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good or any(letter.isspace() for letter in url) or set(url) & set("{}"):
        raise validation_error(
            f'expected the URL of a server, such as "tcp://perf.example.org:5201", found {quote_value(url)}; write scheme, host and port'
        )
    # The path of an SRM server follows its endpoint.
    is_path = parts.scheme == "srm" and parts.query.startswith("SFN=/") and "&" not in parts.query
    if parts.password is not None or (parts.query and not is_path) or parts.fragment:
        raise validation_error(
            "expected a URL without password, query and fragment (Venturi stores the scenario with the run), found one;"
            " remove it and use a file with the credential"
        )
    return url


class HostTable(ScenarioTable):
    """A host: an existing one, or one that the lab creates."""

    ssh: Annotated[Text, AfterValidator(_ssh)] | None = Field(
        None, description="Destination for ssh, such as user@host. Default: this host. The lab ignores it."
    )
    connect: (
        Annotated[
            tuple[str, ...],
            PlainValidator(_connect),
            PlainSerializer(list),
            WithJsonSchema({"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}),
        ]
        | None
    ) = Field(
        None,
        description='Instead of ssh: words of the command that starts a program on the host, such as ["podman", "exec", "-i", "dtn"]. The lab ignores it.',
    )
    address: Annotated[Text, AfterValidator(_address)] | None = Field(
        None, description="Name or address for data connections. Default: the host name of ssh. The lab ignores it."
    )
    open_ports: (
        Annotated[
            tuple[int, int],
            PlainValidator(_open_ports),
            PlainSerializer(lambda ports: f"{ports[0]}-{ports[1]}"),
            WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,5}-[0-9]{1,5}$", "examples": ["50000-50100"]}),
        ]
        | None
    ) = Field(
        None,
        description='Ports of an existing host that other hosts can reach, such as "50000-50100". Default: any free ports.',
    )
    cache: Annotated[Text, AfterValidator(_cache)] | None = Field(
        None,
        description="Directory of an existing host for the program of Venturi. Default: a cache directory of the user.",
    )
    environment: Annotated[dict[str, Text], AfterValidator(_environment)] | None = Field(
        None, description="Environment variables of the movers on an existing host, such as paths of credentials."
    )
    memory: Size | None = Field(None, description="Memory size, for datasets that must be larger than memory.")
    site: Text | None = Field(None, description="Site, for reports and diagrams.")
    cpus: Annotated[tuple[Annotated[Whole, Field(ge=0, le=MAX_CPU)], ...], AfterValidator(_some)] | None = Field(
        None, description="In the lab: CPU cores of its processes."
    )
    cpu_limit: Annotated[Number, Field(gt=0, le=MAX_CPU)] | None = Field(
        None, description="In the lab: CPU limit of all its processes, in cores."
    )
    memory_limit: Size | None = Field(None, description="In the lab: memory limit of all its processes.")
    congestion_control: Annotated[Text, Field(min_length=1)] | None = Field(
        None, description="In the lab: TCP congestion control. Default: cubic."
    )
    tcp: Text | None = Field(
        None, description="In the lab: profile of TCP settings: default, wan, or a name of [testbed.tcp]."
    )
    nat: Names = Field(
        (),
        description="In the lab: interfaces, links or neighbours towards which the host translates private addresses (NAT).",
    )


def _directory(path: str) -> str:
    """Reject shell syntax, and relative paths out of the scratch directory."""
    if path.startswith("~") or "$" in path:
        raise validation_error(f"expected a path without ~ and $, found {quote_value(path)}; write the full path")
    if not path.startswith("/") and ".." in path.split("/"):
        raise validation_error(
            f"expected a path below the scratch directory, or an absolute path, found {quote_value(path)}; remove .."
        )
    return path


STORAGE_SCHEMES = ("gsiftp", "ftp", "http", "https", "dav", "davs", "root", "roots", "srm", "s3", "s3s", "sftp")
"""Schemes of storages on existing servers."""


def _storage_urls(value: Any) -> tuple[str, ...]:
    """Return the URLs of a storage: one text, or a list of texts with different schemes."""
    urls = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, (list, tuple)) else ()
    if not urls or not all(isinstance(url, str) for url in urls):
        raise validation_error(
            f'expected a URL such as "davs://se.example.org/dir", or a list of URLs, found {quote_value(value)}; write a text'
        )
    schemes = [urlsplit(_server_url(url)).scheme for url in urls]
    for url, scheme in zip(urls, schemes, strict=True):
        if scheme not in STORAGE_SCHEMES:
            raise validation_error(
                f"expected a URL with one of the schemes {', '.join(STORAGE_SCHEMES)}, found {quote_value(url)}; use the"
                " URL of a file server"
            )
        if scheme in ("root", "roots") and not urlsplit(url).path.startswith("//"):
            raise validation_error(
                f"expected two slashes before the path of an XRootD URL, found {quote_value(url)}; write"
                f' "{scheme}://{urlsplit(url).netloc}//PATH"'
            )
        if "//" in urlsplit(url).path.lstrip("/") or (
            not scheme.startswith("root") and urlsplit(url).path.startswith("//")
        ):
            raise validation_error(
                f"expected a path without empty parts, found {quote_value(url)}; write one slash between its parts"
            )
        if schemes.count(scheme) > 1:
            raise validation_error(
                f"expected one URL for each scheme, found {schemes.count(scheme)} with {scheme}; define a storage for each"
            )
    return urls


def _omit_empty(text: str) -> str | None:
    return text or None


class StorageTable(ScenarioTable):
    """A directory of a host, or of existing servers."""

    host: Annotated[Text, PlainSerializer(_omit_empty)] = Field(
        "",
        description="Host of the storage. With url: the host whose programs and credentials handle its files; default: the only host with other storages.",
    )
    path: Annotated[Text, Field(min_length=1), AfterValidator(_directory), PlainSerializer(_omit_empty)] = Field(
        "", description="Directory; a relative path is below the scratch directory. Required without url."
    )
    url: Annotated[
        tuple[str, ...],
        PlainValidator(_storage_urls),
        PlainSerializer(lambda urls: urls[0] if len(urls) == 1 else list(urls) or None),
        WithJsonSchema(
            {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
        ),
    ] = Field(
        (),
        description="Instead of path: URL of a directory on an existing server, or one URL for each of its schemes. Venturi handles the files through the first one.",
    )
    checksum: Literal["adler32", "md5", "sha256"] | None = Field(
        None, description="With url: algorithm of the checksums that verify each transfer. Default: only sizes."
    )
    existing: Annotated[Text, Field(min_length=1)] | Literal[True] | None = Field(
        None,
        description="Your own files in the storage as sources, never changed or removed. A file with their paths, one per line, relative to the scenario file. Or true: Venturi lists the directory.",
    )
    rate: Rate | None = Field(None, description="Rate for the time estimate; not a limit.")
    kind: Literal["directory", "tmpfs", "disk"] | None = Field(
        None, description="In the lab: a directory, memory (tmpfs), or a separate file system (disk)."
    )
    size: Size | None = Field(None, description="In the lab: capacity.")
    read_rate: Rate | None = Field(None, description="In the lab, for a disk: maximum read rate.")
    write_rate: Rate | None = Field(None, description="In the lab, for a disk: maximum write rate.")
    shared: Names = Field((), description="Other hosts with the same storage.")

    _directory: Path = PrivateAttr(Path())

    @model_validator(mode="after")
    def _find_directory(self, info: ValidationInfo) -> StorageTable:
        if isinstance(self.existing, str):
            self._directory = Path((info.context or {}).get("directory", Path()))
        return self

    @property
    def list_path(self) -> Path | None:
        """Path of the file of ``existing``; ``None`` without a list."""
        return self._directory / self.existing if isinstance(self.existing, str) else None


class RouterTable(ScenarioTable):
    """A router that connects links."""

    site: Text | None = Field(None, description="Site, for reports and diagrams.")


def _between(value: Any) -> tuple[str, str]:
    if not isinstance(value, (list, tuple)) or len(value) != 2 or not all(isinstance(end, str) for end in value):
        raise validation_error(
            f'expected two names such as ["a", "core"], found {quote_value(value)}; write two names'
        )
    return value[0], value[1]


class LinkTable(ScenarioTable):
    """A link with both directions."""

    between: Annotated[
        tuple[str, str],
        PlainValidator(_between),
        PlainSerializer(list),
        WithJsonSchema({"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}),
    ] = Field(description="Two nodes: a router, a host (its next interface), or an interface such as host.eth1.")
    rate: RatePair = Field(description="Rate of each direction, or a list with one rate for each direction.")
    delay: DelayPair | None = Field(None, description="One-way delay.")
    rtt: Delay | None = Field(None, description="Round-trip time, instead of delay.")
    jitter: Delay = Field(0.0, description="Standard deviation of the delay.")
    queue: QueueText | None = Field(
        None, description="Size of the queue: bytes, or a multiple of the bandwidth-delay product (BDP)."
    )
    loss: LossText | None = Field(None, description="Loss probability of a packet, or a table for bursts.")
    reorder: Probability = Field(0.0, description="Probability that a packet overtakes earlier packets.")
    mtu: Annotated[Whole, Field(ge=MIN_MTU, le=MAX_MTU)] | None = Field(
        None, description="MTU of the interfaces, in bytes. Default: 1500."
    )
    overhead: Size = Field(0, description="Link-layer bytes of each packet, such as 38 B for Ethernet.")
    offload: Truth = Field(True, description="Segmentation offload of the interfaces.")
    private: Names = Field((), description="Hosts with a private address on this link.")


class LinkChangeTable(ScenarioTable):
    """Change of a link during a run."""

    at: Moment = Field(description="Time since the start of the run.")
    link: Text = Field(description='Link (both directions), or one direction such as "a>core".')
    rate: RatePair | None = Field(None, description="New rate.")
    delay: DelayPair | None = Field(None, description="New one-way delay.")
    jitter: Delay | None = Field(None, description="New standard deviation of the delay.")
    queue: QueueText | None = Field(None, description="New queue.")
    loss: LossText | None = Field(None, description="New loss; 0 disables it.")
    reorder: Probability | None = Field(None, description="New probability of reordering.")
    up: Truth | None = Field(None, description="false starts an outage, true ends it.")


def _ports(value: Any) -> int | tuple[int, ...]:
    if type(value) is int and 1 <= value <= MAX_PORTS:
        return value
    if isinstance(value, (list, tuple)) and 1 <= len(value) <= MAX_PORTS:
        numbers = tuple(port for port in value if type(port) is int and 1 <= port <= MAX_PORT)
        if len(set(numbers)) == len(value):
            return numbers
    raise validation_error(
        f"expected a number of ports (1 to {MAX_PORTS}) or distinct port numbers, found {quote_value(value)}; change it"
    )


class ServiceTable(ScenarioTable):
    """A server program on a host, or an existing server."""

    kind: Text = Field(description="Kind of the server program.")
    host: Text | None = Field(None, description="Host of the service. Required without url.")
    url: Annotated[Text, AfterValidator(_server_url)] | None = Field(
        None,
        description="URL of an existing server that Venturi does not start, such as tcp://perf.example.org:5201.",
    )
    storage: Names = Field((), description="Storages that the service exports.")
    interface: Text | None = Field(
        None, description="Network interface that it listens on. Default: the first interface of the host."
    )
    after: Names = Field((), description="Services that must be ready before this one starts.")
    options: Annotated[
        dict[str, Any],
        WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "integer", "boolean"]}}),
    ] = Field({}, description="Options of the kind.")
    ports: Annotated[
        int | tuple[int, ...],
        PlainValidator(_ports),
        PlainSerializer(lambda ports: ports if isinstance(ports, int) else list(ports)),
        WithJsonSchema(
            {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "array", "items": {"type": "integer"}}]}
        ),
    ] = Field(1, description="Number of ports, or a list of port numbers.")


def _settings(value: Any) -> dict[str, str]:
    """Return kernel settings by their dotted names; TOML converts unquoted dots to tables."""
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
        raise validation_error(
            f'expected a text or a whole number such as "4096 131072 33554432"{where}, found {quote_value(value)}; use quotes'
        )


Settings = Annotated[
    dict[str, str],
    PlainValidator(_settings),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "integer", "object"]}}),
]


class TestbedTable(ScenarioTable):
    """Hosts, network, storages and services."""

    host: dict[Name, HostTable] = Field({}, description="Hosts, by name.")
    router: dict[Name, RouterTable] = Field({}, description="Routers, by name.")
    link: dict[Name, LinkTable] = Field({}, description="Links, by name.")
    change: tuple[LinkChangeTable, ...] = Field((), description="Changes of links during the run.")
    tcp: dict[Name, Settings] = Field({}, description="Profiles of TCP settings (sysctls of a host), by name.")
    storage: dict[Name, StorageTable] = Field({}, description="Storages, by name.")
    service: dict[Name, ServiceTable] = Field({}, description="Services, by name.")
    cost: CostTable | None = Field(None, description="Costs of transfers in a simulation, instead of the defaults.")
    without: Names = Field(
        (),
        exclude=True,
        description="Hosts to remove, with their links, storages and services, and further services to remove. `*` matches any text.",
    )

    @model_validator(mode="before")
    @classmethod
    def _remove_parts(cls, written: Any) -> Any:
        """Remove the parts of ``without``, so that an override can reduce a testbed; the written document contains no trace."""
        patterns = written.get("without") if isinstance(written, dict) else None
        if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
            return written
        hosts, services = (
            {name for pattern in patterns for name in fnmatch.filter(table, pattern)}
            for table in (
                written.get(kind) if isinstance(written.get(kind), dict) else {} for kind in ("host", "service")
            )
        )
        # The remaining names are unknown; the check of names rejects them.
        unknown = [one for one in dict.fromkeys(patterns) if not fnmatch.filter(hosts | services, one)]
        return {**_remove_parts(written, hosts, services), "without": unknown}

    @model_validator(mode="before")
    @classmethod
    def _default_storage_hosts(cls, written: Any) -> Any:
        """Set the host of storages with a URL, if only one host is possible."""
        storages = written.get("storage") if isinstance(written, dict) else None
        if not isinstance(storages, dict) or not isinstance(written.get("host"), dict):
            return written
        others = {
            part["host"] for part in storages.values() if isinstance(part, dict) and isinstance(part.get("host"), str)
        }
        names = sorted(others) or list(written["host"])
        if len(names) != 1:
            return written
        return written | {
            "storage": {
                name: {"host": names[0], **part} if isinstance(part, dict) and "url" in part else part
                for name, part in storages.items()
            }
        }

    @property
    def has_remote_hosts(self) -> bool:
        """Whether any host has ``ssh`` or ``connect``."""
        return any(host.ssh is not None or host.connect is not None for host in self.host.values())

    @property
    def needs_lab(self) -> bool:
        """Whether the testbed has parts for a lab: a network, limits of hosts or separate file systems.

        On existing hosts, these parts are expectations.
        """
        return bool(
            self.router
            or self.link
            or any(_needs_lab(host) for host in self.host.values())
            or any(storage.kind is not None for storage in self.storage.values())
        )


def _remove_parts(written: dict[str, Any], names: set[str], services: set[str]) -> dict[str, Any]:
    """Return a testbed without these hosts and services. Malformed tables stay; the models reject them."""

    def is_kept(kind: str, part: Any) -> bool:
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
            found[kind] = {name: part for name, part in found[kind].items() if is_kept(kind, part)}
    if isinstance(found.get("service"), dict):
        found["service"] = {name: part for name, part in found["service"].items() if name not in services}
    if isinstance(found.get("storage"), dict):
        found["storage"] = {name: _remove_shared_hosts(part, names) for name, part in found["storage"].items()}
    if isinstance(found.get("cost"), dict):
        found["cost"] = _remaining_costs(found["cost"], written, found)
    return found


def _remaining_costs(cost: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    remaining = dict(cost)
    for kind in ("host", "storage", "service"):
        if isinstance(cost.get(kind), dict) and isinstance(before.get(kind), dict):
            removed = before[kind].keys() - after[kind].keys()
            remaining[kind] = {name: part for name, part in cost[kind].items() if name not in removed}
    return remaining


def _remove_shared_hosts(storage: Any, names: set[str]) -> Any:
    if not isinstance(storage, dict) or not isinstance(storage.get("shared"), list):
        return storage
    return {**storage, "shared": [host for host in storage["shared"] if host not in names]}


def _needs_lab(host: HostTable) -> bool:
    made = (host.cpus, host.cpu_limit, host.memory_limit, host.congestion_control, host.tcp)
    return bool(host.nat) or any(value is not None for value in made)
