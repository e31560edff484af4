//! The thread of a chat, and the commands on it.
//!
//! Start at [`Conversation`].

use std::{cell::RefCell, path::PathBuf, sync::Arc};

use anstyle::Style;
use superstep::{
    CheckpointId, Checkpointer, History, ThreadId,
    checkpoint::{Source, text::FILE_END},
    erased::values,
    llm::Role,
    memory::Dreams,
};
use superstep_session::{
    config::{
        notes::Note,
        settings::Given,
        tools::{MEMORY, SERVER},
    },
    error::{ErrorKind, SessionError},
    live::{Change, Mode, NewSession, Queued, Session, Sessions},
    suggest::closest,
    text::{brief, count, printable, printable_line},
    turn::{pins::PinChange, stored_graph::graph, tools::is_chosen},
};

use crate::{
    chat::{
        command::{Command, help},
        studio::Studio,
    },
    graphs::agent_graphs::agent_graphs,
    inspect::{
        differences::{ComparedState, differences, readable},
        drawing, memory, pins,
        report::{accepting, text_of},
        state, text_file,
        tools::{self, listed},
        turns::Turns,
    },
    output::table::local_time,
};

/// Maximum number of threads and turns in a list.
const MAX_LISTED: usize = 20;

/// Maximum number of lines of a value.
const MAX_LINES: usize = 200;

/// Maximum number of characters of a message in a list.
const MAX_TITLE: usize = 50;

/// The thread that a chat begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    New,
    /// The thread of this name, which may be new.
    Named(ThreadId),
    /// The newest one of the folder.
    Last,
}

/// The thread of a chat, which commands change.
pub(crate) struct Conversation {
    sessions: Sessions,
    folder: PathBuf,
    pub(super) session: Session,
    /// The thread was created by this chat: without a turn it is deleted again.
    is_fresh: bool,
    /// Begun by the first command for it.
    studio: Option<Studio>,
}

/// The effect of a command.
pub(super) enum Done {
    /// A text to show.
    Said(String),
    /// Lines to show, which are not escaped.
    Lines(Vec<(Style, String)>),
    /// The last reply is copied.
    Copies,
    /// The conversation has another thread now.
    Moved,
    /// The unfinished turn continues.
    Continues,
    /// The chat ends.
    Quit,
}

impl Conversation {
    /// Opens the thread of a chat.
    ///
    /// # Errors
    /// The folder has no thread to continue, or its database cannot be used.
    pub(crate) async fn open(
        sessions: Sessions,
        folder: PathBuf,
        which: Which,
        mode: Mode,
    ) -> Result<Self, SessionError> {
        let new = NewSession { mode, ..NewSession::default() };
        let is_fresh = which == Which::New;
        let session = match which {
            Which::New => sessions.create(&folder, new).await?,
            Which::Named(thread) => sessions.open_or_create(&folder, &thread, new).await?,
            Which::Last => {
                let last = sessions.newest(&folder).await?;
                sessions.open(&folder, &last, new).await?
            }
        };
        Ok(Self { sessions, folder, session, is_fresh, studio: None })
    }

    /// Ends the chat.
    pub(super) async fn close(self) {
        self.leave().await;
        self.sessions.close_all().await;
    }

    /// Deletes the thread if this chat created it and it has no turn.
    async fn leave(&self) {
        if self.is_fresh && matches!(self.session.state().await, Ok(None)) {
            let thread = self.session.thread().clone();
            // Otherwise it is listed as an empty thread.
            let _ = self.sessions.delete(&self.folder, &thread).await;
        }
    }

