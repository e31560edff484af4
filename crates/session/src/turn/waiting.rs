//! Calls that wait for a decision, as they are shown.
//!
//! Start at [`Waiting`].

mod shown;

use serde_json::Value;
use superstep::{
    Interrupt,
    agent::{Approval, approval::ApprovalRequest},
};

use self::shown::HiddenArguments;
use crate::{
    error::{ErrorKind, SessionError},
    text::{count, printable, printable_line},
};

/// The reason of a denial without one.
pub const SAID_NO: &str = "the user said no";

/// Maximum length of a question that is shown without `v`, in lines and in bytes.
const MAX_LINES: usize = 60;
const MAX_BYTES: usize = 8 << 10;

#[derive(Clone, Debug)]
pub struct Waiting {
    pub interrupt: String,
    /// The id shown to the user.
    pub id: String,
    pub request: ApprovalRequest,
}

impl Waiting {
    /// Converts interrupts to waiting calls.
    ///
    /// # Errors
    /// An interrupt is not that of a call.
    pub fn of<'a>(interrupts: impl IntoIterator<Item = &'a Interrupt>) -> Result<Vec<Self>, SessionError> {
        let waiting = |asked: &Interrupt| {
            let request = serde_json::from_value(asked.question.clone()).map_err(|_| {
                let what = format!(
                    "node `{}` waits for an answer that this program cannot give: {}",
                    asked.node, asked.question
                );
                SessionError::new(ErrorKind::Failed, what)
            })?;
            Ok(Self { interrupt: asked.id.clone(), id: asked.key.clone(), request })
        };
        interrupts.into_iter().map(waiting).collect()
    }

    /// Returns the decisions about calls: those of the answers by their interrupts.
    pub(crate) fn decisions(
        waiting: &[Self],
        answer: impl Fn(&str) -> Option<Value>,
    ) -> impl Iterator<Item = (&str, &ApprovalRequest, Approval)> {
        waiting.iter().filter_map(move |call| {
            let decision = serde_json::from_value(answer(&call.interrupt)?).ok()?;
            Some((&*call.interrupt, &call.request, decision))
        })
    }

    /// Returns whether it is a call of one of these tools, and not a form.
    pub fn is_of(&self, tools: &[&str]) -> bool {
        self.request.form.is_none() && tools.contains(&self.request.tool.as_str())
    }

    pub fn is_named(&self, name: &str) -> bool {
        [&self.id, &self.request.call_id, &self.interrupt].into_iter().any(|id| id == name)
    }

    /// Returns the calls that a name means: those with this key or interrupt, otherwise those with this call id.
    pub fn named<'a>(waiting: &'a [Self], name: &str) -> Vec<&'a Self> {
        let exact: Vec<_> = waiting
            .iter()
            .filter(|call| [&call.id, &call.interrupt].into_iter().any(|id| id == name))
            .collect();
        if !exact.is_empty() {
            return exact;
        }
        waiting.iter().filter(|call| call.request.call_id == name).collect()
    }

    /// Returns the question, truncated if long, and the problem with the previous answer.
    pub fn question(&self) -> String {
        self.question_up_to(MAX_LINES, MAX_BYTES)
    }

    /// Returns the arguments that [`question`](Self::question) omits or shows ambiguously; `None` if it shows
    /// all of them.
    pub fn hidden(&self) -> Option<String> {
        self.hidden_beyond(MAX_LINES, MAX_BYTES)
    }

    /// Returns what [`question`](Self::question) does, with other limits.
    pub fn question_up_to(&self, lines: usize, bytes: usize) -> String {
        let shown = self.first_lines(lines, bytes);
        let mut text = exact(shown);
        let more = self.request.question.len() - shown.len();
        if more > 0 {
            text.push_str(&format!("\n… [{more} more bytes]"));
        }
        if let Some(problem) = &self.request.problem {
            text.push_str(&format!("\nnot possible: {}", printable(problem)));
        }
        text
    }

    /// Returns the part of the question that is shown first.
    fn first_lines(&self, lines: usize, bytes: usize) -> &str {
        let question = self.request.question.as_str();
        let lines = question.match_indices('\n').nth(lines - 1).map_or(question.len(), |(at, _)| at);
        &question[..question.floor_char_boundary(lines.min(bytes))]
    }

    /// Returns what [`hidden`](Self::hidden) does for [`question_up_to`](Self::question_up_to).
    pub fn hidden_beyond(&self, lines: usize, bytes: usize) -> Option<String> {
        let shown = self.first_lines(lines, bytes);
        let HiddenArguments { hidden, words } =
            shown::unseen(&printable(shown), self.request.args.as_object());
        let hidden = hidden.into_iter().map(|(name, value)| match value {
            Value::String(text) => {
                format!("`{}` ({})", printable_line(name), count(text.chars().count(), "character"))
            }
            _ => format!("`{}`", printable_line(name)),
        });
        let cut = (shown.len() < self.request.question.len()).then(|| "the question".to_owned());
        let hidden: Vec<_> = cut.into_iter().chain(hidden).collect();
        let hidden = (!hidden.is_empty()).then(|| format!("not shown in full: {}", hidden.join(", ")));
        let words =
            words.into_iter().map(|(name, text)| format!("`{}` is `{}`", printable_line(name), exact(&text)));
        let all: Vec<_> = hidden.into_iter().chain(words).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Returns everything that a decision covers: the call, the question, and the arguments as the tool will
    /// receive them.
    pub fn whole(&self) -> String {
        let ApprovalRequest { tool, args, question, .. } = &self.request;
        let (id, tool) = (printable_line(&self.id), printable_line(tool));
        let mut text = format!("call `{id}` of {tool}\n");
        let mut block = |name: &str, content: &str| {
            text.push_str(&format!("{name}:\n"));
            content.split('\n').for_each(|line| text.push_str(&format!("  | {}\n", exact(line))));
        };
        block("question", question);
        match args.as_object() {
            None => block("arguments", &args.to_string()),
            Some(args) => args.iter().for_each(|(name, value)| {
                let name = format!("argument `{}`", printable_line(name));
                match value {
                    Value::String(content) => block(&name, content),
                    other => block(&name, &other.to_string()),
                }
            }),
        }
        text
    }
}

