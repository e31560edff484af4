//! The chat on a terminal.
//!
//! Start at [`app`].

use std::{
    env,
    io::{self, BufWriter, Stdout, Write as _},
    process::Command as Process,
    time::Duration,
};

use ratatui::crossterm::{
    cursor::Show,
    event::{DisableBracketedPaste, EnableBracketedPaste, Event, KeyEvent, KeyEventKind},
    execute, terminal,
};
use superstep::{Answers, agent::Approval};
use superstep_session::{
    config::encryption::{KEY, OLD_KEY},
    error::SessionError,
    live::{Events, OnBusy, Prompt, SessionEvent, Since},
    text::{count, printable, printable_line},
};
use tokio::{
    task::spawn_blocking,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use crate::{
    chat::{
        command::Command,
        composer::{Action, Composer},
        conversation::{Conversation, Done},
        keys::Keys,
        layout::layout,
        pager::Pager,
        plain::UNFINISHED,
        screen::Screen,
        view::View,
    },
    output::{exit::Exit, note::print_note},
    session::{
        approve::{Typed, page, read_decision},
        form, signals,
    },
};

/// The time between two frames.
const FRAME: Duration = Duration::from_millis(33);

/// The time between two frames in which only the clock changes.
const TICK: Duration = Duration::from_millis(250);

/// Maximum number of events between two frames.
const MAX_EVENTS: usize = 2_000;

/// The turns of a continued thread that are shown.
const SHOWN_TURNS: usize = 2;

/// Runs a chat on the terminal until the user ends it.
///
/// # Errors
/// The terminal cannot be used, or the thread cannot be read.
pub(crate) async fn app(chat: Conversation, first: Option<String>) -> Result<Exit, SessionError> {
    let unusable = |cause: io::Error| {
        SessionError::usage(format!("the terminal cannot be used: {cause}; `--plain` needs less of it"))
    };
    let raw = Raw::begin().map_err(unusable)?;
    let has_colours = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let composer = Composer::new(chat.session.location().cwd());
    let mut app = App {
        events: chat.session.subscribe(Since::Now),
        chat,
        composer,
        view: View::default(),
        screen: Screen::new(BufWriter::new(io::stdout()), has_colours),
        keys: Keys::start(),
        size: (0, 0),
        pager: None,
        draft: None,
        is_drawn: false,
    };
    let ended = app.run(first).await;
    if app.pager.take().is_some() {
        // What is below cannot be shown if this fails.
        let _ = app.screen.end_page();
    }
    let cleared = app.screen.clear();
    drop(raw);
    let App { chat, .. } = app;
    let thread = chat.session.thread().clone();
    let has_turn = matches!(chat.session.state().await, Ok(Some(_)));
    let go_on = chat.session.location().command("chat", &["--thread", thread.as_str()]);
    chat.close().await;
    let exit = ended?.map_err(unusable)?;
    if has_turn {
        print_note(&format!("continue with: {go_on}"));
    }
    cleared.map_err(unusable).map(|()| exit)
}

/// The terminal in raw mode, until this is dropped.
struct Raw;

impl Raw {
    fn begin() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        let raw = Self;
        execute!(io::stdout(), EnableBracketedPaste)?;
        Ok(raw)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that is gone needs no mode.
        let _ = execute!(io::stdout(), DisableBracketedPaste, Show);
        let _ = terminal::disable_raw_mode();
    }
}

struct App {
    chat: Conversation,
    events: Events,
    view: View,
    composer: Composer,
    screen: Screen<BufWriter<Stdout>>,
    keys: Keys,
    /// The columns and rows of the terminal.
    size: (u16, u16),
    /// The whole conversation, while it is shown.
    pager: Option<Pager>,
    /// The draft while a question is open.
    draft: Option<String>,
    is_drawn: bool,
}

/// The end of the loop, or an error of the terminal.
type Ended = Result<io::Result<Exit>, SessionError>;

