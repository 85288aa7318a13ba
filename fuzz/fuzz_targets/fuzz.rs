//! One fuzzer for all targets: the environment says which (`VENTURI_FUZZ=replies`), so that one build serves all.

#![no_main]

use std::sync::OnceLock;

use venturi_fuzz::{FuzzTarget, TARGETS};

fn target() -> &'static FuzzTarget {
    static TARGET: OnceLock<&FuzzTarget> = OnceLock::new();
    TARGET.get_or_init(|| {
        let requested_target = std::env::var("VENTURI_FUZZ").unwrap_or_default();
        let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        TARGETS
            .iter()
            .find(|target| target.name == requested_target)
            .unwrap_or_else(|| {
                panic!("expected VENTURI_FUZZ to be one of {names:?}, found `{requested_target}`")
            })
    })
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (target().run)(bytes));
