use std::sync::Arc;

use venturi_gridftp::Path;

use super::*;
use crate::ftp::files::{Fetch, Known};

fn fetch(size: u64) -> Job {
    let known = Known {
        size: Some(size),
        ..Known::default()
    };
    Job::Fetch(Arc::new(Fetch {
        from: Path::new("/a").expect("a path"),
        to: "a".into(),
        part: "b".into(),
        known,
        changes: 0,
    }))
}

fn take(queue: &Queue, depth: usize, bytes: u64) -> Option<Option<Vec<Item>>> {
    let room = Room {
        held: 0,
        depth,
        held_bytes: 0,
        ahead_bytes: bytes,
        sessions: 1,
        pace: 1.0,
    };
    let mut cx = Context::from_waker(Waker::noop());
    match queue.poll_take(&mut cx, room) {
        Poll::Ready(items) => Some(items),
        Poll::Pending => None,
    }
}

#[test]
fn a_session_takes_no_more_files_and_bytes_than_it_has_room_for() {
    let queue = Queue::new();
    let size = LEAST_AHEAD_BYTES * 2 / 3;
    queue.push((0..10).map(|_| fetch(size)), || false);
    let count = |most, bytes| take(&queue, most, bytes).flatten().map(|items| items.len());
    assert_eq!(count(3, 10 * size), Some(3));
    // The one with which it is full is taken, too: a file larger than all room must go as well.
    assert_eq!(count(10, 2 * size + 1), Some(3));
    assert_eq!(count(10, 1), Some(2), "two of the smallest chunks");
    assert_eq!(queue.depth(), (2, 8));
    assert_eq!(queue.unsettled(), (10, 10 * size));
    queue.settle();
    assert_eq!(queue.unsettled(), (9, 9 * size), "what is done is not left");
}

#[test]
fn a_session_has_its_share_of_what_the_path_holds_and_two_items_however_large_they_are() {
    let is_full = |held: u64, bytes, sessions| {
        let room = Room {
            held: usize::try_from(held).expect("few"),
            depth: 128,
            held_bytes: held * bytes,
            ahead_bytes: 400 << 20,
            sessions,
            pace: 1.0,
        };
        room.is_full()
    };
    assert!(
        !is_full(12, 8 << 20, 4) && is_full(13, 8 << 20, 4),
        "100 MiB"
    );
    assert!(
        !is_full(1, 1 << 30, 4),
        "the next is asked for before it ends"
    );
    assert!(is_full(2, 1 << 30, 4), "others have the rest");
    assert!(is_full(97, 1, 4), "three fourths of its depth");
}

#[test]
fn near_the_end_no_session_has_more_than_half_of_its_share() {
    let most = |held, sessions, unsettled| {
        let room = Room {
            held,
            depth: 512,
            held_bytes: 0,
            ahead_bytes: u64::MAX,
            sessions,
            pace: 1.0,
        };
        room.most(unsettled)
    };
    assert_eq!(most(0, 4, 10_000), 512, "there are many");
    assert_eq!(most(100, 4, 2_000), 150, "half of a fourth is 250");
    assert_eq!(most(0, 4, 200), FEW, "the path is to be full to the end");
    assert_eq!(most(300, 4, 2_000), 0, "it has more than that");
    let queue = Queue::new();
    queue.push((0..10).map(|_| fetch(1)), || false);
    let room = Room {
        held: FEW,
        depth: 512,
        held_bytes: 10,
        ahead_bytes: 1 << 30,
        sessions: 4,
        pace: 1.0,
    };
    let mut cx = Context::from_waker(Waker::noop());
    assert!(queue.poll_take(&mut cx, room).is_pending(), "others may");
    let chunk = 32 << 20;
    queue.push([fetch(chunk), fetch(chunk)], || false);
    let one = Room {
        held: 1,
        held_bytes: chunk,
        ..room
    };
    assert!(
        queue.poll_take(&mut cx, one).is_pending(),
        "it has one of few"
    );
    let none = Room {
        held: 0,
        held_bytes: 0,
        ..room
    };
    assert!(queue.poll_take(&mut cx, none).is_ready());
}

#[test]
fn a_slow_session_has_less_of_the_last_than_others() {
    let mib = 1 << 20;
    let takes = |pace| {
        let queue = Queue::new();
        queue.push((0..32).map(|_| fetch(16 * mib)), || false);
        let room = Room {
            held: 1,
            depth: 512,
            held_bytes: 16 * mib,
            ahead_bytes: 1 << 30,
            sessions: 8,
            pace,
        };
        let mut cx = Context::from_waker(Waker::noop());
        queue.poll_take(&mut cx, room).is_ready()
    };
    assert!(takes(1.0), "half of its share are 32 MiB");
    assert!(!takes(0.5), "of half the speed it has that already");
}

#[test]
fn it_ends_when_all_are_settled_and_none_can_come() {
    let queue = Queue::new();
    queue.push([fetch(1), fetch(1)], || false);
    let items = take(&queue, 2, 10).flatten().expect("two");
    assert!(take(&queue, 2, 10).is_none(), "more may come");
    queue.close();
    assert!(take(&queue, 2, 10).is_none(), "one may come back");
    let mut items = items.into_iter();
    queue.give_back(items.next().expect("the first"));
    queue.settle();
    let again = take(&queue, 2, 10).flatten().expect("it came back");
    assert_eq!((again.len(), again[0].tries), (1, 1));
    assert!(!queue.wait(Duration::ZERO));
    queue.settle();
    assert!(queue.wait(Duration::ZERO));
    assert!(take(&queue, 2, 10).expect("the end").is_none());
}

#[test]
fn whoever_looks_for_files_waits_while_there_are_too_many() {
    let queue = Queue::new();
    queue.push((0..=MOST_WAITING).map(|_| fetch(1)), || false);
    std::thread::scope(|scope| {
        let pushing = scope.spawn(|| queue.push([fetch(1)], || false));
        assert!(!pushing.is_finished());
        drop(take(&queue, 10, u64::MAX));
        pushing.join().expect("it goes on");
    });
    assert_eq!(queue.depth(), (MOST_WAITING + 2 - 10, 10));
}

#[test]
fn a_session_that_asks_again_and_again_is_remembered_once() {
    let queue = Queue::new();
    let room = Room {
        held: 0,
        depth: 1,
        held_bytes: 0,
        ahead_bytes: 1,
        sessions: 1,
        pace: 1.0,
    };
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.build().expect("a runtime");
    let mut turns = 0;
    runtime.block_on(std::future::poll_fn(|cx| {
        assert!(queue.poll_take(cx, room).is_pending());
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
