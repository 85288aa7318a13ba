use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::listing::Listed;
use super::upload::Begin;
use super::*;

/// A directory `served` with a file in it, beside a `secret` that no path may reach; with the kernel's confinement and without.
fn with_roots(check: impl Fn(&Root, &Path)) {
    for confines in [true, false] {
        let folder = tempfile::tempdir().expect("a directory");
        let served = folder.path().join("served");
        fs::create_dir_all(served.join("d/e")).expect("directories");
        fs::write(served.join("d/file"), b"content").expect("a file");
        fs::write(folder.path().join("secret"), b"secret").expect("a file");
        let mut root = Root::open(&served, true).expect("a root");
        root.confines &= confines;
        check(&root, &served);
        assert_eq!(
            fs::read(folder.path().join("secret")).expect("still there"),
            b"secret"
        );
        let beside = fs::read_dir(folder.path()).expect("a directory").count();
        assert_eq!(beside, 2, "nothing was made beside the root");
    }
}

fn all(root: &Root, path: &[u8], recursive: bool) -> Vec<String> {
    let mut listing = root.list(path, recursive).expect("a directory");
    let mut found: Vec<Listed> = Vec::new();
    while listing.next(root, 2, &mut found).expect("it can be read") {}
    let mut names: Vec<_> = found
        .into_iter()
        .map(|listed| String::from_utf8(listed.name).expect("text"))
        .collect();
    names.sort_unstable();
    names
}

fn put(root: &Root, path: &[u8], content: &[u8]) -> Result<(), Errno> {
    let upload = root.upload(path, Begin::New)?;
    upload.write(content, 0)?;
    upload.commit(false, true).map(drop)
}

#[test]
fn paths_that_leave_the_root_are_refused_for_every_access() {
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
            let refused = |result: Result<(), Errno>| {
                let errno = result.expect_err(&String::from_utf8_lossy(path));
                // NOTDIR: without openat2 a link in the middle is no directory.
                let known = matches!(errno, Errno::ACCESS | Errno::NOENT | Errno::NOTDIR);
                assert!(known, "{errno}");
            };
            refused(root.read(path).map(drop));
            refused(
                root.read_at_once(path)
                    .and_then(|found| found.map(drop).ok_or(Errno::NOENT)),
            );
            refused(root.stat(path).map(drop));
            refused(root.upload(path, Begin::InPlace).map(drop));
            refused(root.upload(path, Begin::Kept { bytes: 0 }).map(drop));
            refused(root.set_mode(path, 0o777));
            refused(root.set_modified(path, 0));
            refused(root.truncate(path, 0));
            refused(
                root.checksum(path, Algorithm::Adler32, 0, None, || true)
                    .map(drop),
            );
            refused(root.list(path, false).map(drop));
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
        let found = root.stat(b"/directory/same").map(|facts| facts.bytes);
        if root.confines {
            assert_eq!(found, Ok(7));
            assert!(root.read_at_once(b"/d/same").expect("readable").is_some());
        } else {
            found.expect_err("no link is followed");
        }
    });
}

/// A directory on the way is turned into a link that leads out, and back, all the time: until it was met often enough as
/// either, however the two threads are scheduled.
#[test]
fn who_swaps_a_directory_for_a_link_meanwhile_gets_nothing_from_outside() {
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
            // Judged when the other thread has ended: a panic here would wait for it for ever.
            let (mut inside, mut outside, mut refused) = (0, 0, 0);
            let end = Instant::now() + Duration::from_secs(60);
            while (inside + refused < 2000 || inside < 100 || refused < 100)
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
                    Err(_) => refused += 1,
                }
                if let Ok(upload) = root.upload(b"/d/new", Begin::New) {
                    let _ = upload.commit(false, true);
                }
            }
            over.store(true, Ordering::Relaxed);
            assert_eq!(outside, 0, "nothing but what is inside was read");
            assert!(
                inside >= 100 && refused >= 100,
                "{inside} read, {refused} not"
            );
        });
        let _ = fs::remove_file(served.join("new"));
    });
}

