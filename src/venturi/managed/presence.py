"""Whether the files of this host that a list names are there: what can be known when it is handed over, and not after hours."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from venturi.managed.address import Address
from venturi.managed.listing import ListError, Wanted

__all__ = ["check_local_ends"]


def check_local_ends(wanted: Iterable[Wanted], source: str) -> None:
    """Refuse a list with local sources that cannot be read, or local destinations that are folders.

    What is behind a server nobody asks here: that a worker finds out. A file may still go away before its turn; then its transfer fails as
    ``no-such-file``.

    Parameters
    ----------
    source
        Name of the list, for messages.

    Raises
    ------
    ListError
        Naming all such lines.
    """
    problems = [
        (one.line, problem)
        for one in wanted
        for problem in (_source_problem(one.source), _destination_problem(one.destination))
        if problem
    ]
    if problems:
        raise ListError(source, problems)


def _source_problem(end: Address) -> str | None:
    if not end.is_file:
        return None
    try:
        mode = os.stat(end.path).st_mode  # noqa: PTH116 - of lists with 10⁵ lines; a Path takes four times as long
    except OSError as error:
        return f"expected a source that is there, found {end.path}: {error.strerror}"
    if stat.S_ISDIR(mode):
        return f"expected a file as source, found the folder {end.path}; list its files, a line each"
    if not os.access(end.path, os.R_OK):
        return f"expected a source that may be read, found {end.path} with mode {stat.S_IMODE(mode):o}"
    return None


def _destination_problem(end: Address) -> str | None:
    if end.is_file and os.path.isdir(end.path):  # noqa: PTH112 - as above
        return f"expected the path of a file as destination, found the folder {end.path}; add the name of the file"
    return None
