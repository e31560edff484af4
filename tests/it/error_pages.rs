//! Every error code has a page in `docs/errors`, and every page has a code. The code on a page is compiled, and gives the
//! error of its page: the modules here run it, in a test for each page.

#![allow(unused_variables, reason = "the fragments of the pages are complete in themselves")]
#![allow(clippy::print_stdout, reason = "a fragment prints what a reader wants to see")]

mod from_ss001;
mod from_ss010;
mod from_ss020;
mod from_ss101;
mod from_ss110;
mod from_ss119;
mod from_ss140;
mod from_ss160;
mod from_ss176;
mod from_ss190;
mod from_ss301;
#[cfg(all(feature = "postgres", unix))]
mod from_ss315;
#[cfg(feature = "sealed")]
mod from_ss316;
#[cfg(feature = "worker")]
mod from_ss401;
mod setup;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::support::blocks;

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

/// Returns the lines that are not blank, without their indentation and with single spaces.
fn lines(text: &str) -> String {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| !line.is_empty()).map(|line| line + "\n").collect()
}

/// Returns the functions of the modules above by the codes of their pages: the test `ss101`, and helpers such as `ss101_graph`.
fn functions() -> BTreeMap<String, String> {
    let mut functions = BTreeMap::<String, String>::new();
    for entry in fs::read_dir(root().join("tests/it/error_pages")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        for item in text.split("\n}\n") {
            let signature =
                item.lines().find_map(|line| line.trim_start_matches("async ").strip_prefix("fn "));
            let code = signature.and_then(|signature| signature.get(..5)).unwrap_or_default().to_uppercase();
            if is_code(&code) {
                functions.entry(code).or_default().push_str(&lines(item));
            }
        }
    }
    functions
}

/// The test of a page runs its first block and expects the error, and runs the others without it.
#[test]
fn the_code_of_every_page_is_in_its_test() {
    let functions = functions();
    let mut missing = Vec::new();
    for (code, page) in pages() {
        let function = functions.get(&code).map_or("", String::as_str);
        let is_test = function.contains("#[test]") || function.contains("#[tokio::test");
        if !is_test || !function.contains(&format!("\"{code}\"")) {
            missing.push(format!("{code}: no test `{}` that expects the error\n", code.to_lowercase()));
        }
        for (number, block) in blocks(&page, "rust").into_iter().enumerate() {
            let block = lines(block);
            if !function.contains(&format!("\n{block}")) {
                missing.push(format!("{code}, block {}, is not in its test:\n{block}", number + 1));
            }
        }
    }
    assert!(missing.is_empty(), "write the same lines in `tests/it/error_pages`:\n{}", missing.join("\n"));
}
