//! HTTP and WebDAV servers.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use venturi_gridftp::base64;

use super::content::{Checksums, NewFile};
use super::credentials;
use super::error::{ErrorKind, FileError};
use super::http_client::{HttpRequests, seconds, upload_fields};
use super::location::FileLocation;
use super::server::{FileServer, Metadata, RemoteEntry, RemoteKind};
use super::servers::{Context, unusable};
use crate::checksum::Algorithm;
use crate::http::dav::{self, DavEntry};
use crate::http::digest::{self, WANT_DIGEST, WANT_REPR_DIGEST};
use crate::http::target::HttpTarget;

/// RFC 4918, section 10.2.
const DEPTH: HeaderName = HeaderName::from_static("depth");

/// Server with kept connections.
pub(super) struct HttpFiles {
    requests: HttpRequests,
    /// False after the server has rejected a method of WebDAV.
    has_dav: bool,
}

impl HttpFiles {
    /// Return the server of a URL.
    ///
    /// # Errors
    /// An unusable token, login or certificate.
    pub(super) fn new(context: Context, at: &FileLocation) -> Result<Self, FileError> {
        let mut secrets = HeaderMap::new();
        if let Some(mut value) = authorization(at)? {
            value.set_sensitive(true);
            secrets.insert(AUTHORIZATION, value);
        }
        Ok(Self {
            requests: HttpRequests::new(context, HttpTarget::from(&at.url).server.tls, secrets)?,
            has_dav: true,
        })
    }

