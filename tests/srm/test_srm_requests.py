"""What becomes of requests: the manager with its store and real files, its time given."""

import os
from dataclasses import replace

import pytest

from venturi.srm import Caller, Manager, Settings
from venturi.srm.errors import SettingsError, SoapError
from venturi.srm.soap import Call, emit_reply, emit_request, parse_call, parse_reply
from venturi.srm.state import State
from venturi.srm.store import Store

ANNA, BERTA, NOBODY = Caller("/CN=Anna", "anna"), Caller("/CN=Berta", "berta"), Caller("/CN=Nobody", None)
NOW = 1e9


class Ground:
    """A manager of one place, and a clock that is turned by hand. Files in it are of the same time."""

    def __init__(self, folder, **changes):
        self.place = folder / "place"
        self.place.mkdir()
        (self.place / "file").write_bytes(b"12345")
        os.utime(self.place / "file", (NOW - 100, NOW - 100))
        self.now = NOW
        names = ("certificate", "key", "authorities", "mapfile", "log")
        self.settings = Settings.of(
            dict.fromkeys(names, "none") | {"address": "127.0.0.1", "ports": [0], "hosts": ["a"], "places": {"p": str(self.place)},
            "doors": {"gsiftp": ["gsiftp://a:1{path}", "gsiftp://a:2{path}"], "https": ["https://a/{relative}"]},
            "database": str(folder / "requests.db"), "pin_s": 100, "request_s": 50} | changes
        )  # fmt: skip
        self.open()

    def open(self):
        """As a server that starts: with what is in the database."""
        self.store = Store(self.settings.database)
        self.manager = Manager(self.settings, self.store, "test")

    def reopen(self):
        """As after a kill: nothing is closed properly, and all that is left is the file."""
        self.open()

    def ask(self, operation, parts=(), caller=ANNA):
        """Return the response of an operation, through the XML both ways."""
        reply = self.manager.handle(parse_call(emit_request(operation, parts)), caller, self.now)
        return parse_reply(emit_reply(operation, reply.parts))

    def surl(self, name):
        return f"srm://a{self.place}/{name}"

    def get(self, *names, caller=ANNA, protocols=("gsiftp",), **more):
        files = [("requestArray", [("sourceSURL", self.surl(name))]) for name in names]
        parts = [("arrayOfFileRequests", files), wish(protocols), *more.items()]
        return self.ask("srmPrepareToGet", parts, caller)

    def put(self, *names, caller=ANNA, size=5, **more):
        files = [("requestArray", [("targetSURL", self.surl(name)), ("expectedFileSize", size)]) for name in names]
        return self.ask("srmPrepareToPut", [("arrayOfFileRequests", files), wish(["gsiftp"]), *more.items()], caller)

    def about(self, operation, token, *names, caller=ANNA):
        listed = [("urlArray", self.surl(name)) for name in names] or None
        array = {"srmStatusOfGetRequest": "arrayOfSourceSURLs"}.get(operation, "arrayOfSURLs")
        return self.ask(operation, [("requestToken", token), (array, listed)], caller)


def wish(protocols):
    return "transferParameters", [("arrayOfTransferProtocols", [("stringArray", one) for one in protocols])]


def told(response):
    """The status of a request, and those of its files."""
    parts = response.part("arrayOfFileStatuses").parts("statusArray")
    return response.part("returnStatus").text("statusCode"), [one.part("status").text("statusCode") for one in parts]


def turl(response, at=0):
    return response.part("arrayOfFileStatuses").parts("statusArray")[at].text("transferURL")


@pytest.fixture
def ground(tmp_path):
    """A manager as it is by default."""
    return Ground(tmp_path)


