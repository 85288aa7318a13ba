"""Live view of a run in progress, on one local page and on one line of the terminal.

A run directory grows by whole lines (:mod:`venturi.run.journal`). :class:`RunFollower` reads only the new lines, once a
second, and feeds :class:`LiveState`, which does no I/O. So the view also works for a run that another process makes, and
it changes nothing in the run. :class:`PageServer` serves the last snapshot on the loopback interface.

Omitted on purpose: TCP sockets (their file is the largest, and no value of the view needs it), and a history of the run,
which the report has. Read :class:`LiveState` first.
"""

from venturi.live.budget import CpuBudget
from venturi.live.follower import RunFollower
from venturi.live.server import PageServer
from venturi.live.shown import page_values, terminal_line
from venturi.live.state import LiveState
from venturi.live.view import LiveView

__all__ = ["CpuBudget", "LiveState", "LiveView", "PageServer", "RunFollower", "page_values", "terminal_line"]
