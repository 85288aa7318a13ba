//! What the wire asks of the machine so that it is in time. Everything here is optional: without rights it is left
//! undone.

use std::fs::{self, File};
use std::io::Write;

/// Highest priority of an ordinary process. Not a real-time class: the kernel takes 5 % away from one that never
/// sleeps, in pieces of 46 ms.
const NICE: libc::c_int = -20;

/// Lowest priority.
const LAST_NICE: libc::c_int = 19;

/// Slice of an ordinary thread where the priority may not be raised: being shorter than others' it gets its turn
/// sooner.
const SLICE_NS: u64 = 100_000;

/// Holds the machine awake as long as it lives.
#[derive(Debug)]
pub(crate) struct Machine {
    /// `/dev/cpu_dma_latency` with 0 written to it: the processors do not go into a sleep that they are slow to wake
    /// from. Brings the error of a round trip of 53 ms from 340 µs down to 80 µs.
    _awake: Option<File>,
}

impl Machine {
    /// For the calling thread; those that it starts later get an ordinary priority by [`ordinary`].
    pub(crate) fn prepare() -> Self {
        // SAFETY: takes numbers only. 1 ns: sleeps end when they are due, not up to 50 µs later.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        if !renice(NICE) {
            shorten_slice();
        }
        Self {
            _awake: hold_awake().ok(),
        }
    }
}

/// Gives the calling thread the usual priority: one that reads and writes lines need not compete with the hosts.
pub(crate) fn ordinary() {
    renice(0);
}

/// Lets the calling thread run only where nothing else does, and on this processor.
pub(crate) fn be_last(processor: usize) -> std::io::Result<()> {
    renice(LAST_NICE); // the kernel then counts its time apart, as `nice`
    let mut only = nix::sched::CpuSet::new();
    only.set(processor)?;
    Ok(nix::sched::sched_setaffinity(
        nix::unistd::Pid::from_raw(0),
        &only,
    )?)
}

/// Processors that this process may run on, by number.
pub(crate) fn own_processors() -> Vec<usize> {
    let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0));
    let allowed = allowed.unwrap_or_default();
    (0..nix::sched::CpuSet::count())
        .filter(|processor| allowed.is_set(*processor).unwrap_or(false))
        .collect()
}

fn renice(nice: libc::c_int) -> bool {
    // SAFETY: takes numbers only; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) == 0 }
}

fn shorten_slice() {
    // SAFETY: a structure of numbers, for which all zeros are valid: SCHED_OTHER, nice 0.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = u32::try_from(size_of::<libc::sched_attr>()).expect("under 100 bytes");
    attributes.sched_runtime = SLICE_NS;
    // SAFETY: the structure is alive for the call and says its size. Being refused leaves the usual slice.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

fn hold_awake() -> std::io::Result<File> {
    let mut file = File::options().write(true).open("/dev/cpu_dma_latency")?;
    file.write_all(&0_i32.to_ne_bytes())?;
    Ok(file)
}

/// Processors that this process may run on.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Threads of the whole machine that run or want to, this one included; none if it does not tell.
pub(crate) fn running_threads() -> Option<u32> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let (running, _) = text.split_ascii_whitespace().nth(3)?.split_once('/')?;
    running.parse().ok()
}

/// The three limits of memory for all TCP sockets of the machine, in bytes; none where they cannot be read (they are
/// visible in the first network namespace only).
pub(crate) fn tcp_memory_bytes() -> Option<[u64; 3]> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/tcp_mem").ok()?;
    let pages: Vec<u64> = text
        .split_ascii_whitespace()
        .map_while(|number| number.parse().ok())
        .collect();
    // SAFETY: takes and returns numbers only.
    let page_bytes = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    <[u64; 3]>::try_from(pages)
        .ok()
        .map(|limits| limits.map(|pages| pages.saturating_mul(page_bytes)))
}
