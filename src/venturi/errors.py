"""Exception classes of Venturi.

Each message contains the location, the expected value, the found value and the next step. Each class is also the
matching built-in exception. A measurement of poor quality is not an error but a *finding* (see :mod:`venturi.run`).
"""

from __future__ import annotations

__all__ = [
    "AgentExitedError",
    "BackendError",
    "FitError",
    "MeasureError",
    "PlanError",
    "RangeError",
    "RunError",
    "SampleError",
    "ScenarioError",
    "UnitError",
    "VenturiError",
]


class VenturiError(Exception):
    """Base class of all errors of Venturi; the command line prints the message and exits with code 1."""


class UnitError(VenturiError, ValueError):
    """Malformed quantity, such as ``100`` instead of ``100 MB``."""


class ScenarioError(VenturiError, ValueError):
    """Invalid scenario.

    Parameters
    ----------
    problems
        Pairs of location in the document (``workload.factors.size[2]``) and message.
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
    """Plan that Venturi cannot create, read or run, for example because it exceeds the free disk space."""


class RunError(VenturiError, OSError):
    """Run directory that Venturi cannot read, write or resume."""


class BackendError(VenturiError, RuntimeError):
    """Host, agent or tool of a plan that is not available."""


class AgentExitedError(BackendError):
    """Agent that exited before its part of the plan was done. A resumed run starts it again."""


class MeasureError(VenturiError, RuntimeError):
    """Endpoint, host or path that `venturi measure` cannot measure."""


class FitError(VenturiError, ArithmeticError):
    """Model that cannot be fitted to the data."""


class RangeError(VenturiError, ValueError):
    """Prediction outside of the fitted range of the model."""


class SampleError(VenturiError, ValueError):
    """Data without a defined statistic: too few values, wrong shapes or numbers that are not finite."""