impl App {
    async fn run(&mut self, first: Option<String>) -> Ended {
        let (stop, _watch) = signals::watching();
        self.size = terminal::size().unwrap_or((80, 24));
        self.view.width = self.width();
        self.opened().await?;
        if let Some(text) = first {
            self.composer.remember(&text);
            self.send(text).await;
        }
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut frame = Instant::now();
        loop {
            let next = tokio::select! {
                () = stop.cancelled() => return Ok(Ok(Exit::Interrupted)),
                () = sleep_until(frame), if !self.is_drawn => {
                    if let Err(error) = self.draw() {
                        return Ok(Err(error));
                    }
                    frame = Instant::now() + FRAME;
                    continue;
                }
                _ = ticks.tick(), if self.view.turn.is_some() => Next::Frame,
                event = self.keys.next() => Next::Key(event),
                event = self.events.next() => Next::Event(event.map(|(_, event)| event)),
            };
            self.is_drawn = false;
            match next {
                Next::Frame => {}
                // The terminal is gone.
                Next::Key(None) => return Ok(Ok(Exit::Interrupted)),
                Next::Key(Some(Event::Paste(_))) if self.pager.is_some() => {}
                Next::Key(Some(Event::Paste(text))) => self.composer.paste(&text),
                Next::Key(Some(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                    match self.key(key).await {
                        Ok(true) => return Ok(Ok(Exit::Ok)),
                        Ok(false) => {}
                        Err(error) => return Ok(Err(error)),
                    }
                }
                Next::Key(Some(_)) => {}
                Next::Event(event) => {
                    let mut event = event;
                    for _ in 0..MAX_EVENTS {
                        let Some(shown) = event else { break };
                        self.event(shown);
                        event = self.events.try_next().map(|(_, event)| event);
                    }
                    if let Some(shown) = event {
                        self.event(shown);
                    }
                }
            }
        }
    }

    /// The columns of a line: in the last one the cursor would already be on the next row.
    fn width(&self) -> usize {
        usize::from(self.size.0).saturating_sub(1).max(10)
    }

    fn draw(&mut self) -> io::Result<()> {
        let size = terminal::size().unwrap_or(self.size);
        if let Some(pager) = &mut self.pager {
            self.is_drawn = true;
            pager.resize((usize::from(size.0), usize::from(size.1)));
            return self.screen.page(&pager.rows());
        }
        if size != self.size {
            self.screen.resized(usize::from(size.0))?;
            self.size = size;
            self.view.width = self.width();
        }
        let finished = self.view.take_finished();
        let (live, cursor) = layout(&self.view, &self.composer, self.width(), usize::from(self.size.1));
        self.is_drawn = true;
        self.screen.draw(&finished, &live, cursor)
    }

    /// Shows the thread that was opened.
    async fn opened(&mut self) -> Result<(), SessionError> {
        let session = &self.chat.session;
        self.events = session.subscribe(Since::Now);
        self.view = View::new(self.view.width, printable(session.thread().as_str()), session.settings());
        self.view.folder = session.location().cwd().to_owned();
        self.view.checkpoint = session.head().await?.and_then(|head| head.checkpoint);
        self.view.branches = session.branches().await?;
        let stored = session.transcript().await?;
        for event in &stored {
            if let SessionEvent::Message(message) = event
                && message.is_user
            {
                self.composer.remember(&message.text);
            }
        }
        let is_unfinished = self.chat.is_unfinished().await?;
        if stored.is_empty() {
            let folder = printable(&session.location().cwd().display().to_string());
            // A model that the first turn chooses is not known yet.
            let model = session.models().await?.first().map(|model| format!(" · {}", printable_line(model)));
            self.view.dim(&format!("superstep in {folder}{} · /help", model.unwrap_or_default()));
            self.chat.others().await.iter().for_each(|others| self.view.dim(others));
        }
        self.view.replay(stored, SHOWN_TURNS);
        if is_unfinished {
            self.view.dim(UNFINISHED);
        }
        Ok(())
    }

    fn event(&mut self, event: SessionEvent) {
        self.view.event(event);
        match (self.view.asked.is_empty(), self.draft.is_some()) {
            (false, false) => {
                // What was typed before the question is no answer to it.
                self.draft = Some(self.composer.draft());
                self.composer.clear();
                self.keys.discard();
            }
            (true, true) => {
                let draft = self.draft.take().unwrap_or_default();
                if self.composer.draft().is_empty() {
                    self.composer.set(&draft);
                }
            }
            _ => {}
        }
    }

    /// Does what a key says. Returns whether the chat ends.
    async fn key(&mut self, key: KeyEvent) -> io::Result<bool> {
        if let Some(pager) = &mut self.pager {
            if pager.key(key) {
                self.pager = None;
                self.screen.end_page()?;
            }
            return Ok(false);
        }
        match self.composer.key(key) {
            Action::Edited => {}
            Action::Transcript => self.page().await?,
            Action::Quit => return Ok(true),
            Action::Cancel => self.cancel(),
            Action::Interrupt if self.chat.session.is_running() => self.cancel(),
            Action::Interrupt => return Ok(true),
            Action::Edit => self.edit().await?,
            Action::TakeBack => self.take_back(),
            Action::Send(text) | Action::Queue(text) if !self.view.asked.is_empty() => {
                self.answer(&text).await?;
            }
            Action::Send(text) => return Ok(self.send(text).await),
            Action::Queue(text) => self.queue(text),
        }
        Ok(false)
    }

    /// Shows the whole conversation, as far as it is stored.
    async fn page(&mut self) -> io::Result<()> {
        match self.chat.session.transcript().await {
            Ok(stored) => {
                self.screen.begin_page()?;
                self.pager = Some(Pager::new(stored, (usize::from(self.size.0), usize::from(self.size.1))));
            }
            Err(error) => self.failed(&error),
        }
        Ok(())
    }

    /// Cancels the turn. One that waits for an answer ends, and still waits.
    fn cancel(&mut self) {
        if !self.view.asked.is_empty() {
            return self.chat.session.leave();
        }
        if self.chat.session.cancel()
            && let Some(turn) = &mut self.view.turn
        {
            turn.doing = "cancelling";
        }
    }

    /// Begins a turn with a message, sends it into the running one, or does its command. Returns whether the chat ends.
    async fn send(&mut self, text: String) -> bool {
        match Command::parse(&text) {
            Some(Err(problem)) => self.view.error(&printable(&problem)),
            Some(Ok(command)) => match self.chat.command(command).await {
                Ok(Done::Quit) => return true,
                Ok(Done::Said(text)) => {
                    self.view.dim(&text);
                    self.view.dim("");
                }
                Ok(Done::Lines(lines)) => self.view.lines(&lines),
                Ok(Done::Copies) => self.copy(),
                Ok(Done::Moved) => {
                    if let Err(error) = self.opened().await {
                        self.failed(&error);
                    }
                }
                Ok(Done::Continues) => {
                    if let Err(error) = self.chat.session.proceed(None, Answers::new()) {
                        self.failed(&error);
                    }
                }
                Err(error) => self.failed(&error),
            },
            None if self.chat.session.is_running() && self.chat.session.steer(&text).await.is_ok() => {
                self.view.steered.push(text);
            }
            // A turn that has just ended is no error.
            None => self.queue(text),
        }
        false
    }

    fn queue(&mut self, text: String) {
        if let Err(error) = self.chat.session.prompt(Prompt::new(text), OnBusy::Queue) {
            self.failed(&error);
        }
    }

    /// Copies the last reply.
    fn copy(&mut self) {
        if self.view.reply.is_empty() {
            return self.view.error("the thread has no reply yet");
        }
        match self.screen.copy(&self.view.reply) {
            Ok(()) => {
                let length = count(self.view.reply.chars().count(), "character");
                self.view.dim(&format!("sent {length} to the clipboard of the terminal"));
            }
            Err(error) => self.view.error(&error.to_string()),
        }
    }

    fn failed(&mut self, error: &SessionError) {
        self.view.error(&printable(&error.message));
    }

    fn take_back(&mut self) {
        let session = &self.chat.session;
        if let Some(last) = session.queued().last()
            && let Some(prompt) = session.unqueue(last.turn)
        {
            let draft = self.composer.draft();
            let gap = if draft.is_empty() { "" } else { "\n" };
            self.composer.set(&format!("{}{gap}{draft}", prompt.text));
        }
    }

    /// Does what the user answers to the shown question.
    async fn answer(&mut self, text: &str) -> io::Result<()> {
        let Some(question) = self.view.asked.front().cloned() else { return Ok(()) };
        let decided = match read_decision(&question.waiting, text) {
            Typed::Decision(approval) => Some(approval),
            Typed::Unknown => {
                self.view.dim(&format!("`{}` is not an answer", printable(text)));
                None
            }
            Typed::Problem(problem) => {
                self.view.error(&printable(&problem));
                None
            }
            Typed::View => {
                let whole = question.waiting.whole();
                self.outside(move || page(&whole)).await??;
                None
            }
            Typed::Fill(form) => {
                let form = form.clone();
                let fill = move || form::fill(&form, &mut io::stdin().lock(), &mut anstream::stderr());
                self.outside(fill).await??.map(Approval::Answer)
            }
        };
        if let Some(approval) = decided
            && let Err(error) = self.chat.session.answer([(question.id, approval)])
        {
            self.failed(&error);
        }
        Ok(())
    }

    /// Edits the draft in the user's editor.
    async fn edit(&mut self) -> io::Result<()> {
        let mut file = tempfile::Builder::new().prefix("superstep-").suffix(".md").tempfile()?;
        file.write_all(self.composer.draft().as_bytes())?;
        let path = file.path().to_owned();
        let edited = self
            .outside(move || {
                let named = |name: &str| env::var(name).ok().filter(|value| !value.trim().is_empty());
                let editor = named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_else(|| "vi".to_owned());
                let script = format!("{editor} \"$1\"");
                let mut command = Process::new("sh");
                command.args(["-c", &script, "sh"]).arg(&path).env_remove(KEY).env_remove(OLD_KEY);
                let status = command.status()?;
                Ok::<_, io::Error>((status.success(), std::fs::read_to_string(&path)?))
            })
            .await?;
        match edited {
            Ok((true, text)) => self.composer.set(text.trim_end()),
            Ok((false, _)) => self.view.error("the editor failed, and the draft is unchanged"),
            Err(error) => self.view.error(&format!("the draft cannot be edited: {error}")),
        }
        Ok(())
    }

    /// Leaves the terminal to another program, or to a question that is answered by lines.
    async fn outside<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let finished = self.view.take_finished();
        self.screen.draw(&finished, &[], None)?;
        self.screen.clear()?;
        self.keys.pause();
        execute!(io::stdout(), DisableBracketedPaste)?;
        terminal::disable_raw_mode()?;
        let done = spawn_blocking(work).await;
        terminal::enable_raw_mode()?;
        execute!(io::stdout(), EnableBracketedPaste)?;
        self.keys.proceed();
        self.is_drawn = false;
        done.map_err(io::Error::other)
    }
}

/// The next step of the loop.
enum Next {
    Frame,
    Key(Option<Event>),
    Event(Option<SessionEvent>),
}
