"""Shell scripts for tools whose command line depends on the endpoints.

A call of a plan is one command line for all its transfers. If a tool needs different forms for lists, pairs, uploads or
downloads, a group of arguments with ``sh`` precedes its direct command line. Without a value for its placeholder the
group is omitted, and the tool starts directly. Otherwise ``sh`` selects the form and replaces itself by the tool
(``exec``). The start of ``sh`` takes about 0.5 ms.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from venturi.mover.command import placeholders
from venturi.plan.header import Argument, OptionValue

__all__ = ["format_shell_command", "shell"]


def shell(script: str, *arguments: str) -> tuple[str, ...]:
    """Return the command line of ``sh`` for ``script``; ``arguments`` can be placeholders.

    Examples
    --------
    >>> shell('exec tool ${2:-none} "$1"', "{list}")
    ('sh', '-c', 'exec tool ${{2:-none}} "$1"', 'sh', '{list}')
    """
    return ("sh", "-c", script.replace("{", "{{").replace("}", "}}"), "sh", *arguments)


def format_shell_command(arguments: Iterable[Argument], options: Mapping[str, OptionValue]) -> str:
    """Return arguments as text for ``sh``, with option values by the rules of the plan.

    Examples
    --------
    >>> format_shell_command(("tool", ("-p", "{streams}"), ("-b", "{block_bytes}")), {"streams": 4, "block_bytes": None})
    'tool -p 4'
    """
    words: list[str] = []
    for argument in arguments:
        texts = (argument,) if isinstance(argument, str) else argument
        if all(options[name] is not None for text in texts for name in placeholders(text)):
            words += [text.format_map(options) for text in texts]
    return shlex.join(words)
