//! The retry layer, for the same model or another one.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use serde_json::Value;
use tracing::{Instrument as _, Span};

use crate::{
    ChatModel, Delta, ModelError, ModelRetry, Request, ResponseStream,
    messages::media::Accepts,
    model::{
        assemble::truncated,
        content,
        retry::{JitterSource, millis, seeded_jitter},
        timers::check_timers,
        trace,
    },
    models::ModelInfo,
};

/// A model that retries failed requests, and sends them to other models if it cannot answer.
///
/// It is the only layer that retries. A failure is announced before the delay: [`Delta::AttemptDiscarded`] if
/// the failed attempt had streamed anything, then [`Delta::Retry`]. Dropping the stream ends a delay
/// immediately.
///
/// If the attempts of a model are exhausted, or its failure is not retried, the next model is called without
/// a delay and with its own attempts: [`Delta::Fallback`]. This does not apply if the request is at fault,
/// see [`ModelErrorKind::may_pass_elsewhere`](crate::ModelErrorKind::may_pass_elsewhere). Each model has one
/// turn per request, so that a request is sent at most `max_attempts` times to each of them.
/// [`longest_wait`](ModelRetry::longest_wait) bounds the delays of all models together. The first model is
/// the one named by [`Request::ask_first`]; those before it follow at the end.
#[derive(Clone)]
pub struct Retrying<M> {
    model: M,
    fallbacks: Vec<Arc<dyn ChatModel>>,
    policy: ModelRetry,
    jitter: JitterSource,
}

impl<M: ChatModel> Retrying<M> {
    /// Retries `model` by `policy`, with the jitter of seed 0.
    ///
    /// Programs that share a provider should use different seeds: see [`Retrying::with_jitter`].
    pub fn new(model: M, policy: ModelRetry) -> Self {
        Self { model, fallbacks: Vec::new(), policy, jitter: seeded_jitter(0) }
    }

    /// Sets the source of jitter, such as [`seeded_jitter`].
    #[must_use]
    pub fn with_jitter(mut self, source: JitterSource) -> Self {
        self.jitter = source;
        self
    }

    /// Adds models that are called in order if this one cannot answer. Their names should differ.
    #[must_use]
    pub fn with_fallbacks(mut self, models: impl IntoIterator<Item = impl ChatModel + 'static>) -> Self {
        self.fallbacks.extend(models.into_iter().map(|model| Arc::new(model) as Arc<dyn ChatModel>));
        self
    }
}

impl<M: ChatModel> fmt::Debug for Retrying<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fallbacks: Vec<&str> = self.fallbacks.iter().map(|model| model.name()).collect();
        f.debug_struct("Retrying")
            .field("model", &self.model.name())
            .field("fallbacks", &fallbacks)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl<M: ChatModel> ChatModel for Retrying<M> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn names(&self) -> Vec<&str> {
        let fallbacks = self.fallbacks.iter().flat_map(|model| model.names());
        self.model.names().into_iter().chain(fallbacks).collect()
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        self.model.settings()
    }

    fn accepts(&self) -> Accepts {
        self.fallbacks.iter().map(|model| model.accepts()).fold(self.model.accepts(), Accepts::or)
    }

    fn signs_prefix(&self) -> bool {
        self.model.signs_prefix() || self.fallbacks.iter().any(|model| model.signs_prefix())
    }

    fn info(&self, name: &str) -> Option<&Arc<ModelInfo>> {
        let models = self.fallbacks.iter().map(|model| &**model);
        let mut models = [&self.model as &dyn ChatModel].into_iter().chain(models);
        models.find(|model| model.names().contains(&name))?.info(name)
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let mut models: VecDeque<&dyn ChatModel> = VecDeque::from([&self.model as &dyn ChatModel]);
        models.extend(self.fallbacks.iter().map(|model| &**model));
        let first = request.ask_first.as_deref();
        let first = models.iter().position(|model| first == Some(model.name())).unwrap_or(0);
        models.rotate_left(first);
        let model = models.pop_front().expect("there is a model at least");
        let span = trace::chat(model.name(), &request, 1);
        content::request(&span, &request);
        let run = Attempts {
            current: Some(span.in_scope(|| model.stream(for_model(&request, model)))),
            reply: content::Reply::new(&span),
            span,
            model,
            others: models,
            policy: &self.policy,
            jitter: &self.jitter,
            request,
            attempt: 1,
            of_this_model: 1,
            waited: Duration::ZERO,
            failed: Vec::new(),
            streamed: false,
            finished: false,
            announced: VecDeque::new(),
            wait: Duration::ZERO,
        };
        stream::unfold(run, |mut run| async { run.next().await.map(|item| (item, run)) }).boxed()
    }
}

/// Returns the request for one of several models, without the media that only others accept.
fn for_model(request: &Request, model: &dyn ChatModel) -> Request {
    let (mut request, accepts) = (request.clone(), model.accepts());
    request.messages.iter_mut().for_each(|message| message.fit_media(accepts));
    request
}

