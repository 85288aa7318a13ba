//! A grid for one test: a CA, a host, a user and proxies, created by openssl.

#![allow(dead_code, reason = "each test takes what it needs")]
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "certificates of another program, and the files that it writes"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use venturi_gridftp::gsi::{Credential, TrustStore, check_mode};

/// Name of the user. It contains a blank, like most names; Globus uses it as server name in TLS.
pub const USER: &str = "/O=Test Grid/CN=Some Body";
const AUTHORITY: &str = "/O=Test Grid/CN=Authority";
const USER_EXTENSIONS: &str =
    "keyUsage=critical,digitalSignature,keyEncipherment\nextendedKeyUsage=clientAuth\n";
const HOST_EXTENSIONS: &str = "keyUsage=critical,digitalSignature,keyEncipherment\nextendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=DNS:localhost,IP:127.0.0.1\n";
/// Extensions of a full proxy.
pub const FULL: &str =
    "keyUsage=critical,digitalSignature\nproxyCertInfo=critical,language:id-ppl-inheritAll\n";

/// A directory with `certificates`, `host.pem`, `user.pem` and other issued files. Dropping the
/// value removes it.
pub struct Grid {
    directory: tempfile::TempDir,
    kind: &'static str,
}

impl Grid {
    /// Creates a grid with a CA, the host `localhost` and [`USER`], or returns the reason for a
    /// failure. The chain of the user has RSA keys, because Globus signs proxies only with the
    /// algorithm of their issuer, and gives them keys of the same size.
    pub fn new() -> Result<Self, String> {
        Self::of_keys("rsa")
    }

    /// Creates a grid with P-256 keys, which are generated immediately.
    pub fn quick() -> Result<Self, String> {
        Self::of_keys("ec")
    }

