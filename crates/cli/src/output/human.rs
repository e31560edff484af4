//! The output for people: the reply on stdout, on a terminal as it arrives, everything else on stderr.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal, Write},
    time::Duration,
};

use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use superstep::{
    agent::{AgentEvent, AgentOutcome, state::ToolStatus},
    node::NodeName,
};
use superstep_session::{
    live::{Level, Notice, notice},
    text::{brief, changed_files, count, printable, printable_line, short_time},
};
use tokio::time::Instant;

use crate::output::{
    cost::EstimatedCost,
    note::print_styled_note,
    run_output::{End, Output},
};

const DIM: Style = Style::new().dimmed();
const BAD: Style = AnsiColor::Red.on_default();

/// Maximum number of characters of arguments and results in a tool's line.
const MAX_SHOWN: usize = 100;

pub(crate) struct Human<W> {
    out: W,
    /// `out` is a terminal, which must not receive control characters. Anything else receives no text that may become void.
    on_terminal: bool,
    /// The text of the current model call, unless `out` is a terminal.
    held: String,
    quiet: bool,
    spinner: Option<ProgressBar>,
    /// The text of the last model call that had any.
    streamed: String,
    /// Another model call has begun since.
    begins: bool,
    /// The last line on stdout is not terminated yet.
    mid_line: bool,
    /// A model call has just ended, with no output since.
    may_go_on: bool,
    /// The running tools by call id.
    tools: BTreeMap<String, Running>,
}

struct Running {
    began: Instant,
    line: String,
}

impl Running {
    fn begun() -> Self {
        Self { began: Instant::now(), line: String::new() }
    }
}

impl<W: Write> Human<W> {
    pub(crate) fn new(out: W, on_terminal: bool, quiet: bool) -> Self {
        let (spinner, tools) = (None, BTreeMap::new());
        let (mid_line, may_go_on, begins) = (false, false, false);
        let (held, streamed) = (String::new(), String::new());
        Self { out, on_terminal, held, quiet, spinner, streamed, begins, mid_line, may_go_on, tools }
    }

    fn wait_for_model(&mut self) {
        if self.quiet || !io::stderr().is_terminal() {
            return;
        }
        let spinner = ProgressBar::new_spinner().with_message("calling the model");
        spinner.set_style(ProgressStyle::default_spinner());
        spinner.enable_steady_tick(Duration::from_millis(100));
        self.spinner = Some(spinner);
    }

    fn stop_waiting(&mut self) {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
    }

    fn say(&mut self, text: &str) -> io::Result<()> {
        let shown = if self.on_terminal { printable(text) } else { text.to_owned() };
        self.out.write_all(shown.as_bytes())?;
        self.out.flush()?;
        self.mid_line = !text.ends_with('\n');
        Ok(())
    }

