use venturi_plan::Sizes;

use super::*;

fn text(path: &Path) -> String {
    path.to_str().expect("a path in UTF-8").to_owned()
}

fn clear(path: &Path, in_scratch: bool) -> ClearOperation {
    ClearOperation {
        path: text(path),
        files: None,
        source: Some("/dev/zero".into()),
        in_scratch,
        keep: false,
        started: false,
    }
}

#[test]
fn stored_bytes_of_a_directory_are_the_sum_of_its_files_without_links() {
    let directory = tempfile::tempdir().expect("a folder");
    fs::create_dir(directory.path().join("inner")).expect("made");
    fs::write(directory.path().join("inner/a"), [0; 10]).expect("written");
    fs::write(directory.path().join("b"), [0; 5]).expect("written");
    std::os::unix::fs::symlink("/etc/passwd", directory.path().join("link")).expect("linked");
    assert_eq!(stored_bytes(directory.path()).expect("readable"), 15);
    assert_eq!(
        stored_bytes(&directory.path().join("absent")).expect("nothing"),
        0
    );
}

#[test]
fn an_existing_directory_outside_the_scratch_directory_is_never_removed() {
    let directory = tempfile::tempdir().expect("a folder");
    let cleared =
        |path: &Path, in_scratch| clear_destination(&clear(path, in_scratch)).expect("cleared");
    assert_eq!(cleared(directory.path(), false), Removal::Rejected);
    assert_eq!(cleared(directory.path(), true), Removal::Remove);
    assert_eq!(
        cleared(&directory.path().join("new"), false),
        Removal::Remove
    );
}

#[test]
fn a_file_of_a_killed_run_is_removed_before_the_transfer_unless_kept() {
    let directory = tempfile::tempdir().expect("a folder");
    let path = directory.path().join("a/b/left");
    let cleared = |keep| {
        let operation = ClearOperation {
            keep,
            ..clear(&path, false)
        };
        clear_destination(&operation).expect("cleared")
    };
    assert_eq!(cleared(true), Removal::Keep);
    fs::write(&path, "old").expect("its parents exist");
    assert_eq!(cleared(true), Removal::Keep);
    assert!(path.exists());
    assert_eq!(cleared(false), Removal::Remove);
    assert!(!path.exists());
}

#[test]
fn a_source_is_never_taken_for_a_destination_to_remove() {
    let directory = tempfile::tempdir().expect("a folder");
    let path = directory.path().join("data");
    fs::write(&path, "precious").expect("written");
    let both = ClearOperation {
        source: Some(text(&path)),
        ..clear(&path, true)
    };
    assert_eq!(
        clear_destination(&both).expect("cleared"),
        Removal::Rejected
    );
    assert!(path.exists());
}

fn many(
    path: &Path,
    files: u64,
    each_bytes: Option<u64>,
    requested_bytes: u64,
) -> CheckedDestination {
    CheckedDestination {
        path: text(path),
        files: Some(FileSet {
            first: 7,
            files,
            sizes: each_bytes.map(Sizes::equal),
        }),
        requested_bytes: Bytes::new(requested_bytes),
        late: true,
        checksum: None,
    }
}

#[test]
fn each_of_many_files_must_have_its_size_regardless_of_the_sum() {
    let directory = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: usize| {
        fs::write(directory.path().join(name), vec![0; bytes]).expect("written");
    };
    let check = || check_once(&many(directory.path(), 2, Some(10), 20)).expect("readable");
    write("000007", 10);
    let lacking = check().lacking.expect("one is not there");
    assert!(
        lacking.contains("1 complete files and 10 bytes")
            && lacking.contains("`000008`, is not there"),
        "{lacking}"
    );
    write("000008", 10);
    write("other", 99);
    let whole = ReceivedBytes {
        bytes: Bytes::new(20),
        lacking: None,
        ..ReceivedBytes::default()
    };
    assert_eq!(check(), whole);
    write("000007", 11);
    write("000008", 9);
    let received = check();
    assert_eq!((received.bytes.get(), received.more), (20, true));
    assert!(
        received
            .lacking
            .expect("one is short")
            .contains("`000008`, has 9 bytes")
    );
    let uneven = check_once(&many(directory.path(), 2, None, 21)).expect("readable");
    assert!(
        uneven
            .lacking
            .expect("by the sum")
            .contains("expected 21 bytes")
    );
}

