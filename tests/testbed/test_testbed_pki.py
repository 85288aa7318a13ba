"""The temporary CA: openssl and the grid tools check its certificates and proxies."""

import os
import shutil
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from venturi.errors import BackendError
from venturi.testbed.pki import Pki

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="not installed: openssl")


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return Pki(tmp_path_factory.mktemp("lab") / "pki")


def openssl(*argv):
    done = subprocess.run(["openssl", *map(str, argv)], capture_output=True, text=True, timeout=30, check=False)
    return done.stdout + done.stderr


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_the_pki_directory_is_created_only_on_the_first_request(tmp_path):
    Pki(tmp_path / "pki")
    assert not (tmp_path / "pki").exists()


def test_a_host_certificate_names_the_host_and_its_addresses_and_is_signed(pki):
    host = pki.host("a.lab.test", ["10.77.0.1"])
    text = openssl("x509", "-in", host.certificate, "-noout", "-text")
    assert "DNS:a.lab.test, IP Address:10.77.0.1" in text
    assert "CA:TRUE" not in text
    assert openssl("verify", "-CApath", pki.certificates, host.certificate).endswith(": OK\n")
    assert mode(host.key) == 0o600
    assert mode(host.certificate) == 0o644
    assert pki.host("a.lab.test", ["10.77.0.1"]) == host


def test_concurrently_requested_certificates_have_the_same_authority(tmp_path):
    pki = Pki(tmp_path / "pki")
    with ThreadPoolExecutor() as pool:
        hosts = list(pool.map(pki.host, ["a.lab.test", "b.lab.test", "a.lab.test"]))
    assert hosts[0] == hosts[2]
    for host in hosts:
        assert openssl("verify", "-CAfile", pki.authority, host.certificate).endswith(": OK\n")


def test_a_proxy_is_signed_by_the_user_and_has_the_requested_lifetime(pki):
    environment = pki.client_environment()
    proxy = pki.proxy(lifetime_s=3600)
    assert environment["X509_USER_PROXY"] == str(proxy)
    assert mode(proxy) == 0o600
    printed = openssl("verify", "-allow_proxy_certs", "-CAfile", pki.authority, "-untrusted", proxy, proxy)
    assert printed.endswith(": OK\n")
    assert "not expire" in openssl("x509", "-in", proxy, "-noout", "-checkend", "3500")
    assert "will expire" in openssl("x509", "-in", proxy, "-noout", "-checkend", "3700")


def test_grid_proxy_info_accepts_the_proxy_as_a_full_impersonation_proxy(pki):
    if shutil.which("grid-proxy-info") is None:
        pytest.skip("not installed: grid-proxy-info")
    environment = {**os.environ, **pki.client_environment()}
    done = subprocess.run(
        ["grid-proxy-info"], env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    printed = dict(line.split(":", 1) for line in done.stdout.splitlines())
    values = {name.strip(): value.strip() for name, value in printed.items()}
    assert values["identity"] == "/O=Venturi/CN=Lab User"
    assert values["type"] == "RFC 3820 compliant impersonation proxy"


def test_a_proxy_with_a_negative_lifetime_has_expired(pki, tmp_path):
    proxy = pki.proxy(lifetime_s=-1, path=tmp_path / "old")
    assert "will expire" in openssl("x509", "-in", proxy, "-noout", "-checkend", "0")


def test_a_new_proxy_replaces_the_previous_file_and_leaves_no_temporary_file(pki, tmp_path):
    path = tmp_path / "proxy"
    first = pki.proxy(path=path).read_bytes()
    assert pki.proxy(path=path).read_bytes() != first
    assert [found.name for found in tmp_path.iterdir()] == ["proxy"]


def test_a_host_key_can_be_owned_by_another_account(pki):
    if os.geteuid() != 0:
        pytest.skip("not root: keys cannot be given away")
    theirs = pki.host("b.lab.test", owner="nobody")
    assert (theirs.key.owner(), mode(theirs.key)) == ("nobody", 0o600)
    assert pki.host("b.lab.test").key != theirs.key
    with pytest.raises(BackendError, match="expected an account no-such-account"):
        pki.host("b.lab.test", owner="no-such-account")


def test_a_grid_mapfile_has_the_subjects_of_the_certificates(pki, tmp_path):
    path = pki.grid_mapfile(tmp_path / "grid-mapfile", {"Lab User": "root"})
    assert path.read_text() == f'"{pki.user().subject}" root\n'
