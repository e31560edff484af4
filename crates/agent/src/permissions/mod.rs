//! Permission rules for calls.
//!
//! Start at [`PermissionRule`].

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

/// A permission rule for a kind of call. The last matching rule applies; without a match, the tool itself
/// decides whether to require approval.
///
/// In doubt whether a rule matches a call, the stricter outcome applies: an allowing rule does not match, a
/// denying rule does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PermissionRule {
    /// A pattern for the tool's name: `*` matches any characters, `?` one, `{a,b}` either.
    pub tool: String,
    /// Patterns for arguments by name, all of which must match.
    ///
    /// They are compared with the resource that the call accesses, as reported by the tool
    /// ([`Tool::subject`]) or derived from the argument's name, its value and the pattern:
    /// - a path below the tool's folder, with links and `..` resolved: `*` does not cross `/`, `**` does;
    /// - a URL by its scheme, host, port and path;
    /// - a command line by its words: `git *` matches one `git` command, without `;`, `&&`, `|`, `$(..)`,
    ///   backticks, redirections and new lines;
    /// - text literally, and other values as JSON. Of a list every entry must match.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arguments: BTreeMap<String, String>,
    /// The decision.
    pub then: Permit,
}

/// The decision of a [`PermissionRule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permit {
    /// The call runs without approval.
    Allow,
    /// The call requires approval.
    Ask,
    /// The call does not run.
    Deny,
}

// Otherwise one pattern would need two meanings, a narrow one to allow and a wide one to deny. A rule need not know its purpose: an
// asking rule is strict behind an allowing one, and cannot bypass a denying one.
/// The result of matching a rule; of several required parts, the least one applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    No,
    /// The rule matches possibly, or a part of the call.
    Maybe,
    Yes,
}

impl Fit {
    /// Combines the results of all required parts.
    fn of_all(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut parts = parts.into_iter();
        // An empty list decides nothing.
        let Some(first) = parts.next() else { return Self::Maybe };
        parts.fold(first, |all, part| if part == all { all } else { Self::Maybe })
    }

    /// Returns certain if `strict`, possible if `loose`.
    fn of(strict: bool, loose: impl FnOnce() -> bool) -> Self {
        if strict {
            Self::Yes
        } else if loose() {
            Self::Maybe
        } else {
            Self::No
        }
    }
}

impl PermissionRule {
    /// Creates a rule for every call of a tool.
    pub fn new(tool: impl Into<String>, then: Permit) -> Self {
        Self { tool: tool.into(), arguments: BTreeMap::new(), then }
    }

    /// Returns the decision of rules on a call, for tests of rules; `None` leaves it to the tool. Without the tool, the resource that
    /// the call accesses is derived from its arguments.
    ///
    /// ```
    /// use serde_json::json;
    /// use superstep_agent::config::{PermissionRule, Permit};
    ///
    /// let rules = [PermissionRule::new("*", Permit::Ask), PermissionRule::new("read_*", Permit::Allow)];
    /// let decision = |tool: &str| PermissionRule::decision(&rules, tool, None, &json!({}));
    /// assert_eq!(decision("read_file"), Some(Permit::Allow));
    /// assert_eq!(decision("write_file"), Some(Permit::Ask));
    /// ```
    pub fn decision(rules: &[Self], name: &str, tool: Option<&dyn Tool>, args: &Value) -> Option<Permit> {
        permit_of(rules, name, tool, args)
    }

    /// Returns whether the rule can match a tool of this name. An invalid pattern matches nothing.
    pub fn is_about(&self, tool: &str) -> bool {
        Glob::text(&self.tool).is_ok_and(|glob| glob.fits(tool))
    }

    /// Returns the first invalid pattern and the reason.
    pub(crate) fn problem(&self) -> Option<String> {
        let patterns = [&self.tool].into_iter().chain(self.arguments.values());
        patterns.map(|pattern| Glob::text(pattern)).find_map(Result::err)
    }

    /// Matches the rule against a call. An invalid pattern possibly matches everything.
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

/// Formats the rule as in a configuration: `deny write_file, path = "secrets/*"`.
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

/// Returns the decision of the last certain match, or the strictest of the possible ones. `None` leaves the
/// decision to the tool.
pub(crate) fn permit_of(
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

/// Returns the rule that denies a call, if any.
pub(crate) fn denying<'a>(
    rules: &'a [PermissionRule],
    name: &str,
    tool: Option<&dyn Tool>,
    args: &Value,
) -> Option<&'a PermissionRule> {
    let denies = |rule: &&PermissionRule| rule.then == Permit::Deny && rule.fit(name, tool, args) != Fit::No;
    rules.iter().rev().find(denies).filter(|_| permit_of(rules, name, tool, args) == Some(Permit::Deny))
}

/// Leaving the decision to the tool may require approval, so that is stricter than to allow it.
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
