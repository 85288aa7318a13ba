//! Faults of the server at its steps.

/// Fault of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerFault {
    /// Fails and reports it.
    Fail(&'static str),
    /// Executes the command, but sends this reply.
    Reply(&'static str),
    /// Reports success, but does nothing.
    Pretend,
    /// Omits the reply and continues.
    Swallow,
    /// Sends half of the reply, then closes the connection.
    Cut,
    /// Sends the reply after the next one.
    Late,
    /// Sends the reply twice.
    Twice,
    /// Sends another number.
    Number,
    /// Sends an invalid line this many times, then continues.
    Flood(usize),
    /// Starts an endless line or reply.
    Endless(&'static str),
    /// Closes the control connection.
    HangUp,
    /// Stops.
    Stall,
    /// Closes the data connection.
    CloseData,
    /// Stops sending and receiving on this data connection.
    StallData,
    /// Omits a block or the end.
    Skip,
    /// Sends a block twice.
    Repeat,
    /// Sends a block with a wrong offset.
    Misplace,
    /// Sends a truncated block.
    Truncate,
    /// Sends an invalid block, or bytes after the end of the file.
    Noise,
}

impl ServerFault {
    /// Returns `true` if the fault is possible at this step.
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
