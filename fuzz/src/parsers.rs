//! Parsers: no bytes make them panic, what they read they write so that it is read as the same, and what they hold is bounded.

use std::collections::BTreeSet;

use venturi_gridftp::address::{
    Passive, parse_either, parse_extended, parse_host_port, write_either, write_extended,
};
use venturi_gridftp::{
    ByteRanges, EntryKind, Features, FtpCommand, FtpLine, FtpReply, LineBuffer, ListEntry,
    MAX_LINE_BYTES, MAX_PATH_BYTES, MAX_REPLY_BYTES, MAX_REPLY_LINES, Path, ProgressMarker,
    ReplyCollector, ReplyEvent, parse_list, parse_timestamp, write_timestamp,
};

use crate::Draws;

/// A line as a command.
pub fn commands(bytes: &[u8]) {
    for line in bytes.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.contains(&b'\r') {
            continue;
        }
        if let Ok(command) = FtpCommand::parse(line) {
            let text = command.text();
            assert!(
                !text.contains(&b'\n') && !text.contains(&b'\r'),
                "one line: {command:?}"
            );
            assert_eq!(
                FtpCommand::parse(&text).as_ref(),
                Ok(&command),
                "{}",
                text.escape_ascii()
            );
        }
    }
}

/// Lines as replies, some of them passed on one by one.
pub fn replies(bytes: &[u8]) {
    let mut draws = Draws::new(bytes);
    let streamed = draws.coin();
    let mut collector = ReplyCollector::default();
    for line in draws.rest().split(|&byte| byte == b'\n') {
        let line: Vec<u8> = line.iter().copied().filter(|&byte| byte != b'\r').collect();
        match collector.line(&line, streamed) {
            Err(_) => return,
            Ok(ReplyEvent::Nothing) => {}
            Ok(ReplyEvent::Line(text)) => assert!(streamed && text.len() <= line.len()),
            Ok(ReplyEvent::Reply(reply)) => check_reply(&reply, streamed),
        }
    }
}

fn check_reply(reply: &FtpReply, streamed: bool) {
    assert!((100..700).contains(&reply.code));
    assert!((1..=MAX_REPLY_LINES).contains(&reply.lines.len()));
    assert!(reply.lines.iter().map(Vec::len).sum::<usize>() <= MAX_REPLY_BYTES);
    let shown = reply.to_string();
    assert!(shown.is_ascii() && shown.len() < 4000, "fit to be shown");
    let _ = (reply.globus_error(), reply.field(b"ADAT="));
    let mut collector = ReplyCollector::default();
    let written = reply.write();
    let lines: Vec<&[u8]> = written.split(|&byte| byte == b'\n').collect();
    let (last, lines) = lines.split_last().expect("a line end at the end");
    assert!(last.is_empty());
    let mut read = Vec::new();
    for line in lines {
        let line = line.strip_suffix(b"\r").expect("CR before LF");
        if let ReplyEvent::Reply(reply) = collector.line(line, false).expect("within the bounds") {
            read.push(reply);
        }
    }
    assert!(
        streamed || read == std::slice::from_ref(reply),
        "{reply:?} is read as {read:?}"
    );
}

/// Bytes as lines: the same however they are cut, and no more than one line is held.
pub fn lines(bytes: &[u8]) {
    let mut draws = Draws::new(bytes);
    let mut buffer = LineBuffer::default();
    let (mut all, mut found) = (Vec::new(), Vec::new());
    while !draws.is_over() {
        let chunk = match draws.below(4) {
            // Lines that are too long cannot be typed byte by byte.
            0 => vec![draws.byte(); draws.below(256) * 300],
            1 => b"\r\n".to_vec(),
            _ => draws.bytes().to_vec(),
        };
        if all.len() > 4 * MAX_LINE_BYTES {
            break;
        }
        buffer.push(&chunk);
        all.extend(chunk);
        if draws.coin() {
            assert_eq!(buffer.has_line(), buffer.is_next(|_| true));
            found.extend(std::iter::from_fn(|| buffer.next()));
            assert!(buffer.len() <= MAX_LINE_BYTES && !buffer.has_line());
        }
    }
    found.extend(std::iter::from_fn(|| buffer.next()));
    let mut expected: Vec<FtpLine> = all.split(|&byte| byte == b'\n').map(to_line).collect();
    expected.pop();
    assert!(
        found == expected,
        "{} lines instead of {}",
        found.len(),
        expected.len()
    );
}

fn to_line(line: &[u8]) -> FtpLine {
    if line.len() > MAX_LINE_BYTES {
        FtpLine::TooLong
    } else {
        FtpLine::Complete(line.strip_suffix(b"\r").unwrap_or(line).to_vec())
    }
}

/// Replies as what a server can do.
pub fn features(bytes: &[u8]) {
    let mut draws = Draws::new(bytes);
    let mut features = Features::default();
    while !draws.is_over() {
        let lines = draws
            .bytes()
            .split(|&byte| byte == b'\n')
            .map(<[u8]>::to_vec)
            .collect();
        let reply = FtpReply {
            code: 200 + u16::from(draws.byte()),
            lines,
        };
        match draws.below(3) {
            0 => features.add_greeting(&reply),
            1 => features.add_features(&reply),
            _ => features.add_commands(&reply),
        }
    }
    for name in features.checksums() {
        assert!(!name.contains([';', ',']));
    }
    let _ = (
        features.is_globus(),
        features.has("MLST"),
        features.value("MLST"),
    );
}

