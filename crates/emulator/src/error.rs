//! Errors of a network, or of the machine that emulates it.

/// Location, expected and found value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmulatorError {
    /// The description of the network is invalid.
    #[error("network.{location}: expected {expected}, found {found}")]
    Network {
        /// Path into the description.
        location: String,
        /// Expected value.
        expected: String,
        /// Found value.
        found: String,
    },
    /// A host of the network has no namespace.
    #[error(
        "namespaces: expected a path for host `{host}` (interface `{interface}`), found none; give the \
         path of its namespace, such as `/proc/PID/ns/net`"
    )]
    NoNamespace {
        /// The host.
        host: String,
        /// Its interface.
        interface: String,
    },
    /// A device could not be created.
    #[error(
        "interface `{interface}`: cannot provide {expected}: {source}; to check this machine, run \
         `venturi doctor`"
    )]
    Device {
        /// The interface.
        interface: String,
        /// The step that failed.
        expected: String,
        /// Error of the kernel.
        source: std::io::Error,
    },
    /// The process could not be set up.
    #[error(
        "cannot provide {expected} on this machine: {source}; to check this machine, run `venturi \
     doctor`"
    )]
    System {
        /// The step that failed.
        expected: &'static str,
        /// Error of the kernel.
        source: std::io::Error,
    },
    /// A line from the controller is not a command.
    #[error("command: {0}")]
    EmulatorCommand(#[from] serde_json::Error),
    /// A command at the wrong time, or with an unknown name.
    #[error("command `{command}`: expected {expected}, found {found}")]
    Order {
        /// The command.
        command: &'static str,
        /// Expected value.
        expected: String,
        /// Found value.
        found: String,
    },
}

impl EmulatorError {
    pub(crate) fn network(
        location: impl Into<String>,
        expected: impl Into<String>,
        found: impl std::fmt::Display,
    ) -> Self {
        Self::Network {
            location: location.into(),
            expected: expected.into(),
            found: found.to_string(),
        }
    }
}
