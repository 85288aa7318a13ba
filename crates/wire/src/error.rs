//! What can be wrong with a network, or with the machine that is to carry it.

/// What was expected, what was found, and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The description of the network is not one that can be built.
    #[error("network.{place}: expected {expected}, found {found}")]
    Network {
        /// Path into the description.
        place: String,
        /// What is needed.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A host of the network has no namespace.
    #[error(
        "namespaces: expected a path for host `{host}` (interface `{interface}`), found none; name its namespace, such as \
         `/proc/PID/ns/net`"
    )]
    NoNamespace {
        /// The host.
        host: String,
        /// The interface that is in it.
        interface: String,
    },
    /// A device could not be made.
    #[error(
        "interface `{interface}`: expected {expected}, found: {source}; `venturi doctor` says what this machine allows"
    )]
    Device {
        /// The interface.
        interface: String,
        /// The step that failed.
        expected: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The process could not be set up.
    #[error("expected {expected} on this machine, found: {source}")]
    System {
        /// The step that failed.
        expected: &'static str,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A line from the controller is no command.
    #[error("command: {0}")]
    Command(#[from] serde_json::Error),
    /// A command came at the wrong moment or names what is not there.
    #[error("command `{command}`: expected {expected}, found {found}")]
    Order {
        /// The command.
        command: &'static str,
        /// What is needed.
        expected: String,
        /// What is there.
        found: String,
    },
}

impl Error {
    pub(crate) fn network(
        place: impl Into<String>,
        expected: impl Into<String>,
        found: impl std::fmt::Display,
    ) -> Self {
        Self::Network {
            place: place.into(),
            expected: expected.into(),
            found: found.to_string(),
        }
    }
}
