//! Number of workers and block size, chosen for the machine and the sources, each with its reason.

use super::copy_bytes::CACHED_BLOCK;
use crate::decision::Decision;
use crate::options::CopyOptions;
use crate::roots::Root;

/// Tuning decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopyPlan {
    pub(crate) workers: usize,
    pub(crate) block_bytes: usize,
    /// Chunk size; larger files are copied in chunks by several workers.
    pub(crate) chunk_bytes: u64,
    /// Workers for one such file.
    pub(crate) helpers: usize,
}

/// Summary of the sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputSummary {
    /// One file of one chunk.
    Small,
    /// One file of several chunks.
    LargeCopy,
    /// Several files, or a tree.
    Multiple,
}

/// Block size for direct I/O: one request, which a device splits as necessary, large enough for
/// full speed.
const DIRECT_BLOCK: u64 = 4 << 20;
/// Maximum bytes per worker that a resumed copy repeats.
const CHUNK: u64 = 64 << 20;
/// Number of files that a device reads concurrently, with and without the page cache: uncached
/// files took 0.8 times as long with eight workers as with two, and cached files were not slower
/// (`bench/mover.py`).
const DIRECT_WORKERS: u64 = 16;
const MIN_WORKERS: u64 = 8;
/// Workers of one file: one reads while another writes. With the page cache a third one waits, because writers take
/// turns, and the cores are busier. Without it, one request already keeps the device busy (four workers took 1.1
/// times as long as two there, eight 1.2 times; `bench/mover.py`).
const HELPERS: u64 = 2;
/// Maximum number of workers; more would wait for the same locks of the file system.
const MAX_WORKERS: u64 = 16;

/// Return the summary of the sources, as far as the roots show.
pub(super) fn summarize_inputs(roots: &[Root], chunk_bytes: u64) -> InputSummary {
    match roots {
        [root] => match std::fs::metadata(&root.source) {
            Ok(found) if found.is_dir() => InputSummary::Multiple,
            Ok(found) if found.len() >= 2 * chunk_bytes => InputSummary::LargeCopy,
            _ => InputSummary::Small,
        },
        _ => InputSummary::Multiple,
    }
}

/// Decide for this number of usable cores.
pub(crate) fn decide(
    order: &CopyOptions,
    cores: u64,
    set: InputSummary,
) -> (CopyPlan, Vec<Decision>) {
    let (workers, why) = workers(order, cores, set);
    let helpers = match order.concurrency {
        Some(_) => workers,
        None => workers.min(HELPERS),
    };
    let (block, block_reason) = block(order);
    let plan = CopyPlan {
        workers: usize::try_from(workers).expect("at most 1024"),
        helpers: usize::try_from(helpers).expect("at most 1024"),
        block_bytes: usize::try_from(block).expect("at most 1 GiB"),
        chunk_bytes: CHUNK.max(block.next_multiple_of(venturi_linux::ALIGNMENT as u64)),
    };
    let decisions = vec![
        Decision {
            setting: "workers",
            value: workers,
            reason: why,
        },
        Decision {
            setting: "block_bytes",
            value: block,
            reason: block_reason,
        },
    ];
    (plan, decisions)
}

fn workers(order: &CopyOptions, cores: u64, set: InputSummary) -> (u64, String) {
    match (order.concurrency, set) {
        (Some(count), _) => (count.into(), "set by an option".into()),
        (None, _) if order.fixed => (1, "--fixed without --concurrency".into()),
        (None, InputSummary::Small) => (1, "one file of one chunk".into()),
        (None, InputSummary::LargeCopy) if order.direct => {
            let reason =
                "one worker reads while another writes, and the device splits each request";
            (HELPERS, reason.into())
        }
        (None, InputSummary::LargeCopy) => {
            let reason = format!(
                "{cores} cores available; writers of one file take turns, so one worker reads while another writes"
            );
            (cores.min(HELPERS), reason)
        }
        (None, InputSummary::Multiple) if order.direct => {
            let reason = "without the page cache each request waits for the device, which serves several at a time";
            (cores.max(DIRECT_WORKERS), reason.into())
        }
        (None, InputSummary::Multiple) => {
            let reason = format!(
                "{cores} cores available, and reads outside of the page cache wait for a device, which serves several at a time"
            );
            (cores.clamp(MIN_WORKERS, MAX_WORKERS), reason)
        }
    }
}

fn block(order: &CopyOptions) -> (u64, String) {
    match order.block_bytes {
        Some(bytes) => (bytes, "set by an option".into()),
        None if order.fixed => (CACHED_BLOCK as u64, "--fixed without --block".into()),
        None if order.direct => (
            DIRECT_BLOCK,
            "without the page cache each request costs a round trip to the device".into(),
        ),
        None => (
            CACHED_BLOCK as u64,
            "a block stays in the cache of a core between read and write".into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct TestCli {
        #[command(flatten)]
        arguments: crate::arguments::CopyArgs,
    }

    fn plan(arguments: &str, cores: u64, set: InputSummary) -> CopyPlan {
        let arguments = ["copy", "a", "b"]
            .into_iter()
            .chain(arguments.split_whitespace());
        let order =
            CopyOptions::try_from(TestCli::parse_from(arguments).arguments).expect("an order");
        let (plan, decisions) = decide(&order, cores, set);
        assert!(decisions.iter().all(|decision| !decision.reason.is_empty()));
        assert_eq!(decisions[0].value, plan.workers as u64);
        plan
    }

    #[test]
    fn the_number_of_workers_follows_from_the_cores_and_the_inputs() {
        let workers = |arguments, cores, set| plan(arguments, cores, set).workers;
        assert_eq!(workers("", 4, InputSummary::Small), 1);
        assert_eq!(workers("", 4, InputSummary::LargeCopy), 2);
        assert_eq!(workers("", 1, InputSummary::LargeCopy), 1);
        assert_eq!(workers("", 4, InputSummary::Multiple), 8);
        assert_eq!(workers("", 12, InputSummary::Multiple), 12);
        assert_eq!(workers("", 128, InputSummary::Multiple), 16);
        assert_eq!(workers("--direct", 1, InputSummary::LargeCopy), 2);
        assert_eq!(workers("--direct", 4, InputSummary::Multiple), 16);
        assert_eq!(workers("--direct", 4, InputSummary::Small), 1);
    }

    #[test]
    fn requested_values_apply_and_fixed_disables_tuning() {
        let fixed = plan("--fixed", 4, InputSummary::Multiple);
        assert_eq!((fixed.workers, fixed.block_bytes), (1, 256 << 10));
        let length = plan("--concurrency 7 --block 128MiB", 4, InputSummary::LargeCopy);
        assert_eq!(
            (length.workers, length.helpers, length.block_bytes),
            (7, 7, 128 << 20)
        );
        assert!(length.chunk_bytes >= length.block_bytes as u64);
        assert_eq!(
            plan("--fixed --direct", 4, InputSummary::LargeCopy).workers,
            1
        );
    }
}