    /// Does a command.
    ///
    /// # Errors
    /// The error is about the command: the chat goes on.
    pub(super) async fn command(&mut self, command: Command) -> Result<Done, SessionError> {
        let said = |text: String| Ok(Done::Said(text));
        match command {
            Command::Help => said(help()),
            Command::Quit => Ok(Done::Quit),
            Command::Continue if self.is_unfinished().await? => Ok(Done::Continues),
            Command::Continue => said("there is no turn to continue".to_owned()),
            Command::Usage => said(self.usage().await?),
            Command::History => said(self.history().await?),
            Command::Undo => said(self.undo().await?),
            Command::Compact => {
                self.session.compact().await?;
                said("the next message begins with a summary of the conversation before it".to_owned())
            }
            Command::Pin(None) => said(pins::list(&self.session.pins().await?)),
            Command::Pin(Some(pin)) => {
                said(pins::list(&self.session.change_pins(PinChange::Add(pin)).await?))
            }
            Command::Unpin(name) => {
                said(pins::list(&self.session.change_pins(PinChange::Remove(vec![name])).await?))
            }
            Command::State(channel) => said(printable(&self.state(channel).await?)),
            Command::Diff(from) => Ok(Done::Lines(self.diff(from).await?)),
            Command::Tools => said(printable(&self.tools().await?)),
            Command::Memory(query) => said(printable(&self.memory(query).await?)),
            Command::Graph => said(printable(&self.graph().await?)),
            Command::Studio => said(self.studio().await?),
            Command::Replay => said(printable(&self.replay().await?)),
            Command::Copy => Ok(Done::Copies),
            Command::Export(file) => said(self.export(file).await?),
            Command::Threads(None) => said(self.threads().await?),
            Command::Mode(None) => said(modes(self.session.settings().mode)),
            Command::Mode(Some(mode)) => {
                self.session.set(Change::Mode(mode))?;
                said(format!("mode {mode}: {}", mode.description()))
            }
            Command::Model(None) => {
                let known = self.session.models().await?;
                said(known.iter().map(|name| printable_line(name)).collect::<Vec<_>>().join("\n"))
            }
            Command::Model(Some(name)) => {
                let text = format!("the next turn calls {}", printable_line(&name));
                self.session.set(Change::Model(name))?;
                said(text)
            }
            Command::Queue(None) => {
                let queued = self.session.queued();
                let line = |queued: &Queued| format!("{}  {}", queued.turn, brief(&queued.text, MAX_TITLE));
                match queued.is_empty() {
                    true => said("no message is queued".to_owned()),
                    false => said(queued.iter().map(line).collect::<Vec<_>>().join("\n")),
                }
            }
            Command::Queue(Some(turn)) => match self.session.unqueue(turn) {
                Some(prompt) => said(format!("removed: {}", brief(&prompt.text, MAX_TITLE))),
                None => Err(SessionError::usage(format!("no queued message has the number {turn}"))),
            },
            Command::New => {
                self.refuse_while_running()?;
                self.leave().await;
                self.session = self.sessions.create(&self.folder, self.settings()).await?;
                self.is_fresh = true;
                Ok(Done::Moved)
            }
            Command::Threads(Some(name)) => {
                self.refuse_while_running()?;
                let opened =
                    self.sessions.open(&self.folder, &ThreadId::from(name.as_str()), self.settings()).await?;
                self.leave().await;
                (self.session, self.is_fresh) = (opened, false);
                Ok(Done::Moved)
            }
            Command::Fork(at) => {
                self.refuse_while_running()?;
                self.session = self.sessions.fork(&self.session, at, self.settings()).await?;
                self.is_fresh = false;
                Ok(Done::Moved)
            }
        }
    }

    /// Returns whether the last turn is to be continued.
    pub(super) async fn is_unfinished(&self) -> Result<bool, SessionError> {
        Ok(self.session.head().await?.is_some_and(|head| !head.is_finished))
    }

    fn settings(&self) -> NewSession {
        NewSession { mode: self.session.settings().mode, ..NewSession::default() }
    }

    fn refuse_while_running(&self) -> Result<(), SessionError> {
        match self.session.is_running() {
            true => {
                Err(SessionError::new(ErrorKind::Thread, "a turn is under way; cancel it first, with Esc"))
            }
            false => Ok(()),
        }
    }

    async fn threads(&self) -> Result<String, SessionError> {
        let (listed, _) = self.sessions.list(Some(&self.folder), 0, MAX_LISTED).await?;
        let mut lines = Vec::new();
        for info in listed.iter().filter(|info| info.title.is_some()) {
            let sign = if info.thread == *self.session.thread() { "*" } else { " " };
            let title = brief(info.title.as_deref().unwrap_or_default(), MAX_TITLE);
            let thread = printable_line(info.thread.as_str());
            let waits = if info.is_waiting { "  (waits for a decision)" } else { "" };
            lines.push(format!("{sign} {}  {thread}  {title}{waits}", local_time(info.updated_ms)));
        }
        if lines.is_empty() {
            return Ok("the folder has no thread with a turn yet".to_owned());
        }
        lines.push("open one with `/threads THREAD`".to_owned());
        Ok(lines.join("\n"))
    }

