//! Models and tools that play a script, without a network.
//!
//! Start at [`ScriptedModel`].

mod tool;

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{StreamExt, stream};
use serde_json::Value;
use superstep_llm::{
    ChatModel, Delta, ModelError, ModelErrorKind, Request, ResponseStream, Role,
    media::Accepts,
    models::ModelInfo,
    wire::{ChunkReader, WireConfig},
};
use tokio::time::Instant;

pub use self::tool::{ExpectedToolCall, ScriptedTool};
use crate::{
    expect::Expect,
    progress::Progress,
    provider::{Refused, Rules},
    script::{Answer, Piece, Script},
};

/// Plays a [`Script`]: request k gets the k-th answer, delays run on tokio's clock.
///
/// Its clock starts at 0 when it is created, which also means 1970 for a `Retry-After` date. Clones share the
/// script.
#[derive(Clone, Debug)]
pub struct ScriptedModel {
    started: Instant,
    accepts: Accepts,
    info: Option<Arc<ModelInfo>>,
    /// The answer to a request, in place of the script.
    answer: Option<AnswerFn>,
    progress: Arc<Mutex<Progress>>,
    state: Arc<Mutex<State>>,
}

#[derive(Clone)]
struct AnswerFn(Arc<dyn Fn(&Request) -> Answer + Send + Sync>);

impl fmt::Debug for AnswerFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnswerFn")
    }
}

#[derive(Debug, Default)]
struct State {
    requests: Vec<Request>,
    times: Vec<u64>,
}

impl ScriptedModel {
    /// Creates a model that plays `script`, and rejects the requests that providers reject.
    pub fn new(script: Script) -> Self {
        Self::with_rules(script, Rules::default())
    }

    /// Creates a model that plays `script`, and rejects requests that violate these rules.
    pub fn with_rules(script: Script, rules: Rules) -> Self {
        Self::of(Progress::new(script, rules))
    }

    /// Creates a model that computes its answer from each request, for examples and programs without a network.
    ///
    /// ```
    /// use superstep_testing::{script::{call, txt}, scripted::{ScriptedModel, tool_result}};
    ///
    /// let model = ScriptedModel::from_fn(|request| match tool_result(request) {
    ///     Some(result) => txt(result),
    ///     None => call("c1", "weather", r#"{"city":"Paris"}"#),
    /// });
    /// ```
    pub fn from_fn(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let model = Self::with_rules(Script::default(), Rules::anything());
        Self { answer: Some(AnswerFn(Arc::new(answer))), ..model }
    }

    /// Creates a model whose calls the test expects one after the other, each with its reply: see [`Expect`].
    pub fn pair() -> (Self, Expect) {
        let model = Self::of(Progress::expecting(Rules::default()));
        let expect = Expect::new(model.progress.clone());
        (model, expect)
    }

    fn of(progress: Progress) -> Self {
        let (started, progress) = (Instant::now(), Arc::new(Mutex::new(progress)));
        Self { started, accepts: Accepts::NOTHING, info: None, answer: None, progress, state: Arc::default() }
    }

    /// Sets the accepted media types.
    #[must_use]
    pub fn accepting(self, accepts: Accepts) -> Self {
        Self { accepts, ..self }
    }

    /// Sets the known facts, such as the window and the prices.
    #[must_use]
    pub fn knowing(self, info: ModelInfo) -> Self {
        Self { info: Some(Arc::new(info)), ..self }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns all requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.state().requests.clone()
    }

    /// Returns the arrival times of the requests, in milliseconds since the creation of the model.
    pub fn times(&self) -> Vec<u64> {
        self.state().times.clone()
    }

    /// Returns the number of unused answers.
    pub fn unused(&self) -> usize {
        self.progress().unused()
    }

    /// Returns the requests that were refused.
    pub fn refused(&self) -> Vec<Refused> {
        self.progress().refused()
    }

    /// Checks that there were exactly as many requests as answers, and that none was rejected.
    ///
    /// # Errors
    /// The difference.
    pub fn check(&self) -> Result<(), String> {
        self.progress().check()
    }

    fn begin(&self, request: Request) -> ReplyInProgress {
        let now_ms = self.now_ms();
        let mut progress = self.progress();
        // Without rules the body is not built, which is expensive for a long conversation.
        let body = if progress.accepts_anything() {
            Value::Null
        } else {
            let (model, accepts) = ("scripted".to_owned(), self.accepts);
            let wire = WireConfig { model, accepts, ..WireConfig::default() };
            serde_json::to_value(wire.body(&request)).expect("a request has a JSON form")
        };
        let answer = match &self.answer {
            Some(AnswerFn(answer)) => answer(&request),
            None => progress.answer(&body),
        };
        drop(progress);
        let mut state = self.state();
        state.requests.push(request);
        state.times.push(now_ms);
        drop(state);
        let mut play = ReplyInProgress::default();
        match answer {
            Answer::Stream { pieces, .. } => play.pieces = pieces.into(),
            Answer::Http { status, headers, body } => {
                play.fault = Some(ModelError::from_http(status, &headers, &body, now_ms));
            }
            Answer::NoConnection => {
                play.fault = Some(ModelError::new(ModelErrorKind::Connect, "no connection: as scripted"));
            }
        }
        play
    }
}

impl ChatModel for ScriptedModel {
    fn name(&self) -> &str {
        "scripted"
    }

    fn accepts(&self) -> Accepts {
        self.accepts
    }

    fn info(&self, name: &str) -> Option<&Arc<ModelInfo>> {
        self.info.as_ref().filter(|_| name == self.name())
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        // The request counts when the stream is polled, as with a real connection.
        let play = stream::once(async move { self.begin(request) });
        play.flat_map(|play| {
            stream::unfold(Some(play), |play| async {
                let mut play = play?;
                match play.next().await? {
                    Ok(delta) => Some((Ok(delta), Some(play))),
                    Err(error) => Some((Err(error), None)),
                }
            })
        })
        .boxed()
    }
}

/// Returns the last tool's result, if the request ends with one.
pub fn tool_result(request: &Request) -> Option<&str> {
    let last = request.messages.last().filter(|last| last.role == Role::Tool)?;
    Some(&last.content)
}

/// One answer in progress.
#[derive(Default)]
struct ReplyInProgress {
    pieces: VecDeque<Piece>,
    reader: ChunkReader,
    ready: VecDeque<Delta>,
    fault: Option<ModelError>,
}

impl ReplyInProgress {
    async fn next(&mut self) -> Option<Result<Delta, ModelError>> {
        loop {
            if let Some(delta) = self.ready.pop_front() {
                return Some(Ok(delta));
            }
            match self.pieces.pop_front() {
                Some(Piece::Data(payload)) if payload == "[DONE]" => self.pieces.clear(),
                Some(Piece::Data(payload)) => match self.reader.read(&payload) {
                    Ok(deltas) => self.ready = deltas.into(),
                    Err(error) => return Some(Err(error)),
                },
                Some(Piece::Delay(wait)) => tokio::time::sleep(wait).await,
                Some(Piece::Stall) => std::future::pending().await,
                Some(Piece::Cut) => {
                    self.pieces.clear();
                    let message = "the connection broke in the middle of the answer: as scripted";
                    self.fault = Some(ModelError::new(ModelErrorKind::TruncatedStream, message));
                }
                None => return self.reader.end(self.fault.take()).err().map(Err),
            }
        }
    }
}
