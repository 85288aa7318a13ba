"""Handling of SRM requests: the manager with its store and real files, and a simulated clock."""

import os
from dataclasses import replace

import pytest

from venturi.srm.errors import SettingsError, SoapError
from venturi.srm.manager import ClientIdentity, Manager
from venturi.srm.settings import Settings
from venturi.srm.soap import SoapCall, emit_reply, emit_request, parse_call, parse_reply
from venturi.srm.state import State
from venturi.srm.store import Store

ANNA, BERTA, CARLA = (
    ClientIdentity("/CN=Anna", "anna"),
    ClientIdentity("/CN=Berta", "berta"),
    ClientIdentity("/CN=Nobody", None),
)
NOW = 1e9


class SrmRig:
    """A manager of one directory, with a manual clock. Its files have the time of the clock."""

    def __init__(self, directory, **changes):
        self.location = directory / "place"
        self.location.mkdir()
        (self.location / "file").write_bytes(b"12345")
        os.utime(self.location / "file", (NOW - 100, NOW - 100))
        self.now = NOW
        names = ("certificate", "key", "ca_directory", "mapfile", "log")
        self.settings = Settings.of(
            dict.fromkeys(names, "none") | {"address": "127.0.0.1", "ports": [0], "hosts": ["a"], "storages": {"p": str(self.location)},
            "doors": {"gsiftp": ["gsiftp://a:1{path}", "gsiftp://a:2{path}"], "https": ["https://a/{relative}"]},
            "database": str(directory / "requests.db"), "pin_s": 100, "request_s": 50} | changes
        )  # fmt: skip
        self.open()

    def open(self):
        """Open the manager like a starting server, with the content of the database."""
        self.store = Store(self.settings.database)
        self.manager = Manager(self.settings, self.store, "test")

    def reopen(self):
        """Open the manager like a server after a kill, without a proper close: only the database file remains."""
        self.open()

    def call(self, operation, parts=(), client=ANNA):
        """Return the response of an operation; request and response are encoded as XML and decoded."""
        reply = self.manager.handle(parse_call(emit_request(operation, parts)), client, self.now)
        return parse_reply(emit_reply(operation, reply.parts))

    def surl(self, name):
        return f"srm://a{self.location}/{name}"

    def get(self, *names, client=ANNA, protocols=("gsiftp",), **more):
        files = [("requestArray", [("sourceSURL", self.surl(name))]) for name in names]
        parts = [("arrayOfFileRequests", files), wish(protocols), *more.items()]
        return self.call("srmPrepareToGet", parts, client)

    def put(self, *names, client=ANNA, size=5, **more):
        files = [("requestArray", [("targetSURL", self.surl(name)), ("expectedFileSize", size)]) for name in names]
        return self.call("srmPrepareToPut", [("arrayOfFileRequests", files), wish(["gsiftp"]), *more.items()], client)

    def about(self, operation, token, *names, client=ANNA):
        listed = [("urlArray", self.surl(name)) for name in names] or None
        array = {"srmStatusOfGetRequest": "arrayOfSourceSURLs"}.get(operation, "arrayOfSURLs")
        return self.call(operation, [("requestToken", token), (array, listed)], client)


def wish(protocols):
    return "transferParameters", [("arrayOfTransferProtocols", [("stringArray", one) for one in protocols])]


def statuses(response):
    """Return the status of a request, and those of its files."""
    parts = response.part("arrayOfFileStatuses").parts("statusArray")
    return response.part("returnStatus").text("statusCode"), [one.part("status").text("statusCode") for one in parts]


def turl(response, at=0):
    return response.part("arrayOfFileStatuses").parts("statusArray")[at].text("transferURL")


@pytest.fixture
def rig(tmp_path):
    """A manager with default settings."""
    return SrmRig(tmp_path)


