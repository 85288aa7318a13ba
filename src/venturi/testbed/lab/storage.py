"""Storages of lab hosts: directories, memory, and disks with optional rate limits."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from venturi.errors import BackendError
from venturi.plan.header import Storage
from venturi.testbed.lab.groups import THROTTLES
from venturi.testbed.lab.programs import program_environment
from venturi.testbed.lab.registry import LabEntry

__all__ = [
    "DEFAULT_DISK_BYTES",
    "find_loop_device",
    "make_disk",
    "make_tmpfs",
    "open_to_all",
    "release_loop",
]

DEFAULT_DISK_BYTES = 4 * 10**9
"""Size of a disk without ``size`` in the scenario; its file is sparse."""

_TIMEOUT_S = 60.0
_RELEASE_S = 10.0
_POLL_S = 0.01


def open_to_all(directory: Path) -> None:
    """Create a directory that all users can write to, because the lab's servers run under several accounts."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o777)
    except OSError as error:
        raise BackendError(
            f"{directory}: cannot use the directory as a storage of the lab: {error.strerror}"
        ) from error


def make_tmpfs(name: str, storage: Storage, directory: Path, enter: Sequence[str]) -> None:
    """Mount a tmpfs on a directory, within the lab."""
    size = f"size={storage.spec.size_bytes}," if storage.spec is not None and storage.spec.size_bytes else ""
    _run_checked([*enter, "mount", "-t", "tmpfs", "-o", f"{size}mode=0777", f"venturi-{name}", str(directory)], name)


def make_disk(
    name: str, storage: Storage, directory: Path, *, image: Path, entry: LabEntry, enter: Sequence[str]
) -> Path:
    """Create an ext4 file system in a sparse file and mount it on a directory, within the lab.

    The file is unlinked after the mount. When the lab's mounts end, the kernel releases the loop device and the file.

    Returns
    -------
    Path
        Loop device.

    Raises
    ------
    BackendError
        If permissions or programs are missing.
    """
    if os.geteuid() != 0:
        raise BackendError(
            f'testbed.storage.{name}: expected root for kind = "disk" (loop devices are root\'s), found UID {os.geteuid()};'
            ' become root, or use "tmpfs" or "directory"'
        )
    size_bytes = (storage.spec.size_bytes if storage.spec else None) or DEFAULT_DISK_BYTES
    entry.register("disk", path=str(image))
    try:
        with image.open("xb") as stream:
            stream.truncate(size_bytes)
        _run_checked(
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
        loop = _run_checked(["losetup", "--find", "--show", "--direct-io=off", str(image)], name).strip()
        try:
            _run_checked([*enter, "mount", "-t", "ext4", loop, str(directory)], name)
        finally:
            # While the file system is mounted, this defers the release of the device to the last unmount (losetup(8), --detach).
            subprocess.run(
                ["losetup", "--detach", loop],
                capture_output=True,
                timeout=_TIMEOUT_S,
                env=program_environment(),
                check=False,
            )
    except OSError as error:
        raise BackendError(f"testbed.storage.{name}: {image}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            image.unlink()
    _run_checked([*enter, "chmod", "0777", str(directory)], name)
    return Path(loop)


def device_number(device: Path) -> str:
    """Return the number of a device in the notation of control groups, ``7:0``."""
    number = device.stat().st_rdev
    return f"{os.major(number)}:{os.minor(number)}"


def unthrottle(device: str, group: Path) -> None:
    """Remove the limits of a device from a control group of version 1."""
    for file in THROTTLES.values():
        with suppress(OSError):
            (group / file).write_text(f"{device} 0")


def find_loop_device(image: Path) -> Path | None:
    """Return the loop device with the backing file ``image``, even if the file was unlinked."""
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):
            if backing.read_text().strip().removesuffix(" (deleted)") == str(image):
                return Path("/dev", backing.parts[3])
    return None


def release_loop(image: Path) -> bool:
    """Release the loop device of a disk's file and remove the file; return whether the device is released.

    The kernel releases a device that was just unmounted with a short delay.
    """
    with suppress(FileNotFoundError):
        image.unlink()
    deadline_s = time.monotonic() + _RELEASE_S
    while (loop := find_loop_device(image)) is not None and time.monotonic() < deadline_s:
        subprocess.run(
            ["losetup", "--detach", str(loop)],
            capture_output=True,
            timeout=_TIMEOUT_S,
            env=program_environment(),
            check=False,
        )
        time.sleep(_POLL_S)
    return loop is None


def rate_limits(storage: Storage) -> Mapping[str, float]:
    """Return the requested rates, by direction."""
    assert storage.spec is not None
    rates = {"read": storage.spec.read_bytes_per_s, "write": storage.spec.write_bytes_per_s}
    return {direction: rate for direction, rate in rates.items() if rate is not None}


def _run_checked(argv: Sequence[str], name: str) -> str:
    where = f"testbed.storage.{name}"
    try:
        done = subprocess.run(
            list(argv), capture_output=True, text=True, timeout=_TIMEOUT_S, env=program_environment(), check=False
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
