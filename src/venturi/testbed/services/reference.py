"""Reference page of the services, generated from their table."""

from __future__ import annotations

from venturi.mover.base import Option
from venturi.plan.header import OptionValue
from venturi.testbed.services.base import ServiceKind, ServiceSpec, find_hosts_obstacle
from venturi.testbed.services.table import SERVICES
from venturi.units import format_bytes_exact

__all__ = ["services_reference"]

_HEAD = """\
# Services

<!-- Generated from the table in venturi.testbed.services by `services_reference()`. Change it there. -->

A service is a real server program, in a lab or on an existing host. Venturi creates its configuration, keys and
certificates in a temporary directory and removes them at the end. In a scenario:

```toml
[testbed.service.gridftp-a]
kind = "gridftp"
host = "a"
storage = ["disk"]
ports = 2                      # number of ports, or a list: [2811, 2812]
options = { auth = "gsi" }
```

Clients connect to the service ports. In a URL template, `{path}` is the absolute path of a file, `{relative}` is its
path below the storage, and `{port}` is one of the ports; transfer slots use them in turn. `venturi doctor` lists
missing programs with their Debian packages.

On existing hosts, services run with the account of the user and serve only their storages. They require credentials of
the run, or accept only the addresses of the testbed; `open = true` admits all addresses. Venturi selects free ports,
from `open_ports` of the host if set. The servers of network tests (`iperf3`, `nuttcp`) accept all clients: they access no
files.
"""


def services_reference() -> str:
    """Return the page as Markdown."""
    return "\n".join([_HEAD, *(_section(service) for service in sorted(SERVICES.values(), key=lambda one: one.kind))])


def _section(service: ServiceKind) -> str:
    programs: dict[str, list[str]] = {}
    for package in service.packages:
        programs.setdefault(package.package, []).append(f"`{package.program}`")
    needs = "; ".join(f"{', '.join(names)} (`{package}`)" for package, names in programs.items())
    needs = f"Needs {needs}" if needs else "Needs no other program"
    ports = f" First port {service.default_ports[0]}." if service.default_ports else ""
    spec = ServiceSpec("service", service.kind, "a", "a.eth0", storages=("disk",), options=_defaults(service))
    obstacle = find_hosts_obstacle(service, spec)
    where = f" Not on existing hosts: {obstacle}." if obstacle else ""
    parts = [f"## `{service.kind}`\n", f"{service.summary}\n", f"{needs}.{ports} {_service_ports(service)}{where}\n"]
    if service.options:
        parts.append("| option | values | default | meaning |\n|---|---|---|---|")
        parts += [_row(option) for option in service.options]
        parts.append("")
    return "\n".join(parts)


def _service_ports(service: ServiceKind) -> str:
    """Return the service ports with default options, as one sentence."""
    options = _defaults(service)
    spec = ServiceSpec("service", service.kind, "a", "a.eth0", options=options, ports=service.default_ports[:1])
    service_ports = service.service_ports(spec, "a.lab.test")
    listed = ", ".join(f"`{name}` = `{template}`" for name, template in service_ports.items())
    return f"Service ports with default options: {listed}." if listed else "No service ports."


def _defaults(service: ServiceKind) -> dict[str, OptionValue]:
    return {option.key: option.default for option in service.options}


def _row(option: Option) -> str:
    return f"| `{option.name}` | {option.expected} | {_default(option)} | {option.meaning} |"


def _default(option: Option) -> str:
    if option.default is None:
        return "not set"
    if option.kind == "size" and isinstance(option.default, int):
        return f'`"{format_bytes_exact(option.default)}"`'
    if option.kind == "time":
        return f'`"{option.default:.12g} s"`'
    if isinstance(option.default, bool):
        return f"`{str(option.default).lower()}`"
    return f'`"{option.default}"`' if isinstance(option.default, str) else f"`{option.default}`"