#[test]
fn a_file_has_its_name_when_it_is_whole_and_what_is_dropped_leaves_nothing() {
    with_roots(|root, served| {
        let upload = root.upload(b"/d/file", Begin::New).expect("a file");
        upload.write(b"half", 0).expect("to write");
        assert_eq!(fs::read(served.join("d/file")).expect("a file"), b"content");
        assert_eq!(all(root, b"/d", false), ["e", "file"], "it is not listed");
        let again = root.upload(b"/d/file", Begin::New).map(drop);
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
fn what_was_kept_goes_on_and_a_hole_is_refused() {
    with_roots(|root, served| {
        let upload = root.upload(b"/new", Begin::New).expect("a file");
        upload.write(b"01234", 0).expect("to write");
        upload.keep();
        drop(upload);
        let hole = root.upload(b"/new", Begin::Kept { bytes: 6 }).map(drop);
        assert_eq!(hole, Err(Errno::NOENT));
        let upload = root
            .upload(b"/new", Begin::Kept { bytes: 5 })
            .expect("five");
        upload.write(b"56789", 5).expect("to write");
        upload.commit(true, true).expect("a disk");
        assert_eq!(fs::read(served.join("new")).expect("a file"), b"0123456789");
        let none = root.upload(b"/other", Begin::Kept { bytes: 1 }).map(drop);
        assert_eq!(none, Err(Errno::NOENT));
        // Where nothing was kept, the file itself goes on.
        let upload = root
            .upload(b"/new", Begin::Kept { bytes: 10 })
            .expect("ten");
        upload.write(b"x", 10).expect("to write");
        upload.commit(false, true).expect("nothing to rename");
        assert_eq!(fs::metadata(served.join("new")).expect("a file").len(), 11);
    });
}

#[test]
fn from_the_size_of_a_file_it_goes_on_itself_and_from_marks_what_was_kept() {
    with_roots(|root, served| {
        put(root, b"/f", b"old!").expect("a file");
        let left = || {
            let upload = root.upload(b"/f", Begin::New).expect("a file");
            upload.write(b"012345", 0).expect("to write");
            upload.keep();
        };
        left();
        let upload = root.upload(b"/f", Begin::Behind { bytes: 4 });
        let upload = upload.expect("the file itself");
        let busy = root.upload(b"/f", Begin::AtEnd).map(drop);
        assert_eq!(busy, Err(Errno::BUSY), "it is somebody's");
        upload.write(b"+", 4).expect("to write");
        upload.commit(false, true).expect("nothing to rename");
        assert_eq!(fs::read(served.join("f")).expect("a file"), b"old!+");
        let upload = root.upload(b"/f", Begin::Kept { bytes: 5 });
        let upload = upload.expect("what was kept");
        assert_eq!(upload.facts().expect("its facts").bytes, 5, "it is cut");
        upload.commit(false, true).expect("to be named");
        assert_eq!(fs::read(served.join("f")).expect("a file"), b"01234");
        let upload = root.upload(b"/f", Begin::AtEnd).expect("the file itself");
        root.remove_file(b"/f").expect("nobody's name");
        assert_eq!(upload.commit(false, true), Err(Errno::STALE));
    });
}

#[test]
fn the_new_file_may_be_read_by_whom_the_old_one_might() {
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
fn a_root_that_is_read_only_refuses_every_change() {
    let folder = tempfile::tempdir().expect("a directory");
    fs::write(folder.path().join("f"), b"x").expect("a file");
    let root = Root::open(folder.path(), false).expect("a root");
    for refused in [
        put(&root, b"/f", b"y"),
        root.upload(b"/f", Begin::InPlace).map(drop),
        root.make_directory(b"/d"),
        root.remove_file(b"/f"),
        root.remove_directory(b"/f"),
        root.rename(b"/f", b"/g", true),
        root.set_mode(b"/f", 0),
        root.set_modified(b"/f", 0),
        root.truncate(b"/f", 0),
    ] {
        assert_eq!(refused, Err(Errno::ROFS));
    }
    assert_eq!(root.stat(b"/f").map(|facts| facts.bytes), Ok(1));
}

#[test]
fn a_tree_is_listed_some_at_a_time_and_links_are_not_gone_through() {
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
fn checksums_are_those_of_other_programs() {
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
fn a_pipe_is_not_waited_for() {
    with_roots(|root, served| {
        let pipe = served.join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        assert_eq!(root.read(b"/pipe").map(drop), Err(Errno::ACCESS));
        root.upload(b"/pipe", Begin::InPlace)
            .map(drop)
            .expect_err("no file");
    });
}

proptest! {
    #[test]
    fn no_path_reaches_the_secret(path in "(/|\\.\\.|\\.|d|e|secret|served|\\x00){0,12}") {
        let folder = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(folder.path().join("served/d/e")).expect("directories");
        fs::write(folder.path().join("secret"), b"secret").expect("a file");
        let root = Root::open(&folder.path().join("served"), true).expect("a root");
        if let Ok(facts) = root.stat(path.as_bytes()) {
            prop_assert!(facts.is_directory());
        }
        prop_assert!(put(&root, path.as_bytes(), b"x").is_err() || path.split('/').all(|name| name != ".."));
        prop_assert_eq!(fs::read(folder.path().join("secret")).expect("a file"), b"secret");
    }
}
