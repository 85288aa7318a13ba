//! Plausibility check of replies. Replies are matched by order alone: a missing or extra reply
//! would shift all later ones, and thus bytes to the wrong file. An impossible reply code ends the
//! session.

use super::Tag;
use super::active::TransferCommand;
use super::transfers::Transfers;
use crate::{FtpError, FtpReply};

/// Checks that a reply is possible for its command.
///
/// # Errors
/// If the reply is impossible.
pub(super) fn check(tag: Tag, reply: &FtpReply, transfers: &Transfers) -> Result<(), FtpError> {
    let fits = match (tag, reply.code) {
        // The login and the driver check their own replies.
        (Tag::Login(_) | Tag::Request(_) | Tag::Stat(..), _) | (_, 400..=599) => true,
        (Tag::Transfer(key, TransferCommand::Transfer), 200 | 225 | 226 | 250) => {
            transfers.has_started(key)
        }
        (Tag::Transfer(_, TransferCommand::Passive), code) => matches!(code, 227 | 229),
        (Tag::Transfer(_, TransferCommand::Restart | TransferCommand::RenameFrom), code) => {
            (300..=399).contains(&code)
        }
        (
            Tag::Transfer(
                _,
                TransferCommand::Size | TransferCommand::Modify | TransferCommand::Check,
            ),
            213,
        ) => true,
        (Tag::Channel(_), 227 | 229) => true,
        (Tag::Transfer(_, TransferCommand::Transfer | TransferCommand::Size), _)
        | (_, 213 | 226 | 227 | 229) => false,
        (_, code) => (200..=299).contains(&code),
    };
    if fits {
        return Ok(());
    }
    Err(FtpError::Order {
        expected: match tag {
            Tag::Transfer(_, TransferCommand::Transfer) => "125 or 150, then 226, for a transfer",
            _ => "replies in the order of the commands",
        },
        found: reply.to_string(),
    })
}
