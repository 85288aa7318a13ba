//! Directories on data connections: as much of them as fits, then more.

use std::time::Duration;

use super::transfer::{Kind, Style, Transfer};
use super::{Answer, Refusal, Server, State};
use crate::mode_e::Sender;
use crate::{Entry, Kind as EntryKind, Mode, write_timestamp};

impl Server {
    /// More of a directory while it is sent.
    pub(super) fn listed(&mut self, now: Duration, answer: Answer) {
        self.touch(now);
        let State::Transferring(mut transfer) = std::mem::replace(&mut self.state, State::Idle)
        else {
            return;
        };
        transfer.asked = false;
        // The time that a disk takes is not the client's.
        transfer.last.touch(now);
        match answer {
            Answer::Entries { entries, more } => {
                self.take_entries(&mut transfer, &entries, more);
                self.state = State::Transferring(transfer);
            }
            Answer::Refused(refusal) => self.fail(&refusal.reply()),
            _ => self.fail(&Refusal::Internal.reply()),
        }
    }

    pub(super) fn take_entries(&self, transfer: &mut Transfer, entries: &[Entry], more: bool) {
        let wanted = self.wanted_facts();
        let Kind::List(style) = transfer.kind else {
            return;
        };
        for entry in entries.iter().filter(|entry| entry.is_tellable()) {
            let line = match style {
                Style::Facts => entry.line(|fact| wanted.contains(&fact.to_ascii_lowercase())),
                _ if !entry.is_inside() => continue,
                Style::Long => long_line(entry),
                Style::Names => entry.name.clone(),
            };
            transfer.listing.extend(line);
            transfer.listing.extend(b"\r\n");
        }
        transfer.more = more;
    }
}

/// Gives lines that have come to the sender; in MODE S they are taken straight.
pub(super) fn feed_listing(transfer: &mut Transfer, sender: Option<&mut Sender>, mode: Mode) {
    let held = transfer.listing.len() as u64;
    if let (Mode::Extended, Some(sender), Some(file)) = (mode, sender, transfer.file) {
        let end = transfer.listed_bytes + held;
        let given = transfer.position;
        if end > given || !transfer.more {
            sender.extend(file, given..end, !transfer.more);
            transfer.position = end;
        }
    }
}

/// A line as `ls -l` writes it, which is what programs that know LIST read.
fn long_line(entry: &Entry) -> Vec<u8> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let kind = match entry.kind {
        Some(EntryKind::Directory) => 'd',
        Some(EntryKind::Link) => 'l',
        _ => '-',
    };
    let mode = entry
        .mode
        .unwrap_or(if kind == 'd' { 0o755 } else { 0o644 });
    let bits = (0..9).map(|bit| {
        if mode >> (8 - bit) & 1 == 1 {
            char::from(b"rwx"[bit % 3])
        } else {
            '-'
        }
    });
    let bits: String = bits.collect();
    let time = write_timestamp(entry.modify_s.unwrap_or(0));
    let month: usize = time[4..6].parse().unwrap_or(1);
    // With the year and without the time of day: which of them `ls` shows depends on today.
    let date = format!(
        "{} {:>2}  {}",
        MONTHS[(month + 11) % 12],
        &time[6..8],
        &time[..4]
    );
    let size = entry.size_bytes.unwrap_or(0);
    let mut line = format!("{kind}{bits}   1 user     group    {size:>12} {date} ").into_bytes();
    line.extend(&entry.name);
    if let Some(target) = &entry.target {
        line.extend(b" -> ");
        line.extend(target);
    }
    line
}
