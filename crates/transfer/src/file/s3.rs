//! S3 servers: objects of a bucket, with `/` between directories. Buckets are part of the path.

use std::time::SystemTime;

use bytes::Bytes;
use http::header::{ETAG, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use sha2::{Digest, Sha256};
use venturi_gridftp::{base64, parse_timestamp};

use super::content::{BLOCK_BYTES, Checksums, NewFile};
use super::credentials::{S3Keys, s3_keys, s3_region};
use super::error::{ErrorKind, FileError};
use super::http_client::{CompleteResponse, HttpRequests, upload_fields};
use super::location::FileLocation;
use super::s3_listing::{ObjectListing, S3Object, parse_listing};
use super::s3_multipart::MAX_SINGLE_BYTES;
use super::s3_signature::{SignedRequest, encoded, sha256, sign};
use super::server::{FileServer, Metadata, RemoteEntry, RemoteKind, from_hex};
use super::servers::Context;
use crate::checksum::Algorithm;
use crate::http::digest::to_hex;
use crate::http::target::{HttpServer, HttpTarget};

/// Region without a location constraint.
const FIRST_REGION: &str = "us-east-1";
pub(super) const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
const CHECKSUM_MODE: HeaderName = HeaderName::from_static("x-amz-checksum-mode");
const CHECKSUM_SHA256: HeaderName = HeaderName::from_static("x-amz-checksum-sha256");
const ENCRYPTION: HeaderName = HeaderName::from_static("x-amz-server-side-encryption");

/// Server with keys and region.
pub(super) struct S3Files {
    requests: HttpRequests,
    server: HttpServer,
    keys: S3Keys,
    region: String,
}

impl S3Files {
    /// Return the server of a URL.
    ///
    /// # Errors
    /// No keys, or unusable certificates.
    pub(super) fn new(context: Context, at: &FileLocation) -> Result<Self, FileError> {
        if at.url.user.is_some() {
            return Err(FileError::new(
                ErrorKind::Invalid,
                "expected no user in the URL of S3, found one; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            ));
        }
        let server = HttpTarget::from(&at.url).server;
        Ok(Self {
            requests: HttpRequests::new(context, server.tls, HeaderMap::new())?,
            server,
            keys: s3_keys()?,
            region: s3_region()?,
        })
    }

    pub(super) fn requests(&self) -> &HttpRequests {
        &self.requests
    }

    pub(super) fn has_tls(&self) -> bool {
        self.server.tls
    }

    /// Return the target and the signed fields of a request. Parameters are sorted by name.
    pub(super) fn signed(
        &self,
        method: &Method,
        path: &[u8],
        query: &[(&str, &str)],
        mut fields: HeaderMap,
        content_sha256: &str,
    ) -> (HttpTarget, HeaderMap) {
        let path = encoded(path, true);
        let query = query.iter().map(|(name, value)| {
            let value = encoded(value.as_bytes(), false);
            format!("{name}={value}")
        });
        let query = query.collect::<Vec<_>>().join("&");
        let request = SignedRequest {
            method,
            host: &self.server.authority(),
            path: &path,
            query: &query,
            content_sha256,
        };
        sign(
            &request,
            &mut fields,
            &self.keys,
            &self.region,
            SystemTime::now(),
        );
        fields.remove(HOST);
        let target = HttpTarget {
            server: self.server.clone(),
            path: match query.is_empty() {
                true => path,
                false => format!("{path}?{query}"),
            },
        };
        (target, fields)
    }

    /// Send a request with a short body.
    pub(super) fn send(
        &self,
        method: Method,
        path: &[u8],
        query: &[(&str, &str)],
        body: Bytes,
    ) -> Result<CompleteResponse, FileError> {
        let hash = sha256(&body);
        let (target, fields) = self.signed(&method, path, query, HeaderMap::new(), &hash);
        self.requests.send(&target, method, fields, body)
    }

    /// Return a part of the listing of a directory.
    fn listing(
        &self,
        at: &FileLocation,
        most: u32,
        continuation: Option<&str>,
    ) -> Result<ObjectListing, FileError> {
        let (bucket, key) = split(at);
        let prefix = match key.is_empty() {
            true => String::new(),
            false => format!("{}/", String::from_utf8_lossy(key)),
        };
        let most = most.to_string();
        let mut query = Vec::from_iter(continuation.map(|token| ("continuation-token", token)));
        query.extend([
            ("delimiter", "/"),
            ("list-type", "2"),
            ("max-keys", &most),
            ("prefix", &prefix),
        ]);
        let response = self.send(Method::GET, &[b"/", bucket].concat(), &query, Bytes::new())?;
        parse_listing(&response.body).map_err(|found| {
            FileError::new(
                ErrorKind::Other,
                format!("expected a listing, found {found}"),
            )
        })
    }

    /// Return the head of an object, with checksums that the server has.
    fn head(&self, path: &[u8]) -> Result<super::http_client::Head, FileError> {
        let fields = HeaderMap::from_iter([(CHECKSUM_MODE, HeaderValue::from_static("ENABLED"))]);
        let (target, fields) = self.signed(&Method::HEAD, path, &[], fields, &sha256(b""));
        self.requests
            .head(&target, fields)
            .map_err(|error| match error.kind {
                // The response to HEAD has no message.
                ErrorKind::Permission => FileError {
                    message: format!(
                        "{}; check the keys, the region and the clock",
                        error.message
                    ),
                    ..error
                },
                _ => error,
            })
    }

    fn make_bucket(&self, bucket: &[u8]) -> Result<(), FileError> {
        let body = match &*self.region {
            FIRST_REGION => String::new(),
            region => format!(
                "<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><LocationConstraint>{region}</LocationConstraint></CreateBucketConfiguration>"
            ),
        };
        self.send(Method::PUT, &[b"/", bucket].concat(), &[], body.into())
            .map(drop)
    }
}

impl FileServer for S3Files {
    fn stat(&mut self, at: &FileLocation) -> Result<Metadata, FileError> {
        let (bucket, key) = split(at);
        if bucket.is_empty() {
            return Ok(Metadata::DIRECTORY);
        }
        if key.is_empty() {
            return self.head(at.trimmed()).map(|_| Metadata::DIRECTORY);
        }
        match self.head(at.trimmed()) {
            Ok(head) => Ok(Metadata {
                kind: RemoteKind::File,
                size_bytes: head.length,
                modified_s: head.modified_s,
            }),
            Err(error) if error.kind == ErrorKind::NotFound => {
                let found = self.listing(at, 1, None)?;
                let exists = !(found.objects.is_empty() && found.prefixes.is_empty());
                exists.then_some(Metadata::DIRECTORY).ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    fn list(&mut self, at: &FileLocation) -> Result<Vec<RemoteEntry>, FileError> {
        let (bucket, key) = split(at);
        if bucket.is_empty() {
            return Err(FileError::unsupported("name a bucket: s3://HOST/BUCKET"));
        }
        let own = match key.is_empty() {
            true => String::new(),
            false => format!("{}/", String::from_utf8_lossy(key)),
        };
        let (mut entries, mut continuation) = (Vec::new(), None);
        loop {
            let part = self.listing(at, 1000, continuation.as_deref())?;
            for object in part.objects {
                let name = object.key.strip_prefix(&own).unwrap_or_default();
                // An object with the name of the directory marks it.
                if !name.is_empty() {
                    entries.push(RemoteEntry {
                        name: name.to_owned(),
                        metadata: metadata(&object),
                    });
                }
            }
            for prefix in part.prefixes {
                let name = prefix.strip_prefix(&own).unwrap_or_default();
                entries.push(RemoteEntry {
                    name: name.trim_end_matches('/').to_owned(),
                    metadata: Metadata::DIRECTORY,
                });
            }
            continuation = part.next;
            if continuation.is_none() {
                return Ok(entries);
            }
        }
    }

    fn write(&mut self, at: &FileLocation, file: &NewFile) -> Result<Option<Checksums>, FileError> {
        if file.size_bytes > MAX_SINGLE_BYTES {
            return self.write_parts(at, file);
        }
        // TLS protects the content. Without it, the signature does.
        let hash = match self.server.tls {
            true => UNSIGNED.to_owned(),
            false => content_sha256(file),
        };
        let fields = upload_fields(file.size_bytes);
        let (target, fields) = self.signed(&Method::PUT, &at.url.path, &[], fields, &hash);
        self.requests.put(&target, fields, file)
    }

    fn read(&mut self, at: &FileLocation, sink: &mut dyn FnMut(&[u8])) -> Result<(), FileError> {
        let (target, fields) = self.signed(
            &Method::GET,
            &at.url.path,
            &[],
            HeaderMap::new(),
            &sha256(b""),
        );
        self.requests.get(&target, fields, sink)
    }

    fn checksum(
        &mut self,
        at: &FileLocation,
        algorithm: Option<Algorithm>,
    ) -> Result<Option<(Algorithm, Vec<u8>)>, FileError> {
        let fields = self.head(&at.url.path)?.fields;
        let field = |name: &HeaderName| fields.get(name)?.to_str().ok();
        // The tag of an object of several parts has a `-`. With a key of a user or of KMS, the tag is no checksum.
        let is_plain = field(&ENCRYPTION).is_none_or(|method| method == "AES256");
        let tag = field(&ETAG)
            .filter(|_| is_plain)
            .map(|tag| tag.trim_matches('"'));
        let md5 = tag.and_then(from_hex).filter(|value| value.len() == 16);
        let sha256 = field(&CHECKSUM_SHA256).and_then(|text| base64::decode(text.as_bytes()).ok());
        let sha256 = sha256.filter(|value| value.len() == 32);
        Ok(match algorithm {
            Some(Algorithm::Md5) => md5.map(|value| (Algorithm::Md5, value)),
            Some(Algorithm::Sha256) => sha256.map(|value| (Algorithm::Sha256, value)),
            Some(Algorithm::Adler32) => None,
            None => md5
                .map(|value| (Algorithm::Md5, value))
                .or(sha256.map(|value| (Algorithm::Sha256, value))),
        })
    }

    fn remove_file(&mut self, at: &FileLocation) -> Result<(), FileError> {
        self.send(Method::DELETE, &at.url.path, &[], Bytes::new())
            .map(drop)
    }

    fn remove_directory(&mut self, at: &FileLocation) -> Result<(), FileError> {
        let path = match split(at) {
            (_, b"") => at.trimmed().to_vec(),
            _ => [at.trimmed(), b"/"].concat(),
        };
        self.send(Method::DELETE, &path, &[], Bytes::new())
            .map(drop)
    }

    /// Create the bucket. The other directories exist as long as they have objects.
    fn make_directory(&mut self, at: &FileLocation) -> Result<bool, FileError> {
        let (bucket, _) = split(at);
        match self.head(&[b"/", bucket].concat()) {
            Ok(_) => Ok(false),
            Err(error) if error.kind == ErrorKind::NotFound => {
                self.make_bucket(bucket).map(|()| true)
            }
            Err(error) => Err(error),
        }
    }

    fn needs_parents(&self) -> bool {
        false
    }

    fn remove_unfinished(&mut self, at: &FileLocation) -> Result<(), FileError> {
        self.abort_uploads(at)
    }
}

/// Return bucket and key, without slashes around them.
pub(super) fn split(at: &FileLocation) -> (&[u8], &[u8]) {
    let path = at.trimmed();
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let cut = path.iter().position(|byte| *byte == b'/');
    let (bucket, key) = path.split_at(cut.unwrap_or(path.len()));
    (bucket, key.strip_prefix(b"/").unwrap_or(key))
}

fn content_sha256(file: &NewFile) -> String {
    let (mut blocks, mut hash) = (file.blocks(), Sha256::new());
    while let Some(block) = blocks.next(BLOCK_BYTES) {
        hash.update(&block);
    }
    to_hex(&hash.finalize())
}

fn metadata(object: &S3Object) -> Metadata {
    // `2026-11-29T10:00:00.000Z`
    let digits: Option<Vec<u8>> = object.modified.as_ref().map(|time| {
        let seconds = time.split('.').next().unwrap_or_default();
        seconds.bytes().filter(u8::is_ascii_digit).collect()
    });
    Metadata {
        kind: RemoteKind::File,
        size_bytes: object.size_bytes,
        modified_s: digits.and_then(|digits| parse_timestamp(&digits).ok()),
    }
}
