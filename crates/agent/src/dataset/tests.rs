use std::process::Command;
use std::sync::Arc;

use super::*;

fn requested(directory: &Path) -> RequestedFiles {
    RequestedFiles {
        directory: directory.join("set"),
        seed: 7,
        sizes: Sizes::equal(1_200_000),
        first: 3,
        files: 4,
        names: Vec::new(),
    }
}

fn ensure(requested: &RequestedFiles) -> Result<PrepareStats, DatasetError> {
    requested.ensure(2, &ActivityMonitor::new(Arc::default()), &|_| ())
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

#[test]
fn a_dataset_is_created_once_and_then_reused() {
    let directory = directory();
    let requested = requested(directory.path());
    assert_eq!(
        ensure(&requested).expect("made"),
        PrepareStats {
            files: 4,
            reused: 0
        }
    );
    let times = || {
        requested
            .paths()
            .iter()
            .map(|path| path.metadata().expect("there").modified().expect("a time"))
            .collect::<Vec<_>>()
    };
    let before = times();
    assert_eq!(
        ensure(&requested).expect("there"),
        PrepareStats {
            files: 0,
            reused: 4
        }
    );
    assert_eq!(times(), before);
}

#[test]
fn two_agents_that_share_a_directory_create_each_file_once() {
    let directory = directory();
    let part = |first| RequestedFiles {
        sizes: Sizes::equal(1000),
        first,
        files: 30,
        ..requested(directory.path())
    };
    let both = std::thread::scope(|scope| {
        [0, 15]
            .map(|first| {
                scope.spawn({
                    let part = part(first);
                    move || ensure(&part).expect("made")
                })
            })
            .map(|it| it.join().expect("no panic").files)
    });
    assert_eq!(both.iter().sum::<u64>(), 45, "{both:?}");
    let all = RequestedFiles {
        files: 45,
        ..part(0)
    };
    let again = ensure(&all).expect("there");
    assert_eq!((again.files, again.reused), (0, 45));
}

#[test]
fn only_missing_files_and_files_of_wrong_size_are_recreated_with_the_same_bytes() {
    let directory = directory();
    let requested = requested(directory.path());
    ensure(&requested).expect("made");
    let content = || {
        requested
            .paths()
            .iter()
            .map(|path| std::fs::read(path).expect("readable"))
            .collect::<Vec<_>>()
    };
    let before = content();
    std::fs::remove_file(&requested.paths()[0]).expect("removed");
    File::options()
        .write(true)
        .open(&requested.paths()[2])
        .and_then(|file| file.set_len(10))
        .expect("cut");
    assert_eq!(
        ensure(&requested).expect("mended"),
        PrepareStats {
            files: 2,
            reused: 2
        }
    );
    assert_eq!(content(), before);
}

#[test]
fn a_wider_range_reuses_the_files_of_a_narrower_one() {
    let directory = directory();
    let narrow = requested(directory.path());
    ensure(&narrow).expect("made");
    let wide = RequestedFiles {
        first: 0,
        files: 10,
        ..narrow
    };
    assert_eq!(
        ensure(&wide).expect("made"),
        PrepareStats {
            files: 6,
            reused: 4
        }
    );
}

#[test]
fn another_seed_creates_the_files_again() {
    let directory = directory();
    let first = requested(directory.path());
    ensure(&first).expect("made");
    let other = RequestedFiles { seed: 8, ..first };
    assert_eq!(
        ensure(&other).expect("made anew"),
        PrepareStats {
            files: 4,
            reused: 0
        }
    );
}

#[test]
fn the_manifest_agrees_with_sha256sum() {
    let directory = directory();
    let requested = requested(directory.path());
    ensure(&requested).expect("made");
    let bytes = std::fs::read(requested.directory.join(MANIFEST)).expect("a manifest");
    let manifest: Manifest = serde_json::from_slice(&bytes).expect("of this format");
    for path in requested.paths() {
        let output = Command::new("sha256sum")
            .arg(&path)
            .output()
            .expect("coreutils are there");
        let text = String::from_utf8(output.stdout).expect("hexadecimal");
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .expect("six digits");
        assert_eq!(text.split(' ').next(), Some(manifest.files[name].as_str()));
    }
}

#[test]
fn files_differ_from_each_other_and_do_not_compress() {
    let directory = directory();
    let requested = requested(directory.path());
    ensure(&requested).expect("made");
    let contents: std::collections::BTreeSet<_> = requested
        .paths()
        .iter()
        .map(|path| std::fs::read(path).expect("readable"))
        .collect();
    assert_eq!(contents.len(), 4);
    let output = Command::new("gzip")
        .args(["-9", "-c"])
        .arg(&requested.paths()[0])
        .output()
        .expect("gzip is there");
    assert!(output.stdout.len() as u64 >= requested.sizes.of(0));
}

#[test]
fn empty_files_are_created_and_reused() {
    let directory = directory();
    let requested = RequestedFiles {
        sizes: Sizes::equal(0),
        ..requested(directory.path())
    };
    assert_eq!(
        ensure(&requested).expect("made"),
        PrepareStats {
            files: 4,
            reused: 0
        }
    );
    assert_eq!(
        ensure(&requested).expect("there"),
        PrepareStats {
            files: 0,
            reused: 4
        }
    );
    assert!(
        requested
            .paths()
            .iter()
            .all(|path| path.metadata().is_ok_and(|found| found.len() == 0))
    );
}

#[test]
fn a_set_that_cannot_fit_is_rejected_before_the_first_byte() {
    let directory = directory();
    let requested = RequestedFiles {
        sizes: Sizes::equal(1 << 60),
        ..requested(directory.path())
    };
    let message = ensure(&requested)
        .expect_err("no disk is that large")
        .to_string();
    assert!(
        message.contains("expected 4611686018427387904 free bytes"),
        "{message}"
    );
    assert!(!requested.directory.join(".000003.partial").exists());
}

#[test]
fn a_stopped_creation_leaves_no_file_that_looks_complete() {
    let directory = directory();
    let requested = requested(directory.path());
    let stopped = requested.ensure(
        2,
        &ActivityMonitor::new(Arc::new(AtomicBool::new(true))),
        &|_| (),
    );
    assert!(matches!(stopped, Err(DatasetError::Stopped)));
    assert!(requested.paths().iter().all(|path| !path.exists()));
    assert_eq!(
        ensure(&requested).expect("made"),
        PrepareStats {
            files: 4,
            reused: 0
        }
    );
}

#[test]
fn existing_files_are_measured_and_never_written() {
    let directory = directory();
    let files = directory.path().join("set");
    std::fs::create_dir_all(files.join("run1")).expect("created");
    std::fs::write(files.join("run1/a.root"), [1; 700]).expect("written");
    std::fs::write(files.join("b.root"), "").expect("written");
    let named = |names: &[&str]| RequestedFiles {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        ..requested(directory.path())
    };
    let sizes = named(&["run1/a.root", "b.root"]).existing_sizes();
    let expected = [
        ("run1/a.root".into(), Bytes::new(700)),
        ("b.root".into(), Bytes::new(0)),
    ];
    assert_eq!(sizes.expect("they exist"), BTreeMap::from(expected));
    assert_eq!(ensure(&named(&["b.root"])).expect("nothing to do").files, 0);
    for name in ["missing", "run1"] {
        let error = named(&[name]).existing_sizes().expect_err("no file");
        assert!(error.to_string().contains(name), "{error}");
        ensure(&named(&[name])).expect("nothing is written");
    }
    let small = RequestedFiles {
        sizes: Sizes::equal(699),
        ..named(&["run1/a.root"])
    };
    let error = small.existing_sizes().expect_err("too large").to_string();
    assert!(error.contains("at most 699 bytes"), "{error}");
    let mut found: Vec<_> = std::fs::read_dir(&files)
        .expect("it exists")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    found.sort();
    assert_eq!(found, ["b.root", "run1"]);
}