    fn of_keys(kind: &'static str) -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))
            .map_err(|error| error.to_string())?;
        let grid = Self { directory, kind };
        fs::create_dir(grid.path("certificates")).map_err(|error| error.to_string())?;
        grid.authority("ca", AUTHORITY)?;
        grid.trust("ca", Some("\"/O=Test Grid/*\""));
        grid.issue("host", "/O=Test Grid/CN=localhost", "ca", HOST_EXTENSIONS);
        grid.issue("user", USER, "ca", USER_EXTENSIONS);
        Ok(grid)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs openssl in the directory.
    pub fn openssl(&self, arguments: &[&str]) -> Result<String, String> {
        let out = Command::new("openssl")
            .args(arguments)
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("openssl cannot be started ({error})"))?;
        if out.status.success() {
            return Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned());
        }
        let reply_text = String::from_utf8_lossy(&out.stderr);
        Err(format!("openssl {arguments:?}: {reply_text}"))
    }

    fn key(&self, name: &str, kind: &str) {
        let key = format!("{name}.key");
        let made = match kind {
            "rsa" => self.openssl(&["genrsa", "-out", &key, "2048"]),
            _ => {
                let curve = "ec_paramgen_curve:P-256";
                self.openssl(&[
                    "genpkey",
                    "-algorithm",
                    "EC",
                    "-pkeyopt",
                    curve,
                    "-out",
                    &key,
                ])
            }
        };
        made.expect("a key");
        fs::set_permissions(self.path(&key), fs::Permissions::from_mode(0o600)).expect("a mode");
    }

    /// Creates a CA that is not trusted yet.
    pub fn authority(&self, name: &str, subject: &str) -> Result<(), String> {
        let (key, pem) = (format!("{name}.key"), format!("{name}.pem"));
        self.openssl(&["version"])?;
        self.key(name, self.kind);
        self.openssl(&[
            "req",
            "-x509",
            "-new",
            "-key",
            &key,
            "-sha256",
            "-days",
            "30",
            "-subj",
            subject,
            "-addext",
            "basicConstraints=critical,CA:TRUE",
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign",
            "-out",
            &pem,
        ])
        .map(drop)
    }

    /// Adds a CA to `certificates`, with the subjects of its policy.
    pub fn trust(&self, name: &str, subjects: Option<&str>) {
        let pem = format!("{name}.pem");
        let hash = self
            .openssl(&["x509", "-hash", "-noout", "-in", &pem])
            .expect("a hash");
        let at = |ending: &str| self.path("certificates").join(format!("{hash}.{ending}"));
        fs::copy(self.path(&pem), at("0")).expect("a copy");
        if let Some(subjects) = subjects {
            let text = format!(
                "access_id_CA X509 '{AUTHORITY}'\npos_rights globus CA:sign\ncond_subjects globus '{subjects}'\n"
            );
            fs::write(at("signing_policy"), text).expect("a policy");
        }
    }

    /// Creates `NAME.pem` and `NAME.key`, signed by a CA and valid for ten days.
    pub fn issue(&self, name: &str, subject: &str, by: &str, extensions: &str) {
        self.key(name, if name == "host" { "ec" } else { self.kind });
        self.sign(name, subject, by, extensions, &["-days", "10"]);
    }

    /// Creates `NAME.pem` for `NAME.key`, signed by the owner of `BY.pem` and `BY.key`.
    pub fn sign(&self, name: &str, subject: &str, by: &str, extensions: &str, life: &[&str]) {
        let [key, csr, pem, extra] =
            ["key", "csr", "pem", "ext"].map(|end| format!("{name}.{end}"));
        let (ca, ca_key) = (format!("{by}.pem"), format!("{by}.key"));
        fs::write(self.path(&extra), extensions).expect("extensions");
        self.openssl(&["req", "-new", "-key", &key, "-subj", subject, "-out", &csr])
            .expect("a request");
        let serial = format!("{}", 1000 + name.bytes().map(u32::from).sum::<u32>());
        let mut arguments = vec![
            "x509",
            "-req",
            "-in",
            &csr,
            "-CA",
            &ca,
            "-CAkey",
            &ca_key,
            "-set_serial",
            &serial,
            "-sha256",
            "-extfile",
            &extra,
            "-out",
            &pem,
        ];
        arguments.extend(life);
        self.openssl(&arguments).expect("a certificate");
    }

    /// Creates the proxy file `NAME.proxy`. The name of the proxy extends the name of `by`, the
    /// user or an earlier proxy, by a number.
    pub fn proxy(&self, name: &str, by: &str, subject: &str, extensions: &str) -> PathBuf {
        self.proxy_for(name, by, subject, extensions, &["-days", "1"], "ec")
    }

    /// Like [`proxy`](Self::proxy), with a lifetime and a kind of key.
    pub fn proxy_for(
        &self,
        name: &str,
        by: &str,
        subject: &str,
        extensions: &str,
        life: &[&str],
        kind: &str,
    ) -> PathBuf {
        self.key(name, kind);
        self.sign(name, subject, by, extensions, life);
        let above = self.path(&format!("{by}.proxy"));
        let above = if above.exists() {
            above
        } else {
            self.path(&format!("{by}.pem"))
        };
        let text = [format!("{name}.pem"), format!("{name}.key")]
            .map(|file| fs::read_to_string(self.path(&file)).expect("a file"))
            .concat()
            + &certificates(&fs::read_to_string(above).expect("a file"));
        let path = self.path(&format!("{name}.proxy"));
        fs::write(&path, text).expect("a proxy");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
        path
    }

    /// Creates the default proxy of the user, with a key that Globus can delegate.
    pub fn user_proxy(&self) -> PathBuf {
        let subject = format!("{USER}/CN=4711");
        self.proxy_for("usual", "user", &subject, FULL, &["-days", "1"], self.kind)
    }

    pub fn credential(&self, file: &Path) -> Credential {
        self.try_credential(file).expect("a credential")
    }

    pub fn try_credential(&self, file: &Path) -> Result<Credential, venturi_gridftp::FtpError> {
        check_mode(
            file,
            fs::metadata(file).expect("a file").permissions().mode(),
        )?;
        Credential::from_pem(&fs::read(file).expect("a file"), None)
    }

    /// Returns the credential of `NAME.pem` and `NAME.key`.
    pub fn pair(&self, name: &str) -> Credential {
        let read = |end| fs::read(self.path(&format!("{name}.{end}"))).expect("a file");
        Credential::from_pem(&read("pem"), Some(&read("key"))).expect("a credential")
    }

    /// Returns the CAs of the directory `certificates`.
    pub fn trust_store(&self) -> Arc<TrustStore> {
        let files: Vec<(String, Vec<u8>)> = fs::read_dir(self.path("certificates"))
            .expect("a directory")
            .map(|file| {
                let file = file.expect("a file");
                let name = file.file_name().into_string().expect("text");
                (name, fs::read(file.path()).expect("a file"))
            })
            .collect();
        let files = files
            .iter()
            .map(|(name, content)| (name.as_str(), content.as_slice()));
        Arc::new(TrustStore::from_files(files).expect("authorities"))
    }

    /// Sets the environment of a command so that it uses only this grid.
    pub fn environment<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env_remove("X509_USER_CERT")
            .env_remove("X509_USER_KEY")
            .env("HOME", self.directory.path())
            .env("X509_CERT_DIR", self.path("certificates"))
            .env("GRIDMAP", self.path("grid-mapfile"))
    }
}

/// Returns the certificates of a file, without its key.
fn certificates(text: &str) -> String {
    let mut kept = String::new();
    let mut keeps = false;
    for line in text.lines() {
        keeps |= line.contains("BEGIN CERTIFICATE");
        if keeps {
            kept.push_str(line);
            kept.push('\n');
        }
        keeps &= !line.contains("END CERTIFICATE");
    }
    kept
}
