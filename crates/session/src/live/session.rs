//! A session: a thread and the turns that shells begin on it.
//!
//! Start at [`Session`].

use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use superstep::{
    Answers, CheckpointId, Checkpointer, History, OnExisting, OnUnfinished, Thread, ThreadId,
    agent::{AgentOutcome, AgentState, Approval, SteerError, state::Pins, steer},
    checkpoint::Source,
    llm::media::Media,
    mcp::McpServer,
    tools::Restored,
};
use tokio::sync::{mpsc, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument as _;

use crate::{
    config::{
        configuration::Configuration, defaults::Defaults, location::Location, memory::Memory,
        model::known_models, settings::Given,
    },
    error::{ErrorKind, SessionError},
    live::{
        calls::{CallView, Calls},
        event::{Level, Queued, SessionEvent, TurnId},
        log::{EventLog, Events, MAX_BYTES, MAX_RAW_BYTES, Since},
        mode::Mode,
        notices::Notice,
        sessions::{NewSession, title},
        transcript::transcript,
        turn,
    },
    text::{changed_files, printable_line},
    turn::{
        mcp,
        pins::{self, PinChange},
        revert::Revert,
        setup::steps::next_configuration,
        stored_graph::graph,
        waiting::Waiting,
    },
};

/// A message of the user, and how it begins a turn.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// The text.
    pub text: String,
    /// Images, audio and files; a model that does not accept them receives their descriptions.
    pub media: Vec<Media>,
    /// The checkpoint to continue from; `None` for the newest one.
    pub from: Option<CheckpointId>,
    /// The fate of an unfinished turn.
    pub on_unfinished: OnUnfinished,
    /// The reaction to a thread that exists.
    pub on_existing: OnExisting,
}

impl Prompt {
    /// Creates a prompt that replaces an unfinished turn.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            media: Vec::new(),
            from: None,
            on_unfinished: OnUnfinished::Discard,
            on_existing: OnExisting::Accept,
        }
    }
}

/// The effect of a prompt while a turn is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBusy {
    /// Fails.
    Refuse,
    /// Begins a turn after the present one, and those that wait.
    Queue,
    /// Cancels the present turn, and begins the next one.
    Replace,
}

/// A call that waits for a decision.
#[derive(Clone, Debug)]
pub struct Question {
    /// The id of the question, unique in the thread.
    pub id: String,
    /// The call.
    pub call: CallView,
    /// The call and its question, as stored.
    pub waiting: Waiting,
}

/// A change of the settings of the next turn.
#[derive(Clone, Debug)]
pub enum Change {
    /// The mode, which also decides the next question of a running turn.
    Mode(Mode),
    /// The model.
    Model(String),
    /// The preset; `None` for that of the folder or the thread.
    Preset(Option<String>),
}

/// The settings of the next turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingsView {
    /// The mode.
    pub mode: Mode,
    /// The model; `None` for that of the folder or the thread.
    pub model: Option<String>,
    /// The preset; `None` for that of the folder or the thread.
    pub preset: Option<String>,
    /// The model and the preset can be changed, which the agent of a program of one's own sets.
    pub is_configurable: bool,
}

/// The newest state of a thread.
#[derive(Clone, Debug)]
pub struct Head {
    /// The last turn has ended with an answer.
    pub is_finished: bool,
    /// The newest checkpoint.
    pub checkpoint: Option<CheckpointId>,
    /// The calls that wait for a decision.
    pub waiting: Vec<Waiting>,
}

/// A thread and the turns that shells begin on it, one at a time. A clone is another handle of the same session.
#[derive(Clone)]
pub struct Session(pub(super) Arc<Shared>);

pub(super) struct Shared {
    pub(super) location: Arc<Location>,
    pub(super) store: Arc<dyn Checkpointer>,
    pub(super) thread: ThreadId,
    /// The MCP servers, which outlive a turn.
    pub(super) servers: Arc<mcp::Pool>,
    pub(super) log: EventLog,
    pub(super) trust: bool,
    pub(super) is_quiet: bool,
    pub(super) raw_events: bool,
    /// A change also decides open questions.
    pub(super) mode: watch::Sender<Mode>,
    state: Mutex<State>,
    tasks: TaskTracker,
}