def test_a_get_is_a_url_of_a_door_in_turn_until_it_is_released(ground):
    first, second = ground.get("file"), ground.get("file")
    assert told(first) == ("SRM_SUCCESS", ["SRM_FILE_PINNED"])
    assert [turl(first), turl(second)] == [f"gsiftp://a:{n}{ground.place}/file" for n in (1, 2)]
    token = first.text("requestToken")
    assert told(ground.about("srmReleaseFiles", token)) == ("SRM_SUCCESS", ["SRM_SUCCESS"])
    assert told(ground.about("srmStatusOfGetRequest", token)) == ("SRM_SUCCESS", ["SRM_RELEASED"])
    assert turl(ground.get("file", protocols=["rfio", "https", "gsiftp"])) == "https://a/file"


def test_files_of_one_request_have_fates_of_their_own(ground):
    (ground.place / "folder").mkdir()
    response = ground.get("file", "nothing", "folder", "../place/file")
    assert told(response) == ("SRM_PARTIAL_SUCCESS", ["SRM_FILE_PINNED", *["SRM_INVALID_PATH"] * 3])
    assert told(ground.get("nothing")) == ("SRM_FAILURE", ["SRM_INVALID_PATH"])
    assert told(ground.get("file", protocols=["rfio"]))[0] == "SRM_NOT_SUPPORTED"
    assert told(ground.get())[0] == "SRM_INVALID_REQUEST"


def test_an_upload_is_done_when_all_that_was_announced_is_there(ground):
    response = ground.put("new")
    token = response.text("requestToken")
    assert told(response) == ("SRM_SUCCESS", ["SRM_SPACE_AVAILABLE"])
    assert told(ground.about("srmPutDone", token, "new")) == ("SRM_FAILURE", ["SRM_INVALID_PATH"])
    (ground.place / "new").write_bytes(b"123")
    assert told(ground.about("srmPutDone", token, "new")) == ("SRM_FAILURE", ["SRM_FAILURE"])
    assert told(ground.get("new")) == ("SRM_FAILURE", ["SRM_FILE_BUSY"])
    assert told(ground.put("new")) == ("SRM_FAILURE", ["SRM_FILE_BUSY"])
    (ground.place / "new").write_bytes(b"12345")
    assert told(ground.about("srmPutDone", token, "new")) == ("SRM_SUCCESS", ["SRM_SUCCESS"])
    assert told(ground.about("srmPutDone", token, "new")) == ("SRM_FAILURE", ["SRM_DUPLICATION_ERROR"])
    assert told(ground.get("new")) == ("SRM_SUCCESS", ["SRM_FILE_PINNED"])


def test_what_is_there_is_replaced_only_if_the_client_says_so(ground):
    assert told(ground.put("file")) == ("SRM_FAILURE", ["SRM_DUPLICATION_ERROR"])
    assert told(ground.put("file", overwriteOption="ALWAYS")) == ("SRM_SUCCESS", ["SRM_SPACE_AVAILABLE"])
    assert told(ground.put("no/where")) == ("SRM_FAILURE", ["SRM_INVALID_PATH"])
    assert told(ground.put("huge", size=1 << 60)) == ("SRM_FAILURE", ["SRM_NO_FREE_SPACE"])
    assert told(ground.put("twice", "twice")) == ("SRM_PARTIAL_SUCCESS", ["SRM_SPACE_AVAILABLE", "SRM_FILE_BUSY"])


def test_an_upload_that_is_given_up_leaves_nothing_but_what_was_there_before(ground):
    token = ground.put("new").text("requestToken")
    (ground.place / "new").write_bytes(b"123")
    assert told(ground.ask("srmAbortRequest", [("requestToken", token)]))[0] == "SRM_SUCCESS"
    assert not (ground.place / "new").exists()
    assert told(ground.about("srmStatusOfPutRequest", token)) == ("SRM_ABORTED", ["SRM_ABORTED"])
    token = ground.put("file", overwriteOption="ALWAYS").text("requestToken")
    assert told(ground.about("srmAbortFiles", token, "file")) == ("SRM_SUCCESS", ["SRM_SUCCESS"])
    assert (ground.place / "file").read_bytes() == b"12345"