    fn end_line(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.mid_line) {
            self.out.write_all(b"\n")?;
            self.out.flush()?;
        }
        Ok(())
    }

    fn print_note(&mut self, style: Style, text: &str) {
        self.stop_waiting();
        if !self.quiet {
            print_styled_note(style, text);
        }
    }

    /// Prints the completed lines of a tool's output.
    fn tool_output(&mut self, id: &str, chunk: &str) {
        // The start of a resumed call was reported to another process.
        let running = self.tools.entry(id.to_owned()).or_insert_with(Running::begun);
        running.line.push_str(chunk);
        let Some(end) = running.line.rfind(['\n', '\r']) else { return };
        let rest = running.line.split_off(end + 1);
        let ended = std::mem::replace(&mut running.line, rest);
        self.print_note_lines(&ended);
    }

    fn print_note_lines(&mut self, text: &str) {
        let lines = text.split(['\n', '\r']).filter(|line| !line.trim().is_empty());
        let lines: Vec<_> = lines.map(|line| format!("    │ {}", brief(line, MAX_SHOWN))).collect();
        if !lines.is_empty() {
            self.print_note(DIM, &lines.join("\n"));
        }
    }

    fn tool_end(&mut self, id: &str, tool: &str, result: &str, status: ToolStatus) {
        let running = self.tools.remove(id);
        let took = running.as_ref().map(|running| format!(" ({})", short_time(running.began.elapsed())));
        if let Some(running) = running {
            self.print_note_lines(&running.line);
        }
        let style = if status == ToolStatus::Error { BAD } else { DIM };
        let lines = result.lines().count();
        if tool == "todo" && style != BAD {
            let list: Vec<_> = result.lines().map(|line| format!("    {line}")).collect();
            self.print_note(Style::new(), &list.join("\n"));
            return;
        }
        let what = if lines > 1 { format!("{lines} lines") } else { brief(result, MAX_SHOWN) };
        let tool = printable_line(tool);
        self.print_note(style, &format!("  ← {tool}: {what}{}", took.unwrap_or_default()));
    }

    fn show(&mut self, event: AgentEvent) -> io::Result<()> {
        match &event {
            AgentEvent::NodeStart { .. } => {
                // Whether the model is called is not known yet: the turn may be over.
                self.begins = true;
                self.wait_for_model();
            }
            AgentEvent::LlmToken { token, .. } => self.token(token)?,
            AgentEvent::NodeEnd { .. } => {
                self.stop_waiting();
                self.release()?;
                self.may_go_on = true;
            }
            AgentEvent::ToolStart { id, .. } => {
                self.tools.insert(id.clone(), Running::begun());
            }
            AgentEvent::ToolOutput { id, chunk, .. } => self.tool_output(id, chunk),
            AgentEvent::ToolEnd { tool, id, result, status, .. } => self.tool_end(id, tool, result, *status),
            AgentEvent::AttemptDiscarded { .. } | AgentEvent::TextCalls { .. } => {
                self.end_line()?;
                self.streamed.clear();
                self.held.clear();
            }
            AgentEvent::Steered { .. } => self.end_line()?,
            _ => {}
        }
        if let Some((style, note)) = note(&event) {
            // Names and reasons come from models and servers, and must not look like other lines of the program.
            let is_list = matches!(event, AgentEvent::FilesChanged(_));
            self.print_note(style, &if is_list { note } else { printable_line(&note) });
        }
        if let AgentEvent::Retry { .. } | AgentEvent::ModelFallback { .. } = event {
            self.wait_for_model();
        }
        Ok(())
    }

    /// Prints a part of the model's text; an empty one is a sign that the model thinks.
    fn token(&mut self, token: &str) -> io::Result<()> {
        if token.is_empty() {
            if let Some(spinner) = &self.spinner {
                spinner.set_message("the model thinks");
            }
            return Ok(());
        }
        self.stop_waiting();
        if std::mem::take(&mut self.begins) {
            self.streamed.clear();
        }
        self.streamed.push_str(token);
        match (self.quiet, self.on_terminal) {
            (true, _) => {}
            (false, true) => self.say(token)?,
            (false, false) => self.held.push_str(token),
        }
        Ok(())
    }

    /// Prints the text of a model call that has ended: it cannot become void anymore.
    fn release(&mut self) -> io::Result<()> {
        let held = std::mem::take(&mut self.held);
        if held.is_empty() { Ok(()) } else { self.say(&held) }
    }
}

/// Returns the line that reports an event, if it has one.
fn note(event: &AgentEvent) -> Option<(Style, String)> {
    Some(match event {
        AgentEvent::ToolStart { tool, args, .. } => {
            (DIM, format!("  → {tool} {}", brief(&args.to_string(), MAX_SHOWN)))
        }
        AgentEvent::ToolOutput { truncated: true, .. } => {
            (DIM, "    │ … further output is not shown".to_owned())
        }
        AgentEvent::ToolSkipped { tool, reason, .. } => (BAD, format!("  ← {tool} was not run: {reason}")),
        AgentEvent::FilesChanged(changes) => (DIM, format!("    {}", changed_files(changes).join("\n    "))),
        AgentEvent::Steered { text, .. } => (DIM, format!("message during the turn: {text}")),
        _ => {
            let Notice { level, text, of_call, .. } = notice(event)?;
            let style = if level == Level::Info { DIM } else { BAD };
            (style, if of_call { format!("    {text}") } else { text })
        }
    })
}