struct State {
    given: Given,
    running: Option<Running>,
    queue: VecDeque<Job>,
    last: TurnId,
    calls: Calls,
    is_closed: bool,
    /// The dream after the last turn.
    dreaming: Option<CancellationToken>,
    /// The flags that a command on the thread must repeat.
    repeated_flags: Vec<String>,
    /// The next turn begins with a summary of the conversation.
    compacts: bool,
}

/// The turn under way.
struct Running {
    cancel: CancellationToken,
    questions: Vec<Question>,
    /// The decisions of shells.
    answers: Option<mpsc::UnboundedSender<(String, Approval)>>,
}

/// A turn to run.
pub(super) struct Job {
    pub(super) turn: TurnId,
    pub(super) input: Input,
    pub(super) cancel: CancellationToken,
    /// The decisions of shells.
    pub(super) answers: mpsc::UnboundedReceiver<(String, Approval)>,
    sender: Option<mpsc::UnboundedSender<(String, Approval)>>,
}

/// The beginning of a turn.
pub(super) enum Input {
    Prompt(Prompt),
    Continue { from: Option<CheckpointId>, answers: Answers },
}

impl Input {
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Prompt(prompt) => Some(&prompt.text),
            Self::Continue { .. } => None,
        }
    }
}

impl Job {
    fn new(turn: TurnId, input: Input) -> Self {
        let (sender, answers) = mpsc::unbounded_channel();
        Self { turn, input, cancel: CancellationToken::new(), answers, sender: Some(sender) }
    }
}

impl Session {
    /// Creates the session of a thread, of which nothing has to be stored. `given` are the settings of its turns.
    pub fn new(
        location: Arc<Location>,
        store: Arc<dyn Checkpointer>,
        thread: ThreadId,
        given: Given,
        new: NewSession,
    ) -> Self {
        let NewSession { mode, servers, trust, is_quiet, raw_events } = new;
        let given = Given { servers, ..given };
        let state = State {
            given,
            running: None,
            queue: VecDeque::new(),
            last: 0,
            calls: Calls::default(),
            is_closed: false,
            dreaming: None,
            repeated_flags: Vec::new(),
            compacts: false,
        };
        Self(Arc::new(Shared {
            location,
            store,
            thread,
            servers: Arc::default(),
            log: EventLog::new(if raw_events { MAX_RAW_BYTES } else { MAX_BYTES }),
            trust,
            is_quiet,
            raw_events,
            mode: watch::Sender::new(mode),
            state: Mutex::new(state),
            tasks: TaskTracker::new(),
        }))
    }

    /// The thread.
    pub fn thread(&self) -> &ThreadId {
        &self.0.thread
    }

    /// The folder and the database.
    pub fn location(&self) -> &Arc<Location> {
        &self.0.location
    }

    /// Returns the events from `since` on.
    pub fn subscribe(&self, since: Since) -> Events {
        self.0.log.subscribe(since)
    }

    /// Begins a turn with a message, or does what `busy` says. A [`cancel`](Self::cancel) after it finds the turn. Must be called in
    /// a tokio runtime.
    ///
    /// # Errors
    /// A turn is under way and `busy` is [`Refuse`](OnBusy::Refuse), or the session is closed.
    pub fn prompt(&self, prompt: Prompt, busy: OnBusy) -> Result<TurnId, SessionError> {
        self.begin(Input::Prompt(prompt), busy)
    }

    /// Continues an unfinished turn, from a checkpoint or the newest one. Questions about calls that wait are
    /// repeated, except those that `answers` decides. A finished thread only ends again.
    ///
    /// # Errors
    /// A turn is under way, or the session is closed.
    pub fn proceed(&self, from: Option<CheckpointId>, answers: Answers) -> Result<TurnId, SessionError> {
        self.begin(Input::Continue { from, answers }, OnBusy::Refuse)
    }