def test_beyond_the_slots_files_wait_for_their_turn(tmp_path):
    ground = Ground(tmp_path, ready=1)
    tokens = [ground.get("file").text("requestToken") for _ in range(3)]

    def states():
        return [told(ground.about("srmStatusOfGetRequest", token))[0] for token in tokens]

    assert states() == ["SRM_SUCCESS", "SRM_REQUEST_QUEUED", "SRM_REQUEST_QUEUED"]
    ground.about("srmReleaseFiles", tokens[0])
    assert states() == ["SRM_SUCCESS", "SRM_SUCCESS", "SRM_REQUEST_QUEUED"]
    # The second does not come back: its URL ends, and with it its hold on the slot; the third has waited too long by then.
    ground.now += 99
    assert states() == ["SRM_SUCCESS", "SRM_SUCCESS", "SRM_REQUEST_TIMED_OUT"]
    ground.now += 1
    assert states() == ["SRM_SUCCESS", "SRM_FAILURE", "SRM_REQUEST_TIMED_OUT"]
    assert ground.store.count(State.READY) == 0


def test_a_queue_that_is_full_tells_clients_to_come_again(tmp_path):
    ground = Ground(tmp_path, ready=1, queue=2)
    assert [told(ground.get("file"))[0] for _ in range(4)] == [
        "SRM_SUCCESS", "SRM_REQUEST_QUEUED", "SRM_REQUEST_QUEUED", "SRM_INTERNAL_ERROR"]  # fmt: skip


def test_a_server_with_a_scheduler_answers_with_a_place_in_the_queue_first(tmp_path):
    ground = Ground(tmp_path, answer="queued")
    response = ground.get("file")
    assert told(response) == ("SRM_REQUEST_QUEUED", ["SRM_REQUEST_QUEUED"])
    assert told(ground.about("srmStatusOfGetRequest", response.text("requestToken"))) == (
        "SRM_SUCCESS",
        ["SRM_FILE_PINNED"],
    )


def test_what_was_promised_is_still_known_after_a_kill(tmp_path):
    ground = Ground(tmp_path, ready=2)
    got, put, waits = ground.get("file"), ground.put("new"), ground.get("file")
    (ground.place / "new").write_bytes(b"12345")
    ground.reopen()
    again = ground.about("srmStatusOfGetRequest", got.text("requestToken"))
    assert (told(again), turl(again)) == (("SRM_SUCCESS", ["SRM_FILE_PINNED"]), turl(got))
    assert told(ground.put("new", overwriteOption="ALWAYS")) == ("SRM_FAILURE", ["SRM_FILE_BUSY"])
    assert told(ground.about("srmPutDone", put.text("requestToken"), "new")) == ("SRM_SUCCESS", ["SRM_SUCCESS"])
    assert told(ground.about("srmStatusOfGetRequest", waits.text("requestToken"))) == (
        "SRM_SUCCESS",
        ["SRM_FILE_PINNED"],
    )


def test_finished_requests_are_forgotten_and_live_ones_never(tmp_path):
    ground = Ground(tmp_path, keep_s=10, pin_s=1000)
    old, live = ground.get("file").text("requestToken"), ground.get("file").text("requestToken")
    ground.about("srmReleaseFiles", old)
    ground.now += 11
    ground.get("file")
    assert told(ground.about("srmStatusOfGetRequest", old))[0] == "SRM_INVALID_REQUEST"
    assert told(ground.about("srmStatusOfGetRequest", live))[0] == "SRM_SUCCESS"


