//! Every error code has a page in `docs/errors`, and every page has a code.

use std::{
    collections::BTreeSet,
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

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let mut codes = BTreeSet::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let sources = entry.unwrap().path().join("src");
        if sources.is_dir() {
            codes_in(&sources, &mut codes);
        }
    }
    let mut pages = BTreeSet::new();
    for entry in fs::read_dir(root().join("docs/errors")).unwrap() {
        let path = entry.unwrap().path();
        let code = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        let title = text.lines().next().unwrap();
        assert!(title.starts_with(&format!("# {code}: ")), "{}: the title is `{title}`", path.display());
        for part in ["```rust", "## Why", "## Fix"] {
            assert!(text.contains(part), "{} has no {part}", path.display());
        }
        pages.insert(code);
    }
    assert!(codes.len() > 20, "the codes are found: {codes:?}");
    assert_eq!(codes, pages);
}
