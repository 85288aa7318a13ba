use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::listing::RootEntry;
use super::upload::UploadStart;
use super::*;

/// Create a directory `served` with a file and a sibling `secret` that no path may reach; with and without the
/// confinement of the kernel.
fn with_roots(check: impl Fn(&ConfinedRoot, &Path)) {
    for confines in [true, false] {
        let directory = tempfile::tempdir().expect("a directory");
        let served = directory.path().join("served");
        fs::create_dir_all(served.join("d/e")).expect("directories");
        fs::write(served.join("d/file"), b"content").expect("a file");
        fs::write(directory.path().join("secret"), b"secret").expect("a file");
        let mut root = ConfinedRoot::open(&served, true).expect("a root");
        root.confines &= confines;
        check(&root, &served);
        assert_eq!(
            fs::read(directory.path().join("secret")).expect("still there"),
            b"secret"
        );
        let aside_path = fs::read_dir(directory.path()).expect("a directory").count();
        assert_eq!(aside_path, 2, "nothing was created outside the root");
    }
}

fn all(root: &ConfinedRoot, path: &[u8], recursive: bool) -> Vec<String> {
    let mut listing = root.list(path, recursive).expect("a directory");
    let mut found: Vec<RootEntry> = Vec::new();
    while listing.next(root, 2, &mut found).expect("it can be read") {}
    let mut names: Vec<_> = found
        .into_iter()
        .map(|listed| String::from_utf8(listed.name).expect("text"))
        .collect();
    names.sort_unstable();
    names
}

fn put(root: &ConfinedRoot, path: &[u8], content: &[u8]) -> Result<(), Errno> {
    let upload = root.upload(path, UploadStart::New)?;
    upload.write(content, 0)?;
    upload.commit(false, true).map(drop)
}

#[test]
fn paths_that_leave_the_root_are_rejected_for_every_access() {
    with_roots(|root, served| {
        symlink("../../secret", served.join("d/up")).expect("a link");
        symlink(served.join("../secret"), served.join("absolute")).expect("a link");
        symlink("..", served.join("out")).expect("a link");
        symlink("/proc/self/root/etc/passwd", served.join("magic")).expect("a link");
        let outside: [&[u8]; 7] = [
            b"../secret",
            b"/d/../../secret",
            b"/d/up",
            b"/absolute",
            b"/out/secret",
            b"/magic",
            b"/..",
        ];
        for path in outside {
            let rejected = |result: Result<(), Errno>| {
                let errno = result.expect_err(&String::from_utf8_lossy(path));
                // NOTDIR: without openat2 a link in the middle is no directory.
                let known = matches!(errno, Errno::ACCESS | Errno::NOENT | Errno::NOTDIR);
                assert!(known, "{errno}");
            };
            rejected(root.read(path).map(drop));
            rejected(
                root.read_at_once(path)
                    .and_then(|found| found.map(drop).ok_or(Errno::NOENT)),
            );
            rejected(root.stat(path).map(drop));
            rejected(root.upload(path, UploadStart::InPlace).map(drop));
            rejected(root.upload(path, UploadStart::Kept { bytes: 0 }).map(drop));
            rejected(root.set_mode(path, 0o777));
            rejected(root.set_modified(path, 0));
            rejected(root.truncate(path, 0));
            rejected(
                root.checksum(path, Algorithm::Adler32, 0, None, || true)
                    .map(drop),
            );
            rejected(root.list(path, false).map(drop));
        }
        let below: [&[u8]; 2] = [b"/out/new", b"/d/../../new"];
        for path in below {
            put(root, path, b"x").expect_err("it is outside");
            root.make_directory(path).expect_err("it is outside");
            root.rename(b"/d/file", path, true)
                .expect_err("it is outside");
        }
        root.remove_file(b"/out/secret").expect_err("it is outside");
    });
}