def test_gets_return_urls_of_alternating_doors_until_they_are_released(rig):
    first, second = rig.get("file"), rig.get("file")
    assert statuses(first) == ("SRM_SUCCESS", ["SRM_FILE_PINNED"])
    assert [turl(first), turl(second)] == [f"gsiftp://a:{n}{rig.location}/file" for n in (1, 2)]
    token = first.text("requestToken")
    assert statuses(rig.about("srmReleaseFiles", token)) == ("SRM_SUCCESS", ["SRM_SUCCESS"])
    assert statuses(rig.about("srmStatusOfGetRequest", token)) == ("SRM_SUCCESS", ["SRM_RELEASED"])
    assert turl(rig.get("file", protocols=["rfio", "https", "gsiftp"])) == "https://a/file"


def test_files_of_one_request_have_independent_statuses(rig):
    (rig.location / "folder").mkdir()
    response = rig.get("file", "nothing", "folder", "../place/file")
    assert statuses(response) == ("SRM_PARTIAL_SUCCESS", ["SRM_FILE_PINNED", *["SRM_INVALID_PATH"] * 3])
    assert statuses(rig.get("nothing")) == ("SRM_FAILURE", ["SRM_INVALID_PATH"])
    assert statuses(rig.get("file", protocols=["rfio"]))[0] == "SRM_NOT_SUPPORTED"
    assert statuses(rig.get())[0] == "SRM_INVALID_REQUEST"


def test_an_upload_is_done_when_the_file_has_its_announced_size(rig):
    response = rig.put("new")
    token = response.text("requestToken")
    assert statuses(response) == ("SRM_SUCCESS", ["SRM_SPACE_AVAILABLE"])
    assert statuses(rig.about("srmPutDone", token, "new")) == ("SRM_FAILURE", ["SRM_INVALID_PATH"])
    (rig.location / "new").write_bytes(b"123")
    assert statuses(rig.about("srmPutDone", token, "new")) == ("SRM_FAILURE", ["SRM_FAILURE"])
    assert statuses(rig.get("new")) == ("SRM_FAILURE", ["SRM_FILE_BUSY"])
    assert statuses(rig.put("new")) == ("SRM_FAILURE", ["SRM_FILE_BUSY"])
    (rig.location / "new").write_bytes(b"12345")
    assert statuses(rig.about("srmPutDone", token, "new")) == ("SRM_SUCCESS", ["SRM_SUCCESS"])
    assert statuses(rig.about("srmPutDone", token, "new")) == ("SRM_FAILURE", ["SRM_DUPLICATION_ERROR"])
    assert statuses(rig.get("new")) == ("SRM_SUCCESS", ["SRM_FILE_PINNED"])


def test_an_existing_file_is_replaced_only_if_the_client_requests_it(rig):
    assert statuses(rig.put("file")) == ("SRM_FAILURE", ["SRM_DUPLICATION_ERROR"])
    assert statuses(rig.put("file", overwriteOption="ALWAYS")) == ("SRM_SUCCESS", ["SRM_SPACE_AVAILABLE"])
    assert statuses(rig.put("no/where")) == ("SRM_FAILURE", ["SRM_INVALID_PATH"])
    assert statuses(rig.put("huge", size=1 << 60)) == ("SRM_FAILURE", ["SRM_NO_FREE_SPACE"])
    assert statuses(rig.put("twice", "twice")) == ("SRM_PARTIAL_SUCCESS", ["SRM_SPACE_AVAILABLE", "SRM_FILE_BUSY"])


def test_an_aborted_upload_leaves_only_the_previous_file(rig):
    token = rig.put("new").text("requestToken")
    (rig.location / "new").write_bytes(b"123")
    assert statuses(rig.call("srmAbortRequest", [("requestToken", token)]))[0] == "SRM_SUCCESS"
    assert not (rig.location / "new").exists()
    assert statuses(rig.about("srmStatusOfPutRequest", token)) == ("SRM_ABORTED", ["SRM_ABORTED"])
    token = rig.put("file", overwriteOption="ALWAYS").text("requestToken")
    assert statuses(rig.about("srmAbortFiles", token, "file")) == ("SRM_SUCCESS", ["SRM_SUCCESS"])
    assert (rig.location / "file").read_bytes() == b"12345"