    /// Return the entries of a PROPFIND, or none if the server has no WebDAV.
    fn propfind(
        &mut self,
        target: &HttpTarget,
        depth: &'static str,
    ) -> Result<Option<Vec<DavEntry>>, FileError> {
        if !self.has_dav {
            return Ok(None);
        }
        let mut fields = HeaderMap::new();
        fields.insert(DEPTH, HeaderValue::from_static(depth));
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        let body = Bytes::from_static(dav::PROPFIND.as_bytes());
        let sent = self
            .requests
            .send(target, method(b"PROPFIND"), fields, body);
        let (status, text) = match sent {
            Ok(response) => (response.status, response.body),
            Err(error) if error.kind == ErrorKind::Unsupported => {
                self.has_dav = false;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if status != StatusCode::MULTI_STATUS {
            self.has_dav = false;
            return Ok(None);
        }
        dav::entries(&text).map(Some).map_err(|found| {
            FileError::new(
                ErrorKind::Other,
                format!("expected a WebDAV listing, found {found}"),
            )
        })
    }

    /// Return the metadata of a path from a HEAD request.
    fn head(&mut self, target: &HttpTarget) -> Result<Metadata, FileError> {
        let response = self.requests.head(target, HeaderMap::new())?;
        if response.is_directory {
            return Ok(Metadata::DIRECTORY);
        }
        Ok(Metadata {
            kind: RemoteKind::File,
            size_bytes: response.length,
            modified_s: response.modified_s,
        })
    }

    /// Remove a path.
    fn delete(&mut self, target: &HttpTarget) -> Result<(), FileError> {
        self.requests
            .send(target, Method::DELETE, HeaderMap::new(), Bytes::new())
            .map(drop)
    }
}

impl FileServer for HttpFiles {
    fn stat(&mut self, at: &FileLocation) -> Result<Metadata, FileError> {
        let target = HttpTarget::from(&at.url);
        match self.propfind(&target, "0") {
            Ok(Some(entries)) => {
                let entry = entries.into_iter().next().ok_or_else(|| {
                    FileError::new(ErrorKind::Other, "expected a listing, found nothing")
                })?;
                Ok(metadata(&entry))
            }
            Ok(None) => self.head(&target),
            // A server without WebDAV can return 404 for an existing file.
            Err(error) if error.kind == ErrorKind::NotFound => {
                let found = self.head(&target)?;
                // Another client can have created a directory since the first request, and HEAD often describes it as a file.
                match self.propfind(&target, "0") {
                    Ok(Some(entries)) => Ok(entries.first().map_or(found, metadata)),
                    _ => Ok(found),
                }
            }
            Err(error) => Err(error),
        }
    }

    fn list(&mut self, at: &FileLocation) -> Result<Vec<RemoteEntry>, FileError> {
        let target = HttpTarget::from(&at.url).directory_url();
        let Some(entries) = self.propfind(&target, "1")? else {
            return Err(FileError::unsupported(
                "the server has no WebDAV, so it has no listings",
            ));
        };
        let own = at.with_path(at.trimmed().to_vec()).url.path;
        let own = if own.is_empty() { b"/".to_vec() } else { own };
        let children = dav::children(&own, entries);
        let children = children.map_err(|found| {
            FileError::new(
                ErrorKind::Other,
                format!("expected names in the directory, found {found}"),
            )
        })?;
        Ok(children
            .into_iter()
            .map(|(name, entry)| RemoteEntry {
                name: String::from_utf8_lossy(&name).into_owned(),
                metadata: metadata(&entry),
            })
            .collect())
    }

    fn write(&mut self, at: &FileLocation, file: &NewFile) -> Result<Option<Checksums>, FileError> {
        let target = HttpTarget::from(&at.url);
        self.requests
            .put(&target, upload_fields(file.size_bytes), file)
    }

    fn read(&mut self, at: &FileLocation, sink: &mut dyn FnMut(&[u8])) -> Result<(), FileError> {
        self.requests
            .get(&HttpTarget::from(&at.url), HeaderMap::new(), sink)
    }

    fn checksum(
        &mut self,
        at: &FileLocation,
        algorithm: Option<Algorithm>,
    ) -> Result<Option<(Algorithm, Vec<u8>)>, FileError> {
        let target = HttpTarget::from(&at.url);
        let (old, new) = match algorithm {
            // XRootD does not support lists in the old field.
            None | Some(Algorithm::Adler32) => ("adler32", "adler=10"),
            Some(Algorithm::Md5) => ("md5", "md5=10"),
            Some(Algorithm::Sha256) => ("sha-256", "sha-256=10"),
        };
        let new = match algorithm {
            None => "adler=10, md5=5, sha-256=3",
            Some(_) => new,
        };
        let mut fields = HeaderMap::new();
        fields.insert(WANT_DIGEST, HeaderValue::from_static(old));
        fields.insert(WANT_REPR_DIGEST, HeaderValue::from_static(new));
        let response = match self.requests.head(&target, fields) {
            Ok(response) => response,
            // XRootD 5.5 rejects the request if it has no checksum: 405 if it may not compute one, 500 otherwise.
            Err(error) if matches!(error.kind, ErrorKind::Unsupported | ErrorKind::Other) => {
                self.head(&target)?;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let mut found = digest::found(&response.fields).into_iter();
        Ok(found.find(|(found, _)| algorithm.is_none_or(|algorithm| algorithm == *found)))
    }

    fn remove_file(&mut self, at: &FileLocation) -> Result<(), FileError> {
        self.delete(&HttpTarget::from(&at.url))
    }

    fn remove_directory(&mut self, at: &FileLocation) -> Result<(), FileError> {
        // nginx requires the slash at the end.
        self.delete(&HttpTarget::from(&at.url).directory_url())
    }

    fn make_directory(&mut self, at: &FileLocation) -> Result<bool, FileError> {
        let target = HttpTarget::from(&at.url).directory_url();
        let made = self
            .requests
            .send(&target, method(b"MKCOL"), HeaderMap::new(), Bytes::new());
        match made {
            Ok(_) => Ok(true),
            // RFC 4918, section 9.3.1: 405 if the path exists.
            Err(error) if error.kind == ErrorKind::Unsupported && self.has_dav => Err(FileError {
                kind: ErrorKind::Exists,
                ..error
            }),
            Err(error) => Err(error),
        }
    }
}

/// Return the credential for a server: the login of the URL, the token, or the login in `.netrc`, in this order.
fn authorization(at: &FileLocation) -> Result<Option<HeaderValue>, FileError> {
    let url = &at.url;
    let basic = |user: &[u8], password: &[u8]| {
        let login = base64::encode(&[user, b":", password].concat());
        HeaderValue::try_from(format!("Basic {login}")).expect("letters, digits and marks")
    };
    if let (Some(user), Some(password)) = (&url.user, &url.password) {
        return Ok(Some(basic(user, &password.0)));
    }
    if url.user.is_none()
        && let Some(token) = crate::http::token::ours().map_err(unusable)?
    {
        let value = [b"Bearer ", token.0.as_slice()].concat();
        return Ok(Some(
            HeaderValue::try_from(value).expect("letters, digits and marks"),
        ));
    }
    let login = credentials::netrc(&url.host, url.user.as_deref())?;
    Ok(login.map(|(user, password)| basic(&user, &password.0)))
}

fn method(name: &[u8]) -> Method {
    Method::from_bytes(name).expect("letters")
}

fn metadata(entry: &DavEntry) -> Metadata {
    let modified = entry.modified.and_then(seconds);
    Metadata {
        kind: match entry.directory {
            true => RemoteKind::Directory,
            false => RemoteKind::File,
        },
        size_bytes: entry.size.filter(|_| !entry.directory),
        modified_s: modified,
    }
}