    /// Lists the turns, the newest last, with the checkpoint before each: a fork there replaces its message.
    async fn history(&self) -> Result<String, SessionError> {
        let store = self.session.location().open()?;
        let thread = self.session.thread();
        let query = History { limit: Some(MAX_LISTED), source: Some(Source::Input), ..History::default() };
        let mut turns = store.history(thread, query).await?;
        turns.reverse();
        let stored = graph()?.with_checkpointer(store).thread(thread);
        // The message of a turn is the first one after those of its begin.
        let mut states = Vec::new();
        for turn in &turns {
            states.push(stored.at(turn.id).state().await?.values.messages);
        }
        states.push(stored.state().await?.values.messages);
        let mut lines = Vec::new();
        for (turn, states) in turns.iter().zip(states.windows(2)) {
            let asked = states[1].iter().skip(states[0].len()).find(|message| message.role == Role::User);
            let title = asked.map(|message| brief(message.content.trim(), MAX_TITLE)).unwrap_or_default();
            let before = turn.parent.map_or_else(|| "-".to_owned(), |CheckpointId(id)| format!("#{id}"));
            lines.push(format!("{before:>6}  {}  {title}", local_time(turn.created_ms)));
        }
        if lines.is_empty() {
            return Ok("the thread has no turn yet".to_owned());
        }
        lines.push("`/fork N` begins a copy of the thread before the message of checkpoint #N".to_owned());
        Ok(lines.join("\n"))
    }

    async fn undo(&self) -> Result<String, SessionError> {
        let lines = self.session.undo().await?;
        Ok(match lines.is_empty() {
            true => "the last turn changed no file".to_owned(),
            false => format!("restored:\n  {}", lines.join("\n  ")),
        })
    }

    /// Opens the database to read the thread.
    async fn stored(&self) -> Result<Arc<dyn Checkpointer>, SessionError> {
        let thread = self.session.thread();
        let store = self.session.location().find()?;
        match store {
            Some(store) if store.is_stored(thread).await? => Ok(store),
            _ => Err(SessionError::new(ErrorKind::Thread, "the thread has no turn yet")),
        }
    }

    async fn state(&self, channel: Option<String>) -> Result<String, SessionError> {
        let (store, thread) = (self.stored().await?, self.session.thread());
        let snapshot = state::load(store, thread, None).await?;
        let values = values(&snapshot.values)?;
        let names: Vec<&str> = values.keys().map(String::as_str).collect();
        let Some(channel) = channel else {
            let position = snapshot.checkpoint.as_ref().map(|meta| state::position(thread, meta, &snapshot));
            return Ok(format!("{}channels    {}", position.unwrap_or_default(), names.join(", ")));
        };
        let Some(value) = values.get(&channel) else {
            let near = closest(&channel, &names).map(|near| format!("; did you mean `{near}`?"));
            let near = near.unwrap_or_else(|| "; `/state` lists them".to_owned());
            return Err(SessionError::usage(format!("the state has no channel `{channel}`{near}")));
        };
        Ok(shortened(&readable(value), &self.session.command("state", &[thread.as_str(), "--json"])))
    }

    /// Returns the changes since a checkpoint, or since the last turn began.
    async fn diff(&self, from: Option<CheckpointId>) -> Result<Vec<(Style, String)>, SessionError> {
        let (store, thread) = (self.stored().await?, self.session.thread());
        let from = match from {
            Some(from) => Some(from),
            None => match self.session.last_turn().await? {
                Some(begin) => store.load(thread, Some(begin)).await?.and_then(|loaded| loaded.meta.parent),
                None => None,
            },
        };
        let Some(from) = from else {
            let all = "this is the first turn, so that everything is new: `/state` shows it";
            return Ok(vec![(Style::new(), all.to_owned())]);
        };
        let (location, graphs) = (self.session.location(), agent_graphs(self.sessions.program())?);
        let before = ComparedState::load(location, &graphs, thread.as_str(), Some(from)).await?;
        let now = ComparedState::load(location, &graphs, thread.as_str(), None).await?;
        Ok(differences(&before, &now))
    }

    async fn tools(&self) -> Result<String, SessionError> {
        let configuration = self.session.configuration().await?;
        let servers = self.session.servers();
        let mut tools = listed(self.session.location().cwd(), &configuration, &servers)?;
        let is_own = |group: &str| group != MEMORY && !group.starts_with(SERVER);
        tools.retain(|tool| !is_own(&tool.group) || is_chosen(&tool.tool.spec().name, &configuration));
        let names = configuration.mcp.keys().filter(|name| !servers.iter().any(|it| it.name() == **name));
        let names: Vec<_> = names.map(|name| printable_line(name)).collect();
        let note = match names.is_empty() {
            true => String::new(),
            false => format!("the next turn starts the MCP servers {}\n", names.join(", ")),
        };
        Ok(tools::table(&tools) + &note)
    }

    async fn memory(&self, query: Option<String>) -> Result<String, SessionError> {
        let Some((memory, user)) = self.session.memory().await? else {
            return Ok("the thread has no long-term memory".to_owned());
        };
        let memory = memory.open_read_only(self.session.location().cwd())?;
        let entries = match query {
            None => memory.list(&user, MAX_LISTED).await,
            Some(query) => memory.search(&query, &user, MAX_LISTED).await,
        };
        Ok(memory::table(&entries.map_err(|error| SessionError::caused(ErrorKind::Database, &error))?))
    }

