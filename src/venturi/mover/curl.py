"""``curl``: HTTP download, upload, and third-party copy between two servers (WebDAV COPY, as the WLCG uses it)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.cost import FILE, LAB, LAB_BYTES, Measured, MoverCost
from venturi.mover.base import Option, OptionError, OutputError, ToolReport, output_text
from venturi.mover.http import CERTIFICATE, PROXY, THIRD_PARTY
from venturi.mover.shell import filled, shell
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["Curl"]

_OPTIONS = (
    PROXY,
    CERTIFICATE,
    THIRD_PARTY,
    Option(
        "streams",
        "integer",
        None,
        "TCP connections between two servers (X-Number-Of-Streams); a download or an upload has one.",
    ),
    Option("http", "choice", None, "Version of HTTP; otherwise what both can.", choices=("1.1", "2")),
    Option("rate", "rate", None, "At most so fast (--limit-rate); not between two servers."),
    Option("bind", "text", None, "Of a host with several interfaces the one that is used: its address, or its name."),
)

_CERTIFICATE = ' --capath "$X509_CERT_DIR" --cert "$X509_USER_PROXY" --key "$X509_USER_PROXY"'
_COPY = "-X COPY -H 'Credential: none' -H 'Overwrite: T'"
_TIMES = {"connect_s": "time_connect", "tls_s": "time_appconnect", "lookup_s": "time_namelookup"}
_SUCCESS = re.compile(r"^success: ", re.MULTILINE)

_COSTS = (
    Measured(
        ("http",), (FILE,), MoverCost.of((0.0, 0.0084, 2.0)), f"{LAB}; round trips by its own clock; one file a call"
    ),
    Measured((FILE,), ("http",), MoverCost.of((0.0002, 0.0087, 3.0)), f"{LAB}; one file a call"),
    Measured(("http",), (FILE,), MoverCost(byte_core_s=0.65e-9), LAB_BYTES),
    Measured((FILE,), ("http",), MoverCost(byte_core_s=0.3e-9), LAB_BYTES),
)


@dataclass(frozen=True, slots=True)
class Curl:
    """``curl``, without its configuration file; an answer of 400 or more is a failure."""

    name: str = "curl"
    summary: str = "HTTP: download, upload, or from server to server."
    requires: tuple[str, ...] = ("curl",)
    reads: bool = True
    writes: bool = True
    null_destination: bool = True
    speaks: tuple[str, ...] = ("http", "https")
    lists: bool = False
    options: tuple[Option, ...] = _OPTIONS
    costs: tuple[Measured, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return how ``curl`` is called: as it is for a download, by ``sh`` where that must choose."""
        if options["http"] == "2" and options["proxy"]:
            raise OptionError(
                'curl: expected http = "1.1" through a proxy, which is spoken to in HTTP/1.1, found "2"'
            )
        proxy: tuple[Argument, ...] = ("--noproxy", "*") if options["proxy"] is None else (("--proxy", "{proxy}"),)
        tool: tuple[Argument, ...] = (
            *("curl", "-q", "-sSf", "--write-out", "\\n%{{json}}\\n"),
            *proxy,
            *(() if options["http"] is None else (f"--http{options['http']}",)),
            ("--limit-rate", "{rate_bytes_per_s}"),
            # host!: never the name of a device.
            ("--interface", "host!{bind}"),
        )
        script = _script(filled(tool, options) + (_CERTIFICATE if options["certificate"] else ""), options)
        if options["certificate"]:
            argv: tuple[Argument, ...] = shell(script, "{source}", "{destination}")
        else:
            argv = (shell(script, "{source}", "{destination}", "{destination_host}"),
                    *tool, "-o", "{destination}", "{source}")  # fmt: skip
        return Call(self.name, dict(options), argv, ("sh", *self.requires), capture=True)

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return what ``--write-out`` says.

        Of a third-party copy no bytes: the markers of the server come every few seconds.
        """
        text = output_text(record, "stdout")
        said = _last_line(text)
        if said["method"] == "COPY":
            return _copied(text, said)
        size = said["size_upload" if said["method"] == "PUT" else "size_download"]
        rate = said["speed_upload" if said["method"] == "PUT" else "speed_download"]
        return ToolReport(
            size, rate or None, said["time_total"], first_byte_s=_first_byte(said), detail=_detail(said)
        )


def _script(tool: str, options: Mapping[str, OptionValue]) -> str:
    streams = "" if options["streams"] is None else f" -H 'X-Number-Of-Streams: {options['streams']}'"
    pull = f'exec {tool} {_COPY}{streams} -H "Source: $1" "$2"'
    push = f'exec {tool} {_COPY}{streams} -H "Destination: $2" "$1"'
    third_party = pull if options["third_party"] == "pull" else push
    return (
        f"case $1 in http*) case $2 in http*) {third_party};; esac; exec {tool} -o \"$2\" \"$1\";; esac;"
        f' exec {tool} -o /dev/null -T "$1" "$2"'
    )  # fmt: skip


def _last_line(text: str) -> dict[str, Any]:
    """Return the report of ``--write-out``, with numbers that are numbers."""
    lines = text.rstrip("\n").rsplit("\n", 1)
    try:
        said = json.loads(lines[-1])
        good = isinstance(said["method"], str) and all(
            isinstance(said[name], int) and said[name] >= 0 for name in ("size_download", "size_upload", "http_code")
        )
        times = ("time_total", "time_connect", "time_appconnect", "time_namelookup", "time_starttransfer")
        rates = ("speed_download", "speed_upload")
        good = good and all(math.isfinite(float(said[name])) for name in (*times, *rates))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        good = False
    if not good:
        raise OutputError("a last line of JSON from --write-out", text)
    return said  # type: ignore[no-any-return]


def _copied(text: str, said: Mapping[str, Any]) -> ToolReport:
    """Return what was said of a third-party copy: its status comes when it begins, its success in the text."""
    if not _SUCCESS.search(text):
        raise OutputError('a line that begins with "success: "', text)
    return ToolReport(None, None, said["time_total"], first_byte_s=_first_byte(said), detail=_detail(said))


def _first_byte(said: Mapping[str, Any]) -> float | None:
    return said["time_starttransfer"] or None


def _detail(said: Mapping[str, Any]) -> dict[str, float | int | str]:
    times = {name: said[key] for name, key in _TIMES.items() if said[key]}
    return {**times, "http_code": said["http_code"], "http_version": str(said.get("http_version", ""))}