impl<W: Write> Output for Human<W> {
    fn event(&mut self, name: &str, data: &Value) -> io::Result<()> {
        let event = AgentEvent::read(name, data);
        // A truncated reply and its continuation are one text on one line.
        let begins = matches!(event, Some(AgentEvent::NodeStart { .. }));
        let goes_on = std::mem::take(&mut self.may_go_on) && begins && self.mid_line;
        let is_text = matches!(event, Some(AgentEvent::LlmToken { .. } | AgentEvent::NodeEnd { .. }));
        if !is_text && !goes_on {
            self.end_line()?;
        }
        event.filter(|_| !goes_on).map_or(Ok(()), |event| self.show(event))
    }

    fn discarded(&mut self, nodes: &[NodeName]) -> io::Result<()> {
        let nodes: Vec<_> = nodes.iter().map(|node| printable_line(node.as_str())).collect();
        self.print_note(BAD, &format!("discarded pending nodes: {}", nodes.join(", ")));
        Ok(())
    }

    fn lagged(&mut self, skipped: u64) -> io::Result<()> {
        let lost = count(skipped, "event");
        self.print_note(BAD, &format!("lost {lost}, which came faster than they could be shown"));
        Ok(())
    }

    fn note(&mut self, text: &str) {
        let _ = self.end_line();
        self.print_note(Style::new(), text);
    }

    fn end(&mut self, end: &End<'_>) -> io::Result<()> {
        self.stop_waiting();
        let End { state, outcome, .. } = *end;
        let reply = state.final_reply.as_str();
        // Without a reply there is only an explanation.
        let is_waiting = outcome == AgentOutcome::AwaitingApproval;
        let is_reply = !outcome.is_unanswered() && !is_waiting;
        if is_reply && (self.quiet || self.streamed != reply || !self.held.is_empty()) {
            self.end_line()?;
            self.say(reply)?;
        } else {
            self.release()?;
        }
        self.end_line()?;
        if is_waiting {
            return Ok(());
        }
        let metadata = end.metadata();
        if metadata.over_context > 0 {
            self.print_note(
                BAD,
                &format!(
                    "the last request was {} more than `context` allows, and could not be shortened",
                    count(metadata.over_context, "token")
                ),
            );
        }
        self.print_note(
            DIM,
            &format!(
                "{}, {}, {}, {}{}",
                count(u64::from(metadata.steps_taken), "step"),
                count(u64::from(metadata.llm_calls), "model call"),
                match (state.usage.input_tokens, state.usage.output_tokens) {
                    (0, 0) => "tokens not counted".to_owned(),
                    (read, written) if state.answer.estimated => {
                        format!("tokens not counted, about {read} in and {written} out")
                    }
                    (read, written) => {
                        let cached = match state.usage.cached_tokens {
                            0 => String::new(),
                            cached => format!(" ({cached} cached)"),
                        };
                        format!("{} in{cached} and {written} out", count(read, "token"))
                    }
                },
                EstimatedCost::of(state).map(|cost| format!("{cost}, ")).unwrap_or_default(),
                short_time(end.took)
            ),
        );
        Ok(())
    }
}

