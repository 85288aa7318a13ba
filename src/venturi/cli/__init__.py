"""The command line: one module per command. Results go to stdout, messages to stderr.

All commands share the exit codes of :class:`venturi.cli.outcome.Exit`. Read :mod:`venturi.cli.root` first.
"""

import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit the process with one of the codes of :class:`~venturi.cli.outcome.Exit`."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Treat both signals as Ctrl-C, so that every command cleans up. Ignored signals stay ignored (nohup).
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    try:
        from venturi.cli.root import (
            main,
        )  # imports take time; Ctrl-C must not print a traceback meanwhile
    except KeyboardInterrupt:
        sys.stderr.write("venturi: interrupted before it started\n")
        sys.exit(130)
    main()
