//! The agent from outside: a real process that starts real processes.

mod life;
mod testkit;
mod transfers;
