//! What a path is at a server without MLST (vsftpd, and what is older than RFC 3659): SIZE, MDTM and CWD tell, in one flight. All paths that are asked for
//! begin at the root, so that it does no harm to be in another directory.

use super::{Client, Output, Tag};
use crate::{Command, Path, Reply, parse_timestamp, write_timestamp};

/// Which of the questions a reply answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fact {
    Size,
    Modified,
    Directory,
}

/// What is known so far.
#[derive(Debug)]
pub(super) struct Look {
    path: Path,
    size_bytes: Option<u64>,
    modified_s: Option<i64>,
}

impl Client {
    /// Asks what a path is; the answer is like one to MLST.
    pub(super) fn look(&mut self, request: u64, path: Path) {
        let asked = |fact, command| (Tag::Look(request, fact), command);
        self.control.submit(vec![
            asked(Fact::Size, Command::Size(path.clone())),
            asked(Fact::Modified, Command::Mdtm(path.clone())),
            asked(Fact::Directory, Command::Cwd(path.clone())),
        ]);
        let look = Look {
            path,
            size_bytes: None,
            modified_s: None,
        };
        self.looks.insert(request, look);
    }

    pub(super) fn looked(&mut self, request: u64, fact: Fact, reply: Reply) {
        let told = reply.lines.last().filter(|_| reply.code == 213);
        let told = told.map(|text| text.trim_ascii());
        match (self.looks.get_mut(&request), fact) {
            (None, _) => {}
            (Some(look), Fact::Size) => look.size_bytes = reply.size_bytes(),
            (Some(look), Fact::Modified) => {
                look.modified_s = told.and_then(|text| parse_timestamp(text).ok());
            }
            (Some(_), Fact::Directory) => {
                if let Some(look) = self.looks.remove(&request) {
                    let reply = look.answer(reply);
                    self.outputs.push_back(Output::Answer { request, reply });
                }
            }
        }
    }
}

impl Look {
    /// The answer, with the one to CWD.
    fn answer(self, entered: Reply) -> Reply {
        let mut facts = match (entered.is_success(), self.size_bytes) {
            (true, _) => "type=dir;".to_owned(),
            (false, Some(size_bytes)) => format!("type=file;size={size_bytes};"),
            (false, None) => return entered,
        };
        if let Some(time_s) = self.modified_s {
            facts += &format!("modify={};", write_timestamp(time_s));
        }
        let line = [b" ", facts.as_bytes(), b" ", self.path.as_bytes()].concat();
        Reply::block(250, vec![b"Listing".to_vec(), line])
    }
}
