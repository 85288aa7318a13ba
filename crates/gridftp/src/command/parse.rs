//! Parser of command lines.

use super::{
    Dcau, Family, FtpCommand, Marker, Mode, Options, Partial, Protection, Restart, SiteCommand,
};
use crate::address::{MAX_STRIPES, Passive, parse_either, parse_extended, parse_host_port};
use crate::{ByteRanges, FtpError, Path, Secret, base64, number, parse_timestamp};

/// A name and its command.
type PathCommand<T> = (&'static str, fn(T) -> FtpCommand);

/// Commands with a path as only argument.
const WITH_PATH: &[PathCommand<Path>] = &[
    ("CWD", FtpCommand::Cwd),
    ("XCWD", FtpCommand::Cwd),
    ("MKD", FtpCommand::Mkd),
    ("XMKD", FtpCommand::Mkd),
    ("RMD", FtpCommand::Rmd),
    ("XRMD", FtpCommand::Rmd),
    ("DELE", FtpCommand::Dele),
    ("RNFR", FtpCommand::Rnfr),
    ("RNTO", FtpCommand::Rnto),
    ("SIZE", FtpCommand::Size),
    ("MDTM", FtpCommand::Mdtm),
    ("RETR", FtpCommand::Retr),
    ("STOR", FtpCommand::Stor),
    ("APPE", FtpCommand::Appe),
];

/// Commands with an optional path.
const MAYBE_PATH: &[PathCommand<Option<Path>>] = &[
    ("MLST", FtpCommand::Mlst),
    ("MLSC", FtpCommand::Mlsc),
    ("MLSD", FtpCommand::Mlsd),
    ("MLSR", FtpCommand::Mlsr),
    ("NLST", FtpCommand::Nlst),
    ("STAT", FtpCommand::Stat),
];

/// Commands without argument.
const ALONE: &[(&str, FtpCommand)] = &[
    ("QUIT", FtpCommand::Quit),
    ("NOOP", FtpCommand::Noop),
    ("SYST", FtpCommand::Syst),
    ("FEAT", FtpCommand::Feat),
    ("ABOR", FtpCommand::Abor),
    ("PWD", FtpCommand::Pwd),
    ("XPWD", FtpCommand::Pwd),
    ("CDUP", FtpCommand::Cdup),
    ("XCUP", FtpCommand::Cdup),
    ("PASV", FtpCommand::Pasv),
];

impl FtpCommand {
    /// Reads a line without its end.
    ///
    /// # Errors
    /// [`FtpError::UnknownCommand`], or [`FtpError::Malformed`] for wrong arguments.
    pub fn parse(line: &[u8]) -> Result<Self, FtpError> {
        let line = without_telnet(line);
        let (name, argument) = split_word(line);
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        if line.contains(&0) {
            return Err(FtpError::malformed(
                "command",
                "one without NUL",
                name.as_bytes(),
            ));
        }
        if let Some((_, command)) = ALONE.iter().find(|(known, _)| *known == name) {
            return Ok(command.clone());
        }
        if let Some((_, command)) = WITH_PATH.iter().find(|(known, _)| *known == name) {
            return Path::new(argument).map(command);
        }
        if let Some((_, command)) = MAYBE_PATH.iter().find(|(known, _)| *known == name) {
            return maybe_path(argument).map(command);
        }
        with_arguments(&name, argument).ok_or_else(|| FtpError::UnknownCommand {
            found: crate::excerpt(line),
        })?
    }
}

/// Commands with other arguments; `None` for an unknown name.
fn with_arguments(name: &str, argument: &[u8]) -> Option<Result<FtpCommand, FtpError>> {
    let text = || argument.to_vec();
    let wrong = |context, expected| FtpError::malformed(context, expected, argument);
    let count = |context| number(argument).ok_or_else(|| wrong(context, "a number"));
    Some(match name {
        "USER" => Ok(FtpCommand::User(text())),
        "PASS" => Ok(FtpCommand::Pass(Secret(text()))),
        "AUTH" => Ok(FtpCommand::Auth(text())),
        "ADAT" => base64::decode(argument).map(FtpCommand::Adat),
        "MIC" => base64::decode(argument).map(FtpCommand::Mic),
        "ENC" => base64::decode(argument).map(FtpCommand::Enc),
        "HELP" => Ok(FtpCommand::Help((!argument.is_empty()).then(text))),
        "LANG" => Ok(FtpCommand::Lang(text())),
        "MFMT" => timed(argument).map(|(time_s, path)| FtpCommand::Mfmt { time_s, path }),
        "TYPE" => letter(argument, b"AILE")
            .map(FtpCommand::Type)
            .ok_or_else(|| wrong("TYPE", "A or I")),
        "STRU" => letter(argument, b"FRP")
            .map(FtpCommand::Stru)
            .ok_or_else(|| wrong("STRU", "F")),
        "MODE" => match letter(argument, b"SE") {
            Some(b'S') => Ok(FtpCommand::Mode(Mode::Stream)),
            Some(_) => Ok(FtpCommand::Mode(Mode::Extended)),
            None => Err(wrong("MODE", "S or E")),
        },
        "PBSZ" => count("PBSZ").map(FtpCommand::Pbsz),
        "SBUF" => count("SBUF").map(FtpCommand::Sbuf),
        "ALLO" => allocation(argument).map(FtpCommand::Allo),
        "PROT" => protection(argument).map(FtpCommand::Prot),
        "DCAU" => dcau(argument).map(FtpCommand::Dcau),
        "DCSC" => match split_word(argument) {
            (b"D" | b"d", _) => Ok(FtpCommand::Dcsc(None)),
            (b"P" | b"p", credential) => Ok(FtpCommand::Dcsc(Some(Secret(credential.to_vec())))),
            // The argument may hold a key.
            _ => Err(FtpError::malformed("DCSC", "`P credential` or `D`", b"")),
        },
        "TREV" => trev(argument),
        "OPTS" => Options::parse(argument).map(FtpCommand::Opts),
        "SITE" => SiteCommand::parse(argument).map(FtpCommand::Site),
        "LIST" => maybe_path(without_switches(argument)).map(FtpCommand::List),
        "EPSV" => family(argument).map(FtpCommand::Epsv),
        "SPAS" => family(argument).map(FtpCommand::Spas),
        "PORT" => parse_host_port(argument).map(FtpCommand::Port),
        "EPRT" => match parse_extended(argument) {
            Ok(Passive::Full(address)) => Ok(FtpCommand::Eprt(address)),
            Ok(Passive::Port(_)) => Err(wrong("EPRT", "an address with a host")),
            Err(error) => Err(error),
        },
        "SPOR" => stripes(argument).map(FtpCommand::Spor),
        "REST" => restart(argument).map(FtpCommand::Rest),
        "ERET" => eret(argument),
        "ESTO" => esto(argument),
        "CKSM" => checksum(argument),
        "SCKS" => expected_checksum(argument),
        _ => return None,
    })
}

/// Splits at the first space. Removes one space only: a name can start with a space.
pub(super) fn split_word(text: &[u8]) -> (&[u8], &[u8]) {
    match text.iter().position(|&byte| byte == b' ') {
        Some(cut) => (&text[..cut], &text[cut + 1..]),
        None => (text, b""),
    }
}

/// Removes Telnet interrupt and synch bytes, which clients send before ABOR (RFC 959 section
/// 4.1.3).
fn without_telnet(line: &[u8]) -> &[u8] {
    let start = line
        .iter()
        .position(|&byte| byte < 0xf0)
        .unwrap_or(line.len());
    &line[start..]
}

/// Removes `ls` switches, which some clients send with LIST.
fn without_switches(mut argument: &[u8]) -> &[u8] {
    while argument.starts_with(b"-") {
        argument = split_word(argument).1;
    }
    argument
}

fn maybe_path(argument: &[u8]) -> Result<Option<Path>, FtpError> {
    if argument.is_empty() {
        return Ok(None);
    }
    Path::new(argument).map(Some)
}

/// Returns the letter of an argument, if known. `A N` and `L 8` have a second word, which is
/// ignored.
fn letter(argument: &[u8], known: &[u8]) -> Option<u8> {
    match split_word(argument).0 {
        [letter] => Some(letter.to_ascii_uppercase()).filter(|letter| known.contains(letter)),
        _ => None,
    }
}

/// Parses `YYYYMMDDHHMMSS path`.
pub(super) fn timed(argument: &[u8]) -> Result<(i64, Path), FtpError> {
    let (time, path) = split_word(argument);
    Ok((parse_timestamp(time)?, Path::new(path)?))
}

/// Parses `n`, or `n R m` of RFC 959.
fn allocation(argument: &[u8]) -> Result<u64, FtpError> {
    number(split_word(argument).0)
        .ok_or_else(|| FtpError::malformed("ALLO", "a number of bytes", argument))
}

fn protection(argument: &[u8]) -> Result<Protection, FtpError> {
    let found = letter(argument, b"CSEP");
    Protection::ALL
        .iter()
        .find(|(_, letter)| Some(*letter) == found)
        .map(|&(level, _)| level)
        .ok_or_else(|| FtpError::malformed("PROT", "C, S, E or P", argument))
}

fn dcau(argument: &[u8]) -> Result<Dcau, FtpError> {
    match split_word(argument) {
        (b"N" | b"n", b"") => Ok(Dcau::None),
        (b"A" | b"a", b"") => Ok(Dcau::User),
        (b"S" | b"s", subject) if !subject.is_empty() => Ok(Dcau::Subject(subject.to_vec())),
        _ => Err(FtpError::malformed("DCAU", "N, A or `S subject`", argument)),
    }
}

fn trev(argument: &[u8]) -> Result<FtpCommand, FtpError> {
    let (name, interval) = split_word(argument);
    let marker = [Marker::Performance, Marker::Restart]
        .into_iter()
        .find(|marker| name.eq_ignore_ascii_case(marker.name().as_bytes()));
    match (marker, number(interval)) {
        (Some(marker), Some(interval_s)) => Ok(FtpCommand::Trev { marker, interval_s }),
        _ => Err(FtpError::malformed(
            "TREV",
            "`PERF s` or `RESTART s`",
            argument,
        )),
    }
}

fn family(argument: &[u8]) -> Result<Option<Family>, FtpError> {
    match argument {
        b"" => Ok(None),
        b"1" => Ok(Some(Family::V4)),
        b"2" => Ok(Some(Family::V6)),
        _ if argument.eq_ignore_ascii_case(b"ALL") => Ok(Some(Family::All)),
        _ => Err(FtpError::malformed(
            "address family",
            "1, 2 or ALL",
            argument,
        )),
    }
}

fn stripes(argument: &[u8]) -> Result<Vec<std::net::SocketAddr>, FtpError> {
    let words = argument
        .split(|&byte| byte == b' ')
        .filter(|word| !word.is_empty());
    let addresses: Vec<_> = words
        .take(MAX_STRIPES + 1)
        .map(parse_either)
        .collect::<Result<_, _>>()?;
    match addresses.len() {
        0 => Err(FtpError::malformed("SPOR", "addresses", argument)),
        1..=MAX_STRIPES => Ok(addresses),
        _ => Err(FtpError::Limit {
            context: "addresses of SPOR",
            limit: MAX_STRIPES as u64,
        }),
    }
}

fn restart(argument: &[u8]) -> Result<Restart, FtpError> {
    match number(argument) {
        Some(offset) => Ok(Restart::Offset(offset)),
        None => ByteRanges::parse(argument).map(Restart::Ranges),
    }
}

fn eret(argument: &[u8]) -> Result<FtpCommand, FtpError> {
    let wrong = || FtpError::malformed("ERET", "`P offset length path` or `module path`", argument);
    let (kind, rest) = split_word(argument);
    if !kind.eq_ignore_ascii_case(b"P") {
        let cut = kind.len().max(end_of_quotes(argument));
        let (module, path) = argument.split_at(cut);
        let part = Partial::Module(module.to_vec());
        return Path::new(path.strip_prefix(b" ").unwrap_or(path))
            .map(|path| FtpCommand::Eret { part, path })
            .map_err(|_| wrong());
    }
    let (offset, rest) = split_word(rest);
    let (length, path) = split_word(rest);
    let part = Partial::Region {
        offset: number(offset).ok_or_else(wrong)?,
        length: number(length).ok_or_else(wrong)?,
    };
    Ok(FtpCommand::Eret {
        part,
        path: Path::new(path)?,
    })
}

/// Returns the length up to the second quote, because parameters of a module can contain spaces.
fn end_of_quotes(argument: &[u8]) -> usize {
    let mut quotes = argument
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'"');
    quotes.nth(1).map_or(0, |(context, _)| context + 1)
}

