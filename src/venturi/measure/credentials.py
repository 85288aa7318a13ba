"""Credentials of one measurement: a temporary CA, certificates of servers, a proxy or a token of the client.

Each host gets only its own files, with mode 0600, in its session directory. The key of the CA is in a temporary directory of this machine
until all certificates exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path, PurePosixPath

from venturi.backend.remote_shell import RemoteHostShell
from venturi.errors import MeasureError
from venturi.testbed.pki import BACKDATE, DEFAULT_USER, Pki

__all__ = ["CredentialStore", "check_clocks"]

_ACCOUNT = "measure"
"""User name in the server's log; not an account of the host."""


def check_clocks(shells: Sequence[RemoteHostShell]) -> None:
    """Check that certificates made now are valid on all hosts.

    Raises
    ------
    MeasureError
        If the clock of a host is far behind.
    """
    for shell in shells:
        offset = shell.clock()
        behind_s = -offset.offset_s + offset.uncertainty_s
        if behind_s > BACKDATE.total_seconds():
            raise MeasureError(
                f"{shell.name}: its clock is {behind_s:.0f} s behind the clock of this machine. Set the clock, for example with chrony."
            )


class CredentialStore:
    """Credentials of one measurement.

    Parameters
    ----------
    directory
        Temporary directory of this process.
    """

    def __init__(self, directory: Path) -> None:
        self._pki = Pki(directory / "pki")

    def gsi_server(self, shell: RemoteHostShell, address: str) -> list[str]:
        """Copy the files of a GridFTP server to its host and return options of ``venturi-engine serve``."""
        mapfile = self._pki.directory / "measure-mapfile"
        self._send_server(shell, address)
        self._pki.grid_mapfile(mapfile, {DEFAULT_USER: _ACCOUNT})
        directory = _directory(shell)
        shell.put(directory / "grid-mapfile", mapfile.read_bytes())
        return [
            "--cert", str(directory / "hostcert.pem"), "--key", str(directory / "hostkey.pem"),
            "--ca-dir", str(directory / "certificates"), "--grid-mapfile", str(directory / "grid-mapfile"),
        ]  # fmt: skip

    def gsi_client(self, shell: RemoteHostShell) -> dict[str, str]:
        """Copy a proxy to the host of a client and return environment variables for ``venturi-engine copy``."""
        proxy = self._pki.proxy(path=self._pki.directory / "measure-proxy.pem")
        directory = _directory(shell)
        shell.put(directory / "proxy.pem", proxy.read_bytes())
        return {**self._send_authority(shell), "X509_USER_PROXY": str(directory / "proxy.pem")}

    def https_server(self, shell: RemoteHostShell, address: str, token: str) -> list[str]:
        """Copy the files of an HTTPS server to its host and return options of ``venturi-engine serve``."""
        self._send_server(shell, address)
        directory = _directory(shell)
        shell.put(directory / "tokens", f"{token}\n")
        return [
            "--tls-cert", str(directory / "hostcert.pem"), "--tls-key", str(directory / "hostkey.pem"),
            "--tokens", str(directory / "tokens"),
        ]  # fmt: skip

    def https_client(self, shell: RemoteHostShell, token: str) -> dict[str, str]:
        """Copy the token to the host of a client and return environment variables for ``venturi-engine copy``."""
        path = _directory(shell) / "token"
        shell.put(path, f"{token}\n")
        return {**self._send_authority(shell), "BEARER_TOKEN_FILE": str(path)}

    def _send_server(self, shell: RemoteHostShell, address: str) -> None:
        credential = self._pki.host(address, [address] if _is_address(address) else [])
        directory = _directory(shell)
        shell.put(directory / "hostcert.pem", credential.certificate.read_bytes())
        shell.put(directory / "hostkey.pem", credential.key.read_bytes())
        self._send_authority(shell)

    def _send_authority(self, shell: RemoteHostShell) -> dict[str, str]:
        directory = _directory(shell) / "certificates"
        for path in self._pki.certificates.iterdir():
            shell.put(directory / path.name, path.read_bytes())
        return {"X509_CERT_DIR": str(directory)}


def _directory(shell: RemoteHostShell) -> PurePosixPath:
    return PurePosixPath(str(shell.session)) / "credentials"


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
