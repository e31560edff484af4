//! Notifications of a server: progress of calls, log messages, and changes of its tools.
#![expect(deprecated, reason = "servers of today's protocol versions send log messages")]

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use rmcp::{
    ClientHandler, RoleClient,
    model::{
        ClientCapabilities, ClientConfig, CustomRequest, CustomResult, ElicitRequestParams, ElicitResult,
        ElicitationCapability, ErrorCode, ErrorData, FormElicitationCapability, Implementation, LoggingLevel,
        LoggingMessageNotificationParam, ProgressNotificationParam, ProgressToken, ProtocolVersion,
        ServerNotification,
    },
    service::RequestContext,
};
use serde_json::Value;
use superstep_llm::ToolCx;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::secrets::Secrets;

/// The maximum number of log messages stored for a later call.
const MAX_RETAINED: usize = 100;

/// The maximum size of a message, in bytes.
const MAX_TEXT_BYTES: usize = 4_096;

/// The state that survives a reconnection.
#[derive(Default)]
pub(crate) struct Notifications {
    /// The name of the server.
    server: String,
    /// `true` if the server sent a question to the user while several calls were running, any of which may be
    /// its origin.
    asks: AtomicBool,
    /// A lock held by each call if calls are sent one at a time.
    pub(crate) turn: tokio::sync::Mutex<()>,
    /// The number of possible changes of the tools.
    changes: AtomicU64,
    /// The log messages received without a running call.
    kept: Mutex<VecDeque<String>>,
    /// The secrets of the configuration, which no output shows.
    secrets: Mutex<Secrets>,
}

impl Notifications {
    pub(crate) fn of(server: &str) -> Self {
        Self { server: server.to_owned(), ..Self::default() }
    }

    /// Returns whether calls are sent one at a time, so that questions have a known origin.
    pub(crate) fn asks(&self) -> bool {
        self.asks.load(Ordering::Acquire)
    }

    pub(crate) fn tools_changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Takes the log messages received without a running call.
    pub(crate) fn take(&self) -> Vec<String> {
        lock(&self.kept).drain(..).collect()
    }

    /// Stores problems of the server like its log messages.
    pub(crate) fn warn(&self, problems: &[String]) {
        problems.iter().for_each(|problem| self.keep(self.warning(problem.clone())));
    }

    /// Returns the line of a problem.
    fn warning(&self, problem: String) -> String {
        line(format!("[warning] {}", self.hidden(problem)))
    }

    /// Returns a text of the server without the secrets of the configuration.
    pub(crate) fn hidden(&self, text: String) -> String {
        lock(&self.secrets).hide_in(text)
    }

    /// Returns a text of the server without the values of the configuration's variables.
    pub(crate) fn without_variables(&self, text: String) -> String {
        lock(&self.secrets).hide_variables_in(text)
    }

    /// Hides these secrets from now on.
    pub(crate) fn hide(&self, secrets: Secrets) {
        *lock(&self.secrets) = secrets;
    }

    fn keep(&self, text: String) {
        let mut kept = lock(&self.kept);
        if kept.len() == MAX_RETAINED {
            kept.pop_front();
        }
        kept.push_back(text);
    }
}

/// The notifications of one connection, in order: those before the result of a call are emitted before the
/// call ends.
pub(crate) struct CallListeners {
    notifications: Arc<Notifications>,
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    out: Vec<CallListener>,
    /// The number of calls so far.
    begun: u64,
    /// The progress of calls without a listener, or before they have one.
    early: VecDeque<(ProgressToken, Progress)>,
}

/// A running call.
struct CallListener {
    number: u64,
    /// The progress token, known after the request is sent.
    token: Option<ProgressToken>,
    /// The last progress.
    reached: f64,
    cx: ToolCx,
    /// `true` if the call may be sent twice.
    is_repeatable: bool,
    over: CancellationToken,
    again: CancellationToken,
}

/// The call that a question of the server belongs to.
pub(crate) enum QuestionOrigin {
    /// The call, and the token that fires at its end.
    Call(ToolCx, CancellationToken),
    NoCall,
    Several,
}

/// The progress of a call.
struct Progress {
    progress: f64,
    line: String,
}

/// A listener for the notifications of a call, until it is dropped.
pub(crate) struct ListenerGuard {
    listeners: Arc<CallListeners>,
    number: u64,
    /// Fires if the call must be sent again, alone.
    pub(crate) again: CancellationToken,
    /// Cancels the server's questions during the call; taken by callers with a final message to send first.
    pub(crate) over: Option<DropGuard>,
}

/// The call of a request, notified when the request was sent: written to a program, or accepted by an
/// address.
#[derive(Clone)]
pub(crate) struct Sent(pub(crate) ToolCx);

impl CallListeners {
    pub(crate) fn new(notifications: Arc<Notifications>) -> Self {
        Self { notifications, calls: Mutex::default() }
    }