    fn begin(&self, input: Input, busy: OnBusy) -> Result<TurnId, SessionError> {
        let mut state = self.0.state();
        if state.is_closed {
            return Err(SessionError::new(ErrorKind::Thread, "the session is closed"));
        }
        state.last += 1;
        let mut job = Job::new(state.last, input);
        let turn = job.turn;
        match (&state.running, busy) {
            (None, _) => {
                state.running = Some(Running::of(&mut job));
                drop(state);
                // The spans of a turn are parts of the trace that began it.
                self.0.tasks.spawn(turn::turns(self.0.clone(), job).in_current_span());
            }
            (Some(_), OnBusy::Refuse) => {
                state.last -= 1;
                let thread = &self.0.thread;
                return Err(SessionError::new(
                    ErrorKind::Thread,
                    format!(
                        "a turn of thread `{thread}` is under way; cancel it, or send the message into it"
                    ),
                ));
            }
            (Some(_), OnBusy::Queue) => {
                state.queue.push_back(job);
                self.0.log.push(SessionEvent::Queue(state.queued()));
            }
            (Some(running), OnBusy::Replace) => {
                running.cancel.cancel();
                state.queue.push_front(job);
                self.0.log.push(SessionEvent::Queue(state.queued()));
            }
        }
        Ok(turn)
    }

    /// Sends a message into the running turn, which has it before its next call of the model. Returns its number.
    ///
    /// # Errors
    /// If no turn is under way: begin one with the message.
    pub async fn steer(&self, text: &str) -> Result<u64, SessionError> {
        match steer(&self.0.graph_thread()?, text).await {
            Ok(number) => Ok(number),
            Err(SteerError::Run(error)) => Err(error.into()),
            Err(error) => Err(SessionError::caused(ErrorKind::Thread, &error)),
        }
    }

    /// Makes the next message begin with a summary of the conversation before it, which the thread stores with that turn.
    ///
    /// # Errors
    /// The thread has no turn yet.
    pub async fn compact(&self) -> Result<(), SessionError> {
        self.refuse_without_turn().await?;
        self.0.state().compacts = true;
        Ok(())
    }

    async fn refuse_without_turn(&self) -> Result<(), SessionError> {
        match self.last_turn().await? {
            Some(_) => Ok(()),
            None => {
                Err(SessionError::new(ErrorKind::Thread, "the thread has no turn yet: send a message first"))
            }
        }
    }

    /// Returns what the model must not forget.
    ///
    /// # Errors
    /// The state cannot be read.
    pub async fn pins(&self) -> Result<Pins, SessionError> {
        pins::pins(self.0.store.clone(), &self.0.thread).await
    }

    /// Changes what the model must not forget, and returns it.
    ///
    /// # Errors
    /// The thread has no turn, or one that is under way or unfinished; or the change is not possible.
    pub async fn change_pins(&self, change: PinChange) -> Result<Pins, SessionError> {
        if self.is_running() {
            return Err(SessionError::new(ErrorKind::Thread, "a turn is under way; pin after it"));
        }
        self.refuse_without_turn().await?;
        let Shared { location, store, thread, .. } = &*self.0;
        pins::change(location, store.clone(), thread, change).await
    }

    /// Returns the messages that wait for the end of the turn.
    pub fn queued(&self) -> Vec<Queued> {
        self.0.state().queued()
    }

    /// Removes a message that waits, and returns it.
    pub fn unqueue(&self, turn: TurnId) -> Option<Prompt> {
        let mut state = self.0.state();
        let at = state.queue.iter().position(|job| job.turn == turn)?;
        let job = state.queue.remove(at)?;
        self.0.log.push(SessionEvent::Queue(state.queued()));
        match job.input {
            Input::Prompt(prompt) => Some(prompt),
            Input::Continue { .. } => None,
        }
    }

    /// Returns whether a turn is under way.
    pub fn is_running(&self) -> bool {
        self.0.state().running.is_some()
    }

    /// Cancels the turn under way, or the dream after it. Returns whether there was a turn; the next turn is not affected.
    pub fn cancel(&self) -> bool {
        let state = self.0.state();
        state.running.iter().map(|running| &running.cancel).chain(&state.dreaming).for_each(|it| it.cancel());
        state.running.is_some()
    }

