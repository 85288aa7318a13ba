"""What every backend offers, and what it tells while it works."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from venturi.run import RunWriter

__all__ = ["Backend", "Outcome", "Progress"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a campaign is, for somebody to show.

    Attributes
    ----------
    trials_done, trials_total
        Trials in the journal, earlier sessions' included, and trials of the plan.
    bytes_done, bytes_total
        Bytes of these trials as the plan asks for them; ``bytes_total`` is None where the plan does not fix them.
    failed
        Trials of this session that failed.
    elapsed_s
        Time of this session, in seconds.
    rate_bytes_per_s
        Bytes that receivers held in trials finished in the last few seconds, over that time; None before the first.
    remaining_s
        An estimate of the time left, in seconds; None before the first trial.
    factors
        The sweep point of the trial begun last; empty before the first, and outside sweeps.
    message
        What is going on beside trials (a data set is made, an agent restarted); "" if nothing is.
    failure
        Why the first trial of this session that failed did so; "" if none has.
    time_share
        Of the time that the plan names, the part that is over, 0 to 1; None where the trials that are done tell more.
    transfers_done, transfers_total
        Transfers that have ended, and those of the plan; None where nobody counts them, or nothing fixes their number.
    """

    trials_done: int
    trials_total: int
    bytes_done: int
    bytes_total: int | None
    failed: int = 0
    elapsed_s: float = 0.0
    rate_bytes_per_s: float | None = None
    remaining_s: float | None = None
    factors: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""
    failure: str = ""
    time_share: float | None = None
    transfers_done: int | None = None
    transfers_total: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a session ended that was not cut short by an error.

    Attributes
    ----------
    state
        ``"complete"``: every trial of the plan is in the journal; ``"stopped"``: somebody stopped it, resume it.
    trials_done, trials_total
        Trials in the journal, and trials of the plan.
    failed
        Trials of this session that failed: with a transfer that was not ``ok``, or a data set that could not be made.
    restarts
        How often an agent died and was started again.
    """

    state: Literal["complete", "stopped"]
    trials_done: int
    trials_total: int
    failed: int
    restarts: int


class Backend(Protocol):
    """Somebody who carries out plans.

    Attributes
    ----------
    name
        As it stands in the column ``backend`` of a run.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - described above

    def carry_out(self, run: RunWriter, *, on_progress: Callable[[Progress], None] | None = None) -> Outcome:
        """Carry out what is left of the plan of a run, and end its session.

        Parameters
        ----------
        run
            New or resumed; its plan is the one carried out. It is finished or closed when this returns or raises.
        on_progress
            Called from the thread of the caller, at most some ten times a second.

        Returns
        -------
        Outcome
            Also when it was stopped by SIGINT or SIGTERM.

        Raises
        ------
        BackendError
            If a host or agent is not there, or keeps dying. The run can be resumed.
        PlanError
            If the plan does not fit on the disks; nothing has been carried out then.
        RunError
            If the run cannot be written any more. It can be resumed.
        """
        ...
