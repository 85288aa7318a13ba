"""Finding: a warning about the quality of a measurement, stored with the run and shown in every report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Warning about the quality of a measurement.

    Parameters
    ----------
    code
        Short name such as ``"agent-restarted"``; ``docs/reference/findings.md`` lists all codes.
    subject
        Affected object: a host, a call, a storage or a file.
    evidence
        Observation, with numbers and units.
    advice
        Recommended action.
    trial, host
        Affected trial and host; None if the finding concerns the whole run.

    Examples
    --------
    >>> Finding("missing-tool", "globus-url-copy", "not found on node1", "install it").code
    'missing-tool'
    """

    code: str
    subject: str
    evidence: str
    advice: str
    trial: str | None = None
    host: str | None = None

    @classmethod
    def from_record(cls, record: Mapping[str, Any], *, trial: str | None = None, host: str | None = None) -> Finding:
        """Return the finding in an agent's record, which names neither trial nor host."""
        code, subject, evidence, advice = (str(record.get(key) or "") for key in cls.__slots__[:4])
        return cls(code, subject, evidence, advice, trial, host)

    def as_record(self) -> dict[str, str]:
        """Return the finding as a record of the agent, without trial and host."""
        return {"code": self.code, "subject": self.subject, "evidence": self.evidence, "advice": self.advice}
