//! Messages of the shell protocol: one JSON object per line. Described in `docs/reference/shell.md`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use venturi_plan::{FileOperation, OperationOutcome};

use super::failure::{FailureKind, ShellFailure};
use crate::properties::Properties;

/// Version of the protocol, in `hello`.
pub(crate) const PROTOCOL: u32 = 1;

/// Maximum bytes of a file in one `result` of `get`. Larger files need several commands.
pub(crate) const GET_LIMIT_BYTES: u64 = 16 << 20;

/// Default limit of a command.
const DEFAULT_TIMEOUT_S: f64 = 60.0;

/// Maximum limit of a command: a week. It is the default of `operate`, because its operations
/// detect missing progress themselves.
const MAX_TIMEOUT_S: f64 = 7.0 * 86_400.0;

/// One line from the controller.
#[derive(Debug)]
pub(crate) enum ControllerMessage {
    /// The controller is alive.
    Heartbeat,
    /// A command that gets a reply.
    Request(ShellRequest),
}

/// A command with its number.
#[derive(Debug)]
pub(crate) struct ShellRequest {
    pub(crate) number: u64,
    /// Wall-clock limit of the command.
    pub(crate) timeout: Duration,
    pub(crate) command: ShellCommand,
}

/// A line that is not a command: the number, if the line has one, and the reason.
#[derive(Debug)]
pub(crate) struct InvalidMessage {
    pub(crate) number: Option<u64>,
    pub(crate) failure: ShellFailure,
}

/// All commands that have a reply. Each can also have the key `timeout_s`.
#[derive(Debug, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub(crate) enum ShellCommand {
    Run(RunCommand),
    Start(StartCommand),
    Stop(StopCommand),
    Put(PutCommand),
    Get(GetCommand),
    Stat(PathCommand),
    MakeDirectory(MakeDirectoryCommand),
    Remove(RemoveCommand),
    List(PathCommand),
    FreePorts(FreePortsCommand),
    Listen(ListenCommand),
    Close(CloseCommand),
    Connect(ConnectCommand),
    Converse(ConverseCommand),
    Clock(NoKeys),
    Operate(Box<OperateCommand>),
    End(NoKeys),
}

/// Run a program and wait for its end.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunCommand {
    pub(crate) argv: Vec<String>,
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) directory: Option<String>,
    /// Text for its standard input; none: `/dev/null`.
    #[serde(default)]
    pub(crate) stdin: Option<String>,
}

/// Start a server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartCommand {
    /// Name for `stop` and `ended`.
    pub(crate) process: String,
    pub(crate) argv: Vec<String>,
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) directory: Option<String>,
    /// File for its output, which is appended.
    pub(crate) log: String,
}

/// Stop a server and all its descendants.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StopCommand {
    pub(crate) process: String,
    #[serde(default = "sigterm")]
    pub(crate) signal: i32,
    #[serde(default = "usual_grace_s")]
    pub(crate) grace_s: f64,
}

/// Write a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PutCommand {
    pub(crate) path: String,
    /// In base 64.
    pub(crate) content: String,
    #[serde(default = "private_file")]
    pub(crate) mode: u32,
    #[serde(default)]
    pub(crate) append: bool,
}

/// Read a part of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetCommand {
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) offset: u64,
    #[serde(default = "get_limit")]
    pub(crate) max_bytes: u64,
}

/// A command with only a path.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PathCommand {
    pub(crate) path: String,
}

/// Make a directory and its parents.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MakeDirectoryCommand {
    pub(crate) path: String,
    #[serde(default = "private_directory")]
    pub(crate) mode: u32,
    /// The directory must be new and is removed with the session.
    #[serde(default)]
    pub(crate) owned: bool,
}

/// Remove a file or directory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemoveCommand {
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) recursive: bool,
}

/// Find free TCP ports.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FreePortsCommand {
    pub(crate) count: usize,
    #[serde(default)]
    pub(crate) low: Option<u16>,
    #[serde(default)]
    pub(crate) high: Option<u16>,
    #[serde(default)]
    pub(crate) address: Option<String>,
}

/// Accept and close connections until `close`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListenCommand {
    #[serde(default)]
    pub(crate) address: Option<String>,
    #[serde(default)]
    pub(crate) port: Option<u16>,
    #[serde(default)]
    pub(crate) low: Option<u16>,
    #[serde(default)]
    pub(crate) high: Option<u16>,
    /// Bytes to send on each connection.
    #[serde(default)]
    pub(crate) send_bytes: u32,
}

/// Close a listener.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CloseCommand {
    pub(crate) listener: u64,
}

/// Connect to a server several times and measure.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConnectCommand {
    pub(crate) host: String,
    pub(crate) port: u16,
    #[serde(default = "one")]
    pub(crate) count: u32,
    /// Bytes to send on the first connection, until the kernel of the server has acknowledged them.
    #[serde(default)]
    pub(crate) send_bytes: u32,
    /// Bytes to receive on the first connection.
    #[serde(default)]
    pub(crate) receive_bytes: u32,
}

