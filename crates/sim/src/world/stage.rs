//! What a transfer does, as a list of stages; worked out in `sketch.rs`, gone through by the driver.

use venturi_plan::{Amount, Call, MoverCost};

use super::passage::option;
use crate::cost::{Bound, Phase, Why};
use crate::fluid::ClassId;

/// How much a transfer moves; the first file of a data set decides on sizes that differ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Amounts {
    pub first: u64,
    pub files: u64,
    pub bytes: u64,
}

/// All that a transfer does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stages {
    pub stages: Vec<Stage>,
    /// Costs that nobody knows and that count nothing.
    pub unknown: Vec<&'static str>,
    /// The protocols of both ends.
    pub source: String,
    pub destination: String,
    /// What all of it takes while nothing else moves.
    pub alone_s: f64,
    /// Time without a byte after which the tool gives up.
    pub patience_s: Option<f64>,
    pub tries: Tries,
}

/// What a tool does when an attempt broke.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Tries {
    /// Attempts after the first.
    pub retries: u32,
    first_pause_s: f64,
    /// All pauses are alike, instead of each twice as long as the one before.
    even: bool,
    pub resumes: bool,
}

/// No tool waits longer than so by itself (five minutes: the limit of `venturi transfer`).
const LONGEST_PAUSE_S: f64 = 300.0;

impl Tries {
    pub(super) fn new(call: &Call, cost: &MoverCost) -> Self {
        let asked = option(call, "retries").or_else(|| option(call, "restarts"));
        let interval_s = option(call, "restart_interval_s");
        Self {
            retries: cost.retries.or(asked.map(|it| it as u32)).unwrap_or(0),
            first_pause_s: interval_s.unwrap_or(cost.retry_pause_s.map_or(0.0, Amount::get)),
            even: interval_s.is_some(),
            resumes: cost.resumes.unwrap_or(false),
        }
    }

    /// Before the attempt after so many have broken.
    pub fn pause_s(&self, broken: u32) -> f64 {
        if self.even {
            return self.first_pause_s;
        }
        let doubled = 2.0_f64.powi(broken.saturating_sub(1).min(60) as i32);
        (self.first_pause_s * doubled).min(LONGEST_PAUSE_S.max(self.first_pause_s))
    }
}

/// One thing that a transfer does; the next begins when it has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Stage {
    /// Time passes.
    Wait { seconds: f64, why: &'static str },
    /// A processor works.
    Work {
        class: ClassId,
        core_s: f64,
        /// How much that differs from one to the next, and on which axis they are drawn.
        scatter: (f64, usize),
        why: &'static str,
    },
    /// Bytes pass; `cap` is what its class is bound by besides resources.
    Bytes {
        class: ClassId,
        bytes: f64,
        cap: &'static str,
    },
    /// Remember the present moment.
    Mark,
    /// Wait until so much time has passed since then.
    NotBefore { seconds: f64, why: &'static str },
}

impl Stage {
    /// What the time of a stage is called that moves no bytes.
    pub fn name(&self) -> Option<&'static str> {
        match *self {
            Self::Wait { why, .. } | Self::NotBefore { why, .. } | Self::Work { why, .. } => {
                Some(why)
            }
            Self::Bytes { .. } | Self::Mark => None,
        }
    }

    /// Whether it needs packets to go there and back.
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

/// What a phase must be like to be put on resources: what was expected, and what was found.
pub(super) fn check_phase(phase: &Phase) -> Result<(), (&'static str, f64)> {
    let amount = |found: f64| {
        let fits = found >= 0.0 && found.is_finite();
        fits.then_some(())
            .ok_or(("only finite times and bytes of at least 0", found))
    };
    match *phase {
        Phase::Delay { seconds, .. } | Phase::NotBefore { seconds, .. } => amount(seconds),
        Phase::ClientCpu { core_s, .. } | Phase::ServerCpu { core_s, .. } => amount(core_s),
        Phase::Bytes {
            bytes, cap, weight, ..
        } => {
            amount(bytes)?;
            if cap.is_nan() || cap < 0.0 {
                return Err(("a window, rates and blocks of at least 0", cap));
            }
            let fits = weight > 0.0 && weight.is_finite();
            fits.then_some(()).ok_or((
                "a share of links above 0, from streams and rtt_exponent",
                weight,
            ))
        }
        Phase::Mark => Ok(()),
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

pub(super) const fn name_of_bound(bound: Bound) -> &'static str {
    match bound {
        Bound::None => "nothing",
        Bound::Window => "window",
        Bound::Ahead => "ahead",
        Bound::Pacing => "pacing",
        Bound::Loss => "loss",
        Bound::ClientCpu => "client_cpu",
        Bound::ServerCpu => "server_cpu",
        Bound::ServerProcess => "server_process",
        Bound::Block => "block",
    }
}
