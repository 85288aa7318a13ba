//! WebDAV properties (RFC 4918): parsing of PROPFIND and PROPPATCH, and their responses. Only properties of files
//! and directories exist; properties of clients are not stored.

use std::collections::BTreeSet;

use quick_xml::NsReader;
use quick_xml::escape::escape;
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::{Namespace, ResolveResult};

use crate::http::dav::{DAV, DEEPEST, DavEntry};
use crate::net::url::encoded;

/// Maximum properties of one request: clients use some tens, and each appears for each file.
const MAX_NAMED: usize = 256;

/// Start of a multistatus.
pub(crate) const START: &str =
    "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n";
/// End of a multistatus.
pub(crate) const END: &str = "</D:multistatus>\n";

/// Request of a PROPFIND.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PropfindRequest {
    /// All properties.
    All,
    /// The names of all properties.
    Names,
    /// These properties.
    These(BTreeSet<PropertyName>),
}

/// Name of a property.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PropertyName {
    /// Namespace; empty for none.
    namespace: String,
    local: String,
}

/// Property to set or remove.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PropertyChanges {
    set: BTreeSet<PropertyName>,
    remove: BTreeSet<PropertyName>,
}

impl PropfindRequest {
    /// Parse the body of a PROPFIND; an empty body requests all properties.
    ///
    /// # Errors
    /// Description of the problem.
    pub(crate) fn read(body: &[u8]) -> Result<Self, String> {
        if body.is_empty() {
            return Ok(Self::All);
        }
        let mut found = None;
        read(body, "propfind", |path| {
            let now = match path {
                [all] if all.is_dav("allprop") => Self::All,
                [names] if names.is_dav("propname") => Self::Names,
                [prop] if prop.is_dav("prop") => Self::These(BTreeSet::new()),
                [prop, name] if prop.is_dav("prop") => {
                    if let Some(Self::These(named)) = &mut found {
                        name_one_more(named, name)?;
                    }
                    return Ok(());
                }
                _ => return Ok(()),
            };
            match found.replace(now) {
                None => Ok(()),
                Some(_) => Err("more than one of allprop, propname and prop".into()),
            }
        })?;
        found.ok_or_else(|| "none of allprop, propname and prop".into())
    }
}

impl PropertyChanges {
    /// Parse the body of a PROPPATCH.
    ///
    /// # Errors
    /// Description of the problem.
    pub(crate) fn read(body: &[u8]) -> Result<Self, String> {
        let mut changes = Self::default();
        read(body, "propertyupdate", |path| match path {
            [how, prop, name] if prop.is_dav("prop") && how.is_dav("set") => {
                name_one_more(&mut changes.set, name)
            }
            [how, prop, name] if prop.is_dav("prop") && how.is_dav("remove") => {
                name_one_more(&mut changes.remove, name)
            }
            _ => Ok(()),
        })?;
        if changes.set.is_empty() && changes.remove.is_empty() {
            return Err("no property to set or remove".into());
        }
        Ok(changes)
    }

    /// Return the result. No property can be set. Removing a missing property succeeds, unless it is protected (RFC
    /// 4918, section 9.2). The request is atomic.
    pub(crate) fn fields(&self, entry: &DavEntry) -> String {
        let own = own(entry);
        let stays = |name: &&PropertyName| own.iter().any(|(own, _)| name.is_dav(own));
        let (fixed, absent): (Vec<&PropertyName>, Vec<&PropertyName>) =
            self.remove.iter().partition(stays);
        let rejected: BTreeSet<&PropertyName> = self.set.iter().chain(fixed).collect();
        let rest = absent.into_iter().filter(|name| !rejected.contains(name));
        let rest: Vec<&PropertyName> = rest.collect();
        let elements = |names: &mut dyn Iterator<Item = &PropertyName>| {
            names.map(PropertyName::element).collect()
        };
        let status = if rejected.is_empty() {
            "200 OK"
        } else {
            "424 Failed Dependency"
        };
        let rejected: String = elements(&mut rejected.into_iter());
        let rest: String = elements(&mut rest.into_iter());
        let parts = [
            propstat(&rejected, "403 Forbidden"),
            propstat(&rest, status),
        ];
        within(entry, &parts.concat())
    }
}

