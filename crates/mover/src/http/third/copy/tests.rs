//! How long a server may take.

use super::*;

#[test]
fn a_large_copy_within_a_server_may_take_longer_than_an_answer() {
    assert_eq!(patience(0), Duration::from_secs(180));
    assert_eq!(patience(36_000_000_000), Duration::from_secs(180 + 7200));
    assert!(patience(u64::MAX) > patience(1 << 50));
}
