"""Large S3 objects are uploaded in parts, and no part remains."""

import hashlib
import re
import signal
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from filekit import _engine, bare_environment, call, error

from s3kit import s3_server
from testkit import wait_until

PARTS_BYTES = (32 << 20) + 1
"""Smallest size of an object that is uploaded in parts."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with s3_server(tmp_path_factory.mktemp("s3"), "bucket") as found:
        yield found


def uploads(server):
    """Return the unfinished uploads in the directory of the server."""
    return sorted(path.name for path in (server.root / ".nanio/multipart").glob("*"))


@pytest.mark.parametrize("size", [PARTS_BYTES - 1, PARTS_BYTES], ids=["one request", "parts"])
def test_an_object_has_the_same_content_in_one_request_and_in_parts(size, server):
    url, own = f"{server.url}/bucket/deep/large", {"environment": server.environment}
    (made,) = call("create", url, "--size-bytes", size, "--seed", 7, **own)
    with (server.root / "bucket/deep/large").open("rb") as stored:
        digest = hashlib.file_digest(stored, "sha256").hexdigest()
    assert (made["size_bytes"], made["checksums"]["sha256"]) == (size, digest)
    (found,) = call("stat", url, **own)
    assert (found["kind"], found["size_bytes"]) == ("file", size)
    # The ETag of an object with several parts is no checksum, so the object is read.
    (checksum,) = call("checksum", url, "--algorithm", "md5", **own)
    assert (checksum["value"], checksum["by"]) == (
        made["checksums"]["md5"],
        "server" if size < PARTS_BYTES else "reading",
    )
    assert error("create", url, "--size-bytes", size, **own)[0] == "exists"
    call("remove", url, **own)
    assert server.files("bucket") == [] and uploads(server) == []


def test_remove_ends_the_upload_of_a_killed_process(server):
    url, environment = f"{server.url}/bucket/killed", server.environment
    words = [_engine(), "file", "create", url, "--size-bytes", str(40 * PARTS_BYTES)]
    process = subprocess.Popen(words, env=bare_environment() | environment, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: list((server.root / ".nanio/multipart").glob("*/*art*")), "a part of the object", 60)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert len(uploads(server)) == 1
    # The upload of another object with the same key prefix stays.
    assert error("remove", f"{server.url}/bucket/kill", environment=environment)[0] == "not_found"
    assert len(uploads(server)) == 1
    assert error("remove", url, environment=environment)[0] == "not_found"
    assert uploads(server) == [] and server.files("bucket") == []


def test_an_error_after_a_success_status_fails_and_ends_the_upload():
    """S3 sends the status before it assembles the parts ("CompleteMultipartUpload")."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def reply(self, body=b"", status=200):
            left = int(self.headers.get("Content-Length", 0))
            while left:
                left -= len(self.rfile.read(min(left, 1 << 20)))
            requests.append(f"{self.command} {re.sub('.*[?]', '', self.path)}")
            self.send_response(status)
            self.send_header("ETag", '"part"')
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_HEAD(self):
            self.reply(status=404)

        def do_GET(self):
            self.reply(b"<ListBucketResult></ListBucketResult>")

        def do_POST(self):
            started = b"<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>"
            failed = b"<Error><Code>InternalError</Code><Message>Try again</Message></Error>"
            self.reply(started if self.path.endswith("uploads=") else failed)

        def do_PUT(self):
            self.reply()

        def do_DELETE(self):
            self.reply(status=204)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as fake:
        threading.Thread(target=fake.serve_forever).start()
        try:
            url = f"s3://127.0.0.1:{fake.server_port}/bucket/large"
            keys = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}
            kind, message = error("create", url, "--size-bytes", PARTS_BYTES, environment=keys)
        finally:
            fake.shutdown()
    assert kind == "other" and "InternalError: Try again" in message
    parts = [f"PUT partNumber={number}&uploadId=u1" for number in range(1, 4)]
    assert [one for one in requests if one.startswith(("PUT", "POST", "DELETE"))][:5] == [
        "POST uploads=", *parts, "POST uploadId=u1"
    ]  # fmt: skip
    assert "DELETE uploadId=u1" in requests
