"""Interface of controllers: pure rules that choose the next settings from the probes so far.

A controller has no clock, no I/O and no state. It computes its state from the history each time, so the same history
gives the same decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from venturi.tuning.path import TunePath
from venturi.tuning.probe import TuneProbe
from venturi.tuning.settings import TunedSettings

__all__ = ["Controller", "StopTuning"]


@dataclass(frozen=True, slots=True)
class StopTuning:
    """Decision to end. ``settings`` is the final choice of the rule; ``None``: the best probe."""

    reason: str
    settings: TunedSettings | None = None


class Controller(Protocol):
    """A rule that tunes settings.

    Attributes
    ----------
    name
        Name on the command line.
    summary
        One sentence for the documentation.
    source
        Repository, commit and file, or publication of the rule.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - described above
    @property
    def summary(self) -> str: ...  # noqa: D102
    @property
    def source(self) -> str: ...  # noqa: D102

    def first(self, properties: TunePath) -> TunedSettings:
        """Return the settings of the first probe."""
        ...

    def next(self, properties: TunePath, history: Sequence[TuneProbe]) -> TunedSettings | StopTuning:
        """Return the settings of the next probe, or the decision to stop.

        Parameters
        ----------
        properties
            The same properties as in :meth:`first`.
        history
            Its probes so far, in order; never empty.
        """
        ...
