use super::*;

fn location(path: PathBuf, in_scratch: bool) -> Location {
    Location { path, in_scratch }
}

#[test]
fn a_directory_holds_the_sum_of_its_files_and_no_link() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("inner")).expect("made");
    fs::write(folder.path().join("inner/a"), [0; 10]).expect("written");
    fs::write(folder.path().join("b"), [0; 5]).expect("written");
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).expect("linked");
    assert_eq!(held_bytes(folder.path()).expect("readable"), 15);
    assert_eq!(
        held_bytes(&folder.path().join("absent")).expect("nothing"),
        0
    );
}

#[test]
fn a_foreign_directory_that_was_there_is_never_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = Some(Path::new("/dev/zero"));
    let there = location(folder.path().to_owned(), false);
    assert_eq!(
        make_way(&there, source, false, false).expect("free"),
        Removal::Refused
    );
    let ours = location(folder.path().to_owned(), true);
    assert_eq!(
        make_way(&ours, source, false, false).expect("free"),
        Removal::Remove
    );
    let new = location(folder.path().join("new"), false);
    assert_eq!(
        make_way(&new, source, false, false).expect("free"),
        Removal::Remove
    );
}

#[test]
fn what_a_killed_run_left_is_gone_before_the_transfer_but_a_kept_file_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a/b/left");
    let there = location(path.clone(), false);
    assert_eq!(
        make_way(&there, None, true, false).expect("free"),
        Removal::Keep
    );
    fs::write(&path, "old").expect("its parents were made");
    assert_eq!(
        make_way(&there, None, true, false).expect("free"),
        Removal::Keep
    );
    assert!(path.exists());
    assert_eq!(
        make_way(&there, None, false, false).expect("free"),
        Removal::Remove
    );
    assert!(!path.exists());
}

#[test]
fn a_source_is_never_taken_for_a_destination_to_remove() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("data");
    fs::write(&path, "precious").expect("written");
    let both = location(path.clone(), true);
    assert_eq!(
        make_way(&both, Some(&path), false, false).expect("free"),
        Removal::Refused
    );
    assert!(path.exists());
}

fn many(path: &Path, files: u64, each_bytes: Option<u64>) -> Destination {
    Destination {
        path: path.to_owned(),
        shares: Some(Shares {
            first: 7,
            files,
            sizes: each_bytes.map(Sizes::equal),
        }),
        proves: true,
        served: true,
        removal: Removal::Remove,
    }
}

#[test]
fn each_of_many_files_must_have_its_size_whatever_the_sum() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: usize| {
        fs::write(folder.path().join(name), vec![0; bytes]).expect("written");
    };
    let look = || many(folder.path(), 2, Some(10)).look(20).expect("readable");
    write("000007", 10);
    let lacking = look().lacking.expect("one is not there");
    assert!(
        lacking.contains("1 whole files and 10 bytes")
            && lacking.contains("`000008`, is not there"),
        "{lacking}"
    );
    write("000008", 10);
    write("other", 99);
    let whole = Held {
        bytes: 20,
        lacking: None,
        more: false,
    };
    assert_eq!(look(), whole);
    write("000007", 11);
    write("000008", 9);
    let held = look();
    assert_eq!((held.bytes, held.more), (20, true));
    assert!(
        held.lacking
            .expect("one is short")
            .contains("`000008`, has 9 bytes")
    );
    let uneven = many(folder.path(), 2, None).look(21).expect("readable");
    assert!(
        uneven
            .lacking
            .expect("by the sum")
            .contains("21 bytes were asked for")
    );
}

#[test]
fn what_comes_late_is_waited_for_and_told_and_what_does_not_come_is_not_waited_for_longer() {
    let folder = tempfile::tempdir().expect("a folder");
    let destination = many(folder.path(), 1, Some(3));
    let end = Instant::now() + Duration::from_millis(20);
    let (held, late) = destination.look_until(3, end).expect("readable");
    assert!(held.lacking.is_some() && late.is_none());
    assert!(Instant::now() >= end);
    let mut looks = 0;
    let look = || {
        looks += 1;
        if looks == 4 {
            fs::write(folder.path().join("000007"), "abc")?;
        }
        destination.look(3)
    };
    let end = Instant::now() + Duration::from_secs(30);
    let (held, late) = until_whole(look, end).expect("readable");
    assert_eq!((held.bytes, held.lacking), (3, None));
    assert_eq!(late.expect("it was not there at first").first_bytes, 0);
    assert_eq!(looks, 4);
}

#[test]
fn a_directory_for_many_files_is_made_and_cleared_of_those_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let shares = Shares {
        first: 0,
        files: 2,
        sizes: None,
    };
    let path = folder.path().join("a/b");
    let new = location(path.clone(), false);
    let made =
        |location, keep, begun| make_way_for_many(location, &shares, keep, begun).expect("free");
    assert_eq!(made(&new, false, false), Removal::Remove);
    fs::write(path.join("000001"), "old").expect("written");
    fs::write(path.join("other"), "precious").expect("written");
    assert_eq!(made(&new, true, false), Removal::Keep);
    assert_eq!(made(&new, false, true), Removal::Remove);
    assert!(
        path.join("000001").exists(),
        "of another transfer of the trial"
    );
    assert_eq!(made(&new, false, false), Removal::Files);
    assert!(!path.join("000001").exists() && path.join("other").exists());
    assert_eq!(made(&location(path, true), false, false), Removal::Remove);
}
