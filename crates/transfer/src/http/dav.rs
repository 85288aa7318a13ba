//! WebDAV listings: the PROPFIND body and its multistatus response (RFC 4918).

use std::time::SystemTime;

use quick_xml::NsReader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, Event};
use quick_xml::name::{Namespace, ResolveResult};

use crate::net::url::decoded;

/// Requested properties: the minimum for a copy.
pub(crate) const PROPFIND: &str = r#"<?xml version="1.0" encoding="utf-8"?><D:propfind xmlns:D="DAV:"><D:prop><D:resourcetype/><D:getcontentlength/><D:getlastmodified/><D:getetag/></D:prop></D:propfind>"#;
/// Maximum depth of elements; a multistatus has seven levels.
pub(crate) const DEEPEST: usize = 64;
/// Namespace of WebDAV.
pub(crate) const DAV: Namespace<'static> = Namespace(b"DAV:");

/// Entry of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DavEntry {
    /// Decoded path from `/`; a slash at its end does not count.
    pub(crate) path: Vec<u8>,
    /// True if it is a collection.
    pub(crate) directory: bool,
    pub(crate) size: Option<u64>,
    pub(crate) modified: Option<SystemTime>,
    /// Entity tag with its quotes and weakness mark.
    pub(crate) etag: Option<String>,
}

/// Current element, as far as it is relevant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DavElement {
    Response,
    Href,
    Propstat,
    Status,
    DestinationDir,
    Length,
    Modified,
    Etag,
    Other,
}

/// Parse a multistatus.
///
/// # Errors
/// Description of the problem.
pub(crate) fn entries(text: &[u8]) -> Result<Vec<DavEntry>, String> {
    let mut reader = NsReader::from_reader(text);
    let mut reading = MultistatusParser::default();
    loop {
        let (namespace, event) = reader
            .read_resolved_event()
            .map_err(|error| error.to_string())?;
        match event {
            Event::Start(start) => {
                reading.open(element(&namespace, start.local_name().as_ref()))?
            }
            Event::Empty(start) => {
                reading.open(element(&namespace, start.local_name().as_ref()))?;
                reading.close()?;
            }
            Event::End(_) => reading.close()?,
            Event::Text(text) => reading
                .text
                .push_str(&text.decode().map_err(|error| error.to_string())?),
            Event::CData(text) => reading
                .text
                .push_str(&text.decode().map_err(|error| error.to_string())?),
            Event::GeneralRef(reference) => reading.text.push_str(&resolved(&reference)?),
            Event::Eof if reading.open.is_empty() && reading.has_root => return Ok(reading.entries),
            Event::Eof => return Err("an incomplete XML document".into()),
            Event::DocType(_) => return Err("a document type declaration in a listing".into()),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
    }
}

fn element(namespace: &ResolveResult<'_>, name: &[u8]) -> DavElement {
    if *namespace != ResolveResult::Bound(DAV) {
        return DavElement::Other;
    }
    match name {
        b"response" => DavElement::Response,
        b"href" => DavElement::Href,
        b"propstat" => DavElement::Propstat,
        b"status" => DavElement::Status,
        b"collection" => DavElement::DestinationDir,
        b"getcontentlength" => DavElement::Length,
        b"getlastmodified" => DavElement::Modified,
        b"getetag" => DavElement::Etag,
        _ => DavElement::Other,
    }
}

pub(crate) fn resolved(reference: &BytesRef<'_>) -> Result<String, String> {
    if let Some(letter) = reference
        .resolve_char_ref()
        .map_err(|error| error.to_string())?
    {
        return Ok(letter.into());
    }
    let name = reference.decode().map_err(|error| error.to_string())?;
    let text = resolve_predefined_entity(&name);
    text.map(str::to_owned)
        .ok_or_else(|| format!("the undefined XML entity `{name}`"))
}

#[derive(Debug, Default)]
struct MultistatusParser {
    open: Vec<DavElement>,
    text: String,
    has_root: bool,
    /// Entry that is being parsed.
    entry: DavEntry,
    /// Properties of the current `propstat`, which count if its status is 200.
    found: DavEntry,
    granted: bool,
    entries: Vec<DavEntry>,
}

impl MultistatusParser {
    fn open(&mut self, element: DavElement) -> Result<(), String> {
        if self.open.len() == DEEPEST {
            return Err(format!("XML with more than {DEEPEST} levels"));
        }
        self.has_root = true;
        self.text.clear();
        match element {
            DavElement::Response => self.entry = DavEntry::default(),
            DavElement::Propstat => {
                self.found = DavEntry::default();
                self.granted = true;
            }
            DavElement::DestinationDir => self.found.directory = true,
            _ => {}
        }
        self.open.push(element);
        Ok(())
    }

    fn close(&mut self) -> Result<(), String> {
        let element = self.open.pop().ok_or("an end tag without a start tag")?;
        let within = self.open.last().copied();
        let text = std::mem::take(&mut self.text);
        let text = text.trim();
        match (element, within) {
            (DavElement::Href, Some(DavElement::Response)) => {
                self.entry.path =
                    href_path(text).ok_or_else(|| format!("the invalid path `{text}`"))?;
            }
            (DavElement::Length, _) => self.found.size = text.parse().ok(),
            (DavElement::Modified, _) => self.found.modified = httpdate::parse_http_date(text).ok(),
            (DavElement::Etag, _) => self.found.etag = (!text.is_empty()).then(|| text.to_owned()),
            (DavElement::Status, Some(DavElement::Propstat)) => {
                self.granted = text
                    .split_whitespace()
                    .nth(1)
                    .is_none_or(|code| code.starts_with('2'));
            }
            (DavElement::Propstat, _) if self.granted => {
                let path = std::mem::take(&mut self.entry.path);
                let found = std::mem::take(&mut self.found);
                let earlier = std::mem::take(&mut self.entry);
                self.entry = DavEntry {
                    path,
                    directory: found.directory || earlier.directory,
                    size: found.size.or(earlier.size),
                    modified: found.modified.or(earlier.modified),
                    etag: found.etag.or(earlier.etag),
                };
            }
            (DavElement::Response, _) if self.entry.path.is_empty() => {
                return Err("an entry without a path".into());
            }
            (DavElement::Response, _) => self.entries.push(std::mem::take(&mut self.entry)),
            _ => {}
        }
        Ok(())
    }
}

/// Return the path of an `href`, which is a path or a URL.
fn href_path(href: &str) -> Option<Vec<u8>> {
    let path = match href.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => &rest[rest.find('/')?..],
        _ => href,
    };
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let mut path = decoded(path.as_bytes())?;
    while path.len() > 1 && path.last() == Some(&b'/') {
        path.pop();
    }
    path.starts_with(b"/").then_some(path)
}

