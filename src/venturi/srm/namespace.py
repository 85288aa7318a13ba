"""The files behind SURLs: looking at them, making and removing them, never outside of the server's places.

A path is followed through symbolic links before it is judged. Between judging and use somebody with an account here could still change a link: places are for
users who have none.
"""

from __future__ import annotations

import errno
import os
import pwd
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from venturi.srm.errors import SrmError
from venturi.srm.words import Status

__all__ = ["Entry", "Namespace"]

_KINDS: dict[int, Literal["FILE", "DIRECTORY", "LINK"]] = {
    stat.S_IFDIR: "DIRECTORY",
    stat.S_IFREG: "FILE",
    stat.S_IFLNK: "LINK",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder as a listing shows it; times in seconds since 1970."""

    path: str
    kind: Literal["FILE", "DIRECTORY", "LINK"]
    size_bytes: int
    modified_s: float
    mode: int
    owner: str
    group: str


class Namespace:
    """The places of the server.

    Parameters
    ----------
    places
        Absolute folders by name.
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        # The nearest folder first, where one place lies in another.
        self._places = sorted(map(PurePosixPath, places.values()), key=lambda path: len(path.parts), reverse=True)

    def relative(self, path: PurePosixPath) -> str:
        """Return a path below its place.

        Raises
        ------
        SrmError
            SRM_AUTHORIZATION_FAILURE, if it lies in none: whether there is something is not told.
        """
        return path.relative_to(self._place(path)).as_posix()

    def entry(self, path: PurePosixPath) -> Entry:
        """Return what is at a path.

        Raises
        ------
        SrmError
            SRM_INVALID_PATH, if there is nothing; SRM_AUTHORIZATION_FAILURE, if it is outside.
        """
        with _told(path):
            self._confine(path)
            return _entry(path, Path(path).stat())

    def entries(self, path: PurePosixPath) -> Iterator[Entry]:
        """Yield what is in a folder by name; symbolic links as such, they may lead anywhere.

        Raises
        ------
        SrmError
            As :meth:`entry`, and SRM_INVALID_PATH if it is no folder.
        """
        with _told(path):
            self._confine(path)
            found = sorted(Path(path).iterdir())
        for one in found:
            try:
                yield _entry(PurePosixPath(one), one.lstat())
            except FileNotFoundError:  # it has gone meanwhile
                continue

    def check_writable(self, path: PurePosixPath, size_bytes: int | None, *, overwrite: bool) -> None:
        """Check that a file can come to be at a path.

        Raises
        ------
        SrmError
            SRM_INVALID_PATH without its folder, SRM_DUPLICATION_ERROR if something is there that may not be replaced, SRM_NO_FREE_SPACE.
        """
        with _told(path):
            folder = self._confine(path.parent, place=path)
            if not folder.is_dir():
                raise SrmError(Status.INVALID_PATH, f"{path.parent}: expected a folder, found none")
            if os.path.lexists(path) and not (overwrite and stat.S_ISREG(Path(path).lstat().st_mode)):
                raise SrmError(
                    Status.DUPLICATION_ERROR, f"{path}: expected a name that is free, found one that is taken"
                )
            room = os.statvfs(folder)
            free = room.f_bavail * room.f_frsize
            if size_bytes is not None and size_bytes > free:
                raise SrmError(Status.NO_FREE_SPACE, f"{path}: expected room for {size_bytes} bytes, found {free}")

    def remove(self, path: PurePosixPath) -> None:
        """Remove a file, or a link itself; SRM_INVALID_PATH if there is none."""
        with _told(path):
            self._confine(path.parent, place=path)
            if stat.S_ISDIR(Path(path).lstat().st_mode):
                raise SrmError(Status.INVALID_PATH, f"{path}: expected a file, found a folder")
            Path(path).unlink()

    def make_folder(self, path: PurePosixPath) -> None:
        """Make a folder; its parent must be there."""
        with _told(path):
            self._confine(path.parent, place=path)
            Path(path).mkdir()

    def remove_folder(self, path: PurePosixPath, *, recursive: bool) -> None:
        """Remove a folder, empty unless all below goes with it; never a place itself."""
        with _told(path):
            self._confine(path.parent, place=path)
            if path in self._places:
                raise SrmError(
                    Status.AUTHORIZATION_FAILURE, f"{path}: expected a folder below a place, found the place itself"
                )
            if not stat.S_ISDIR(Path(path).lstat().st_mode):
                raise SrmError(Status.INVALID_PATH, f"{path}: expected a folder, found a file")
            if recursive:
                shutil.rmtree(path)
            else:
                Path(path).rmdir()

    def _place(self, path: PurePosixPath) -> PurePosixPath:
        for place in self._places:
            if path.is_relative_to(place):
                return place
        raise SrmError(Status.AUTHORIZATION_FAILURE, f"{path}: expected a path in one of the server's places")

    def _confine(self, path: PurePosixPath, *, place: PurePosixPath | None = None) -> Path:
        """Return a path with its links followed; refuse one that leads out of the place that it is written below."""
        own = self._place(place or path)
        real, home = Path(os.path.realpath(path)), os.path.realpath(own)
        if not real.is_relative_to(home):
            raise SrmError(Status.AUTHORIZATION_FAILURE, f"{path}: expected a path in one of the server's places")
        return real


@contextmanager
def _told(path: PurePosixPath) -> Iterator[None]:
    """Have what the system says of a path as a status of SRM."""
    try:
        yield
    except OSError as error:
        status = _STATUS.get(type(error), Status.FAILURE)
        if error.errno == errno.ENOTEMPTY:
            status = Status.NON_EMPTY_DIRECTORY
        elif error.errno == errno.ENOSPC:
            status = Status.NO_FREE_SPACE
        raise SrmError(status, f"{path}: {error.strerror or error}") from error


_STATUS: dict[type[BaseException], Status] = {
    FileNotFoundError: Status.INVALID_PATH,
    NotADirectoryError: Status.INVALID_PATH,
    IsADirectoryError: Status.INVALID_PATH,
    FileExistsError: Status.DUPLICATION_ERROR,
    PermissionError: Status.AUTHORIZATION_FAILURE,
}


def _entry(path: PurePosixPath, found: os.stat_result) -> Entry:
    kind = _KINDS.get(stat.S_IFMT(found.st_mode), "FILE")
    mode = stat.S_IMODE(found.st_mode)
    return Entry(path.as_posix(), kind, found.st_size, found.st_mtime, mode, _owner(found.st_uid), str(found.st_gid))


def _owner(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
