//! How many workers, how large a block: from the machine and the set, each with its reason.

use super::lane::CACHED_BLOCK;
use crate::decision::Decision;
use crate::order::Order;
use crate::roots::Root;

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) workers: usize,
    pub(crate) block_bytes: usize,
    /// A file is copied in such pieces, by several workers, if it has two or more of them.
    pub(crate) chunk_bytes: u64,
    /// Workers for one such file.
    pub(crate) helpers: usize,
}

/// What there is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Set {
    /// One file of one chunk.
    Small,
    /// One file of several.
    Large,
    /// Files, or a tree.
    Many,
}

/// One request that a device splits as it likes, and enough for one at full speed.
const DIRECT_BLOCK: u64 = 4 << 20;
/// What is redone at most when a copy is resumed, for each worker.
const CHUNK: u64 = 64 << 20;
/// Files that a device is asked for at the same time, past the page cache and through it: what is not in it is read 0.8 times as long by eight workers
/// as by two, and what is in it no slower (`bench/mover.py`).
const DIRECT_WORKERS: u64 = 16;
const LEAST_WORKERS: u64 = 8;
/// Of one file one worker reads while another writes. Through the page cache a third waits, since those who write take turns, and the cores are busier;
/// past it a request is many for the device already (four workers took 1.1 times as long as two there, eight 1.2 times; `bench/mover.py`).
const HELPERS: u64 = 2;
/// Beyond this, workers of one host wait for the same locks of its file system.
const MOST_WORKERS: u64 = 16;

/// What there is to do, as far as the roots tell.
pub(super) fn set_of(roots: &[Root], chunk_bytes: u64) -> Set {
    match roots {
        [root] => match std::fs::metadata(&root.source) {
            Ok(found) if found.is_dir() => Set::Many,
            Ok(found) if found.len() >= 2 * chunk_bytes => Set::Large,
            _ => Set::Small,
        },
        _ => Set::Many,
    }
}

/// Decides, for so many cores that may be used.
pub(crate) fn decide(order: &Order, cores: u64, set: Set) -> (Plan, Vec<Decision>) {
    let (workers, why) = workers(order, cores, set);
    let helpers = match order.concurrency {
        Some(_) => workers,
        None => workers.min(HELPERS),
    };
    let (block, why_block) = block(order);
    let plan = Plan {
        workers: usize::try_from(workers).expect("at most 1024"),
        helpers: usize::try_from(helpers).expect("at most 1024"),
        block_bytes: usize::try_from(block).expect("at most 1 GiB"),
        chunk_bytes: CHUNK.max(block.next_multiple_of(super::lane::ALIGNMENT as u64)),
    };
    let told = vec![
        Decision {
            what: "workers",
            value: workers,
            reason: why,
        },
        Decision {
            what: "block_bytes",
            value: block,
            reason: why_block,
        },
    ];
    (plan, told)
}

fn workers(order: &Order, cores: u64, set: Set) -> (u64, String) {
    match (order.concurrency, set) {
        (Some(count), _) => (count.into(), "as asked for".into()),
        (None, _) if order.fixed => (1, "--fixed without --concurrency".into()),
        (None, Set::Small) => (1, "one file of one chunk".into()),
        (None, Set::Large) if order.direct => {
            let why = "one reads while another writes, and each request is many for the device";
            (HELPERS, why.into())
        }
        (None, Set::Large) => {
            let why = format!(
                "{cores} cores may be used; writers of one file take turns, so one reads while another writes"
            );
            (cores.min(HELPERS), why)
        }
        (None, Set::Many) if order.direct => {
            let why = "past the page cache each request waits for the device, which takes several";
            (cores.max(DIRECT_WORKERS), why.into())
        }
        (None, Set::Many) => {
            let why = format!(
                "{cores} cores may be used, and what is not in the page cache waits for a device, which takes several"
            );
            (cores.clamp(LEAST_WORKERS, MOST_WORKERS), why)
        }
    }
}

fn block(order: &Order) -> (u64, String) {
    match order.block_bytes {
        Some(bytes) => (bytes, "as asked for".into()),
        None if order.fixed => (CACHED_BLOCK as u64, "--fixed without --block".into()),
        None if order.direct => (
            DIRECT_BLOCK,
            "past the page cache each request costs a trip to the device".into(),
        ),
        None => (
            CACHED_BLOCK as u64,
            "a block stays in a core's cache between read and write".into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: crate::arguments::Arguments,
    }

    fn plan(words: &str, cores: u64, set: Set) -> Plan {
        let words = ["copy", "a", "b"]
            .into_iter()
            .chain(words.split_whitespace());
        let order = Order::try_from(Line::parse_from(words).arguments).expect("an order");
        let (plan, told) = decide(&order, cores, set);
        assert!(told.iter().all(|decision| !decision.reason.is_empty()));
        assert_eq!(told[0].value, plan.workers as u64);
        plan
    }

    #[test]
    fn workers_follow_from_the_machine_and_the_set() {
        let workers = |words, cores, set| plan(words, cores, set).workers;
        assert_eq!(workers("", 4, Set::Small), 1);
        assert_eq!(workers("", 4, Set::Large), 2);
        assert_eq!(workers("", 1, Set::Large), 1);
        assert_eq!(workers("", 4, Set::Many), 8);
        assert_eq!(workers("", 12, Set::Many), 12);
        assert_eq!(workers("", 128, Set::Many), 16);
        assert_eq!(workers("--direct", 1, Set::Large), 2);
        assert_eq!(workers("--direct", 4, Set::Many), 16);
        assert_eq!(workers("--direct", 4, Set::Small), 1);
    }

    #[test]
    fn what_is_asked_for_holds_and_fixed_decides_nothing() {
        let fixed = plan("--fixed", 4, Set::Many);
        assert_eq!((fixed.workers, fixed.block_bytes), (1, 256 << 10));
        let asked = plan("--concurrency 7 --block 128MiB", 4, Set::Large);
        assert_eq!(
            (asked.workers, asked.helpers, asked.block_bytes),
            (7, 7, 128 << 20)
        );
        assert!(asked.chunk_bytes >= asked.block_bytes as u64);
        assert_eq!(plan("--fixed --direct", 4, Set::Large).workers, 1);
    }
}
