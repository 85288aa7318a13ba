"""``sh`` as a switch, for tools whose command line depends on what their ends are.

A call of a plan is one command line for every transfer that uses it. Where a tool wants a list in another form than a
pair, or an upload in another form than a download, a group of arguments stands *before* its plain command line: it is
left out where its placeholder has no value, and then the tool is started as it is; otherwise ``sh`` is started,
chooses, and becomes the tool (``exec``). What that costs is its own start, about 0.5 ms, in those transfers only.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from venturi.mover.command import placeholders
from venturi.plan.header import Argument, OptionValue

__all__ = ["filled", "shell"]


def shell(script: str, *arguments: str) -> tuple[str, ...]:
    """Return the arguments that have ``sh`` carry out ``script`` with ``arguments``, which may be placeholders.

    Examples
    --------
    >>> shell('exec tool ${2:-none} "$1"', "{list}")
    ('sh', '-c', 'exec tool ${{2:-none}} "$1"', 'sh', '{list}')
    """
    return ("sh", "-c", script.replace("{", "{{").replace("}", "}}"), "sh", *arguments)


def filled(arguments: Iterable[Argument], options: Mapping[str, OptionValue]) -> str:
    """Return arguments as text for ``sh``, their options filled in by the rules of the plan.

    Examples
    --------
    >>> filled(("tool", ("-p", "{streams}"), ("-b", "{block_bytes}")), {"streams": 4, "block_bytes": None})
    'tool -p 4'
    """
    words: list[str] = []
    for argument in arguments:
        texts = (argument,) if isinstance(argument, str) else argument
        if all(options[name] is not None for text in texts for name in placeholders(text)):
            words += [text.format_map(options) for text in texts]
    return shlex.join(words)
