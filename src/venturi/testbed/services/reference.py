"""The reference page of the services, made from their table."""

from __future__ import annotations

from venturi.mover.base import Option
from venturi.testbed.services.base import Service, ServiceSpec
from venturi.testbed.services.table import SERVICES
from venturi.units import format_bytes_exact

__all__ = ["services_reference"]

_HEAD = """\
# Services

<!-- Made from the table in venturi.testbed.services by `services_reference()`. Change it there. -->

A service is a server program of a lab: the real one, configured from nothing in a folder of its own, with keys and
certificates of its own, and gone at the end. In a scenario:

```toml
[testbed.service.gridftp-a]
kind = "gridftp"
host = "a"
storage = ["disk"]
ports = 2                      # how many, or which: [2811, 2812]
options = { auth = "gsi" }
```

A door is a way by which transfers reach it. `{path}` is the absolute path of a file, `{relative}` the one below its
storage, `{port}` one of its ports: slots go round them. Programs that are missing are named with their Debian package.
"""


def services_reference() -> str:
    """Return the page as Markdown."""
    return "\n".join([_HEAD, *(_section(service) for service in sorted(SERVICES.values(), key=lambda one: one.kind))])


def _section(service: Service) -> str:
    programs: dict[str, list[str]] = {}
    for package in service.packages:
        programs.setdefault(package.package, []).append(f"`{package.program}`")
    needs = "; ".join(f"{', '.join(names)} (`{package}`)" for package, names in programs.items())
    needs = f"Needs {needs}" if needs else "Needs no other program"
    ports = f" First port {service.default_ports[0]}." if service.default_ports else ""
    parts = [f"## `{service.kind}`\n", f"{service.summary}\n", f"{needs}.{ports} {_doors(service)}\n"]
    if service.options:
        parts.append("| option | values | default | meaning |\n|---|---|---|---|")
        parts += [_row(option) for option in service.options]
        parts.append("")
    return "\n".join(parts)


def _doors(service: Service) -> str:
    """Return the doors that a service has as its options are by default."""
    options = {option.key: option.default for option in service.options}
    spec = ServiceSpec("service", service.kind, "a", "a.eth0", options=options, ports=service.default_ports[:1])
    doors = service.doors(spec, "a.lab.test")
    listed = ", ".join(f"`{name}` = `{template}`" for name, template in doors.items())
    return f"Doors, with the options as they are by default: {listed}." if listed else "No doors."


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
