//! Features of a server: replies to FEAT (RFC 2389) and SITE HELP.

use std::collections::{BTreeMap, BTreeSet};

use crate::{FtpReply, excerpt, number};

/// Maximum stored features and commands of one server.
const MAX_FEATURES: usize = 1024;

/// Features of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features {
    /// Name → value.
    listed: BTreeMap<String, String>,
    /// Words of SITE HELP. Some commands are not listed as features (SBUF, SCKS).
    commands: BTreeSet<String>,
    /// `true` for a Globus server, whose behaviour is known.
    globus: bool,
    venturi: bool,
}

impl Features {
    /// Reads the greeting.
    pub fn add_greeting(&mut self, reply: &FtpReply) {
        let contains = |text| {
            let mut lines = reply.lines.iter();
            lines.any(|line| String::from_utf8_lossy(line).contains(text))
        };
        self.globus = contains("GridFTP Server");
        self.venturi = contains("Venturi GridFTP");
    }

    /// Reads the reply to FEAT.
    pub fn add_features(&mut self, reply: &FtpReply) {
        for line in inner_lines(reply) {
            let text = String::from_utf8_lossy(line).trim().to_owned();
            let (name, value) = text.split_once(' ').unwrap_or((&text, ""));
            if !name.is_empty() && self.listed.len() < MAX_FEATURES {
                self.listed
                    .insert(name.to_ascii_uppercase(), value.to_owned());
            }
        }
    }

    /// Reads the reply to SITE HELP or HELP.
    pub fn add_commands(&mut self, reply: &FtpReply) {
        for line in inner_lines(reply) {
            for word in line
                .split(|byte| byte.is_ascii_whitespace())
                .filter(|word| !word.is_empty())
            {
                if self.commands.len() < MAX_FEATURES {
                    self.commands.insert(excerpt(word).to_ascii_uppercase());
                }
            }
        }
    }

    /// Returns `true` if a feature or a command is listed.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.listed.contains_key(name) || self.commands.contains(name)
    }

    /// Returns the value of a feature.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        self.listed.get(name).map(String::as_str)
    }

    /// Returns `true` for a Globus server.
    #[must_use]
    pub fn is_globus(&self) -> bool {
        self.globus
    }

    /// Returns `true` if the server accepts commands during a transfer. Other servers discard them
    /// or treat them as ABOR.
    #[must_use]
    pub fn pipelines(&self) -> bool {
        self.globus
    }

    /// Returns `true` if the server has machine-readable listings (MLSD, RFC 3659), not only LIST.
    #[must_use]
    pub fn lists(&self) -> bool {
        self.globus || self.has("MLSD") || self.has("MLST")
    }

    /// Returns `true` if the server reports modification times (RFC 3659), so that a resumed file
    /// has the same version.
    #[must_use]
    pub fn reports_times(&self) -> bool {
        self.globus || self.has("MDTM")
    }

    /// Returns `true` if data connections can go to other hosts, such as GridFTP data nodes. The
    /// address of a plain FTP server can be wrong behind NAT.
    #[must_use]
    pub fn has_data_nodes(&self) -> bool {
        self.globus
            || ["PARALLEL", "SPAS", "DCAU"]
                .iter()
                .any(|name| self.has(name))
    }

    /// Returns `true` if the server drops bytes above 127 from names on an unprotected control
    /// connection. Globus servers do; the Venturi server does not.
    #[must_use]
    pub fn cuts_names(&self) -> bool {
        self.globus && !self.venturi
    }

    /// Returns the checksum algorithms of the server, cheapest first. `NAME:n;` gives the cost.
    #[must_use]
    pub fn checksums(&self) -> Vec<String> {
        let mut known: Vec<(u32, String)> = self
            .value("CKSM")
            .unwrap_or_default()
            .split([';', ','])
            .filter(|item| !item.trim().is_empty())
            .map(|item| {
                let (name, cost) = item.trim().split_once(':').unwrap_or((item.trim(), ""));
                (
                    number(cost.as_bytes()).unwrap_or(u32::MAX),
                    name.to_ascii_uppercase(),
                )
            })
            .collect();
        known.sort_by_key(|(cost, _)| *cost);
        known.into_iter().map(|(_, name)| name).collect()
    }
}

fn inner_lines(reply: &FtpReply) -> impl Iterator<Item = &Vec<u8>> {
    let last = reply.lines.len().saturating_sub(1);
    let success = reply.is_success();
    let lines = reply.lines.iter().enumerate();
    lines
        .filter(move |(index, _)| success && *index > 0 && *index < last)
        .map(|(_, line)| line)
}