impl<W> Drop for Human<W> {
    fn drop(&mut self) {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use superstep::agent::AgentState;

    use super::*;

    fn shown(quiet: bool, tokens: &[&str], reply: &str, outcome: AgentOutcome) -> String {
        let mut out = Vec::new();
        let mut output = Human::new(&mut out, true, quiet);
        output.event("node_start", &json!({"node": "agent"})).unwrap();
        for token in tokens {
            output.event("llm_token", &json!({"token": token, "reasoning_token": ""})).unwrap();
        }
        output.event("node_end", &json!({"node": "agent"})).unwrap();
        let state = AgentState { final_reply: reply.into(), ..AgentState::default() };
        output.end(&End { thread: "t", state: &state, outcome, took: Duration::ZERO }).unwrap();
        drop(output);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_reply_is_shown_once_whether_it_was_streamed_or_not() {
        use AgentOutcome::{Completed, Limit, LlmError};
        assert_eq!(shown(false, &["a ", "b"], "a b", Completed), "a b\n");
        assert_eq!(shown(true, &["a ", "b"], "a b", Completed), "a b\n");
        assert_eq!(shown(false, &[], "No answer: the limit", Limit), "No answer: the limit\n");
        assert_eq!(shown(false, &[], "No answer: 401", LlmError), "");
    }

    #[test]
    fn a_file_has_no_text_of_a_broken_attempt_and_a_terminal_has_it_at_once() {
        let shown = |on_terminal: bool| {
            let mut out = Vec::new();
            let mut output = Human::new(&mut out, on_terminal, false);
            let token = |token: &str| ("llm_token", json!({"token": token, "reasoning_token": ""}));
            let (start, end) =
                (("node_start", json!({"node": "agent"})), ("node_end", json!({"node": "agent"})));
            let broken = ("attempt_discarded", json!({"attempt": 1}));
            let skipped = ("tool_skipped", json!({"tool": "t", "id": "c1", "reason": "cancelled"}));
            let first = [start.clone(), token("I look."), end.clone(), skipped];
            let second = [start, token("It "), broken, token("It is "), token("42."), end];
            for (name, data) in first.into_iter().chain(second) {
                output.event(name, &data).unwrap();
            }
            let state = AgentState { final_reply: "It is 42.".into(), ..AgentState::default() };
            let end =
                End { thread: "t", state: &state, outcome: AgentOutcome::Completed, took: Duration::ZERO };
            output.end(&end).unwrap();
            drop(output);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(shown(false), "I look.\nIt is 42.\n");
        assert_eq!(shown(true), "I look.\nIt \nIt is 42.\n");
    }

    #[test]
    fn an_answer_in_two_parts_is_one_text() {
        let mut out = Vec::new();
        let mut output = Human::new(&mut out, true, false);
        let token = |token: &str| ("llm_token", json!({"token": token, "reasoning_token": ""}));
        let (start, end) = (("node_start", json!({"node": "agent"})), ("node_end", json!({"node": "agent"})));
        let skipped = ("tool_skipped", json!({"tool": "t", "id": "c1", "reason": "cancelled"}));
        let told = [token("I look."), end.clone(), skipped, start.clone()];
        let parts = [token("It is "), end.clone(), start, token("42."), end];
        for (name, data) in told.into_iter().chain(parts) {
            output.event(name, &data).unwrap();
        }
        let state = AgentState { final_reply: "It is 42.".into(), ..AgentState::default() };
        let end = End { thread: "t", state: &state, outcome: AgentOutcome::Completed, took: Duration::ZERO };
        output.end(&end).unwrap();
        drop(output);
        assert_eq!(String::from_utf8(out).unwrap(), "I look.\nIt is 42.\n");
    }

    #[test]
    fn a_reply_is_shown_once_if_the_agent_runs_again_only_to_end() {
        let token = |token: &str| ("llm_token", json!({"token": token, "reasoning_token": ""}));
        let (start, end) = (("node_start", json!({"node": "agent"})), ("node_end", json!({"node": "agent"})));
        let called = ("tool_skipped", json!({"tool": "t", "id": "c1", "reason": "cancelled"}));
        let visit = |text: &str| [start.clone(), token(text), end.clone(), called.clone()];
        let empty = [start.clone(), end.clone()];
        let all = |visits: &[&[(&str, Value)]], reply: &str| {
            let mut out = Vec::new();
            let mut output = Human::new(&mut out, true, false);
            visits.iter().copied().flatten().for_each(|(name, data)| output.event(name, data).unwrap());
            let state = AgentState { final_reply: reply.into(), ..AgentState::default() };
            let outcome = AgentOutcome::Completed;
            output.end(&End { thread: "t", state: &state, outcome, took: Duration::ZERO }).unwrap();
            drop(output);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(all(&[&visit("plain text"), &empty], "plain text"), "plain text\n");
        assert_eq!(
            all(&[&visit("I look."), &visit("It is 42."), &empty, &empty], "It is 42."),
            "I look.\nIt is 42.\n"
        );
        assert_eq!(all(&[&visit("I look."), &empty], "The reply"), "I look.\nThe reply\n");
    }

    #[test]
    fn a_terminal_does_not_get_control_characters_of_the_model() {
        assert_eq!(shown(false, &["\u{1b}[2J"], "\u{1b}[2J", AgentOutcome::Completed), "\\u{1b}[2J\n");
    }
}
