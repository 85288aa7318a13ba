use std::path::PathBuf;
use std::sync::atomic::Ordering;

use nix::fcntl::{Flock, FlockArg};
use venturi_plan::{
    Bytes, Cache, CheckedDestination, ClearOperation, DropCachesOperation, FileSet, LinkOperation,
    PrepareOperation, Removal, RemovedDestination, Sizes,
};

use super::*;

fn operations() -> Operations {
    Operations::new(Arc::default())
}

fn dataset(directory: &Path) -> DatasetFiles {
    DatasetFiles {
        dataset: "events".into(),
        directory: text(&directory.join("set")),
        seed: 3,
        sizes: Sizes::equal(1000),
        first: 2,
        files: 3,
        names: Vec::new(),
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path in UTF-8").to_owned()
}

fn prepare(files: DatasetFiles, stall_timeout_s: f64) -> FileOperation {
    FileOperation::Prepare(PrepareOperation {
        files,
        cache: Cache::Warm,
        stall_timeout_s: Seconds::new(stall_timeout_s),
    })
}

fn prepared(result: OperationResult) -> PrepareOutcome {
    match result {
        OperationResult::Outcome(OperationOutcome::Prepared(outcome)) => outcome,
        other => panic!("{other:?}"),
    }
}

/// Execute an operation like a shell: every operation passes through JSON.
fn execute(operations: &Operations, operation: &FileOperation) -> OperationResult {
    let line = serde_json::to_string(operation).expect("JSON");
    let operation: FileOperation = serde_json::from_str(&line).expect("an operation");
    let result = operations.execute(&operation);
    let line = serde_json::to_string(&result).expect("JSON");
    serde_json::from_str(&line).expect("a result")
}

#[test]
fn a_dataset_is_prepared_once_and_dropped_from_the_page_cache() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = dataset(directory.path());
    let operations = operations();
    let first = prepared(execute(&operations, &prepare(files.clone(), 60.0)));
    assert!(!first.failed, "{first:?}");
    let event = first.event.expect("files were created");
    assert_eq!(
        (&*event.kind, &event.detail["made"]),
        ("dataset", &3.into())
    );
    let size = |name: &str| {
        directory
            .path()
            .join("set")
            .join(name)
            .metadata()
            .map(|it| it.len())
    };
    assert_eq!(size("000002").expect("created"), 1000);
    assert_eq!(size("000004").expect("created"), 1000);
    let second = prepared(execute(&operations, &prepare(files.clone(), 60.0)));
    assert_eq!((second.event, second.failed), (None, false));
    let drop = FileOperation::DropCaches(DropCachesOperation {
        files,
        stall_timeout_s: Seconds::new(60.0),
    });
    let dropped = prepared(execute(&operations, &drop));
    let event = dropped.event.expect("it always reports");
    assert_eq!((&*event.kind, dropped.failed), ("drop_caches", false));
    assert!(dropped.cache.is_some());
}

#[test]
fn a_destination_is_cleared_checked_and_removed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("out/t0000001");
    let operations = operations();
    let clear = FileOperation::Clear(ClearOperation {
        path: text(&path),
        files: None,
        source: None,
        in_scratch: true,
        keep: false,
        started: false,
    });
    let OperationResult::Outcome(OperationOutcome::Cleared(cleared)) = execute(&operations, &clear)
    else {
        panic!("it can be cleared");
    };
    assert_eq!(cleared.removal, Removal::Remove);
    std::fs::write(&path, [0; 10]).expect("its directory exists");
    let destination = |path: PathBuf, requested_bytes| CheckedDestination {
        path: text(&path),
        files: None,
        requested_bytes: Bytes::new(requested_bytes),
        late: true,
        checksum: None,
    };
    let check = FileOperation::Check(CheckOperation {
        destinations: vec![
            destination(path.clone(), 10),
            destination(path.clone(), 11),
            destination(path.join("below-a-file"), 1),
        ],
        grace_s: Seconds::new(0.01),
    });
    let OperationResult::Outcome(OperationOutcome::Checked(checked)) = execute(&operations, &check)
    else {
        panic!("it can be checked");
    };
    let [complete, short, unreadable] = &*checked.destinations else {
        panic!("{checked:?}");
    };
    let ReceiverState::Received(complete) = complete else {
        panic!("{complete:?}")
    };
    let ReceiverState::Received(short) = short else {
        panic!("{short:?}")
    };
    assert_eq!(
        (complete.bytes.get(), complete.lacking.is_none()),
        (10, true)
    );
    assert_eq!((short.bytes.get(), short.lacking.is_none()), (10, false));
    assert!(
        matches!(unreadable, ReceiverState::Error(_)),
        "{unreadable:?}"
    );
    let removed = |removal| RemovedDestination {
        path: text(&path),
        files: None,
        removal,
        failed: false,
    };
    let remove = FileOperation::Remove(RemoveOperation {
        destinations: vec![removed(Removal::Rejected), removed(Removal::Remove)],
    });
    let OperationResult::Outcome(OperationOutcome::Removed(outcome)) =
        execute(&operations, &remove)
    else {
        panic!("it can be removed");
    };
    let [rejected, gone] = &*outcome.errors else {
        panic!("{outcome:?}")
    };
    assert!(rejected.is_some() && gone.is_none(), "{outcome:?}");
    assert!(!path.exists());
}

