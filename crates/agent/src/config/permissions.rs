//! Which calls may run.

mod addresses;
mod commands;
mod glob;
mod paths;
mod subjects;

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_llm::Tool;

use self::glob::Glob;

/// What is decided about calls of a kind. Of several rules that are about a call the last one counts; without any, the tool
/// itself says whether somebody is asked.
///
/// Where it is doubtful whether a rule is about a call, the stricter outcome counts: a rule that allows does not, a rule that
/// denies does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PermissionRule {
    /// A pattern for the tool's name: `*` stands for any characters, `?` for one, `{a,b}` for either.
    pub tool: String,
    /// Patterns for arguments by their name, all of which have to fit.
    ///
    /// They are compared with what the call really touches, which the tool says ([`Tool::subject`]) or the argument's name, its
    /// value and the pattern tell:
    /// - a path below the tool's folder, links and `..` followed: `*` does not cross `/`, `**` does;
    /// - a URL by its scheme, host, port and path;
    /// - a command line by its words: `git *` is about one `git` command, without `;`, `&&`, `|`, `$(..)`, backticks,
    ///   redirections and new lines;
    /// - text as it stands, and what is no text as JSON. Of a list every entry has to fit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arguments: BTreeMap<String, String>,
    /// What is decided.
    pub then: Permit,
}

/// What a [`PermissionRule`] decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permit {
    /// The call runs, and nobody is asked.
    Allow,
    /// Somebody is asked.
    Ask,
    /// The call does not run.
    Deny,
}

/// Whether a rule is about a call; of several parts that all have to fit, the least one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    No,
    /// It may be, or it is about a part of it.
    Maybe,
    Yes,
}

impl Fit {
    /// Of something that consists of these.
    fn of_all(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut parts = parts.into_iter();
        // Of nothing, nobody can tell.
        let Some(first) = parts.next() else { return Self::Maybe };
        parts.fold(first, |all, part| if part == all { all } else { Self::Maybe })
    }

    /// For sure if `strict`, perhaps if `loose`.
    fn of(strict: bool, loose: impl FnOnce() -> bool) -> Self {
        match strict {
            true => Self::Yes,
            false if loose() => Self::Maybe,
            false => Self::No,
        }
    }
}

impl PermissionRule {
    /// A rule about every call of a tool.
    pub fn new(tool: impl Into<String>, then: Permit) -> Self {
        Self { tool: tool.into(), arguments: BTreeMap::new(), then }
    }

    /// Whether it is about a tool of this name, with some arguments at least. A pattern that is none fits nothing.
    pub fn is_about(&self, tool: &str) -> bool {
        Glob::text(&self.tool).is_ok_and(|glob| glob.fits(tool))
    }

    /// The first pattern that is none, and why.
    pub(crate) fn problem(&self) -> Option<String> {
        let patterns = [&self.tool].into_iter().chain(self.arguments.values());
        patterns.map(|pattern| Glob::text(pattern)).find_map(Result::err)
    }

    /// Whether it is about a call. A pattern that is none may be about anything.
    fn fit(&self, name: &str, tool: Option<&dyn Tool>, args: &Value) -> Fit {
        let of_tool = Glob::text(&self.tool).map_or(Fit::Maybe, |glob| Fit::of(glob.fits(name), || false));
        if of_tool == Fit::No {
            return Fit::No;
        }
        let fits = self.arguments.iter().map(|(argument, pattern)| match Glob::text(pattern) {
            Ok(_) => subjects::fit(pattern, argument, tool, args),
            Err(_) => Fit::Maybe,
        });
        fits.fold(of_tool, Fit::min)
    }
}

/// As in a configuration: `deny write_file, path = "secrets/*"`.
impl fmt::Display for PermissionRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let then = match self.then {
            Permit::Allow => "allow",
            Permit::Ask => "ask",
            Permit::Deny => "deny",
        };
        write!(f, "{then} {}", self.tool)?;
        self.arguments.iter().try_for_each(|(name, pattern)| write!(f, ", {name} = {pattern:?}"))
    }
}

/// What rules say of a call: the last one that is about it, or the strictest of those that may be. `None` if they leave it to the
/// tool.
pub(crate) fn decided(
    rules: &[PermissionRule],
    name: &str,
    tool: Option<&dyn Tool>,
    args: &Value,
) -> Option<Permit> {
    let mut possible = Vec::new();
    for rule in rules.iter().rev() {
        let fit = rule.fit(name, tool, args);
        if fit != Fit::No {
            possible.push(Some(rule.then));
        }
        if fit == Fit::Yes {
            return strictest(possible);
        }
    }
    possible.push(None);
    strictest(possible)
}

/// The rule because of which a call is denied, if it is.
pub(crate) fn denying<'a>(
    rules: &'a [PermissionRule],
    name: &str,
    tool: Option<&dyn Tool>,
    args: &Value,
) -> Option<&'a PermissionRule> {
    let denies = |rule: &&PermissionRule| rule.then == Permit::Deny && rule.fit(name, tool, args) != Fit::No;
    rules.iter().rev().find(denies).filter(|_| decided(rules, name, tool, args) == Some(Permit::Deny))
}

/// A tool that is left to itself may ask, so that is stricter than to allow it.
fn strictest(permits: Vec<Option<Permit>>) -> Option<Permit> {
    permits.into_iter().max_by_key(|permit| match permit {
        Some(Permit::Allow) => 0,
        None => 1,
        Some(Permit::Ask) => 2,
        Some(Permit::Deny) => 3,
    })?
}

#[cfg(test)]
mod tests;
