//! Data of a test: threads that send or receive until the end of the test.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::message::{EndpointReport, Received, TestRequest};
use super::tcp_info::Connection;
use crate::error::MeasureError;
use crate::random::SplitMix;

/// Bytes of one system call: large enough that calls cost little, small enough for the cache of a core.
const BLOCK_BYTES: usize = 256 * 1024;

/// Longest wait of a system call: threads look at the clock as often.
const POLL: Duration = Duration::from_millis(50);

/// Time that a test can take beyond its own: connections, slow start of the far end, silence of the network.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// Sets the largest rate of each connection, if the request has one. The kernel paces the data of the sender
/// (`SO_MAX_PACING_RATE`, socket(7)).
pub(super) fn limit_rate(
    streams: &[TcpStream],
    request: &TestRequest,
    peer: &str,
) -> Result<(), MeasureError> {
    let Some(max_rate) = request.max_rate else {
        return Ok(());
    };
    let rate = (max_rate / streams.len().max(1) as u64).max(1);
    for stream in streams {
        // SAFETY: the pointer and the length are those of `rate`, which the kernel only reads.
        let result = unsafe {
            libc::setsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MAX_PACING_RATE,
                std::ptr::from_ref(&rate).cast(),
                size_of_val(&rate) as libc::socklen_t,
            )
        };
        if result != 0 {
            let error = io::Error::last_os_error();
            return Err(MeasureError::io("limit the rate to", peer, error));
        }
    }
    Ok(())
}

/// Receives until the time or the data end, and counts the bytes between the two moments of the request.
pub(super) fn receive_all(
    streams: &[TcpStream],
    request: &TestRequest,
    peer: &str,
) -> Result<Received, MeasureError> {
    let cpu_before_s = crate::own_cpu_s();
    let started = Instant::now();
    let deadline = started + Duration::from_secs_f64(request.time_s) + GRACE;
    let (total, stop, wait_ns) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
    let (first_sender, first) = mpsc::channel();
    let (end_sender, ends) = mpsc::channel();
    let counted = std::thread::scope(|scope| {
        for stream in streams {
            let (first, end) = (first_sender.clone(), end_sender.clone());
            let (total, stop, wait_ns) = (&total, &stop, &wait_ns);
            scope.spawn(move || {
                let last = receive_one(stream, total, stop, &first);
                wait_ns.fetch_add(crate::thread_wait_ns(), Ordering::Relaxed);
                let _ = end.send(last);
            });
        }
        drop((first_sender, end_sender));
        let counted = count(request, &total, &first, &ends, streams.len(), deadline);
        stop.store(true, Ordering::Relaxed);
        counted
    });
    let Some((bytes, duration, omitted)) = counted else {
        return Err(MeasureError::Silent {
            peer: peer.to_owned(),
            time_s: request.time_s + GRACE.as_secs_f64(),
        });
    };
    let total_bytes = total.load(Ordering::Relaxed);
    Ok(Received {
        bytes,
        duration_s: duration.as_secs_f64(),
        omitted_s: omitted.as_secs_f64(),
        total_bytes,
        endpoint: endpoint_report(streams, total_bytes, cpu_before_s, &wait_ns),
    })
}

/// Waits for both moments; returns bytes, time, and time before them. `None` without any byte.
fn count(
    request: &TestRequest,
    total: &AtomicU64,
    first: &mpsc::Receiver<Instant>,
    ends: &mpsc::Receiver<Option<Instant>>,
    streams: usize,
    deadline: Instant,
) -> Option<(u64, Duration, Duration)> {
    let wait = deadline.saturating_duration_since(Instant::now());
    let zero = first.recv_timeout(wait).ok()?;
    let moment = |time_s| zero + Duration::from_secs_f64(time_s);
    let mut running = streams;
    let mut last = zero;
    // Waits until a moment, or until all senders have ended.
    let mut wait_until = |moment: Instant| {
        while running > 0 {
            let left = moment.saturating_duration_since(Instant::now());
            match ends.recv_timeout(left) {
                Ok(end) => {
                    running -= 1;
                    last = end.unwrap_or(last).max(last);
                }
                Err(_) => return Instant::now(),
            }
        }
        last
    };
    let start = wait_until(moment(request.omit_s));
    let before = total.load(Ordering::Relaxed);
    let end = wait_until(moment(request.time_s));
    let bytes = total.load(Ordering::Relaxed) - before;
    if end > start && bytes > 0 {
        return Some((bytes, end - start, start - zero));
    }
    // All data arrived before the first moment: nothing can be left out.
    let all = total.load(Ordering::Relaxed);
    (last > zero && before > 0).then(|| (all, last - zero, Duration::ZERO))
}

