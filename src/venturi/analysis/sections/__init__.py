"""Sections of a report, one file each. A new section needs a file, an entry in :data:`SECTIONS` and a test."""

from __future__ import annotations

from collections.abc import Callable

from venturi.advice import Advice
from venturi.analysis.requested_load import RequestedLoad
from venturi.analysis.result import About
from venturi.analysis.section import ReportSection
from venturi.analysis.sections.bottlenecks import bottlenecks_section
from venturi.analysis.sections.clients import clients_section
from venturi.analysis.sections.datasets import datasets_section
from venturi.analysis.sections.gridftp import gridftp_section
from venturi.analysis.sections.groups import groups_section
from venturi.analysis.sections.injected import INJECTED, injected_section
from venturi.analysis.sections.jobs import jobs_section
from venturi.analysis.sections.managed import managed_section
from venturi.analysis.sections.peers import peers_section
from venturi.analysis.sections.routes import routes_section
from venturi.analysis.sections.srm import srm_section
from venturi.analysis.sections.tiers import tiers_section
from venturi.analysis.sections.tools import tools_section
from venturi.analysis.sections.windows import windows_section
from venturi.run import Run

__all__ = ["SECTIONS", "sections"]

SECTIONS: dict[str, Callable[[Run, About], ReportSection | None]] = {
    "tools": tools_section,
    "windows": windows_section,
    "datasets": datasets_section,
    "gridftp": gridftp_section,
    "srm": srm_section,
    "managed": managed_section,
    "clients": clients_section,
    "jobs": jobs_section,
    "groups": groups_section,
    "peers": peers_section,
    "tiers": tiers_section,
    INJECTED: injected_section,
    "routes": routes_section,
    "bottlenecks": bottlenecks_section,
}
"""Section name → function that returns the section, or None if the run has no data for it."""


def sections(
    run: Run, about: About, advice: Advice | None = None, load: RequestedLoad | None = None
) -> tuple[ReportSection, ...]:
    """Return the sections of a run, in the order of :data:`SECTIONS`.

    Parameters
    ----------
    advice, load
        Verdicts and requested load of the run, if they are known already.
    """
    found = (
        injected_section(run, about, advice, load) if name == INJECTED else make(run, about)
        for name, make in SECTIONS.items()
    )
    return tuple(section for section in found if section is not None)
