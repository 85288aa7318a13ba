//! The schema in the documentation must be equal to the schema of the types.

use serde_json::Value;
use venturi_plan::schema;

const WRITTEN: &str = include_str!("../../../docs/reference/plan.schema.json");

#[test]
fn the_schema_in_the_documentation_is_up_to_date() {
    let written: Value =
        serde_json::from_str(WRITTEN).expect("docs/reference/plan.schema.json is JSON");
    assert!(
        written == *schema::plan().as_value(),
        "docs/reference/plan.schema.json is out of date; run `venturi-engine schema plan > docs/reference/plan.schema.json`"
    );
}

#[test]
fn every_kind_of_record_and_command_has_a_schema() {
    let kinds = |schema: schemars::Schema, tag: &str| -> Vec<String> {
        let variants = schema
            .get("oneOf")
            .and_then(Value::as_array)
            .expect("an enum")
            .clone();
        variants
            .iter()
            .map(|it| {
                it["properties"][tag]["const"]
                    .as_str()
                    .expect("a tag")
                    .to_owned()
            })
            .collect()
    };
    let records = [
        "hello",
        "ready",
        "trial_start",
        "trial",
        "trial_skipped",
        "service_ended",
        "transfer",
        "sample",
        "sockets",
        "event",
        "signal",
        "finding",
        "request",
        "idle",
        "done",
        "fatal",
    ];
    assert_eq!(kinds(schema::record(), "record"), records);
    assert_eq!(
        kinds(schema::command(), "command"),
        [
            "start",
            "actor",
            "go",
            "counter",
            "end_service",
            "response",
            "heartbeat",
            "stop"
        ]
    );
}
