"""The throw-away authority: what openssl and the grid tools say of its certificates and proxies."""

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


def test_nothing_is_made_before_it_is_asked_for(tmp_path):
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


def test_certificates_asked_for_at_the_same_time_are_of_one_authority(tmp_path):
    pki = Pki(tmp_path / "pki")
    with ThreadPoolExecutor() as pool:
        hosts = list(pool.map(pki.host, ["a.lab.test", "b.lab.test", "a.lab.test"]))
    assert hosts[0] == hosts[2]
    for host in hosts:
        assert openssl("verify", "-CAfile", pki.authority, host.certificate).endswith(": OK\n")


def test_a_proxy_is_one_of_the_user_and_lasts_as_long_as_was_asked(pki):
    environment = pki.client_environment()
    proxy = pki.proxy(lifetime_s=3600)
    assert environment["X509_USER_PROXY"] == str(proxy)
    assert mode(proxy) == 0o600
    said = openssl("verify", "-allow_proxy_certs", "-CAfile", pki.authority, "-untrusted", proxy, proxy)
    assert said.endswith(": OK\n")
    assert "not expire" in openssl("x509", "-in", proxy, "-noout", "-checkend", "3500")
    assert "will expire" in openssl("x509", "-in", proxy, "-noout", "-checkend", "3700")


def test_the_grid_tools_take_it_for_a_proxy_with_full_rights(pki):
    if shutil.which("grid-proxy-info") is None:
        pytest.skip("not installed: grid-proxy-info")
    environment = {**os.environ, **pki.client_environment()}
    done = subprocess.run(
        ["grid-proxy-info"], env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    said = dict(line.split(":", 1) for line in done.stdout.splitlines())
    values = {name.strip(): value.strip() for name, value in said.items()}
    assert values["identity"] == "/O=Venturi/CN=Lab User"
    assert values["type"] == "RFC 3820 compliant impersonation proxy"


def test_a_proxy_without_time_left_has_expired(pki, tmp_path):
    proxy = pki.proxy(lifetime_s=-1, path=tmp_path / "old")
    assert "will expire" in openssl("x509", "-in", proxy, "-noout", "-checkend", "0")


def test_a_proxy_replaces_the_one_before_and_leaves_nothing_beside_it(pki, tmp_path):
    path = tmp_path / "proxy"
    first = pki.proxy(path=path).read_bytes()
    assert pki.proxy(path=path).read_bytes() != first
    assert [found.name for found in tmp_path.iterdir()] == ["proxy"]


def test_a_key_can_belong_to_the_account_that_needs_it(pki):
    if os.geteuid() != 0:
        pytest.skip("not root: keys cannot be given away")
    theirs = pki.host("b.lab.test", owner="nobody")
    assert (theirs.key.owner(), mode(theirs.key)) == ("nobody", 0o600)
    assert pki.host("b.lab.test").key != theirs.key
    with pytest.raises(BackendError, match="expected an account no-such-account"):
        pki.host("b.lab.test", owner="no-such-account")


def test_a_grid_mapfile_names_subjects_as_certificates_do(pki, tmp_path):
    path = pki.grid_mapfile(tmp_path / "grid-mapfile", {"Lab User": "root"})
    assert path.read_text() == f'"{pki.user().subject}" root\n'