impl PropertyName {
    /// Return the name of an element.
    fn of(namespace: &ResolveResult<'_>, start: &BytesStart<'_>) -> Result<Self, String> {
        let text = |bytes: &[u8]| {
            let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
            Ok::<_, String>(text.to_owned())
        };
        let (local, prefix) = start.name().decompose();
        let local = text(local.as_ref())?;
        if !is_name(&local) {
            return Err(format!("the invalid element name `{local}`"));
        }
        let namespace = match namespace {
            ResolveResult::Bound(Namespace(name)) => text(name)?,
            ResolveResult::Unbound => String::new(),
            ResolveResult::Unknown(prefix) => {
                return Err(format!(
                    "the undeclared prefix `{}`",
                    String::from_utf8_lossy(prefix)
                ));
            }
        };
        // Namespaces in XML 1.0, section 6.1: every prefix has a namespace.
        if namespace.is_empty() && prefix.is_some() {
            return Err(format!("`{local}` with a prefix without namespace"));
        }
        Ok(Self { namespace, local })
    }

    fn is_dav(&self, local: &str) -> bool {
        self.namespace.as_bytes() == DAV.0 && self.local == local
    }

    /// Return the element without a value.
    fn element(&self) -> String {
        let Self { namespace, local } = self;
        if self.namespace.as_bytes() == DAV.0 {
            return format!("<D:{local}/>");
        }
        format!("<{local} xmlns=\"{}\"/>", escape(namespace))
    }
}

/// Return whether a text is a valid element name, as far as parsers need it.
fn is_name(text: &str) -> bool {
    let starts = |letter: char| letter.is_alphabetic() || letter == '_';
    let goes_on = |letter: char| letter.is_alphanumeric() || "_-.\u{b7}".contains(letter);
    text.starts_with(starts) && text.chars().all(goes_on)
}

fn name_one_more(named: &mut BTreeSet<PropertyName>, name: &PropertyName) -> Result<(), String> {
    named.insert(name.clone());
    if named.len() > MAX_NAMED {
        return Err(format!("more than {MAX_NAMED} properties"));
    }
    Ok(())
}

/// Read a document and pass the path of each element below the root to a function.
fn read(
    body: &[u8],
    root: &str,
    mut check_destination: impl FnMut(&[PropertyName]) -> Result<(), String>,
) -> Result<(), String> {
    let mut reader = NsReader::from_reader(body);
    let (mut open, mut properties): (Vec<PropertyName>, bool) = (Vec::new(), false);
    loop {
        let (namespace, event) = reader
            .read_resolved_event()
            .map_err(|error| error.to_string())?;
        let (start, stays_open) = match event {
            Event::Start(start) => (start, true),
            Event::Empty(start) => (start, false),
            Event::End(_) => {
                open.pop();
                continue;
            }
            Event::Eof if open.is_empty() && properties => return Ok(()),
            Event::Eof => return Err("incomplete XML".into()),
            Event::DocType(_) => return Err("a document type declaration".into()),
            Event::Text(text) if open.is_empty() && !text.trim_ascii().is_empty() => {
                return Err("text outside of all elements".into());
            }
            _ => continue,
        };
        for attribute in start.attributes() {
            attribute.map_err(|error| error.to_string())?;
        }
        let name = PropertyName::of(&namespace, &start)?;
        let is_root = open.is_empty();
        if is_root && (properties || !name.is_dav(root)) {
            return Err(format!("a root other than the element {root} of DAV:"));
        }
        if open.len() == DEEPEST {
            return Err(format!("XML with more than {DEEPEST} levels"));
        }
        properties = true;
        open.push(name);
        if !is_root {
            check_destination(&open[1..])?;
        }
        if !stays_open {
            open.pop();
        }
    }
}

/// Return the DAV: properties of an entry with their XML values.
fn own(entry: &DavEntry) -> Vec<(&'static str, String)> {
    let kind = match entry.directory {
        true => "<D:collection/>",
        false => "",
    };
    let mut own = vec![("resourcetype", kind.to_owned())];
    let modified = entry.modified.map(httpdate::fmt_http_date);
    own.extend(
        entry
            .size
            .map(|size| ("getcontentlength", size.to_string())),
    );
    own.extend(modified.map(|date| ("getlastmodified", date)));
    let etag = entry.etag.as_ref();
    own.extend(etag.map(|etag| ("getetag", escape(etag).into_owned())));
    own
}

