"""How tools are called by the network part of the mover's bench, and the settings among which each peer's best is looked for.

A command of ``sh`` has ``$1``, the place on the server as a URL, ``$2``, the local path, ``$3``, a list in the form that the tool wants, and ``$4``, the
path on the server.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

DOWN, UP = "download", "upload"


@dataclass(frozen=True)
class Tool:
    """A tool as it is called.

    Attributes
    ----------
    name
        What a row says of it.
    command
        Of ``sh``.
    part
        How much of a set it is given, where the whole would take it an hour: what is compared are rates.
    scheme
        Of the URL.
    program
        That must be there; by default the first word of the command.
    """

    name: str
    command: str
    part: float = 1.0
    scheme: str = "ftp"
    program: str = ""

    @property
    def installed(self) -> bool:
        """Whether its program is there."""
        return shutil.which(self.program or self.command.split()[0]) is not None


def globus(words: str, way: str, *, part: float = 1.0) -> Tool:
    """Return `globus-url-copy` for many files: a list, or with ``-r`` among its words a folder."""
    ends = ('"$1/" "file://$2/"' if way == DOWN else '"file://$2/" "$1/"') if "-r" in words.split() else '-f "$3"'
    return Tool(f"globus {words or '(default)'}", f"globus-url-copy {words} {ends}", part)


def verified(tool: Tool) -> Tool:
    """Return `globus-url-copy` that compares checksums, of the kind that it knows with a local end."""
    command = tool.command.replace("globus-url-copy", "globus-url-copy -verify-checksum -checksum-alg MD5")
    return replace(tool, name=f"{tool.name}, verified", command=command)


def globus_large(words: str, way: str) -> Tool:
    """Return `globus-url-copy` for one file."""
    ends = '"$1" "file://$2"' if way == DOWN else '"file://$2" "$1"'
    return Tool(f"globus {words or '(default)'}", f"globus-url-copy {words} {ends}")


def globus_steps(quick: bool) -> Sequence[Sequence[str]]:
    """Return settings for many files, to be tried step by step: ``{}`` is the best so far."""
    sessions = (16, 64) if quick else (4, 16, 32, 64, 128, 200)
    kinds = ("-r", "-r -pp")
    others = ("-pp", "-p 2", "-p 4", "-tcp-bs 1048576", "-tcp-bs 4194304", "-bs 65536", "-bs 4194304")
    words = kinds if quick else (*kinds, *others)
    return [f"-fast -cc {count}" for count in sessions], ["{}", *(f"{{}} {word}" for word in words)]


def globus_large_steps(quick: bool) -> Sequence[Sequence[str]]:
    """Return settings for one file."""
    streams = (1, 4) if quick else (1, 2, 4, 8, 16)
    sizes = ("-bs 4194304",) if quick else ("-bs 262144", "-bs 4194304", "-tcp-bs 4194304", "-tcp-bs 67108864")
    return ["", *(f"-fast -p {count}" for count in streams)], ["{}", *(f"{{}} {words}" for words in sizes)]


def lftp(words: str) -> Tool:
    """Return `lftp` for uploads, which pipelines in MODE S."""
    settings = "set ftp:sync-mode off; set net:connection-limit 0; set net:timeout 30; set net:max-retries 3"
    # Paths in a URL would be below the home of the anonymous user.
    return Tool(f"lftp {words}", f'lftp -c "{settings}; open ${{1%$4}}; mirror --no-perms {words} -R $2 $4"')


def https_peers(way: str, count: int, *, quick: bool) -> list[list[Tool]]:
    """Return tools for many files by HTTPS: settings of one tool each, of which the best is compared.

    The lab's authority comes by ``CURL_CA_BUNDLE`` and ``X509_CERT_DIR``.
    """
    sessions = (64,) if quick else (16, 64, 256)
    threads = (16,) if quick else (1, 4, 16, 64)
    curl = 'curl -sS --fail --parallel --parallel-immediate --parallel-max {} --config "$3"'
    ends = ':webdav: "$2"' if way == DOWN else '"$2" :webdav:'
    rclone = f'rclone copy --config= --ca-cert "$CURL_CA_BUNDLE" --webdav-url "$1" --ignore-checksum --checkers {{0}} --transfers {{0}} {ends}'
    # davix makes folders itself, and takes one that is there for a file.
    davix = (
        'rmdir "$2"; davix-get --capath "$X509_CERT_DIR" -r {} "davs${{1#https}}" "$2"' if way == DOWN else
        'rmdir "$4"; davix-put --capath "$X509_CERT_DIR" -r {} "$2" "davs${{1#https}}"'
    )  # fmt: skip
    found = [
        [Tool(f"curl --parallel-max {n}", curl.format(n), scheme="https") for n in sessions],
        [Tool(f"rclone --transfers {n}", rclone.format(n), scheme="https") for n in sessions],
        [Tool(f"davix -r {n}", davix.format(n), scheme="https", program="davix-get") for n in threads],
    ]
    if way == DOWN:
        # It takes a second for each, and several files into a folder by HTTP not at all.
        xrdcp = 'xrdcp -A -s -f -N --parallel {} -I "$3.sources" "$2/"'
        found.append([Tool(f"xrdcp --parallel {n}", xrdcp.format(n), min(1.0, 20 / count), "https") for n in (4,)])
    return found


def https_large_peers(way: str) -> list[Tool]:
    """Return tools for one file by HTTPS."""
    rclone = 'rclone copyto --config= --ca-cert "$CURL_CA_BUNDLE" --ignore-checksum --webdav-url "${1%/*}"'
    if way == UP:
        return [
            Tool("curl", 'curl -sS --fail -T "$2" "$1"', scheme="https"),
            Tool("davix-put", 'davix-put --capath "$X509_CERT_DIR" "$2" "$1"', scheme="https"),
            Tool("xrdcp", 'xrdcp -A -s -f -N "$2" "$1"', scheme="https"),
            Tool("rclone", f'{rclone} "$2" ":webdav:${{1##*/}}"', scheme="https"),
        ]
    return [
        Tool("curl", 'curl -sS --fail -o "$2" "$1"', scheme="https"),
        Tool("davix-get", 'davix-get --capath "$X509_CERT_DIR" "$1" "$2"', scheme="https"),
        Tool("xrdcp", 'xrdcp -A -s -f -N "$1" "$2"', scheme="https"),
        *(Tool(f"rclone, {n} streams", f'{rclone} --multi-thread-streams {n} ":webdav:${{1##*/}}" "$2"', scheme="https")
          for n in (1, 4, 8)),
    ]  # fmt: skip


def loopback_peers(way: str) -> list[Tool]:
    """Return tools for one file where nothing but processors limits."""
    ends = '"$1" "$2"' if way == DOWN else '"$2" "$1"'
    root = Tool("xrdcp root://", f"xrdcp -s -f -N {ends}", scheme="root")
    settings = ("", "-fast", "-fast -p 4", "-fast -bs 4194304")
    return [root, *(globus_large(words, way) for words in settings), *https_large_peers(way)]


def ours(engine: Path, way: str, words: str = "", *, scheme: str = "ftp") -> Tool:
    """Return our own mover for many files; as users call it, without settings, unless there are words."""
    ends = '"$1/" "$2"' if way == DOWN else '"$2/" "$1"'
    return Tool(_our_name(scheme, words), f"{engine} copy -q -r {words} {ends}", scheme=scheme)


def ours_large(engine: Path, way: str, words: str = "", *, scheme: str = "ftp") -> Tool:
    """Return our own mover for one file."""
    ends = '"$1" "$2"' if way == DOWN else '"$2" "$1"'
    return Tool(_our_name(scheme, words), f"{engine} copy -q {words} {ends}", scheme=scheme)


def _our_name(scheme: str, words: str) -> str:
    return " ".join(filter(None, ["venturi", scheme if scheme != "ftp" else "", words]))


def pairs(remote: str, local: Path, names: Sequence[str], way: str) -> str:
    """Return a list for `globus-url-copy`."""
    places = ((f"{remote}/{name}", f"file://{local}/{name}") for name in names)
    return "".join(f"{far} {near}\n" if way == DOWN else f"{near} {far}\n" for far, near in places)


def curl_config(remote: str, local: Path, names: Sequence[str], way: str) -> str:
    """Return a list for `curl --config`."""
    word = "output" if way == DOWN else "upload-file"
    return "".join(f'url = "{remote}/{name}"\n{word} = "{local}/{name}"\n' for name in names)