    /// Returns the calls that wait for a decision now.
    pub fn questions(&self) -> Vec<Question> {
        self.0.state().running.as_ref().map(|running| running.questions.clone()).unwrap_or_default()
    }

    /// Decides calls that wait. The turn continues when all are decided.
    ///
    /// # Errors
    /// A question is not open. The others are decided.
    pub fn answer(&self, answers: impl IntoIterator<Item = (String, Approval)>) -> Result<(), SessionError> {
        let state = self.0.state();
        let mut unknown = Vec::new();
        for (id, approval) in answers {
            let running = state.running.as_ref();
            match running.filter(|running| running.questions.iter().any(|question| question.id == id)) {
                Some(Running { answers: Some(answers), .. }) => drop(answers.send((id, approval))),
                _ => unknown.push(format!("`{id}`")),
            }
        }
        if unknown.is_empty() {
            return Ok(());
        }
        let what = format!("no call waits for a decision by this id: {}", unknown.join(", "));
        Err(SessionError::new(ErrorKind::Invalid, what))
    }

    /// Ends a turn whose calls wait, without a decision. Does nothing if none waits.
    pub fn leave(&self) {
        if let Some(running) = self.0.state().running.as_mut().filter(|running| !running.questions.is_empty())
        {
            running.answers = None;
        }
    }

    /// Returns the settings of the next turn.
    pub fn settings(&self) -> SettingsView {
        self.0.view(&self.0.state())
    }

    /// Changes the settings of the next turn. A mode is also recorded for later processes.
    ///
    /// # Errors
    /// The agent is that of a program of one's own, which has no other model or preset.
    pub fn set(&self, change: Change) -> Result<SettingsView, SessionError> {
        let mut state = self.0.state();
        if state.given.agent.is_some() && !matches!(change, Change::Mode(_)) {
            return Err(SessionError::usage("the agent of this program has one model and no presets"));
        }
        let mut mode = None;
        match change {
            Change::Mode(changed) => {
                self.0.mode.send_replace(changed);
                mode = Some(changed);
            }
            Change::Model(model) => state.given.settings.model = Some(model),
            Change::Preset(preset) => state.given.settings.config.preset = preset,
        }
        let view = self.0.view(&state);
        self.0.log.push(SessionEvent::Settings(view.clone()));
        drop(state);
        if let Some(mode) = mode {
            let decided = self.0.location.decided(&self.0.thread);
            if let Err(error) = decided.and_then(|decided| decided.record_mode(mode.name())) {
                self.0.log.push(SessionEvent::Notice(Notice::new(Level::Warning, "mode", error.message)));
            }
        }
        Ok(view)
    }

    pub(super) fn configure(&self, new: NewSession) {
        let NewSession { mode, servers, .. } = new;
        self.0.state().given.servers = servers;
        self.0.mode.send_replace(mode);
    }

    /// Returns whether the thread has no turn to continue, and its calls that wait; `None` before its first turn.
    ///
    /// # Errors
    /// The thread cannot be read.
    pub async fn head(&self) -> Result<Option<Head>, SessionError> {
        let head = self.0.graph_thread()?.state().await?;
        if !head.exists() {
            return Ok(None);
        }
        let asked = head.tasks.iter().flat_map(|task| &task.interrupts);
        let is_unanswered = head.values.outcome.is_some_and(AgentOutcome::is_unanswered);
        Ok(Some(Head {
            is_finished: head.next.is_empty() && !is_unanswered,
            checkpoint: head.checkpoint.as_ref().map(|meta| meta.id),
            waiting: Waiting::of(asked)?,
        }))
    }

    /// Formats a command on this thread, with the flags that are not stored.
    pub fn command(&self, command: &str, words: &[&str]) -> String {
        self.0.command(command, words)
    }

    /// Returns the flags that a command on this thread must repeat.
    pub fn repeated_flags(&self) -> Vec<String> {
        self.0.state().repeated_flags.clone()
    }

    /// Returns the state of the thread; `None` before its first turn.
    ///
    /// # Errors
    /// The thread cannot be read.
    pub async fn state(&self) -> Result<Option<Arc<AgentState>>, SessionError> {
        let state = self.0.graph_thread()?.state().await?;
        Ok(state.exists().then(|| Arc::new(state.values)))
    }