/// Return one response element of a multistatus.
pub(crate) fn response(entry: &DavEntry, requested: &PropfindRequest) -> String {
    let own = own(entry);
    let declared = |(name, value): &(&str, String)| format!("<D:{name}>{value}</D:{name}>");
    let (existing, missing): (String, String) = match requested {
        PropfindRequest::All => (own.iter().map(declared).collect(), String::new()),
        PropfindRequest::Names => {
            let names = own.iter().map(|(name, _)| format!("<D:{name}/>"));
            (names.collect(), String::new())
        }
        PropfindRequest::These(named) => {
            let is_named = |(name, _): &&(&str, String)| named.iter().any(|one| one.is_dav(name));
            let is_missing = |one: &&PropertyName| !own.iter().any(|(name, _)| one.is_dav(name));
            let missing = named.iter().filter(is_missing).map(PropertyName::element);
            (
                own.iter().filter(is_named).map(declared).collect(),
                missing.collect(),
            )
        }
    };
    let mut parts = propstat(&existing, "200 OK");
    parts += &propstat(&missing, "404 Not Found");
    if parts.is_empty() {
        parts = "<D:propstat><D:prop/><D:status>HTTP/1.1 200 OK</D:status></D:propstat>".into();
    }
    within(entry, &parts)
}

/// Return a propstat of properties with a status; empty without properties.
fn propstat(properties: &str, status: &str) -> String {
    if properties.is_empty() {
        return String::new();
    }
    format!(
        "<D:propstat><D:prop>{properties}</D:prop><D:status>HTTP/1.1 {status}</D:status></D:propstat>"
    )
}

