//! Settings of the machine for timely packets. All of them are optional and are skipped without the
//! required permissions.

use std::fs::{self, File};
use std::io::Write;

/// Highest priority of an ordinary process. Not a real-time class, because the kernel takes 5 % of
/// the time, in periods of 46 ms, from a real-time thread that never sleeps.
const NICE: libc::c_int = -20;

/// Lowest priority.
const LAST_NICE: libc::c_int = 19;

/// Time slice of a thread that cannot raise its priority; with a shorter slice than others, it is
/// scheduled sooner.
const SLICE_NS: u64 = 100_000;

/// Keeps the machine awake while this value exists.
#[derive(Debug)]
pub(crate) struct Machine {
    /// `/dev/cpu_dma_latency` with 0 written to it, so that the CPUs do not enter deep idle states.
    /// This reduces the error of a round trip of 53 ms from 340 µs to 80 µs.
    _awake: Option<File>,
}

impl Machine {
    /// Apply the settings to the calling thread; later threads return to an ordinary priority with
    /// [`ordinary`].
    pub(crate) fn prepare() -> Self {
        // SAFETY: takes numbers only. With 1 ns, sleeps end on time, and not up to 50 µs later.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        if !renice(NICE) {
            shorten_slice();
        }
        Self {
            _awake: prevent_idle().ok(),
        }
    }
}

/// Reset the priority of the calling thread, because a thread that reads and writes lines should
/// not compete with the hosts.
pub(crate) fn ordinary() {
    renice(0);
}

/// Let the calling thread run only if no other thread wants this CPU, and only on this CPU.
pub(crate) fn be_last(cpu: usize) -> std::io::Result<()> {
    renice(LAST_NICE); // the kernel then counts its time separately, as `nice`
    let mut only = nix::sched::CpuSet::new();
    only.set(cpu)?;
    Ok(nix::sched::sched_setaffinity(
        nix::unistd::Pid::from_raw(0),
        &only,
    )?)
}

/// Return the numbers of the CPUs that this process can use.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0));
    let allowed = allowed.unwrap_or_default();
    (0..nix::sched::CpuSet::count())
        .filter(|cpu| allowed.is_set(*cpu).unwrap_or(false))
        .collect()
}

fn renice(nice: libc::c_int) -> bool {
    // SAFETY: takes numbers only; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) == 0 }
}

fn shorten_slice() {
    // SAFETY: a structure of numbers, valid with all zeros: SCHED_OTHER, nice 0.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = u32::try_from(size_of::<libc::sched_attr>()).expect("under 100 bytes");
    attributes.sched_runtime = SLICE_NS;
    // SAFETY: the structure is valid during the call and contains its size. If the call fails, the
    // usual slice remains.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

fn prevent_idle() -> std::io::Result<File> {
    let mut file = File::options().write(true).open("/dev/cpu_dma_latency")?;
    file.write_all(&0_i32.to_ne_bytes())?;
    Ok(file)
}

/// Return the number of CPUs that this process can use.
pub(crate) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Return the number of runnable threads of the machine, including this one; none if the kernel does not report it.
pub(crate) fn running_threads() -> Option<u32> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let (running, _) = text.split_ascii_whitespace().nth(3)?.split_once('/')?;
    running.parse().ok()
}

/// Return the three limits of memory for all TCP sockets of the machine, in bytes. None if they
/// cannot be read, because they are visible in the first network namespace only.
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