def test_requests_belong_to_who_made_them(ground):
    token = ground.put("new").text("requestToken")
    for operation in ("srmStatusOfPutRequest", "srmPutDone", "srmAbortRequest"):
        assert told(ground.about(operation, token, caller=BERTA))[0] == "SRM_AUTHORIZATION_FAILURE"
    (ground.place / "new").write_bytes(b"123")
    removal = [("arrayOfSURLs", [("urlArray", ground.surl("new"))])]
    assert told(ground.ask("srmRm", removal, BERTA)) == ("SRM_FAILURE", ["SRM_FILE_BUSY"])
    assert told(ground.ask("srmRm", removal)) == ("SRM_SUCCESS", ["SRM_SUCCESS"])
    assert told(ground.about("srmStatusOfPutRequest", token)) == ("SRM_ABORTED", ["SRM_ABORTED"])


def test_who_is_not_in_the_mapfile_is_known_and_may_do_nothing(ground):
    before = sorted(ground.place.iterdir())
    assert told(ground.get("file", caller=NOBODY))[0] == "SRM_AUTHORIZATION_FAILURE"
    for operation in ("srmLs", "srmRm", "srmMkdir", "srmRmdir", "srmGetTransferProtocols", "srmMv"):
        assert told(ground.ask(operation, [("SURL", ground.surl("x"))], NOBODY))[0] == "SRM_AUTHORIZATION_FAILURE"
    assert ground.ask("srmPing", (), NOBODY).text("versionInfo") == "v2.2"
    assert sorted(ground.place.iterdir()) == before


def test_no_path_leads_out_of_the_places(ground, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "outside").mkdir()
    (ground.place / "link").symlink_to(tmp_path / "secret")
    (ground.place / "door").symlink_to(tmp_path / "outside")
    for name in ("link", "door/x"):
        assert told(ground.get(name))[1] == ["SRM_AUTHORIZATION_FAILURE"]
    assert told(ground.put("door/x"))[1] == ["SRM_AUTHORIZATION_FAILURE"]
    assert told(ground.ask("srmMkdir", [("SURL", ground.surl("door/made"))]))[0] == "SRM_AUTHORIZATION_FAILURE"
    for outside in (f"srm://a{tmp_path}/secret", "srm://a/", f"srm://a{ground.place}x/file"):
        details = ground.ask("srmLs", [("arrayOfSURLs", [("urlArray", outside)])]).part("details")
        assert details.parts("pathDetailArray")[0].part("status").text("statusCode") == "SRM_AUTHORIZATION_FAILURE"
    # The place itself stays, and of a link only the link goes.
    assert (
        told(ground.ask("srmRmdir", [("SURL", f"srm://a{ground.place}"), ("recursive", True)]))[0]
        == "SRM_AUTHORIZATION_FAILURE"
    )
    assert told(ground.ask("srmRm", [("arrayOfSURLs", [("urlArray", ground.surl("link"))])]))[0] == "SRM_SUCCESS"
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_listing_goes_as_deep_and_as_far_as_it_is_asked_to(tmp_path):
    ground = Ground(tmp_path, entries=3)
    (ground.place / "folder" / "deep").mkdir(parents=True)
    (ground.place / "folder" / "x").write_bytes(b"123")

    def listed(name="", **more):
        response = ground.ask("srmLs", [("arrayOfSURLs", [("urlArray", ground.surl(name))]), *more.items()])
        (top,) = response.part("details").parts("pathDetailArray")
        below = [one.text("path").rpartition("/")[2] for one in top.part("arrayOfSubPaths").parts("pathDetailArray")]
        return response.part("returnStatus").text("statusCode"), below

    assert listed(numOfLevels=0) == ("SRM_SUCCESS", [])
    assert listed() == ("SRM_SUCCESS", ["file", "folder"])
    assert listed(offset=1, count=1) == ("SRM_SUCCESS", ["folder"])
    assert listed(allLevelRecursive=True)[0] == "SRM_TOO_MANY_RESULTS"
    assert listed("folder") == ("SRM_SUCCESS", ["deep", "x"])
    assert (
        told(ground.ask("srmLs", [("arrayOfSURLs", [("urlArray", "x")]), ("offset", "-1")]))[0]
        == "SRM_INVALID_REQUEST"
    )
    detail = ground.ask("srmLs", [("arrayOfSURLs", [("urlArray", ground.surl("file"))]), ("fullDetailedList", True)])
    (file,) = detail.part("details").parts("pathDetailArray")
    assert (file.text("size"), file.text("type"), file.text("fileLocality")) == ("5", "FILE", "ONLINE")
    assert file.text("lastModificationTime") == "2001-09-09T01:45:00.000Z"


