//! Reads and writes the text of a workload.

use std::io::{self, BufRead, Write};

use super::{FlowBatch, FlowColumns, FlowHost, FlowLink, Workload, WorkloadKind};

/// Maximum length of a line, so that a file of another kind is not read into memory.
const LINE_LIMIT_BYTES: usize = 1 << 20;

/// Error in the text of a workload.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// A line has unexpected content.
    #[error("line {line}: expected {expected}, found {found}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// Expected content.
        expected: String,
        /// Content found.
        found: String,
    },
    /// The text cannot be read.
    #[error("line {line}: cannot read: {source}")]
    Io {
        /// Number of the line, from 1.
        line: usize,
        /// Cause of the failure.
        source: io::Error,
    },
}

/// Reader of numbers that counts lines.
struct Reader<Text> {
    text: Text,
    line: usize,
    buffer: String,
}

impl<Text: BufRead> Reader<Text> {
    /// Return the words of the next line; `expected` describes its content for errors.
    fn line(&mut self, expected: &str) -> Result<Tokens<'_>, ParseError> {
        self.line += 1;
        self.buffer.clear();
        let mut limited = io::Read::take(&mut self.text, LINE_LIMIT_BYTES as u64);
        let read = limited.read_line(&mut self.buffer);
        let line = self.line;
        let read = read.map_err(|source| ParseError::Io { line, source })?;
        if read == 0 {
            let found = "the end of the file".to_owned();
            return Err(ParseError::Line {
                line,
                expected: expected.to_owned(),
                found,
            });
        }
        if read == LINE_LIMIT_BYTES {
            let found = format!("a line of more than {LINE_LIMIT_BYTES} bytes");
            return Err(ParseError::Line {
                line,
                expected: expected.to_owned(),
                found,
            });
        }
        Ok(Tokens {
            tokens: self.buffer.split_ascii_whitespace(),
            whole: self.buffer.trim_end(),
            line,
        })
    }

    /// Read a line with one number.
    fn count(&mut self, expected: &str) -> Result<u32, ParseError> {
        let mut tokens = self.line(expected)?;
        let count = tokens.number(expected)?;
        tokens.end(expected)?;
        Ok(count)
    }
}

/// Words of a line.
struct Tokens<'line> {
    tokens: std::str::SplitAsciiWhitespace<'line>,
    whole: &'line str,
    line: usize,
}

impl Tokens<'_> {
    fn number<Number: std::str::FromStr>(&mut self, expected: &str) -> Result<Number, ParseError> {
        self.tokens
            .next()
            .and_then(|word| word.parse().ok())
            .ok_or_else(|| self.wrong(expected))
    }

    /// Read a finite number of at least 0.
    fn amount(&mut self, expected: &str) -> Result<f64, ParseError> {
        match self.number::<f64>(expected)? {
            amount if amount.is_finite() && amount >= 0.0 => Ok(amount),
            _ => Err(self.wrong(&format!("{expected}, each finite and at least 0"))),
        }
    }

    /// Read a number below `limit`.
    fn below(&mut self, limit: usize, expected: &str) -> Result<u32, ParseError> {
        match self.number::<u32>(expected)? {
            number if (number as usize) < limit => Ok(number),
            number => Err(self.wrong(&format!(
                "{expected}, each number below {limit} (found {number})"
            ))),
        }
    }

    fn end(&mut self, expected: &str) -> Result<(), ParseError> {
        match self.tokens.next() {
            None => Ok(()),
            Some(_) => Err(self.wrong(&format!("{expected} and the end of the line"))),
        }
    }

    fn wrong(&self, expected: &str) -> ParseError {
        let shown: String = self.whole.chars().take(80).collect();
        ParseError::Line {
            line: self.line,
            expected: expected.to_owned(),
            found: format!("`{shown}`"),
        }
    }
}

impl Workload {
    /// Read a workload.
    ///
    /// # Errors
    /// [`ParseError`] with the number of the line.
    pub fn parse(text: impl BufRead) -> Result<Self, ParseError> {
        let mut reader = Reader {
            text,
            line: 0,
            buffer: String::new(),
        };
        let links = read_links(&mut reader)?;
        let hosts = read_hosts(&mut reader, links.len())?;
        let mut routes = HostPairs {
            known: vec![Vec::new(); hosts.len()],
            all: Vec::new(),
        };
        let kind = read_kind(&mut reader, &mut routes)?;
        Ok(Self {
            links,
            hosts,
            routes: routes.all,
            kind,
        })
    }

    /// Write a workload of open arrivals in the format of [`Workload::parse`]; for other kinds,
    /// only links and hosts.
    ///
    /// # Errors
    /// An error of the writer.
    pub fn write(&self, text: &mut impl Write) -> io::Result<()> {
        writeln!(text, "{}", self.links.len())?;
        for link in &self.links {
            writeln!(text, "{:?} {:?}", link.capacity, link.latency_s)?;
        }
        writeln!(text, "{}", self.hosts.len())?;
        for host in &self.hosts {
            let side = |links: &[u32]| {
                let tokens: Vec<String> = links.iter().map(u32::to_string).collect();
                [vec![links.len().to_string()], tokens].concat().join(" ")
            };
            writeln!(text, "{} {}", side(&host.out), side(&host.into))?;
        }
        if let WorkloadKind::Open(flows) = &self.kind {
            writeln!(text, "open {} {}", self.hosts.len(), flows.bytes.len())?;
            for at in 0..flows.bytes.len() {
                let (from, to) = self.routes[flows.route[at] as usize];
                writeln!(
                    text,
                    "{:?} {from} {to} {:?}",
                    flows.start_s[at], flows.bytes[at]
                )?;
            }
        }
        text.flush()
    }
}

