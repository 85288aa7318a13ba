use std::path::Path;

use super::*;
use crate::ftp::files::Known;

fn fetch(folder: &Path) -> Arc<Fetch> {
    Arc::new(Fetch {
        from: venturi_gridftp::Path::new("/a").expect("a path"),
        to: folder.join("a"),
        part: folder.join("part"),
        known: Known::default(),
        changes: 0,
    })
}

#[test]
fn nobody_else_writes_to_a_chunk_or_a_file_while_what_came_of_it_before_waits() {
    let folder = tempfile::tempdir().expect("a folder");
    let record = folder.path().join("record");
    let large = Large::open(
        fetch(folder.path()),
        1 << 20,
        "ftp://h/a",
        record,
        (false, false),
    );
    let (large, _) = large.expect("files");
    for job in [
        Job::Chunk(Arc::new(large), 0),
        Job::Fetch(fetch(folder.path())),
    ] {
        // A writer that has not come to anything yet.
        let (sender, waiting) = channel();
        let mut writing = Writing {
            tasks: sender,
            open: BTreeMap::new(),
        };
        let item = Item {
            number: 7,
            tries: 0,
            there: 0,
            begins: 0,
            since: None,
            passed: false,
            job,
        };
        writing.begin(&item);
        assert!(writing.file(7).is_none(), "{:?}", item.job);
        assert!(matches!(waiting.try_recv(), Ok(Task::Begin(7, ..))));
    }
}
