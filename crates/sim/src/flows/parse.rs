//! Reading and writing the text of a workload.

use std::io::{self, BufRead, Write};

use super::{Batch, Columns, Host, Kind, Link, Workload};

/// Lines of a head are at most so long: a file that is no workload is not read into memory.
const LINE_LIMIT_BYTES: usize = 1 << 20;

/// Where a text is no workload.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// A line does not say what it should.
    #[error("line {line}: expected {expected}, found {found}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What should stand there.
        expected: String,
        /// What stands there.
        found: String,
    },
    /// The text cannot be read.
    #[error("line {line}: cannot be read: {source}")]
    Io {
        /// Number of the line, from 1.
        line: usize,
        /// Why.
        source: io::Error,
    },
}

/// Reads numbers, and knows where it is.
struct Reader<Text> {
    text: Text,
    line: usize,
    buffer: String,
}

impl<Text: BufRead> Reader<Text> {
    /// The next line's words; `expected` tells what should stand there.
    fn line(&mut self, expected: &str) -> Result<Words<'_>, ParseError> {
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
        Ok(Words {
            words: self.buffer.split_ascii_whitespace(),
            whole: self.buffer.trim_end(),
            line,
        })
    }

    /// A line with one number.
    fn count(&mut self, expected: &str) -> Result<u32, ParseError> {
        let mut words = self.line(expected)?;
        let count = words.number(expected)?;
        words.end(expected)?;
        Ok(count)
    }
}

/// The words of a line.
struct Words<'line> {
    words: std::str::SplitAsciiWhitespace<'line>,
    whole: &'line str,
    line: usize,
}

