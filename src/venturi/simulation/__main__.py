"""Worker process of an ensemble: reads one task per line from stdin and writes one member per line to stdout."""

from __future__ import annotations

import json
import os
import sys

from venturi.simulation.member import execute


def _serve() -> None:
    # Libraries may print to stdout, as DuckDB does during long queries. Redirect them to stderr, so that stdout has results only.
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as results:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        for line in sys.stdin:
            results.write(json.dumps(execute(json.loads(line))) + "\n")
            results.flush()


if __name__ == "__main__":
    _serve()
