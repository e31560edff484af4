//! Sessions without an agent: the text of a prompt says what happens.

use std::{future::pending, sync::Mutex, time::Duration};

use serde_json::json;
use superstep_acp::{
    Client, ClientError, Handler, Prompt,
    stream::{choice, permission_options},
    wire::{
        Chunk, ConfigOption, ConfigValue, ElicitationMode, ElicitationRequest, Implementation,
        InitializeRequest, InitializeResponse, ListSessionsRequest, ListSessionsResponse, Location, Meta,
        Mode, ModeState, NewSessionRequest, NewSessionResponse, OpenSessionRequest, PermissionRequest,
        PromptResponse, RpcError, SessionId, SessionInfo, SessionState, SessionUpdate,
        SetConfigOptionRequest, SetModeRequest, SteerOutcome, StopReason, ToolCall, ToolContent, ToolKind,
        ToolStatus,
    },
};
use tokio_util::sync::CancellationToken;

/// The calls of the handler.
#[derive(Default)]
pub(crate) struct Log(Mutex<Vec<String>>);

impl Log {
    pub(crate) fn add(&self, call: impl Into<String>) {
        self.0.lock().unwrap().push(call.into());
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

pub(crate) struct Fake {
    pub(crate) client: Client,
    pub(crate) log: std::sync::Arc<Log>,
}

/// Returns the modes and options of all sessions.
fn state() -> SessionState {
    let (ask, auto) = (("ask", "Ask"), ("auto", "Auto"));
    let mode = |(id, name): (&str, &str)| Mode { id: id.into(), name: name.into(), description: None };
    let value = |(value, name): (&str, &str)| ConfigValue {
        value: value.into(),
        name: name.into(),
        description: Some("text".into()),
    };
    let option = ConfigOption {
        id: "mode".into(),
        name: "Mode".into(),
        category: Some("mode"),
        current_value: "ask".into(),
        options: vec![value(ask), value(auto)],
    };
    let modes = ModeState { current_mode_id: "ask".into(), available_modes: vec![mode(ask), mode(auto)] };
    SessionState { modes: Some(modes), config_options: vec![option] }
}

pub(crate) fn options() -> Vec<ConfigOption> {
    state().config_options
}

fn ended() -> PromptResponse {
    PromptResponse { stop_reason: StopReason::EndTurn, meta: Meta::of_superstep(json!({ "checkpoint": 7 })) }
}

impl Fake {
    async fn say(&self, session: &SessionId, text: &str) -> Result<(), ClientError> {
        self.client.update(session, &SessionUpdate::AgentMessageChunk(Chunk::text("m", text))).await
    }

    /// Requests a permission, as the agent of the recorded exchange does.
    async fn edit(&self, session: &SessionId, cancel: &CancellationToken) -> Result<(), ClientError> {
        let diff = || ToolContent::Diff {
            path: "/home/me/proj/a.txt".into(),
            old_text: Some("a".into()),
            new_text: "b".into(),
        };
        let call = ToolCall {
            title: Some("Edit a.txt".into()),
            kind: Some(ToolKind::Edit),
            status: Some(ToolStatus::Pending),
            locations: Some(vec![Location { path: "/home/me/proj/a.txt".into(), line: None }]),
            raw_input: Some(json!({ "path": "a.txt" })),
            ..ToolCall::new("c1")
        };
        self.client.update(session, &SessionUpdate::ToolCall(call.clone())).await?;
        let request = PermissionRequest {
            session_id: session.clone(),
            tool_call: ToolCall { content: Some(vec![diff()]), ..call },
            options: permission_options(),
        };
        let answer = self.client.request_permission(&request, cancel).await;
        self.log.add(match &answer {
            Ok(answer) => format!("{:?} {:?}", choice(&answer.outcome), answer.meta.superstep("decision")),
            Err(error) => error.to_string(),
        });
        let status = if answer.is_ok() { ToolStatus::Completed } else { ToolStatus::Failed };
        let end = ToolCall { status: Some(status), content: Some(vec![diff()]), ..ToolCall::new("c1") };
        self.client.update(session, &SessionUpdate::ToolCallUpdate(end)).await
    }

    async fn form(&self, session: &SessionId, cancel: &CancellationToken) {
        let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
        let request = ElicitationRequest {
            session_id: session.clone(),
            tool_call_id: Some("c1".into()),
            message: "Your name?".into(),
            mode: ElicitationMode::Form { requested_schema: schema },
        };
        self.log.add(format!("{:?}", self.client.elicit(&request, cancel).await));
        let mode = ElicitationMode::Url { url: "https://a.test/".into(), elicitation_id: "e1".into() };
        let request = ElicitationRequest { tool_call_id: None, mode, ..request };
        self.log.add(format!("{:?}", self.client.elicit(&request, cancel).await));
        self.client.elicitation_complete("e1").await.unwrap();
    }
}

impl Handler for Fake {
    fn initialize(&self, request: InitializeRequest) -> InitializeResponse {
        assert_eq!(*self.client.capabilities(), request.client_capabilities);
        self.log.add(format!("{:?}", request.client_capabilities));
        let info = Implementation { name: "example".into(), title: None, version: "0.1.0".into() };
        InitializeResponse { agent_info: info, image: true, audio: false }
    }

    async fn new_session(&self, request: NewSessionRequest) -> Result<NewSessionResponse, RpcError> {
        match request.cwd.to_str() {
            Some("/slow") => pending().await,
            Some(path) if path.starts_with('/') => {}
            _ => return Err(RpcError::invalid_params("`cwd` is not absolute")),
        }
        self.log.add(format!("new {:?}", request.mcp_servers));
        Ok(NewSessionResponse { session_id: "s1".into(), state: state() })
    }

    async fn load_session(&self, request: OpenSessionRequest) -> Result<SessionState, RpcError> {
        self.say(&request.session_id, "stored")
            .await
            .map_err(|error| RpcError::internal("closed", error.to_string()))?;
        Ok(state())
    }

    async fn resume_session(&self, request: OpenSessionRequest) -> Result<SessionState, RpcError> {
        Err(RpcError::unknown_session(request.session_id.as_str()))
    }

    async fn fork_session(&self, request: OpenSessionRequest) -> Result<NewSessionResponse, RpcError> {
        self.log.add(format!("fork at {:?}", request.meta.superstep("checkpoint")));
        Ok(NewSessionResponse { session_id: "s2".into(), state: state() })
    }

    async fn list_sessions(&self, request: ListSessionsRequest) -> Result<ListSessionsResponse, RpcError> {
        self.log.add(format!("list {:?} {:?}", request.cwd, request.cursor));
        let info = SessionInfo {
            session_id: "s1".into(),
            cwd: "/home/me".into(),
            title: None,
            updated_at: Some("2026-11-28T23:00:00Z".into()),
        };
        Ok(ListSessionsResponse { sessions: vec![info], next_cursor: Some("50".into()) })
    }

    async fn close_session(&self, session: SessionId) -> Result<(), RpcError> {
        self.log.add(format!("close {session}"));
        Ok(())
    }

    async fn delete_session(&self, session: SessionId) -> Result<(), RpcError> {
        self.log.add(format!("delete {session}"));
        Ok(())
    }

    async fn set_mode(&self, request: SetModeRequest) -> Result<(), RpcError> {
        self.log.add(format!("mode {}", request.mode_id));
        Ok(())
    }

    async fn set_config_option(
        &self,
        request: SetConfigOptionRequest,
    ) -> Result<Vec<ConfigOption>, RpcError> {
        self.log.add(format!("option {} {:?}", request.config_id, request.value));
        Ok(options())
    }

    async fn prompt(&self, prompt: Prompt, cancel: CancellationToken) -> Result<PromptResponse, RpcError> {
        let session = &prompt.session_id;
        let text = prompt.content.text.as_str();
        self.log.add(format!("prompt {text}"));
        match text {
            // Ends like a turn that did not notice.
            "wait" => {
                self.say(session, "waiting").await.unwrap();
                cancel.cancelled().await;
                self.say(session, "stopped").await.unwrap();
            }
            "wait, then fail" => {
                cancel.cancelled().await;
                return Err(RpcError::internal("llm_error", "no model"));
            }
            "clean up for 1 s" => {
                cancel.cancelled().await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            "never end" => pending().await,
            "panic" => panic!("on purpose"),
            "fail" => return Err(RpcError::internal("llm_error", "no model")),
            "flood" => {
                let flood = async { while self.say(session, &"x".repeat(1000)).await.is_ok() {} };
                tokio::select! { () = flood => {}, () = cancel.cancelled() => self.log.add("cancelled") }
            }
            "change a" => {
                self.say(session, "I edit it. ").await.unwrap();
                self.edit(session, &cancel).await.unwrap();
                let usage = SessionUpdate::UsageUpdate { used: 10, size: 1000, cost: None };
                self.client.update(session, &usage).await.unwrap();
                self.say(session, "Done.").await.unwrap();
            }
            "give up a question" => {
                let _ = tokio::time::timeout(Duration::from_secs(1), self.edit(session, &cancel)).await;
            }
            "form" => self.form(session, &cancel).await,
            "all" => {
                for update in crate::updates::all() {
                    self.client.update(session, &update).await.unwrap();
                }
            }
            text => self.say(session, text).await.unwrap(),
        }
        Ok(ended())
    }

    async fn steer(&self, prompt: Prompt) -> Result<SteerOutcome, RpcError> {
        self.log.add(format!("steer {}", prompt.content.text));
        Ok(SteerOutcome::StartedNewTurn)
    }

    fn cancel(&self, session: &SessionId) {
        self.log.add(format!("cancel {session}"));
    }

    async fn close_all(&self) {
        self.log.add("close all");
    }
}
