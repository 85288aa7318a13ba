//! Stat for servers without MLST (vsftpd, and servers older than RFC 3659): SIZE, MDTM and CWD in
//! one flight. All paths are absolute, so the changed directory is harmless.

use super::{Client, ClientOutput, Tag};
use crate::{FtpCommand, FtpReply, Path, parse_timestamp, write_timestamp};

/// Query of a stat request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatQuery {
    Size,
    Modified,
    Directory,
}

/// State of a stat request.
#[derive(Debug)]
pub(super) struct StatFallback {
    path: Path,
    size_bytes: Option<u64>,
    modified_s: Option<i64>,
}

impl Client {
    /// Queries the metadata of a path; the reply has the form of MLST.
    pub(super) fn stat_request(&mut self, request: u64, path: Path) {
        let query = |fact, command| (Tag::Stat(request, fact), command);
        self.control.submit(vec![
            query(StatQuery::Size, FtpCommand::Size(path.clone())),
            query(StatQuery::Modified, FtpCommand::Mdtm(path.clone())),
            query(StatQuery::Directory, FtpCommand::Cwd(path.clone())),
        ]);
        let stat_request = StatFallback {
            path,
            size_bytes: None,
            modified_s: None,
        };
        self.stat_requests.insert(request, stat_request);
    }

    pub(super) fn stat_replied(&mut self, request: u64, fact: StatQuery, reply: FtpReply) {
        let timestamp = reply.lines.last().filter(|_| reply.code == 213);
        let timestamp = timestamp.map(|text| text.trim_ascii());
        match (self.stat_requests.get_mut(&request), fact) {
            (None, _) => {}
            (Some(stat_request), StatQuery::Size) => stat_request.size_bytes = reply.size_bytes(),
            (Some(stat_request), StatQuery::Modified) => {
                stat_request.modified_s = timestamp.and_then(|text| parse_timestamp(text).ok());
            }
            (Some(_), StatQuery::Directory) => {
                if let Some(stat_request) = self.stat_requests.remove(&request) {
                    let reply = stat_request.final_reply(reply);
                    self.outputs
                        .push_back(ClientOutput::Reply { request, reply });
                }
            }
        }
    }
}

impl StatFallback {
    /// Builds the reply, after the reply to CWD.
    fn final_reply(self, entered: FtpReply) -> FtpReply {
        let mut facts = match (entered.is_success(), self.size_bytes) {
            (true, _) => "type=dir;".to_owned(),
            (false, Some(size_bytes)) => format!("type=file;size={size_bytes};"),
            (false, None) => return entered,
        };
        if let Some(time_s) = self.modified_s {
            facts += &format!("modify={};", write_timestamp(time_s));
        }
        let line = [b" ", facts.as_bytes(), b" ", self.path.as_bytes()].concat();
        FtpReply::block(250, vec![b"Listing".to_vec(), line])
    }
}
