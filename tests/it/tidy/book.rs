//! The pages of the book: each is in its table of contents, and their links lead somewhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use super::root;

/// Returns the Markdown files at the top level and in `docs`, in order.
pub(super) fn pages() -> Vec<PathBuf> {
    let mut pages = of_folder(&root());
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        pages.extend(of_folder(&folder));
        let inner = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        folders.extend(inner.filter(|path| path.is_dir()));
    }
    pages.sort();
    pages
}

fn of_folder(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|end| end == "md")).collect()
}

/// Returns the lines of a page outside of code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        (!in_code && !fence).then_some((at + 1, line))
    })
}

/// Returns the text and the target of each link of a line, outside of inline code.
fn links(line: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("](") {
        let in_code = line[..at].matches('`').count() % 2 == 1;
        let (text, target) = (&line[..at], &line[at + 2..]);
        if let (false, Some(end)) = (in_code, target.find(')')) {
            // A text with brackets of its own is not needed by any caller.
            found.push((text.rsplit('[').next().unwrap(), &target[..end]));
        }
    }
    found
}

/// Returns the anchors of a page: its headings as mdBook, rustdoc and the usual hosts of repositories write them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let mut anchor = String::new();
        for sign in heading.trim().chars() {
            match sign {
                ' ' => anchor.push('-'),
                sign if sign.is_alphanumeric() || matches!(sign, '-' | '_') => {
                    anchor.extend(sign.to_lowercase());
                }
                _ => {}
            }
        }
        let count = counts.entry(anchor.clone()).or_default();
        anchors.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
        *count += 1;
    }
    anchors
}

#[test]
fn every_link_of_a_page_leads_to_a_file_and_a_heading() {
    let mut problems = Vec::new();
    let mut checked = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for (number, line) in prose(&text) {
            if line.starts_with('[') && line.contains("]: ") {
                problems.push(format!("{}:{number}: write the target in the link", page.display()));
            }
            for (_, target) in links(line).into_iter().filter(|(_, target)| !target.is_empty()) {
                checked += 1;
                let place = format!("{}:{number}: `{target}`", page.display());
                if target.starts_with("https://docs.rs/superstep") {
                    problems
                        .push(format!("{place}: no crate is published yet, so name the item without a link"));
                }
                if target.contains("::") {
                    problems.push(format!("{place} works in rustdoc only; name the item without a link"));
                    continue;
                }
                if target.contains(':') {
                    continue;
                }
                let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
                let file = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
                if !file.exists() {
                    problems.push(format!("{place} leads to no file"));
                } else if !anchor.is_empty() && !anchors(&fs::read_to_string(&file).unwrap()).contains(anchor)
                {
                    problems.push(format!("{place} leads to no heading"));
                }
            }
        }
    }
    assert!(checked > 300, "the links are found: {checked}");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Returns the files and folders of the repository that inline code names: `tests/it/{a,b}.rs` is two.
fn named_files(text: &str) -> Vec<String> {
    let code = text.split('`').skip(1).step_by(2);
    let paths = code
        .filter(|code| ["crates/", "docs/", "examples/", "tests/"].iter().any(|top| code.starts_with(top)));
    paths
        .flat_map(|path| {
            match path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
                Some((before, (names, after))) => {
                    names.split(',').map(|name| format!("{before}{name}{after}")).collect()
                }
                None => vec![path.to_owned()],
            }
        })
        .collect()
}

#[test]
fn every_file_that_the_pages_for_contributors_name_exists() {
    for page in ["docs/CONTRIBUTING.md", "docs/architecture.md"] {
        let named = named_files(&fs::read_to_string(root().join(page)).unwrap());
        assert!(named.len() > 5, "the files are found: {named:?}");
        for file in named.iter().filter(|file| !file.contains("TARGET")) {
            assert!(root().join(file).exists(), "{page} names {file}, which does not exist");
        }
    }
}

#[test]
fn every_page_is_in_the_table_of_contents_of_the_book() {
    let docs = root().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let mut listed = Vec::new();
    for (text, target) in summary.lines().flat_map(links).filter(|(_, target)| !target.is_empty()) {
        let page = docs.join(target);
        if target.starts_with("errors/") {
            let title = fs::read_to_string(&page).unwrap().lines().next().unwrap().replacen("# ", "", 1);
            assert_eq!(text, title, "`docs/SUMMARY.md` has another title for {target}");
        }
        listed.push(page);
    }
    listed.sort();
    let own = docs.join("SUMMARY.md");
    let pages: Vec<_> = pages().into_iter().filter(|page| page.starts_with(&docs) && *page != own).collect();
    assert_eq!(listed, pages, "`docs/SUMMARY.md` lists each page of `docs` once");
}

#[test]
fn links_and_headings_are_found_outside_of_code() {
    let text = "# A `b` and (c)\n```\n# no\n[a](b)\n```\n## A b and c\nsee [x](y.md#z), `[n](o)`";
    assert_eq!(anchors(text).into_iter().collect::<Vec<_>>(), ["a-b-and-c", "a-b-and-c-1"]);
    let found: Vec<_> = prose(text).flat_map(|(_, line)| links(line)).collect();
    assert_eq!(found, [("x", "y.md#z")]);
}
