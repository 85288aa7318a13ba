//! JSON Schemas of the plan, records and commands, derived from the types.

use schemars::{JsonSchema, Schema, schema_for};
use serde::Serialize;

use crate::{ActorLine, Command, Header, Record, VERSION};

/// Return the schema of one line of a plan: the header or an actor line. `venturi-engine schema
/// plan` writes it to `docs/reference/plan.schema.json`.
#[must_use]
pub fn plan() -> Schema {
    let mut schema = schema_for!(PlanLine);
    // Exactly one of the two is valid, which `anyOf` (the schema of an untagged enum) does not express.
    if let Some(either) = schema.remove("anyOf") {
        schema.insert("oneOf".into(), either);
    }
    schema.insert(
        "title".into(),
        format!("One line of a venturi-plan, version {VERSION}").into(),
    );
    schema
}

/// Return the schema of one line from an agent.
#[must_use]
pub fn record() -> Schema {
    schema_for!(Record)
}

/// Return the schema of one line to an agent.
#[must_use]
pub fn command() -> Schema {
    schema_for!(Command)
}

/// A line of a plan.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[allow(dead_code)] // only its shape is used
enum PlanLine {
    /// Line 1.
    Header(Box<Header>),
    /// Any further line.
    Actor(ActorLine),
}
