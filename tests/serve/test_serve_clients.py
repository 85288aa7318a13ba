"""Third-party clients read, list and write."""

import io
import os
import zlib
from urllib.parse import quote

import pytest
from servekit import SIZES, content, leftovers, logged_in, run

from testkit import needs_programs


def check_down(own):
    """Check that all files arrived unchanged at the client."""
    for name, size in SIZES.items():
        assert (own / name).read_bytes() == content(name, size), name


def check_up(server):
    """Check that all files arrived unchanged at the server, without other files."""
    for name, size in SIZES.items():
        path = server.directory / f"up-{name}"
        assert path.read_bytes() == content(f"up-{name}", size), name
        path.unlink()
    assert leftovers(server.directory) == []


@needs_programs("curl")
@pytest.mark.parametrize(
    "mode", [["--ftp-pasv"], ["--ftp-port", "127.0.0.1"], ["--disable-epsv"]], ids=["epsv", "eprt", "pasv"]
)
def test_curl_reads_and_writes(writable, own, mode):
    for name in SIZES:
        run("curl", "-sS", *mode, f"{writable.url}/{quote(name)}", "-o", own / name)
        run("curl", "-sS", *mode, "-T", own / f"up-{name}", f"{writable.url}/{quote(f'up-{name}')}")
    check_down(own)
    check_up(writable)


@needs_programs("curl")
def test_curl_resumes_downloads_creates_directories_and_appends(writable, own):
    (own / "large").write_bytes(content("large", SIZES["large"])[:1_000_000])
    run("curl", "-sS", "-C", "-", f"{writable.url}/large", "-o", own / "large")
    assert (own / "large").read_bytes() == content("large", SIZES["large"])
    run("curl", "-sS", "--ftp-create-dirs", "-T", own / "up-one", f"{writable.url}/made/by/curl/one")
    assert (writable.directory / "made/by/curl/one").read_bytes() == content("up-one", 1)
    # Appends (APPE).
    run("curl", "-sS", "-a", "-T", own / "up-one", f"{writable.url}/made/by/curl/one")
    assert (writable.directory / "made/by/curl/one").read_bytes() == 2 * content("up-one", 1)


@needs_programs("wget")
def test_wget_reads_a_tree(writable, tmp_path):
    below = writable.directory / "tree" / "below"
    below.mkdir(parents=True)
    (below / "file").write_bytes(b"content")
    run("wget", "-q", "-r", "-nH", "-P", tmp_path / "got", f"{writable.url}/tree")
    assert (tmp_path / "got/tree/below/file").read_bytes() == b"content"
    for name in SIZES:
        run("wget", "-q", "-P", tmp_path, f"{writable.url}/{quote(name)}")
    check_down(tmp_path)


@needs_programs("lftp")
def test_lftp_mirrors_in_both_directions_with_times(writable, own, tmp_path):
    settings = "set net:timeout 20; set net:max-retries 1; set cmd:fail-exit true"
    run(
        "lftp",
        "-c",
        f"{settings}; open {writable.url}; mirror -R --parallel=4 {own} /mirrored; mirror --parallel=4 /mirrored {tmp_path}/back",
    )
    names = sorted(path.name for path in own.iterdir())
    for directory in (writable.directory / "mirrored", tmp_path / "back"):
        assert sorted(path.name for path in directory.iterdir()) == names
        for name in names:
            assert (directory / name).read_bytes() == (own / name).read_bytes()
            assert int((directory / name).stat().st_mtime) == int((own / name).stat().st_mtime)
    run("lftp", "-c", f"{settings}; open {writable.url}; rm -r /mirrored")
    assert not (writable.directory / "mirrored").exists()


@needs_programs("globus-url-copy")
@pytest.mark.parametrize("options", [[], ["-fast"], ["-p", "1"], ["-p", "4"], ["-fast", "-p", "16"]], ids=" ".join)
def test_globus_url_copy_reads_and_writes_in_both_modes(writable, own, options):
    for name in SIZES:
        run("globus-url-copy", *options, f"{writable.url}/{quote(name)}", f"file://{quote(str(own / name))}")
        up = f"up-{name}"
        run("globus-url-copy", *options, f"file://{quote(str(own / up))}", f"{writable.url}/{quote(up)}")
    check_down(own)
    check_up(writable)


@needs_programs("globus-url-copy")
def test_globus_url_copy_moves_a_directory_over_kept_connections_and_in_several_sessions(writable, own):
    for options in (["-fast"], ["-fast", "-p", "4", "-cc", "3"]):
        target = f"{writable.url}/folder/"
        run("globus-url-copy", *options, "-cd", "-r", f"file://{own}/", target)
        back = own.parent / f"back{len(options)}"
        run("globus-url-copy", *options, "-cd", "-r", target, f"file://{back}/")
        for path in own.iterdir():
            assert (back / path.name).read_bytes() == path.read_bytes(), path.name


