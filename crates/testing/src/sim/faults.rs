//! The faults of models and tools.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::Path,
    sync::Arc,
};

use futures::{StreamExt, stream};
use serde_json::Value;
use superstep_llm::{
    Behaviour, ChatModel, Delta, ModelError, ModelErrorKind, Request, ResponseStream, Subject, Tool, ToolCx,
    ToolError, ToolFuture, ToolSpec,
    calls::{ReconcileFuture, Sequence},
    convert::IntoShared,
    media::Accepts,
    models::ModelInfo,
};

use super::{CrashPoint, Sim};

/// The highest number of failures of a request in a row.
const FAILURES: u64 = 2;

impl Sim {
    /// Returns a model that fails under seeds: a request gets no answer, or the stream breaks in its middle, at most twice in a row.
    /// The graph must retry it, with [`Retrying`](superstep_llm::retries::Retrying) or the retries of its node.
    ///
    /// A retry may be counted in the state. Each seed is therefore compared with a run without crashes in which the same requests
    /// fail. No request fails in the plain run.
    pub fn model(&self, model: impl ChatModel + 'static) -> Arc<dyn ChatModel> {
        self.fate().has_faults = true;
        Arc::new(FaultyModel { model: Arc::new(model), sim: self.clone() })
    }

    /// Returns a tool whose calls may fail under seeds, after their effect: the caller cannot know that it took place. The process
    /// may crash before and after the effect.
    ///
    /// A failure changes the course of the graph. Each seed is therefore compared with a run without crashes in which the same
    /// calls fail, by their idempotency keys. No call fails in the plain run.
    pub fn tool(&self, tool: impl IntoShared<dyn Tool>) -> Arc<dyn Tool> {
        self.fate().has_faults = true;
        Arc::new(FaultyTool { tool: tool.into_shared(), sim: self.clone() })
    }

    /// Draws a number for a call, the same in every process of a seed; `None` if there are no faults.
    fn fault(&self, call: impl Hash) -> Option<u64> {
        let seed = self.fate().faults?;
        let mut hasher = DefaultHasher::new();
        (seed, call).hash(&mut hasher);
        Some(hasher.finish())
    }
}

struct FaultyModel {
    model: Arc<dyn ChatModel>,
    sim: Sim,
}

impl ChatModel for FaultyModel {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn names(&self) -> Vec<&str> {
        self.model.names()
    }

    fn accepts(&self) -> Accepts {
        self.model.accepts()
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        self.model.settings()
    }

    fn signs_prefix(&self) -> bool {
        self.model.signs_prefix()
    }

    fn info(&self, name: &str) -> Option<&Arc<ModelInfo>> {
        self.model.info(name)
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let call = serde_json::to_string(&request.messages).expect("messages have a JSON form");
        let draw = self.sim.fault(&call).map(|draw| (draw, self.sim.attempt(draw)));
        let fails = draw.filter(|(draw, attempt)| u64::from(*attempt) <= draw % (FAILURES + 1));
        let Some((draw, attempt)) = fails else { return self.model.stream(request) };
        if (draw >> 8).wrapping_add(attempt.into()) % 2 == 0 {
            let error = ModelError::new(ModelErrorKind::Connect, "no connection: as simulated");
            return stream::iter([Err(error)]).boxed();
        }
        let broken = async move {
            let answer: Vec<_> = self.model.stream(request).collect().await;
            let half = answer.len() / 2;
            let message = "the connection broke in the middle of the answer: as simulated";
            let error = ModelError::new(ModelErrorKind::TruncatedStream, message);
            let cut: Vec<Result<Delta, _>> = answer.into_iter().take(half).chain([Err(error)]).collect();
            stream::iter(cut)
        };
        stream::once(broken).flatten().boxed()
    }
}

struct FaultyTool {
    tool: Arc<dyn Tool>,
    sim: Sim,
}

impl Tool for FaultyTool {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn behaviour(&self) -> Behaviour {
        self.tool.behaviour()
    }

    fn sequence(&self) -> Option<Sequence<'_>> {
        self.tool.sequence()
    }

    fn approval(&self, args: &Value) -> Option<String> {
        self.tool.approval(args)
    }

    fn changes_files(&self) -> Option<bool> {
        self.tool.changes_files()
    }

    fn subject(&self, argument: &str, args: &Value) -> Option<Subject> {
        self.tool.subject(argument, args)
    }

    fn in_folder(&self, folder: &Path) -> io::Result<Option<Arc<dyn Tool>>> {
        let tool = self.tool.in_folder(folder)?;
        Ok(tool.map(|tool| Arc::new(Self { tool, sim: self.sim.clone() }) as Arc<dyn Tool>))
    }

    fn reconcile<'a>(&'a self, idempotency_key: &'a str) -> ReconcileFuture<'a> {
        self.tool.reconcile(idempotency_key)
    }

    fn call(&self, args: Value, cx: ToolCx) -> ToolFuture<'_> {
        Box::pin(async move {
            let name = &self.tool.spec().name;
            let fails = self.sim.fault(&cx.idempotency_key).is_some_and(|draw| draw % 4 == 0);
            self.sim.pass(CrashPoint::BeforeTool(name.clone())).await;
            let reply = self.tool.call(args, cx).await;
            self.sim.pass(CrashPoint::AfterTool(name.clone())).await;
            if fails {
                Err(ToolError::failed("the connection broke after the call was sent: as simulated"))
            } else {
                reply
            }
        })
    }
}