/// Sends a request that is not a stream until it succeeds, or `policy` ends. For clients beside [`ChatModel`]s, such as
/// those of embeddings.
///
/// # Errors
/// The last one of `attempt`.
pub async fn retried<T, F: Future<Output = Result<T, ModelError>>>(
    policy: &ModelRetry,
    jitter: &JitterSource,
    mut attempt: impl FnMut() -> F,
) -> Result<T, ModelError> {
    let (mut failed, mut waited) = (0, Duration::ZERO);
    loop {
        let error = match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        failed += 1;
        let wait = policy.after(failed, waited, error, jitter)?;
        check_timers()?;
        tokio::time::sleep(wait).await;
        waited = waited.saturating_add(wait);
    }
}

/// The attempts of one request. Between two attempts, and after the last one, there is no `current` stream.
struct Attempts<'a> {
    model: &'a dyn ChatModel,
    /// The models that have not been called.
    others: VecDeque<&'a dyn ChatModel>,
    policy: &'a ModelRetry,
    jitter: &'a JitterSource,
    request: Request,
    current: Option<ResponseStream<'a>>,
    /// The span of the current attempt.
    span: Span,
    reply: content::Reply,
    /// The number of attempts, in total and of this model.
    attempt: u32,
    of_this_model: u32,
    waited: Duration,
    /// The models that failed before this one, and their errors.
    failed: Vec<String>,
    /// `true` if the current attempt has yielded a delta.
    streamed: bool,
    finished: bool,
    /// The deltas before the delay; the delay begins when it is empty.
    announced: VecDeque<Delta>,
    wait: Duration,
}

impl Attempts<'_> {
    async fn next(&mut self) -> Option<Result<Delta, ModelError>> {
        if let Some(delta) = self.announced.pop_front() {
            return Some(Ok(delta));
        }
        if self.finished && self.current.is_none() {
            return None;
        }
        if self.current.is_none() {
            if let Err(error) = check_timers() {
                self.finished = true;
                return Some(Err(error.into()));
            }
            tokio::time::sleep(self.wait).await;
            self.waited = self.waited.saturating_add(self.wait);
            self.attempt += 1;
            self.of_this_model += 1;
            self.streamed = false;
            self.span = trace::chat(self.model.name(), &self.request, self.attempt);
            content::request(&self.span, &self.request);
            self.reply = content::Reply::new(&self.span);
            self.current =
                Some(self.span.in_scope(|| self.model.stream(for_model(&self.request, self.model))));
        }
        let current = self.current.as_mut().expect("an attempt was started in the lines above");
        let error = match current.next().instrument(self.span.clone()).await {
            Some(Ok(delta)) => {
                trace::streamed(&self.span, &delta);
                self.reply.push(&self.span, &delta);
                self.streamed = true;
                self.finished |= matches!(delta, Delta::Finish(_));
                return Some(Ok(delta));
            }
            None if self.finished => return None,
            None => truncated(),
            Some(Err(error)) => error,
        };
        trace::failed(&self.span, &error);
        (self.current, self.span) = (None, Span::none());
        self.finished = false;
        let failed = self.model.name();
        match self.then(error) {
            Ok(delta) => {
                trace::continued(failed, &delta);
                if self.streamed {
                    self.announced.push_back(Delta::AttemptDiscarded { attempt: self.attempt });
                }
                self.announced.push_back(delta);
                self.announced.pop_front().map(Ok)
            }
            Err(error) => {
                self.finished = true;
                Some(Err(error))
            }
        }
    }

    /// Continues after a failed attempt: with another one of this model or of the next one, or with the end.
    fn then(&mut self, error: ModelError) -> Result<Delta, ModelError> {
        let (status, reason) = (error.status, error.message.clone());
        let error = match self.policy.after(self.of_this_model, self.waited, error, self.jitter) {
            Ok(wait) => {
                self.wait = wait;
                let (attempt, delay_ms) = (self.attempt + 1, millis(wait));
                return Ok(Delta::Retry { attempt, delay_ms, status, reason });
            }
            Err(error) => error,
        };
        let next = if error.kind.may_pass_elsewhere() { self.others.pop_front() } else { None };
        let Some(next) = next else { return Err(self.with_those_before(error)) };
        let from = std::mem::replace(&mut self.model, next).name().to_owned();
        let reason = error.message;
        self.failed.push(format!("`{from}`: {reason}"));
        (self.of_this_model, self.wait) = (0, Duration::ZERO);
        Ok(Delta::Fallback { from, to: next.name().to_owned(), status, reason })
    }

    /// Returns the error of the last model, with the errors of the others.
    fn with_those_before(&self, error: ModelError) -> ModelError {
        if self.failed.is_empty() {
            return error;
        }
        let message =
            format!("`{}`: {}; before it, {}", self.model.name(), error.message, self.failed.join("; "));
        ModelError { message, ..error }
    }
}
