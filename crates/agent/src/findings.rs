//! All findings that an agent can report about a measurement, one function each: evidence and advice.

use std::path::Path;

use venturi_plan::{Finding, LateBytes};

use crate::barrier::BarrierMethod;
use crate::sampler::Punctuality;
use crate::sockets::Losses;

fn finding(
    code: &str,
    subject: impl Into<String>,
    evidence: impl Into<String>,
    advice: &str,
) -> Finding {
    Finding {
        code: code.into(),
        subject: subject.into(),
        evidence: evidence.into(),
        advice: advice.into(),
    }
}

pub(crate) fn orphan_processes(call: &str) -> Finding {
    finding(
        "orphan-processes",
        call,
        "processes that the tool had started were still running after the tool exited; the agent killed \
         them after the trial",
        "the measured time excludes their work; make the tool wait for its children",
    )
}

pub(crate) fn released_by_pipe(program: &Path, method_of_host: BarrierMethod) -> Finding {
    let reason = match method_of_host {
        BarrierMethod::Pipe => "this host does not permit tracing",
        BarrierMethod::ExecStop => {
            "the program has set-user-ID, set-group-ID or file capabilities, and tracing would remove them"
        }
    };
    finding(
        "released-by-pipe",
        program.display().to_string(),
        format!("{reason}; the agent released the process before its exec, not after it"),
        "the measured time includes exec and loading of the image; compare only with runs of the same \
         release method",
    )
}

pub(crate) fn start_spread(spread_s: f64, count: usize) -> Finding {
    finding(
        "start-spread",
        format!("{count} transfers"),
        format!(
            "after a common release, the first and the last transfer started {:.3} ms apart",
            spread_s * 1e3
        ),
        "the host was busy at the release; remove other load, or use longer transfers",
    )
}

pub(crate) fn large_output(call: &str, bytes: u64) -> Finding {
    finding(
        "large-output",
        call,
        format!(
            "the tool printed {bytes} bytes on one stream; the agent kept them in memory during the \
             transfer"
        ),
        "make the tool print less; printing takes time and leaves less memory for the page cache",
    )
}

pub(crate) fn receiver_not_checked(destination: &str) -> Finding {
    finding(
        "receiver-not-checked",
        destination,
        "no host of the run has the files of the destination, so the received bytes cannot be checked",
        "check the files on the receiver, or rely on the exit code of the tool",
    )
}

pub(crate) fn receiver_unreadable(path: &str, error: &str) -> Finding {
    finding(
        "receiver-unreadable",
        path,
        format!("cannot read the destination after the transfer: {error}"),
        "correct the permissions or the connection to the host; it is unknown whether all bytes arrived",
    )
}

pub(crate) fn receiver_has_more(path: &str, requested_bytes: u64, held: u64) -> Finding {
    finding(
        "receiver-has-more",
        path,
        format!("expected {requested_bytes} bytes at the receiver, found {held}"),
        "look for other files at the destination; the throughput uses the requested bytes",
    )
}

pub(crate) fn receiver_late(path: &str, requested_bytes: u64, late: LateBytes) -> Finding {
    finding(
        "receiver-late",
        path,
        format!(
            "when the tool exited successfully, the server had {} of {requested_bytes} bytes; the \
             other bytes arrived within {:.0} ms",
            late.first_bytes,
            late.wait_s.get() * 1e3
        ),
        "the measured time ends before all bytes have arrived; compare only with transfers through the \
         same service",
    )
}

pub(crate) fn destination_not_removed(path: &str, reason: &str) -> Finding {
    finding(
        "destination-not-removed",
        path,
        reason.to_owned(),
        "delete it if you do not need it; it uses space and can disturb the next trial",
    )
}

pub(crate) fn prepare_failed(dataset: &str, error: &str) -> Finding {
    finding(
        "prepare-failed",
        dataset,
        error.to_owned(),
        "the trial failed before its transfers started; fix the cause and run the scenario again",
    )
}

