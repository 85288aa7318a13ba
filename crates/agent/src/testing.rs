//! Plans for the tests of this crate.

use venturi_plan::{Header, Start};

/// A header with these places, as JSON, and nothing else.
pub(crate) fn header(places: &str) -> Header {
    let text = format!(
        r#"{{"format": "venturi-plan", "version": 1, "name": "test", "seed": 1, "scale": 1.0, "scenario": {{}},
            "hosts": {{"me": {{"ssh": null, "memory_bytes": null}}}}, "places": {places}, "datasets": {{}}, "calls": {{}},
            "draws": {{}}, "pools": {{}}, "measure": {{"interval_s": null, "counters": []}},
            "totals": {{"trials": 0, "transfers": 0, "bytes": 0, "disk_bytes": {{}}}}}}"#
    );
    serde_json::from_str(&text).expect("a header")
}

/// The start of an agent of host `me` with the scratch directory `/scratch` and these places.
pub(crate) fn start(places: &str) -> Start {
    Start {
        host: "me".into(),
        scratch: "/scratch".into(),
        epoch_unix_ns: 0,
        header: header(places),
        skip: std::collections::BTreeSet::new(),
        search: Vec::new(),
        sees: std::collections::BTreeMap::new(),
        cgroups: None,
        stay: false,
    }
}
