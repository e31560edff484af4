//! The events of a session as lines, without a terminal.
//!
//! Start at [`View`].

use std::{collections::VecDeque, path::PathBuf, time::Duration};

use ratatui::{
    style::{Color, Style},
    text::{Line, Span},
};
use superstep::{
    CheckpointId,
    agent::{AgentOutcome, Approval},
};
use superstep_session::{
    live::{
        AnsweredBy, CallStatus, CallView, Ended, Level, PlanItem, PlanStatus, Question, Queued, Said,
        SessionEvent, SettingsView, TurnEnd, UsageView,
    },
    text::{brief, changed_files, count, printable, printable_line},
};
use tokio::time::Instant;

use crate::chat::{
    plain::{UNFINISHED, problem},
    question::question,
    stream::Stream,
    wrap::wrap,
};

/// The rows of a text that stay live.
pub(super) const LIVE_ROWS: usize = 6;

/// Maximum number of characters of the running nodes in the status.
const MAX_NODES: usize = 30;

/// Maximum number of characters of a result in its row.
const MAX_SHOWN: usize = 100;

/// Minimum number of characters of the second column of a list.
const MIN_COLUMN: usize = 16;

const DIM: Style = Style::new().dim();
const GOOD: Style = Style::new().fg(Color::Green);
const BAD: Style = Style::new().fg(Color::Red);
const USER: Style = Style::new().fg(Color::Cyan).bold();

/// A conversation as it is shown.
#[derive(Default)]
pub(super) struct View {
    pub(super) width: usize,
    finished: Vec<Line<'static>>,
    pub(super) stream: Option<Stream>,
    /// The end of the model's reasoning.
    pub(super) thought: String,
    pub(super) calls: Vec<Running>,
    /// The questions that are open, the shown one first.
    pub(super) asked: VecDeque<Question>,
    pub(super) queue: Vec<Queued>,
    /// The messages that were sent into the turn, until the model has them.
    pub(super) steered: Vec<String>,
    pub(super) turn: Option<Turn>,
    pub(super) usage: Option<UsageView>,
    pub(super) settings: SettingsView,
    pub(super) thread: String,
    /// The newest checkpoint of the thread.
    pub(super) checkpoint: Option<CheckpointId>,
    /// The number of branches of the thread.
    pub(super) branches: usize,
    /// The folder of the tools.
    pub(super) folder: PathBuf,
    /// Shows the reasoning of the model and the whole results of tools.
    shows_all: bool,
    /// The last text of the model in this turn.
    said: String,
    /// The last text of the model.
    pub(super) reply: String,
    /// The last line is not empty, and a text begins after an empty one.
    needs_gap: bool,
}

/// The turn under way.
pub(super) struct Turn {
    pub(super) began: Instant,
    pub(super) steps: u32,
    pub(super) doing: &'static str,
    /// The nodes that run.
    nodes: String,
}

/// A call that runs.
pub(super) struct Running {
    key: String,
    pub(super) title: String,
    pub(super) began: Instant,
    /// The last line of its output.
    pub(super) output: String,
}

impl View {
    pub(super) fn new(width: usize, thread: String, settings: SettingsView) -> Self {
        Self { width, thread, settings, ..Self::default() }
    }

