//! Properties of WebDAV (RFC 4918): what PROPFIND and PROPPATCH ask, read, and how it is answered. There are those of files and directories
//! themselves; none is kept that clients make up.

use std::collections::BTreeSet;

use quick_xml::NsReader;
use quick_xml::escape::escape;
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::{Namespace, ResolveResult};

use crate::http::dav::{DAV, DEEPEST, Entry};
use crate::net::url::encoded;

/// Properties that one question may name: those of real clients are some tens, and each is told of each file.
const MOST_NAMED: usize = 256;

/// Begins a multistatus.
pub(crate) const BEGIN: &str =
    "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n";
/// Ends it.
pub(crate) const END: &str = "</D:multistatus>\n";

/// What PROPFIND asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All that there is.
    All,
    /// The names of that.
    Names,
    /// These.
    These(BTreeSet<Name>),
}

/// The name of a property.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    /// Empty: none.
    namespace: String,
    local: String,
}

/// What PROPPATCH is to set and to remove.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    set: BTreeSet<Name>,
    remove: BTreeSet<Name>,
}

impl Wanted {
    /// Reads the body of a PROPFIND; an empty one asks for all.
    ///
    /// # Errors
    /// What is wrong with it, in words.
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

impl Changes {
    /// Reads the body of a PROPPATCH.
    ///
    /// # Errors
    /// What is wrong with it, in words.
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
            return Err("nothing to be set or removed".into());
        }
        Ok(changes)
    }

    /// What has become of them. Nothing can be set, and what is removed was not there, unless it is one that stays (RFC 4918, section 9.2): all is
    /// done, or nothing.
    pub(crate) fn answer(&self, entry: &Entry) -> String {
        let own = own(entry);
        let stays = |name: &&Name| own.iter().any(|(own, _)| name.is_dav(own));
        let (fixed, absent): (Vec<&Name>, Vec<&Name>) = self.remove.iter().partition(stays);
        let refused: BTreeSet<&Name> = self.set.iter().chain(fixed).collect();
        let rest = absent.into_iter().filter(|name| !refused.contains(name));
        let rest: Vec<&Name> = rest.collect();
        let elements = |names: &mut dyn Iterator<Item = &Name>| names.map(Name::element).collect();
        let status = if refused.is_empty() {
            "200 OK"
        } else {
            "424 Failed Dependency"
        };
        let refused: String = elements(&mut refused.into_iter());
        let rest: String = elements(&mut rest.into_iter());
        let parts = [propstat(&refused, "403 Forbidden"), propstat(&rest, status)];
        within(entry, &parts.concat())
    }
}

impl Name {
    /// The name of an element.
    fn of(namespace: &ResolveResult<'_>, start: &BytesStart<'_>) -> Result<Self, String> {
        let text = |bytes: &[u8]| {
            let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
            Ok::<_, String>(text.to_owned())
        };
        let (local, prefix) = start.name().decompose();
        let local = text(local.as_ref())?;
        if !is_name(&local) {
            return Err(format!("`{local}`, which no element is called"));
        }
        let namespace = match namespace {
            ResolveResult::Bound(Namespace(name)) => text(name)?,
            ResolveResult::Unbound => String::new(),
            ResolveResult::Unknown(prefix) => {
                return Err(format!(
                    "a prefix `{}` that is not declared",
                    String::from_utf8_lossy(prefix)
                ));
            }
        };
        // Namespaces in XML 1.0, section 6.1: a prefix is of some namespace.
        if namespace.is_empty() && prefix.is_some() {
            return Err(format!("`{local}`, whose prefix is of no namespace"));
        }
        Ok(Self { namespace, local })
    }

    fn is_dav(&self, local: &str) -> bool {
        self.namespace.as_bytes() == DAV.0 && self.local == local
    }

    /// It without a value.
    fn element(&self) -> String {
        let Self { namespace, local } = self;
        if self.namespace.as_bytes() == DAV.0 {
            return format!("<D:{local}/>");
        }
        format!("<{local} xmlns=\"{}\"/>", escape(namespace))
    }
}

/// Whether something may be the name of an element, as far as it matters to who reads it.
fn is_name(text: &str) -> bool {
    let begins = |letter: char| letter.is_alphabetic() || letter == '_';
    let goes_on = |letter: char| letter.is_alphanumeric() || "_-.\u{b7}".contains(letter);
    text.starts_with(begins) && text.chars().all(goes_on)
}

