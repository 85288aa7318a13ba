//! Extended block mode (GFD.20 section 5): blocks with file offsets, over several connections that
//! stay open between files.
//!
//! Read [`BlockReceiver`] first: it assigns the bytes of a connection to files. [`BlockSender`] is
//! its counterpart.

mod decoder;
mod header;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use decoder::{DecodeStep, DecodedItem, Decoder};
pub use header::{BlockHeader, HEADER_BYTES, MAX_CONNECTIONS};
pub use receiver::{BlockReceiver, Payload, ReceiveResult, ReceivedFile};
pub use sender::{BlockSender, OutgoingBlock};