def test_files_beyond_the_slots_are_queued(tmp_path):
    rig = SrmRig(tmp_path, ready=1)
    tokens = [rig.get("file").text("requestToken") for _ in range(3)]

    def states():
        return [statuses(rig.about("srmStatusOfGetRequest", token))[0] for token in tokens]

    assert states() == ["SRM_SUCCESS", "SRM_REQUEST_QUEUED", "SRM_REQUEST_QUEUED"]
    rig.about("srmReleaseFiles", tokens[0])
    assert states() == ["SRM_SUCCESS", "SRM_SUCCESS", "SRM_REQUEST_QUEUED"]
    # The second client does not return, so its URL expires and frees the slot. The third has exceeded its wait by then.
    rig.now += 99
    assert states() == ["SRM_SUCCESS", "SRM_SUCCESS", "SRM_REQUEST_TIMED_OUT"]
    rig.now += 1
    assert states() == ["SRM_SUCCESS", "SRM_FAILURE", "SRM_REQUEST_TIMED_OUT"]
    assert rig.store.count(State.READY) == 0


def test_requests_beyond_a_full_queue_are_rejected_with_an_internal_error(tmp_path):
    rig = SrmRig(tmp_path, ready=1, queue=2)
    assert [statuses(rig.get("file"))[0] for _ in range(4)] == [
        "SRM_SUCCESS", "SRM_REQUEST_QUEUED", "SRM_REQUEST_QUEUED", "SRM_INTERNAL_ERROR"]  # fmt: skip


def test_a_server_with_a_scheduler_first_replies_that_a_request_is_queued(tmp_path):
    rig = SrmRig(tmp_path, answer="queued")
    response = rig.get("file")
    assert statuses(response) == ("SRM_REQUEST_QUEUED", ["SRM_REQUEST_QUEUED"])
    assert statuses(rig.about("srmStatusOfGetRequest", response.text("requestToken"))) == (
        "SRM_SUCCESS",
        ["SRM_FILE_PINNED"],
    )


def test_requests_are_kept_across_a_restart(tmp_path):
    rig = SrmRig(tmp_path, ready=2)
    got, put, waits = rig.get("file"), rig.put("new"), rig.get("file")
    (rig.location / "new").write_bytes(b"12345")
    rig.reopen()
    again = rig.about("srmStatusOfGetRequest", got.text("requestToken"))
    assert (statuses(again), turl(again)) == (("SRM_SUCCESS", ["SRM_FILE_PINNED"]), turl(got))
    assert statuses(rig.put("new", overwriteOption="ALWAYS")) == ("SRM_FAILURE", ["SRM_FILE_BUSY"])
    assert statuses(rig.about("srmPutDone", put.text("requestToken"), "new")) == ("SRM_SUCCESS", ["SRM_SUCCESS"])
    assert statuses(rig.about("srmStatusOfGetRequest", waits.text("requestToken"))) == (
        "SRM_SUCCESS",
        ["SRM_FILE_PINNED"],
    )


def test_finished_requests_are_deleted_after_a_time_and_active_ones_are_kept(tmp_path):
    rig = SrmRig(tmp_path, keep_s=10, pin_s=1000)
    old, live = rig.get("file").text("requestToken"), rig.get("file").text("requestToken")
    rig.about("srmReleaseFiles", old)
    rig.now += 11
    rig.get("file")
    assert statuses(rig.about("srmStatusOfGetRequest", old))[0] == "SRM_INVALID_REQUEST"
    assert statuses(rig.about("srmStatusOfGetRequest", live))[0] == "SRM_SUCCESS"


