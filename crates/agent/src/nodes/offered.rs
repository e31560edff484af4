//! The tools of sources that come and go, as a thread records them, so that a replay can name those that differ.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use superstep_graph::{Cx, fingerprint};
use superstep_llm::{Request, ToolSpec};

use crate::AgentDeps;

/// Under which name the tools of a superstep are recorded and compared.
const TOOLS: &str = "tools";

/// How much is stored of the fingerprint of one tool, in characters.
const SHORT: usize = 8;

/// The tools that a request offers, each with what tells it from another one of its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
struct Offered(BTreeMap<String, String>);

/// How the tools of a replay differ from those of its thread.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Difference<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    added: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changed: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    removed: Vec<&'a str>,
}

impl Offered {
    fn of(request: &Request) -> Self {
        let each = |tool: &ToolSpec| {
            let mut print = fingerprint(tool).expect("what is sent has a JSON form");
            print.truncate(SHORT);
            (tool.name.clone(), print)
        };
        Self(request.tools.iter().map(each).collect())
    }

    fn difference<'a>(&'a self, now: &'a Self) -> Difference<'a> {
        let mut difference = Difference::default();
        for (name, print) in &self.0 {
            match now.0.get(name) {
                None => difference.removed.push(name),
                Some(now) if now != print => difference.changed.push(name),
                Some(_) => {}
            }
        }
        difference.added =
            now.0.keys().filter(|name| !self.0.contains_key(*name)).map(String::as_str).collect();
        difference
    }
}

/// Records which tools a request offers, if they come and go. In a replay whose tools are not those of the thread, the node goes no
/// further: the divergence names them.
pub(super) async fn compared(deps: &AgentDeps, request: &Request, cx: &Cx) {
    if deps.sources.is_empty() {
        return;
    }
    let now = Offered::of(request);
    let then = cx.noted(TOOLS, now.clone());
    // Threads of older programs have no record of them.
    if then != now && then != Offered::default() {
        cx.compared(TOOLS, || then.difference(&now)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_differ_by_name_and_by_what_is_said_of_them() {
        let offered = |each: &[(&str, &str)]| {
            Offered(each.iter().map(|(name, print)| ((*name).to_owned(), (*print).to_owned())).collect())
        };
        let (then, now) =
            (offered(&[("a", "1"), ("b", "1"), ("c", "1")]), offered(&[("a", "1"), ("b", "2"), ("d", "1")]));
        let wanted = Difference { added: vec!["d"], changed: vec!["b"], removed: vec!["c"] };
        assert_eq!(then.difference(&now), wanted);
    }
}