#[test]
fn a_link_is_replaced_and_removed_and_never_written_through() {
    with_roots(|root, served| {
        symlink("../../secret", served.join("d/link")).expect("a link");
        put(root, b"/d/link", b"new").expect("its place is within");
        assert!(!served.join("d/link").is_symlink());
        assert_eq!(fs::read(served.join("d/link")).expect("a file"), b"new");
        symlink("../secret", served.join("link")).expect("a link");
        root.remove_file(b"/link").expect("its place is within");
        assert!(!served.join("link").is_symlink());
    });
}

#[test]
fn links_within_the_root_are_followed_where_the_kernel_confines() {
    with_roots(|root, served| {
        symlink("../d/file", served.join("d/same")).expect("a link");
        symlink("d", served.join("directory")).expect("a link");
        let found = root.stat(b"/directory/same").map(|metadata| metadata.bytes);
        if root.confines {
            assert_eq!(found, Ok(7));
            assert!(root.read_at_once(b"/d/same").expect("readable").is_some());
        } else {
            found.expect_err("no link is followed");
        }
    });
}

/// A directory of the path alternates with a link that leads out, until both were seen often enough
/// for any scheduling of the two threads.
#[test]
fn swapping_a_directory_for_a_link_exposes_nothing_outside() {
    with_roots(|root, served| {
        fs::write(served.join("d/secret"), b"inside").expect("a file");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let swaps = scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    fs::rename(served.join("d"), served.join("away")).expect("to rename");
                    symlink("..", served.join("d")).expect("a link");
                    fs::remove_file(served.join("d")).expect("to remove");
                    fs::rename(served.join("away"), served.join("d")).expect("to rename");
                }
            });
            // Checked after the other thread has ended, because it would run forever after a panic
            // here.
            let (mut inside, mut outside, mut rejected) = (0, 0, 0);
            let end = Instant::now() + Duration::from_secs(60);
            while (inside + rejected < 2000 || inside < 100 || rejected < 100)
                && outside == 0
                && !swaps.is_finished()
                && Instant::now() < end
            {
                let mut content = [0; 6];
                match root.read(b"/d/secret") {
                    Ok(found) => match rustix::io::pread(&found.file, &mut content, 0) {
                        Ok(6) if &content == b"inside" => inside += 1,
                        _ => outside += 1,
                    },
                    Err(_) => rejected += 1,
                }
                if let Ok(upload) = root.upload(b"/d/new", UploadStart::New) {
                    let _ = upload.commit(false, true);
                }
            }
            over.store(true, Ordering::Relaxed);
            assert_eq!(outside, 0, "nothing but what is inside was read");
            assert!(
                inside >= 100 && rejected >= 100,
                "{inside} read, {rejected} not"
            );
        });
        let _ = fs::remove_file(served.join("new"));
    });
}

#[test]
fn a_file_appears_only_when_complete_and_a_dropped_upload_leaves_nothing() {
    with_roots(|root, served| {
        let upload = root.upload(b"/d/file", UploadStart::New).expect("a file");
        upload.write(b"half", 0).expect("to write");
        assert_eq!(fs::read(served.join("d/file")).expect("a file"), b"content");
        assert_eq!(all(root, b"/d", false), ["e", "file"], "it is not listed");
        let again = root.upload(b"/d/file", UploadStart::New).map(drop);
        assert_eq!(again, Err(Errno::BUSY), "two do not write one file");
        drop(upload);
        assert_eq!(
            fs::read_dir(served.join("d")).expect("a directory").count(),
            2
        );
        put(root, b"/d/file", b"whole").expect("a file");
        assert_eq!(fs::read(served.join("d/file")).expect("a file"), b"whole");
    });
}

