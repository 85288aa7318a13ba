use super::*;
use std::path::Path;

fn directory(path: &Path) -> OpenDirectory {
    OpenDirectory::open(path).expect("a directory")
}

fn open(directory: &OpenDirectory, size: u64, identity: &str) -> Result<PartialDownload, Failure> {
    let token = Token::new(Path::new("http://h/x"), Path::new("/x"));
    PartialDownload::open(directory, c"x", token, Some(size), Some(identity), true)
}

const SIZE: u64 = WORTH_A_RECORD + 5;

#[test]
fn present_bytes_are_reused_only_by_copies_of_the_same_version() {
    let scratch = tempfile::tempdir().expect("a folder");
    let directory = directory(scratch.path());
    let first = open(&directory, SIZE, "version 1").expect("made");
    assert_eq!(first.missing(0..SIZE), [0..SIZE]);
    // One and a half units at the start, and the end.
    let bytes = vec![7; (UNIT + UNIT / 2) as usize];
    first.write(&bytes, 0, 0).expect("written");
    first
        .write(&[8; 5], WORTH_A_RECORD, WORTH_A_RECORD)
        .expect("written");
    drop(first);
    let next = open(&directory, SIZE, "version 1").expect("taken over");
    assert_eq!(next.missing(0..SIZE), [UNIT..WORTH_A_RECORD]);
    assert_eq!(next.missing(0..UNIT), []);
    assert_eq!(next.present_bytes(), UNIT + 5);
    // A half unit is complete when the contiguous range extends from the start of the unit.
    next.write(&bytes, UNIT, UNIT).expect("written");
    drop(next);
    assert_eq!(
        open(&directory, SIZE, "version 1")
            .expect("taken over")
            .present_bytes(),
        2 * UNIT + 5
    );
    assert_eq!(
        open(&directory, SIZE, "version 2")
            .expect("anew")
            .present_bytes(),
        0
    );
}

#[test]
fn a_unit_without_its_start_is_not_complete() {
    let scratch = tempfile::tempdir().expect("a folder");
    let directory = directory(scratch.path());
    let partial = open(&directory, SIZE, "v").expect("made");
    partial
        .write(&vec![1; UNIT as usize], UNIT / 2, UNIT / 2)
        .expect("written");
    drop(partial);
    assert_eq!(
        open(&directory, SIZE, "v")
            .expect("taken over")
            .present_bytes(),
        0
    );
}

#[test]
fn a_second_simultaneous_copy_of_the_same_file_is_rejected() {
    let scratch = tempfile::tempdir().expect("a folder");
    let directory = directory(scratch.path());
    let _first = open(&directory, SIZE, "v").expect("made");
    let reported = open(&directory, SIZE, "v")
        .expect_err("it is locked")
        .to_string();
    assert!(reported.contains("another copy of the same"), "{reported}");
}
