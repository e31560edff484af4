//! The short form of a fuzz target, for the tests: the inputs of its corpus, and changed ones from a fixed seed.

use std::{fs, path::PathBuf};

use rand::{RngExt, SeedableRng, rngs::StdRng};

/// The parts of the formats, which random bytes rarely have.
const WORDS: [&str; 24] = [
    "null",
    "true",
    "-1",
    "18446744073709551616",
    "1e999",
    "\"\"",
    "{}",
    "[]",
    "\\u0000",
    "\\ud800",
    "\u{202e}",
    "é",
    "$then",
    "$recorded",
    "__start__",
    "data: ",
    "[DONE]",
    "\n\n",
    "**",
    "../",
    "|",
    "[[",
    "= {",
    "\0",
];

const SIGNS: &[u8] = b"\"{}[],:\\/*?|=\n 09";

/// Runs a target on its corpus, and on `count` changed inputs of it.
pub(crate) fn seeded(name: &str, target: fn(&[u8]), count: usize) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus").join(name);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let corpus: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    corpus.iter().for_each(|input| target(input));
    let mut rng = StdRng::seed_from_u64(14);
    for _ in 0..count {
        let mut input = corpus[rng.random_range(0..corpus.len())].clone();
        for _ in 0..rng.random_range(1..4) {
            change(&mut input, &corpus, &mut rng);
        }
        target(&input);
    }
}

fn change(input: &mut Vec<u8>, corpus: &[Vec<u8>], rng: &mut StdRng) {
    let at = rng.random_range(0..=input.len());
    let end = (at + rng.random_range(0..12)).min(input.len());
    match rng.random_range(0..6) {
        0 if at < input.len() => input[at] ^= 1 << rng.random_range(0..8),
        1 if at < input.len() => input[at] = SIGNS[rng.random_range(0..SIGNS.len())],
        2 => drop(input.drain(at..end)),
        3 => {
            let copy = input[at..end].to_vec();
            drop(input.splice(at..at, copy));
        }
        4 => {
            let other = &corpus[rng.random_range(0..corpus.len())];
            let from = rng.random_range(0..=other.len());
            let to = (from + rng.random_range(0..40)).min(other.len());
            drop(input.splice(at..end, other[from..to].iter().copied()));
        }
        _ => drop(input.splice(at..end, WORDS[rng.random_range(0..WORDS.len())].bytes())),
    }
}