/// Return a response element with the path of the entry; a directory gets a trailing slash.
fn within(entry: &DavEntry, parts: &str) -> String {
    let slash = if entry.directory && !entry.path.ends_with(b"/") {
        "/"
    } else {
        ""
    };
    let href = encoded(&entry.path);
    format!(
        "<D:response><D:href>{}{slash}</D:href>{parts}</D:response>\n",
        escape(&href)
    )
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::http::dav::{self, entries};
    use proptest::prelude::*;

    fn name(namespace: &str, local: &str) -> PropertyName {
        let (namespace, local) = (namespace.to_owned(), local.to_owned());
        PropertyName { namespace, local }
    }

    fn find(inside: &str) -> Result<PropfindRequest, String> {
        let text = format!("<a:propfind xmlns:a='DAV:' xmlns:b='other'>{inside}</a:propfind>");
        PropfindRequest::read(text.as_bytes())
    }

    fn file() -> DavEntry {
        DavEntry {
            path: b"/f".to_vec(),
            size: Some(7),
            ..DavEntry::default()
        }
    }

    #[test]
    fn a_query_names_the_requested_properties() {
        assert_eq!(PropfindRequest::read(b""), Ok(PropfindRequest::All));
        assert_eq!(find("<a:allprop/>"), Ok(PropfindRequest::All));
        assert_eq!(
            find("<a:allprop/><a:include><b:x/></a:include>"),
            Ok(PropfindRequest::All)
        );
        assert_eq!(find(" <a:propname />\n"), Ok(PropfindRequest::Names));
        let named = "<a:prop><b:x>1<a:y/></b:x><z xmlns=''/><a:getetag/><a:getetag/></a:prop>";
        let these = [name("other", "x"), name("", "z"), name("DAV:", "getetag")];
        assert_eq!(find(named), Ok(PropfindRequest::These(these.into())));
        let request = PropfindRequest::read(dav::PROPFIND.as_bytes()).expect("our own");
        assert!(matches!(request, PropfindRequest::These(named) if named.len() == 4));
    }

    #[test]
    fn invalid_queries_are_rejected() {
        let many: String = (0..=MAX_NAMED).map(|n| format!("<b:x{n}/>")).collect();
        for wrong in [
            "",
            "<b:allprop/>",
            "<a:allprop/><a:propname/>",
            "<a:prop><c:x/></a:prop>",
            "<a:prop><c:x xmlns:c=''/></a:prop>",
            "<a:prop><b:x&quot;/></a:prop>",
            "<a:prop><b:x></a:prop>",
            "<a:prop><b:x y=1/></a:prop>",
            &format!("<a:prop>{many}</a:prop>"),
            &"<a:prop>".repeat(DEEPEST + 1),
        ] {
            assert!(find(wrong).is_err(), "{wrong}");
        }
        for wrong in [
            "<foo>",
            "<a/>",
            "<propfind/>",
            "<propfind xmlns='DAV:'><allprop/></propfind><x/>",
            "x<propfind xmlns='DAV:'><allprop/></propfind>",
            "<!DOCTYPE a><propfind xmlns='DAV:'><allprop/></propfind>",
        ] {
            assert!(PropfindRequest::read(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn missing_properties_are_reported_as_not_found() {
        let declared = |inside| response(&file(), &find(inside).expect("a question"));
        assert_eq!(
            declared("<a:prop><a:getcontentlength/><b:x/><a:quota/></a:prop>"),
            "<D:response><D:href>/f</D:href>\
            <D:propstat><D:prop><D:getcontentlength>7</D:getcontentlength></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>\
            <D:propstat><D:prop><D:quota/><x xmlns=\"other\"/></D:prop><D:status>HTTP/1.1 404 Not Found</D:status></D:propstat></D:response>\n"
        );
        assert!(declared("<a:propname/>").contains("<D:resourcetype/><D:getcontentlength/>"));
        assert!(declared("<a:prop/>").contains("<D:prop/><D:status>HTTP/1.1 200"));
    }

    #[test]
    fn properties_cannot_be_set_and_missing_properties_can_be_removed() {
        let declared = |inside: &str| {
            let text = format!("<propertyupdate xmlns='DAV:'>{inside}</propertyupdate>");
            PropertyChanges::read(text.as_bytes()).map(|changes| changes.fields(&file()))
        };
        let (x, y) = ("<x xmlns=\"o\"/>", "<y xmlns=\"o\"/>");
        let (set, remove) = (
            |option: &str| format!("<set><prop>{option}</prop></set>"),
            |option: &str| format!("<remove><prop>{option}</prop></remove>"),
        );
        let part = |option: &str, status: &str| {
            format!(
                "<D:propstat><D:prop>{option}</D:prop><D:status>HTTP/1.1 {status}</D:status></D:propstat>"
            )
        };
        let all = |parts: &str| {
            Ok(format!(
                "<D:response><D:href>/f</D:href>{parts}</D:response>\n"
            ))
        };
        assert_eq!(declared(&set(x)), all(&part(x, "403 Forbidden")));
        assert_eq!(declared(&remove(x)), all(&part(x, "200 OK")));
        let both = part(x, "403 Forbidden") + &part(y, "424 Failed Dependency");
        assert_eq!(declared(&(set(x) + &remove(y) + &remove(x))), all(&both));
        let fixed = part("<D:getcontentlength/>", "403 Forbidden");
        assert_eq!(declared(&remove("<getcontentlength/>")), all(&fixed));
        assert!(declared("").is_err() && declared("<set/>").is_err());
    }

    proptest! {
        #[test]
        fn entries_round_trip_through_xml(name in proptest::collection::vec(1_u8.., 1..20), directory: bool, size: u64, seconds in 0..4_000_000_000_u64, etag in "\"[a-z<&]{0,8}\"") {
            prop_assume!(!name.contains(&b'/'));
            let entry = DavEntry {
                path: [b"/", name.as_slice()].concat(),
                directory,
                size: Some(size),
                modified: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)),
                etag: Some(etag),
            };
            let request = PropfindRequest::read(dav::PROPFIND.as_bytes()).expect("our own");
            for requested in [PropfindRequest::All, request] {
                let text = format!("{START}{}{END}", response(&entry, &requested));
                prop_assert_eq!(entries(text.as_bytes()).expect("a listing"), vec![entry.clone()]);
            }
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "[<>/a-zD:&;#x0-9\"= ]{0,200}") {
            for bytes in [&bytes, text.as_bytes()] {
                let _ = (PropfindRequest::read(bytes), PropertyChanges::read(bytes));
            }
        }
    }
}
