//! Listings on data connections, in parts.

use std::time::Duration;

use super::transfer::{ListFormat, ServerTransfer, TransferKind};
use super::{DriverResponse, GlobusError, Server, SessionState};
use crate::mode_e::BlockSender;
use crate::{EntryKind, ListEntry, Mode, write_timestamp};

impl Server {
    /// Handles more entries of a directory during its transfer.
    pub(super) fn listed(&mut self, now: Duration, response: DriverResponse) {
        self.touch(now);
        let SessionState::Transferring(mut transfer) =
            std::mem::replace(&mut self.state, SessionState::Idle)
        else {
            return;
        };
        transfer.requested = false;
        // Disk time does not count against the client.
        transfer.last.touch(now);
        match response {
            DriverResponse::Entries { entries, more } => {
                self.take_entries(now, &mut transfer, &entries, more);
                self.state = SessionState::Transferring(transfer);
            }
            DriverResponse::Failed(error) => self.fail(&error.reply()),
            _ => self.fail(&GlobusError::Internal.reply()),
        }
    }

    pub(super) fn take_entries(
        &self,
        now: Duration,
        transfer: &mut ServerTransfer,
        entries: &[ListEntry],
        more: bool,
    ) {
        let now_s = i64::try_from(self.unix_s(now)).unwrap_or(i64::MAX);
        let selected = self.selected_facts();
        let TransferKind::List(style) = transfer.kind else {
            return;
        };
        for entry in entries.iter().filter(|entry| entry.fits_one_line()) {
            let line = match style {
                ListFormat::Facts => {
                    entry.line(|fact| selected.contains(&fact.to_ascii_lowercase()))
                }
                _ if !entry.is_inside() => continue,
                ListFormat::Long => format_long_line(entry, now_s),
                ListFormat::Names => entry.name.clone(),
            };
            transfer.listing.extend(line);
            transfer.listing.extend(b"\r\n");
        }
        transfer.more = more;
    }
}

/// Passes available lines to the sender. In MODE S they are sent directly.
pub(super) fn feed_listing(
    transfer: &mut ServerTransfer,
    sender: Option<&mut BlockSender>,
    mode: Mode,
) {
    let pending_bytes = transfer.listing.len() as u64;
    if let (Mode::Extended, Some(sender), Some(file)) = (mode, sender, transfer.file) {
        let end = transfer.listed_bytes + pending_bytes;
        let sent_end = transfer.position;
        if end > sent_end || !transfer.more {
            sender.extend(file, sent_end..end, !transfer.more);
            transfer.position = end;
        }
    }
}

const HALF_A_YEAR_S: i64 = 365 * 86400 / 2;

/// Formats a line like `ls -l`, which LIST clients expect.
fn format_long_line(entry: &ListEntry, now_s: i64) -> Vec<u8> {
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
    let modify_s = entry.modify_s.unwrap_or(0);
    let time = write_timestamp(modify_s);
    let month: usize = time[4..6].parse().unwrap_or(1);
    // Like `ls`: with the time of day for the last half year, otherwise with the year.
    let last = if (0..HALF_A_YEAR_S).contains(&now_s.saturating_sub(modify_s)) {
        format!("{}:{}", &time[8..10], &time[10..12])
    } else {
        format!(" {}", &time[..4])
    };
    let date = format!("{} {:>2} {last}", MONTHS[(month + 11) % 12], &time[6..8]);
    let size = entry.size_bytes.unwrap_or(0);
    let mut line = format!("{kind}{bits}   1 user     group    {size:>12} {date} ").into_bytes();
    line.extend(&entry.name);
    if let Some(target) = &entry.target {
        line.extend(b" -> ");
        line.extend(target);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_show_the_time_of_day_for_the_last_half_year() {
        let entry =
            ListEntry::parse(b"Type=file;Size=7;Modify=20260301040506; a b").expect("an entry");
        let modify_s = entry.modify_s.expect("a time");
        let reported = |now_s| {
            let line = String::from_utf8(format_long_line(&entry, now_s)).expect("text");
            line.strip_prefix("-rw-r--r--   1 user     group               7 ")
                .expect(&line)
                .to_owned()
        };
        assert_eq!(reported(modify_s), "Mar 01 04:05 a b");
        assert_eq!(reported(modify_s + HALF_A_YEAR_S - 1), "Mar 01 04:05 a b");
        assert_eq!(reported(modify_s + HALF_A_YEAR_S), "Mar 01  2026 a b");
        assert_eq!(reported(modify_s - 1), "Mar 01  2026 a b");
    }
}
