//! Tests of the shell of a host from outside: a real process that starts real processes.

mod files;
mod life;
mod network;
mod programs;
mod testkit;
