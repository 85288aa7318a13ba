"""Settings that a mover has, as options of a scenario and of its command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from venturi.advice.tool_options import MOVER_OPTIONS, Ability
from venturi.tuning.path import MAX_CONCURRENCY, MAX_STREAMS
from venturi.tuning.settings import TunedSettings

__all__ = ["TUNABLE_OPTIONS", "TunableOption", "command_line", "options_of"]

CALLS = "files"
"""Factor of a sweep: calls of the mover at the same time."""

MAX_CALLS = 16
"""Largest number of simultaneous calls: each has its own files on disk."""

_SIZE = 1 << 30
_ABILITIES: Mapping[str, Ability] = {
    "concurrency": "files",
    "streams": "streams",
    "pipelining": "pipelining",
    "window_bytes": "window",
}
_BLOCK = {"venturi": "--block {n}", "globus-url-copy": "-bs {n}"}
_PROGRAM = {"venturi": "venturi copy"}


@dataclass(frozen=True, slots=True)
class TunableOption:
    """An option of a mover that a controller sets.

    Attributes
    ----------
    setting
        Name in :class:`TunedSettings`.
    name
        Option of the mover, or :data:`CALLS`: simultaneous calls.
    largest
        Largest value.
    needs_list
        Whether the option works for calls with several files only. Simultaneous calls replace it for one file.
    """

    setting: str
    name: str
    largest: int
    needs_list: bool = False

    def for_files(self, files_per_call: int) -> TunableOption:
        """Return the tunable option for calls with this number of files."""
        if self.needs_list and files_per_call == 1:
            return replace(self, name=CALLS, largest=MAX_CALLS, needs_list=False)
        return self


TUNABLE_OPTIONS: Mapping[str, tuple[TunableOption, ...]] = {
    "venturi": (
        TunableOption("concurrency", "concurrency", MAX_CONCURRENCY),
        TunableOption("streams", "streams", MAX_STREAMS),
        TunableOption("pipelining", "pipelining", 4096),
        TunableOption("window_bytes", "window", _SIZE),
        TunableOption("block_bytes", "block", _SIZE),
    ),
    # Its pipelining needs directories between two servers, so a call of files cannot show its effect.
    "globus-url-copy": (
        TunableOption("concurrency", "concurrency", MAX_CONCURRENCY, needs_list=True),
        TunableOption("streams", "streams", MAX_STREAMS),
        TunableOption("window_bytes", "window", _SIZE),
        TunableOption("block_bytes", "block", _SIZE),
    ),
    # xrdcp 5.5 accepts 15 streams and 128 files.
    "xrdcp": (
        TunableOption("concurrency", "parallel", MAX_CONCURRENCY, needs_list=True),
        TunableOption("streams", "streams", 15),
    ),
    # The scenario runs one call per file: these tools do the same with an option for directories or several URLs.
    "rclone": (TunableOption("concurrency", CALLS, MAX_CALLS), TunableOption("streams", "streams", MAX_STREAMS)),
    "curl": (TunableOption("concurrency", CALLS, MAX_CALLS),),
}
"""Mover → its tunable options."""


def options_of(
    tunable: tuple[TunableOption, ...], settings: TunedSettings
) -> tuple[dict[str, int | str], int | None]:
    """Return the options of a scenario for settings, and the number of simultaneous calls (``None``: as written).

    Examples
    --------
    >>> options_of(TUNABLE_OPTIONS["rclone"], TunedSettings(concurrency=4, streams=2))
    ({'streams': 2}, 4)
    """
    options: dict[str, int | str] = {}
    calls = None
    for option in tunable:
        value = settings.values.get(option.setting)
        if value is None:
            continue
        if option.name == CALLS:
            calls = value
        else:
            options[option.name] = f"{value} B" if option.setting.endswith("_bytes") else value
    return options, calls


def command_line(mover: str, settings: TunedSettings) -> str:
    """Return the command line of a mover with these settings.

    Examples
    --------
    >>> command_line("globus-url-copy", TunedSettings(concurrency=4, streams=8))
    'globus-url-copy -cc 4 -p 8 SOURCE DESTINATION'
    >>> command_line("curl", TunedSettings(concurrency=8))
    'curl --parallel --parallel-max 8 SOURCE DESTINATION'
    """
    words = [_PROGRAM.get(mover, mover)]
    for name, value in settings.values.items():
        template = _BLOCK.get(mover) if name == "block_bytes" else MOVER_OPTIONS.get(mover, {}).get(_ABILITIES[name])
        if template is not None:
            words.append(template.format(n=value, bytes=value, kibibytes=max(1, value // 1024)))
    return " ".join([*words, "SOURCE", "DESTINATION"])
