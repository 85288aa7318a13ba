use super::check;

fn seen(lines: &str) -> Vec<String> {
    lines.split_whitespace().map(String::from).collect()
}

const FORK: &str = "in order\n  a\n  any order\n    in order\n      b1\n      b2\n    c\n  d\n";

#[test]
fn every_order_the_plan_allows_is_accepted() {
    for order in ["a b1 b2 c d", "a b1 c b2 d", "a c b1 b2 d"] {
        assert_eq!(check(FORK, &seen(order)), Ok(()), "{order}");
    }
}

#[test]
fn every_order_the_plan_does_not_allow_is_rejected() {
    for order in [
        "a b2 b1 c d",
        "b1 a b2 c d",
        "a b1 b2 d c",
        "a b1 d b2 c",
        "a b1 b2 c",
        "a b1 b2 c d e",
        "a b1 b2 c d d",
    ] {
        assert!(check(FORK, &seen(order)).is_err(), "{order}");
    }
}

#[test]
fn further_blocks_state_order_across_the_first() {
    let crossed =
        "any order\n  in order\n    a\n    b\n  in order\n    c\n    d\nin order\n  a\n  d\n";
    assert_eq!(check(crossed, &seen("c a b d")), Ok(()));
    assert!(check(crossed, &seen("c d a b")).is_err());
}