#[test]
fn late_files_are_waited_for_and_missing_files_only_until_the_deadline() {
    let directory = tempfile::tempdir().expect("a folder");
    let destination = many(directory.path(), 1, Some(3), 3);
    let end = Instant::now() + Duration::from_millis(20);
    let received = check(&destination, end).expect("readable");
    assert!(received.lacking.is_some() && received.late.is_none());
    assert!(Instant::now() >= end);
    let mut checks = 0;
    let recheck = || {
        checks += 1;
        if checks == 4 {
            fs::write(directory.path().join("000007"), "abc")?;
        }
        check_once(&destination)
    };
    let end = Instant::now() + Duration::from_secs(30);
    let received = until_whole(recheck, end).expect("readable");
    assert_eq!((received.bytes.get(), received.lacking), (3, None));
    let late = received.late.expect("it was not there at first");
    assert_eq!(late.first_bytes.get(), 0);
    assert_eq!(checks, 4);
}

#[test]
fn a_directory_for_many_files_is_created_and_only_these_files_are_cleared() {
    let directory = tempfile::tempdir().expect("a folder");
    let files = FileSet {
        first: 0,
        files: 2,
        sizes: None,
    };
    let path = directory.path().join("a/b");
    let cleared = |in_scratch, keep, started| {
        let operation = ClearOperation {
            files: Some(files.clone()),
            keep,
            started,
            ..clear(&path, in_scratch)
        };
        clear_destination(&operation).expect("cleared")
    };
    assert_eq!(cleared(false, false, false), Removal::Remove);
    fs::write(path.join("000001"), "old").expect("written");
    fs::write(path.join("other"), "precious").expect("written");
    assert_eq!(cleared(false, true, false), Removal::Keep);
    assert_eq!(cleared(false, false, true), Removal::Remove);
    assert!(
        path.join("000001").exists(),
        "of another transfer of the trial"
    );
    assert_eq!(cleared(false, false, false), Removal::Files);
    assert!(!path.join("000001").exists() && path.join("other").exists());
    assert_eq!(cleared(true, false, false), Removal::Remove);
    let onto_itself = ClearOperation {
        files: Some(files),
        source: Some(text(&path)),
        ..clear(&path, true)
    };
    let error = clear_destination(&onto_itself).expect_err("the source would be removed");
    assert!(error.contains("other than the source directory"), "{error}");
}

#[test]
fn a_removal_follows_its_rule_and_reports_remaining_files() {
    let directory = tempfile::tempdir().expect("a folder");
    let path = directory.path().join("out");
    let remove = |removal, files| {
        remove_destination(&RemovedDestination {
            path: text(&path),
            files,
            removal,
            failed: true,
        })
    };
    let files = FileSet {
        first: 0,
        files: 1,
        sizes: None,
    };
    fs::create_dir(&path).expect("created");
    fs::write(path.join("000000"), "ours").expect("written");
    fs::write(path.join("other"), "precious").expect("written");
    assert_eq!(remove(Removal::Keep, None), Ok(()));
    assert!(remove(Removal::Rejected, None).is_err());
    assert!(path.join("000000").exists());
    assert_eq!(remove(Removal::Files, Some(files)), Ok(()));
    assert!(!path.join("000000").exists() && path.join("other").exists());
    assert_eq!(remove(Removal::Remove, None), Ok(()));
    assert!(!path.exists());
    assert_eq!(remove(Removal::Remove, None), Ok(()), "it is gone already");
}
