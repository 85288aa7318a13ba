//! Sentences for people, on standard error.

use std::fmt::Display;
use std::io::Write as _;

/// Says a sentence of a command; where nobody can hear it, it is not said.
pub(crate) fn say(command: &str, what: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "venturi {command}: {what}");
}
