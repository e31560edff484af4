//! Pages of `docs/` as rustdoc.

use std::{env, fs, path::Path};

use syn::{Error, LitStr, Result};

// Not `include_str!`: the pages link to each other as files of the repository, and these links become those of
// rustdoc.
/// The files of the published crate, for pages that are not part of its rustdoc.
const SOURCE: &str = "https://docs.rs/crate/superstep/latest/source/";

/// The pages of `docs` that are not part of the rustdoc of `superstep`.
const UNCOMPILED: [&str; 4] = ["CONTRIBUTING", "MIGRATING", "README", "own-program"];

/// Returns the text of `file`, a path below the folder of the crate, with links that work in rustdoc.
pub(crate) fn text(file: &LitStr) -> Result<String> {
    let folder = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let path = Path::new(&folder).join(file.value());
    let text = fs::read_to_string(&path)
        .map_err(|error| Error::new(file.span(), format!("cannot read `{}`: {error}", path.display())))?;
    Ok(linked(&text, &file.value()))
}

/// Replaces the links between files of the repository in `text`, which is the page `file`.
fn linked(text: &str, file: &str) -> String {
    let mut parts = text.split("](");
    let mut linked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        linked += "](";
        match part.split_once(')') {
            Some((target, rest)) => {
                linked += &address(target, file).unwrap_or_else(|| target.to_owned());
                linked += ")";
                linked += rest;
            }
            None => linked += part,
        }
    }
    linked
}

/// Returns the address in rustdoc of `target`, if it is a page, a folder, or a file outside of the page's folder.
fn address(target: &str, file: &str) -> Option<String> {
    let (path, anchor) = target.split_at(target.find('#').unwrap_or(target.len()));
    let is_file = path.ends_with(".md") || path.ends_with('/') || path.starts_with("../");
    if path.contains(':') || !is_file {
        return None;
    }
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let path = joined(folder, path);
    if let Some(path) = path.strip_prefix("crates/") {
        let (name, path) = path.split_once('/').unwrap_or((path, ""));
        return Some(format!("https://docs.rs/crate/superstep-{name}/latest/source/{path}{anchor}"));
    }
    let page = path.strip_prefix("docs/").and_then(|path| path.strip_suffix(".md"));
    Some(match page {
        Some("engine") => format!("https://docs.rs/superstep-engine/latest/superstep_engine/guide/{anchor}"),
        Some(page) if page.starts_with("cookbook/") || !page.contains('/') && !UNCOMPILED.contains(&page) => {
            // Below the module of the page, whose depth is that of the file.
            let to_guides = if file.contains('/') {
                "../".repeat(file.matches('/').count())
            } else {
                "guide/".to_owned()
            };
            format!("{to_guides}{}/index.html{anchor}", page.to_lowercase())
        }
        _ => format!("{SOURCE}{path}{anchor}"),
    })
}

/// Returns the path of `target` from the root of the repository, for a link in a file of `folder`.
fn joined(folder: &str, target: &str) -> String {
    let mut path: Vec<_> = folder.split('/').filter(|name| !name.is_empty()).collect();
    for name in target.split('/') {
        match name {
            ".." => _ = path.pop(),
            name => path.push(name),
        }
    }
    path.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_between_files_are_links_between_pages() {
        let page = "[a](state.md), [b](DESIGN.md#why) [c](#here) `x[0](y)` [d](errors/SS001.md)\n[e](../examples/) [f](https://x.y/z.md)";
        assert_eq!(
            linked(page, "docs/nodes.md"),
            "[a](../state/index.html), [b](../design/index.html#why) [c](#here) `x[0](y)` \
             [d](https://docs.rs/crate/superstep/latest/source/docs/errors/SS001.md)\n\
             [e](https://docs.rs/crate/superstep/latest/source/examples/) [f](https://x.y/z.md)"
        );
        assert_eq!(
            linked("[a](docs/state.md#x) [b](examples/)", "README.md"),
            "[a](guide/state/index.html#x) [b](https://docs.rs/crate/superstep/latest/source/examples/)"
        );
    }

    #[test]
    fn links_of_and_to_pages_in_folders_and_other_crates_work() {
        assert_eq!(
            linked("[a](chat.md) [b](../state.md#x) [c](../../examples/)", "docs/cookbook/rag.md"),
            "[a](../../cookbook/chat/index.html) [b](../../state/index.html#x) \
             [c](https://docs.rs/crate/superstep/latest/source/examples/)"
        );
        assert_eq!(
            linked(
                "[a](cookbook/chat.md) [b](engine.md#x) [c](../crates/graph/src/run/driver.rs)",
                "docs/nodes.md"
            ),
            "[a](../cookbook/chat/index.html) [b](https://docs.rs/superstep-engine/latest/superstep_engine/guide/#x) \
             [c](https://docs.rs/crate/superstep-graph/latest/source/src/run/driver.rs)"
        );
        assert_eq!(
            linked("![a](plots/a.svg) [b](MIGRATING.md)", "docs/nodes.md"),
            "![a](plots/a.svg) [b](https://docs.rs/crate/superstep/latest/source/docs/MIGRATING.md)"
        );
    }
}
