//! A scratch directory belongs to one agent at a time.

use serde_json::json;

use crate::testkit::{AgentProcess, TestScene, bare, trial};

#[test]
fn a_second_agent_gets_the_user_of_the_scratch_directory() {
    let scene = TestScene::new()
        .shell("call", "true")
        .actor("a", vec![trial(0, vec![bare("call")])]);
    let first = scene.introduce();
    first.next("ready");
    let second = scene.introduce().finish();
    assert_eq!(second.code, Some(2));
    let last = second.values.last().expect("a record");
    assert_eq!(last["kind"], "scratch-in-use");
    let message = second.values.last().expect("a record")["message"]
        .as_str()
        .expect("text")
        .to_owned();
    assert!(message.contains(&first.child.id().to_string()), "{message}");
    assert!(message.contains("--scratch"), "{message}");
    end(first);
}

#[test]
fn a_killed_agent_leaves_the_scratch_directory_to_the_next() {
    let scene = TestScene::new()
        .shell("call", "true")
        .actor("a", vec![trial(0, vec![bare("call")])]);
    let mut first = scene.introduce();
    first.next("ready");
    first.child.kill().expect("our child");
    first.child.wait().expect("our child");
    assert_eq!(scene.run().code, Some(0));
}

fn end(mut agent: AgentProcess) {
    agent.command(json!({"command": "stop"}));
    assert_eq!(agent.finish().code, Some(0));
}
