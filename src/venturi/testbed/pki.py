"""Temporary certificate authority: certificates of hosts and users, proxies, grid-mapfile.

All files are created with ``openssl`` below one directory, and nothing is written to ``/etc/grid-security``. The authority
is created on first use, so that a lab without certificates saves the time. Keys are RSA 2048, without passphrases. Start
with :class:`Pki`.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from venturi.errors import BackendError

__all__ = ["BACKDATE", "DEFAULT_USER", "PROXY_LIFETIME_S", "Credential", "Pki"]

DEFAULT_USER = "Lab User"
"""Common name of the user whose proxy the lab's clients use."""

_ORGANIZATION = "/O=Venturi"
_AUTHORITY = f"{_ORGANIZATION}/CN=Lab CA"
_LIFETIME = timedelta(days=30)
PROXY_LIFETIME_S = 12 * 3600.0
"""Default lifetime of a proxy, in seconds."""
_TIMEOUT_S = 30.0
BACKDATE = timedelta(minutes=5)
"""Certificates are valid this long before their creation, for hosts whose clocks are behind."""

_SIGNING_POLICY = f"""\
access_id_CA  X509  '{_AUTHORITY}'
pos_rights    globus CA:sign
cond_subjects globus '"{_ORGANIZATION}/*"'
"""

_HOST = """\
keyUsage = critical,digitalSignature,keyEncipherment
extendedKeyUsage = serverAuth,clientAuth
subjectAltName = {names}
"""

_USER = """\
keyUsage = critical,digitalSignature,keyEncipherment
extendedKeyUsage = clientAuth
"""

# RFC 5280, section 4.2.1.9: only a CA signs certificates.
_CA = """\
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always
"""

# RFC 3820, section 3.8: the proxy inherits all rights.
_PROXY = """\
keyUsage = critical,digitalSignature,keyEncipherment
proxyCertInfo = critical,language:id-ppl-inheritAll
"""

_CONFIGURATION = """\
[ca]
default_ca = sign
[sign]
database = {directory}/index
new_certs_dir = {directory}
rand_serial = yes
unique_subject = no
default_md = sha256
policy = any
x509_extensions = extensions
[any]
organizationName = optional
commonName = supplied
[extensions]
{extensions}"""


@dataclass(frozen=True, slots=True)
class Credential:
    """Certificate with its key, both PEM; the key has mode 600."""

    subject: str
    certificate: Path
    key: Path