fn name_one_more(named: &mut BTreeSet<Name>, name: &Name) -> Result<(), String> {
    named.insert(name.clone());
    if named.len() > MOST_NAMED {
        return Err(format!("more than {MOST_NAMED} properties"));
    }
    Ok(())
}

/// Reads a document, and shows each element below its root by its path from there.
fn read(
    body: &[u8],
    root: &str,
    mut see: impl FnMut(&[Name]) -> Result<(), String>,
) -> Result<(), String> {
    let mut reader = NsReader::from_reader(body);
    let (mut open, mut seen): (Vec<Name>, bool) = (Vec::new(), false);
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
            Event::Eof if open.is_empty() && seen => return Ok(()),
            Event::Eof => return Err("XML that ends early".into()),
            Event::DocType(_) => return Err("a document type".into()),
            Event::Text(text) if open.is_empty() && !text.trim_ascii().is_empty() => {
                return Err("text outside of all elements".into());
            }
            _ => continue,
        };
        for attribute in start.attributes() {
            attribute.map_err(|error| error.to_string())?;
        }
        let name = Name::of(&namespace, &start)?;
        let is_root = open.is_empty();
        if is_root && (seen || !name.is_dav(root)) {
            return Err(format!("something else than one element {root} of DAV:"));
        }
        if open.len() == DEEPEST {
            return Err(format!("XML of more than {DEEPEST} levels"));
        }
        seen = true;
        open.push(name);
        if !is_root {
            see(&open[1..])?;
        }
        if !stays_open {
            open.pop();
        }
    }
}

