"""Certificates on real hosts, created by the controller. Each host gets only the files that it needs.

The key of the certificate authority stays with the controller. A host gets the certificate of the authority, its own
certificate and key, and, if it runs clients, a proxy. All files have mode 0600 below the session directory of the host, which
is removed at the end. Start with :class:`HostPki`.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath

from venturi.errors import BackendError
from venturi.testbed.host_shell import HostShell
from venturi.testbed.pki import DEFAULT_USER, PROXY_LIFETIME_S, Credential, Pki
from venturi.testbed.service_context import SESSION

__all__ = ["HostPki"]

_DIRECTORY = "pki"
_TRUSTED = "certificates"


class HostPki:
    """Certificate authority for the services of one host: methods of :class:`~venturi.testbed.pki.Pki`, with paths on that host.

    Parameters
    ----------
    pki
        Authority, in a directory of the controller.
    shell
        Host of the services.
    clients
        Hosts of clients.
    names
        Additional host names and addresses for the certificate of the host.
    """

    def __init__(self, pki: Pki, shell: HostShell, clients: Iterable[HostShell], names: Sequence[str] = ()) -> None:
        self._pki = pki
        self._shell = shell
        # The host of a service is also a client, because the readiness check runs a client there.
        self._clients = list({one.name: one for one in (shell, *clients)}.values())
        self._names = tuple(names)
        self._lock = threading.RLock()
        self._sent: set[tuple[str, str]] = set()

    @property
    def certificates(self) -> PurePath:
        """Directory of trusted certificates on the host, for ``X509_CERT_DIR``."""
        self._send([(self._shell, *file) for file in self._trusted()])
        return self._path(self._shell, _TRUSTED)

    @property
    def authority(self) -> PurePath:
        """Certificate of the authority on the host, PEM."""
        self._send([(self._shell, self._pki.authority, self._pki.authority.name)])
        return self._path(self._shell, self._pki.authority.name)

    def host(self, host_name: str, addresses: Sequence[str] = (), *, owner: str | None = None) -> Credential:
        """Return the certificate of a host, with paths on this host; repeated calls return the same one.

        Raises
        ------
        BackendError
            If ``openssl`` fails on the controller, or ``owner`` is set, because servers on real hosts keep their account.
        """
        _reject_owner(owner)
        return self._send_credential(self._pki.host(host_name, (*addresses, *self._names)))

    def user(self, name: str = DEFAULT_USER, *, owner: str | None = None) -> Credential:
        """Return the certificate of a user, with paths on this host; errors as for :meth:`host`."""
        _reject_owner(owner)
        return self._send_credential(self._pki.user(name))

    def proxy(
        self,
        name: str = DEFAULT_USER,
        *,
        lifetime_s: float = PROXY_LIFETIME_S,
        path: PurePath | None = None,
        owner: str | None = None,
    ) -> PurePath:
        """Write a new proxy of a user on this host and return its path; see :meth:`venturi.testbed.pki.Pki.proxy`."""
        _reject_owner(owner)
        target = path or self._path(self._shell, f"proxy-{_file_name(name)}.pem")
        with tempfile.TemporaryDirectory(prefix="venturi-proxy-") as directory:
            made = self._pki.proxy(name, lifetime_s=lifetime_s, path=Path(directory) / "proxy")
            self._shell.put(target, made.read_bytes(), 0o600)
        return target

    def client_environment(self, name: str = DEFAULT_USER) -> dict[str, str]:
        """Return the environment of clients of GSI services, and copy the files to each host of clients."""
        proxy = Path(self._pki.client_environment(name)["X509_USER_PROXY"])
        self._send([(shell, *file) for shell in self._clients for file in (*self._trusted(), (proxy, proxy.name))])
        return {
            "X509_CERT_DIR": f"{SESSION}/{_DIRECTORY}/{_TRUSTED}",
            "X509_USER_PROXY": f"{SESSION}/{_DIRECTORY}/{proxy.name}",
        }

    def trust(self) -> dict[str, str]:
        """Return the environment of clients that trust the authority but have no certificate of their own."""
        authority = self._pki.authority
        files = (*self._trusted(), (authority, authority.name))
        self._send([(shell, *file) for shell in self._clients for file in files])
        return {
            "X509_CERT_DIR": f"{SESSION}/{_DIRECTORY}/{_TRUSTED}",
            "CURL_CA_BUNDLE": f"{SESSION}/{_DIRECTORY}/{authority.name}",
        }

    def grid_mapfile(self, path: PurePath, accounts: Mapping[str, str]) -> PurePath:
        """Write a grid-mapfile on the host (common name of a user → local account), and return its path."""
        self._shell.put(path, self._pki.grid_mapfile_text(accounts), 0o600)
        return path

    def _send_credential(self, credential: Credential) -> Credential:
        paths = (credential.certificate, credential.key)
        self._send([(self._shell, path, path.name) for path in paths])
        certificate, key = (Path(self._path(self._shell, path.name)) for path in paths)
        return Credential(credential.subject, certificate, key)

    def _trusted(self) -> list[tuple[Path, str]]:
        """Return the files of trusted certificates with their names on a host."""
        return [(path, f"{_TRUSTED}/{path.name}") for path in sorted(self._pki.certificates.iterdir())]

    def _send(self, files: Sequence[tuple[HostShell, Path, str]]) -> None:
        """Copy files to hosts, each file once."""
        with self._lock:
            new = [(shell, path, name) for shell, path, name in files if (shell.name, name) not in self._sent]
            for shell, path, name in new:
                shell.put(self._path(shell, name), path.read_bytes(), 0o600)
            self._sent |= {(shell.name, name) for shell, _, name in new}

    def _path(self, shell: HostShell, name: str) -> PurePath:
        return shell.session / _DIRECTORY / name


def _reject_owner(owner: str | None) -> None:
    if owner is not None:
        raise BackendError(
            f"certificates: expected the account of the user to own files on real hosts, found {owner}"
        )


def _file_name(name: str) -> str:
    return name.lower().replace(" ", "-")