/// Escapes like [`printable`], and also what looks like a space or like nothing: two values that differ must not look
/// alike to the user who decides about one of them.
pub fn exact(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut before = ' ';
    for c in printable(text).chars() {
        let is_blank = c == '\u{2800}' || c.is_whitespace() && !matches!(c, ' ' | '\n' | '\t');
        // A selector that belongs to no sign shows nothing.
        let is_selector = matches!(c, '\u{fe0e}' | '\u{fe0f}');
        let is_sign =
            !before.is_ascii() && !before.is_alphanumeric() && !matches!(before, '\u{fe0e}' | '\u{fe0f}');
        if is_blank || is_selector && !is_sign {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
        before = c;
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn blanks_and_selectors_that_look_like_others_are_escaped() {
        let text = "rm\u{a0}-rf\u{2800}x\u{3000} \u{2764}\u{fe0f} a\u{fe0f}\u{fe0f} 1\u{fe0e}";
        let wanted = "rm\\u{a0}-rf\\u{2800}x\\u{3000} \u{2764}\u{fe0f} a\\u{fe0f}\\u{fe0f} 1\\u{fe0e}";
        assert_eq!(exact(text), wanted);
        let call = asking(&format!("Run {text}?"), json!({ "command": text }));
        assert!(call.question().contains(wanted) && call.whole().matches(wanted).count() == 2);
        assert_eq!(call.hidden(), None);
    }

    fn asking(question: &str, args: Value) -> Waiting {
        let (call_id, tool) = ("c\u{202e}1".to_owned(), "write\nfile".to_owned());
        let request = ApprovalRequest {
            call_id: call_id.clone(),
            tool,
            args,
            question: question.to_owned(),
            form: None,
            problem: None,
        };
        Waiting { interrupt: "i".to_owned(), id: call_id, request }
    }

    #[test]
    fn arguments_missing_from_the_question_are_named() {
        for (question, args, hidden) in [
            ("edit a.rs\n-b\n+c", json!({"path": "a.rs", "old": "b", "new": "c"}), None),
            (
                "make one",
                json!({"path": "one", "content": "x"}),
                Some("not shown in full: `content` (1 character); `path` is `one`"),
            ),
            ("go", json!({"to": "x\n", "n": 5}), Some("not shown in full: `n`, `to` (2 characters)")),
            (&"x\n".repeat(100), json!({}), Some("not shown in full: the question")),
            (&"é".repeat(9_000), json!({}), Some("not shown in full: the question")),
        ] {
            assert_eq!(asking(question, args).hidden().as_deref(), hidden, "{question}");
        }
        let long = asking(&"x\n".repeat(100), json!({})).question();
        assert_eq!((long.lines().count(), long.ends_with("\n… [81 more bytes]")), (61, true), "{long}");
    }
}
