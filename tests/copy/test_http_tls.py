"""Servers that are silent within TLS: nobody waits for them for long."""

import os
import signal
import socket
import ssl
import subprocess
import threading
import time

from copykit import copy

from testkit import throwaway_certificates


def test_a_silent_handshake_is_given_up_and_made_anew(engine, tmp_path):
    trust, cert, key = throwaway_certificates(tmp_path / "pki")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    silent = []

    def serve(listener):
        silent.append(listener.accept()[0])
        with context.wrap_socket(listener.accept()[0], server_side=True) as stream:
            while not stream.recv(65536).endswith(b"\r\n\r\n"):
                pass
            stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        url = f"https://localhost:{listener.getsockname()[1]}/x"
        began_s = time.monotonic()
        copy(engine, url, tmp_path / "x", env={**os.environ, "X509_CERT_DIR": str(trust)})
        took_s = time.monotonic() - began_s
        thread.join()
    silent[0].close()
    assert (tmp_path / "x").read_bytes() == b"1"
    assert took_s < 15


def test_a_server_that_is_silent_in_its_handshake_is_left_at_ctrl_c(engine, tmp_path):
    trust, _, _ = throwaway_certificates(tmp_path / "pki")
    env = {**os.environ, "X509_CERT_DIR": str(trust)}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://localhost:{listener.getsockname()[1]}/x"
        process = subprocess.Popen([engine, "copy", url, tmp_path / "x"], stderr=subprocess.DEVNULL, env=env)
        with listener.accept()[0] as silent:
            silent.recv(1)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=3) == 130
