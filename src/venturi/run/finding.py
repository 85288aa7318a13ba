"""A finding: what makes a measurement doubtful, kept with the run and shown in every report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason to doubt a measurement.

    Parameters
    ----------
    code
        A short name such as ``"agent-restarted"``; ``docs/reference/findings.md`` lists them all.
    subject
        What it is about: a host, a call, a place, a file.
    evidence
        What was seen, with numbers and units.
    advice
        What to do about it.
    trial, host
        Where it was seen; None if it concerns the run as a whole.

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
        """Return the finding as it stands in ``events.jsonl`` and in the agent's records, without trial and host."""
        return {"code": self.code, "subject": self.subject, "evidence": self.evidence, "advice": self.advice}
