//! Every error code has a page in `docs/errors`, and every page has a code. The code on a page is compiled and run, and gives
//! the error of its page: a comment at the end of each page is the body of its test, and `pages.rs` lists the tests.

#![allow(unused_variables, reason = "the fragments of the pages are complete in themselves")]
#![allow(clippy::print_stdout, reason = "a fragment prints what a reader wants to see")]

mod pages;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn is_code(word: &str) -> bool {
    word.len() == 5 && word.starts_with("SS") && word[2..].bytes().all(|byte| byte.is_ascii_digit())
}

fn codes_in(folder: &Path, codes: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            codes_in(&path, codes);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let words = text.split(|c: char| !c.is_ascii_alphanumeric());
            codes.extend(words.filter(|word| is_code(word)).map(str::to_owned));
        }
    }
}

/// Returns the texts of the pages by their codes.
fn pages() -> BTreeMap<String, String> {
    let files = fs::read_dir(root().join("docs/errors")).unwrap().map(|entry| entry.unwrap().path());
    files
        .map(|path| {
            let code = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (code, fs::read_to_string(path).unwrap())
        })
        .collect()
}

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let mut codes = BTreeSet::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let sources = entry.unwrap().path().join("src");
        if sources.is_dir() {
            codes_in(&sources, &mut codes);
        }
    }
    let pages = pages();
    for (code, text) in &pages {
        let title = text.lines().next().unwrap();
        assert!(title.starts_with(&format!("# {code}: ")), "{code}: the title is `{title}`");
        for part in ["```rust", "## Why", "## Fix"] {
            assert!(text.contains(part), "{code} has no {part}");
        }
    }
    assert!(codes.len() > 20, "the codes are found: {codes:?}");
    assert_eq!(codes, pages.into_keys().collect());
}

/// Returns the public types and variants of each code, as the `#[error(..)]` attributes of the sources have them.
fn variants() -> BTreeMap<String, BTreeSet<String>> {
    let mut variants = BTreeMap::<String, BTreeSet<String>>::new();
    for (_, text) in crate::tidy::sources("crates") {
        let (mut rest, mut of) = (text.as_str(), String::new());
        while let Some((before, attribute)) = rest.split_once("#[error(") {
            let code = before.lines().map(str::trim_start).filter(|line| !line.starts_with("//"));
            let mut enums = code.filter_map(|line| line.split_once("enum "));
            if let Some((visibility, name)) = enums.next_back() {
                let name = name.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
                of = if visibility == "pub " { format!("{name}::") } else { String::new() };
            }
            let (attribute, after) = attribute.split_once(")]\n").expect("the attribute ends");
            rest = after;
            let item =
                after.lines().map(str::trim).find(|line| !line.starts_with(['#', '/'])).unwrap_or_default();
            let name =
                |item: &str| item.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned();
            let public = match item.split_once("struct ").or_else(|| item.split_once("enum ")) {
                Some((visibility, item)) => (visibility == "pub ").then(|| name(item)),
                None => (!of.is_empty()).then(|| of.clone() + &name(item)),
            };
            for code in attribute.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| is_code(word)) {
                variants.entry(code.to_owned()).or_default().extend(public.clone());
            }
        }
    }
    variants
}

#[test]
fn every_page_names_its_types_in_rust() {
    for (code, names) in variants() {
        let page = &pages()[&code];
        let line = page.lines().nth(2).unwrap_or_default();
        let named: BTreeSet<_> = line.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        let names = if names.is_empty() { BTreeSet::from(["NodeError".to_owned()]) } else { names };
        assert!(line.starts_with("In Rust: "), "{code}: the line after the title is `{line}`");
        assert_eq!(named, names, "{code}");
    }
}

#[test]
fn every_page_has_a_test() {
    let tests: Vec<_> = pages::CODES.iter().copied().map(str::to_owned).collect();
    let pages: Vec<_> = pages().into_keys().collect();
    assert_eq!(tests.iter().collect::<BTreeSet<_>>(), pages.iter().collect(), "the table in `pages.rs`");
}
