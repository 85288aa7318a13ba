"""The errors that Venturi raises on purpose.

Every one says what was expected, what was found, where, and what to do next. Each class is also the
built-in exception that a caller would catch. A doubtful measurement is not an error but a *finding*
(see :mod:`venturi.run`).
"""

from __future__ import annotations

__all__ = [
    "BackendError",
    "FitError",
    "PlanError",
    "RangeError",
    "RunError",
    "SampleError",
    "ScenarioError",
    "UnitError",
    "VenturiError",
]


class VenturiError(Exception):
    """Root of all errors raised on purpose; the command line prints its text and exits with code 1."""


class UnitError(VenturiError, ValueError):
    """A quantity in text that is not of the form asked for, such as ``100`` where ``100 MB`` is due."""


class ScenarioError(VenturiError, ValueError):
    """A scenario that cannot be used.

    Parameters
    ----------
    problems
        Pairs of the place in the document (``workload.factors.size[2]``) and what is wrong there.
    source
        Name of the document, usually its path.
    """

    def __init__(self, problems: list[tuple[str, str]], source: str = "scenario") -> None:
        self.problems = problems
        self.source = source
        super().__init__(
            "\n".join(f"{source}: {where}: {what}" if where else f"{source}: {what}" for where, what in problems)
        )


class PlanError(VenturiError, ValueError):
    """A plan that cannot be made, read or carried out (it does not fit on the disk, say)."""


class RunError(VenturiError, OSError):
    """A run directory that cannot be read, written or resumed."""


class BackendError(VenturiError, RuntimeError):
    """A host, agent or tool that a plan needs and that is not there."""


class FitError(VenturiError, ArithmeticError):
    """A model that cannot be fitted to the data given."""


class RangeError(VenturiError, ValueError):
    """A prediction asked for outside the range in which a model was fitted."""


class SampleError(VenturiError, ValueError):
    """Data from which a statistic cannot be formed: too few values, wrong shapes, numbers that are not finite."""
