//! Stages of a transfer; computed in `stage_builder.rs`, executed by the driver.

use venturi_plan::{Amount, Call, MoverCost};

use super::route_builder::option;
use crate::cost::{TransferLimit, TransferPhase, Why};
use crate::fluid::ClassId;

/// Bytes and files of a transfer. If sizes differ, the first file of a dataset decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Amounts {
    pub first: u64,
    pub files: u64,
    pub bytes: u64,
}

/// All stages of a transfer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stages {
    pub stages: Vec<Stage>,
    /// Unknown costs, counted as 0.
    pub unknown: Vec<&'static str>,
    /// Protocols of both ends.
    pub source: String,
    pub destination: String,
    /// Duration of all stages without load.
    pub unloaded_s: f64,
    /// Timeout of the tool for a transfer without progress.
    pub stall_timeout_s: Option<f64>,
    pub retry_rule: RetryRule,
}

/// Retry rule of a tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RetryRule {
    /// Attempts after the first.
    pub retries: u32,
    first_pause_s: f64,
    /// Equal pauses, instead of doubling each time.
    even: bool,
    pub resumes: bool,
}

/// Maximum pause of any tool (five minutes: the limit of `venturi transfer`).
const MAX_PAUSE_S: f64 = 300.0;

impl RetryRule {
    pub(super) fn new(call: &Call, cost: &MoverCost) -> Self {
        let query = option(call, "retries").or_else(|| option(call, "restarts"));
        let interval_s = option(call, "restart_interval_s");
        Self {
            retries: cost.retries.or(query.map(|it| it as u32)).unwrap_or(0),
            first_pause_s: interval_s.unwrap_or(cost.retry_pause_s.map_or(0.0, Amount::get)),
            even: interval_s.is_some(),
            resumes: cost.resumes.unwrap_or(false),
        }
    }

    /// Return the pause after this number of failed attempts.
    pub fn pause_s(&self, broken: u32) -> f64 {
        if self.even {
            return self.first_pause_s;
        }
        let doubled = 2.0_f64.powi(broken.saturating_sub(1).min(60) as i32);
        (self.first_pause_s * doubled).min(MAX_PAUSE_S.max(self.first_pause_s))
    }
}

/// Stage of a transfer; the next stage starts when it has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Stage {
    /// Time passes.
    Wait { seconds: f64, why: &'static str },
    /// CPU work.
    Work {
        class: ClassId,
        core_s: f64,
        /// Relative scatter between transfers, and the axis of its draws.
        scatter: (f64, usize),
        why: &'static str,
    },
    /// Bytes move; `cap` is the limit of the class in addition to resources.
    Bytes {
        class: ClassId,
        bytes: f64,
        cap: &'static str,
    },
    /// Store the current time.
    Mark,
    /// Wait until this time has passed since the mark.
    NotBefore { seconds: f64, why: &'static str },
}

impl Stage {
    /// Return the name of a stage that moves no bytes.
    pub fn name(&self) -> Option<&'static str> {
        match *self {
            Self::Wait { why, .. } | Self::NotBefore { why, .. } | Self::Work { why, .. } => {
                Some(why)
            }
            Self::Bytes { .. } | Self::Mark => None,
        }
    }

    /// Return whether the stage needs round trips of packets.
    pub fn is_remote(&self) -> bool {
        match self {
            Self::Bytes { .. } => true,
            Self::Wait { why, .. } | Self::NotBefore { why, .. } => [
                Why::Session,
                Why::Redirect,
                Why::Commands,
                Why::SlowStart,
                Why::Check,
            ]
            .into_iter()
            .any(|remote| name_of_why(remote) == *why),
            Self::Work { .. } | Self::Mark => false,
        }
    }
}

/// Check that a phase can use resources; the error has the expected and the found value.
pub(super) fn check_phase(phase: &TransferPhase) -> Result<(), (&'static str, f64)> {
    let amount = |found: f64| {
        let fits = found >= 0.0 && found.is_finite();
        fits.then_some(())
            .ok_or(("only finite times and bytes of at least 0", found))
    };
    match *phase {
        TransferPhase::Delay { seconds, .. } | TransferPhase::NotBefore { seconds, .. } => {
            amount(seconds)
        }
        TransferPhase::ClientCpu { core_s, .. } | TransferPhase::ServerCpu { core_s, .. } => {
            amount(core_s)
        }
        TransferPhase::Bytes {
            bytes, cap, weight, ..
        } => {
            amount(bytes)?;
            if cap.is_nan() || cap < 0.0 {
                return Err(("a window, rates and blocks of at least 0", cap));
            }
            let fits = weight > 0.0 && weight.is_finite();
            fits.then_some(()).ok_or((
                "a fraction of links above 0, from streams and rtt_exponent",
                weight,
            ))
        }
        TransferPhase::Mark => Ok(()),
    }
}

pub(super) const fn name_of_why(why: Why) -> &'static str {
    match why {
        Why::Start => "start",
        Why::Session => "session",
        Why::Authentication => "authentication",
        Why::Redirect => "redirect",
        Why::Commands => "commands",
        Why::File => "file",
        Why::SlowStart => "slow_start",
        Why::Check => "check",
    }
}

pub(super) const fn name_of_bottleneck(bottleneck: TransferLimit) -> &'static str {
    match bottleneck {
        TransferLimit::None => "nothing",
        TransferLimit::Window => "window",
        TransferLimit::Ahead => "ahead",
        TransferLimit::Pacing => "pacing",
        TransferLimit::Loss => "loss",
        TransferLimit::ClientCpu => "client_cpu",
        TransferLimit::ServerCpu => "server_cpu",
        TransferLimit::ServerProcess => "server_process",
        TransferLimit::Block => "block",
    }
}