    /// Forwards the progress of the next call, and log messages during it, to `cx`.
    pub(crate) fn listen(self: &Arc<Self>, cx: &ToolCx, is_repeatable: bool) -> ListenerGuard {
        for text in self.notifications.take() {
            cx.output(&text);
        }
        let mut calls = lock(&self.calls);
        calls.begun += 1;
        let (over, again) = (CancellationToken::new(), CancellationToken::new());
        let guard = ListenerGuard {
            listeners: self.clone(),
            number: calls.begun,
            again: again.clone(),
            over: Some(over.clone().drop_guard()),
        };
        let (number, reached, cx) = (calls.begun, f64::NEG_INFINITY, cx.clone());
        calls.out.push(CallListener { number, token: None, reached, cx, is_repeatable, over, again });
        guard
    }

    pub(crate) fn server(&self) -> &str {
        &self.notifications.server
    }

    /// Returns the call to which a question belongs. If there are several, the repeatable ones are sent
    /// again, and from then on calls are sent one at a time.
    pub(crate) fn asking(&self) -> QuestionOrigin {
        match &lock(&self.calls).out[..] {
            [] => QuestionOrigin::NoCall,
            [call] => QuestionOrigin::Call(call.cx.clone(), call.over.clone()),
            several => {
                self.notifications.asks.store(true, Ordering::Release);
                several.iter().filter(|call| call.is_repeatable).for_each(|call| call.again.cancel());
                QuestionOrigin::Several
            }
        }
    }

    /// Sends a problem as a line, truncated if it is long.
    pub(crate) fn warn(&self, problem: String) {
        self.output(self.notifications.warning(problem));
    }

    /// Sends the text to the newest call, because the protocol does not name the call.
    fn output(&self, text: String) {
        match lock(&self.calls).out.last() {
            Some(call) => call.cx.output(&text),
            None => self.notifications.keep(text),
        }
    }

    pub(crate) fn handle(&self, said: &ServerNotification) {
        let hide = |text: String| self.notifications.hidden(text);
        match said {
            ServerNotification::ProgressNotification(said) => {
                let reached =
                    Progress { progress: said.params.progress, line: progress(&said.params, &hide) };
                lock(&self.calls).progress(&said.params.progress_token, reached);
            }
            ServerNotification::LoggingMessageNotification(said) => {
                if let Some(text) = logged(&said.params, &hide) {
                    self.output(text);
                }
            }
            ServerNotification::ToolListChangedNotification(_) => self.notifications.tools_changed(),
            _ => {}
        }
    }

    /// Returns the server's notifications.
    pub(crate) fn notifications(&self) -> &Notifications {
        &self.notifications
    }
}

impl Calls {
    fn progress(&mut self, token: &ProgressToken, reached: Progress) {
        match self.out.iter_mut().find(|call| call.token.as_ref() == Some(token)) {
            Some(call) => call.is(&reached),
            None => {
                if self.early.len() == MAX_RETAINED {
                    self.early.pop_front();
                }
                self.early.push_back((token.clone(), reached));
            }
        }
    }
}

impl CallListener {
    /// Updates the progress, which never decreases.
    fn is(&mut self, at: &Progress) {
        if at.progress > self.reached {
            self.reached = at.progress;
            self.cx.output(&at.line);
        }
    }
}

impl ListenerGuard {
    /// Records that the call was sent, with this token.
    pub(crate) fn is_sent(&self, token: &ProgressToken) {
        let mut calls = lock(&self.listeners.calls);
        let Calls { out, early, .. } = &mut *calls;
        if let Some(call) = out.iter_mut().find(|call| call.number == self.number) {
            call.token = Some(token.clone());
            early.iter().filter(|(of, _)| of == token).for_each(|(_, reached)| call.is(reached));
        }
    }
}

impl Drop for ListenerGuard {
    fn drop(&mut self) {
        lock(&self.listeners.calls).out.retain(|call| call.number != self.number);
    }
}

impl ClientHandler for CallListeners {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("superstep", env!("CARGO_PKG_VERSION"));
        // Later protocol versions begin differently than this one.
        let mut capabilities = ClientCapabilities::default();
        let form = FormElicitationCapability::new().with_schema_validation(true);
        capabilities.elicitation = Some(ElicitationCapability::new().with_form(form));
        ClientConfig::new(capabilities, us).with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.elicit(request, context).await
    }

    /// Rejects unsupported requests, including questions to the user in an unknown form.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        if request.method != "elicitation/create" {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None));
        }
        let why = "its `requestedSchema` is not an object of texts, numbers, truth values and choices";
        self.warn(format!("the server asks the user, which is refused: {why}"));
        Err(ErrorData::invalid_params(why, None))
    }
}

/// Returns the line of a progress. `hide` hides the secrets of the configuration before the line is truncated.
fn progress(at: &ProgressNotificationParam, hide: &dyn Fn(String) -> String) -> String {
    let total = at.total.map(|total| format!("/{total}")).unwrap_or_default();
    let message = at.message.as_ref().map(|message| format!(" {}", hide(message.clone())));
    line(format!("[{}{total}]{}", at.progress, message.unwrap_or_default()))
}

