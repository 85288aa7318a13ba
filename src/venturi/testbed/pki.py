"""A throw-away certificate authority: certificates of hosts and users, proxies, grid-mapfile.

Made with the program ``openssl`` below one folder; nothing is written to ``/etc/grid-security``. The authority comes into
being when it is first asked for, so that a lab without certificates does not pay for one. RSA 2048, no passphrases.
The one type to read first: :class:`Pki`.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from venturi.errors import BackendError

__all__ = ["DEFAULT_USER", "Credential", "Pki"]

DEFAULT_USER = "Lab User"
"""Common name of the user whose proxy the lab's clients have."""

_ORGANIZATION = "/O=Venturi"
_AUTHORITY = f"{_ORGANIZATION}/CN=Lab CA"
_DAYS = "30"
_PROXY_LIFETIME_S = 12 * 3600.0
_TIMEOUT_S = 30.0
_BACKDATE = timedelta(minutes=5)

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

# RFC 3820, section 3.8: the proxy inherits all rights. `ca` and not `x509 -req`, which knows whole days only.
_PROXY = """\
[ca]
default_ca = proxy
[proxy]
database = {folder}/index
new_certs_dir = {folder}
rand_serial = yes
unique_subject = no
default_md = sha256
policy = any
x509_extensions = inherit
[any]
organizationName = optional
commonName = supplied
[inherit]
keyUsage = critical,digitalSignature,keyEncipherment
proxyCertInfo = critical,language:id-ppl-inheritAll
"""


@dataclass(frozen=True, slots=True)
class Credential:
    """A certificate with its key, both PEM; the key has mode 600."""

    subject: str
    certificate: Path
    key: Path


