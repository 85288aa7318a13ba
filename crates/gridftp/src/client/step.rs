//! Whether a reply can be one to its command. Replies have no name: they are matched by their order alone, and one too many, or one
//! that never came, would give all that follow to the wrong command, and so bytes to the wrong file. A reply that its command
//! cannot have shows it, and ends the session.

use super::Tag;
use super::active::Part;
use super::transfers::Transfers;
use crate::{Error, Reply};

/// # Errors
/// A reply that no server gives to such a command.
pub(super) fn check(tag: Tag, reply: &Reply, transfers: &Transfers) -> Result<(), Error> {
    let fits = match (tag, reply.code) {
        // What a login, or a driver, may be answered is theirs to judge.
        (Tag::Login(_) | Tag::Request(_) | Tag::Look(..), _) | (_, 400..=599) => true,
        (Tag::Transfer(key, Part::Transfer), 200 | 225 | 226 | 250) => transfers.has_begun(key),
        (Tag::Transfer(_, Part::Passive), code) => matches!(code, 227 | 229),
        (Tag::Transfer(_, Part::Restart | Part::RenameFrom), code) => (300..=399).contains(&code),
        (Tag::Transfer(_, Part::Size | Part::Modify | Part::Check), 213) => true,
        (Tag::Channel(_), 227 | 229) => true,
        (Tag::Transfer(_, Part::Transfer | Part::Size), _) | (_, 213 | 226 | 227 | 229) => false,
        (_, code) => (200..=299).contains(&code),
    };
    if fits {
        return Ok(());
    }
    Err(Error::Order {
        expected: match tag {
            Tag::Transfer(_, Part::Transfer) => "125 or 150, then 226, for a transfer",
            _ => "replies in the order of the commands",
        },
        found: reply.to_string(),
    })
}
