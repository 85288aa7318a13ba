"""Consent before a run contacts a remote host or an existing server for the first time.

A scenario is code: its movers and servers run as the user on every host. The hosts and servers with consent are in
``$XDG_STATE_HOME/venturi/contacts.json``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import typer

from venturi.cli.outcome import Exit, print_status
from venturi.errors import PlanError
from venturi.plan import Plan
from venturi.testbed.contacts import Contacts, find_contacts
from venturi.testbed.plan import is_remote

__all__ = ["require_consent", "require_plan_consent", "state_directory"]


def state_directory() -> Path:
    """Return the directory of the user's state: ``$XDG_STATE_HOME/venturi``, by default ``~/.local/state/venturi``."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "state") / "venturi"


def require_plan_consent(plan: Plan, *, yes: bool) -> None:
    """Ask for consent if a plan has remote hosts or existing servers: see :func:`require_consent`."""
    header = plan.header
    existing = any(service.host is None for service in header.services.values())
    if existing or any(is_remote(host) for host in header.hosts.values()):
        require_consent(find_contacts(plan), yes=yes)


def require_consent(contacts: Contacts, *, yes: bool) -> None:
    """Ask for consent if a run contacts new remote hosts or existing servers, and remember it. A local run never asks.

    Parameters
    ----------
    contacts
        Hosts and servers of the run.
    yes
        Consent was given on the command line.

    Raises
    ------
    PlanError
        Without a terminal to ask on.
    typer.Exit
        If the user refuses.
    """
    known = _read_known()
    new = [key for key in contacts.keys if key not in known]
    if not new:
        return
    if not yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise PlanError(
                f"first contact with {', '.join(new)}: expected consent, found no terminal for a prompt;"
                " check the list that `venturi plan` prints for the scenario, then add --yes"
            )
        rows = contacts.lines()
        width = max(len(name) for name, _ in rows)
        for name, text in rows:
            print_status(f"{name:<{width}}  {text}")
        print_status(f"new: {', '.join(new)}")
        if not typer.confirm("Start the run on these hosts and servers?", err=True):
            print_status("venturi: not started; no host was contacted")
            raise typer.Exit(Exit.ERROR)
    _remember([*known, *new])


def _path() -> Path:
    return state_directory() / "contacts.json"


def _read_known() -> list[str]:
    """Return the hosts and servers with consent. An unreadable file has none."""
    try:
        document = json.loads(_path().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    known = document.get("contacts") if isinstance(document, dict) else None
    return [key for key in known if isinstance(key, str)] if isinstance(known, list) else []


def _remember(keys: Iterable[str]) -> None:
    """Replace the file of hosts and servers with consent. If the directory is not writable, the next run asks again."""
    path = _path()
    text = json.dumps({"contacts": list(dict.fromkeys(keys))}, indent=2, ensure_ascii=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            file.write(text)
        Path(file.name).replace(path)
    except OSError as error:
        print_status(
            f"venturi: {path}: cannot remember the consent: {error.strerror or error}; the next run prompts again"
        )
