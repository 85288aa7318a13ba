use std::path::Path;

use super::*;
use crate::ftp::files::FtpMetadata;

fn fetch(directory: &Path) -> Arc<Fetch> {
    Arc::new(Fetch {
        from: venturi_gridftp::Path::new("/a").expect("a path"),
        to: directory.join("a"),
        part: directory.join("part"),
        known: FtpMetadata::default(),
        changes: 0,
    })
}

#[test]
fn no_other_session_writes_to_a_chunk_or_a_file_while_earlier_data_is_pending() {
    let directory = tempfile::tempdir().expect("a folder");
    let record = directory.path().join("record");
    let large = ChunkedDownload::open(
        fetch(directory.path()),
        1 << 20,
        "ftp://h/a",
        record,
        (false, false),
    );
    let (large, _) = large.expect("files");
    for job in [
        FtpDirection::Chunk(Arc::new(large), 0),
        FtpDirection::Fetch(fetch(directory.path())),
    ] {
        // A writer without any data yet.
        let (sender, waiting) = channel();
        let mut writing = Writing {
            tasks: sender,
            open: BTreeMap::new(),
        };
        let item = Item {
            number: 7,
            attempts: 0,
            resume_offset: 0,
            starts: 0,
            since: None,
            passed: false,
            job,
        };
        writing.start_item(&item);
        assert!(writing.file(7).is_none(), "{:?}", item.job);
        assert!(matches!(waiting.try_recv(), Ok(Task::Start(7, ..))));
    }
}