pub(crate) fn prepare_stalled(dataset: &str, timeout_s: f64) -> Finding {
    let error = format!(
        "the file system made no progress for {timeout_s} s, the longest timeout of a transfer in this plan"
    );
    prepare_failed(dataset, &error)
}

pub(crate) fn finalizing_stalled(call: &str, timeout_s: f64) -> Finding {
    finding(
        "receiver-unreadable",
        call,
        format!(
            "cannot check and remove the received files: the file system made no progress for \
             {timeout_s} s, the longest timeout of a transfer in this plan"
        ),
        "check the server of that file system; files of the trial can remain",
    )
}

pub(crate) fn drop_failed(dataset: &str, error: &str) -> Finding {
    finding(
        "cache-not-dropped",
        dataset,
        format!("cannot drop the cache: {error}"),
        "treat these trials as warm; for cold trials, run as root on a local file system",
    )
}

pub(crate) fn cache_not_dropped(dataset: &str, ratio: f64, method: &str) -> Finding {
    finding(
        "cache-not-dropped",
        dataset,
        format!(
            "after a drop by `{method}`, {:.1} % of the pages are still in memory",
            ratio * 100.0
        ),
        "treat these trials as warm; as root the kernel drops more pages, but never pages of a tmpfs or \
         of open files of other processes",
    )
}

pub(crate) fn cache_not_warm(dataset: &str, ratio: f64) -> Finding {
    finding(
        "cache-not-warm",
        dataset,
        format!(
            "after reading all files, only {:.1} % of the pages are in memory",
            ratio * 100.0
        ),
        "the dataset does not fit into the page cache; use fewer or smaller files for warm trials",
    )
}

pub(crate) fn cache_unknown(dataset: &str) -> Finding {
    finding(
        "cache-unknown",
        dataset,
        "the kernel does not report which pages of these files are in memory",
        "the recorded cache state is the requested state; Venturi did not verify it",
    )
}

pub(crate) fn samples_late(timing: Punctuality, interval_s: f64) -> Finding {
    finding(
        "samples-late",
        format!("samples every {interval_s} s"),
        format!(
            "of {} samples, {} were more than half an interval late, at most {:.1} ms; {} are missing",
            timing.taken,
            timing.late,
            timing.worst_ns as f64 * 1e-6,
            timing.missed
        ),
        "rates are correct, because each sample has its own time; for evenly spaced samples, leave a \
         core free or use a longer interval",
    )
}

pub(crate) fn sockets_unavailable(error: &std::io::Error) -> Finding {
    finding(
        "sockets-unavailable",
        "TCP sockets",
        format!("cannot read socket statistics from the kernel: {error}"),
        "use a kernel with CONFIG_INET_DIAG and, outside of network namespaces, CONFIG_PROC_CHILDREN; \
         otherwise remove `tcp` from the counters",
    )
}

pub(crate) fn sockets_not_final(error: &std::io::Error) -> Finding {
    finding(
        "sockets-not-final",
        "TCP sockets",
        format!("cannot receive events about destroyed sockets: {error}"),
        "the last sample of a socket is not its final count, and short connections are missing; run the \
         agent as root, or use a shorter interval",
    )
}

pub(crate) fn sockets_incomplete(losses: Losses, limit: usize) -> Finding {
    let Losses {
        beyond_limit,
        overruns,
        left_out,
    } = losses;
    finding(
        "sockets-incomplete",
        "TCP sockets",
        format!(
            "{beyond_limit} sockets exceeded the limit of {limit} per sample; the kernel lost events \
             about destroyed sockets {overruns} times; {left_out} records were skipped for a slow \
             controller"
        ),
        "treat the counts of these sockets as lower limits; use a longer interval or fewer streams",
    )
}

pub(crate) fn cgroup_not_read(controller: &str, directory: &str) -> Finding {
    finding(
        "cgroup-unreadable",
        directory,
        format!(
            "expected counters of the controller `{controller}` in this directory, found no supported \
             counters"
        ),
        "the counters are missing from the results; for `cpu`, give a directory with cpuacct.usage_user \
         and cpuacct.usage_sys (version 1) or with user_usec and system_usec in cpu.stat (version 2)",
    )
}
