"""Interface of all backends, and the progress and outcome that they report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from venturi.run import RunWriter

__all__ = ["Backend", "RunProgress", "SessionOutcome"]


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Progress of a run, for display.

    Attributes
    ----------
    trials_done, trials_total
        Trials in the journal, including earlier sessions, and trials of the plan.
    bytes_done, bytes_total
        Bytes of these trials as requested by the plan. ``bytes_total`` is None if the plan does not fix them.
    failed
        Trials of this session that failed.
    elapsed_s
        Time of this session, in seconds.
    rate_bytes_per_s
        Received bytes of trials that finished in the last few seconds, divided by that time. None before the first trial.
    remaining_s
        Estimate of the remaining time, in seconds. None before the first trial.
    factors
        The sweep point of the trial that started last. Empty before the first trial, and outside sweeps.
    message
        Current activity outside trials, such as generating a dataset or restarting an agent. "" if there is none.
    failure
        Reason of the first failed trial of this session. "" if none failed.
    time_fraction
        Elapsed fraction of the planned time, 0 to 1. None if completed trials are a better measure.
    transfers_done, transfers_total
        Transfers that have ended, and transfers of the plan. None if they are not counted, or their number is not fixed.
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
    time_fraction: float | None = None
    transfers_done: int | None = None
    transfers_total: int | None = None


@dataclass(frozen=True, slots=True)
class SessionOutcome:
    """Outcome of a session that was not ended by an error.

    Attributes
    ----------
    state
        ``"complete"``: every trial of the plan is in the journal. ``"stopped"``: the user stopped the session, or the
        trials at a server ended; the run can be resumed.
    trials_done, trials_total
        Trials in the journal, and trials of the plan.
    failed
        Trials of this session that failed: a transfer was not ``ok``, or a dataset could not be generated.
    restarts
        Number of restarts of agents that died.
    reason
        Reason why the session did not run all trials, although the user did not stop it. "" otherwise.
    """

    state: Literal["complete", "stopped"]
    trials_done: int
    trials_total: int
    failed: int
    restarts: int
    reason: str = ""


class Backend(Protocol):
    """Implementation that executes plans.

    Attributes
    ----------
    name
        Name in the column ``backend`` of a run.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - described above

    def execute(self, run: RunWriter, *, on_progress: Callable[[RunProgress], None] | None = None) -> SessionOutcome:
        """Execute the rest of the plan of a run, and end its session.

        Parameters
        ----------
        run
            A new or resumed run with the plan. It is finished or closed when this returns or raises.
        on_progress
            Called from the thread of the caller, at most about ten times a second.

        Returns
        -------
        SessionOutcome
            Also after a stop by SIGINT or SIGTERM.

        Raises
        ------
        BackendError
            If a host or agent is not available, or repeatedly dies. The run can be resumed.
        PlanError
            If the plan does not fit on the disks. In this case nothing has been executed.
        RunError
            If the run can no longer be written. It can be resumed.
        """
        ...
