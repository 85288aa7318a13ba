use super::*;
use proptest::prelude::*;

fn read(text: &[u8]) -> Result<(ResponseReader, ResponseProgress), FetchFailure> {
    let mut response = ResponseReader::default();
    let progress = response.feed(text)?;
    Ok((response, progress))
}

fn check(text: &str, status: u16, body_bytes: u64, complete: bool, keeps_alive: bool) {
    let (response, progress) = read(text.as_bytes()).expect(text);
    assert_eq!(
        (
            response.status(),
            response.body_bytes(),
            progress.complete,
            response.keeps_alive()
        ),
        (status, body_bytes, complete, keeps_alive),
        "{text}"
    );
    assert_eq!(progress.head_bytes + progress.body_bytes, text.len() as u64);
}

#[test]
fn the_end_of_a_body_is_determined_by_its_length_its_chunks_or_the_connection() {
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        200,
        3,
        true,
        true,
    );
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
        200,
        2,
        false,
        true,
    );
    check(
        "HTTP/1.0 200 OK\r\ncontent-length:3\r\n\r\nabc",
        200,
        3,
        true,
        false,
    );
    check("HTTP/1.1 200 OK\r\n\r\nabc", 200, 3, false, false);
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: 1\r\n\r\n",
        200,
        13,
        true,
        true,
    );
}

#[test]
fn the_end_of_the_connection_completes_only_a_body_without_a_length() {
    let (mut response, _) = read(b"HTTP/1.0 200 OK\r\n\r\nabc").expect("plain");
    assert!(response.end());
    let (mut response, _) =
        read(b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nabc").expect("plain");
    assert!(!response.end());
}

#[test]
fn a_response_without_body_ends_with_its_head_and_interim_responses_are_skipped() {
    check(
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
        304,
        0,
        true,
        true,
    );
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        200,
        0,
        true,
        false,
    );
    check(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
        200,
        1,
        true,
        true,
    );
}

#[test]
fn invalid_http_is_rejected() {
    for text in [
        &b"SSH-2.0-x\r\n\r\n"[..],
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
    ] {
        assert_eq!(
            read(text).err(),
            Some(FetchFailure::Malformed),
            "{}",
            text.escape_ascii()
        );
    }
}

#[test]
fn a_head_without_end_is_rejected() {
    let mut response = ResponseReader::default();
    let output_error = (0..100).find_map(|_| response.feed(&[b'x'; 1024]).err());
    assert_eq!(output_error, Some(FetchFailure::Malformed));
}

#[test]
fn bytes_after_the_response_prevent_reuse_of_the_connection() {
    let (response, progress) =
        read(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxy").expect("plain");
    assert!(progress.complete && !response.keeps_alive());
    assert_eq!(response.body_bytes(), 1);
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), head in any::<bool>()) {
        let mut response = ResponseReader::default();
        if head {
            let _ = response.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        }
        let _ = response.feed(&bytes);
    }

    #[test]
    fn a_fragmented_response_is_read_like_a_complete_one(
        sizes in prop::collection::vec(1usize..40, 0..6), cuts in prop::collection::vec(1usize..9, 1..200),
    ) {
        let mut text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for size in &sizes {
            text.extend(format!("{size:x}\r\n{}\r\n", "z".repeat(*size)).bytes());
        }
        text.extend(b"0\r\n\r\n");
        let (mut response, mut rest, mut complete) = (ResponseReader::default(), &text[..], false);
        for cut in cuts.iter().cycle() {
            if rest.is_empty() { break; }
            let (part, after) = rest.split_at((*cut).min(rest.len()));
            complete = response.feed(part).expect("it is right").complete;
            rest = after;
        }
        prop_assert!(complete);
        prop_assert_eq!(response.body_bytes(), sizes.iter().sum::<usize>() as u64);
    }
}
