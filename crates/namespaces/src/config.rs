//! Configuration that the controller sends in one line.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use crate::error::SandboxError;

/// Maximum length of a host name in the kernel (`__NEW_UTS_LEN`).
const MAX_HOST_NAME_BYTES: usize = 64;

/// Configuration of a namespace sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxConfig {
    /// Host name of each host, by its name in the plan.
    pub hosts: BTreeMap<String, String>,
    /// Bind mounts: source and target, both absolute paths.
    #[serde(default)]
    pub binds: Vec<(PathBuf, PathBuf)>,
    /// Directories with an empty tmpfs. Absolute paths.
    #[serde(default)]
    pub tmpfs: Vec<PathBuf>,
}

impl SandboxConfig {
    /// Parses and validates the line.
    ///
    /// # Errors
    /// [`SandboxError::Config`] if the line is not valid JSON, a host name is empty or longer than 64 bytes, or a path
    /// is relative.
    ///
    /// # Examples
    /// ```
    /// let order = venturi_namespaces::SandboxConfig::parse(br#"{"hosts": {"a": "a.lab.test"}, "tmpfs": ["/run"]}"#)?;
    /// assert_eq!(order.hosts["a"], "a.lab.test");
    /// assert!(order.binds.is_empty());
    /// # Ok::<(), venturi_namespaces::SandboxError>(())
    /// ```
    pub fn parse(line: &[u8]) -> Result<Self, SandboxError> {
        let config: Self = serde_json::from_slice(line)
            .map_err(|error| SandboxError::Config(error.to_string()))?;
        for (host, name) in &config.hosts {
            if name.is_empty() || name.len() > MAX_HOST_NAME_BYTES || name.contains('\0') {
                return Err(SandboxError::Config(format!(
                    "hosts.{host}: expected a host name of 1 to {MAX_HOST_NAME_BYTES} bytes, {} has {}",
                    serde_json::Value::from(name.as_str()),
                    name.len()
                )));
            }
        }
        let binds = config.binds.iter().flat_map(|(from, to)| [from, to]);
        if let Some(path) = binds.chain(&config.tmpfs).find(|path| !path.is_absolute()) {
            let found = format!("expected absolute paths, `{}` is relative", path.display());
            return Err(SandboxError::Config(found));
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &str) {
        let error = SandboxConfig::parse(line.as_bytes())
            .expect_err(line)
            .to_string();
        assert!(error.contains(expected), "{line}: {error}");
    }

    #[test]
    fn rejects_invalid_configuration_with_location() {
        check("{}", "missing field `hosts`");
        check("nonsense", "line 1 column");
        check(r#"{"hosts": {}, "mounts": []}"#, "unknown field `mounts`");
        check(r#"{"hosts": {"a": ""}}"#, "hosts.a");
        let long = "x".repeat(65);
        check(&format!(r#"{{"hosts": {{"b": "{long}"}}}}"#), "has 65");
        check(r#"{"hosts": {}, "tmpfs": ["run"]}"#, "`run` is relative");
        check(
            r#"{"hosts": {}, "binds": [["/a", "b"]]}"#,
            "`b` is relative",
        );
    }
}
