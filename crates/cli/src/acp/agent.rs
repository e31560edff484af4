//! The sessions of a client.
//!
//! Start at [`Agent`].

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use superstep::{Answers, CheckpointId, ThreadId, llm::media::Media};
use superstep_acp::{
    Client, Handler, Prompt as ClientPrompt,
    stream::{PromptCommand, PromptContent, available_commands},
    wire::{
        Chunk, ConfigChoice, ConfigOption, Implementation, InitializeRequest, InitializeResponse,
        ListSessionsRequest, ListSessionsResponse, NewSessionRequest, NewSessionResponse, OpenSessionRequest,
        PromptResponse, RpcError, SessionId, SessionInfo, SessionState, SessionUpdate,
        SetConfigOptionRequest, SetModeRequest, SteerOutcome, StopReason,
    },
};
use superstep_session::{
    error::SessionError,
    live::{Change, Mode, NewSession, OnBusy, Prompt, Session, SessionEvent, Sessions, Since},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::{
    acp::{
        open::Open,
        options::{change, state},
        servers::configs,
        turn::{Turn, open_error, replayed, response, rpc_error},
    },
    output::log,
};

/// The number of sessions of a page.
const PAGE: usize = 50;

/// The time after the response of a new session in which clients drop updates.
const SETTLES: Duration = Duration::from_millis(150);

/// The sessions of a client. A clone is another handle.
#[derive(Clone)]
pub(crate) struct Agent(Arc<Shared>);

struct Shared {
    client: Client,
    sessions: Sessions,
    /// The program.
    info: Implementation,
    /// The mode of new sessions.
    mode: Mode,
    open: Mutex<BTreeMap<SessionId, Arc<Open>>>,
}

impl Agent {
    pub(crate) fn new(client: Client, sessions: Sessions, info: Implementation, mode: Mode) -> Self {
        Self(Arc::new(Shared { client, sessions, info, mode, open: Mutex::default() }))
    }

    fn open(&self, id: &SessionId) -> Result<Arc<Open>, RpcError> {
        self.all().get(id).cloned().ok_or_else(|| RpcError::unknown_session(id.as_str()))
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<SessionId, Arc<Open>>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a session, whose client receives its commands a moment later.
    async fn opened(&self, session: Session) -> Arc<Open> {
        let id = SessionId::from(session.thread().as_str());
        // Without them the option has only the present model.
        let models = session.models().await.unwrap_or_default();
        let open = Arc::new(Open::new(id.clone(), session, models));
        self.all().insert(id.clone(), open.clone());
        let agent = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(SETTLES).await;
            agent.send_commands(&id).await;
        });
        open
    }

    async fn send_commands(&self, id: &SessionId) {
        let available_commands = available_commands();
        self.send(id, SessionUpdate::AvailableCommandsUpdate { available_commands }).await;
    }

    /// Sends an update. A client that is gone needs none.
    async fn send(&self, id: &SessionId, update: SessionUpdate) {
        let _ = self.0.client.update(id, &update).await;
    }

    /// Opens a session, and returns its stored conversation.
    async fn reopen(&self, request: OpenSessionRequest) -> Result<(Arc<Open>, Vec<SessionEvent>), RpcError> {
        let OpenSessionRequest { session_id, cwd, mcp_servers, meta: _ } = request;
        absolute(&cwd)?;
        let thread = ThreadId::from(session_id.as_str());
        let live = self.all().get(&session_id).map(|open| open.session.settings().mode);
        let mode = match live {
            Some(mode) => mode,
            None => {
                let recorded = self.0.sessions.mode_of(&cwd, &thread);
                recorded.map_err(|error| open_error(&session_id, &error))?.unwrap_or(self.0.mode)
            }
        };
        let new = NewSession { mode, servers: configs(mcp_servers), ..NewSession::default() };
        let loaded = self.0.sessions.load(&cwd, &thread, new).await;
        let (session, events) = loaded.map_err(|error| open_error(&session_id, &error))?;
        Ok((self.opened(session).await, events))
    }

    /// Says something about a session, and ends the prompt.
    async fn say(&self, open: &Open, text: &str) -> PromptResponse {
        let id = format!("note-{}", open.next_number());
        self.send(&open.id, SessionUpdate::AgentMessageChunk(Chunk::text(id, text))).await;
        response(StopReason::EndTurn, serde_json::Value::Null)
    }

    async fn undo(&self, open: &Open) -> Result<String, SessionError> {
        let lines = open.session.undo().await?;
        Ok(match lines.is_empty() {
            true => "The last turn changed no file.".to_owned(),
            false => format!("Restored:\n- {}", lines.join("\n- ")),
        })
    }

    async fn status(&self, open: &Open) -> Result<String, SessionError> {
        let settings = open.session.settings();
        let model = settings.model.as_ref().or(open.models.first());
        let model = model.map_or("that of the first turn", String::as_str);
        let mut text = format!("- model: {model}\n- mode: {}\n- thread: {}", settings.mode, open.id);
        if let Some(state) = open.session.state().await? {
            let (read, written) = (state.usage.input_tokens, state.usage.output_tokens);
            text.push_str(&format!(
                "\n- messages: {}\n- last request: {} tokens\n- last turn: {read} tokens in, {written} out",
                state.messages.len(),
                state.request_size.tokens
            ));
        }
        Ok(text)
    }

    /// Runs the turn of a prompt, or its command.
    async fn turn(
        &self,
        prompt: ClientPrompt,
        cancel: CancellationToken,
    ) -> Result<PromptResponse, RpcError> {
        let open = self.open(&prompt.session_id)?;
        match prompt.content.command {
            Some(PromptCommand::Undo) => {
                let text = self.undo(&open).await.map_err(|error| rpc_error(&error))?;
                return Ok(self.say(&open, &text).await);
            }
            Some(PromptCommand::Compact) => {
                open.session.compact().await.map_err(|error| rpc_error(&error))?;
                return Ok(self
                    .say(&open, "The next message begins with a summary of the conversation.")
                    .await);
            }
            Some(PromptCommand::Status) => {
                let text = self.status(&open).await.map_err(|error| rpc_error(&error))?;
                return Ok(self.say(&open, &text).await);
            }
            _ => {}
        }
        if open.needs_commands() {
            // The editor may have dropped those after the response of the new session.
            self.send_commands(&open.id).await;
        }
        let events = open.session.subscribe(Since::Now);
        let turn = match prompt.content.command {
            Some(PromptCommand::Continue) => {
                let head = open.session.head().await.map_err(|error| rpc_error(&error))?;
                if head.is_none_or(|head| head.is_finished) {
                    return Ok(self.say(&open, "There is no turn to continue.").await);
                }
                open.session.proceed(None, Answers::new())
            }
            // A turn that no prompt began ends like one of a prompt.
            _ => open.session.prompt(prompt_of(prompt.content)?, OnBusy::Replace),
        };
        let turn = turn.map_err(|error| rpc_error(&error))?;
        let ended = Turn::new(self.0.client.clone(), open.clone()).follow(turn, events, cancel).await;
        self.send_info(&open).await;
        ended
    }

    /// Sends the title of a session after its turn.
    async fn send_info(&self, open: &Open) {
        if let Ok(Some((title, updated_ms))) = open.session.heading().await {
            let updated_at = Some(iso(updated_ms));
            self.send(&open.id, SessionUpdate::SessionInfoUpdate { title, updated_at }).await;
        }
    }

    async fn send_options(&self, open: &Open) {
        let current_mode_id = open.session.settings().mode.name().to_owned();
        self.send(&open.id, SessionUpdate::CurrentModeUpdate { current_mode_id }).await;
        self.send(&open.id, SessionUpdate::ConfigOptionUpdate { config_options: open.options() }).await;
    }
}