def test_only_the_owner_of_a_request_can_use_it(rig):
    token = rig.put("new").text("requestToken")
    for operation in ("srmStatusOfPutRequest", "srmPutDone", "srmAbortRequest"):
        assert statuses(rig.about(operation, token, client=BERTA))[0] == "SRM_AUTHORIZATION_FAILURE"
    (rig.location / "new").write_bytes(b"123")
    removal = [("arrayOfSURLs", [("urlArray", rig.surl("new"))])]
    assert statuses(rig.call("srmRm", removal, BERTA)) == ("SRM_FAILURE", ["SRM_FILE_BUSY"])
    assert statuses(rig.call("srmRm", removal)) == ("SRM_SUCCESS", ["SRM_SUCCESS"])
    assert statuses(rig.about("srmStatusOfPutRequest", token)) == ("SRM_ABORTED", ["SRM_ABORTED"])


def test_a_user_missing_from_the_mapfile_can_only_ping(rig):
    before = sorted(rig.location.iterdir())
    assert statuses(rig.get("file", client=CARLA))[0] == "SRM_AUTHORIZATION_FAILURE"
    for operation in ("srmLs", "srmRm", "srmMkdir", "srmRmdir", "srmGetTransferProtocols", "srmMv"):
        assert statuses(rig.call(operation, [("SURL", rig.surl("x"))], CARLA))[0] == "SRM_AUTHORIZATION_FAILURE"
    assert rig.call("srmPing", (), CARLA).text("versionInfo") == "v2.2"
    assert sorted(rig.location.iterdir()) == before


def test_paths_outside_the_served_directories_are_rejected(rig, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "outside").mkdir()
    (rig.location / "link").symlink_to(tmp_path / "secret")
    (rig.location / "door").symlink_to(tmp_path / "outside")
    for name in ("link", "door/x"):
        assert statuses(rig.get(name))[1] == ["SRM_AUTHORIZATION_FAILURE"]
    assert statuses(rig.put("door/x"))[1] == ["SRM_AUTHORIZATION_FAILURE"]
    assert statuses(rig.call("srmMkdir", [("SURL", rig.surl("door/made"))]))[0] == "SRM_AUTHORIZATION_FAILURE"
    for outside in (f"srm://a{tmp_path}/secret", "srm://a/", f"srm://a{rig.location}x/file"):
        details = rig.call("srmLs", [("arrayOfSURLs", [("urlArray", outside)])]).part("details")
        assert details.parts("pathDetailArray")[0].part("status").text("statusCode") == "SRM_AUTHORIZATION_FAILURE"
    # The directory itself is kept. A link is removed, but not its target.
    assert (
        statuses(rig.call("srmRmdir", [("SURL", f"srm://a{rig.location}"), ("recursive", True)]))[0]
        == "SRM_AUTHORIZATION_FAILURE"
    )
    assert statuses(rig.call("srmRm", [("arrayOfSURLs", [("urlArray", rig.surl("link"))])]))[0] == "SRM_SUCCESS"
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_listing_has_the_requested_depth_and_range(tmp_path):
    rig = SrmRig(tmp_path, entries=3)
    (rig.location / "folder" / "deep").mkdir(parents=True)
    (rig.location / "folder" / "x").write_bytes(b"123")

    def listed(name="", **more):
        response = rig.call("srmLs", [("arrayOfSURLs", [("urlArray", rig.surl(name))]), *more.items()])
        (top,) = response.part("details").parts("pathDetailArray")
        below = [one.text("path").rpartition("/")[2] for one in top.part("arrayOfSubPaths").parts("pathDetailArray")]
        return response.part("returnStatus").text("statusCode"), below

    assert listed(numOfLevels=0) == ("SRM_SUCCESS", [])
    assert listed() == ("SRM_SUCCESS", ["file", "folder"])
    assert listed(offset=1, count=1) == ("SRM_SUCCESS", ["folder"])
    assert listed(allLevelRecursive=True)[0] == "SRM_TOO_MANY_RESULTS"
    assert listed("folder") == ("SRM_SUCCESS", ["deep", "x"])
    assert (
        statuses(rig.call("srmLs", [("arrayOfSURLs", [("urlArray", "x")]), ("offset", "-1")]))[0]
        == "SRM_INVALID_REQUEST"
    )
    detail = rig.call("srmLs", [("arrayOfSURLs", [("urlArray", rig.surl("file"))]), ("fullDetailedList", True)])
    (file,) = detail.part("details").parts("pathDetailArray")
    assert (file.text("size"), file.text("type"), file.text("fileLocality")) == ("5", "FILE", "ONLINE")
    assert file.text("lastModificationTime") == "2001-09-09T01:45:00.000Z"


