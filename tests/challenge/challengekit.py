"""Testbeds and tables for tests of challenges."""

from venturi.challenge import ChallengeTable, build_testbed
from venturi.challenge.table import ChallengeRow

PAYLOAD = 1448 / 1500
"""File data per bit of a link with an MTU of 1500 bytes: 52 bytes of IPv4 and TCP headers with timestamps."""


def star(rates, *, services=(), storage=None, link=None, **more):
    """Return the document of a testbed: sites around a router, with the rate of each link."""
    hosts = {site.lower(): {"site": site} for site in rates}
    return {
        "testbed": {
            "router": {"core": {}},
            "host": hosts,
            "link": {
                site.lower(): {"between": [site.lower(), "core"], "rate": rate, "delay": "5 ms", **(link or {})}
                for site, rate in rates.items()
            },
            "storage": {host: {"host": host, "path": "disk", **(storage or {})} for host in hosts},
            "service": {host: {"kind": "xrootd", "host": host, "storage": [host]} for host in services},
            **more,
        }
    }


def star_testbed(rates, **parts):
    return build_testbed(star(rates, **parts), "testbed")


def table(*rows):
    """Return a table of rows (from, to, Mb/s) or (from, to, Mb/s, start_s, end_s)."""
    return ChallengeTable(
        tuple(
            ChallengeRow(f"line {number}", source, destination, rate * 1e6, *times)
            for number, (source, destination, rate, *times) in enumerate(rows, 2)
        ),
        "rates.csv",
    )
