//! Matching of paths against a pattern.

use super::{
    Fit,
    glob::{Glob, fits_names, parts},
};

/// Maximum length of a compared path in bytes; no system accepts longer ones.
const MAX_LENGTH: usize = 4_096;

/// A path that the tool resolved.
pub(super) struct ResolvedPath<'a> {
    /// The absolute path of the tool's folder.
    pub(super) root: &'a str,
    /// The names below it.
    pub(super) below: &'a str,
    /// The call also accesses everything below the path.
    pub(super) whole: bool,
    /// The file system may ignore letter case.
    pub(super) any_case: bool,
}

/// Matches a pattern against a path. A path below a matching one is a possible match.
pub(super) fn fit(pattern: &str, path: &ResolvedPath<'_>) -> Fit {
    let whole_path;
    let (pattern, path_text) = if pattern.starts_with('/') {
        whole_path = format!("{}/{}", path.root.trim_end_matches('/'), path.below);
        (tidy(pattern), whole_path.trim_matches('/'))
    } else {
        (tidy(pattern), path.below)
    };
    let Some(pattern) = pattern else { return Fit::Maybe };
    let folded = || (pattern.to_lowercase(), path_text.to_lowercase());
    Fit::of(covers(&pattern, path_text, path.whole), || {
        touches(&pattern, path_text, path.whole)
            || path.any_case && {
                let (pattern, path_text) = folded();
                touches(&pattern, &path_text, path.whole)
            }
    })
}

/// Matches a path as written, for a tool whose folder and treatment of links are unknown.
pub(super) fn fit_written(pattern: &str, written: &str) -> Fit {
    if written.len() > MAX_LENGTH {
        return Fit::Maybe;
    }
    let is_absolute = written.starts_with('/');
    let names = written.strip_suffix('/').unwrap_or(written);
    let names: Vec<&str> = names.strip_prefix('/').unwrap_or(names).split('/').collect();
    let mut real: Vec<&str> = Vec::new();
    for name in &names {
        match *name {
            "" | "." => {}
            ".." if real.pop().is_none() => return Fit::Maybe,
            ".." => {}
            name => real.push(name),
        }
    }
    let Some(tidied) = tidy(pattern) else { return Fit::Maybe };
    let joined = real.join("/");
    if pattern.starts_with('/') && !is_absolute {
        return Fit::Maybe;
    }
    let same_beginning = pattern.starts_with('/') == is_absolute;
    let is_plain = real == names
        && !written.starts_with('~')
        && !written.contains(['\\', '%', '$'])
        && !written.contains("://")
        && !written.contains(char::is_control);
    if is_plain && same_beginning && covers(&tidied, &joined, false) {
        return Fit::Yes;
    }
    let has_signs = written.contains(['\\', '%', '$']) || written.starts_with('~') || written.contains("://");
    let pattern = tidied.to_lowercase();
    let real: Vec<String> = real.iter().map(|name| name.to_lowercase()).collect();
    // An absolute path leads below a folder whose name is unknown here.
    let starts = if is_absolute && !same_beginning { 0..=real.len() } else { 0..=0 };
    let touched = starts.into_iter().any(|start| touches(&pattern, &real[start..].join("/"), true));
    Fit::of(false, || has_signs || touched)
}

/// Removes `.`, empty names and outer `/` from a pattern; `None` if it leads upwards.
fn tidy(pattern: &str) -> Option<String> {
    let names: Vec<&str> = parts(pattern).into_iter().filter(|name| !matches!(*name, "" | ".")).collect();
    (!names.contains(&"..")).then(|| names.join("/"))
}

/// Returns whether the pattern matches the path, and everything below it if `whole`.
fn covers(pattern: &str, path: &str, whole: bool) -> bool {
    if path.is_empty() {
        return matches!(pattern, "" | "**");
    }
    let below = || pattern.strip_suffix("/**").is_some_and(|folder| fits_names(folder, path));
    fits_names(pattern, path) || whole && below()
}

/// Returns whether the pattern matches the path, a folder above it, or, if `whole`, something below it.
fn touches(pattern: &str, path: &str, whole: bool) -> bool {
    let on_the_way = path.match_indices('/').map(|(end, _)| &path[..end]).chain([path]);
    let Ok(glob) = Glob::names(pattern) else { return true };
    covers(pattern, path, whole)
        || on_the_way.filter(|path| !path.is_empty()).any(|path| glob.fits(path))
        || whole && may_be_below(pattern, path)
}

fn may_be_below(pattern: &str, path: &str) -> bool {
    let mut names = path.split('/').filter(|name| !name.is_empty());
    for part in parts(pattern) {
        if part.contains("**") || part.contains('/') {
            return true;
        }
        match names.next() {
            None => return true,
            Some(name) if fits_names(part, name) => {}
            Some(_) => return false,
        }
    }
    // It matches a folder above the path.
    true
}
