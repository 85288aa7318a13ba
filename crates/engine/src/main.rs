//! The one binary of Venturi: a sub-command for each crate.
fn main() { println!("hi"); }