    /// Returns the stored conversation: messages, and each call once, with its result.
    ///
    /// # Errors
    /// The thread cannot be read.
    pub async fn transcript(&self) -> Result<Vec<SessionEvent>, SessionError> {
        let Some(stored) = self.state().await? else { return Ok(Vec::new()) };
        let mut calls = Calls::default();
        let events = transcript(stored.messages.iter(), &mut calls);
        let mut state = self.0.state();
        // The turn under way has them already.
        if state.running.is_none() {
            state.calls = calls;
        }
        Ok(events)
    }

    /// Returns the first line of the first message, if there is one, and the time of the newest checkpoint in UTC milliseconds; `None`
    /// before the first turn.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn heading(&self) -> Result<Option<(Option<String>, i64)>, SessionError> {
        let state = self.0.graph_thread()?.state().await?;
        Ok(state.checkpoint.map(|head| (title(&state.values), head.created_ms)))
    }

    /// Returns the checkpoint with the message that began the last turn; `None` before the first one.
    ///
    /// # Errors
    /// The thread cannot be read.
    pub async fn last_turn(&self) -> Result<Option<CheckpointId>, SessionError> {
        let newest = History { limit: Some(1), source: Some(Source::Input), ..History::default() };
        Ok(self.0.store.history(&self.0.thread, newest).await?.first().map(|meta| meta.id))
    }

    /// Returns the number of branches of the thread, of which the newest one continues; 0 before the first turn.
    ///
    /// # Errors
    /// The thread cannot be read.
    pub async fn branches(&self) -> Result<usize, SessionError> {
        let all = self.0.store.history(&self.0.thread, History::default()).await?;
        let parents: HashSet<_> = all.iter().filter_map(|meta| meta.parent).collect();
        Ok(all.iter().filter(|meta| !parents.contains(&meta.id)).count())
    }

    /// Returns the models that are known by name, that of the next turn first; none for the agent of a program of one's own. No
    /// server is called.
    ///
    /// # Errors
    /// The settings of the folder or the thread cannot be read.
    pub async fn models(&self) -> Result<Vec<String>, SessionError> {
        let Shared { location, store, thread, .. } = &*self.0;
        if !self.settings().is_configurable {
            return Ok(Vec::new());
        }
        let (stored, _) = location.remembered(&**store, thread, None).await?;
        known_models(&self.0.given(), &stored, &Defaults::load(location.cwd())?)
    }

    /// Returns the configuration of the next turn.
    ///
    /// # Errors
    /// It does not fit, or the thread cannot be read.
    pub async fn configuration(&self) -> Result<Configuration, SessionError> {
        let Shared { location, store, thread, .. } = &*self.0;
        next_configuration(location, &**store, thread, &self.0.given()).await
    }

    /// Returns the user of the memory in the next turn, if there is a memory.
    ///
    /// # Errors
    /// Those of [`configuration`](Self::configuration).
    pub async fn memory(&self) -> Result<Option<(Memory, String)>, SessionError> {
        let Shared { location, store, thread, .. } = &*self.0;
        let Some(memory) = self.configuration().await?.memory.on().cloned() else { return Ok(None) };
        let (stored, _) = location.remembered(&**store, thread, None).await?;
        let user = self.0.given().settings.user.or(stored.user);
        let user = user.unwrap_or_else(|| memory.user().to_owned());
        Ok(Some((memory, user)))
    }

    /// Returns the MCP servers that run.
    pub fn servers(&self) -> Vec<Arc<McpServer>> {
        self.0.servers.connected()
    }

    /// Restores the files that tools changed in the last turn. Returns a printable line for each file; none if nothing had to be done.
    ///
    /// # Errors
    /// There is no turn, or those of [`revert`](Self::revert).
    pub async fn undo(&self) -> Result<Vec<String>, SessionError> {
        let Some(begin) = self.last_turn().await? else {
            return Err(SessionError::new(ErrorKind::Thread, "the thread has no turn to undo"));
        };
        let restored = self.revert(begin, false).await?;
        let mut lines = changed_files(&restored.changes);
        let left = |(path, why): (&String, &String)| printable_line(&format!("not restored: {path}: {why}"));
        lines.extend(restored.left.iter().map(left));
        Ok(lines)
    }

    /// Restores the files that tools changed since a checkpoint.
    ///
    /// # Errors
    /// A turn is under way; there is nothing to restore; or, without `force`, the files have changed since.
    pub async fn revert(&self, to: CheckpointId, force: bool) -> Result<Restored, SessionError> {
        if self.is_running() {
            return Err(SessionError::new(
                ErrorKind::Thread,
                "a turn is under way, whose tools change files; cancel it first",
            ));
        }
        let Shared { location, store, thread, .. } = &*self.0;
        Revert::new(location, store.clone(), thread, force).await?.to(to).await
    }

    /// Cancels the turn, waits for its end, and shuts the MCP servers down.
    pub async fn close(&self) {
        self.0.stop();
        self.ended().await;
        self.0.servers.close().await;
        self.0.log.close();
    }

    /// Waits until no turn and no dream is under way.
    pub async fn ended(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
        self.0.tasks.reopen();
    }
}

