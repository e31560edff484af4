//! Pages of `docs/` as rustdoc.

use std::{env, fs, path::Path};

use syn::{Error, LitStr, Result};

/// The files of the published crate, for pages that are not part of its rustdoc.
const SOURCE: &str = "https://docs.rs/crate/superstep/latest/source/";

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

/// Returns the address in rustdoc of `target`, if it is a file or folder of the repository.
fn address(target: &str, file: &str) -> Option<String> {
    let (path, anchor) = target.split_at(target.find('#').unwrap_or(target.len()));
    if path.contains(':') || !(path.ends_with(".md") || path.ends_with('/')) {
        return None;
    }
    let (path, to_guides) = match file.rsplit_once('/') {
        Some((folder, _)) => match path.strip_prefix("../") {
            Some(path) => (path.to_owned(), "../"),
            None => (format!("{folder}/{path}"), "../"),
        },
        None => (path.to_owned(), "guide/"),
    };
    match path.strip_prefix("docs/").and_then(|path| path.strip_suffix(".md")) {
        Some(page) if !page.contains('/') => {
            Some(format!("{to_guides}{}/index.html{anchor}", page.to_lowercase()))
        }
        _ => Some(format!("{SOURCE}{path}{anchor}")),
    }
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
}
