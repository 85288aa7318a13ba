use std::io::{BufRead, BufReader};

use venturi_plan::{RemoveOperation, RemoveOutcome};

use super::*;
use crate::output::Writer;

fn removal() -> FileOperation {
    FileOperation::Remove(RemoveOperation {
        destinations: Vec::new(),
    })
}

fn outcome(errors: usize) -> OperationOutcome {
    OperationOutcome::Removed(RemoveOutcome {
        errors: vec![None; errors],
    })
}

fn respond(requests: &Requests, number: u64, result: OperationResult) {
    requests.respond(Response { number, result });
}

#[test]
fn each_response_reaches_the_thread_that_waits_for_it_in_any_order() {
    let (reader, pipe) = std::io::pipe().expect("a pipe");
    let writer = Writer::start(pipe, || {}).expect("a thread");
    let requests = Requests::new(writer.sender());
    let waiting = ["b", "c", "b"].map(|host| requests.send(&host.into(), removal()));
    let sent = BufReader::new(reader).lines().take(3);
    let sent: Vec<Request> = sent
        .map(|line| {
            let line = line.expect("readable");
            match Record::parse(line.as_bytes()).expect("a record") {
                Record::Request(request) => request,
                other => panic!("{other:?}"),
            }
        })
        .collect();
    let hosts: Vec<&str> = sent.iter().map(|request| &*request.host).collect();
    assert_eq!(hosts, ["b", "c", "b"]);
    assert_eq!(sent[1].operation, removal());
    for (errors, request) in sent.iter().enumerate().rev() {
        respond(
            &requests,
            request.number,
            OperationResult::Outcome(outcome(errors)),
        );
    }
    for (errors, request) in waiting.into_iter().enumerate() {
        assert_eq!(request.wait(None), Ok(outcome(errors)));
    }
}

#[test]
fn an_error_names_the_host_and_a_missing_response_the_time() {
    let writer = Writer::start(std::io::sink(), || {}).expect("a thread");
    let requests = Requests::new(writer.sender());
    let failed = requests.send(&"b".into(), removal());
    respond(&requests, 1, OperationResult::Error("no space".into()));
    assert_eq!(failed.wait(None), Err("host `b`: no space".into()));
    let silent = requests.send(&"b".into(), removal());
    let error = silent.wait(Some(Duration::ZERO)).expect_err("no response");
    assert!(error.contains("within 0 s"), "{error}");
    // No thread waits for these any more.
    respond(&requests, 1, OperationResult::Outcome(outcome(0)));
    respond(&requests, 2, OperationResult::Outcome(outcome(0)));
    assert!(
        requests
            .open
            .lock()
            .expect("not poisoned")
            .waiting
            .is_empty()
    );
}
