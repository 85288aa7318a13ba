"""Bytes to requests and back: HTTP, SOAP, certificates, SURLs, the grid-mapfile."""

import json
import subprocess
import sys
from dataclasses import MISSING, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from venturi.srm.errors import HttpError, SoapError, SrmError, X509Error
from venturi.srm.http import HEAD_LIMIT, RequestReader, response
from venturi.srm.mapfile import parse_mapfile
from venturi.srm.settings import Settings
from venturi.srm.soap import Fields, emit_fault, emit_reply, emit_request, parse_call, parse_reply
from venturi.srm.surl import surl_path
from venturi.srm.x509 import identify, parse_certificate
from venturi.testbed.pki import Pki

HEAD = b"POST /srm/managerv2 HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\nConnection: keep-alive\r\n\r\n"
TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FFF, blacklist_categories=("Cs",)), min_size=1).map(
    str.strip
)


def test_requests_are_parsed_for_any_split_of_their_bytes():
    bodies = [b"first", b"", b"<third/>"]
    data = b"".join(HEAD % len(body) + body for body in bodies)
    for size in (1, 7, len(data)):
        reader, found = RequestReader(100), []
        for at in range(0, len(data), size):
            reader.feed(data[at : at + size])
            while (request := reader.take()) is not None:
                found.append(request)
        assert [request.body for request in found] == bodies
        assert all(request.keep_alive for request in found)
        assert not reader.within_request


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 405), (b"POST / HTTP/1.1\r\n\r\n", 411), (b"POST / HTTP/2\r\n\r\n", 400), (b"nonsense\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 101\r\n\r\n", 413), (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nContent-Length : 1\r\n\r\n", 400), (b"a" * (HEAD_LIMIT + 1), 431),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 411),
    ],
)  # fmt: skip
def test_an_invalid_request_is_rejected_with_its_status_code(data, code):
    reader = RequestReader(100)
    reader.feed(data)
    with pytest.raises(HttpError) as raised:
        reader.take()
    assert raised.value.code == code
    assert response(code, b"", keep_alive=False).startswith(b"HTTP/1.1 %d " % code)


@given(st.binary(max_size=300))
def test_parsers_raise_only_their_own_errors_for_any_bytes(data):
    reader = RequestReader(1000)
    reader.feed(data)
    for parse, error in (
        (lambda: reader.take(), HttpError),
        (lambda: parse_call(data), SoapError),
        (lambda: parse_certificate(data), X509Error),
    ):
        try:
            parse()
        except error:
            continue


@given(st.dictionaries(st.sampled_from(["path", "explanation", "turl"]), TEXT.filter(bool)))
def test_written_messages_are_parsed_back_unchanged(values):
    parts = [*values.items(), ("none", None), ("list", [("one", "1"), ("one", 2), ("yes", True)])]
    for found in (parse_reply(emit_reply("srmLs", parts)), parse_call(emit_request("srmLs", parts)).request):
        assert {name: found.text(name) for name in values} == values
        assert found.text("none") is None
        assert (found.part("list").texts("one"), found.part("list").text("yes")) == (["1", "2"], "true")


def test_structures_by_reference_are_resolved():
    # The format of Apache Axis: the argument and its parts are siblings of the operation.
    text = (
        '<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body><ns1:srmRm xmlns:ns1="n"><srmRmRequest href="#id0"/></ns1:srmRm>'
        '<multiRef id="id0"><arrayOfSURLs href="#id1"/></multiRef><multiRef id="id1"><urlArray>srm://a/x</urlArray></multiRef></e:Body></e:Envelope>'
    )
    call = parse_call(text.encode())
    assert (call.operation, call.request.part("arrayOfSURLs").texts("urlArray")) == ("srmRm", ["srm://a/x"])


def test_cyclic_and_exponential_references_are_rejected():
    def rejected(refs):
        body = f'<E:Envelope xmlns:E="e"><E:Body><a><aRequest href="#i0"/></a>{refs}</E:Body></E:Envelope>'
        with pytest.raises(SoapError, match="deep"):
            parse_call(body.encode())

    rejected('<m id="i0"><b href="#i0"/></m>')
    rejected(
        "".join(
            f'<m id="i{i}">{f"<b href=#i{i + 1}#/>".replace("#i", chr(34) + "#i", 1).replace("#/", chr(34) + "/") * 9}</m>'
            for i in range(9)
        )
        + '<m id="i9">x</m>'
    )


def test_a_document_type_and_its_entities_are_rejected():
    bomb = b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><x>&b;</x>'
    with pytest.raises(SoapError, match="no document type"):
        parse_call(bomb)


def test_a_fault_is_reported_to_the_client():
    with pytest.raises(SoapError, match="not <this>"):
        parse_reply(emit_fault("Client", "not <this>\0"))
    assert parse_call(b'<E:Envelope xmlns:E="e"><E:Body><srmPing/></E:Body></E:Envelope>').request == Fields()


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    """A certificate authority."""
    return Pki(tmp_path_factory.mktemp("pki"))