    /// Returns a stored conversation with everything that it has.
    pub(super) fn whole(events: Vec<SessionEvent>, width: usize) -> Vec<Line<'static>> {
        let mut view = Self { width: width.max(10), shows_all: true, ..Self::default() };
        events.into_iter().for_each(|event| view.event(event));
        view.end_stream();
        let mut rows = view.take_finished();
        rows.truncate(rows.iter().rposition(|row| row.width() > 0).map_or(0, |last| last + 1));
        rows
    }

    /// Returns the lines that are finished since the last call.
    pub(super) fn take_finished(&mut self) -> Vec<Line<'static>> {
        if let Some(stream) = &mut self.stream {
            let rows = stream.advance(self.width, LIVE_ROWS);
            self.finished.extend(rows);
        }
        std::mem::take(&mut self.finished)
    }

    /// Adds a note of the program; its lines are printable. The second column of a list stays one in its further rows.
    pub(super) fn note(&mut self, text: &str, style: Style) {
        self.end_stream();
        for line in text.split('\n') {
            let hang = " "
                .repeat(second_column(line).filter(|column| column + MIN_COLUMN <= self.width).unwrap_or(2));
            self.row(vec![Span::styled(line.to_owned(), style)], &hang);
        }
    }

    pub(super) fn dim(&mut self, text: &str) {
        self.note(text, DIM);
    }

    /// Adds lines that are not escaped.
    pub(super) fn lines(&mut self, lines: &[(anstyle::Style, String)]) {
        self.end_stream();
        for (style, line) in lines {
            self.row(vec![Span::styled(printable_line(line), converted(*style))], "    ");
        }
        self.gap();
    }

    pub(super) fn error(&mut self, text: &str) {
        self.note(&format!("error: {text}"), BAD);
    }

    /// Adds a line, wrapped.
    fn row(&mut self, spans: Vec<Span<'static>>, hang: &str) {
        self.finished.extend(wrap(&Line::from(spans), self.width, &[Span::raw(hang.to_owned())]));
        self.needs_gap = true;
    }

    fn gap(&mut self) {
        if std::mem::take(&mut self.needs_gap) {
            self.finished.push(Line::default());
        }
    }

    fn end_stream(&mut self) {
        if let Some(stream) = self.stream.take() {
            self.finished.extend(stream.end(self.width));
            self.needs_gap = false;
        }
    }

    fn doing(&mut self, what: &'static str) {
        if let Some(turn) = &mut self.turn {
            turn.doing = what;
        }
    }

    /// Shows the newest turns of a stored conversation.
    pub(super) fn replay(&mut self, events: Vec<SessionEvent>, turns: usize) {
        let is_user = |event: &SessionEvent| matches!(event, SessionEvent::Message(it) if it.is_user);
        let begins: Vec<_> = events.iter().enumerate().filter(|(_, event)| is_user(event)).collect();
        let earlier = begins.len().saturating_sub(turns);
        let skip = begins.get(earlier).map_or(0, |(at, _)| *at);
        if earlier > 0 {
            self.dim(&format!("{} earlier: Ctrl-T", count(earlier, "turn")));
        }
        for event in events.into_iter().skip(skip) {
            self.event(event);
        }
    }

    /// Shows an event.
    pub(super) fn event(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::TurnStarted { prompt, .. } => {
                self.end_stream();
                self.turn = Some(Turn {
                    began: Instant::now(),
                    steps: 0,
                    doing: "calling the model",
                    nodes: String::new(),
                });
                self.said.clear();
                if let Some(prompt) = prompt {
                    self.user(&prompt);
                }
            }
            SessionEvent::Piece { said: Said::Thought, piece, .. } => {
                self.doing("thinking");
                self.thought = tail(&std::mem::take(&mut self.thought), &piece);
            }
            SessionEvent::Piece { message, said: Said::Text, piece } => {
                self.doing("writing");
                self.thought.clear();
                if self.stream.as_ref().is_none_or(|stream| stream.message != message) {
                    self.end_stream();
                    self.gap();
                    self.stream = Some(Stream::new(&message));
                }
                if let Some(stream) = &mut self.stream {
                    stream.push(&piece);
                }
            }
            SessionEvent::Void { message } => {
                self.thought.clear();
                if let Some(stream) = self.stream.take_if(|stream| stream.message == message)
                    && stream.is_printed()
                {
                    self.note("(the text above was discarded)", DIM);
                }
            }
            SessionEvent::Message(message) if message.is_user => {
                let media = message.media.iter().map(|media| format!("\n{media}"));
                self.user(&(message.text + &media.collect::<String>()));
            }
            SessionEvent::Message(message) => {
                self.doing("working");
                self.thought.clear();
                if self.shows_all && !message.thought.is_empty() {
                    self.gap();
                    self.dim(&printable(&message.thought));
                    self.gap();
                }
                if self.stream.is_none()
                    && self.said != message.text
                    && !message.text.is_empty()
                    && self.turn.is_none()
                {
                    self.gap();
                    let mut stream = Stream::new(&message.id);
                    stream.push(&message.text);
                    self.stream = Some(stream);
                }
                self.end_stream();
                self.says(message.text);
            }
            SessionEvent::Call(call) => self.call(call),
            SessionEvent::Output { key, chunk, .. } => {
                if let Some(call) = self.calls.iter_mut().find(|call| call.key == key) {
                    call.output = tail(&call.output, &chunk);
                }
            }
            SessionEvent::Asked(question) => {
                self.asked.push_back(*question);
                if self.asked.len() == 1 {
                    self.show_question();
                }
            }
            SessionEvent::Answered { id, decision, by } => self.answered(&id, decision.as_ref(), by),
            SessionEvent::Plan(items) => self.plan(items),
            SessionEvent::Files(changes) => {
                for line in changed_files(&changes) {
                    self.dim(&format!("    {line}"));
                }
            }
            SessionEvent::Steered { text, .. } => {
                if let Some(at) = self.steered.iter().position(|sent| *sent == text) {
                    self.steered.remove(at);
                }
                self.user(&text);
            }
            SessionEvent::Queue(queue) => self.queue = queue,
            SessionEvent::Notice(notice) => {
                let indent = if notice.of_call { "    " } else { "" };
                let style = if notice.level == Level::Info { DIM } else { BAD };
                self.note(&format!("{indent}{}", notice.text), style);
            }
            SessionEvent::Usage(usage) => self.usage = Some(usage),
            SessionEvent::Settings(settings) => self.settings = settings,
            SessionEvent::Checkpoint { id, next } => {
                self.checkpoint = Some(id);
                if let Some(turn) = &mut self.turn {
                    turn.steps += 1;
                    let nodes: Vec<_> = next.iter().map(|node| printable_line(node.as_str())).collect();
                    turn.nodes = brief(&nodes.join(", "), MAX_NODES);
                }
            }
            SessionEvent::Discarded(nodes) => {
                let nodes: Vec<_> = nodes.iter().map(|node| printable_line(node.as_str())).collect();
                self.dim(&format!("discarded pending nodes: {}", nodes.join(", ")));
            }
            SessionEvent::Lagged { skipped } => self.error(&format!("{skipped} events are not shown")),
            SessionEvent::TurnEnded(end) => self.end(end),
            _ => {}
        }
    }

    fn says(&mut self, text: String) {
        if !text.is_empty() {
            self.reply.clone_from(&text);
        }
        self.said = text;
    }

    fn user(&mut self, text: &str) {
        self.end_stream();
        self.gap();
        for (at, line) in printable(text).split('\n').enumerate() {
            let sign = if at == 0 { "> " } else { "  " };
            self.row(vec![Span::styled(format!("{sign}{line}"), USER)], "  ");
        }
        self.gap();
    }

    fn call(&mut self, call: CallView) {
        let at = self.calls.iter().position(|running| running.key == call.key);
        match call.status {
            // A call that waits is in its question.
            CallStatus::Pending => {}
            CallStatus::Running => {
                self.end_stream();
                self.doing("running a tool");
                let (began, output) = (Instant::now(), String::new());
                let running = Running { key: call.key, title: call.title, began, output };
                match at {
                    Some(at) => self.calls[at] = running,
                    None => self.calls.push(running),
                }
            }
            CallStatus::Done | CallStatus::Failed => {
                self.end_stream();
                let took = at.map(|at| self.calls.remove(at).began.elapsed());
                self.doing("calling the model");
                let failed = call.status == CallStatus::Failed;
                let result = call.result.unwrap_or_default();
                let mut about = Vec::new();
                about.extend(took.map(time));
                match result.lines().count() {
                    0 => {}
                    1 => about.push(brief(&result, MAX_SHOWN)),
                    lines if failed => {
                        about.push(brief(&result, MAX_SHOWN));
                        about.push(format!("{lines} lines"));
                    }
                    lines => about.push(format!("{lines} lines, {}", size(result.len()))),
                }
                let (sign, style) = if failed { ("✗ ", BAD) } else { ("✓ ", GOOD) };
                let title = Span::raw(call.title);
                let about = Span::styled(format!("  {}", about.join(" · ")), DIM);
                self.row(vec![Span::styled(sign, style), title, about], "    ");
                if self.shows_all {
                    for line in printable(&result).lines() {
                        self.row(vec![Span::raw(format!("    {line}"))], "    ");
                    }
                    self.gap();
                }
            }
        }
    }

    /// Prints the question about the first call that waits.
    fn show_question(&mut self) {
        self.end_stream();
        self.doing("waits for you");
        let Some(call) = self.asked.front().map(|question| question.waiting.clone()) else { return };
        let (lines, hidden) = question(&call, &self.folder);
        for (at, mut row) in lines.into_iter().enumerate() {
            // A command may have lines that look like those of the program.
            row.insert(0, Span::raw(if at == 0 { "? " } else { "    " }));
            if at == 0 {
                row.iter_mut().for_each(|span| span.style = span.style.bold());
            }
            self.row(row, "      ");
        }
        if let Some(hidden) = hidden {
            self.dim(&format!("[{hidden}; `v` shows all of it]"));
        }
    }

    fn answered(&mut self, id: &str, decision: Option<&Approval>, by: AnsweredBy) {
        let was_first = self.asked.front().is_some_and(|question| question.id == id);
        self.asked.retain(|question| question.id != id);
        if by == AnsweredBy::Mode && decision == Some(&Approval::Approve) {
            // There was no question, and the call has its row.
            return;
        }
        let by = match by {
            AnsweredBy::Mode => " (by the mode)",
            AnsweredBy::Elsewhere => " in another process",
            AnsweredBy::Here => "",
        };
        let Some(decision) = decision else {
            self.note(&format!("  → decided{by}"), DIM);
            return;
        };
        let (text, style) = match decision {
            Approval::Approve => ("allowed".to_owned(), GOOD),
            Approval::Always => ("allowed, also later calls of this tool".to_owned(), GOOD),
            Approval::Deny(why) => (format!("denied: {}", printable_line(why)), BAD),
            Approval::Edit(args) => (format!("allowed with {}", printable_line(&args.to_string())), GOOD),
            Approval::Respond(text) => (format!("answered: {}", printable_line(text)), GOOD),
            Approval::Answer(values) => (format!("answered: {}", printable_line(&values.to_string())), GOOD),
            Approval::AlwaysFor(_) => ("allowed, also later calls like this".to_owned(), GOOD),
            Approval::Cancel => ("cancelled".to_owned(), BAD),
            _ => ("decided".to_owned(), DIM),
        };
        self.note(&format!("  → {text}{by}"), style);
        if was_first && !self.asked.is_empty() {
            self.show_question();
        } else if self.asked.is_empty() {
            self.doing("working");
        }
    }

    fn plan(&mut self, items: Vec<PlanItem>) {
        for PlanItem { text, status } in items {
            let (sign, style) = match status {
                PlanStatus::Done => ("[x] ", DIM),
                PlanStatus::InProgress => ("[>] ", Style::new().bold()),
                PlanStatus::Pending => ("[ ] ", Style::new()),
            };
            self.row(vec![Span::styled(format!("  {sign}{text}"), style)], "      ");
        }
    }

    fn end(&mut self, end: TurnEnd) {
        self.end_stream();
        (self.turn, self.thought) = (None, String::new());
        self.calls.clear();
        self.asked.clear();
        let Ended { outcome, state, .. } = match end.result {
            Ok(ended) => ended,
            Err(error) => return self.error(&printable(&error.message)),
        };
        let reply = &state.final_reply;
        if !outcome.is_unanswered()
            && outcome != AgentOutcome::Cancelled
            && !reply.is_empty()
            && self.said != *reply
        {
            self.gap();
            let mut stream = Stream::new("reply");
            stream.push(reply);
            self.finished.extend(stream.end(self.width));
            self.says(reply.clone());
        }
        if let Some(problem) = problem(outcome, &state) {
            self.error(&printable(&problem));
        }
        match outcome {
            AgentOutcome::Cancelled => self.dim(&format!("cancelled; {UNFINISHED}")),
            AgentOutcome::AwaitingApproval => self.dim(&format!("the call still waits; {UNFINISHED}")),
            AgentOutcome::LlmError | AgentOutcome::HookFailed => self.dim(UNFINISHED),
            AgentOutcome::Completed => {}
            AgentOutcome::Refused => self.dim("the model refused to answer"),
            AgentOutcome::ContentFilter => {
                self.dim("the provider's content filter withheld the answer, or the rest of it");
            }
            AgentOutcome::Guarded => {
                self.dim(&format!(
                    "a guardrail blocked the turn ({})",
                    printable(state.stop_reason.as_str())
                ));
            }
            other => self.dim(&format!("the turn ended: {}", other.as_str().replace('_', " "))),
        }
    }

    /// Returns the status row.
    pub(super) fn status(&self) -> String {
        let mut parts = Vec::new();
        match &self.turn {
            None => parts.push("ready".to_owned()),
            Some(turn) => {
                let spent = turn.began.elapsed();
                // Four a second.
                let frame = ['|', '/', '-', '\\'][usize::try_from(spent.as_millis() / 250 % 4).unwrap_or(0)];
                let nodes = if turn.nodes.is_empty() { String::new() } else { format!(" ({})", turn.nodes) };
                parts.push(format!("{frame} {}{nodes}", turn.doing));
                parts.push(format!("{} s", spent.as_secs()));
                parts.push(format!("step {}", turn.steps));
            }
        }
        if let Some(usage) = &self.usage {
            match (usage.used, usage.window) {
                (Some(used), Some(window)) => parts.push(format!("{}/{} tokens", short(used), short(window))),
                (Some(used), None) => parts.push(format!("{} tokens", short(used))),
                _ => {}
            }
            parts.extend(usage.cost.filter(|cost| cost.0 > 0).map(|cost| cost.to_string()));
            parts.extend(usage.budget.map(|percent| format!("{percent} % of the budget")));
        }
        parts.push(self.settings.mode.to_string());
        let at = self.checkpoint.map(|CheckpointId(id)| format!(" #{id}"));
        parts.push(format!("{}{}", self.thread, at.unwrap_or_default()));
        if self.branches > 1 {
            parts.push(format!("{} branches", self.branches));
        }
        parts.join(" · ")
    }
}