/// Exchange lines of text with a server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConverseCommand {
    pub(crate) address: String,
    pub(crate) port: u16,
    #[serde(default)]
    pub(crate) lines: Vec<ConverseLine>,
}

/// One exchange of a conversation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConverseLine {
    /// Line to send first; null: the server sends first.
    pub(crate) send: Option<String>,
}

/// Run an operation on files of this host.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OperateCommand {
    pub(crate) operation: FileOperation,
}

/// A command without keys.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoKeys {}

fn sigterm() -> i32 {
    libc::SIGTERM
}

fn usual_grace_s() -> f64 {
    5.0
}

fn private_file() -> u32 {
    0o600
}

fn private_directory() -> u32 {
    0o700
}

fn get_limit() -> u64 {
    GET_LIMIT_BYTES
}

fn one() -> u32 {
    1
}

impl ControllerMessage {
    /// Parse one line.
    ///
    /// # Errors
    /// The reason, with the number of the command if the line has one.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, InvalidMessage> {
        let invalid = |number, message: String| InvalidMessage {
            number,
            failure: ShellFailure::invalid(message),
        };
        let value: Value = serde_json::from_slice(line)
            .map_err(|error| invalid(None, format!("expected a JSON object: {error}")))?;
        let Value::Object(mut keys) = value else {
            return Err(invalid(
                None,
                "expected a JSON object, found another value".into(),
            ));
        };
        if keys.get("command").and_then(Value::as_str) == Some("heartbeat") {
            return Ok(Self::Heartbeat);
        }
        let number = keys.remove("number");
        let Some(number) = number.as_ref().and_then(Value::as_u64) else {
            let found = number.map_or_else(|| "none".to_owned(), |value| value.to_string());
            let message = format!("expected `number`, a whole number from 0, found {found}");
            return Err(invalid(None, message));
        };
        let timeout = timeout(keys.remove("timeout_s")).map_err(|failure| InvalidMessage {
            number: Some(number),
            failure,
        })?;
        let command: ShellCommand = serde_json::from_value(Value::Object(keys))
            .map_err(|error| invalid(Some(number), format!("invalid command: {error}")))?;
        let timeout = timeout.unwrap_or(Duration::from_secs_f64(match command {
            ShellCommand::Operate(_) => MAX_TIMEOUT_S,
            _ => DEFAULT_TIMEOUT_S,
        }));
        Ok(Self::Request(ShellRequest {
            number,
            timeout,
            command,
        }))
    }
}

fn timeout(value: Option<Value>) -> Result<Option<Duration>, ShellFailure> {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    match value.as_f64() {
        Some(seconds) if seconds > 0.0 && seconds <= MAX_TIMEOUT_S => {
            Ok(Some(Duration::from_secs_f64(seconds)))
        }
        _ => Err(ShellFailure::invalid(format!(
            "`timeout_s`: expected seconds above 0 and at most {MAX_TIMEOUT_S}, found {value}"
        ))),
    }
}

/// One line to the controller.
#[derive(Debug, Serialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum ShellRecord {
    Hello(Box<ShellHello>),
    /// The reply to a command; without a number, the reply to a line without a number.
    Result {
        number: Option<u64>,
        #[serde(flatten)]
        outcome: ShellOutcome,
    },
    /// A server ended without `stop`.
    Ended {
        process: String,
        exit_code: Option<i32>,
        signal: Option<i32>,
    },
    Alive,
    /// The shell cannot start or continue.
    Fatal {
        message: String,
    },
}

/// The first record.
#[derive(Debug, Serialize)]
pub(crate) struct ShellHello {
    pub(crate) protocol: u32,
    pub(crate) engine: String,
    pub(crate) pid: u32,
    pub(crate) directory: String,
    pub(crate) removed_sessions: Vec<String>,
    pub(crate) clock: ClockResult,
    pub(crate) properties: Properties,
}

/// The result of a command, or the reason of its failure.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ShellOutcome {
    Result(ShellResult),
    Error(ShellFailure),
}

impl From<Result<ShellResult, ShellFailure>> for ShellOutcome {
    fn from(result: Result<ShellResult, ShellFailure>) -> Self {
        match result {
            Ok(result) => Self::Result(result),
            Err(failure) => Self::Error(failure),
        }
    }
}

/// Results by command.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum ShellResult {
    Run(RunResult),
    Start {
        pid: i32,
    },
    Stop {
        exit_code: Option<i32>,
        signal: Option<i32>,
    },
    Get {
        content: String,
        size_bytes: u64,
    },
    Stat(StatResult),
    MakeDirectory {
        created: bool,
    },
    Remove {
        removed: bool,
    },
    List {
        entries: Vec<Entry>,
    },
    FreePorts {
        ports: Vec<u16>,
    },
    Listen {
        listener: u64,
        port: u16,
    },
    Connect(ConnectResult),
    Converse {
        replies: Vec<String>,
    },
    Clock(ClockResult),
    Operate {
        outcome: OperationOutcome,
    },
    Nothing {},
}