/// Pairs of hosts, numbered in the order of their first use.
struct HostPairs {
    known: Vec<Vec<(u32, u32)>>,
    all: Vec<(u32, u32)>,
}

impl HostPairs {
    fn number(&mut self, from: u32, to: u32) -> u32 {
        let known = &mut self.known[from as usize];
        match known.binary_search_by_key(&to, |(other, _)| *other) {
            Ok(at) => known[at].1,
            Err(at) => {
                let number = self.all.len() as u32;
                known.insert(at, (to, number));
                self.all.push((from, to));
                number
            }
        }
    }
}

fn read_links<Text: BufRead>(reader: &mut Reader<Text>) -> Result<Vec<FlowLink>, ParseError> {
    let expected = "`CAPACITY LATENCY` of a link";
    let mut links = Vec::new();
    for _ in 0..reader.count("the number of links")? {
        let mut tokens = reader.line(expected)?;
        links.push(FlowLink {
            capacity: tokens.amount(expected)?,
            latency_s: tokens.amount(expected)?,
        });
        tokens.end(expected)?;
    }
    Ok(links)
}

fn read_hosts<Text: BufRead>(
    reader: &mut Reader<Text>,
    links: usize,
) -> Result<Vec<FlowHost>, ParseError> {
    let expected = "`N LINK … M LINK …` of a host";
    let mut hosts = Vec::new();
    for _ in 0..reader.count("the number of hosts")? {
        let mut tokens = reader.line(expected)?;
        let out = links_of_host(&mut tokens, links, expected)?;
        let into = links_of_host(&mut tokens, links, expected)?;
        hosts.push(FlowHost { out, into });
        tokens.end(expected)?;
    }
    Ok(hosts)
}

fn links_of_host(
    tokens: &mut Tokens<'_>,
    links: usize,
    expected: &str,
) -> Result<Vec<u32>, ParseError> {
    let count: u32 = tokens.number(expected)?;
    (0..count).map(|_| tokens.below(links, expected)).collect()
}

/// Read the kind of the workload and the lines that follow.
fn read_kind<Text: BufRead>(
    reader: &mut Reader<Text>,
    routes: &mut HostPairs,
) -> Result<WorkloadKind, ParseError> {
    let expected =
        "`open HOSTS FLOWS`, `closed AGENTS FLOWS` or `batch SLOTS JOBS CHUNKS SERVER DISK CORES`";
    let mut tokens = reader.line(expected)?;
    let kind = tokens.tokens.next().map(str::to_owned);
    match kind.as_deref() {
        Some("open" | "closed") => {
            let agents: u32 = tokens.number(expected)?;
            let count: u32 = tokens.number(expected)?;
            tokens.end(expected)?;
            if kind.as_deref() == Some("open") {
                return Ok(WorkloadKind::Open(read_flows(reader, routes, count, None)?));
            }
            let mut agent = Vec::new();
            let flows = read_flows(reader, routes, count, Some((agents, &mut agent)))?;
            Ok(WorkloadKind::Closed {
                flows,
                agent,
                agents,
            })
        }
        Some("batch") => {
            let mut batch = FlowBatch {
                slots: tokens.number(expected)?,
                ..FlowBatch::default()
            };
            let jobs: u32 = tokens.number(expected)?;
            batch.chunks = tokens.number(expected)?;
            batch.server = tokens.below(routes.known.len(), expected)?;
            (batch.disk, batch.cores) = (tokens.amount(expected)?, tokens.amount(expected)?);
            tokens.end(expected)?;
            check_batch(&batch, routes.known.len(), reader.line)?;
            (batch.bytes, batch.compute_s) = read_jobs(reader, jobs)?;
            Ok(WorkloadKind::Batch(batch))
        }
        _ => Err(tokens.wrong(expected)),
    }
}

fn check_batch(batch: &FlowBatch, hosts: usize, line: usize) -> Result<(), ParseError> {
    if hosts >= 2 && batch.chunks > 0 {
        return Ok(());
    }
    Err(ParseError::Line {
        line,
        expected: "a server, another host, and at least 1 chunk a job".to_owned(),
        found: format!("{hosts} hosts and {} chunks", batch.chunks),
    })
}

fn read_flows<Text: BufRead>(
    reader: &mut Reader<Text>,
    routes: &mut HostPairs,
    count: u32,
    mut agents: Option<(u32, &mut Vec<u32>)>,
) -> Result<FlowColumns, ParseError> {
    let hosts = routes.known.len();
    let expected = if agents.is_some() {
        "`AGENT DELAY FROM TO BYTES`"
    } else {
        "`START FROM TO BYTES`"
    };
    let mut flows = FlowColumns::default();
    for _ in 0..count {
        let mut tokens = reader.line(expected)?;
        if let Some((limit, agent)) = &mut agents {
            agent.push(tokens.below(*limit as usize, expected)?);
        }
        flows.start_s.push(tokens.amount(expected)?);
        let (from, to) = (
            tokens.below(hosts, expected)?,
            tokens.below(hosts, expected)?,
        );
        flows.route.push(routes.number(from, to));
        flows.bytes.push(tokens.amount(expected)?);
        tokens.end(expected)?;
    }
    Ok(flows)
}

fn read_jobs<Text: BufRead>(
    reader: &mut Reader<Text>,
    count: u32,
) -> Result<(Vec<f64>, Vec<f64>), ParseError> {
    let expected = "`BYTES SECONDS` of a job";
    let (mut bytes, mut compute_s) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let mut tokens = reader.line(expected)?;
        bytes.push(tokens.amount(expected)?);
        compute_s.push(tokens.amount(expected)?);
        tokens.end(expected)?;
    }
    Ok((bytes, compute_s))
}
