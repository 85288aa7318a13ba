//! What a server can do: its answers to FEAT (RFC 2389) and SITE HELP.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Reply, excerpt, number};

/// Most features and commands that are kept of one server.
const MAX_FEATURES: usize = 1024;

/// What a server says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features {
    /// Name → what follows it.
    listed: BTreeMap<String, String>,
    /// Words of SITE HELP. Some commands stand in no list of features (SBUF, SCKS).
    commands: BTreeSet<String>,
    /// Whether the server is one of the Globus toolkit, whose habits are known.
    globus: bool,
    venturi: bool,
}

impl Features {
    /// Takes the greeting.
    pub fn add_greeting(&mut self, reply: &Reply) {
        let says = |words| {
            let mut lines = reply.lines.iter();
            lines.any(|line| String::from_utf8_lossy(line).contains(words))
        };
        self.globus = says("GridFTP Server");
        self.venturi = says("Venturi GridFTP");
    }

    /// Takes the answer to FEAT.
    pub fn add_features(&mut self, reply: &Reply) {
        for line in inner_lines(reply) {
            let text = String::from_utf8_lossy(line).trim().to_owned();
            let (name, value) = text.split_once(' ').unwrap_or((&text, ""));
            if !name.is_empty() && self.listed.len() < MAX_FEATURES {
                self.listed
                    .insert(name.to_ascii_uppercase(), value.to_owned());
            }
        }
    }

    /// Takes the answer to SITE HELP, or HELP.
    pub fn add_commands(&mut self, reply: &Reply) {
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

    /// Whether a feature or a command is listed.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.listed.contains_key(name) || self.commands.contains(name)
    }

    /// What follows a feature.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        self.listed.get(name).map(String::as_str)
    }

    /// Whether the server is one of the Globus toolkit.
    #[must_use]
    pub fn is_globus(&self) -> bool {
        self.globus
    }

    /// Whether commands may come while a transfer is under way. Others throw them away, or take them for an ABOR.
    #[must_use]
    pub fn pipelines(&self) -> bool {
        self.globus
    }

    /// Whether it has listings for programs (MLSD, RFC 3659), and not for people alone (LIST).
    #[must_use]
    pub fn lists(&self) -> bool {
        self.globus || self.has("MLSD") || self.has("MLST")
    }

    /// Whether it tells when files were written to (RFC 3659): what goes on in one is known to be of the same version.
    #[must_use]
    pub fn tells_times(&self) -> bool {
        self.globus || self.has("MDTM")
    }

    /// Whether its data connections may be those of other hosts, as with data nodes of GridFTP. What a server of FTP alone says of its address is what it
    /// takes for it, and wrong where addresses are translated on the way.
    #[must_use]
    pub fn has_data_nodes(&self) -> bool {
        self.globus
            || ["PARALLEL", "SPAS", "DCAU"]
                .iter()
                .any(|name| self.has(name))
    }

    /// Whether bytes above 127 in names get lost on a control connection that is not protected: servers of the toolkit drop them, ours, which
    /// is like them in all else, does not.
    #[must_use]
    pub fn cuts_names(&self) -> bool {
        self.globus && !self.venturi
    }

    /// Checksums that the server takes, the cheapest first. `NAME:n;` tells the cost.
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

fn inner_lines(reply: &Reply) -> impl Iterator<Item = &Vec<u8>> {
    let last = reply.lines.len().saturating_sub(1);
    let success = reply.is_success();
    let lines = reply.lines.iter().enumerate();
    lines
        .filter(move |(index, _)| success && *index > 0 && *index < last)
        .map(|(_, line)| line)
}