class Pki:
    """The certificate authority of one lab. Safe to use from several threads.

    Parameters
    ----------
    folder
        Where it keeps everything; world-traversable, gone with the lab.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pki = Pki(Path(folder) / "pki")
    ...     host = pki.host("a.lab.test", ["10.77.0.1"])
    ...     sorted(pki.client_environment())
    ['X509_CERT_DIR', 'X509_USER_PROXY']
    >>> host.subject
    '/O=Venturi/CN=a.lab.test'
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.RLock()

    @property
    def certificates(self) -> Path:
        """The folder of trusted certificates with signing policy, for ``X509_CERT_DIR``."""
        self.authority  # noqa: B018 - makes it on first use
        return self.folder / "certificates"

    @property
    def authority(self) -> Path:
        """The certificate of the authority, PEM, for ``curl --cacert``."""
        certificate = self.folder / "authority.pem"
        with self._lock:
            if not certificate.exists():
                self._make_authority(certificate)
        return certificate

    def host(self, host_name: str, addresses: Sequence[str] = (), *, owner: str | None = None) -> Credential:
        """Return the certificate of a host, the same one each time.

        Parameters
        ----------
        host_name
            As it resolves in the lab; it is in the subject and an alternative name.
        addresses
            IP addresses that the certificate is valid for too.
        owner
            Account that must own the key, such as ``xrootd``; each owner gets a certificate of its own.
            ``None``: the account that runs this process.

        Raises
        ------
        BackendError
            If ``openssl`` is missing or fails, or ``owner`` has no account here.
        """
        names = ",".join([f"DNS:{host_name}", *(f"IP:{address}" for address in addresses)])
        return self._credential(host_name, _HOST.format(names=names), owner)

    def user(self, name: str = DEFAULT_USER, *, owner: str | None = None) -> Credential:
        """Return the certificate of a person, the same one each time; ``owner`` and errors as for :meth:`host`."""
        return self._credential(name, _USER, owner)

    def proxy(
        self,
        name: str = DEFAULT_USER,
        *,
        lifetime_s: float = _PROXY_LIFETIME_S,
        path: Path | None = None,
        owner: str | None = None,
    ) -> Path:
        """Write a new proxy (RFC 3820, full rights) of a user and return its path, mode 600.

        Parameters
        ----------
        lifetime_s
            From now on, whole seconds; zero or less makes one that has expired.
        path
            Where to write it; what is there is replaced at once. Default: the one of :meth:`client_environment`.
        owner
            Account that must own the file; clients refuse a proxy of another account.

        Raises
        ------
        BackendError
            As for :meth:`host`.
        """
        user = self.user(name)
        path = path or self._default_proxy(name)
        with self._lock:
            _place(path, self._proxy_text(user, lifetime_s), owner)
        return path

    def client_environment(self, name: str = DEFAULT_USER) -> dict[str, str]:
        """Return what clients of GSI services need, with a proxy for 12 hours if none was made yet."""
        with self._lock:
            path = self._default_proxy(name)
            if not path.exists():
                self.proxy(name)
        return {"X509_CERT_DIR": str(self.certificates), "X509_USER_PROXY": str(path)}

    def trust(self) -> dict[str, str]:
        """Return what clients need that know nobody else than the lab's authority, and have no certificate: of the grid, and curl."""
        return {"X509_CERT_DIR": str(self.certificates), "CURL_CA_BUNDLE": str(self.authority)}

    def grid_mapfile(self, path: Path, accounts: Mapping[str, str]) -> Path:
        """Write a grid-mapfile: common name of a user → local account, which must exist. Return its path."""
        lines = (f'"{_ORGANIZATION}/CN={name}" {account}\n' for name, account in accounts.items())
        path.write_text("".join(lines), encoding="utf-8")
        path.chmod(0o644)
        return path

    def _default_proxy(self, name: str) -> Path:
        return self.folder / f"proxy-{_file_name(name)}.pem"

    def _make_authority(self, certificate: Path) -> None:
        folder = self.folder / "certificates"
        folder.mkdir(parents=True, exist_ok=True)
        for traversed in (self.folder, folder):
            traversed.chmod(0o755)
        key, fresh = self.folder / "authority.key", self.folder / "authority.new"
        _openssl(
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-sha256", "-days", _DAYS, "-subj", _AUTHORITY),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign", "-keyout", key, "-out", fresh),
        )
        key.chmod(0o600)
        digest = _openssl("x509", "-hash", "-noout", "-in", fresh).strip()
        _readable(folder / f"{digest}.0", fresh.read_text())
        _readable(folder / f"{digest}.signing_policy", _SIGNING_POLICY)
        fresh.chmod(0o644)
        fresh.replace(certificate)

    def _credential(self, name: str, extensions: str, owner: str | None) -> Credential:
        stem = _file_name(name) if owner is None else f"{_file_name(name)}-{owner}"
        subject = f"{_ORGANIZATION}/CN={name}"
        credential = Credential(subject, self.folder / f"{stem}.pem", self.folder / f"{stem}.key")
        with self._lock:
            if not credential.certificate.exists():
                self._issue(credential, stem, extensions, owner)
        return credential

    def _issue(self, credential: Credential, stem: str, extensions: str, owner: str | None) -> None:
        authority = self.authority
        fresh = self.folder / f"{stem}.new"
        request, details = self.folder / f"{stem}.csr", self.folder / f"{stem}.ext"
        details.write_text(extensions, encoding="utf-8")
        _openssl(
            *("req", "-newkey", "rsa:2048", "-nodes", "-sha256", "-subj", credential.subject),
            *("-keyout", credential.key, "-out", request),
        )
        _openssl(
            *("x509", "-req", "-in", request, "-CA", authority, "-CAkey", self.folder / "authority.key"),
            *("-set_serial", str(secrets.randbits(63)), "-days", _DAYS, "-sha256", "-extfile", details),
            *("-out", fresh),
        )
        credential.key.chmod(0o600)
        _give(credential.key, owner)
        request.unlink()
        details.unlink()
        fresh.chmod(0o644)
        fresh.replace(credential.certificate)

    def _proxy_text(self, user: Credential, lifetime_s: float) -> str:
        folder = self.folder / f"proxy-{secrets.token_hex(4)}"
        folder.mkdir(mode=0o700)
        try:
            (folder / "index").touch()
            (folder / "config").write_text(_PROXY.format(folder=folder), encoding="utf-8")
            subject = f"{user.subject}/CN={secrets.randbelow(10**9)}"
            _openssl(
                *("req", "-newkey", "rsa:2048", "-nodes", "-sha256", "-subj", subject),
                *("-keyout", folder / "key", "-out", folder / "request"),
            )
            end = datetime.now(UTC) + timedelta(seconds=lifetime_s)
            begin = min(datetime.now(UTC), end) - _BACKDATE
            _openssl(
                *("ca", "-batch", "-notext", "-preserveDN", "-config", folder / "config", "-in", folder / "request"),
                *("-cert", user.certificate, "-keyfile", user.key, "-out", folder / "certificate"),
                *("-startdate", f"{begin:%Y%m%d%H%M%SZ}", "-enddate", f"{end:%Y%m%d%H%M%SZ}"),
            )
            parts = (folder / "certificate", folder / "key", user.certificate)
            return "".join(part.read_text(encoding="utf-8") for part in parts)
        finally:
            shutil.rmtree(folder)


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


def _place(path: Path, text: str, owner: str | None) -> None:
    """Write a secret file that nobody ever sees half-written or with another mode."""
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
            f"certificates: expected an account {owner} to own {path.name}, found none; install the package that makes it"
        ) from error
    except PermissionError as error:
        raise BackendError(
            f"certificates: expected to be root, to give {path.name} to {owner}, found an ordinary user"
        ) from error


def _readable(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)


def _file_name(name: str) -> str:
    return name.lower().replace(" ", "-")