#[test]
fn a_relative_path_is_an_error() {
    let mut files = dataset(Path::new("/"));
    files.directory = "relative".into();
    let result = execute(&operations(), &prepare(files, 1.0));
    assert!(
        matches!(&result, OperationResult::Error(error) if error.contains("`relative`")),
        "{result:?}"
    );
}

#[test]
fn a_preparation_ends_when_the_process_is_stopped_while_another_agent_has_the_lock() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = dataset(directory.path());
    std::fs::create_dir(&files.directory).expect("created");
    let lock = std::fs::File::create(Path::new(&files.directory).join(crate::dataset::LOCK));
    let lock = Flock::lock(lock.expect("a file"), FlockArg::LockExclusive).expect("no other lock");
    let stop = Arc::new(AtomicBool::new(false));
    let operations = Operations::new(Arc::clone(&stop));
    let outcome = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| operations.execute(&prepare(files.clone(), 60.0)));
        std::thread::sleep(Duration::from_millis(50));
        assert!(
            !Path::new(&files.directory).join("000002").exists(),
            "the lock is held"
        );
        assert!(!waiting.is_finished());
        stop.store(true, Ordering::Relaxed);
        waiting.join().expect("no panic")
    });
    assert!(prepared(outcome).failed);
    drop(lock);
    let free = Operations::new(Arc::default());
    assert!(!prepared(free.execute(&prepare(files, 60.0))).failed);
}

#[test]
fn a_preparation_without_progress_fails_and_leaves_its_turn_to_the_next() {
    let directory = tempfile::tempdir().expect("a directory");
    let (stuck, next) = (directory.path().join("a"), directory.path().join("b"));
    std::fs::create_dir_all(stuck.join("set")).expect("created");
    // Opening it for writing waits for a reader.
    let pipe = stuck.join("set/.000002.partial");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let operations = operations();
    let outcome = prepared(execute(&operations, &prepare(dataset(&stuck), 0.3)));
    assert!(outcome.failed);
    let evidence = &outcome.findings[0].evidence;
    assert!(evidence.contains("no progress for 0.3 s"), "{evidence}");
    assert!(!prepared(execute(&operations, &prepare(dataset(&next), 60.0))).failed);
}

#[test]
fn link_directories_contain_the_files_and_are_removed_without_remains() {
    let storage = tempfile::tempdir().expect("a directory");
    std::fs::write(storage.path().join("000002"), "two").expect("written");
    let above = storage.path().join(directories::DIRECTORY);
    let operations = operations();
    let link = |source: Option<&Path>| {
        FileOperation::Link(LinkOperation {
            directory: text(&above),
            name: "7".into(),
            files: FileSet {
                first: 2,
                files: 1,
                sizes: None,
            },
            source: source.map(text),
        })
    };
    let created = |operation| match execute(&operations, &operation) {
        OperationResult::Outcome(OperationOutcome::Linked(outcome)) => above.join(outcome.name),
        other => panic!("{other:?}"),
    };
    let sources = created(link(Some(storage.path())));
    let sinks = created(link(None));
    assert_ne!(sources, sinks);
    assert_eq!(
        std::fs::read(sources.join("000002")).expect("linked"),
        b"two"
    );
    let target = std::fs::read_link(sinks.join("000002")).expect("a link");
    assert_eq!(target, Path::new("/dev/null"));
    let failed = execute(&operations, &link(Some(&sinks.join("missing"))));
    assert!(matches!(failed, OperationResult::Error(_)), "{failed:?}");
    let removed = |path: &Path| RemovedDestination {
        path: text(path),
        files: None,
        removal: Removal::Remove,
        failed: false,
    };
    let remove = FileOperation::Remove(RemoveOperation {
        destinations: vec![removed(&sources), removed(&sinks)],
    });
    execute(&operations, &remove);
    assert!(!above.exists() && storage.path().join("000002").exists());
}
