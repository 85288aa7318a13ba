"""The command line: one file a command. Data go to stdout, talk goes to stderr.

Exit codes, the same for every command: see :class:`venturi.cli.outcome.Exit`. Read :mod:`venturi.cli.root` first.
"""

import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit the process with one of the codes of :class:`~venturi.cli.outcome.Exit`."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        # As Ctrl-C: what a command has begun is put in order, also by those that do not think of signals. What is ignored stays so (nohup).
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    try:
        from venturi.cli.root import (
            carry_out,
        )  # imports take a while, in which Ctrl-C must not end in a traceback
    except KeyboardInterrupt:
        sys.stderr.write("venturi: stopped before it began\n")
        sys.exit(130)
    carry_out()
