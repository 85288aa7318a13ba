"""Services whose trials end in a session because their servers are overloaded or fail repeatedly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from venturi.run import Finding
from venturi.testbed.service_manager import exit_description

__all__ = ["SERVER_FAILURES", "EndedServices"]

SERVER_FAILURES = 5
"""Number of consecutive failed transfers that ends the trials at a server."""


@dataclass
class EndedServices:
    """Services whose trials end in a session.

    Attributes
    ----------
    reasons
        Service → reason, such as ``"HTTP 503"``.
    skipped
        Trials that were not run: trial → service.
    exits
        Service → host and exit code of its server, if it exited.
    """

    reasons: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    exits: dict[str, str] = field(default_factory=dict)

    def end(self, record: Mapping[str, Any], host: str, server: str) -> Finding | None:
        """Record that the trials at a service end, and return the finding, or None if they had already ended.

        Parameters
        ----------
        record
            Record ``service_ended`` of the agent.
        host
            Host of the agent.
        server
            Text for the server: its host, or the URL of an existing server.
        """
        service = str(record["service"])
        if service in self.reasons:
            return None
        reason = record["reason"]
        status = reason.get("status")
        self.reasons[service] = f"HTTP {status}" if status is not None else f"{reason['failures']} failures in a row"
        return Finding(
            "server-failing",
            service,
            f"{self.reasons[service]} at {server}, from host {host}; the last error: {record['error']}",
            "Venturi ended the trials at this server. Wait until it works again, or reduce the load. Then resume the run.",
            host=host,
        )

    def add_event(self, host: str, event: Mapping[str, Any]) -> None:
        """Keep the reason if the event is the end of a server."""
        if event.get("kind") == "service-exited":
            self.exits[str(event["detail"]["service"])] = f"on {host} exited with {_exit(event['detail'])}"

    def describe(self, trials: int) -> str:
        """Return the reason why trials were not run: ``4 trials at web (HTTP 503) were not run``."""
        services = dict.fromkeys(self.skipped.values())
        text = ", ".join(f"{service} ({self._reason(service)})" for service in services)
        return f"{trials} {'trial' if trials == 1 else 'trials'} at {text} {'was' if trials == 1 else 'were'} not run"

    def _reason(self, service: str) -> str:
        reason = self.reasons.get(service, "failures")
        return f"its server {self.exits[service]}; {reason}" if service in self.exits else reason


def _exit(detail: Mapping[str, Any]) -> str:
    return exit_description(detail["exit_code"] if detail["signal"] is None else -detail["signal"])
