//! What a fuzzer asks of `venturi-gridftp`, and of the parsers of `venturi-mover`: each target is a function of bytes that panics when a promise
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
use venturi_mover::fuzzed;

/// Something to be fuzzed.
pub struct Target {
    /// Its name, and that of its folder of the corpus.
    pub name: &'static str,
    /// Panics when a promise is broken.
    pub run: fn(&[u8]),
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target {
        name: "commands",
        run: parsers::commands,
    },
    Target {
        name: "replies",
        run: parsers::replies,
    },
    Target {
        name: "lines",
        run: parsers::lines,
    },
    Target {
        name: "features",
        run: parsers::features,
    },
    Target {
        name: "facts",
        run: parsers::facts,
    },
    Target {
        name: "markers",
        run: parsers::markers,
    },
    Target {
        name: "ranges",
        run: parsers::ranges,
    },
    Target {
        name: "addresses",
        run: parsers::addresses,
    },
    Target {
        name: "timestamps",
        run: parsers::timestamps,
    },
    Target {
        name: "base64",
        run: parsers::base64,
    },
    Target {
        name: "paths",
        run: parsers::paths,
    },
    Target {
        name: "decoder",
        run: blocks::decoder,
    },
    Target {
        name: "blocks",
        run: blocks::blocks,
    },
    Target {
        name: "client",
        run: client::run,
    },
    Target {
        name: "server",
        run: server::run,
    },
    Target {
        name: "third_party",
        run: third_party::run,
    },
    Target {
        name: "grid_maps",
        run: grid::maps,
    },
    Target {
        name: "authorities",
        run: grid::authorities,
    },
    Target {
        name: "credentials",
        run: grid::credentials,
    },
    Target {
        name: "handshake",
        run: grid::handshake,
    },
    Target {
        name: "urls",
        run: fuzzed::urls,
    },
    Target {
        name: "globs",
        run: fuzzed::globs,
    },
    Target {
        name: "lists",
        run: fuzzed::lists,
    },
    Target {
        name: "conditions",
        run: fuzzed::conditions,
    },
    Target {
        name: "digests",
        run: fuzzed::digests,
    },
    Target {
        name: "http_ranges",
        run: fuzzed::http_ranges,
    },
    Target {
        name: "locations",
        run: fuzzed::locations,
    },
    Target {
        name: "properties",
        run: fuzzed::properties,
    },
    Target {
        name: "multistatus",
        run: fuzzed::multistatus,
    },
    Target {
        name: "tpc_markers",
        run: fuzzed::markers,
    },
    Target {
        name: "tokens",
        run: fuzzed::tokens,
    },
    Target {
        name: "users",
        run: fuzzed::users,
    },
];