#[test]
fn a_kept_upload_resumes_and_a_gap_is_rejected() {
    with_roots(|root, served| {
        let upload = root.upload(b"/new", UploadStart::New).expect("a file");
        upload.write(b"01234", 0).expect("to write");
        upload.keep();
        drop(upload);
        let hole = root
            .upload(b"/new", UploadStart::Kept { bytes: 6 })
            .map(drop);
        assert_eq!(hole, Err(Errno::NOENT));
        let upload = root
            .upload(b"/new", UploadStart::Kept { bytes: 5 })
            .expect("five");
        upload.write(b"56789", 5).expect("to write");
        upload.commit(true, true).expect("a disk");
        assert_eq!(fs::read(served.join("new")).expect("a file"), b"0123456789");
        let none = root
            .upload(b"/other", UploadStart::Kept { bytes: 1 })
            .map(drop);
        assert_eq!(none, Err(Errno::NOENT));
        // Without a partial file, the file itself is resumed.
        let upload = root
            .upload(b"/new", UploadStart::Kept { bytes: 10 })
            .expect("ten");
        upload.write(b"x", 10).expect("to write");
        upload.commit(false, true).expect("nothing to rename");
        assert_eq!(fs::metadata(served.join("new")).expect("a file").len(), 11);
    });
}

#[test]
fn an_upload_resumes_the_file_from_its_size_and_the_kept_part_from_markers() {
    with_roots(|root, served| {
        put(root, b"/f", b"old!").expect("a file");
        let remaining = || {
            let upload = root.upload(b"/f", UploadStart::New).expect("a file");
            upload.write(b"012345", 0).expect("to write");
            upload.keep();
        };
        remaining();
        let upload = root.upload(b"/f", UploadStart::Behind { bytes: 4 });
        let upload = upload.expect("the file itself");
        let busy = root.upload(b"/f", UploadStart::AtEnd).map(drop);
        assert_eq!(busy, Err(Errno::BUSY), "it is somebody's");
        upload.write(b"+", 4).expect("to write");
        upload.commit(false, true).expect("nothing to rename");
        assert_eq!(fs::read(served.join("f")).expect("a file"), b"old!+");
        let upload = root.upload(b"/f", UploadStart::Kept { bytes: 5 });
        let upload = upload.expect("what was kept");
        assert_eq!(upload.metadata().expect("its facts").bytes, 5, "it is cut");
        upload.commit(false, true).expect("to be named");
        assert_eq!(fs::read(served.join("f")).expect("a file"), b"01234");
        let upload = root
            .upload(b"/f", UploadStart::AtEnd)
            .expect("the file itself");
        root.remove_file(b"/f").expect("nobody's name");
        assert_eq!(upload.commit(false, true), Err(Errno::STALE));
    });
}

#[test]
fn a_new_file_keeps_the_permissions_of_the_old_one() {
    with_roots(|root, served| {
        let file = served.join("d/file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("a mode");
        put(root, b"/d/file", b"new").expect("a file");
        assert_eq!(fs::metadata(&file).expect("a file").mode() & 0o7777, 0o640);
        root.set_mode(b"/d/file", 0o6755).expect("a mode");
        assert_eq!(fs::metadata(&file).expect("a file").mode() & 0o7777, 0o755);
        root.set_modified(b"/d/file", 1_000_000_007)
            .expect("a time");
        assert_eq!(fs::metadata(&file).expect("a file").mtime(), 1_000_000_007);
    });
}

#[test]
fn a_read_only_root_rejects_every_change() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("f"), b"x").expect("a file");
    let root = ConfinedRoot::open(directory.path(), false).expect("a root");
    for rejected in [
        put(&root, b"/f", b"y"),
        root.upload(b"/f", UploadStart::InPlace).map(drop),
        root.make_directory(b"/d"),
        root.remove_file(b"/f"),
        root.remove_directory(b"/f"),
        root.rename(b"/f", b"/g", true),
        root.set_mode(b"/f", 0),
        root.set_modified(b"/f", 0),
        root.truncate(b"/f", 0),
    ] {
        assert_eq!(rejected, Err(Errno::ROFS));
    }
    assert_eq!(root.stat(b"/f").map(|metadata| metadata.bytes), Ok(1));
}

