"""Certificates of hosts, and the files that they are written to."""

import stat
import subprocess
from pathlib import Path

import pytest

from venturi.errors import BackendError
from venturi.testbed.host_pki import HostPki
from venturi.testbed.lab.host_shell import LabHostShell
from venturi.testbed.pki import Pki


class Directory:
    """A host that is a directory on this machine, without commands."""

    put, get = LabHostShell.put, LabHostShell.get

    def __init__(self, name, session):
        self.name = name
        self.session = session


@pytest.fixture
def hosts(tmp_path):
    return {name: Directory(name, tmp_path / name) for name in "abc"}


@pytest.fixture
def pki(tmp_path, hosts):
    return HostPki(Pki(tmp_path / "controller"), hosts["b"], [hosts["a"]], ["b.example.org", "192.0.2.2"])


def files(host):
    return {str(path.relative_to(host.session)) for path in host.session.rglob("*") if path.is_file()}


def test_a_host_gets_its_own_key_and_no_other(pki, hosts):
    credential = pki.host("b-data.example.org", ["b-data.example.org"])
    assert credential.subject == "/O=Venturi/CN=b-data.example.org"
    assert files(hosts["b"]) == {"pki/b-data.example.org.pem", "pki/b-data.example.org.key"}
    assert files(hosts["a"]) == set()
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-ext", "subjectAltName", "-in", credential.certificate],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = {name.strip() for name in shown.splitlines()[1].split(",")}
    assert names == {"DNS:b-data.example.org", "DNS:b.example.org", "IP Address:192.0.2.2"}
    assert pki.host("b-data.example.org") == credential


def test_an_address_instead_of_a_name_is_an_address_in_the_certificate(pki):
    certificate = pki.host("192.0.2.7").certificate
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-ext", "subjectAltName", "-in", certificate],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "IP Address:192.0.2.7" in shown
    # XRootD checks only this name.
    assert "DNS:192.0.2.7" in shown


def test_client_hosts_get_certificates_and_a_proxy_at_the_reported_paths(pki, hosts):
    environment = pki.client_environment()
    assert environment == {
        "X509_CERT_DIR": "{session}/pki/certificates",
        "X509_USER_PROXY": "{session}/pki/proxy-lab-user.pem",
    }
    for name in "ab":
        for value in environment.values():
            assert Path(value.replace("{session}", str(hosts[name].session))).exists()
    assert files(hosts["c"]) == set()
    trust = pki.trust()
    assert Path(trust["CURL_CA_BUNDLE"].replace("{session}", str(hosts["a"].session))).is_file()


def test_the_ca_key_is_not_distributed_and_all_files_are_private(pki, hosts):
    pki.host("b.example.org")
    pki.user("Somebody")
    pki.client_environment()
    pki.trust()
    assert pki.certificates == hosts["b"].session / "pki/certificates"
    assert pki.authority.name == "authority.pem"
    pki.grid_mapfile(hosts["b"].session / "services/grid-mapfile", {"Lab User": "alice"})
    pki.proxy(path=hosts["b"].session / "services/own.proxy")
    for host in hosts.values():
        assert not [name for name in files(host) if "authority.key" in name]
        for path in host.session.rglob("*"):
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    assert (hosts["b"].session / "services/grid-mapfile").read_text() == '"/O=Venturi/CN=Lab User" alice\n'
    assert "BEGIN CERTIFICATE" in (hosts["b"].session / "services/own.proxy").read_text()


@pytest.mark.parametrize("make", [HostPki.host, HostPki.user])
def test_other_owners_of_keys_are_rejected(pki, make):
    with pytest.raises(BackendError, match="expected the account of the user"):
        make(pki, "b.example.org", owner="xrootd")