/// What a thing has, in DAV:, with its value as XML.
fn own(entry: &Entry) -> Vec<(&'static str, String)> {
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

/// One thing of a multistatus.
pub(crate) fn response(entry: &Entry, wanted: &Wanted) -> String {
    let own = own(entry);
    let told = |(name, value): &(&str, String)| format!("<D:{name}>{value}</D:{name}>");
    let (there, missing): (String, String) = match wanted {
        Wanted::All => (own.iter().map(told).collect(), String::new()),
        Wanted::Names => {
            let names = own.iter().map(|(name, _)| format!("<D:{name}/>"));
            (names.collect(), String::new())
        }
        Wanted::These(named) => {
            let is_named = |(name, _): &&(&str, String)| named.iter().any(|one| one.is_dav(name));
            let is_missing = |one: &&Name| !own.iter().any(|(name, _)| one.is_dav(name));
            let missing = named.iter().filter(is_missing).map(Name::element);
            (
                own.iter().filter(is_named).map(told).collect(),
                missing.collect(),
            )
        }
    };
    let mut parts = propstat(&there, "200 OK");
    parts += &propstat(&missing, "404 Not Found");
    if parts.is_empty() {
        parts = "<D:propstat><D:prop/><D:status>HTTP/1.1 200 OK</D:status></D:propstat>".into();
    }
    within(entry, &parts)
}

/// Properties with what has become of them; nothing of none.
fn propstat(properties: &str, status: &str) -> String {
    if properties.is_empty() {
        return String::new();
    }
    format!(
        "<D:propstat><D:prop>{properties}</D:prop><D:status>HTTP/1.1 {status}</D:status></D:propstat>"
    )
}

/// What is told of a thing, with its path; that of a collection gets its slash.
fn within(entry: &Entry, parts: &str) -> String {
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

    fn name(namespace: &str, local: &str) -> Name {
        let (namespace, local) = (namespace.to_owned(), local.to_owned());
        Name { namespace, local }
    }

    fn find(inside: &str) -> Result<Wanted, String> {
        let text = format!("<a:propfind xmlns:a='DAV:' xmlns:b='other'>{inside}</a:propfind>");
        Wanted::read(text.as_bytes())
    }

    fn file() -> Entry {
        Entry {
            path: b"/f".to_vec(),
            size: Some(7),
            ..Entry::default()
        }
    }

    #[test]
    fn a_question_names_what_it_asks_for() {
        assert_eq!(Wanted::read(b""), Ok(Wanted::All));
        assert_eq!(find("<a:allprop/>"), Ok(Wanted::All));
        assert_eq!(
            find("<a:allprop/><a:include><b:x/></a:include>"),
            Ok(Wanted::All)
        );
        assert_eq!(find(" <a:propname />\n"), Ok(Wanted::Names));
        let named = "<a:prop><b:x>1<a:y/></b:x><z xmlns=''/><a:getetag/><a:getetag/></a:prop>";
        let these = [name("other", "x"), name("", "z"), name("DAV:", "getetag")];
        assert_eq!(find(named), Ok(Wanted::These(these.into())));
        let asked = Wanted::read(dav::PROPFIND.as_bytes()).expect("our own");
        assert!(matches!(asked, Wanted::These(named) if named.len() == 4));
    }

    #[test]
    fn what_is_no_question_is_refused() {
        let many: String = (0..=MOST_NAMED).map(|n| format!("<b:x{n}/>")).collect();
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
            assert!(Wanted::read(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_not_there_is_told_as_such() {
        let told = |inside| response(&file(), &find(inside).expect("a question"));
        assert_eq!(
            told("<a:prop><a:getcontentlength/><b:x/><a:quota/></a:prop>"),
            "<D:response><D:href>/f</D:href>\
            <D:propstat><D:prop><D:getcontentlength>7</D:getcontentlength></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>\
            <D:propstat><D:prop><D:quota/><x xmlns=\"other\"/></D:prop><D:status>HTTP/1.1 404 Not Found</D:status></D:propstat></D:response>\n"
        );
        assert!(told("<a:propname/>").contains("<D:resourcetype/><D:getcontentlength/>"));
        assert!(told("<a:prop/>").contains("<D:prop/><D:status>HTTP/1.1 200"));
    }

    #[test]
    fn nothing_is_set_and_what_is_not_there_is_removed() {
        let told = |inside: &str| {
            let text = format!("<propertyupdate xmlns='DAV:'>{inside}</propertyupdate>");
            Changes::read(text.as_bytes()).map(|changes| changes.answer(&file()))
        };
        let (x, y) = ("<x xmlns=\"o\"/>", "<y xmlns=\"o\"/>");
        let (set, remove) = (
            |what: &str| format!("<set><prop>{what}</prop></set>"),
            |what: &str| format!("<remove><prop>{what}</prop></remove>"),
        );
        let part = |what: &str, status: &str| {
            format!(
                "<D:propstat><D:prop>{what}</D:prop><D:status>HTTP/1.1 {status}</D:status></D:propstat>"
            )
        };
        let all = |parts: &str| {
            Ok(format!(
                "<D:response><D:href>/f</D:href>{parts}</D:response>\n"
            ))
        };
        assert_eq!(told(&set(x)), all(&part(x, "403 Forbidden")));
        assert_eq!(told(&remove(x)), all(&part(x, "200 OK")));
        let both = part(x, "403 Forbidden") + &part(y, "424 Failed Dependency");
        assert_eq!(told(&(set(x) + &remove(y) + &remove(x))), all(&both));
        let fixed = part("<D:getcontentlength/>", "403 Forbidden");
        assert_eq!(told(&remove("<getcontentlength/>")), all(&fixed));
        assert!(told("").is_err() && told("<set/>").is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(name in proptest::collection::vec(1_u8.., 1..20), directory: bool, size: u64, seconds in 0..4_000_000_000_u64, etag in "\"[a-z<&]{0,8}\"") {
            prop_assume!(!name.contains(&b'/'));
            let entry = Entry {
                path: [b"/", name.as_slice()].concat(),
                directory,
                size: Some(size),
                modified: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)),
                etag: Some(etag),
            };
            let asked = Wanted::read(dav::PROPFIND.as_bytes()).expect("our own");
            for wanted in [Wanted::All, asked] {
                let text = format!("{BEGIN}{}{END}", response(&entry, &wanted));
                prop_assert_eq!(entries(text.as_bytes()).expect("a listing"), vec![entry.clone()]);
            }
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "[<>/a-zD:&;#x0-9\"= ]{0,200}") {
            for bytes in [&bytes, text.as_bytes()] {
                let _ = (Wanted::read(bytes), Changes::read(bytes));
            }
        }
    }
}