fn esto(argument: &[u8]) -> Result<FtpCommand, FtpError> {
    let (kind, rest) = split_word(argument);
    let (offset, path) = split_word(rest);
    match number(offset).filter(|_| kind.eq_ignore_ascii_case(b"A")) {
        Some(offset) => Ok(FtpCommand::Esto {
            offset,
            path: Path::new(path)?,
        }),
        None => Err(FtpError::malformed("ESTO", "`A offset path`", argument)),
    }
}

fn checksum(argument: &[u8]) -> Result<FtpCommand, FtpError> {
    let wrong = || FtpError::malformed("CKSM", "`ALGORITHM offset length path`", argument);
    let (algorithm, rest) = split_word(argument);
    let (offset, rest) = split_word(rest);
    let (length, path) = split_word(rest);
    Ok(FtpCommand::Cksm {
        algorithm: word(algorithm).ok_or_else(wrong)?,
        offset: number(offset).ok_or_else(wrong)?,
        length: match length {
            b"-1" => None,
            _ => Some(number(length).ok_or_else(wrong)?),
        },
        path: Path::new(path)?,
    })
}

fn expected_checksum(argument: &[u8]) -> Result<FtpCommand, FtpError> {
    let (algorithm, value) = split_word(argument);
    match (word(algorithm), word(value)) {
        (Some(algorithm), Some(value)) => Ok(FtpCommand::Scks { algorithm, value }),
        _ => Err(FtpError::malformed("SCKS", "`ALGORITHM value`", argument)),
    }
}

/// Returns a word of printable characters.
fn word(text: &[u8]) -> Option<String> {
    let printable = !text.is_empty() && text.iter().all(u8::is_ascii_graphic);
    printable.then(|| String::from_utf8_lossy(text).into_owned())
}
