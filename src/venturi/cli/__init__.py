"""The command line: one file a command. Data go to stdout, talk goes to stderr.

Exit codes, the same for every command: see :class:`venturi.cli.outcome.Exit`.
"""

from venturi.cli.main import app, main

__all__ = ["app", "main"]