impl State {
    fn queued(&self) -> Vec<Queued> {
        let queued = self
            .queue
            .iter()
            .map(|job| Queued { turn: job.turn, text: job.input.text().unwrap_or_default().to_owned() });
        queued.collect()
    }
}

impl Running {
    fn of(job: &mut Job) -> Self {
        Self { cancel: job.cancel.clone(), questions: Vec::new(), answers: job.sender.take() }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn graph_thread(&self) -> Result<Thread<AgentState>, SessionError> {
        Ok(graph()?.with_checkpointer(self.store.clone()).thread(&self.thread))
    }

    pub(super) fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    fn view(&self, state: &State) -> SettingsView {
        SettingsView {
            mode: *self.mode.borrow(),
            model: state.given.settings.model.clone(),
            preset: state.given.settings.config.preset.clone(),
            is_configurable: state.given.agent.is_none(),
        }
    }

    /// Returns what a turn that begins now is given.
    pub(super) fn given(&self) -> Given {
        let mut given = self.state().given.clone();
        given.hidden_tools = self.mode.borrow().hidden_tools();
        given
    }

    pub(super) fn command(&self, command: &str, words: &[&str]) -> String {
        let (flags, is_own) = {
            let state = self.state();
            (state.repeated_flags.clone(), state.given.agent.is_some())
        };
        // Programs of one's own continue their graphs by `resume`, and the turns of their agent by `chat`.
        let (command, flag) = if is_own { ("chat", Some("--thread")) } else { (command, None) };
        let words = flag.into_iter().chain(words.iter().copied()).chain(flags.iter().map(String::as_str));
        self.location.command(command, &words.collect::<Vec<_>>())
    }

    pub(super) fn repeat_flags(&self, flags: &[String]) {
        self.state().repeated_flags = flags.to_vec();
    }

    pub(super) fn dreams(&self, cancel: Option<CancellationToken>) {
        self.state().dreaming = cancel;
    }

    /// Returns whether the turn that begins has a summary first, once.
    pub(super) fn take_compacts(&self) -> bool {
        std::mem::take(&mut self.state().compacts)
    }

    pub(super) fn take_calls(&self) -> Calls {
        std::mem::take(&mut self.state().calls)
    }

    /// Opens questions, or closes all of them.
    pub(super) fn ask(&self, questions: Vec<Question>) {
        if let Some(running) = &mut self.state().running {
            running.questions = questions;
        }
    }

    /// Begins no further turn, and cancels that under way.
    fn stop(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.queue.clear();
        state.running.iter().map(|running| &running.cancel).chain(&state.dreaming).for_each(|it| it.cancel());
    }

    /// Ends a turn: `end` is its last event. Returns the next one.
    pub(super) fn end(&self, calls: Calls, end: SessionEvent) -> Option<Job> {
        let mut state = self.state();
        state.calls = calls;
        let mut next = state.queue.pop_front();
        state.running = next.as_mut().map(Running::of);
        self.log.push(end);
        if next.is_some() {
            self.log.push(SessionEvent::Queue(state.queued()));
        }
        next
    }
}