#[test]
fn a_tree_is_listed_in_parts_and_links_are_not_followed() {
    with_roots(|root, served| {
        for number in 0..5 {
            fs::write(served.join(format!("d/e/{number}")), b"").expect("a file");
        }
        symlink("..", served.join("d/e/loop")).expect("a link");
        assert_eq!(
            all(root, b"/", true),
            [
                "d", "d/e", "d/e/0", "d/e/1", "d/e/2", "d/e/3", "d/e/4", "d/e/loop", "d/file"
            ]
        );
        assert_eq!(all(root, b"/d", false), ["e", "file"]);
        assert_eq!(root.list(b"/d/file", false).map(drop), Err(Errno::NOTDIR));
    });
}

#[test]
fn checksums_match_those_of_other_programs() {
    with_roots(|root, _| {
        put(root, b"/w", b"Wikipedia").expect("a file");
        let adler = root.checksum(b"/w", Algorithm::Adler32, 0, None, || true);
        assert_eq!(adler, Ok(vec![0x11, 0xe6, 0x03, 0x98]));
        let whole = root.checksum(b"/w", Algorithm::Adler32, 0, Some(9), || true);
        assert_eq!(whole, adler);
        let past = root.checksum(b"/w", Algorithm::Adler32, 0, Some(10), || true);
        assert_eq!(past, Err(Errno::INVAL));
        let none = root.checksum(b"/w", Algorithm::Adler32, 9, None, || true);
        assert_eq!(none, Ok(vec![0, 0, 0, 1]));
    });
}

#[test]
fn a_pipe_is_rejected_without_waiting() {
    with_roots(|root, served| {
        let pipe = served.join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        assert_eq!(root.read(b"/pipe").map(drop), Err(Errno::ACCESS));
        root.upload(b"/pipe", UploadStart::InPlace)
            .map(drop)
            .expect_err("the path is not a file");
    });
}

proptest! {
    #[test]
    fn no_path_reaches_the_secret(path in "(/|\\.\\.|\\.|d|e|secret|served|\\x00){0,12}") {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(directory.path().join("served/d/e")).expect("directories");
        fs::write(directory.path().join("secret"), b"secret").expect("a file");
        let root = ConfinedRoot::open(&directory.path().join("served"), true).expect("a root");
        if let Ok(metadata) = root.stat(path.as_bytes()) {
            prop_assert!(metadata.is_directory());
        }
        prop_assert!(put(&root, path.as_bytes(), b"x").is_err() || path.split('/').all(|name| name != ".."));
        prop_assert_eq!(fs::read(directory.path().join("secret")).expect("a file"), b"secret");
    }
}

/// Create a tree `top` with the directories `a` and `b/c`, which are served, and `other`, which is not.
fn with_only(check: impl Fn(&ConfinedRoot, &Path)) {
    for confines in [true, false] {
        let directory = tempfile::tempdir().expect("a directory");
        let top = directory.path().join("top");
        for name in ["a/sub", "b/c", "b/other", "other"] {
            fs::create_dir_all(top.join(name)).expect("a directory");
        }
        for name in ["a/file", "b/c/file", "b/secret", "other/secret"] {
            fs::write(top.join(name), b"content").expect("a file");
        }
        let only = ["/a", "b/c/", "/a/sub"].map(PathBuf::from);
        let mut root = ConfinedRoot::open_only(&top, &only, true).expect("a root");
        root.confines &= confines;
        check(&root, &top);
        for name in ["b/secret", "other/secret"] {
            assert_eq!(fs::read(top.join(name)).expect("still there"), b"content");
        }
    }
}

