//! All doubts that an agent can have about a measurement, one function each: what was seen, and what to do.

use std::path::Path;
use std::time::Duration;

use venturi_plan::Finding;

use crate::barrier::Method;
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

pub(crate) fn children_left_behind(call: &str) -> Finding {
    finding(
        "children-left-behind",
        call,
        "the tool ended, but processes that it had started were still running; they were killed after the trial",
        "what they still did is not in the measured time: let the tool wait for its children",
    )
}

pub(crate) fn released_by_pipe(program: &Path, method_of_host: Method) -> Finding {
    let reason = match method_of_host {
        Method::Pipe => "this host does not permit tracing",
        Method::ExecStop => {
            "the program has set-user-ID, set-group-ID or file capabilities, which tracing would take away"
        }
    };
    finding(
        "released-by-pipe",
        program.display().to_string(),
        format!("{reason}: the process was released before its exec, not after it"),
        "the time of exec and of loading the image lies inside the measured time; compare only with runs released alike",
    )
}

pub(crate) fn start_spread(spread_s: f64, count: usize) -> Finding {
    finding(
        "start-spread",
        format!("{count} transfers"),
        format!(
            "released together, the first and the last were {:.3} ms apart",
            spread_s * 1e3
        ),
        "the host was busy at the release; look for other load, or prolong the transfers",
    )
}

pub(crate) fn large_output(call: &str, bytes: u64) -> Finding {
    finding(
        "large-output",
        call,
        format!(
            "the tool printed {bytes} bytes on one stream, which were held in memory while it ran"
        ),
        "make the tool quieter: printing takes time, and the memory is missing in the page cache",
    )
}

pub(crate) fn receiver_not_checked(destination: &str) -> Finding {
    finding(
        "receiver-not-checked",
        destination,
        "the destination is on another host, so this agent cannot see what the receiver holds",
        "check at the receiver, or believe the exit code of the tool",
    )
}

pub(crate) fn receiver_unreadable(path: &Path, error: &std::io::Error) -> Finding {
    finding(
        "receiver-unreadable",
        path.display().to_string(),
        format!("after the transfer the destination cannot be read: {error}"),
        "see to the permissions; whether all bytes arrived is not known",
    )
}

pub(crate) fn receiver_holds_more(path: &Path, asked: u64, held: u64) -> Finding {
    finding(
        "receiver-holds-more",
        path.display().to_string(),
        format!("{asked} bytes were asked for, the receiver holds {held}"),
        "see what else is at the destination; the rate is computed from the bytes asked for",
    )
}

pub(crate) fn receiver_late(path: &Path, asked: u64, first: u64, waited: Duration) -> Finding {
    finding(
        "receiver-late",
        path.display().to_string(),
        format!(
            "when the tool had ended well, the server had {first} of {asked} bytes; the rest came within {:.0} ms",
            waited.as_secs_f64() * 1e3
        ),
        "the measured time ends before all bytes are at the receiver: compare only with transfers through the same service",
    )
}

pub(crate) fn destination_not_removed(path: &Path, reason: &str) -> Finding {
    finding(
        "destination-not-removed",
        path.display().to_string(),
        reason.to_owned(),
        "remove it by hand if it is not needed: it takes up space, and the next trial may find it there",
    )
}

pub(crate) fn prepare_failed(dataset: &str, error: &str) -> Finding {
    finding(
        "prepare-failed",
        dataset,
        error.to_owned(),
        "the trial counts as failed and done, and none of its transfers was begun: mend the cause and run the scenario again",
    )
}

pub(crate) fn prepare_stalled(dataset: &str, patience_s: f64) -> Finding {
    let error = format!(
        "expected the file system to go on, found it still for {patience_s} s, the longest time that a transfer of this plan has"
    );
    prepare_failed(dataset, &error)
}

pub(crate) fn settling_stalled(call: &str, patience_s: f64) -> Finding {
    finding(
        "receiver-unreadable",
        call,
        format!(
            "expected to look at what the receiver holds and to remove it, found its file system still for {patience_s} s, the longest time that a \
             transfer of this plan has"
        ),
        "see whether the server of that file system runs; what was to be removed may still be there",
    )
}

pub(crate) fn drop_failed(dataset: &str, error: &str) -> Finding {
    finding(
        "cache-not-dropped",
        dataset,
        format!("the cache could not be dropped: {error}"),
        "take these trials for warm; run as root on a local file system for cold ones",
    )
}

pub(crate) fn cache_not_dropped(dataset: &str, ratio: f64, method: &str) -> Finding {
    finding(
        "cache-not-dropped",
        dataset,
        format!(
            "after dropping by `{method}`, {:.1} % of the pages are still in memory",
            ratio * 100.0
        ),
        "take these trials for warm; as root the kernel drops more, but never a tmpfs or what others have open",
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
        "the set does not fit into the page cache; take fewer or smaller files for a warm trial",
    )
}

pub(crate) fn cache_unknown(dataset: &str) -> Finding {
    finding(
        "cache-unknown",
        dataset,
        "the kernel does not tell which pages of these files are in memory",
        "the state of the cache is what was asked for, not what was seen",
    )
}

pub(crate) fn samples_late(told: Punctuality, interval_s: f64) -> Finding {
    finding(
        "samples-late",
        format!("samples every {interval_s} s"),
        format!(
            "of {} samples {} came more than half an interval late, the worst by {:.1} ms; {} are missing",
            told.taken,
            told.late,
            told.worst_ns as f64 * 1e-6,
            told.missed
        ),
        "rates are right, since each sample has its own time; for a finer series leave a core free or take a longer interval",
    )
}

pub(crate) fn sockets_not_seen(error: &std::io::Error) -> Finding {
    finding(
        "sockets-not-seen",
        "TCP sockets",
        format!("the kernel does not tell: {error}"),
        "it needs CONFIG_INET_DIAG and, on a machine's own network, CONFIG_PROC_CHILDREN; without them leave `tcp` out",
    )
}

pub(crate) fn sockets_not_final(error: &std::io::Error) -> Finding {
    finding(
        "sockets-not-final",
        "TCP sockets",
        format!("news of destroyed sockets cannot be had: {error}"),
        "the last sample of a socket is not its final count, and short connections are missing: run the agent as root, or \
         sample more often",
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
            "{beyond_limit} were beyond the limit of {limit} a sample; {overruns} times the kernel had no room for news of \
             destroyed ones; {left_out} records were left out for a slow controller"
        ),
        "take counts of these sockets for lower bounds; sample less often, or use fewer streams",
    )
}

pub(crate) fn cgroup_not_read(controller: &str, folder: &str) -> Finding {
    finding(
        "cgroup-not-read",
        folder,
        format!(
            "expected counters of the controller `{controller}` in it, found none that this agent knows"
        ),
        "its counters are missing; `cpu` needs a folder with cpuacct.usage_user and cpuacct.usage_sys (version 1) or with \
         user_usec and system_usec in cpu.stat (version 2)",
    )
}
