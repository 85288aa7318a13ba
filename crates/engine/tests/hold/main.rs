//! The ground of a lab from outside: real namespaces, entered as the controller enters them.

mod ground;
mod life;
mod refusals;
mod testkit;
