//! Timeout for a server.

use super::*;

#[test]
fn a_large_copy_within_a_server_may_take_longer_than_a_reply() {
    assert_eq!(timeout(0), Duration::from_secs(180));
    assert_eq!(timeout(36_000_000_000), Duration::from_secs(180 + 7200));
    assert!(timeout(u64::MAX) > timeout(1 << 50));
}
