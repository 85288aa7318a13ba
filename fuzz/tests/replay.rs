//! Every target on its kept corpus, and on some input that nobody chose: what a fuzzer would say in its first second.

use std::fs;
use std::path::Path;

use venturi_fuzz::{FuzzTarget, TARGETS};

/// Random inputs of a target.
const INPUTS: u64 = 400;
/// Their greatest length.
const MAX_INPUT_BYTES: u64 = 1200;

fn corpus(target: &FuzzTarget) -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target.name);
    let entries =
        fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut inputs: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("a file").path();
            (
                path.display().to_string(),
                fs::read(&path).expect("readable"),
            )
        })
        .collect();
    inputs.sort();
    inputs
}

/// xorshift64*: the same everywhere, so that a failure can be had again.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }
}

#[test]
fn the_kept_corpus_breaks_no_promise() {
    for target in TARGETS {
        let inputs = corpus(target);
        assert!(!inputs.is_empty(), "{} has a corpus", target.name);
        for (name, bytes) in inputs {
            println!("{name}");
            (target.run)(&bytes);
        }
    }
}

#[test]
fn changed_inputs_of_the_corpus_and_random_ones_break_no_promise() {
    for target in TARGETS {
        let inputs = corpus(target);
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for number in 0..INPUTS {
            let mut bytes: Vec<u8> = match inputs.get(random.next() as usize % inputs.len().max(1))
            {
                Some((_, bytes)) if number % 4 > 0 => bytes.clone(),
                _ => (0..random.next() % MAX_INPUT_BYTES)
                    .map(|_| random.next() as u8)
                    .collect(),
            };
            for _ in 0..random.next() % 8 {
                let offset = random.next() as usize % bytes.len().max(1);
                if let Some(byte) = bytes.get_mut(offset) {
                    *byte = random.next() as u8;
                }
            }
            println!("{} {number}: {}", target.name, bytes.escape_ascii());
            (target.run)(&bytes);
        }
    }
}