class Pki:
    """Certificate authority of one lab, safe to use from several threads.

    Parameters
    ----------
    directory
        Directory of all its files, which every user can enter; removed with the lab.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     pki = Pki(Path(directory) / "pki")
    ...     host = pki.host("a.lab.test", ["10.77.0.1"])
    ...     sorted(pki.client_environment())
    ['X509_CERT_DIR', 'X509_USER_PROXY']
    >>> host.subject
    '/O=Venturi/CN=a.lab.test'
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.RLock()

    @property
    def certificates(self) -> Path:
        """Directory of trusted certificates with signing policy, for ``X509_CERT_DIR``."""
        self.authority  # noqa: B018 - creates it on first use
        return self.directory / "certificates"

    @property
    def authority(self) -> Path:
        """Certificate of the authority, PEM, for ``curl --cacert``."""
        certificate = self.directory / "authority.pem"
        with self._lock:
            if not certificate.exists():
                self._create_ca(certificate)
        return certificate

    def host(self, host_name: str, addresses: Sequence[str] = (), *, owner: str | None = None) -> Credential:
        """Return the certificate of a host; repeated calls return the same one.

        Parameters
        ----------
        host_name
            Name that resolves in the lab; it is in the subject and an alternative name.
        addresses
            Further IP addresses and host names of the certificate.
        owner
            Account that must own the key, such as ``xrootd``; each owner gets a separate certificate.
            ``None``: the account of this process.

        Raises
        ------
        BackendError
            If ``openssl`` is missing or fails, or the account ``owner`` does not exist here.
        """
        # XRootD compares the host of a URL only with DNS names, even if it is an address.
        names = [f"DNS:{host_name}", *(_alternative_name(name) for name in (host_name, *addresses))]
        return self._credential(host_name, _HOST.format(names=",".join(dict.fromkeys(names))), owner)

    def user(self, name: str = DEFAULT_USER, *, owner: str | None = None) -> Credential:
        """Return the certificate of a user; repeated calls return the same one. Parameters and errors as for :meth:`host`."""
        return self._credential(name, _USER, owner)

    def proxy(
        self,
        name: str = DEFAULT_USER,
        *,
        lifetime_s: float = PROXY_LIFETIME_S,
        path: Path | None = None,
        owner: str | None = None,
    ) -> Path:
        """Write a new proxy (RFC 3820, full rights) of a user and return its path, mode 600.

        Parameters
        ----------
        lifetime_s
            Lifetime from now, whole seconds. Zero or less creates an expired proxy.
        path
            Destination; an existing file is replaced atomically. Default: the path in :meth:`client_environment`.
        owner
            Account that must own the file, because clients reject a proxy of another account.

        Raises
        ------
        BackendError
            As for :meth:`host`.
        """
        user = self.user(name)
        path = path or self._default_proxy(name)
        with self._lock:
            _write_secret(path, self._proxy_text(user, lifetime_s), owner)
        return path

    def client_environment(self, name: str = DEFAULT_USER) -> dict[str, str]:
        """Return the environment of clients of GSI services. If there is no proxy yet, create one for 12 hours."""
        with self._lock:
            path = self._default_proxy(name)
            if not path.exists():
                self.proxy(name)
        return {"X509_CERT_DIR": str(self.certificates), "X509_USER_PROXY": str(path)}

    def trust(self) -> dict[str, str]:
        """Return the environment of grid clients and curl that trust only the lab's authority and have no certificate."""
        return {"X509_CERT_DIR": str(self.certificates), "CURL_CA_BUNDLE": str(self.authority)}

    def grid_mapfile(self, path: Path, accounts: Mapping[str, str]) -> Path:
        """Write a grid-mapfile: common name of a user → local account, which must exist. Return its path."""
        path.write_text(self.grid_mapfile_text(accounts), encoding="utf-8")
        path.chmod(0o644)
        return path

    def grid_mapfile_text(self, accounts: Mapping[str, str]) -> str:
        """Return the text of a grid-mapfile: see :meth:`grid_mapfile`."""
        return "".join(f'"{_ORGANIZATION}/CN={name}" {account}\n' for name, account in accounts.items())

    def _default_proxy(self, name: str) -> Path:
        return self.directory / f"proxy-{_file_name(name)}.pem"

    def _create_ca(self, certificate: Path) -> None:
        directory = self.directory / "certificates"
        directory.mkdir(parents=True, exist_ok=True)
        for traversed in (self.directory, directory):
            traversed.chmod(0o755)
        key, request = self.directory / "authority.key", self.directory / "authority.csr"
        _create_request(request, key, _AUTHORITY)
        fresh = self.directory / "authority.new"
        _readable(fresh, _sign(request, _CA, _LIFETIME, "-selfsign", "-keyfile", key))
        request.unlink()
        digest = _openssl("x509", "-hash", "-noout", "-in", fresh).strip()
        _readable(directory / f"{digest}.0", fresh.read_text())
        _readable(directory / f"{digest}.signing_policy", _SIGNING_POLICY)
        fresh.replace(certificate)

    def _credential(self, name: str, extensions: str, owner: str | None) -> Credential:
        stem = _file_name(name) if owner is None else f"{_file_name(name)}-{owner}"
        subject = f"{_ORGANIZATION}/CN={name}"
        credential = Credential(subject, self.directory / f"{stem}.pem", self.directory / f"{stem}.key")
        with self._lock:
            if not credential.certificate.exists():
                self._issue(credential, stem, extensions, owner)
        return credential

    def _issue(self, credential: Credential, stem: str, extensions: str, owner: str | None) -> None:
        authority = self.authority
        fresh, request = self.directory / f"{stem}.new", self.directory / f"{stem}.csr"
        _create_request(request, credential.key, credential.subject)
        signer = ("-cert", authority, "-keyfile", self.directory / "authority.key")
        _readable(fresh, _sign(request, extensions, _LIFETIME, *signer))
        _give(credential.key, owner)
        request.unlink()
        fresh.replace(credential.certificate)

    def _proxy_text(self, user: Credential, lifetime_s: float) -> str:
        directory = self.directory / f"proxy-{secrets.token_hex(4)}"
        directory.mkdir(mode=0o700)
        try:
            request, key = directory / "request", directory / "key"
            _create_request(request, key, f"{user.subject}/CN={secrets.randbelow(10**9)}")
            signer = ("-cert", user.certificate, "-keyfile", user.key)
            certificate = _sign(request, _PROXY, timedelta(seconds=lifetime_s), *signer)
            return "".join(
                (certificate, key.read_text(encoding="utf-8"), user.certificate.read_text(encoding="utf-8"))
            )
        finally:
            shutil.rmtree(directory)