/// Return the entries of a directory by name, without the directory itself, from a listing of depth 1.
///
/// # Errors
/// A name that could leave the directory.
pub(crate) fn children(
    path: &[u8],
    entries: Vec<DavEntry>,
) -> Result<Vec<(Vec<u8>, DavEntry)>, String> {
    let mut own = path;
    while own.len() > 1 && own.last() == Some(&b'/') {
        own = &own[..own.len() - 1];
    }
    let mut found = Vec::new();
    for entry in entries.into_iter().filter(|entry| entry.path != own) {
        let base = if own == b"/" { b"" } else { own };
        let name = entry
            .path
            .strip_prefix(base)
            .and_then(|rest| rest.strip_prefix(b"/"));
        let name = name.map(<[u8]>::to_vec);
        let sound = |name: &Vec<u8>| {
            let single = !name.is_empty() && !name.contains(&b'/') && !name.contains(&0);
            single && name != b"." && name != b".."
        };
        match name.filter(sound) {
            Some(name) => found.push((name, entry)),
            None => {
                return Err(format!(
                    "the entry `{}` outside of the directory",
                    String::from_utf8_lossy(&entry.path)
                ));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_listing_with_another_prefix_and_rejected_properties_is_read() {
        let text = br#"<?xml version="1.0"?>
            <multistatus xmlns="DAV:" xmlns:x="other"><response><href>http://h:80/a%20b/</href>
            <propstat><prop><resourcetype><collection/></resourcetype></prop><status>HTTP/1.1 200 OK</status></propstat>
            <propstat><prop><getcontentlength>9</getcontentlength></prop><status>HTTP/1.1 404 Not Found</status></propstat></response>
            <response><href>/a%20b/c&amp;d&#x41;</href><propstat><prop><x:getcontentlength>1</x:getcontentlength>
            <getcontentlength>7</getcontentlength><getlastmodified>Sun, 06 Nov 1994 08:49:37 GMT</getlastmodified><getetag>"e"</getetag>
            <resourcetype/></prop><status>HTTP/1.1 200 OK</status></propstat></response></multistatus>"#;
        let found = entries(text).expect("a listing");
        assert_eq!(
            found[0],
            DavEntry {
                path: b"/a b".to_vec(),
                directory: true,
                ..DavEntry::default()
            }
        );
        assert_eq!(
            (found[1].path.as_slice(), found[1].size, found[1].directory),
            (&b"/a b/c&dA"[..], Some(7), false)
        );
        assert_eq!(found[1].etag.as_deref(), Some("\"e\""));
        // RFC 9110, section 5.6.7.
        assert_eq!(
            found[1].modified,
            Some(SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777))
        );
        let children = children(b"/a b/", found).expect("names");
        assert_eq!(
            children
                .iter()
                .map(|(name, _)| name.as_slice())
                .collect::<Vec<_>>(),
            [b"c&dA"]
        );
    }

    #[test]
    fn names_outside_the_directory_are_rejected() {
        let check = |path: &[u8]| {
            let entry = DavEntry {
                path: path.to_vec(),
                ..DavEntry::default()
            };
            assert!(
                children(b"/a", vec![entry]).is_err(),
                "{}",
                String::from_utf8_lossy(path)
            );
        };
        check(b"/a/..");
        check(b"/a/b\0c");
        check(b"/a/b/c");
        check(b"/b/c");
        check(b"/ab");
        check(b"/");
        let entry = DavEntry {
            path: b"/x".to_vec(),
            ..DavEntry::default()
        };
        assert_eq!(children(b"/", vec![entry]).expect("a name")[0].0, b"x");
    }

    #[test]
    fn invalid_listings_are_rejected() {
        for text in [
            "",
            "<a>",
            "<a></b>",
            "<!DOCTYPE a><a/>",
            "<a>&bomb;</a>",
            "</a>",
            "<multistatus xmlns='DAV:'><response/></multistatus>",
        ] {
            assert!(entries(text.as_bytes()).is_err(), "{text}");
        }
        let deep = "<a>".repeat(DEEPEST + 1);
        assert!(
            entries(deep.as_bytes())
                .expect_err("too deep")
                .contains("levels")
        );
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "[<>/a-zD:&;#x0-9\"= ]{0,200}") {
            let _ = entries(&bytes);
            let _ = entries(text.as_bytes());
        }
    }
}