/// Returns the line of a log message; `None` for debug messages. `hide` does not see the level, which may be a value of
/// `env`, too.
fn logged(message: &LoggingMessageNotificationParam, hide: &dyn Fn(String) -> String) -> Option<String> {
    let level = match message.level {
        LoggingLevel::Debug => return None,
        LoggingLevel::Info => "info",
        LoggingLevel::Notice => "notice",
        LoggingLevel::Warning => "warning",
        LoggingLevel::Error => "error",
        LoggingLevel::Critical => "critical",
        LoggingLevel::Alert => "alert",
        LoggingLevel::Emergency => "emergency",
    };
    let logger = message.logger.as_ref().map(|logger| format!(" {logger}")).unwrap_or_default();
    let text = match &message.data {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Some(line(format!("[{level}{}", hide(format!("{logger}] {text}")))))
}

fn line(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
    text.truncate(text.trim_end().len());
    text.push('\n');
    text.shrink_to_fit();
    text
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use rmcp::model::{NumberOrString, ProgressNotification};
    use serde_json::json;

    use super::*;

    fn reaches(listeners: &CallListeners, progress: ProgressNotificationParam) {
        listeners.handle(&ServerNotification::ProgressNotification(ProgressNotification::new(progress)));
    }

    #[test]
    fn progress_is_a_line() {
        let at = |done| ProgressNotificationParam::new(ProgressToken(NumberOrString::Number(1)), done);
        let line = |at: &ProgressNotificationParam| progress(at, &|text| text);
        assert_eq!(line(&at(0.5)), "[0.5]\n");
        assert_eq!(line(&at(2.0).with_total(5.0).with_message("reading\n")), "[2/5] reading\n");
    }

    #[test]
    fn a_log_message_is_one_line_and_limited() {
        let message = |level, data| LoggingMessageNotificationParam::new(level, data);
        let logged = |level, data| logged(&message(level, data), &|text| text);
        assert_eq!(logged(LoggingLevel::Debug, json!("x")), None);
        assert_eq!(logged(LoggingLevel::Error, json!("bad")).unwrap(), "[error] bad\n");
        let flood = logged(LoggingLevel::Info, json!({ "a": "é".repeat(MAX_TEXT_BYTES) })).unwrap();
        assert!(
            flood.starts_with(r#"[info] {"a":"é"#) && flood.len() <= MAX_TEXT_BYTES + 1,
            "{}",
            flood.len()
        );
    }

    #[test]
    fn messages_without_a_call_are_retained_for_the_next_call_up_to_a_limit() {
        let notifications = Arc::new(Notifications::default());
        (0..=MAX_RETAINED).for_each(|n| notifications.keep(format!("{n}\n")));
        let told = Arc::new(Mutex::new(Vec::new()));
        let tells = told.clone();
        let cx = ToolCx::new("c").with_output(move |chunk| lock(&tells).push(chunk.to_owned()));
        let listeners = CallListeners::new(notifications.clone());
        let listeners = Arc::new(listeners);
        drop(listeners.listen(&cx, false));
        let told = lock(&told).clone();
        assert_eq!((told.len(), told[0].as_str()), (MAX_RETAINED, "1\n"));
        assert!(notifications.take().is_empty() && lock(&listeners.calls).out.is_empty());
    }

    #[test]
    fn progress_without_a_waiting_call_is_stored_as_short_lines() {
        let listeners = CallListeners::new(Arc::default());
        let token = ProgressToken(NumberOrString::Number(1));
        for _ in 0..=MAX_RETAINED {
            let long = ProgressNotificationParam::new(token.clone(), 1.0)
                .with_message("x".repeat(10 * MAX_TEXT_BYTES));
            reaches(&listeners, long);
        }
        let calls = lock(&listeners.calls);
        let lengths: Vec<_> = calls.early.iter().map(|(_, reached)| reached.line.capacity()).collect();
        assert_eq!(lengths.len(), MAX_RETAINED);
        assert!(lengths.iter().all(|length| *length <= MAX_TEXT_BYTES + 1), "{lengths:?}");
    }

    #[test]
    fn progress_before_the_first_listener_is_not_lost() {
        let token = |id| ProgressToken(NumberOrString::Number(id));
        let told = Arc::new(Mutex::new(String::new()));
        let tells = told.clone();
        let cx = ToolCx::new("c").with_output(move |chunk| lock(&tells).push_str(chunk));
        let listeners = Arc::new(CallListeners::new(Arc::default()));
        for (id, done) in [(1, 1.0), (2, 7.0), (1, 2.0)] {
            reaches(&listeners, ProgressNotificationParam::new(token(id), done));
        }
        let guard = listeners.listen(&cx, false);
        guard.is_sent(&token(1));
        for done in [1.0, 3.0] {
            reaches(&listeners, ProgressNotificationParam::new(token(1), done));
        }
        drop(guard);
        assert_eq!(*lock(&told), "[1]\n[2]\n[3]\n");
    }
}
