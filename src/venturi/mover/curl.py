"""``curl``: HTTP download, upload, and third-party copy between two servers (WebDAV COPY of the WLCG)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from venturi.cost import FILE, LAB, LAB_BYTES, MeasuredCost, MoverCost
from venturi.mover.base import Option, OptionError, OutputError, ToolReport, output_text
from venturi.mover.http import BEARER, CERTIFICATE, PROXY, READ_TOKEN, THIRD_PARTY
from venturi.mover.shell import format_shell_command, shell
from venturi.plan import Call
from venturi.plan.header import Argument, OptionValue

__all__ = ["Curl"]

_OPTIONS = (
    PROXY,
    CERTIFICATE,
    BEARER,
    THIRD_PARTY,
    Option(
        "streams",
        "integer",
        None,
        "TCP connections between two servers (X-Number-Of-Streams). Downloads and uploads use one.",
    ),
    Option("http", "choice", None, "Version of HTTP. Default: negotiated.", choices=("1.1", "2")),
    Option("rate", "rate", None, "Rate limit (--limit-rate); not between two servers."),
    Option("bind", "text", None, "Local interface, by address or name."),
)

_CERTIFICATE = ' --capath "$X509_CERT_DIR" --cert "$X509_USER_PROXY" --key "$X509_USER_PROXY"'
# A command line is visible to all users of a host: curl reads the token from a pipe. In a copy, both servers get it.
_OPEN_TOKEN = (
    READ_TOKEN
    + """\
case $1,$2 in http*,http*) other="TransferHeaderAuthorization: Bearer $token";; *) other=;; esac
exec 3<<END
Authorization: Bearer $token
$other
END
"""
)
_TOKEN = " -H @/dev/fd/3"
_COPY = "-X COPY -H 'Credential: none' -H 'Overwrite: T'"
_TIMES = {"connect_s": "time_connect", "tls_s": "time_appconnect", "lookup_s": "time_namelookup"}
_SUCCESS = re.compile(r"^success: ", re.MULTILINE)

_COSTS = (
    MeasuredCost(
        ("http",),
        (FILE,),
        MoverCost.of((0.0, 0.0084, 2.0)),
        f"{LAB}; round trips by its own clock; one file per call",
    ),
    MeasuredCost((FILE,), ("http",), MoverCost.of((0.0002, 0.0087, 3.0)), f"{LAB}; one file per call"),
    MeasuredCost(("http",), (FILE,), MoverCost(byte_core_s=0.65e-9), LAB_BYTES),
    MeasuredCost((FILE,), ("http",), MoverCost(byte_core_s=0.3e-9), LAB_BYTES),
)


@dataclass(frozen=True, slots=True)
class Curl:
    """``curl`` without its configuration file; a status of 400 or more is a failure.

    Downloads and uploads follow redirections, as from the entry server of a site to its data servers. ``curl`` does not send the
    token to the other server.
    """

    name: str = "curl"
    summary: str = "HTTP download, upload, or copy between two servers."
    requires: tuple[str, ...] = ("curl",)
    reads: bool = True
    writes: bool = True
    null_destination: bool = True
    protocols: tuple[str, ...] = ("http", "https")
    needs_server: str = "either"
    lists: bool = False
    options: tuple[Option, ...] = _OPTIONS
    costs: tuple[MeasuredCost, ...] = _COSTS

    def call(self, options: Mapping[str, OptionValue]) -> Call:
        """Return the call of ``curl``: direct for a download, otherwise by ``sh``."""
        if options["http"] == "2" and options["proxy"]:
            raise OptionError('curl: expected http = "1.1" with a proxy, found "2"; set http = "1.1"')
        proxy: tuple[Argument, ...] = ("--noproxy", "*") if options["proxy"] is None else (("--proxy", "{proxy}"),)
        tool: tuple[Argument, ...] = (
            *("curl", "-q", "-sSf", "--write-out", "\\n%{{json}}\\n"),
            *proxy,
            *(() if options["http"] is None else (f"--http{options['http']}",)),
            ("--limit-rate", "{rate_bytes_per_s}"),
            # host!: an address or host name, not a device.
            ("--interface", "host!{bind}"),
        )
        script = _script(
            format_shell_command(tool, options)
            + (_CERTIFICATE if options["certificate"] else "")
            + (_TOKEN if options["bearer"] else ""),
            options,
        )
        if options["bearer"]:
            script = _OPEN_TOKEN + script
        if options["certificate"] or options["bearer"]:
            argv: tuple[Argument, ...] = shell(script, "{source}", "{destination}")
        else:
            argv = (shell(script, "{source}", "{destination}", "{destination_host}"),
                    *tool, "-L", "-o", "{destination}", "{source}")  # fmt: skip
        return Call(self.name, dict(options), argv, ("sh", *self.requires), capture=True)

    def parse(self, record: Mapping[str, Any]) -> ToolReport:
        """Return the report of ``--write-out``.

        It has no bytes for a third-party copy: the server sends markers only every few seconds.
        """
        text = output_text(record, "stdout")
        report = _parse_report(text)
        if report["method"] == "COPY":
            return _third_party_report(text, report)
        size = report["size_upload" if report["method"] == "PUT" else "size_download"]
        rate = report["speed_upload" if report["method"] == "PUT" else "speed_download"]
        return ToolReport(
            size, rate or None, report["time_total"], first_byte_s=_first_byte(report), detail=_detail(report)
        )


def _script(tool: str, options: Mapping[str, OptionValue]) -> str:
    streams = "" if options["streams"] is None else f" -H 'X-Number-Of-Streams: {options['streams']}'"
    pull = f'exec {tool} {_COPY}{streams} -H "Source: $1" "$2"'
    push = f'exec {tool} {_COPY}{streams} -H "Destination: $2" "$1"'
    third_party = pull if options["third_party"] == "pull" else push
    return (
        f"case $1 in http*) case $2 in http*) {third_party};; esac; exec {tool} -L -o \"$2\" \"$1\";; esac;"
        f' exec {tool} -L -o /dev/null -T "$1" "$2"'
    )  # fmt: skip


def _parse_report(text: str) -> dict[str, Any]:
    """Return the validated report of ``--write-out``."""
    lines = text.rstrip("\n").rsplit("\n", 1)
    try:
        report = json.loads(lines[-1])
        good = isinstance(report["method"], str) and all(
            isinstance(report[name], int) and report[name] >= 0
            for name in ("size_download", "size_upload", "http_code")
        )
        times = ("time_total", "time_connect", "time_appconnect", "time_namelookup", "time_starttransfer")
        rates = ("speed_download", "speed_upload")
        good = good and all(math.isfinite(float(report[name])) for name in (*times, *rates))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        good = False
    if not good:
        raise OutputError("a last line of JSON from --write-out", text)
    return report  # type: ignore[no-any-return]


def _third_party_report(text: str, report: Mapping[str, Any]) -> ToolReport:
    """Return the report of a third-party copy: the server sends its status at the start, its success in the body."""
    if not _SUCCESS.search(text):
        raise OutputError('a line with the prefix "success: "', text)
    return ToolReport(None, None, report["time_total"], first_byte_s=_first_byte(report), detail=_detail(report))


def _first_byte(report: Mapping[str, Any]) -> float | None:
    return report["time_starttransfer"] or None


def _detail(report: Mapping[str, Any]) -> dict[str, float | int | str]:
    times = {name: report[key] for name, key in _TIMES.items() if report[key]}
    return {**times, "http_code": report["http_code"], "http_version": str(report.get("http_version", ""))}
