//! What the server does at its steps instead of what it should.

/// What it does at its step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misdeed {
    /// It fails, and says so.
    Fail(&'static str),
    /// It does what it was asked, and says this instead.
    Say(&'static str),
    /// It says that all went well, and does nothing.
    Pretend,
    /// It says nothing, and goes on.
    Swallow,
    /// It says half of it, and hangs up.
    Cut,
    /// It says it after what comes next.
    Late,
    /// It says it twice.
    Twice,
    /// It says another number.
    Number,
    /// It says this many times a line that is none, then goes on.
    Flood(usize),
    /// It begins a line, or a reply, that has no end.
    Endless(&'static str),
    /// It closes the control connection.
    HangUp,
    /// It does nothing more.
    Stall,
    /// It closes the data connection.
    CloseData,
    /// It leaves this data connection as it is.
    StallData,
    /// It leaves a block, or the end, out.
    Skip,
    /// It sends a block twice.
    Repeat,
    /// It sends it for another place in the file.
    Misplace,
    /// It sends a block that is cut.
    Truncate,
    /// It sends bytes that are no block, or behind the end of the file.
    Noise,
}

impl Misdeed {
    /// Whether there is something to do wrong in it at this step.
    pub fn fits(self, step: &str) -> bool {
        match self {
            Self::Stall | Self::HangUp => true,
            Self::Fail(_) | Self::Pretend => step.starts_with("do"),
            Self::StallData | Self::CloseData => {
                step.starts_with("send") || step.starts_with("take")
            }
            Self::Skip => step.starts_with("send") || step == "take a piece",
            Self::Repeat | Self::Misplace | Self::Truncate | Self::Noise => {
                step.starts_with("send")
            }
            _ => step.starts_with("say"),
        }
    }
}