def test_folders_are_made_and_removed(ground):
    def folder(operation, name, **more):
        return told(ground.ask(operation, [("SURL", ground.surl(name)), *more.items()]))[0]

    assert folder("srmMkdir", "one") == "SRM_SUCCESS"
    assert folder("srmMkdir", "one") == "SRM_DUPLICATION_ERROR"
    assert folder("srmMkdir", "none/two") == "SRM_INVALID_PATH"
    (ground.place / "one" / "x").touch()
    assert folder("srmRmdir", "one") == "SRM_NON_EMPTY_DIRECTORY"
    assert folder("srmRmdir", "file") == "SRM_INVALID_PATH"
    assert folder("srmRmdir", "one", recursive=True) == "SRM_SUCCESS"
    assert not (ground.place / "one").exists()


def test_operations_that_are_not_carried_out_say_so_and_unknown_ones_are_faults(ground):
    assert told(ground.ask("srmBringOnline"))[0] == "SRM_NOT_SUPPORTED"
    with pytest.raises(SoapError, match="srmDance"):
        ground.manager.handle(Call("srmDance"), ANNA, NOW)
    names = [
        one.text("transferProtocol")
        for one in ground.ask("srmGetTransferProtocols").part("protocolInfo").parts("protocolArray")
    ]
    assert names == ["gsiftp", "https"]


def test_a_file_that_is_asked_for_twice_is_released_twice(ground):
    token = ground.get("file", "file").text("requestToken")
    assert told(ground.about("srmReleaseFiles", token, "file")) == ("SRM_SUCCESS", ["SRM_SUCCESS", "SRM_SUCCESS"])
    assert told(ground.about("srmReleaseFiles", token, "other"))[1] == ["SRM_INVALID_PATH"]
    assert ground.store.count(State.READY) == 0


def test_released_by_their_surls_alone_are_those_of_the_caller(ground):
    anna, berta = ground.get("file").text("requestToken"), ground.get("file", caller=BERTA).text("requestToken")
    assert (
        told(ground.ask("srmReleaseFiles", [("arrayOfSURLs", [("urlArray", ground.surl("file"))])]))[0]
        == "SRM_SUCCESS"
    )
    assert told(ground.about("srmStatusOfGetRequest", anna))[1] == ["SRM_RELEASED"]
    assert told(ground.about("srmStatusOfGetRequest", berta, caller=BERTA))[1] == ["SRM_FILE_PINNED"]
    assert told(ground.ask("srmReleaseFiles"))[0] == "SRM_INVALID_REQUEST"


def test_a_server_that_starts_again_with_other_doors_says_that_a_waiting_file_has_none(tmp_path):
    ground = Ground(tmp_path, answer="queued")
    token = ground.get("file").text("requestToken")
    ground.settings = replace(ground.settings, doors={"root": ("root://a/{path}",)})
    ground.reopen()
    assert told(ground.about("srmStatusOfGetRequest", token)) == ("SRM_FAILURE", ["SRM_NOT_SUPPORTED"])


@pytest.mark.parametrize(
    ("change", "why"),
    [({"ready": 0}, "ready"), ({"doors": {"gsiftp": ["gsiftp://a"]}}, "{path}"), ({"places": {"p": "x"}}, "absolute"), ({"colour": 1}, "colour"),
     ({"answer": "now"}, "answer"), ({"ports": [70000]}, "ports"), ({"pin_s": 0}, "pin_s")],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(tmp_path, change, why):
    with pytest.raises(SettingsError, match=why.replace("{", r"\{")):
        Ground(tmp_path, **change)
