//! Messages on standard error.

use std::fmt::Display;
use std::io::Write as _;

/// Prints a message of a command; ignores a closed standard error.
pub(crate) fn print(command: &str, message: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "venturi {command}: {message}");
}
