use std::sync::Arc;

use venturi_gridftp::Path;

use super::*;
use crate::ftp::files::{Fetch, FtpMetadata};

fn fetch(size: u64) -> FtpDirection {
    let known = FtpMetadata {
        size: Some(size),
        ..FtpMetadata::default()
    };
    FtpDirection::Fetch(Arc::new(Fetch {
        from: Path::new("/a").expect("a path"),
        to: "a".into(),
        part: "b".into(),
        known,
        changes: 0,
    }))
}

fn take(queue: &WorkQueue, depth: usize, bytes: u64) -> Option<Option<Vec<Item>>> {
    let capacity = SessionCapacity {
        assigned: 0,
        depth,
        assigned_bytes: 0,
        ahead_bytes: bytes,
        sessions: 1,
        pace: 1.0,
    };
    let mut cx = Context::from_waker(Waker::noop());
    match queue.poll_take(&mut cx, capacity) {
        Poll::Ready(items) => Some(items),
        Poll::Pending => None,
    }
}

#[test]
fn a_session_takes_no_more_files_and_bytes_than_it_has_capacity_for() {
    let queue = WorkQueue::new();
    let size = MIN_AHEAD_BYTES * 2 / 3;
    queue.push((0..10).map(|_| fetch(size)), || false);
    let count = |max_items, bytes| {
        take(&queue, max_items, bytes)
            .flatten()
            .map(|items| items.len())
    };
    assert_eq!(count(3, 10 * size), Some(3));
    // The item that exceeds the limit is taken, too: a file larger than the limit must be transferred as well.
    assert_eq!(count(10, 2 * size + 1), Some(3));
    assert_eq!(count(10, 1), Some(2), "two of the smallest chunks");
    assert_eq!(queue.depth(), (2, 8));
    assert_eq!(queue.incomplete(), (10, 10 * size));
    queue.complete();
    assert_eq!(
        queue.incomplete(),
        (9, 9 * size),
        "what is done is not left"
    );
}

#[test]
fn a_session_gets_its_share_of_the_path_and_two_items_of_any_size() {
    let is_full = |assigned: u64, bytes, sessions| {
        let capacity = SessionCapacity {
            assigned: usize::try_from(assigned).expect("few"),
            depth: 128,
            assigned_bytes: assigned * bytes,
            ahead_bytes: 400 << 20,
            sessions,
            pace: 1.0,
        };
        capacity.is_full()
    };
    assert!(
        !is_full(12, 8 << 20, 4) && is_full(13, 8 << 20, 4),
        "100 MiB"
    );
    assert!(
        !is_full(1, 1 << 30, 4),
        "the next file is requested before this one ends"
    );
    assert!(is_full(2, 1 << 30, 4), "others have the rest");
    assert!(is_full(97, 1, 4), "three fourths of its depth");
}

#[test]
fn near_the_end_no_session_gets_more_than_half_of_its_share() {
    let max_items = |assigned, sessions, incomplete| {
        let capacity = SessionCapacity {
            assigned,
            depth: 512,
            assigned_bytes: 0,
            ahead_bytes: u64::MAX,
            sessions,
            pace: 1.0,
        };
        capacity.max_items(incomplete)
    };
    assert_eq!(max_items(0, 4, 10_000), 512, "there are many");
    assert_eq!(max_items(100, 4, 2_000), 150, "half of a fourth is 250");
    assert_eq!(
        max_items(0, 4, 200),
        MIN_SESSION_ITEMS,
        "the path is to be full to the end"
    );
    assert_eq!(max_items(300, 4, 2_000), 0, "it has more than that");
    let queue = WorkQueue::new();
    queue.push((0..10).map(|_| fetch(1)), || false);
    let capacity = SessionCapacity {
        assigned: MIN_SESSION_ITEMS,
        depth: 512,
        assigned_bytes: 10,
        ahead_bytes: 1 << 30,
        sessions: 4,
        pace: 1.0,
    };
    let mut cx = Context::from_waker(Waker::noop());
    assert!(
        queue.poll_take(&mut cx, capacity).is_pending(),
        "others may"
    );
    let chunk = 32 << 20;
    queue.push([fetch(chunk), fetch(chunk)], || false);
    let one = SessionCapacity {
        assigned: 1,
        assigned_bytes: chunk,
        ..capacity
    };
    assert!(
        queue.poll_take(&mut cx, one).is_pending(),
        "it has one of few"
    );
    let none = SessionCapacity {
        assigned: 0,
        assigned_bytes: 0,
        ..capacity
    };
    assert!(queue.poll_take(&mut cx, none).is_ready());
}

#[test]
fn a_slow_session_gets_fewer_of_the_last_items_than_others() {
    let mib = 1 << 20;
    let takes = |pace| {
        let queue = WorkQueue::new();
        queue.push((0..32).map(|_| fetch(16 * mib)), || false);
        let capacity = SessionCapacity {
            assigned: 1,
            depth: 512,
            assigned_bytes: 16 * mib,
            ahead_bytes: 1 << 30,
            sessions: 8,
            pace,
        };
        let mut cx = Context::from_waker(Waker::noop());
        queue.poll_take(&mut cx, capacity).is_ready()
    };
    assert!(takes(1.0), "half of its part is 32 MiB");
    assert!(!takes(0.5), "at half the speed it already has its part");
}

#[test]
fn the_queue_ends_when_all_items_are_finalized_and_no_more_can_arrive() {
    let queue = WorkQueue::new();
    queue.push([fetch(1), fetch(1)], || false);
    let items = take(&queue, 2, 10).flatten().expect("two");
    assert!(take(&queue, 2, 10).is_none(), "more may come");
    queue.close();
    assert!(take(&queue, 2, 10).is_none(), "one may come back");
    let mut items = items.into_iter();
    queue.requeue(items.next().expect("the first"));
    queue.complete();
    let again = take(&queue, 2, 10).flatten().expect("it came back");
    assert_eq!((again.len(), again[0].attempts), (1, 1));
    assert!(!queue.wait(Duration::ZERO));
    queue.complete();
    assert!(queue.wait(Duration::ZERO));
    assert!(take(&queue, 2, 10).expect("the end").is_none());
}

#[test]
fn the_search_for_files_waits_while_too_many_are_queued() {
    let queue = WorkQueue::new();
    queue.push((0..=MAX_WAITING).map(|_| fetch(1)), || false);
    std::thread::scope(|scope| {
        let pushing = scope.spawn(|| queue.push([fetch(1)], || false));
        assert!(!pushing.is_finished());
        drop(take(&queue, 10, u64::MAX));
        pushing.join().expect("it goes on");
    });
    assert_eq!(queue.depth(), (MAX_WAITING + 2 - 10, 10));
}

#[test]
fn a_session_with_repeated_requests_is_remembered_once() {
    let queue = WorkQueue::new();
    let capacity = SessionCapacity {
        assigned: 0,
        depth: 1,
        assigned_bytes: 0,
        ahead_bytes: 1,
        sessions: 1,
        pace: 1.0,
    };
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.build().expect("a runtime");
    let mut turns = 0;
    runtime.block_on(std::future::poll_fn(|cx| {
        assert!(queue.poll_take(cx, capacity).is_pending());
        turns += 1;
        match turns {
            1..10 => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }));
    assert_eq!(queue.lock().wakers.len(), 1);
}
