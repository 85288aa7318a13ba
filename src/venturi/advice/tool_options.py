"""Options of movers on their own command lines, for settings of a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

__all__ = ["MOVER_OPTIONS", "Ability", "option_text"]

Ability: TypeAlias = Literal["streams", "files", "pipelining", "window", "requests"]
"""More connections per file, simultaneous files, early commands, socket buffers, or early requests."""

MOVER_OPTIONS: Mapping[str, Mapping[Ability, str]] = {
    "globus-url-copy": {
        "streams": "-p {n}",
        "files": "-cc {n}",
        "pipelining": "-pp -fast",
        "window": "-tcp-bs {bytes}",
    },
    "venturi": {
        "streams": "--streams {n}",
        "files": "--concurrency {n}",
        "pipelining": "--pipelining {n}",
        "window": "--window {bytes}",
    },
    "xrdcp": {"streams": "-S {n}", "files": "--parallel {n}", "requests": "XRD_CPPARALLELCHUNKS={n}"},
    "gfal-copy": {"streams": "-n {n}", "window": "--tcp-buffersize {bytes}"},
    "rclone": {
        "streams": "--multi-thread-streams {n}",
        "files": "--transfers {n}",
        "requests": "--sftp-concurrency {n}",
    },
    "curl": {"files": "--parallel --parallel-max {n}"},
    "scp": {"requests": "-X nrequests={n}"},
    "sftp": {"requests": "-R {n}"},
    "bbftp": {"streams": "-p {n}", "window": "-w {kibibytes}"},
    "iperf3": {"streams": "-P {n}", "window": "-w {bytes}"},
    "nuttcp": {"streams": "-N {n}", "window": "-w{kibibytes}"},
    "http-load": {"files": "--clients {n}"},
    "fio-read": {"requests": "--iodepth={n} --ioengine=io_uring"},
    "fio-write": {"requests": "--iodepth={n} --ioengine=io_uring"},
    "wget": {},
    "davix": {},
    "rsync": {},
    "cp": {},
    "read": {},
    "write": {},
    "bonnie": {},
    "root-read": {},
    "root-write": {},
    "managed": {},
}
"""Mover → ability → option. A mover without an ability needs several simultaneous processes."""


def option_text(mover: str, ability: Ability, number: int) -> str:
    """Return the change of a command line.

    Examples
    --------
    >>> option_text("globus-url-copy", "streams", 4)
    'globus-url-copy … -p 4'
    >>> option_text("wget", "files", 4)
    'run 4 processes of wget at the same time'
    """
    template = MOVER_OPTIONS.get(mover, {}).get(ability)
    if template is None:
        return f"run {number} processes of {mover} at the same time"
    option = template.format(n=number, bytes=number, kibibytes=max(1, number // 1024))
    # An environment variable precedes the command.
    return f"{option} {mover} …" if "=" in option and option.isupper() else f"{mover} … {option}"