/// Returns the number of characters before the second column of a line, which follows two or more blanks.
fn second_column(line: &str) -> Option<usize> {
    let at = line.find("  ")?;
    let begin = line.len() - line[at..].trim_start_matches(' ').len();
    Some(line[..begin].chars().count()).filter(|_| begin < line.len())
}

/// Converts a style of the output of commands.
fn converted(style: anstyle::Style) -> Style {
    use anstyle::{AnsiColor, Color::Ansi, Effects};
    let colour = match style.get_fg_color() {
        Some(Ansi(AnsiColor::Red)) => BAD,
        Some(Ansi(AnsiColor::Green)) => GOOD,
        _ => Style::new(),
    };
    if style.get_effects().contains(Effects::BOLD) { colour.bold() } else { colour }
}

/// Returns the last line of a text to which a piece is added.
fn tail(text: &str, piece: &str) -> String {
    const MAX_TAIL: usize = 200;
    let all = format!("{text}{piece}");
    let last = all.trim_end_matches(['\n', '\r']).rsplit(['\n', '\r']).next().unwrap_or_default();
    let from = last.ceil_char_boundary(last.len().saturating_sub(MAX_TAIL));
    let ends = if all.ends_with('\n') { "\n" } else { "" };
    format!("{}{ends}", &last[from..])
}