    async fn graph(&self) -> Result<String, SessionError> {
        let (store, location) = (self.stored().await?, self.session.location());
        let graphs = agent_graphs(self.sessions.program())?;
        let found = graphs.find_in(location, store, self.session.thread(), None).await?;
        Ok(drawing::of_thread(location, found).await?.text())
    }

    /// Returns the address of the thread in the studio, which ends with the chat.
    async fn studio(&mut self) -> Result<String, SessionError> {
        let (store, thread) = (self.stored().await?, self.session.thread().clone());
        if self.studio.is_none() {
            let graphs = agent_graphs(self.sessions.program())?;
            self.studio = Some(Studio::start(store, &graphs).await?);
        }
        Ok(self.studio.iter().map(|studio| studio.address(&thread)).collect())
    }

    async fn replay(&self) -> Result<String, SessionError> {
        self.refuse_while_running()?;
        let (store, location) = (self.stored().await?, self.session.location());
        let notes = RefCell::new(String::new());
        let show =
            |new: Vec<Note>| new.iter().for_each(|note| *notes.borrow_mut() += &format!("{}\n", note.text));
        let turns = Turns {
            location,
            given: &Given::default(),
            from: None,
            to: None,
            live_model: false,
            live_tools: false,
            current_tools: false,
            servers: Arc::default(),
            show: &show,
        };
        let thread = self.session.thread();
        let (replayed, _) = turns.run(store, thread).await?;
        Ok(notes.take() + &text_of(&replayed, &accepting(location, None, thread.as_str())))
    }

    async fn export(&self, file: Option<String>) -> Result<String, SessionError> {
        let (store, thread) = (self.stored().await?, self.session.thread());
        let file = file.unwrap_or_else(|| format!("{}{FILE_END}", thread.as_str().replace(['/', '\\'], "-")));
        text_file::write(&*store, thread, &self.session.location().cwd().join(&file)).await?;
        Ok(format!("the thread is in {}", printable_line(&file)))
    }

    async fn usage(&self) -> Result<String, SessionError> {
        let settings = self.session.settings();
        let model = match settings.model {
            Some(model) => Some(model),
            None => self.session.models().await?.into_iter().next(),
        };
        let model = model.as_deref().map_or_else(|| "chosen by the first turn".to_owned(), printable_line);
        let mut text = format!(
            "thread    {}\nmodel     {model}\nmode      {}",
            printable_line(self.session.thread().as_str()),
            settings.mode
        );
        if let Some(state) = self.session.state().await? {
            let (read, written) = (state.usage.input_tokens, state.usage.output_tokens);
            text.push_str(&format!(
                "\nmessages  {}\nrequest   {}\nlast turn {} in, {written} out",
                state.messages.len(),
                count(state.request_size.tokens, "token"),
                count(read, "token"),
            ));
            if let Some(cost) = state.cost().filter(|cost| cost.nano_dollars.0 > 0) {
                text.push_str(&format!(", about {}", cost.nano_dollars));
            }
        }
        Ok(text)
    }

    /// Returns what a new user of the folder should know about its other threads; `None` if there are none, or they cannot be read.
    pub(super) async fn others(&self) -> Option<String> {
        let store = self.session.location().find().ok()??;
        let is_other = |name: &ThreadId| name != self.session.thread() && !Dreams::is_thread(name);
        let count_of = store.names().await.ok()?.iter().filter(|name| is_other(name)).count();
        if count_of == 0 {
            return None;
        }
        let threads = format!("{} here", count(count_of, "thread"));
        let (newest, _) = self.sessions.list(Some(&self.folder), 0, MAX_LISTED).await.unwrap_or_default();
        let mut waiting = newest.iter().filter(|info| info.is_waiting).map(|info| &info.thread);
        Some(match (waiting.next(), waiting.count()) {
            (None, _) => format!("{threads}: /threads, or --last"),
            (Some(one), 0) => format!("{threads}, `{}` waits: /threads", printable_line(one.as_str())),
            (Some(_), more) => format!("{threads}, {} wait: /threads", more + 1),
        })
    }
}

/// Returns the first lines of a text. `all` is the command that prints all of it.
fn shortened(text: &str, all: &str) -> String {
    let lines = text.lines().count();
    if lines <= MAX_LINES {
        return text.trim_end().to_owned();
    }
    let first: Vec<_> = text.lines().take(MAX_LINES).collect();
    format!("{}\n… {} more; all of it: {all}", first.join("\n"), count(lines - MAX_LINES, "line"))
}

fn modes(present: Mode) -> String {
    let line = |mode: Mode| {
        let sign = if mode == present { "*" } else { " " };
        format!("{sign} {:<14}{}", mode.name(), mode.description())
    };
    Mode::ALL.map(line).join("\n")
}
