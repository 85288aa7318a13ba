"""Storages on existing servers: WebDAV, GridFTP, XRootD, FTP, SFTP and S3."""

import zlib
from pathlib import Path

import pytest
from existingkit import (
    GFAL_OPTIONS,
    ftp,
    gridftp,
    problems,
    rows,
    run,
    s3,
    scenario,
    servers,
    sftp,
    srm,
    venturi_serve,
    webdav,
    webdav_tls,
    xrootd,
    xrootd_tls,
)

from testkit import needs_programs

MOVERS = {
    webdav: ("curl", "apache2"),
    gridftp: ("globus-url-copy", "globus-gridftp-server"),
    xrootd: ("xrdcp", "xrootd"),
    ftp: ("globus-url-copy",),
    sftp: ("sftp", "sshd"),
    s3: ("rclone",),
    webdav_tls: ("gfal-copy", "apache2", "openssl"),
    srm: ("gfal-copy", "gfal-stat", "globus-gridftp-server"),
    xrootd_tls: ("xrdcp", "xrootd", "openssl"),
}
SIZE = 100_000


@pytest.mark.parametrize(
    "kinds",
    [(webdav, gridftp, xrootd), (ftp, sftp), (s3,), (webdav_tls, xrootd_tls, srm)],
    ids=lambda kinds: " ".join(kind.__name__ for kind in kinds),
)
def test_a_run_creates_reads_verifies_and_removes_files_on_existing_servers(kinds, tmp_path):
    needs_programs(*(program for kind in kinds for program in MOVERS[kind]))
    movers = [MOVERS[kind][0] for kind in kinds]
    with servers(*kinds) as started:
        names = [kind.__name__ for kind in kinds]
        path = scenario(
            tmp_path,
            {
                name: f'url = "{server.url}"\nchecksum = "adler32"'
                for name, server in zip(names, started, strict=True)
            },
            environment={key: value for server in started for key, value in server.environment.items()},
            source="disk",
            direction="two ways",
            files=[2],
            options=GFAL_OPTIONS if "gfal-copy" in movers else {},
            factors={"mover": movers, "destination": names},
            more='[workload.sweep]\nzip = [["mover", "destination"]]',
        )
        _, found = run(path)
        assert problems(found) == []
        transfers = rows(found, "destination", "outcome", "received_bytes", "checked_by", "checksum")
        for name in names:
            assert [one[1:4] for one in transfers if one[0].startswith(f"{name}:")] == [("ok", SIZE, "server")] * 2
        down = [one for one in transfers if one[0].startswith("disk:")]
        assert [one[1:4] for one in down] == [("ok", SIZE, "agent")] * 2 * len(names)
        # Another program computes the same checksums.
        scratch = tmp_path / "runs/scratch/disk"
        sources = sorted((scratch / "sets").rglob("000*"))
        expected = {f"adler32:{zlib.adler32(source.read_bytes()):08x}" for source in sources}
        assert {one[4] for one in transfers if not one[0].startswith("disk:")} <= expected
        for server in started:
            assert server.files() == []
        assert not list((scratch / "out").iterdir())


THIRD_PARTY = {
    "GridFTP": ((gridftp,), "globus-url-copy", {}),
    "XRootD": ((xrootd, xrootd), "xrdcp", {"third_party": "only"}),
    "HTTP": ((webdav, venturi_serve), "venturi", {}),
}


@pytest.mark.parametrize("case", THIRD_PARTY)
def test_a_third_party_copy_between_two_existing_servers_is_verified_by_the_servers(case, tmp_path):
    kinds, mover, options = THIRD_PARTY[case]
    needs_programs(mover if mover != "venturi" else "curl", *(MOVERS.get(kind, ("curl",))[-1] for kind in kinds))
    with servers(*kinds) as started:
        source, destination = started[0], started[-1]
        for server in started:
            for name in ("in", "out"):
                (server.root / name).mkdir()
                (server.root / name).chmod(0o777)
        path = scenario(
            tmp_path,
            {"a": source.below("in"), "b": f'url = "{destination.below("out")}"\nchecksum = "adler32"'},
            mover=mover,
            environment={key: value for server in started for key, value in server.environment.items()},
            source="a",
            destination="b",
            files=[2],
            options=options,
        )
        _, found = run(path)
        assert problems(found) == []
        columns = ("source_via", "outcome", "received_bytes", "checked_by")
        transfers = rows(found, *columns)
        assert [one[1:] for one in transfers] == [("ok", SIZE, "server")] * 2
        assert all(one[0].startswith("a/") for one in transfers)
        assert {file for server in started for file in server.files()} == {"in", "out"}


def gridftp_on_ipv6(directory, name="gridftp6"):
    """GridFTP that listens only on ::1."""
    return gridftp(directory, name, address="::1")


@pytest.mark.parametrize("files_per_call", [1, 2])
def test_globus_url_copy_reaches_an_ipv6_only_server(files_per_call, tmp_path):
    needs_programs("globus-url-copy", "globus-gridftp-server")
    if not Path("/proc/net/if_inet6").read_text().strip():
        pytest.skip("the machine has no IPv6")
    with servers(gridftp_on_ipv6) as (server,):
        path = scenario(
            tmp_path, {"far": server.url}, mover="globus-url-copy", source="disk", destination="far",
            direction="two ways", environment=server.environment, files=[2], factors={"files_per_call": [files_per_call]},
        )  # fmt: skip
        _, found = run(path)
        assert problems(found) == []
        assert [one[0] for one in rows(found, "outcome")] == ["ok"] * 4
        assert server.files() == []
