"""TLS: client identities, and timeouts for silent servers."""

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest
from copykit import copy
from httpkit import puppet

from testkit import throwaway_certificates
from venturi.testbed.pki import DEFAULT_USER, Pki


@contextlib.contextmanager
def served(context, respond, silent=None):
    """Yield the URL of a file of a test server, which handles each connection in its own thread.

    With `silent`, the first two connections get no response. For a single file, the client opens one for the file and
    one for its entry in a listing.
    """

    def secured(connection):
        with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as stream:
            respond(stream)

    def serve(listener):
        with contextlib.suppress(OSError):
            if silent is not None:
                silent.extend(listener.accept()[0] for _ in range(2))
            while True:
                threading.Thread(target=secured, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield f"https://localhost:{listener.getsockname()[1]}/x"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(20)


def test_a_silent_handshake_is_abandoned_and_retried(engine, tmp_path):
    trust, cert, key = throwaway_certificates(tmp_path / "pki")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    silent = []

    def respond(stream):
        status = b"200 OK" if stream.recv(65536).startswith(b"GET") else b"405 Method Not Allowed"
        stream.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: 1\r\nConnection: close\r\n\r\n1")

    with served(context, respond, silent) as url:
        started_s = time.monotonic()
        copy(engine, url, tmp_path / "x", env={**os.environ, "X509_CERT_DIR": str(trust)})
        took_s = time.monotonic() - started_s
    for connection in silent:
        connection.close()
    assert (tmp_path / "x").read_bytes() == b"1"
    assert took_s < 15


def test_a_file_does_not_wait_for_the_connection_of_its_listing(engine, tmp_path):
    """The server handles one connection at a time, and the connection for the listing comes first."""
    trust, cert, key = throwaway_certificates(tmp_path / "pki")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    closes_listing, in_time = threading.Event(), []

    def respond(stream):
        if stream.recv(65536).startswith(b"GET"):
            in_time.append(closes_listing.wait(10))
            stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1")
        else:
            stream.sendall(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
            stream.recv(1)
            closes_listing.set()

    with served(context, respond) as url:
        copy(engine, url, tmp_path / "x", env={**os.environ, "X509_CERT_DIR": str(trust)})
    # The client requests the checksum later.
    assert in_time and all(in_time)
    assert (tmp_path / "x").read_bytes() == b"1"


def test_an_upload_does_not_wait_for_the_connection_reserved_for_its_bytes(engine, tmp_path):
    """The server handles one connection at a time, and the connection for the bytes comes first."""
    trust, cert, key = throwaway_certificates(tmp_path / "pki")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    (tmp_path / "x").write_bytes(b"1")
    closes_spare, in_time, requests = threading.Event(), [], []

    def respond(stream):
        try:
            request = stream.recv(65536)
        except OSError:
            request = b""
        if not request:
            closes_spare.set()
            return
        requests.append(request.split()[0])
        if request.startswith(b"PROPFIND"):
            in_time.append(closes_spare.wait(10))
        status = b"201 Created" if request.startswith(b"PUT") else b"404 Not Found"
        stream.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    with served(context, respond) as url:
        copy(engine, tmp_path / "x", url, env={**os.environ, "X509_CERT_DIR": str(trust)})
    assert (in_time, requests) == ([True], [b"PROPFIND", b"PUT"])


def test_ctrl_c_ends_a_copy_from_a_server_that_is_silent_in_its_handshake(engine, tmp_path):
    trust, _, _ = throwaway_certificates(tmp_path / "pki")
    env = {**os.environ, "X509_CERT_DIR": str(trust)}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://localhost:{listener.getsockname()[1]}/x"
        process = subprocess.Popen([engine, "copy", url, tmp_path / "x"], stderr=subprocess.DEVNULL, env=env)
        with listener.accept()[0] as silent:
            silent.recv(1)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=3) == 130


@pytest.mark.parametrize("proxy", [True, False])
def test_a_proxy_or_user_certificate_is_sent_to_a_server_that_requests_it(engine, tmp_path, proxy):
    pki = Pki(tmp_path / "pki")
    host, user = pki.host("localhost"), pki.user()
    env = {**os.environ, "X509_CERT_DIR": str(pki.certificates)}
    if proxy:
        env |= pki.client_environment()
    else:
        env |= {"X509_USER_CERT": str(user.certificate), "X509_USER_KEY": str(user.key)}
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=pki.authority)
    context.load_cert_chain(host.certificate, host.key)
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_ALLOW_PROXY_CERTS
    shown = []

    def respond(stream):
        shown.append([value for ((_, value),) in stream.getpeercert()["subject"]])
        stream.recv(65536)
        stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1")

    with served(context, respond) as url:
        copy(engine, url, tmp_path / "x", env=env)
    assert (tmp_path / "x").read_bytes() == b"1"
    # The name of a proxy has one part more than the name of its user.
    assert {names.index(DEFAULT_USER) - len(names) for names in shown} == {-2 if proxy else -1}


def test_a_key_that_does_not_match_the_certificate_is_rejected(engine, tmp_path):
    pki = Pki(tmp_path / "pki")
    env = {**os.environ, "X509_CERT_DIR": str(pki.certificates)}
    env |= {"X509_USER_CERT": str(pki.user().certificate), "X509_USER_KEY": str(pki.user("another").key)}
    done = copy(engine, "https://localhost:1/x", tmp_path / "x", env=env, code=1)
    assert b"expected a certificate and its key" in done.stderr


def test_a_redirection_from_http_to_https_is_followed(engine, tmp_path):
    trust, *own = throwaway_certificates(tmp_path / "pki")
    trusting = {**os.environ, "X509_CERT_DIR": str(trust)}
    untrusting = {**os.environ, "X509_CERT_DIR": str(tmp_path)}
    with (
        puppet(lambda handler, _: handler.reply(200, b"within TLS"), tls=own) as (secure, _),
        puppet(lambda handler, _: handler.reply(301, Location=secure + handler.path)) as (url, _),
    ):
        copy(engine, f"{url}/x", tmp_path / "x", env=trusting)
        output = copy(engine, f"{url}/x", tmp_path / "y", code=3, env=untrusting).stderr.decode()
    assert (tmp_path / "x").read_bytes() == b"within TLS"
    assert f"{url}/x: expected a trusted server certificate" in output
