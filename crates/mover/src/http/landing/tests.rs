use super::*;
use std::path::Path;

fn folder(path: &Path) -> Folder {
    Folder::open(path).expect("a directory")
}

fn open(folder: &Folder, size: u64, identity: &str) -> Result<Landing, Failure> {
    let token = Token::new(Path::new("http://h/x"), Path::new("/x"));
    Landing::open(folder, c"x", token, Some(size), Some(identity), true)
}

const SIZE: u64 = WORTH_A_RECORD + 5;

#[test]
fn what_is_there_is_known_to_the_next_copy_of_the_same_version_and_to_no_other() {
    let scratch = tempfile::tempdir().expect("a folder");
    let folder = folder(scratch.path());
    let first = open(&folder, SIZE, "version 1").expect("made");
    assert_eq!(first.missing(0..SIZE), [0..SIZE]);
    // A unit and a half at the begin, and the end.
    let bytes = vec![7; (UNIT + UNIT / 2) as usize];
    first.write(&bytes, 0, 0).expect("written");
    first
        .write(&[8; 5], WORTH_A_RECORD, WORTH_A_RECORD)
        .expect("written");
    drop(first);
    let next = open(&folder, SIZE, "version 1").expect("taken over");
    assert_eq!(next.missing(0..SIZE), [UNIT..WORTH_A_RECORD]);
    assert_eq!(next.missing(0..UNIT), []);
    assert_eq!(next.there(), UNIT + 5);
    // What was half there is whole when the stretch goes on from the unit's begin.
    next.write(&bytes, UNIT, UNIT).expect("written");
    drop(next);
    assert_eq!(
        open(&folder, SIZE, "version 1")
            .expect("taken over")
            .there(),
        2 * UNIT + 5
    );
    assert_eq!(open(&folder, SIZE, "version 2").expect("anew").there(), 0);
}

#[test]
fn a_unit_that_did_not_begin_in_the_same_stretch_is_not_whole() {
    let scratch = tempfile::tempdir().expect("a folder");
    let folder = folder(scratch.path());
    let landing = open(&folder, SIZE, "v").expect("made");
    landing
        .write(&vec![1; UNIT as usize], UNIT / 2, UNIT / 2)
        .expect("written");
    drop(landing);
    assert_eq!(open(&folder, SIZE, "v").expect("taken over").there(), 0);
}

#[test]
fn two_copies_of_the_same_at_once_are_refused() {
    let scratch = tempfile::tempdir().expect("a folder");
    let folder = folder(scratch.path());
    let _first = open(&folder, SIZE, "v").expect("made");
    let told = open(&folder, SIZE, "v")
        .expect_err("it is locked")
        .to_string();
    assert!(told.contains("another copy of the same"), "{told}");
}
