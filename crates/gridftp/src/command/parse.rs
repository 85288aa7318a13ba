//! A line as a command.

use super::{Command, Dcau, Family, Marker, Mode, Options, Partial, Protection, Restart, Site};
use crate::address::{MAX_STRIPES, Passive, parse_either, parse_extended, parse_host_port};
use crate::{ByteRanges, Error, Path, Secret, base64, number, parse_timestamp};

/// A name, and the command of it.
type Known<T> = (&'static str, fn(T) -> Command);

/// Commands that have a path and nothing else.
const WITH_PATH: &[Known<Path>] = &[
    ("CWD", Command::Cwd),
    ("XCWD", Command::Cwd),
    ("MKD", Command::Mkd),
    ("XMKD", Command::Mkd),
    ("RMD", Command::Rmd),
    ("XRMD", Command::Rmd),
    ("DELE", Command::Dele),
    ("RNFR", Command::Rnfr),
    ("RNTO", Command::Rnto),
    ("SIZE", Command::Size),
    ("MDTM", Command::Mdtm),
    ("RETR", Command::Retr),
    ("STOR", Command::Stor),
    ("APPE", Command::Appe),
];

/// Commands that may have a path.
const MAYBE_PATH: &[Known<Option<Path>>] = &[
    ("MLST", Command::Mlst),
    ("MLSC", Command::Mlsc),
    ("MLSD", Command::Mlsd),
    ("MLSR", Command::Mlsr),
    ("NLST", Command::Nlst),
    ("STAT", Command::Stat),
];

/// Commands that stand alone.
const ALONE: &[(&str, Command)] = &[
    ("QUIT", Command::Quit),
    ("NOOP", Command::Noop),
    ("SYST", Command::Syst),
    ("FEAT", Command::Feat),
    ("ABOR", Command::Abor),
    ("PWD", Command::Pwd),
    ("XPWD", Command::Pwd),
    ("CDUP", Command::Cdup),
    ("XCUP", Command::Cdup),
    ("PASV", Command::Pasv),
];

impl Command {
    /// Reads a line without its end.
    ///
    /// # Errors
    /// [`Error::UnknownCommand`], or [`Error::Malformed`] for arguments that the command does not have.
    pub fn parse(line: &[u8]) -> Result<Self, Error> {
        let line = without_telnet(line);
        let (name, argument) = split_word(line);
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        if line.contains(&0) {
            return Err(Error::malformed(
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
        with_arguments(&name, argument).ok_or_else(|| Error::UnknownCommand {
            found: crate::excerpt(line),
        })?
    }
}

/// Commands with arguments of their own; nothing for a name that is none.
fn with_arguments(name: &str, argument: &[u8]) -> Option<Result<Command, Error>> {
    let text = || argument.to_vec();
    let wrong = |place, expected| Error::malformed(place, expected, argument);
    let count = |place| number(argument).ok_or_else(|| wrong(place, "a number"));
    Some(match name {
        "USER" => Ok(Command::User(text())),
        "PASS" => Ok(Command::Pass(Secret(text()))),
        "AUTH" => Ok(Command::Auth(text())),
        "ADAT" => base64::decode(argument).map(Command::Adat),
        "MIC" => base64::decode(argument).map(Command::Mic),
        "ENC" => base64::decode(argument).map(Command::Enc),
        "HELP" => Ok(Command::Help((!argument.is_empty()).then(text))),
        "LANG" => Ok(Command::Lang(text())),
        "MFMT" => timed(argument).map(|(time_s, path)| Command::Mfmt { time_s, path }),
        "TYPE" => letter(argument, b"AILE")
            .map(Command::Type)
            .ok_or_else(|| wrong("TYPE", "A or I")),
        "STRU" => letter(argument, b"FRP")
            .map(Command::Stru)
            .ok_or_else(|| wrong("STRU", "F")),
        "MODE" => match letter(argument, b"SE") {
            Some(b'S') => Ok(Command::Mode(Mode::Stream)),
            Some(_) => Ok(Command::Mode(Mode::Extended)),
            None => Err(wrong("MODE", "S or E")),
        },
        "PBSZ" => count("PBSZ").map(Command::Pbsz),
        "SBUF" => count("SBUF").map(Command::Sbuf),
        "ALLO" => allocation(argument).map(Command::Allo),
        "PROT" => protection(argument).map(Command::Prot),
        "DCAU" => dcau(argument).map(Command::Dcau),
        "DCSC" => match split_word(argument) {
            (b"D" | b"d", _) => Ok(Command::Dcsc(None)),
            (b"P" | b"p", credential) => Ok(Command::Dcsc(Some(Secret(credential.to_vec())))),
            // The argument may hold a key.
            _ => Err(Error::malformed("DCSC", "`P credential` or `D`", b"")),
        },
        "TREV" => trev(argument),
        "OPTS" => Options::parse(argument).map(Command::Opts),
        "SITE" => Site::parse(argument).map(Command::Site),
        "LIST" => maybe_path(without_switches(argument)).map(Command::List),
        "EPSV" => family(argument).map(Command::Epsv),
        "SPAS" => family(argument).map(Command::Spas),
        "PORT" => parse_host_port(argument).map(Command::Port),
        "EPRT" => match parse_extended(argument) {
            Ok(Passive::Full(address)) => Ok(Command::Eprt(address)),
            Ok(Passive::Port(_)) => Err(wrong("EPRT", "an address with a host")),
            Err(error) => Err(error),
        },
        "SPOR" => stripes(argument).map(Command::Spor),
        "REST" => restart(argument).map(Command::Rest),
        "ERET" => eret(argument),
        "ESTO" => esto(argument),
        "CKSM" => checksum(argument),
        "SCKS" => expected_checksum(argument),
        _ => return None,
    })
}

/// Splits at the first space. Only one is taken: what follows may be a name that begins with a space.
pub(super) fn split_word(text: &[u8]) -> (&[u8], &[u8]) {
    match text.iter().position(|&byte| byte == b' ') {
        Some(cut) => (&text[..cut], &text[cut + 1..]),
        None => (text, b""),
    }
}

/// Clients put telnet's interrupt and synch before ABOR (RFC 959 section 4.1.3).
fn without_telnet(line: &[u8]) -> &[u8] {
    let begin = line
        .iter()
        .position(|&byte| byte < 0xf0)
        .unwrap_or(line.len());
    &line[begin..]
}

/// Clients that know `ls` give LIST its switches.
fn without_switches(mut argument: &[u8]) -> &[u8] {
    while argument.starts_with(b"-") {
        argument = split_word(argument).1;
    }
    argument
}

fn maybe_path(argument: &[u8]) -> Result<Option<Path>, Error> {
    if argument.is_empty() {
        return Ok(None);
    }
    Path::new(argument).map(Some)
}

/// The one letter of an argument, if it is known. `A N` and `L 8` carry a second word, which says nothing today.
fn letter(argument: &[u8], known: &[u8]) -> Option<u8> {
    match split_word(argument).0 {
        [letter] => Some(letter.to_ascii_uppercase()).filter(|letter| known.contains(letter)),
        _ => None,
    }
}

/// `YYYYMMDDHHMMSS path`.
pub(super) fn timed(argument: &[u8]) -> Result<(i64, Path), Error> {
    let (time, path) = split_word(argument);
    Ok((parse_timestamp(time)?, Path::new(path)?))
}

/// `n`, or `n R m` of RFC 959.
fn allocation(argument: &[u8]) -> Result<u64, Error> {
    number(split_word(argument).0)
        .ok_or_else(|| Error::malformed("ALLO", "a number of bytes", argument))
}

fn protection(argument: &[u8]) -> Result<Protection, Error> {
    let found = letter(argument, b"CSEP");
    Protection::ALL
        .iter()
        .find(|(_, letter)| Some(*letter) == found)
        .map(|&(level, _)| level)
        .ok_or_else(|| Error::malformed("PROT", "C, S, E or P", argument))
}

fn dcau(argument: &[u8]) -> Result<Dcau, Error> {
    match split_word(argument) {
        (b"N" | b"n", b"") => Ok(Dcau::None),
        (b"A" | b"a", b"") => Ok(Dcau::User),
        (b"S" | b"s", subject) if !subject.is_empty() => Ok(Dcau::Subject(subject.to_vec())),
        _ => Err(Error::malformed("DCAU", "N, A or `S subject`", argument)),
    }
}

fn trev(argument: &[u8]) -> Result<Command, Error> {
    let (name, interval) = split_word(argument);
    let marker = [Marker::Performance, Marker::Restart]
        .into_iter()
        .find(|marker| name.eq_ignore_ascii_case(marker.name().as_bytes()));
    match (marker, number(interval)) {
        (Some(marker), Some(interval_s)) => Ok(Command::Trev { marker, interval_s }),
        _ => Err(Error::malformed(
            "TREV",
            "`PERF s` or `RESTART s`",
            argument,
        )),
    }
}

fn family(argument: &[u8]) -> Result<Option<Family>, Error> {
    match argument {
        b"" => Ok(None),
        b"1" => Ok(Some(Family::V4)),
        b"2" => Ok(Some(Family::V6)),
        _ if argument.eq_ignore_ascii_case(b"ALL") => Ok(Some(Family::All)),
        _ => Err(Error::malformed("address family", "1, 2 or ALL", argument)),
    }
}

fn stripes(argument: &[u8]) -> Result<Vec<std::net::SocketAddr>, Error> {
    let words = argument
        .split(|&byte| byte == b' ')
        .filter(|word| !word.is_empty());
    let addresses: Vec<_> = words
        .take(MAX_STRIPES + 1)
        .map(parse_either)
        .collect::<Result<_, _>>()?;
    match addresses.len() {
        0 => Err(Error::malformed("SPOR", "addresses", argument)),
        1..=MAX_STRIPES => Ok(addresses),
        _ => Err(Error::Limit {
            place: "addresses of SPOR",
            limit: MAX_STRIPES as u64,
        }),
    }
}

fn restart(argument: &[u8]) -> Result<Restart, Error> {
    match number(argument) {
        Some(offset) => Ok(Restart::Offset(offset)),
        None => ByteRanges::parse(argument).map(Restart::Ranges),
    }
}

fn eret(argument: &[u8]) -> Result<Command, Error> {
    let wrong = || Error::malformed("ERET", "`P offset length path` or `module path`", argument);
    let (kind, rest) = split_word(argument);
    if !kind.eq_ignore_ascii_case(b"P") {
        let cut = kind.len().max(end_of_quotes(argument));
        let (module, path) = argument.split_at(cut);
        let part = Partial::Module(module.to_vec());
        return Path::new(path.strip_prefix(b" ").unwrap_or(path))
            .map(|path| Command::Eret { part, path })
            .map_err(|_| wrong());
    }
    let (offset, rest) = split_word(rest);
    let (length, path) = split_word(rest);
    let part = Partial::Region {
        offset: number(offset).ok_or_else(wrong)?,
        length: number(length).ok_or_else(wrong)?,
    };
    Ok(Command::Eret {
        part,
        path: Path::new(path)?,
    })
}

/// Length up to the second quote: parameters of a module may hold spaces.
fn end_of_quotes(argument: &[u8]) -> usize {
    let mut quotes = argument
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'"');
    quotes.nth(1).map_or(0, |(place, _)| place + 1)
}

fn esto(argument: &[u8]) -> Result<Command, Error> {
    let (kind, rest) = split_word(argument);
    let (offset, path) = split_word(rest);
    match number(offset).filter(|_| kind.eq_ignore_ascii_case(b"A")) {
        Some(offset) => Ok(Command::Esto {
            offset,
            path: Path::new(path)?,
        }),
        None => Err(Error::malformed("ESTO", "`A offset path`", argument)),
    }
}

fn checksum(argument: &[u8]) -> Result<Command, Error> {
    let wrong = || Error::malformed("CKSM", "`ALGORITHM offset length path`", argument);
    let (algorithm, rest) = split_word(argument);
    let (offset, rest) = split_word(rest);
    let (length, path) = split_word(rest);
    Ok(Command::Cksm {
        algorithm: word(algorithm).ok_or_else(wrong)?,
        offset: number(offset).ok_or_else(wrong)?,
        length: match length {
            b"-1" => None,
            _ => Some(number(length).ok_or_else(wrong)?),
        },
        path: Path::new(path)?,
    })
}

fn expected_checksum(argument: &[u8]) -> Result<Command, Error> {
    let (algorithm, value) = split_word(argument);
    match (word(algorithm), word(value)) {
        (Some(algorithm), Some(value)) => Ok(Command::Scks { algorithm, value }),
        _ => Err(Error::malformed("SCKS", "`ALGORITHM value`", argument)),
    }
}

/// A word of printable characters.
fn word(text: &[u8]) -> Option<String> {
    let printable = !text.is_empty() && text.iter().all(u8::is_ascii_graphic);
    printable.then(|| String::from_utf8_lossy(text).into_owned())
}