def der(path):
    """Return the certificates of a PEM file in DER, converted by openssl."""
    text = path.read_text()
    blocks = [
        "-----BEGIN CERTIFICATE-----" + part.partition("-----END CERT")[0] + "-----END CERTIFICATE-----\n"
        for part in text.split("-----BEGIN CERTIFICATE-----")[1:]
    ]
    return [
        subprocess.run(
            ["openssl", "x509", "-outform", "DER"], input=block.encode(), capture_output=True, check=True
        ).stdout
        for block in blocks
    ]


def subject(data):
    """Return the subject in the format of openssl."""
    argv = ["openssl", "x509", "-inform", "DER", "-noout", "-subject", "-nameopt", "compat"]
    return (
        subprocess.run(argv, input=data, capture_output=True, check=True)
        .stdout.decode()
        .strip()
        .removeprefix("subject=")
        .strip()
    )


def test_a_proxy_is_identified_by_its_signing_user_and_subjects_match_openssl(pki):
    proxy, user = der(pki.proxy())
    found = identify([proxy, user, *der(pki.authority)])
    assert (found.subject, found.proxies, found.limited) == ("/O=Venturi/CN=Lab User", 1, False)
    for data in (proxy, user, *der(pki.authority)):
        assert parse_certificate(data).subject == subject(data)
    assert (parse_certificate(proxy).proxy, parse_certificate(user).proxy) == (True, False)
    with pytest.raises(X509Error, match="found 1 proxies"):
        identify([proxy])


def test_names_of_all_kinds_are_formatted_like_openssl_formats_them(tmp_path):
    name = "/DC=org/DC=grid/C=DE/ST=Hessen/L=Hall/O=A B/OU=C/UID=x/serialNumber=7/emailAddress=a@b.org/CN=Jane Doe"
    argv = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        "/dev/null",
        "-subj",
        name,
        "-outform",
        "DER",
    ]
    data = subprocess.run(argv, capture_output=True, check=True).stdout
    assert parse_certificate(data).subject == subject(data) == name


def test_a_user_whose_name_extends_the_ca_name_is_not_a_proxy(pki, tmp_path):
    request, key = tmp_path / "request", tmp_path / "key"
    name = "/O=Venturi/CN=Lab CA/CN=123"
    subprocess.run(
        ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", name, "-keyout", key, "-out", request],
        check=True,
        capture_output=True,
    )
    signed = [
        "openssl",
        "x509",
        "-req",
        "-in",
        request,
        "-CA",
        pki.authority,
        "-CAkey",
        pki.directory / "authority.key",
        "-set_serial",
        "9",
        "-outform",
        "DER",
    ]
    data = subprocess.run(signed, check=True, capture_output=True).stdout
    assert identify([data, *der(pki.authority)]).subject == name


def test_a_grid_mapfile_is_parsed_as_in_the_globus_library():
    text = '# "/O=G/CN=Off" nobody\n"/O=G/CN=A \\"B\\"" anna\n\n"/O=G/CN=A \\"B\\"" second\nnonsense\n/O=G/CN=C carl,dora\n'
    assert parse_mapfile(text) == {'/O=G/CN=A "B"': "anna", "/O=G/CN=C": "carl"}


@pytest.mark.parametrize(
    "surl",
    [
        "srm://a/data/x",
        "srm://a:8446/data/x",
        "SRM://a/data//./x",
        "srm://a:1/srm/managerv2?SFN=/data/x",
        "srm://a/any?SFN=//data/x/",
    ],
)
def test_all_forms_of_a_surl_have_the_same_path(surl):
    assert surl_path(surl, ["a"]).as_posix() == "/data/x"


@pytest.mark.parametrize(
    ("surl", "why"),
    [
        ("srm://b/data/x", "a SURL of a"), ("gsiftp://a/data/x", "srm://HOST/PATH"), ("srm://a/data/../etc", "without .."),
        ("srm://a?SFN=data", "absolute"), ("srm://a", "absolute"), ("srm://a/x\0y", "printable"), ("srm://[a/x", "srm://HOST/PATH"), ("", "srm://HOST/PATH"),
    ],
)  # fmt: skip
def test_an_invalid_or_foreign_surl_is_rejected(surl, why):
    with pytest.raises(SrmError, match=why.replace("[", r"\[").replace(".", r"\.")) as raised:
        surl_path(surl, ["a"])
    assert raised.value.status == "SRM_INVALID_PATH"


def test_the_settings_shown_in_the_help_are_valid_and_complete():
    done = subprocess.run(
        [sys.executable, "-m", "venturi.srm", "serve", "--help"], check=True, capture_output=True, text=True
    )
    shown = Settings.of(json.JSONDecoder().raw_decode(done.stdout, done.stdout.index("{"))[0])
    for one in fields(Settings):
        # The values of the example have no default. Each of the others is shown with its default.
        assert (f'"{one.name}":' in done.stdout) == (one.default is MISSING), one.name
        assert one.default is MISSING or f"{one.name} {getattr(shown, one.name)}" in done.stdout


def test_the_help_of_both_commands_has_a_description_and_an_example():
    for command, does in (("serve", "Serve until"), ("ping", "Send one srmPing")):
        done = subprocess.run(
            [sys.executable, "-m", "venturi.srm", command, "--help"], check=True, capture_output=True, text=True
        )
        assert does in done.stdout
        assert f"Example: python -m venturi.srm {command} " in done.stdout