impl Handler for Agent {
    fn initialize(&self, _: InitializeRequest) -> InitializeResponse {
        InitializeResponse { agent_info: self.0.info.clone(), image: true, audio: true }
    }

    async fn new_session(&self, request: NewSessionRequest) -> Result<NewSessionResponse, RpcError> {
        let NewSessionRequest { cwd, mcp_servers, meta: _ } = request;
        absolute(&cwd)?;
        let new = NewSession { mode: self.0.mode, servers: configs(mcp_servers), ..NewSession::default() };
        let session = self.0.sessions.create(&cwd, new).await.map_err(|error| rpc_error(&error))?;
        let open = self.opened(session).await;
        Ok(NewSessionResponse { session_id: open.id.clone(), state: state(&open.session, &open.models) })
    }

    async fn load_session(&self, request: OpenSessionRequest) -> Result<SessionState, RpcError> {
        let (open, events) = self.reopen(request).await?;
        let updates = replayed(events, &mut open.calls(), open.session.location().cwd());
        for update in updates {
            self.send(&open.id, update).await;
        }
        Ok(state(&open.session, &open.models))
    }

    async fn resume_session(&self, request: OpenSessionRequest) -> Result<SessionState, RpcError> {
        let (open, _) = self.reopen(request).await?;
        Ok(state(&open.session, &open.models))
    }

    async fn fork_session(&self, request: OpenSessionRequest) -> Result<NewSessionResponse, RpcError> {
        let at = request.meta.superstep("checkpoint").map(|at| {
            let id = at.as_u64().or_else(|| at.as_str()?.parse().ok());
            id.map(CheckpointId).ok_or_else(|| RpcError::invalid_params("`superstep.checkpoint` is a number"))
        });
        let at = at.transpose()?;
        let new = NewSession {
            mode: self.0.mode,
            servers: configs(request.mcp_servers.clone()),
            ..NewSession::default()
        };
        let open = match self.open(&request.session_id) {
            Ok(open) => open,
            Err(_) => self.reopen(request).await?.0,
        };
        let fork = self.0.sessions.fork(&open.session, at, new).await.map_err(|error| rpc_error(&error))?;
        let open = self.opened(fork).await;
        Ok(NewSessionResponse { session_id: open.id.clone(), state: state(&open.session, &open.models) })
    }