#[test]
fn only_the_chosen_directories_of_a_tree_can_be_used() {
    with_only(|root, top| {
        for path in ["/a/file", "b/c/file"] {
            assert!(root.read(path.as_bytes()).is_ok(), "{path}");
            assert!(root.stat(path.as_bytes()).is_ok(), "{path}");
        }
        put(root, b"/a/new", b"1").expect("an upload");
        put(root, b"/b/c/new", b"2").expect("an upload");
        assert_eq!(fs::read(top.join("b/c/new")).expect("a file"), b"2");
        root.make_directory(b"/a/sub/deep").expect("a directory");
        root.rename(b"/a/new", b"/b/c/moved", false)
            .expect("a rename");
        assert_eq!(all(root, b"/b/c", false), ["file", "moved", "new"]);
        for path in [
            "/b/secret",
            "/other",
            "/other/secret",
            "/other/new",
            "/ab/file",
            "/b/c2",
        ] {
            let path = path.as_bytes();
            assert_eq!(root.read(path).err(), Some(Errno::ACCESS));
            assert_eq!(root.stat(path).err(), Some(Errno::ACCESS));
            assert_eq!(root.list(path, false).err(), Some(Errno::ACCESS));
            assert_eq!(put(root, path, b"x").err(), Some(Errno::ACCESS));
            assert_eq!(root.make_directory(path).err(), Some(Errno::ACCESS));
            assert_eq!(root.remove_file(path).err(), Some(Errno::ACCESS));
            assert_eq!(root.truncate(path, 0).err(), Some(Errno::ACCESS));
            assert_eq!(root.set_mode(path, 0o777).err(), Some(Errno::ACCESS));
            assert_eq!(
                root.rename(b"/a/file", path, true).err(),
                Some(Errno::ACCESS)
            );
            assert_eq!(
                root.upload(path, UploadStart::InPlace).err(),
                Some(Errno::ACCESS)
            );
        }
    });
}

#[test]
fn directories_above_a_chosen_one_can_be_inspected_but_not_listed_or_changed() {
    with_only(|root, top| {
        for path in ["/", "/b"] {
            let path = path.as_bytes();
            assert!(root.stat(path).expect("metadata").is_directory());
            assert_eq!(root.read(path).err(), Some(Errno::ACCESS));
            assert_eq!(root.list(path, true).err(), Some(Errno::ACCESS));
            assert_eq!(root.make_directory(path).err(), Some(Errno::EXIST));
            assert_eq!(root.remove_directory(path).err(), Some(Errno::ACCESS));
        }
        // A chosen directory itself stays where it is.
        for path in ["/a", "/b/c"] {
            let path = path.as_bytes();
            assert_eq!(root.make_directory(path).err(), Some(Errno::EXIST));
            assert_eq!(root.remove_directory(path).err(), Some(Errno::ACCESS));
            assert_eq!(root.rename(path, b"/a/x", true).err(), Some(Errno::ACCESS));
            assert_eq!(root.set_mode(path, 0o777).err(), Some(Errno::ACCESS));
            assert!(root.list(path, true).is_ok());
        }
        assert!(top.join("b/c").is_dir());
    });
}

#[test]
fn links_do_not_lead_from_one_chosen_directory_to_the_rest_of_the_tree() {
    with_only(|root, top| {
        symlink("../other/secret", top.join("a/up")).expect("a link");
        symlink(top.join("other"), top.join("a/absolute")).expect("a link");
        symlink("../b/c/file", top.join("a/aside")).expect("a link");
        for path in [
            "/a/up",
            "/a/absolute/secret",
            "/a/aside",
            "/a/../other/secret",
        ] {
            let errno = root.read(path.as_bytes()).err();
            // NOTDIR: without openat2 a link in the middle is no directory.
            assert!(
                matches!(errno, Some(Errno::ACCESS | Errno::NOTDIR)),
                "{path} {errno:?}"
            );
        }
    });
}

#[test]
fn a_chosen_directory_must_exist_below_the_served_one() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("file"), b"").expect("a file");
    for path in ["missing", "file", "../x", "/"] {
        let only = [PathBuf::from(path)];
        let opened = ConfinedRoot::open_only(directory.path(), &only, true);
        assert_eq!(opened.is_ok(), path == "/", "{path}");
    }
}
