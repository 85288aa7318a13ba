"""A worker of an ensemble: a task a line on stdin, its member a line on stdout, until nobody asks any more."""

from __future__ import annotations

import json
import os
import sys

from venturi.simulation.member import carry_out


def _serve() -> None:
    # Whatever else prints, as DuckDB does of a question that takes seconds, is no answer.
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        for line in sys.stdin:
            answers.write(json.dumps(carry_out(json.loads(line))) + "\n")
            answers.flush()


if __name__ == "__main__":
    _serve()