impl Words<'_> {
    fn number<Number: std::str::FromStr>(&mut self, expected: &str) -> Result<Number, ParseError> {
        self.words
            .next()
            .and_then(|word| word.parse().ok())
            .ok_or_else(|| self.wrong(expected))
    }

    /// A finite number from 0 on.
    fn amount(&mut self, expected: &str) -> Result<f64, ParseError> {
        match self.number::<f64>(expected)? {
            amount if amount.is_finite() && amount >= 0.0 => Ok(amount),
            _ => Err(self.wrong(&format!("{expected}, each finite and at least 0"))),
        }
    }

    /// A number below `limit`.
    fn below(&mut self, limit: usize, expected: &str) -> Result<u32, ParseError> {
        match self.number::<u32>(expected)? {
            number if (number as usize) < limit => Ok(number),
            number => Err(self.wrong(&format!(
                "{expected}, each number below {limit} (found {number})"
            ))),
        }
    }

    fn end(&mut self, expected: &str) -> Result<(), ParseError> {
        match self.words.next() {
            None => Ok(()),
            Some(_) => Err(self.wrong(&format!("{expected} and nothing more"))),
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
        let mut ways = Ways {
            known: vec![Vec::new(); hosts.len()],
            all: Vec::new(),
        };
        let kind = read_kind(&mut reader, &mut ways)?;
        Ok(Self {
            links,
            hosts,
            ways: ways.all,
            kind,
        })
    }

    /// Write a workload of open arrivals as [`Workload::parse`] reads it; of another kind, nothing but links and hosts.
    ///
    /// # Errors
    /// What the writer says.
    pub fn write(&self, text: &mut impl Write) -> io::Result<()> {
        writeln!(text, "{}", self.links.len())?;
        for link in &self.links {
            writeln!(text, "{:?} {:?}", link.capacity, link.latency_s)?;
        }
        writeln!(text, "{}", self.hosts.len())?;
        for host in &self.hosts {
            let side = |links: &[u32]| {
                let words: Vec<String> = links.iter().map(u32::to_string).collect();
                [vec![links.len().to_string()], words].concat().join(" ")
            };
            writeln!(text, "{} {}", side(&host.out), side(&host.into))?;
        }
        if let Kind::Open(flows) = &self.kind {
            writeln!(text, "open {} {}", self.hosts.len(), flows.bytes.len())?;
            for at in 0..flows.bytes.len() {
                let (from, to) = self.ways[flows.way[at] as usize];
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

/// Pairs of hosts, numbered as they come.
struct Ways {
    known: Vec<Vec<(u32, u32)>>,
    all: Vec<(u32, u32)>,
}

impl Ways {
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

fn read_links<Text: BufRead>(reader: &mut Reader<Text>) -> Result<Vec<Link>, ParseError> {
    let expected = "`CAPACITY LATENCY` of a link";
    let mut links = Vec::new();
    for _ in 0..reader.count("the number of links")? {
        let mut words = reader.line(expected)?;
        links.push(Link {
            capacity: words.amount(expected)?,
            latency_s: words.amount(expected)?,
        });
        words.end(expected)?;
    }
    Ok(links)
}

fn read_hosts<Text: BufRead>(
    reader: &mut Reader<Text>,
    links: usize,
) -> Result<Vec<Host>, ParseError> {
    let expected = "`N LINK … M LINK …` of a host";
    let mut hosts = Vec::new();
    for _ in 0..reader.count("the number of hosts")? {
        let mut words = reader.line(expected)?;
        let out = links_of_host(&mut words, links, expected)?;
        let into = links_of_host(&mut words, links, expected)?;
        hosts.push(Host { out, into });
        words.end(expected)?;
    }
    Ok(hosts)
}

fn links_of_host(
    words: &mut Words<'_>,
    links: usize,
    expected: &str,
) -> Result<Vec<u32>, ParseError> {
    let count: u32 = words.number(expected)?;
    (0..count).map(|_| words.below(links, expected)).collect()
}

/// What begins when: the line that says so, and all behind it.
fn read_kind<Text: BufRead>(
    reader: &mut Reader<Text>,
    ways: &mut Ways,
) -> Result<Kind, ParseError> {
    let expected =
        "`open HOSTS FLOWS`, `closed AGENTS FLOWS` or `batch SLOTS JOBS CHUNKS SERVER DISK CORES`";
    let mut words = reader.line(expected)?;
    let kind = words.words.next().map(str::to_owned);
    match kind.as_deref() {
        Some("open" | "closed") => {
            let agents: u32 = words.number(expected)?;
            let count: u32 = words.number(expected)?;
            words.end(expected)?;
            if kind.as_deref() == Some("open") {
                return Ok(Kind::Open(read_flows(reader, ways, count, None)?));
            }
            let mut agent = Vec::new();
            let flows = read_flows(reader, ways, count, Some((agents, &mut agent)))?;
            Ok(Kind::Closed {
                flows,
                agent,
                agents,
            })
        }
        Some("batch") => {
            let mut batch = Batch {
                slots: words.number(expected)?,
                ..Batch::default()
            };
            let jobs: u32 = words.number(expected)?;
            batch.chunks = words.number(expected)?;
            batch.server = words.below(ways.known.len(), expected)?;
            (batch.disk, batch.cores) = (words.amount(expected)?, words.amount(expected)?);
            words.end(expected)?;
            check_batch(&batch, ways.known.len(), reader.line)?;
            (batch.bytes, batch.compute_s) = read_jobs(reader, jobs)?;
            Ok(Kind::Batch(batch))
        }
        _ => Err(words.wrong(expected)),
    }
}

fn check_batch(batch: &Batch, hosts: usize, line: usize) -> Result<(), ParseError> {
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
    ways: &mut Ways,
    count: u32,
    mut agents: Option<(u32, &mut Vec<u32>)>,
) -> Result<Columns, ParseError> {
    let hosts = ways.known.len();
    let expected = if agents.is_some() {
        "`AGENT DELAY FROM TO BYTES`"
    } else {
        "`START FROM TO BYTES`"
    };
    let mut flows = Columns::default();
    for _ in 0..count {
        let mut words = reader.line(expected)?;
        if let Some((limit, agent)) = &mut agents {
            agent.push(words.below(*limit as usize, expected)?);
        }
        flows.start_s.push(words.amount(expected)?);
        let (from, to) = (words.below(hosts, expected)?, words.below(hosts, expected)?);
        flows.way.push(ways.number(from, to));
        flows.bytes.push(words.amount(expected)?);
        words.end(expected)?;
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
        let mut words = reader.line(expected)?;
        bytes.push(words.amount(expected)?);
        compute_s.push(words.amount(expected)?);
        words.end(expected)?;
    }
    Ok((bytes, compute_s))
}