    async fn list_sessions(&self, request: ListSessionsRequest) -> Result<ListSessionsResponse, RpcError> {
        let ListSessionsRequest { cwd, cursor } = request;
        let skip = match cursor {
            None => 0,
            Some(cursor) => {
                cursor.parse().map_err(|_| RpcError::invalid_params("the cursor is none of this agent"))?
            }
        };
        cwd.as_deref().map_or(Ok(()), absolute)?;
        let page = self.0.sessions.list(cwd.as_deref(), skip, PAGE).await;
        let (page, has_more) = page.map_err(|error| rpc_error(&error))?;
        let next_cursor = has_more.then(|| (skip + PAGE).to_string());
        let sessions = page.into_iter().map(|info| SessionInfo {
            session_id: SessionId::from(info.thread.as_str()),
            cwd: info.folder,
            title: info.title,
            updated_at: Some(iso(info.updated_ms)),
        });
        Ok(ListSessionsResponse { sessions: sessions.collect(), next_cursor })
    }

    async fn close_session(&self, session: SessionId) -> Result<(), RpcError> {
        let open = self.open(&session)?;
        self.all().remove(&session);
        self.0.sessions.close(open.session.thread()).await;
        Ok(())
    }

    async fn delete_session(&self, session: SessionId) -> Result<(), RpcError> {
        let open = self.all().remove(&session);
        let thread = ThreadId::from(session.as_str());
        let deleted = match open {
            Some(open) => self.0.sessions.delete(open.session.location().cwd(), &thread).await.map(drop),
            None => self.0.sessions.delete_anywhere(&thread).await,
        };
        deleted.map_err(|error| rpc_error(&error))
    }

    async fn set_mode(&self, request: SetModeRequest) -> Result<(), RpcError> {
        let open = self.open(&request.session_id)?;
        open.session.set(change("mode", &request.mode_id)?).map_err(|error| rpc_error(&error))?;
        self.send_options(&open).await;
        Ok(())
    }

    async fn set_config_option(
        &self,
        request: SetConfigOptionRequest,
    ) -> Result<Vec<ConfigOption>, RpcError> {
        let open = self.open(&request.session_id)?;
        let ConfigChoice::Text(value) = request.value else {
            return Err(RpcError::invalid_params("the value is one of the option's texts"));
        };
        let change = change(&request.config_id, &value)?;
        let is_mode = matches!(change, Change::Mode(_));
        open.session.set(change).map_err(|error| rpc_error(&error))?;
        if is_mode {
            self.send_options(&open).await;
        }
        Ok(open.options())
    }

    async fn prompt(
        &self,
        prompt: ClientPrompt,
        cancel: CancellationToken,
    ) -> Result<PromptResponse, RpcError> {
        // The spans of a turn are parts of the trace of its prompt.
        let span = log::request(prompt.meta.traceparent());
        self.turn(prompt, cancel).instrument(span).await
    }

    async fn steer(&self, prompt: ClientPrompt) -> Result<SteerOutcome, RpcError> {
        let open = self.open(&prompt.session_id)?;
        if !prompt.content.media.is_empty() {
            return Err(RpcError::invalid_params(
                "images and audio cannot be sent into a turn; send them with a prompt",
            ));
        }
        let text = prompt.content.text;
        if open.session.is_running() && open.session.steer(&text).await.is_ok() {
            open.steered(text);
            return Ok(SteerOutcome::Injected);
        }
        let events = open.session.subscribe(Since::Now);
        let Ok(turn) = open.session.prompt(Prompt::new(text), OnBusy::Queue) else {
            return Ok(SteerOutcome::Failed);
        };
        let agent = self.clone();
        tokio::spawn(async move {
            let follow = Turn::new(agent.0.client.clone(), open.clone());
            if let Err(error) = follow.follow(turn, events, CancellationToken::new()).await {
                agent.say(&open, &format!("The turn failed: {}", error.message)).await;
            }
            agent.send_info(&open).await;
        });
        Ok(SteerOutcome::StartedNewTurn)
    }

    fn cancel(&self, session: &SessionId) {
        if let Ok(open) = self.open(session) {
            open.session.cancel();
        }
    }

    async fn close_all(&self) {
        self.0.sessions.close_all().await;
    }
}

fn absolute(cwd: &Path) -> Result<(), RpcError> {
    if cwd.is_absolute() && cwd.is_dir() {
        return Ok(());
    }
    Err(RpcError::invalid_params(format!("`cwd` is the absolute path of a folder, got `{}`", cwd.display())))
}

/// Converts the content of a prompt.
fn prompt_of(content: PromptContent) -> Result<Prompt, RpcError> {
    let media = content.media.into_iter().map(|media| {
        let wrong = |error| RpcError::invalid_params(format!("an image or audio of the prompt: {error}"));
        Media::new(&media.mime_type, media.data).map_err(wrong)
    });
    Ok(Prompt { media: media.collect::<Result<_, _>>()?, ..Prompt::new(content.text) })
}

/// Formats UTC milliseconds as ISO 8601.
fn iso(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}
