//! Extended block mode (GFD.20 section 5): bytes in blocks that say where they belong, over many connections that stay
//! open between files.
//!
//! Read [`Receiver`] first: it tells which file the bytes of a connection belong to. [`Sender`] is its counterpart.

mod decoder;
mod header;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use decoder::{Decoder, Item, Step};
pub use header::{HEADER_BYTES, Header, MAX_CONNECTIONS};
pub use receiver::{Payload, Received, Receiver, Taken};
pub use sender::{Chunk, Sender};