/// Receives from one connection; returns the time of its last byte if the sender ended it.
fn receive_one(
    mut stream: &TcpStream,
    total: &AtomicU64,
    stop: &AtomicBool,
    first: &mpsc::Sender<Instant>,
) -> Option<Instant> {
    let mut buffer = vec![0; BLOCK_BYTES];
    let mut last = None;
    let _ = stream.set_read_timeout(Some(POLL));
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                let now = Instant::now();
                if last.replace(now).is_none() {
                    let _ = first.send(now);
                }
                total.fetch_add(count as u64, Ordering::Relaxed);
            }
            Err(error) if is_timeout(&error) => {}
            Err(_) => break, // a reset is the sender's end
        }
    }
    last
}

/// Sends on all connections until `stopped` returns true, the bytes are used up, or the deadline has passed.
pub(super) fn send_all(
    streams: &[TcpStream],
    request: &TestRequest,
    stopped: impl FnOnce(),
) -> EndpointReport {
    let cpu_before_s = crate::own_cpu_s();
    let deadline = Instant::now() + Duration::from_secs_f64(request.time_s) + GRACE;
    let (budget, sent) = (AtomicU64::new(request.bytes), AtomicU64::new(0));
    let (stop, wait_ns) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for (index, stream) in streams.iter().enumerate() {
            let (budget, sent, stop, wait_ns) = (&budget, &sent, &stop, &wait_ns);
            scope.spawn(move || {
                send_one(stream, index as u64, budget, sent, stop, deadline);
                wait_ns.fetch_add(crate::thread_wait_ns(), Ordering::Relaxed);
            });
        }
        stopped();
        stop.store(true, Ordering::Relaxed);
    });
    endpoint_report(
        streams,
        sent.load(Ordering::Relaxed),
        cpu_before_s,
        &wait_ns,
    )
}

fn send_one(
    mut stream: &TcpStream,
    seed: u64,
    budget: &AtomicU64,
    sent: &AtomicU64,
    stop: &AtomicBool,
    deadline: Instant,
) {
    let mut block = vec![0; BLOCK_BYTES];
    SplitMix::new(seed).fill(&mut block); // no network device can compress it
    let _ = stream.set_write_timeout(Some(POLL));
    let running = || !stop.load(Ordering::Relaxed) && Instant::now() < deadline;
    while running() {
        let Some(count) = take(budget, block.len() as u64) else {
            // The receiver knows only by the end of the data that no byte follows.
            let _ = stream.shutdown(std::net::Shutdown::Write);
            return;
        };
        let mut rest = &block[..count];
        while !rest.is_empty() && running() {
            match stream.write(rest) {
                Ok(count) => {
                    sent.fetch_add(count as u64, Ordering::Relaxed);
                    rest = &rest[count..];
                }
                Err(error) if is_timeout(&error) => {}
                Err(_) => return,
            }
        }
    }
}

/// Takes up to `most` bytes of a budget.
fn take(budget: &AtomicU64, most: u64) -> Option<usize> {
    let before = budget
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            (left > 0).then(|| left.saturating_sub(most))
        })
        .ok()?;
    usize::try_from(before.min(most)).ok()
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

fn endpoint_report(
    streams: &[TcpStream],
    bytes: u64,
    cpu_before_s: f64,
    wait_ns: &AtomicU64,
) -> EndpointReport {
    EndpointReport {
        bytes,
        cpu_s: crate::own_cpu_s() - cpu_before_s,
        cpu_wait_s: wait_ns.load(Ordering::Relaxed) as f64 / 1e9,
        connections: streams.iter().map(Connection::of).collect(),
    }
}

/// Closes a connection without sending its buffered data: over a slow path they would delay the next test.
pub(super) fn discard(streams: Vec<TcpStream>) {
    for stream in streams {
        let linger = libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        // SAFETY: the pointer and the length describe `linger`; the socket is open.
        unsafe {
            libc::setsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_LINGER,
                (&raw const linger).cast(),
                size_of::<libc::linger>() as libc::socklen_t,
            );
        }
    }
}
