use std::path::Path;

use super::*;

fn limits(bytes: u64) -> LimitArgs {
    LimitArgs {
        time_s: 5.0,
        bytes,
        block: 1 << 20,
    }
}

fn make(file: &Path, bytes: u64, resize: bool) -> Result<make::MadeFile, crate::MeasureError> {
    let arguments = MakeArgs {
        files: vec![file.to_owned()],
        bytes,
        resize,
        time_s: None,
    };
    make::make(file, &arguments)
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(directory)
        .expect("a directory")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

#[test]
fn a_write_leaves_no_file_and_includes_its_sync() {
    let directory = tempfile::tempdir().expect("a directory");
    for direct in [false, true] {
        let arguments = WriteArgs {
            directory: directory.path().to_owned(),
            limits: limits(32 << 20),
            direct,
        };
        let result = match write::write(&arguments) {
            // The file system has no O_DIRECT.
            Err(crate::MeasureError::Io { ref source, .. })
                if direct && source.raw_os_error() == Some(libc::EINVAL) =>
            {
                continue;
            }
            result => result.expect("a result"),
        };
        assert_eq!((result.bytes, result.direct), (32 << 20, direct));
        assert!(result.sync_s > 0.0 && result.sync_s < result.duration_s);
        assert!(names(directory.path()).is_empty());
    }
}

#[test]
fn a_created_file_has_the_requested_size_and_does_not_compress() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("data");
    let bytes = 5_000_001;
    let made = make(&file, bytes, false).expect("a file");
    assert_eq!(made.bytes, bytes);
    let content = std::fs::read(&file).expect("content");
    assert_eq!(content.len() as u64, bytes);
    let pages: std::collections::BTreeSet<_> = content.chunks(4096).collect();
    assert_eq!(
        pages.len(),
        content.len().div_ceil(4096),
        "no two pages are equal"
    );
    let mut counts = [0_f64; 256];
    content
        .iter()
        .for_each(|byte| counts[usize::from(*byte)] += 1.0);
    let entropy: f64 = counts
        .iter()
        .map(|count| count / content.len() as f64)
        .map(|fraction| -fraction * fraction.log2())
        .sum();
    assert!(entropy > 7.9, "{entropy} bits per byte");
}

#[test]
fn an_existing_file_is_kept_and_only_resized_on_request() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("data");
    std::fs::write(&file, "mine").expect("a file");
    let error = make(&file, 10, false).expect_err("it exists");
    assert!(error.to_string().contains("exists"), "{error}");
    assert_eq!(std::fs::read(&file).expect("content"), b"mine");
    for bytes in [10_000_000, 3_000_000] {
        assert_eq!(make(&file, bytes, true).expect("resized").bytes, bytes);
        assert_eq!(std::fs::metadata(&file).expect("metadata").len(), bytes);
    }
}

#[test]
fn a_direct_read_repeats_the_file_and_a_buffered_read_does_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("data");
    make(&file, 8 << 20, false).expect("a file");
    let arguments = |buffered| ReadArgs {
        file: file.clone(),
        limits: limits(64 << 20),
        threads: 4,
        buffered,
    };
    let buffered = read::read(&arguments(true)).expect("a result");
    assert_eq!((buffered.bytes, buffered.direct), (8 << 20, false));
    let direct = read::read(&arguments(false)).expect("a result");
    if direct.direct {
        assert_eq!(direct.bytes, 64 << 20);
    }
}

#[test]
fn a_read_from_memory_is_labelled_as_cached() {
    let shm = Path::new("/dev/shm");
    let directory = tempfile::tempdir_in(shm).expect("a directory in memory");
    let file = directory.path().join("data");
    std::fs::write(&file, vec![1; 4 << 20]).expect("a file");
    let arguments = ReadArgs {
        file,
        limits: limits(4 << 20),
        threads: 1,
        buffered: false,
    };
    assert_eq!(read::read(&arguments).expect("a result").cached, Some(true));
}

#[test]
fn pages_in_the_page_cache_are_detected() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("data");
    make(&path, 4 << 20, false).expect("a file");
    let file = std::fs::File::open(&path).expect("the file");
    assert!(cache::resident_ratio(&file) < Some(0.01), "evicted");
    std::fs::read(&path).expect("content");
    assert!(
        cache::resident_ratio(&file) > Some(0.99),
        "read through the cache"
    );
}

#[test]
fn errors_name_the_path_and_the_next_step() {
    let absent = PathBuf::from("/nonexistent/directory");
    let arguments = WriteArgs {
        directory: absent,
        limits: limits(1),
        direct: false,
    };
    let text = write::write(&arguments)
        .expect_err("no directory")
        .to_string();
    assert!(
        text.contains("/nonexistent/directory") && text.contains("Check the path"),
        "{text}"
    );
}
