"""Command lines of the tools in the network part of the mover benchmark, and the settings for the search of the best setting.

Parameters of a command of ``sh``: ``$1`` is the URL on the server, ``$2`` the local path, ``$3`` a list in the format of
the tool, and ``$4`` the path on the server.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

DOWN, UP = "download", "upload"


@dataclass(frozen=True)
class Tool:
    """A tool with its command line.

    Attributes
    ----------
    name
        Name in the output.
    command
        Command of ``sh``.
    part
        Fraction of a set for a tool that would take an hour for all files; only rates are compared.
    scheme
        Scheme of the URL.
    program
        Required program. Default: the first word of the command.
    """

    name: str
    command: str
    part: float = 1.0
    scheme: str = "ftp"
    program: str = ""

    @property
    def installed(self) -> bool:
        """Whether its program is installed."""
        return shutil.which(self.program or self.command.split()[0]) is not None


def globus(words: str, direction: str, *, part: float = 1.0) -> Tool:
    """Return `globus-url-copy` for many files: a list, or a directory if ``words`` contains ``-r``."""
    ends = (
        ('"$1/" "file://$2/"' if direction == DOWN else '"file://$2/" "$1/"') if "-r" in words.split() else '-f "$3"'
    )
    return Tool(f"globus {words or '(default)'}", f"globus-url-copy {words} {ends}", part)


def verified(tool: Tool) -> Tool:
    """Return `globus-url-copy` with comparison of checksums, with the algorithm that it supports for a local endpoint."""
    command = tool.command.replace("globus-url-copy", "globus-url-copy -verify-checksum -checksum-alg MD5")
    return replace(tool, name=f"{tool.name}, verified", command=command)


def globus_large(words: str, direction: str) -> Tool:
    """Return `globus-url-copy` for one file."""
    ends = '"$1" "file://$2"' if direction == DOWN else '"file://$2" "$1"'
    return Tool(f"globus {words or '(default)'}", f"globus-url-copy {words} {ends}")


def globus_steps(quick: bool) -> Sequence[Sequence[str]]:
    """Return settings for many files, for a stepwise search: ``{}`` is the best setting so far."""
    sessions = (16, 64) if quick else (4, 16, 32, 64, 128, 200)
    kinds = ("-r", "-r -pp")
    others = ("-pp", "-p 2", "-p 4", "-tcp-bs 1048576", "-tcp-bs 4194304", "-bs 65536", "-bs 4194304")
    words = kinds if quick else (*kinds, *others)
    return [f"-fast -cc {count}" for count in sessions], ["{}", *(f"{{}} {word}" for word in words)]


def globus_large_steps(quick: bool) -> Sequence[Sequence[str]]:
    """Return settings for one file, for a stepwise search."""
    streams = (1, 4) if quick else (1, 2, 4, 8, 16)
    sizes = ("-bs 4194304",) if quick else ("-bs 262144", "-bs 4194304", "-tcp-bs 4194304", "-tcp-bs 67108864")
    return ["", *(f"-fast -p {count}" for count in streams)], ["{}", *(f"{{}} {words}" for words in sizes)]


def lftp(words: str) -> Tool:
    """Return `lftp` for uploads, which pipelines in MODE S."""
    settings = "set ftp:sync-mode off; set net:connection-limit 0; set net:timeout 30; set net:max-retries 3"
    # Paths in a URL would be relative to the home directory of the anonymous user.
    return Tool(f"lftp {words}", f'lftp -c "{settings}; open ${{1%$4}}; mirror --no-perms {words} -R $2 $4"')


def https_peers(direction: str, count: int, *, quick: bool) -> list[list[Tool]]:
    """Return tools for many files by HTTPS, in one list of settings per tool; the best setting is compared.

    ``CURL_CA_BUNDLE`` and ``X509_CERT_DIR`` contain the CA of the lab.
    """
    sessions = (64,) if quick else (16, 64, 256)
    threads = (16,) if quick else (1, 4, 16, 64)
    curl = 'curl -sS --fail --parallel --parallel-immediate --parallel-max {} --config "$3"'
    ends = ':webdav: "$2"' if direction == DOWN else '"$2" :webdav:'
    rclone = f'rclone copy --config= --ca-cert "$CURL_CA_BUNDLE" --webdav-url "$1" --ignore-checksum --checkers {{0}} --transfers {{0}} {ends}'
    # davix creates directories and treats an existing directory as a file.
    davix = (
        'rmdir "$2"; davix-get --capath "$X509_CERT_DIR" -r {} "davs${{1#https}}" "$2"' if direction == DOWN else
        'rmdir "$4"; davix-put --capath "$X509_CERT_DIR" -r {} "$2" "davs${{1#https}}"'
    )  # fmt: skip
    found = [
        [Tool(f"curl --parallel-max {n}", curl.format(n), scheme="https") for n in sessions],
        [Tool(f"rclone --transfers {n}", rclone.format(n), scheme="https") for n in sessions],
        [Tool(f"davix -r {n}", davix.format(n), scheme="https", program="davix-get") for n in threads],
    ]
    if direction == DOWN:
        # xrdcp needs a second per file, and does not support uploads of several files to a directory by HTTP.
        xrdcp = 'xrdcp -A -s -f -N --parallel {} -I "$3.sources" "$2/"'
        found.append([Tool(f"xrdcp --parallel {n}", xrdcp.format(n), min(1.0, 20 / count), "https") for n in (4,)])
    return found


def https_large_peers(direction: str) -> list[Tool]:
    """Return tools for one file by HTTPS."""
    rclone = 'rclone copyto --config= --ca-cert "$CURL_CA_BUNDLE" --ignore-checksum --webdav-url "${1%/*}"'
    if direction == UP:
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


def loopback_peers(direction: str) -> list[Tool]:
    """Return tools for one file if the CPUs are the only limit."""
    ends = '"$1" "$2"' if direction == DOWN else '"$2" "$1"'
    root = Tool("xrdcp root://", f"xrdcp -s -f -N {ends}", scheme="root")
    settings = ("", "-fast", "-fast -p 4", "-fast -bs 4194304")
    return [root, *(globus_large(words, direction) for words in settings), *https_large_peers(direction)]


def ours(engine: Path, direction: str, words: str = "", *, scheme: str = "ftp") -> Tool:
    """Return ``venturi copy`` for many files, by default without settings, like most users."""
    ends = '"$1/" "$2"' if direction == DOWN else '"$2/" "$1"'
    return Tool(_our_name(scheme, words), f"{engine} copy -q -r {words} {ends}", scheme=scheme)


def ours_large(engine: Path, direction: str, words: str = "", *, scheme: str = "ftp") -> Tool:
    """Return ``venturi copy`` for one file."""
    ends = '"$1" "$2"' if direction == DOWN else '"$2" "$1"'
    return Tool(_our_name(scheme, words), f"{engine} copy -q {words} {ends}", scheme=scheme)


def _our_name(scheme: str, words: str) -> str:
    return " ".join(filter(None, ["venturi", scheme if scheme != "ftp" else "", words]))


def pairs(remote: str, local: Path, names: Sequence[str], direction: str) -> str:
    """Return a list for `globus-url-copy`."""
    storages = ((f"{remote}/{name}", f"file://{local}/{name}") for name in names)
    return "".join(f"{far} {near}\n" if direction == DOWN else f"{near} {far}\n" for far, near in storages)


def curl_config(remote: str, local: Path, names: Sequence[str], direction: str) -> str:
    """Return a list for `curl --config`."""
    word = "output" if direction == DOWN else "upload-file"
    return "".join(f'url = "{remote}/{name}"\n{word} = "{local}/{name}"\n' for name in names)