/// A line of a listing, for programs or for people.
pub fn facts(bytes: &[u8]) {
    if let Some(entry) = parse_list(bytes) {
        assert!(
            !entry.name.is_empty() && bytes.ends_with(entry.target.as_ref().unwrap_or(&entry.name))
        );
        assert!(entry.modify_s.is_none() && entry.mode.is_none_or(|mode| mode <= 0o777));
    }
    let Ok(entry) = ListEntry::parse(bytes) else {
        return;
    };
    assert!(!entry.name.is_empty() && !entry.name.iter().any(|byte| b"\r\n\0".contains(byte)));
    if let Ok(name) = entry.safe_name() {
        assert!(!name.contains(&b'/') && name != b"." && name != b"..");
    }
    let _ = (entry.is_inside(), entry.fits_one_line());
    // Kinds that are not known are kept as they are shown, which is not how they are written.
    if !matches!(entry.kind, Some(EntryKind::Other(_))) {
        let line = entry.line(|_| true);
        assert_eq!(
            ListEntry::parse(&line).as_ref(),
            Ok(&entry),
            "{}",
            line.escape_ascii()
        );
    }
}

/// Preliminary replies as markers.
pub fn markers(bytes: &[u8]) {
    let mut draws = Draws::new(bytes);
    let code = 110 + draws.below(5) as u16;
    let lines = draws
        .rest()
        .split(|&byte| byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    let Ok(Some(progress)) = ProgressMarker::parse(&FtpReply { code, lines }) else {
        return;
    };
    let again = ProgressMarker::parse(&progress.reply());
    match (progress, again) {
        (ProgressMarker::Performance(marker), Ok(Some(ProgressMarker::Performance(again)))) => {
            assert!(marker.timestamp_s.is_finite());
            // Of the time only tenths of a second are written.
            assert_eq!(
                (marker.stripe, marker.bytes, marker.stripes),
                (again.stripe, again.bytes, again.stripes)
            );
        }
        (progress, again) => assert_eq!(again, Ok(Some(progress))),
    }
}

/// Text as ranges, and ranges as the positions that are in them.
pub fn ranges(bytes: &[u8]) {
    if let Ok(ranges) = ByteRanges::parse(bytes) {
        assert_eq!(
            ByteRanges::parse(ranges.to_string().as_bytes()).as_ref(),
            Ok(&ranges)
        );
        let missing = ranges.missing(ranges.end());
        assert_eq!(missing.total_bytes() + ranges.total_bytes(), ranges.end());
        let mut all = ranges.clone();
        all.merge(&missing).expect("they touch");
        assert_eq!(all.prefix_bytes(), ranges.end());
    }
    let mut draws = Draws::new(bytes);
    let (mut ranges, mut positions) = (ByteRanges::default(), BTreeSet::new());
    while !draws.is_over() {
        let (start, length) = (u64::from(draws.byte()), u64::from(draws.byte() & 31));
        ranges.insert(start..start + length).expect("few ranges");
        positions.extend(start..start + length);
    }
    assert!(ranges.iter().flatten().eq(positions.iter().copied()));
    let shortened = ranges.shortened();
    let ends = |position: &u64| !positions.contains(&(position + 1));
    assert!(
        shortened
            .iter()
            .flatten()
            .eq(positions.iter().copied().filter(|position| !ends(position)))
    );
}

/// Text as addresses of all notations.
pub fn addresses(bytes: &[u8]) {
    if let Ok(address) = parse_host_port(bytes) {
        assert_eq!(
            parse_either(write_either(address.into()).as_bytes()),
            Ok(address.into())
        );
    }
    if let Ok(Passive::Full(address)) = parse_extended(bytes) {
        assert_eq!(
            parse_extended(write_extended(address).as_bytes()),
            Ok(Passive::Full(address))
        );
    }
    if let Ok(address) = parse_either(bytes) {
        assert_eq!(parse_either(write_either(address).as_bytes()), Ok(address));
    }
}

/// Text as a time.
pub fn timestamps(bytes: &[u8]) {
    if let Ok(time_s) = parse_timestamp(bytes) {
        let text = write_timestamp(time_s);
        assert_eq!(parse_timestamp(text.as_bytes()), Ok(time_s), "{text}");
    }
    let any = Draws::new(bytes).number() as i64;
    assert_eq!(write_timestamp(any).len(), 14);
}

/// Base 64, which only tokens of a handshake carry.
pub fn base64(bytes: &[u8]) {
    let line = |text: &[u8]| [b"ADAT ", text].concat();
    let token = FtpCommand::Adat(bytes.to_vec());
    assert_eq!(FtpCommand::parse(&token.text()), Ok(token));
    if let Ok(FtpCommand::Adat(token)) = FtpCommand::parse(&line(bytes)) {
        assert!(token.len() <= bytes.len() / 4 * 3);
        let text = FtpCommand::Adat(token.clone()).text();
        assert_eq!(FtpCommand::parse(&text), Ok(FtpCommand::Adat(token)));
    }
}

/// Paths: none of them leads above the root.
pub fn paths(bytes: &[u8]) {
    let mut draws = Draws::new(bytes);
    let (Ok(current), Ok(path)) = (Path::new(draws.bytes()), Path::new(draws.rest())) else {
        return;
    };
    let Ok(current) = current.normalised(&Path::root()) else {
        return;
    };
    if let Ok(path) = path.normalised(&current) {
        let text = path.as_bytes();
        assert!(text.starts_with(b"/") && text.len() <= MAX_PATH_BYTES);
        let mut names = text[1..].split(|&byte| byte == b'/');
        assert!(
            text == b"/" || names.all(|name| !matches!(name, b"" | b"." | b"..")),
            "{path}"
        );
        assert_eq!(path.normalised(&current).as_ref(), Ok(&path));
        let (directory, _) = path.split();
        assert!(directory.as_bytes().starts_with(b"/"));
    }
}
