//! What the controller asks for, in the one line that it writes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use crate::error::Error;

/// The kernel takes no longer host name (`__NEW_UTS_LEN`).
const HOST_NAME_LIMIT_BYTES: usize = 64;

/// The ground that is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The name that each host gives itself, by its name in the plan.
    pub hosts: BTreeMap<String, String>,
    /// Files or folders that lie over others: what, and over which. Both are absolute paths.
    #[serde(default)]
    pub binds: Vec<(PathBuf, PathBuf)>,
    /// Folders that are empty and in memory, of the lab's own. Absolute paths.
    #[serde(default)]
    pub tmpfs: Vec<PathBuf>,
}

impl Order {
    /// Reads the line, and refuses what the kernel would refuse less clearly.
    ///
    /// # Errors
    /// [`Error::Order`] if it is no such line, a host name is empty or longer than 64 bytes, or a path is relative.
    ///
    /// # Examples
    /// ```
    /// let order = venturi_hold::Order::parse(br#"{"hosts": {"a": "a.lab.test"}, "tmpfs": ["/run"]}"#)?;
    /// assert_eq!(order.hosts["a"], "a.lab.test");
    /// assert!(order.binds.is_empty());
    /// # Ok::<(), venturi_hold::Error>(())
    /// ```
    pub fn parse(line: &[u8]) -> Result<Self, Error> {
        let order: Self =
            serde_json::from_slice(line).map_err(|error| Error::Order(error.to_string()))?;
        for (host, name) in &order.hosts {
            if name.is_empty() || name.len() > HOST_NAME_LIMIT_BYTES || name.contains('\0') {
                return Err(Error::Order(format!(
                    "hosts.{host}: a host name has 1 to {HOST_NAME_LIMIT_BYTES} bytes, {} has {}",
                    serde_json::Value::from(name.as_str()),
                    name.len()
                )));
            }
        }
        let binds = order.binds.iter().flat_map(|(from, to)| [from, to]);
        if let Some(path) = binds.chain(&order.tmpfs).find(|path| !path.is_absolute()) {
            let found = format!("paths are absolute, `{}` is not", path.display());
            return Err(Error::Order(found));
        }
        Ok(order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &str) {
        let error = Order::parse(line.as_bytes()).expect_err(line).to_string();
        assert!(error.contains(expected), "{line}: {error}");
    }

    #[test]
    fn what_cannot_be_held_is_refused_and_the_place_is_told() {
        check("{}", "missing field `hosts`");
        check("nonsense", "line 1 column");
        check(r#"{"hosts": {}, "mounts": []}"#, "unknown field `mounts`");
        check(r#"{"hosts": {"a": ""}}"#, "hosts.a");
        let long = "x".repeat(65);
        check(&format!(r#"{{"hosts": {{"b": "{long}"}}}}"#), "has 65");
        check(r#"{"hosts": {}, "tmpfs": ["run"]}"#, "`run` is not");
        check(r#"{"hosts": {}, "binds": [["/a", "b"]]}"#, "`b` is not");
    }
}
