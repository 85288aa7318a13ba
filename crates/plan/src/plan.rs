//! A plan as lines of JSON: reading, check of the version, writing.

use std::collections::BTreeSet;
use std::io::{BufRead, Read, Write};

use serde::{Deserialize, Serialize};

use crate::header::{FORMAT, VERSION};
use crate::{ActorLine, Error, Header, Name, Step};

/// Maximum length of a line, far above the needs of a plan, to reject other files.
pub const LINE_LIMIT_BYTES: u64 = 64 << 20;

/// A whole plan.
///
/// ```
/// use venturi_plan::Plan;
/// let text = r#"{"format":"venturi-plan","version":3,"more":"of it"}"#;
/// let error = Plan::read(text.as_bytes()).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "line 1: expected a plan of version 2, found version 3; create the plan again with this Venturi, or use the Venturi that created it"
/// );
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Line 1.
    pub header: Header,
    /// The actor lines, in order.
    pub lines: Vec<ActorLine>,
}

impl Plan {
    /// Read a whole plan; [`ActorLines`] reads it line by line.
    ///
    /// # Errors
    /// An error with the number of the line, if the bytes are not a plan of a supported version.
    pub fn read(input: impl BufRead) -> Result<Self, Error> {
        let mut reader = ActorLines::new(input)?;
        let lines = reader.by_ref().collect::<Result<_, _>>()?;
        Ok(Self {
            header: reader.header,
            lines,
        })
    }

    /// Write the plan, one line for the header and one for each actor line.
    ///
    /// # Errors
    /// [`Error::Write`] if `out` cannot be written.
    pub fn emit(&self, mut out: impl Write) -> Result<(), Error> {
        emit_line(&mut out, &self.header)?;
        self.lines
            .iter()
            .try_for_each(|line| emit_line(&mut out, line))
    }
}

/// Iterator over the actor lines of a plan during reading.
#[derive(Debug)]
pub struct ActorLines<R> {
    /// Line 1.
    pub header: Header,
    input: R,
    line: u64,
    buffer: Vec<u8>,
    names: BTreeSet<Name>,
    failed: bool,
}

impl<R: BufRead> ActorLines<R> {
    /// Read the header.
    ///
    /// # Errors
    /// If the first line is not a header of a supported version.
    pub fn new(mut input: R) -> Result<Self, Error> {
        let mut buffer = Vec::new();
        if !read_line(&mut input, 1, &mut buffer)? {
            return Err(Error::Empty);
        }
        let header = parse_header(&buffer)?;
        Ok(Self {
            header,
            input,
            line: 1,
            buffer,
            names: BTreeSet::new(),
            failed: false,
        })
    }

    fn read(&mut self) -> Result<Option<ActorLine>, Error> {
        loop {
            self.line += 1;
            if !read_line(&mut self.input, self.line, &mut self.buffer)? {
                return Ok(None);
            }
            if !self.buffer.trim_ascii().is_empty() {
                return self.parse().map(Some);
            }
        }
    }

    fn parse(&mut self) -> Result<ActorLine, Error> {
        let mut line: ActorLine =
            serde_json::from_slice(&self.buffer).map_err(|source| Error::Line {
                line: self.line,
                source,
            })?;
        self.intern(&mut line.actor);
        self.intern(&mut line.host);
        self.compact(&mut line.steps);
        Ok(line)
    }

    /// Keep one copy of a name that occurs in every line.
    fn intern(&mut self, name: &mut Name) {
        match self.names.get(name) {
            Some(known) => *name = known.clone(),
            None => drop(self.names.insert(name.clone())),
        }
    }

    /// Reduce the memory of a million transfers: keep one copy of each call name, and shrink lists,
    /// most of which have one step.
    fn compact(&mut self, steps: &mut Vec<Step>) {
        steps.shrink_to_fit();
        for step in steps {
            match step {
                Step::Transfer(transfer) => self.intern(&mut transfer.call),
                Step::Read(read) => self.intern(&mut read.call),
                Step::Trial(trial) => self.compact(&mut trial.steps),
                Step::Repeat(repeat) => self.compact(&mut repeat.steps),
                Step::Arrivals(arrivals) => self.compact(&mut arrivals.steps),
                Step::Parallel(parallel) => {
                    for child in &mut parallel.children {
                        self.compact(child);
                    }
                }
                _ => {}
            }
        }
    }
}

impl<R: BufRead> Iterator for ActorLines<R> {
    type Item = Result<ActorLine, Error>;

    /// Return the next actor line, and skip empty lines. No line follows an error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let line = self.read().transpose();
        self.failed = matches!(line, Some(Err(_)));
        line
    }
}

/// Write a value as one line of JSON with its newline.
pub(crate) fn emit_line(mut out: impl Write, value: &impl Serialize) -> Result<(), Error> {
    serde_json::to_writer(&mut out, value).map_err(std::io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}

/// Read up to the end of the line; false at the end of the input.
fn read_line(input: &mut impl BufRead, line: u64, buffer: &mut Vec<u8>) -> Result<bool, Error> {
    buffer.clear();
    let mut limited = input.take(LINE_LIMIT_BYTES + 1);
    let length = limited
        .read_until(b'\n', buffer)
        .map_err(|source| Error::Read { line, source })?;
    if length as u64 > LINE_LIMIT_BYTES {
        return Err(Error::LineTooLong {
            line,
            limit: LINE_LIMIT_BYTES,
        });
    }
    Ok(length > 0)
}

/// The two keys of every version. They are read first, so that the error about a newer plan is its
/// version and not another key.
#[derive(Deserialize)]
struct Probe {
    format: Option<serde_json::Value>,
    version: Option<serde_json::Value>,
}

fn parse_header(bytes: &[u8]) -> Result<Header, Error> {
    let wrong = |source| Error::Line { line: 1, source };
    let probe: Probe = serde_json::from_slice(bytes).map_err(wrong)?;
    if probe.format.as_ref().and_then(serde_json::Value::as_str) != Some(FORMAT) {
        let found = probe
            .format
            .map_or_else(|| "no `format`".into(), |format| format.to_string());
        return Err(Error::Format { found });
    }
    if let Some(found) = probe
        .version
        .as_ref()
        .and_then(serde_json::Value::as_u64)
        .filter(|&it| it != u64::from(VERSION))
    {
        return Err(Error::Version {
            expected: VERSION,
            found,
        });
    }
    serde_json::from_slice(bytes).map_err(wrong)
}
