//! Responses of S3: listings (ListObjectsV2, ListMultipartUploads), uploads and errors.

use quick_xml::Reader;
use quick_xml::events::Event;

/// Elements within each other; a listing has four.
const MAX_DEPTH: usize = 32;

/// Part of a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ObjectListing {
    pub(super) objects: Vec<S3Object>,
    /// Common prefixes, with the slash at the end.
    pub(super) prefixes: Vec<String>,
    /// Token of the next part.
    pub(super) next: Option<String>,
}

/// Object of a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct S3Object {
    pub(super) key: String,
    pub(super) size_bytes: Option<u64>,
    pub(super) modified: Option<String>,
}

/// Parse a listing.
///
/// # Errors
/// Description of the problem.
pub(super) fn parse_listing(text: &[u8]) -> Result<ObjectListing, String> {
    let mut listing = ObjectListing::default();
    let mut object = S3Object::default();
    let mut is_listing = false;
    elements(text, |path, text| {
        is_listing |= path.first().is_some_and(|root| root == "ListBucketResult");
        let names: Vec<&str> = path.iter().skip(1).map(String::as_str).collect();
        match names[..] {
            ["Contents", "Key"] => object.key = text,
            ["Contents", "Size"] => object.size_bytes = text.parse().ok(),
            ["Contents", "LastModified"] => object.modified = Some(text),
            ["Contents"] => listing.objects.push(std::mem::take(&mut object)),
            ["CommonPrefixes", "Prefix"] => listing.prefixes.push(text),
            ["NextContinuationToken"] => {
                listing.next = Some(text).filter(|token| !token.is_empty())
            }
            _ => {}
        }
    })?;
    is_listing
        .then_some(listing)
        .ok_or_else(|| "no listing".into())
}

/// Return the identifier of a new upload; none if it has none.
pub(super) fn parse_upload_id(text: &[u8]) -> Option<String> {
    let mut found = None;
    elements(text, |path, text| {
        if path == ["InitiateMultipartUploadResult", "UploadId"] && !text.is_empty() {
            found = Some(text);
        }
    })
    .ok()?;
    found
}

/// Parse a list of unfinished uploads: key and identifier of each.
///
/// # Errors
/// Description of the problem.
pub(super) fn parse_uploads(text: &[u8]) -> Result<Vec<(String, String)>, String> {
    let (mut uploads, mut upload) = (Vec::new(), (String::new(), String::new()));
    let mut is_list = false;
    elements(text, |path, text| {
        is_list |= path
            .first()
            .is_some_and(|root| root == "ListMultipartUploadsResult");
        let names: Vec<&str> = path.iter().skip(1).map(String::as_str).collect();
        match names[..] {
            ["Upload", "Key"] => upload.0 = text,
            ["Upload", "UploadId"] => upload.1 = text,
            ["Upload"] => uploads.push(std::mem::take(&mut upload)),
            _ => {}
        }
    })?;
    is_list
        .then_some(uploads)
        .ok_or_else(|| "no list of uploads".into())
}

/// Return code and message of an error; none if it is no error of S3.
pub(super) fn parse_error(text: &[u8]) -> Option<(String, String)> {
    let (mut code, mut message) = (None, String::new());
    elements(text, |path, text| {
        let names: Vec<&str> = path.iter().map(String::as_str).collect();
        match names[..] {
            ["Error", "Code"] => code = Some(text),
            ["Error", "Message"] => message = text,
            _ => {}
        }
    })
    .ok()?;
    Some((code?, message))
}

/// Call `end` at the end of each element with its names from the root and its text.
fn elements(text: &[u8], mut end: impl FnMut(&[String], String)) -> Result<(), String> {
    let mut reader = Reader::from_reader(text);
    let (mut path, mut content): (Vec<String>, String) = (Vec::new(), String::new());
    loop {
        match reader.read_event().map_err(|error| error.to_string())? {
            Event::Start(start) => {
                if path.len() == MAX_DEPTH {
                    return Err(format!("XML with more than {MAX_DEPTH} levels"));
                }
                path.push(String::from_utf8_lossy(start.local_name().as_ref()).into_owned());
                content.clear();
            }
            Event::Empty(start) => {
                path.push(String::from_utf8_lossy(start.local_name().as_ref()).into_owned());
                end(&path, String::new());
                path.pop();
            }
            Event::End(_) => {
                end(&path, std::mem::take(&mut content));
                path.pop().ok_or("an end tag without a start tag")?;
            }
            Event::Text(text) => {
                content.push_str(&text.decode().map_err(|error| error.to_string())?)
            }
            Event::CData(text) => {
                content.push_str(&text.decode().map_err(|error| error.to_string())?)
            }
            Event::GeneralRef(reference) => {
                content.push_str(&crate::http::dav::resolved(&reference)?);
            }
            Event::DocType(_) => return Err("a document type declaration".into()),
            Event::Eof if path.is_empty() => return Ok(()),
            Event::Eof => return Err("an incomplete XML document".into()),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn objects_prefixes_and_continuation_of_a_listing_are_parsed() {
        let text = br#"<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
            <Prefix>a/</Prefix><IsTruncated>true</IsTruncated><NextContinuationToken>t&amp;1</NextContinuationToken>
            <Contents><Key>a/b&#x20;c</Key><LastModified>2026-11-29T10:00:00.000Z</LastModified><Size>7</Size>
            <Owner><ID>x</ID></Owner></Contents><CommonPrefixes><Prefix>a/d/</Prefix></CommonPrefixes></ListBucketResult>"#;
        let found = parse_listing(text).expect("a listing");
        assert_eq!(found.prefixes, ["a/d/"]);
        assert_eq!(found.next.as_deref(), Some("t&1"));
        let object = &found.objects[0];
        assert_eq!((object.key.as_str(), object.size_bytes), ("a/b c", Some(7)));
        let error = b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>";
        assert_eq!(
            parse_error(error),
            Some(("NoSuchKey".into(), "none".into()))
        );
        parse_listing(error).expect_err("an error is no listing");
    }

    #[test]
    fn uploads_are_parsed_with_keys_and_identifiers() {
        let text = b"<ListMultipartUploadsResult><Bucket>b</Bucket><Upload><Key>a/b</Key><UploadId>1</UploadId></Upload>\
            <Upload><Key>c</Key><Owner><ID>x</ID></Owner><UploadId>2</UploadId></Upload></ListMultipartUploadsResult>";
        let expected = [("a/b", "1"), ("c", "2")].map(|(key, id)| (key.into(), id.into()));
        assert_eq!(parse_uploads(text), Ok(expected.to_vec()));
        let started = b"<InitiateMultipartUploadResult><UploadId>3</UploadId></InitiateMultipartUploadResult>";
        assert_eq!(parse_upload_id(started).as_deref(), Some("3"));
        assert_eq!(parse_upload_id(text), None);
        parse_uploads(started).expect_err("an upload is no list");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "[<>/A-Za-z:&;#x0-9\"= ]{0,200}") {
            let _ = (parse_listing(&bytes), parse_error(text.as_bytes()));
            let _ = (parse_uploads(text.as_bytes()), parse_upload_id(&bytes));
        }
    }
}