pub(super) fn time(took: Duration) -> String {
    match took.as_secs() {
        0 => format!("{} ms", took.as_millis()),
        1..60 => format!("{:.1} s", took.as_secs_f64()),
        secs => format!("{} min {} s", secs / 60, secs % 60),
    }
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{}.{} kB", bytes / 1_000, bytes / 100 % 10),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10),
    }
}

fn short(tokens: u64) -> String {
    match tokens {
        0..1_000 => tokens.to_string(),
        1_000..100_000 => format!("{}.{}k", tokens / 1_000, tokens / 100 % 10),
        _ => format!("{}k", tokens / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use superstep_session::live::{MessageView, Notice};

    use super::*;
    use crate::session::sample::asking;

    fn view() -> View {
        View::new(60, "t".into(), SettingsView::default())
    }

    fn lines(view: &mut View) -> Vec<String> {
        view.take_finished().iter().map(Line::to_string).collect()
    }

    fn piece(text: &str) -> SessionEvent {
        SessionEvent::Piece { message: "m".into(), said: Said::Text, piece: text.into() }
    }

    fn started(prompt: &str) -> SessionEvent {
        SessionEvent::TurnStarted { turn: 1, prompt: Some(prompt.into()) }
    }

    fn call(status: CallStatus, result: Option<&str>) -> SessionEvent {
        let result = result.map(str::to_owned);
        let (key, tool, title) = ("c1".to_owned(), "shell".to_owned(), "shell ls".to_owned());
        SessionEvent::Call(CallView { key, tool, title, args: json!({}), status, result })
    }

    #[test]
    fn a_text_is_shown_once_while_it_arrives() {
        let mut view = view();
        view.event(started("hi\u{1b}[2J"));
        assert_eq!(lines(&mut view), ["> hi\\u{1b}[2J", ""]);
        view.event(piece("One.\n\nTw"));
        assert_eq!(lines(&mut view), ["One.", ""]);
        assert_eq!(view.stream.as_ref().unwrap().rest()[0].to_string(), "Tw");
        view.event(piece("o."));
        let (id, text) = ("m".to_owned(), "One.\n\nTwo.".to_owned());
        view.event(SessionEvent::Message(MessageView {
            id,
            text,
            is_user: false,
            thought: String::new(),
            media: Vec::new(),
            is_cut_off: false,
        }));
        assert_eq!(lines(&mut view), ["Two.", ""]);
        assert!(view.stream.is_none());
    }

    #[test]
    fn a_discarded_text_leaves_nothing_or_a_note() {
        let mut view = view();
        view.event(started("hi"));
        lines(&mut view);
        view.event(piece("never"));
        view.event(SessionEvent::Void { message: "m".into() });
        assert_eq!(lines(&mut view), Vec::<String>::new());
        view.event(piece("shown\n\nnever"));
        lines(&mut view);
        view.event(SessionEvent::Void { message: "m".into() });
        assert_eq!(lines(&mut view), ["(the text above was discarded)"]);
    }

    #[test]
    fn a_call_is_a_row_with_its_size() {
        let mut view = view();
        view.event(started("hi"));
        lines(&mut view);
        view.event(call(CallStatus::Running, None));
        view.event(SessionEvent::Output { key: "c1".into(), chunk: "a\nb".into(), truncated: false });
        assert_eq!(lines(&mut view), Vec::<String>::new());
        assert_eq!(view.calls[0].output, "b");
        view.event(call(CallStatus::Done, Some("a\nb\n")));
        let row = lines(&mut view).remove(0);
        assert!(row.starts_with("✓ shell ls  ") && row.ends_with(" · 2 lines, 4 B"), "{row}");
        view.event(call(CallStatus::Failed, Some("no such file")));
        assert_eq!(lines(&mut view), ["✗ shell ls  no such file"]);
    }

    #[test]
    fn a_question_is_shown_as_a_whole_and_the_next_one_after_its_answer() {
        let mut view = view();
        let lines_of = "\nline".repeat(500);
        for id in ["one", "two"] {
            let mut waiting = asking(&format!("run {id}{lines_of}"), json!({}));
            waiting.interrupt = id.into();
            let SessionEvent::Call(call) = call(CallStatus::Pending, None) else { unreachable!() };
            view.event(SessionEvent::Asked(Box::new(Question { id: id.into(), call, waiting })));
        }
        let shown = lines(&mut view);
        assert_eq!(shown[..2], ["? run one", "    line"]);
        assert!(shown.len() > 400);
        assert_eq!(
            shown.last().map(String::as_str),
            Some("[not shown in full: the question; `v` shows all of it]")
        );
        assert!(!shown.iter().any(|line| line.contains("run two")));
        let (decision, by) = (Approval::Deny("no\u{1b}".into()), AnsweredBy::Here);
        view.event(SessionEvent::Answered { id: "one".into(), decision: Some(decision), by });
        assert_eq!(lines(&mut view)[..2], ["  → denied: no\\u{1b}", "? run two"]);
    }

    #[test]
    fn the_second_column_of_a_list_stays_one_if_there_is_space() {
        for (width, shown) in [
            (30, ["/fork [N]   a copy of the", "            thread here", "other"]),
            (24, ["/fork [N]   a copy of", "  the thread here", "other"]),
        ] {
            let mut view = View::new(width, "t".into(), SettingsView::default());
            view.dim("/fork [N]   a copy of the thread here\nother");
            assert_eq!(lines(&mut view), shown);
        }
    }

    #[test]
    fn only_the_newest_turns_are_replayed() {
        let message = |text: &str, is_user| {
            let (id, text) = (text.to_owned(), text.to_owned());
            SessionEvent::Message(MessageView {
                id,
                text,
                is_user,
                thought: String::new(),
                media: Vec::new(),
                is_cut_off: false,
            })
        };
        let events = ["a", "b", "c"]
            .iter()
            .flat_map(|text| [message(text, true), message(&format!("{text}!"), false)]);
        let mut view = view();
        view.replay(events.collect(), 2);
        assert_eq!(
            lines(&mut view),
            ["1 turn earlier: Ctrl-T", "", "> b", "", "b!", "", "> c", "", "c!", ""]
        );
    }

    #[test]
    fn the_status_has_what_is_known() {
        let mut view = view();
        assert_eq!(view.status(), "ready · ask · t");
        view.event(started("hi"));
        let turn = superstep::llm::Usage::new(1, 1);
        view.event(SessionEvent::Usage(UsageView {
            used: Some(3_100),
            window: Some(128_000),
            budget: Some(41),
            turn,
            cost: None,
        }));
        let status = view.status();
        assert!(
            status.ends_with(
                "calling the model · 0 s · step 0 · 3.1k/128k tokens · 41 % of the budget · ask · t"
            ),
            "{status}"
        );
        let (id, next) = (CheckpointId(7), vec!["tools".into(), "x\u{1b}".into()]);
        view.event(SessionEvent::Checkpoint { id, next });
        let status = view.status();
        assert!(status.contains("calling the model (tools, x\\u{1b}) · 0 s · step 1"), "{status}");
        assert!(status.ends_with(" · t #7"), "{status}");
        view.branches = 2;
        assert!(view.status().ends_with(" · t #7 · 2 branches"), "{}", view.status());
        let notice = Notice { level: Level::Warning, code: "note", text: "careful".into(), of_call: false };
        view.event(SessionEvent::Notice(notice));
        assert_eq!(lines(&mut view).last().map(String::as_str), Some("careful"));
    }
}