def _create_request(request: Path, key: Path, subject: str) -> None:
    """Create a key, mode 600, and a request for its certificate."""
    _openssl(
        *("req", "-newkey", "rsa:2048", "-nodes", "-sha256", "-subj", subject),
        *("-keyout", key, "-out", request),
    )
    key.chmod(0o600)


def _sign(request: Path, extensions: str, lifetime: timedelta, *signer: str | Path) -> str:
    """Return the certificate for a request, backdated by some minutes. ``x509 -req`` supports whole days only."""
    end = datetime.now(UTC) + lifetime
    start = min(datetime.now(UTC), end) - BACKDATE
    with tempfile.TemporaryDirectory(prefix="sign-", dir=request.parent) as name:
        directory = Path(name)
        (directory / "index").touch()
        configuration = _CONFIGURATION.format(directory=directory, extensions=extensions)
        (directory / "config").write_text(configuration, encoding="utf-8")
        _openssl(
            *("ca", "-batch", "-notext", "-preserveDN", "-config", directory / "config", "-in", request, *signer),
            *("-startdate", f"{start:%Y%m%d%H%M%SZ}", "-enddate", f"{end:%Y%m%d%H%M%SZ}"),
            *("-out", directory / "certificate"),
        )
        return (directory / "certificate").read_text(encoding="utf-8")


def _openssl(*arguments: str | Path) -> str:
    try:
        done = subprocess.run(
            ["openssl", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except FileNotFoundError as error:
        raise BackendError("certificates: expected the program openssl, found none; install openssl") from error
    if done.returncode:
        raise BackendError(
            f"certificates: expected openssl {arguments[0]} to succeed, found exit code {done.returncode}: {done.stderr.strip()}"
        )
    return done.stdout


def _write_secret(path: Path, text: str, owner: str | None) -> None:
    """Write a secret file atomically, with its final mode and owner."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    fresh.chmod(0o600)
    _give(fresh, owner)
    fresh.replace(path)


def _give(path: Path, owner: str | None) -> None:
    if owner is None:
        return
    try:
        shutil.chown(path, owner)
    except LookupError as error:
        raise BackendError(
            f"certificates: expected an account {owner} to own {path.name}, found none; install the package that creates it"
        ) from error
    except PermissionError as error:
        raise BackendError(
            f"certificates: expected root, to change the owner of {path.name} to {owner}, found another user"
        ) from error


def _readable(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)


def _alternative_name(name: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(name)}"
    except ValueError:
        return f"DNS:{name}"


def _file_name(name: str) -> str:
    return name.lower().replace(" ", "-")
