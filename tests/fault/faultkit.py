"""Find servers of a lab and cause faults."""

import os
from contextlib import suppress
from pathlib import Path


def gridftp_server(labs, host):
    """Return the PID of the GridFTP server of a host, not of a session."""
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (directory / "cmdline").read_bytes().decode(errors="replace").split("\0")
            mine = words[0].endswith("globus-gridftp-server") and any(word.startswith(str(labs)) for word in words)
            named = any(f"/{host}/" in word or word.endswith(f"/{host}") for word in words)
            if mine and named and os.getpgid(int(directory.name)) == int(directory.name):
                return int(directory.name)
    raise AssertionError(f"no GridFTP server of {host}")


def fill(labs, host, most_bytes=100_000_000):
    """Fill the disk ``disk`` of a host. It is mounted only in the lab, so its files are reached through a process in the lab."""
    inside = Path(f"/proc/{gridftp_server(labs, host)}/root") / labs.relative_to("/")
    (directory,) = inside.glob(f"venturi-*/hosts/{host}/disk")
    with (directory / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while filler.tell() < most_bytes:
            filler.write(b"x" * 1_000_000)
        raise AssertionError(f"the disk of {host} took {most_bytes} bytes and was not full")
