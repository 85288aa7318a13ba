//! JSON Schemas of what this crate reads and writes, made from the types.

use schemars::{JsonSchema, Schema, schema_for};
use serde::Serialize;

use crate::{ActorLine, Command, Header, Record};

/// One line of a plan: the header or an actor line. `docs/reference/plan.schema.json` is this, written by
/// `venturi-engine schema plan`.
#[must_use]
pub fn plan() -> Schema {
    let mut schema = schema_for!(Line);
    // The two exclude each other, which `anyOf` (what an untagged enum becomes) does not say.
    if let Some(either) = schema.remove("anyOf") {
        schema.insert("oneOf".into(), either);
    }
    schema.insert(
        "title".into(),
        "One line of a venturi-plan, version 1".into(),
    );
    schema
}

/// One line from an agent.
#[must_use]
pub fn record() -> Schema {
    schema_for!(Record)
}

/// One line to an agent.
#[must_use]
pub fn command() -> Schema {
    schema_for!(Command)
}

/// A line of a plan.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[allow(dead_code)] // only its shape is used
enum Line {
    /// Line 1.
    Header(Box<Header>),
    /// Any further line.
    Actor(ActorLine),
}
