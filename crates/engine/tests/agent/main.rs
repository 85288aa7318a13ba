//! The agent from outside: a real process that starts real processes.

mod bare;
mod life;
mod scratch;
mod testkit;
mod transfers;
