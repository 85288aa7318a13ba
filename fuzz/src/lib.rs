//! What a fuzzer asks of `venturi-gridftp`, and of the parsers of `venturi-transfer`: each target is a function of bytes that panics when a promise
//! is broken.
//!
//! Left out on purpose: the fuzzer. `make fuzz` runs libFuzzer on [`TARGETS`]; `tests/replay.rs` gives them the kept corpus,
//! and a short random run, with every `cargo test`.
//!
//! Read [`client`] first: a session is driven by whatever the bytes say, and held to what its driver was promised.

#![deny(missing_docs)]

pub mod blocks;
pub mod client;
mod draws;
pub mod grid;
pub mod parsers;
pub mod server;
pub mod third_party;
mod toy;

pub use draws::Draws;
use venturi_transfer::fuzzed;

/// Something to be fuzzed.
pub struct FuzzTarget {
    /// Its name, and that of its folder of the corpus.
    pub name: &'static str,
    /// Panics when a promise is broken.
    pub run: fn(&[u8]),
}

/// All of them.
pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget {
        name: "commands",
        run: parsers::commands,
    },
    FuzzTarget {
        name: "replies",
        run: parsers::replies,
    },
    FuzzTarget {
        name: "lines",
        run: parsers::lines,
    },
    FuzzTarget {
        name: "features",
        run: parsers::features,
    },
    FuzzTarget {
        name: "facts",
        run: parsers::facts,
    },
    FuzzTarget {
        name: "markers",
        run: parsers::markers,
    },
    FuzzTarget {
        name: "ranges",
        run: parsers::ranges,
    },
    FuzzTarget {
        name: "addresses",
        run: parsers::addresses,
    },
    FuzzTarget {
        name: "timestamps",
        run: parsers::timestamps,
    },
    FuzzTarget {
        name: "base64",
        run: parsers::base64,
    },
    FuzzTarget {
        name: "paths",
        run: parsers::paths,
    },
    FuzzTarget {
        name: "decoder",
        run: blocks::decoder,
    },
    FuzzTarget {
        name: "blocks",
        run: blocks::blocks,
    },
    FuzzTarget {
        name: "client",
        run: client::run,
    },
    FuzzTarget {
        name: "server",
        run: server::run,
    },
    FuzzTarget {
        name: "third_party",
        run: third_party::run,
    },
    FuzzTarget {
        name: "grid_maps",
        run: grid::maps,
    },
    FuzzTarget {
        name: "authorities",
        run: grid::trust_store,
    },
    FuzzTarget {
        name: "credentials",
        run: grid::credentials,
    },
    FuzzTarget {
        name: "handshake",
        run: grid::handshake,
    },
    FuzzTarget {
        name: "urls",
        run: fuzzed::urls,
    },
    FuzzTarget {
        name: "globs",
        run: fuzzed::globs,
    },
    FuzzTarget {
        name: "lists",
        run: fuzzed::lists,
    },
    FuzzTarget {
        name: "conditions",
        run: fuzzed::conditions,
    },
    FuzzTarget {
        name: "digests",
        run: fuzzed::digests,
    },
    FuzzTarget {
        name: "http_ranges",
        run: fuzzed::http_ranges,
    },
    FuzzTarget {
        name: "locations",
        run: fuzzed::locations,
    },
    FuzzTarget {
        name: "properties",
        run: fuzzed::properties,
    },
    FuzzTarget {
        name: "multistatus",
        run: fuzzed::multistatus,
    },
    FuzzTarget {
        name: "tpc_markers",
        run: fuzzed::markers,
    },
    FuzzTarget {
        name: "tokens",
        run: fuzzed::tokens,
    },
    FuzzTarget {
        name: "users",
        run: fuzzed::users,
    },
];
