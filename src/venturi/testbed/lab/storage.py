"""Storages of a lab's hosts: directories, memory, and disks of their own that can be slow."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from venturi.errors import BackendError
from venturi.plan.header import Place
from venturi.testbed.lab.programs import surroundings
from venturi.testbed.lab.registry import Entry

__all__ = ["DEFAULT_DISK_BYTES", "loop_of", "make_disk", "make_tmpfs", "open_to_all", "release_loop", "throttle"]

DEFAULT_DISK_BYTES = 4 * 10**9
"""Of a disk whose scenario names no size; its file is sparse."""

_TIMEOUT_S = 60.0
_RELEASE_S = 10.0
_POLL_S = 0.01
_THROTTLES = {
    "read_bytes_per_s": "blkio.throttle.read_bps_device",
    "write_bytes_per_s": "blkio.throttle.write_bps_device",
}


def open_to_all(folder: Path) -> None:
    """Make a folder that every user may write to: servers of the lab run as several."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)
    except OSError as error:
        raise BackendError(
            f"{folder}: expected a folder that a storage of the lab can be: {error.strerror}"
        ) from error


def make_tmpfs(name: str, place: Place, folder: Path, enter: Sequence[str]) -> None:
    """Mount memory on a folder, within the lab."""
    size = f"size={place.storage.size_bytes}," if place.storage is not None and place.storage.size_bytes else ""
    _must([*enter, "mount", "-t", "tmpfs", "-o", f"{size}mode=0777", f"venturi-{name}", str(folder)], name)


def make_disk(name: str, place: Place, folder: Path, *, image: Path, entry: Entry, enter: Sequence[str]) -> Path:
    """Make an ext4 file system in a sparse file and mount it on a folder, within the lab.

    The kernel lets go of the loop device, and of the file, which has no name by then, when the lab's mounts are gone.

    Returns
    -------
    Path
        Its device.

    Raises
    ------
    BackendError
        If that is not allowed, or the programs are missing.
    """
    if os.geteuid() != 0:
        raise BackendError(
            f'testbed.storage.{name}: expected root for kind = "disk" (loop devices are root\'s), found UID {os.geteuid()};'
            ' become root, or use "tmpfs" or "directory"'
        )
    size_bytes = (place.storage.size_bytes if place.storage else None) or DEFAULT_DISK_BYTES
    entry.will_make("disk", path=str(image))
    try:
        with image.open("xb") as stream:
            stream.truncate(size_bytes)
        _must(
            [
                "mkfs.ext4",
                "-q",
                "-F",
                "-m",
                "0",
                "-E",
                "lazy_itable_init=1,lazy_journal_init=1,nodiscard",
                str(image),
            ],
            name,
        )
        loop = _must(["losetup", "--find", "--show", "--direct-io=off", str(image)], name).strip()
        try:
            _must([*enter, "mount", "-t", "ext4", loop, str(folder)], name)
        finally:
            # With the file system mounted this only asks the kernel to release the device with the last mount (losetup(8), --detach).
            subprocess.run(
                ["losetup", "--detach", loop],
                capture_output=True,
                timeout=_TIMEOUT_S,
                env=surroundings(),
                check=False,
            )
    except OSError as error:
        raise BackendError(f"testbed.storage.{name}: {image}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            image.unlink()
    _must([*enter, "chmod", "0777", str(folder)], name)
    return Path(loop)


def device_number(device: Path) -> str:
    """Return the number of a device as control groups name it, ``7:0``."""
    number = device.stat().st_rdev
    return f"{os.major(number)}:{os.minor(number)}"


def throttle(place: Place, device: str, groups: Sequence[Path]) -> None:
    """Limit what the processes of some groups read from and write to a device, in bytes a second.

    The machine's root group must be among them: the kernel's writers of dirty pages are in that one (version 1 does not charge them to
    who dirtied the pages), so without it only direct writes would be slow.
    """
    assert place.storage is not None
    rates = {"read_bytes_per_s": place.storage.read_bytes_per_s, "write_bytes_per_s": place.storage.write_bytes_per_s}
    for key, rate in rates.items():
        for group in groups if rate is not None else ():
            (group / _THROTTLES[key]).write_text(f"{device} {round(rate or 0)}")


def unthrottle(device: str, group: Path) -> None:
    """Take the limits of a device off a group."""
    for file in _THROTTLES.values():
        with suppress(OSError):
            (group / file).write_text(f"{device} 0")


def loop_of(image: Path) -> Path | None:
    """Return the loop device whose file is, or was, ``image``."""
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):
            if backing.read_text().strip().removesuffix(" (deleted)") == str(image):
                return Path("/dev", backing.parts[3])
    return None


def release_loop(image: Path) -> bool:
    """Let go of the loop device of a file of ours, and remove the file; return whether both are gone.

    A device that was mounted until now is released by the kernel a moment later.
    """
    with suppress(FileNotFoundError):
        image.unlink()
    deadline_s = time.monotonic() + _RELEASE_S
    while (loop := loop_of(image)) is not None and time.monotonic() < deadline_s:
        subprocess.run(
            ["losetup", "--detach", str(loop)],
            capture_output=True,
            timeout=_TIMEOUT_S,
            env=surroundings(),
            check=False,
        )
        time.sleep(_POLL_S)
    return loop is None


def limits_of(place: Place) -> Mapping[str, float]:
    """Return the rates asked for, by direction."""
    assert place.storage is not None
    rates = {"read": place.storage.read_bytes_per_s, "write": place.storage.write_bytes_per_s}
    return {direction: rate for direction, rate in rates.items() if rate is not None}


def _must(argv: Sequence[str], name: str) -> str:
    where = f"testbed.storage.{name}"
    try:
        done = subprocess.run(
            list(argv), capture_output=True, text=True, timeout=_TIMEOUT_S, env=surroundings(), check=False
        )
    except FileNotFoundError as error:
        raise BackendError(
            f"{where}: expected the program {argv[0]}, found none; install it (venturi doctor)"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise BackendError(f"{where}: expected {argv[0]} to end within {_TIMEOUT_S:g} s") from error
    if done.returncode:
        raise BackendError(
            f"{where}: expected {' '.join(argv)} to succeed, found exit code {done.returncode}: {done.stderr.strip()}"
        )
    return done.stdout