@needs_programs("globus-url-copy")
def test_globus_url_copy_verifies_by_checksum_and_reads_part_of_a_file(writable, own):
    run("globus-url-copy", "-verify-checksum", "-checksum-alg", "MD5", f"{writable.url}/large", f"file://{own}/large")
    part = ["-p", "2", "-off", "1000000", "-len", "2500000"]
    run("globus-url-copy", *part, f"{writable.url}/large", f"file://{own}/part")
    whole = content("large", SIZES["large"])
    assert (own / "large").read_bytes() == whole
    assert (own / "part").read_bytes()[-2_500_000:] == whole[1_000_000:3_500_000]


@needs_programs("globus-url-copy")
def test_a_gridftp_transfer_is_logged_with_its_connections(writable, own):
    before = len(writable.events("transfer"))
    run("globus-url-copy", "-p", "4", f"{writable.url}/large", f"file://{own}/large")
    after = writable.transfers(before + 1)
    one = after[-1]
    assert (one["command"], one["path"], one["bytes"], one["code"]) == ("RETR", "/large", SIZES["large"], 226)
    assert 1 <= one["streams"] <= 4
    assert 0 < one["duration_s"] < 20
    assert one["user"] == "anonymous"


@needs_programs("gfal-copy")
def test_gfal_copy_reads_writes_and_lists(writable, own):
    # Its launcher uses `python`, which Debian does not have.
    environment = {**os.environ, "GFAL_PYTHONBIN": "/usr/bin/python3"}
    run("gfal-copy", "-f", f"{writable.url}/large", f"file://{own}/large", env=environment)
    run("gfal-copy", "-f", f"file://{own}/up-large", f"{writable.url}/up-gfal", env=environment)
    listed = run("gfal-ls", writable.url, env=environment).stdout.splitlines()
    assert set(SIZES) <= set(listed)
    assert (own / "large").read_bytes() == content("large", SIZES["large"])
    assert (writable.directory / "up-gfal").read_bytes() == content("up-large", SIZES["large"])


def test_ftplib_lists_with_every_command_renames_sets_times_and_resumes(writable):
    size = SIZES["large"]
    (writable.directory / "stamped").write_bytes(b"")
    with logged_in(writable) as ftp:
        metadata = dict(ftp.mlsd("/"))
        assert metadata["large"]["size"] == str(size)
        assert metadata["large"]["type"] == "file"
        assert set(SIZES) <= set(ftp.nlst())
        lines = []
        ftp.retrlines("LIST", lines.append)
        assert any(line.endswith(" large") and str(size) in line.split() for line in lines)
        lines.clear()
        ftp.retrlines("LIST large", lines.append)
        assert len(lines) == 1
        assert ftp.size("large") == size
        whole, rest = io.BytesIO(), io.BytesIO()
        ftp.retrbinary("RETR large", whole.write)
        ftp.retrbinary("RETR large", rest.write, rest=4_000_000)
        assert whole.getvalue() == content("large", size)
        assert rest.getvalue() == whole.getvalue()[4_000_000:]
        assert ftp.sendcmd("MFMT 20200102030405 stamped").startswith("213")
        assert ftp.sendcmd("MDTM stamped") == "213 20200102030405"
        ftp.rename("stamped", "renamed")
        assert ftp.sendcmd("SITE CHMOD 640 renamed").startswith("250")
        assert (writable.directory / "renamed").stat().st_mode & 0o777 == 0o640
        ftp.delete("renamed")
        ftp.mkd("d")
        ftp.cwd("d")
        assert ftp.pwd() == "/d"
        ftp.cwd("..")
        ftp.rmd("d")
        assert ftp.sendcmd("STAT large").startswith("213") or ftp.sendcmd("STAT large").startswith("250")
    assert not (writable.directory / "d").exists()


def test_a_directory_of_many_files_is_listed_completely(writable):
    many = writable.directory / "many"
    many.mkdir()
    names = {f"file-{number:04}" for number in range(3000)}
    for name in names:
        (many / name).touch()
    with logged_in(writable) as ftp:
        assert {name for name, _ in ftp.mlsd("many")} == names
        contents = ftp.sendcmd("MLSC many").splitlines()
    assert {line.partition("; ")[2] for line in contents[1:-1]} == names


def test_checksums_equal_those_of_other_programs(writable):
    # Checksums of `large`, by third-party programs.
    path = writable.directory / "large"
    expected = {name: run(f"{name.lower()}sum", path).stdout.split()[0] for name in ("MD5", "SHA256")}
    with logged_in(writable) as ftp:
        for name, value in expected.items():
            assert ftp.sendcmd(f"CKSM {name} 0 -1 /large") == f"213 {value}"
        data = content("large", SIZES["large"])
        assert ftp.sendcmd("CKSM ADLER32 0 -1 /large") == f"213 {zlib.adler32(data):08x}"
        assert ftp.sendcmd("CKSM ADLER32 1000 70000 /large") == f"213 {zlib.adler32(data[1000:71000]):08x}"