def test_directories_are_created_and_removed(rig):
    def directory(operation, name, **more):
        return statuses(rig.call(operation, [("SURL", rig.surl(name)), *more.items()]))[0]

    assert directory("srmMkdir", "one") == "SRM_SUCCESS"
    assert directory("srmMkdir", "one") == "SRM_DUPLICATION_ERROR"
    assert directory("srmMkdir", "none/two") == "SRM_INVALID_PATH"
    (rig.location / "one" / "x").touch()
    assert directory("srmRmdir", "one") == "SRM_NON_EMPTY_DIRECTORY"
    assert directory("srmRmdir", "file") == "SRM_INVALID_PATH"
    assert directory("srmRmdir", "one", recursive=True) == "SRM_SUCCESS"
    assert not (rig.location / "one").exists()


def test_unsupported_operations_return_a_status_and_unknown_ones_a_fault(rig):
    assert statuses(rig.call("srmBringOnline"))[0] == "SRM_NOT_SUPPORTED"
    with pytest.raises(SoapError, match="srmDance"):
        rig.manager.handle(SoapCall("srmDance"), ANNA, NOW)
    names = [
        one.text("transferProtocol")
        for one in rig.call("srmGetTransferProtocols").part("protocolInfo").parts("protocolArray")
    ]
    assert names == ["gsiftp", "https"]


def test_a_file_that_is_requested_twice_is_released_twice(rig):
    token = rig.get("file", "file").text("requestToken")
    assert statuses(rig.about("srmReleaseFiles", token, "file")) == ("SRM_SUCCESS", ["SRM_SUCCESS", "SRM_SUCCESS"])
    assert statuses(rig.about("srmReleaseFiles", token, "other"))[1] == ["SRM_INVALID_PATH"]
    assert rig.store.count(State.READY) == 0


def test_a_release_by_surl_affects_only_requests_of_the_client(rig):
    anna, berta = rig.get("file").text("requestToken"), rig.get("file", client=BERTA).text("requestToken")
    assert (
        statuses(rig.call("srmReleaseFiles", [("arrayOfSURLs", [("urlArray", rig.surl("file"))])]))[0]
        == "SRM_SUCCESS"
    )
    assert statuses(rig.about("srmStatusOfGetRequest", anna))[1] == ["SRM_RELEASED"]
    assert statuses(rig.about("srmStatusOfGetRequest", berta, client=BERTA))[1] == ["SRM_FILE_PINNED"]
    assert statuses(rig.call("srmReleaseFiles"))[0] == "SRM_INVALID_REQUEST"


def test_a_queued_file_without_a_door_after_a_restart_is_reported_as_not_supported(tmp_path):
    rig = SrmRig(tmp_path, answer="queued")
    token = rig.get("file").text("requestToken")
    rig.settings = replace(rig.settings, doors={"root": ("root://a/{path}",)})
    rig.reopen()
    assert statuses(rig.about("srmStatusOfGetRequest", token)) == ("SRM_FAILURE", ["SRM_NOT_SUPPORTED"])


@pytest.mark.parametrize(
    ("change", "why"),
    [({"ready": 0}, "ready"), ({"doors": {"gsiftp": ["gsiftp://a"]}}, "{path}"), ({"storages": {"p": "x"}}, "absolute"), ({"colour": 1}, "colour"),
     ({"answer": "now"}, "answer"), ({"ports": [70000]}, "ports"), ({"pin_s": 0}, "pin_s")],
)  # fmt: skip
def test_invalid_settings_are_rejected(tmp_path, change, why):
    with pytest.raises(SettingsError, match=why.replace("{", r"\{")):
        SrmRig(tmp_path, **change)
