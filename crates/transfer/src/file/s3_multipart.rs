//! Upload of a large S3 object in parts.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Method};

use super::content::{BLOCK_BYTES, Checksums, NewFile, NewFileBlocks};
use super::error::{ErrorKind, FileError};
use super::location::FileLocation;
use super::s3::{S3Files, UNSIGNED, split};
use super::s3_listing::{parse_error, parse_upload_id, parse_uploads};
use super::s3_signature::sha256;

/// Maximum bytes of an object that is uploaded with one request. S3 accepts 5 GiB, but an interrupted request sends all bytes again.
pub(super) const MAX_SINGLE_BYTES: u64 = 32 << 20;
/// Maximum bytes of an object ("Amazon S3 multipart upload limits").
const MAX_OBJECT_BYTES: u64 = 5 << 40;
/// Maximum number of parts of an object ("Amazon S3 multipart upload limits").
const MAX_PARTS: u64 = 10_000;
/// Usual bytes of a part, which is kept in memory. S3 requires 5 MiB or more, except for the last part.
const PART_BYTES: u64 = 16 << 20;

/// Return the bytes of each part except the last one.
fn part_bytes(size_bytes: u64) -> u64 {
    let block = BLOCK_BYTES as u64;
    size_bytes
        .div_ceil(MAX_PARTS)
        .next_multiple_of(block)
        .max(PART_BYTES)
}

impl S3Files {
    /// Write an object in parts. After an error, the server removes the parts.
    pub(super) fn write_parts(
        &self,
        at: &FileLocation,
        file: &NewFile,
    ) -> Result<Option<Checksums>, FileError> {
        if file.size_bytes > MAX_OBJECT_BYTES {
            return Err(FileError::new(
                ErrorKind::Invalid,
                format!(
                    "expected at most {MAX_OBJECT_BYTES} bytes, the limit of S3, found {}; write smaller files",
                    file.size_bytes
                ),
            ));
        }
        let path = &at.url.path;
        let started = self.send(Method::POST, path, &[("uploads", "")], Bytes::new())?;
        let upload = parse_upload_id(&started.body).ok_or_else(|| {
            FileError::new(
                ErrorKind::Other,
                "expected the identifier of an upload, found another response",
            )
        })?;
        let mut blocks = file.blocks();
        let written = self
            .send_parts(path, &upload, &mut blocks, file.size_bytes)
            .and_then(|parts| self.complete(path, &upload, &parts));
        match written {
            Ok(()) => Ok(blocks.checksums()),
            Err(error) => Err(match self.abort(path, &upload) {
                Err(left) if left.kind != ErrorKind::NotFound => FileError {
                    message: format!(
                        "{}; abort the upload {upload} yourself: {}",
                        error.message, left.message
                    ),
                    ..error
                },
                _ => error,
            }),
        }
    }

    /// Send all parts, and return their tags in order.
    fn send_parts(
        &self,
        path: &[u8],
        upload: &str,
        blocks: &mut NewFileBlocks,
        size_bytes: u64,
    ) -> Result<Vec<String>, FileError> {
        let most = usize::try_from(part_bytes(size_bytes)).expect("a part fits into memory");
        let mut tags = Vec::new();
        while let Some(part) = blocks.next(most) {
            let number = (tags.len() + 1).to_string();
            let query = [("partNumber", number.as_str()), ("uploadId", upload)];
            // TLS protects the content. Without it, the signature does.
            let hash = match self.has_tls() {
                true => UNSIGNED.to_owned(),
                false => sha256(&part),
            };
            let length = HeaderValue::from(part.len());
            let fields = HeaderMap::from_iter([(CONTENT_LENGTH, length)]);
            let (target, fields) = self.signed(&Method::PUT, path, &query, fields, &hash);
            let fields = self.requests().put_bytes(&target, fields, part.into())?;
            let tag = fields.get(ETAG).and_then(|tag| tag.to_str().ok());
            let tag = tag.ok_or_else(|| {
                let message = format!("expected the tag of part {number}, found none");
                FileError::new(ErrorKind::Other, message)
            })?;
            tags.push(tag.to_owned());
        }
        Ok(tags)
    }

    /// Create the object from its parts, if it does not exist.
    fn complete(&self, path: &[u8], upload: &str, tags: &[String]) -> Result<(), FileError> {
        let parts = (1..).zip(tags).map(|(number, tag)| {
            let tag = quick_xml::escape::escape(tag.as_str());
            format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>")
        });
        let parts: String = parts.collect();
        let body = Bytes::from(format!(
            "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{parts}</CompleteMultipartUpload>"
        ));
        let fields = HeaderMap::from_iter([
            (CONTENT_TYPE, HeaderValue::from_static("application/xml")),
            (IF_NONE_MATCH, HeaderValue::from_static("*")),
        ]);
        let query = [("uploadId", upload)];
        let (target, fields) = self.signed(&Method::POST, path, &query, fields, &sha256(&body));
        let response = self.requests().send(&target, Method::POST, fields, body)?;
        // The server can report an error after it has sent the status 200.
        match parse_error(&response.body) {
            Some((code, message)) => Err(FileError::text(format!("{code}: {message}"))),
            None => Ok(()),
        }
    }

    /// End an upload and remove its parts.
    fn abort(&self, path: &[u8], upload: &str) -> Result<(), FileError> {
        let query = [("uploadId", upload)];
        self.send(Method::DELETE, path, &query, Bytes::new())
            .map(drop)
    }

    /// Abort all uploads of an object, which a killed process can leave.
    pub(super) fn abort_uploads(&self, at: &FileLocation) -> Result<(), FileError> {
        let (bucket, key) = split(at);
        if key.is_empty() {
            return Ok(());
        }
        let key = String::from_utf8_lossy(key);
        let query = [("prefix", &*key), ("uploads", "")];
        let listed = self.send(Method::GET, &[b"/", bucket].concat(), &query, Bytes::new());
        let listed = match listed {
            Ok(response) => response.body,
            // Some servers and some keys do not list uploads.
            Err(error)
                if matches!(
                    error.kind,
                    ErrorKind::Unsupported | ErrorKind::Permission | ErrorKind::NotFound
                ) =>
            {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let uploads = parse_uploads(&listed).map_err(|found| {
            let message = format!("expected a list of uploads, found {found}");
            FileError::new(ErrorKind::Other, message)
        })?;
        for (of, upload) in uploads {
            if of == key {
                match self.abort(&at.url.path, &upload) {
                    Err(error) if error.kind != ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_of_any_size_is_split_into_few_parts_of_complete_blocks() {
        for size in [
            MAX_SINGLE_BYTES + 1,
            MAX_PARTS * PART_BYTES,
            MAX_PARTS * PART_BYTES + 1,
            MAX_OBJECT_BYTES,
        ] {
            let part = part_bytes(size);
            assert!(size.div_ceil(part) <= MAX_PARTS, "{size}");
            assert!((PART_BYTES..=5 << 30).contains(&part), "{size}");
            assert_eq!(part % BLOCK_BYTES as u64, 0);
        }
        assert_eq!(part_bytes(MAX_SINGLE_BYTES + 1), PART_BYTES);
    }
}
