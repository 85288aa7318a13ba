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
                self.take_entries(now, &mut transfer, &entries, more);
                self.state = State::Transferring(transfer);
            }
            Answer::Refused(refusal) => self.fail(&refusal.reply()),
            _ => self.fail(&Refusal::Internal.reply()),
        }
    }

    pub(super) fn take_entries(
        &self,
        now: Duration,
        transfer: &mut Transfer,
        entries: &[Entry],
        more: bool,
    ) {
        let now_s = i64::try_from(self.unix_s(now)).unwrap_or(i64::MAX);
        let wanted = self.wanted_facts();
        let Kind::List(style) = transfer.kind else {
            return;
        };
        for entry in entries.iter().filter(|entry| entry.is_tellable()) {
            let line = match style {
                Style::Facts => entry.line(|fact| wanted.contains(&fact.to_ascii_lowercase())),
                _ if !entry.is_inside() => continue,
                Style::Long => long_line(entry, now_s),
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

const HALF_A_YEAR_S: i64 = 365 * 86400 / 2;

/// A line as `ls -l` writes it, which is what programs that know LIST read.
fn long_line(entry: &Entry, now_s: i64) -> Vec<u8> {
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
    // As `ls` does: of the last half year with the time of day, else with the year.
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
    fn the_time_of_day_is_told_of_the_last_half_year() {
        let entry = Entry::parse(b"Type=file;Size=7;Modify=20260301040506; a b").expect("an entry");
        let modify_s = entry.modify_s.expect("a time");
        let told = |now_s| {
            let line = String::from_utf8(long_line(&entry, now_s)).expect("text");
            line.strip_prefix("-rw-r--r--   1 user     group               7 ")
                .expect(&line)
                .to_owned()
        };
        assert_eq!(told(modify_s), "Mar 01 04:05 a b");
        assert_eq!(told(modify_s + HALF_A_YEAR_S - 1), "Mar 01 04:05 a b");
        assert_eq!(told(modify_s + HALF_A_YEAR_S), "Mar 01  2026 a b");
        assert_eq!(told(modify_s - 1), "Mar 01  2026 a b");
    }
}