/// Result of `run`.
#[derive(Debug, Serialize)]
pub(crate) struct RunResult {
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) timed_out: bool,
}

/// Result of `stat`.
#[derive(Debug, Serialize)]
pub(crate) struct StatResult {
    pub(crate) kind: PathKind,
    pub(crate) size_bytes: Option<u64>,
    pub(crate) mode: Option<u32>,
    pub(crate) owner_uid: Option<u32>,
    pub(crate) free_bytes: Option<u64>,
    pub(crate) writable: bool,
    pub(crate) noexec: Option<bool>,
    pub(crate) file_system: Option<String>,
}

/// Kinds of directory entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PathKind {
    File,
    Directory,
    Other,
    Absent,
}

/// One entry of a directory.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) kind: PathKind,
    pub(crate) size_bytes: u64,
}

/// Result of `connect`.
#[derive(Debug, Serialize)]
pub(crate) struct ConnectResult {
    pub(crate) times_s: Vec<f64>,
    pub(crate) rtt_s: Option<f64>,
    pub(crate) path_mtu_bytes: Option<u32>,
    pub(crate) mss_bytes: Option<u32>,
    pub(crate) local_address: String,
    pub(crate) remote_address: String,
    pub(crate) interface: Option<String>,
    pub(crate) interface_bit_per_s: Option<u64>,
    pub(crate) family: &'static str,
}

/// Both clocks, read together.
#[derive(Debug, Serialize)]
pub(crate) struct ClockResult {
    pub(crate) monotonic_ns: u64,
    pub(crate) unix_ns: u64,
}

impl ClockResult {
    /// Returns the current time.
    pub(crate) fn now() -> Self {
        Self {
            monotonic_ns: crate::clock::monotonic_ns(),
            unix_ns: crate::clock::unix_ns(),
        }
    }
}

impl ShellRecord {
    /// Returns an error as the reply to a command.
    pub(crate) fn error(number: Option<u64>, kind: FailureKind, message: String) -> Self {
        Self::Result {
            number,
            outcome: ShellOutcome::Error(ShellFailure { kind, message }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalid(line: &str) -> (Option<u64>, FailureKind) {
        let found = ControllerMessage::parse(line.as_bytes()).expect_err(line);
        (found.number, found.failure.kind)
    }

    #[test]
    fn a_command_is_parsed_with_its_number_and_timeout() {
        let line = br#"{"command": "stat", "number": 7, "path": "/tmp", "timeout_s": 1.5}"#;
        let Ok(ControllerMessage::Request(request)) = ControllerMessage::parse(line) else {
            panic!("a request");
        };
        assert_eq!(
            (request.number, request.timeout),
            (7, Duration::from_millis(1500))
        );
        assert!(
            matches!(request.command, ShellCommand::Stat(PathCommand { path }) if path == "/tmp")
        );
    }

    #[test]
    fn a_reply_to_an_invalid_line_has_the_number_of_the_line_if_present() {
        use FailureKind::Invalid;
        for (line, number) in [
            ("{", None),
            ("[]", None),
            (r#"{"command": "clock"}"#, None),
            (r#"{"command": "clock", "number": -1}"#, None),
            (r#"{"command": "dance", "number": 1}"#, Some(1)),
            (r#"{"number": 1}"#, Some(1)),
            (r#"{"command": "clock", "number": 1, "x": 2}"#, Some(1)),
            (
                r#"{"command": "clock", "number": 1, "timeout_s": 0}"#,
                Some(1),
            ),
            (
                r#"{"command": "clock", "number": 1, "timeout_s": "1"}"#,
                Some(1),
            ),
            (r#"{"command": "get", "number": 1}"#, Some(1)),
        ] {
            assert_eq!(invalid(line), (number, Invalid), "{line}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes: Vec<u8>) {
            let _ = ControllerMessage::parse(&bytes);
        }

        #[test]
        fn no_values_make_the_parser_panic(
            command in "run|start|stop|put|get|stat|listen|connect|converse|operate|heartbeat",
            key in "argv|path|timeout_s|signal|grace_s|lines|mode|x",
            value in "null|true|-1|1e400|1e308|18446744073709551616|\\[\\]|\\{\\}|\"a\"",
        ) {
            let line = format!(r#"{{"command": "{command}", "number": 1, "{key}": {value}}}"#);
            let _ = ControllerMessage::parse(line.as_bytes());
        }
    }

    #[test]
    fn results_and_errors_are_flat_records() {
        let record = |outcome: Result<ShellResult, ShellFailure>| {
            serde_json::to_value(ShellRecord::Result {
                number: Some(3),
                outcome: outcome.into(),
            })
            .expect("JSON")
        };
        assert_eq!(
            record(Ok(ShellResult::Nothing {})),
            serde_json::json!({"record": "result", "number": 3, "result": {}})
        );
        assert_eq!(
            record(Err(ShellFailure::invalid("no".into()))),
            serde_json::json!({"record": "result", "number": 3, "error": {"kind": "invalid", "message": "no"}})
        );
    }
}
