"""The reference page of the movers, made from their table."""

from __future__ import annotations

from collections.abc import Iterable

from venturi.mover.base import Mover, Option, resolve_options
from venturi.mover.table import BUILT_IN
from venturi.plan.header import Argument
from venturi.units import format_bytes_exact

__all__ = ["movers_reference"]

_HEAD = """\
# Movers

<!-- Made from the table in venturi.mover by `movers_reference()`. Change it there. -->

A mover is a tool that moves bytes, called as its users call it. Name it as `workload.mover`, or list several as the factor
`mover`. `"read+write"` runs one of each a slot, together. Its options stand under `[workload.options]`, or as factors.
The programs must be on the host that runs them; a program that is missing is found before anything is measured.

Movers with doors use servers for one end or both; the protocols stand here in order of preference. In their command
lines `sh …` stands for a shell that makes the form of the command that the tool wants, and then becomes the tool. In
brackets it is there only if all placeholders with it have a value: `{list}` has one for more than one file a call,
`{destination_host}` for a destination on a server. It costs about 0.5 ms. Options that make no sense together are
refused.
"""

_TAIL = """\
## Your own tool

Describe it in the scenario:

```toml
[mover.mytool]
argv = ["mytool", ["--streams", "{streams}"], ["--verify", "{verify}"], "{source}", "{destination}"]
requires = ["mytool"]              # by default the first word of argv
[mover.mytool.options]             # name = kind; a list of texts is a choice
streams = "integer"
verify = "boolean"
window = "size"
pause = "time"
limit = "rate"
user = "text"
mode = ["fast", "safe"]
```

- A list within `argv` is left out whole when an option in it has no value. An element that is only a boolean option is a
  condition: it disappears itself, and its list with it if the option is false.
- Placeholders: `{source}`, `{destination}`, `{bytes}`, `{files}`, `{slot}`, `{scratch}`, and the options: a size as
  `{window_bytes}`, a time as `{pause_s}`, a rate as `{limit_bytes_per_s}`, the others by their name. `{{` and `}}` are braces.
- `{list}` is a file with a line `SOURCE DESTINATION` a file, `{folder}` a folder with these files alone, where a call has more than one. `{source_host}`, `{source_port}`,
  `{destination_host}` and `{destination_port}` are those of a server; they have no value for a local end.
- Without `{source}` it reads nothing and no data set is made; without `{destination}` it leaves nothing to be checked.

To read its output, write a Python package with an entry point in the group `venturi.movers` whose value is a
`venturi.mover.Mover`. A `parse` that does not understand the output raises `OutputError`: the transfer fails, and the text
is kept.
"""


def movers_reference() -> str:
    """Return the page as Markdown."""
    return "\n".join([_HEAD, *(_section(mover) for mover in BUILT_IN.values()), _TAIL])


def _section(mover: Mover) -> str:
    call = mover.call(resolve_options(mover, {}))
    argv = " ".join(_argument(argument) for argument in _abridged(call.argv))
    return "\n".join(
        [
            f"## `{mover.name}`\n",
            f"{mover.summary}\n",
            f"    {argv}\n",
            f"Needs {_words(mover.requires)}. " + _traits(mover) + _reach(mover) + "\n",
            "| option | values | default | meaning |\n|---|---|---|---|",
            *(_row(option) for option in mover.options),
            "",
        ]
    )


def _row(option: Option) -> str:
    return f"| `{option.name}` | {option.expected} | {_default(option)} | {option.meaning} |"


def _default(option: Option) -> str:
    if option.default is None:
        return "not set"
    if option.kind == "size":
        assert isinstance(option.default, int)
        return f'`"{format_bytes_exact(option.default)}"`'
    if isinstance(option.default, bool):
        return f"`{str(option.default).lower()}`"
    return f'`"{option.default}"`' if isinstance(option.default, str) else f"`{option.default}`"


def _traits(mover: Mover) -> str:
    traits = [
        "It reads a file of a data set" if mover.reads else "It reads `/dev/zero`",
        "leaves a file" if mover.writes else "leaves nothing",
    ]
    return " and ".join(traits) + "."


def _reach(mover: Mover) -> str:
    if not mover.speaks:
        return ""
    lists = " It takes many files in one call." if mover.lists else ""
    return f" Doors: {_words(mover.speaks)}.{lists}"


def _abridged(argv: Iterable[Argument]) -> Iterable[Argument]:
    """Yield arguments with the text of a shell's script left out: that is in the plan."""
    script = 0
    for argument in argv:
        if argument == "sh" or script:  # the words of `shell` on their own
            script = (script + 1) % 4
            if script == 1:
                yield "sh …"
        elif argument[:2] == ("sh", "-c"):
            yield ("sh …", *argument[4:])
        else:
            yield argument


def _argument(argument: str | tuple[str, ...]) -> str:
    return argument if isinstance(argument, str) else "[" + " ".join(argument) + "]"


def _words(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
