//! Programs that stop at a write or are cancelled at an event, and their continuation.

use std::sync::Arc;

use futures::StreamExt;
use serde_json::Value;
use superstep::{
    Checkpointer, Event, MemoryCheckpointer, StreamMode,
    agent::{Agent, AgentState, Reply},
    llm::{ApiKey, ChatModel, OpenAiConfig, OpenAiModel, Role},
};
use superstep_testing::{
    script::{Answer, Script},
    scripted::ScriptedModel,
    wire::WireServer,
};

use super::{
    check,
    writes::{At, watched},
};
use crate::support::{head, t};

/// The places where a program stops: before or after a write.
pub(crate) const STOPS: [At; 2] = [At::HangsBefore, At::HangsAfter];

/// The kind of model: a script in this process, or a server on loopback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Here,
    Wired,
}

pub(crate) const LEVELS: [Level; 2] = [Level::Here, Level::Wired];

/// Creates a model with these answers, and its server, which must live as long.
pub(crate) async fn model(
    level: Level,
    answers: impl IntoIterator<Item = Answer>,
) -> (Arc<dyn ChatModel>, Option<WireServer>) {
    let script = Script::new(answers);
    if level == Level::Here {
        return (Arc::new(ScriptedModel::new(script)), None);
    }
    let server = WireServer::start(script).await.unwrap();
    let config = OpenAiConfig::new(server.base_url(), ApiKey::new("sk-test"), "m");
    (Arc::new(OpenAiModel::new(config).unwrap()), Some(server))
}

/// The result of a turn whose program stopped.
pub(crate) struct Lives {
    /// `true` if it stopped: tests try places until one is not reached.
    pub(crate) stopped: bool,
    pub(crate) reply: Reply,
    /// Returns the agent of the last program.
    pub(crate) agent: Agent,
}

/// Runs a turn in a program that stops at the `n`-th write, and continues in another one.
pub(crate) async fn lives(
    (at, n): (At, usize),
    level: Level,
    answers: &[Answer],
    program: impl AsyncFn(Arc<dyn ChatModel>, Arc<dyn Checkpointer>) -> Agent,
) -> Lives {
    let store = Arc::new(MemoryCheckpointer::new());
    let (stops, now) = watched(store.clone(), at, n);
    let (first, server) = model(level, answers.to_vec()).await;
    let agent = program(first, stops).await;
    let ended = tokio::select! {
        reply = agent.thread("t").ask("go") => Some(reply.unwrap()),
        () = now.notified() => None,
    };
    if let Some(reply) = ended {
        return Lives { stopped: false, reply, agent };
    }
    drop((agent, server));
    let stored = store.load(&"t".into(), None).await.unwrap().is_some();
    let (all, all_server) = model(level, []).await;
    let reader = program(all, store.clone()).await;
    let said = match stored {
        true => head(reader.graph())
            .await
            .values
            .messages
            .iter()
            .filter(|said| said.role == Role::Assistant)
            .count(),
        false => 0,
    };
    drop((reader, all_server));
    // Answers of the model that were not stored are given again.
    let (second, server) = model(level, answers[said..].to_vec()).await;
    let agent = program(second, store.clone()).await;
    let reply = match stored {
        true => agent.thread("t").resume().await.unwrap(),
        false => agent.thread("t").ask("go").await.unwrap(),
    };
    if let Some(server) = server {
        server.check().unwrap();
    }
    Lives { stopped: true, reply, agent }
}

/// Runs a turn that is cancelled at its `n`-th event, and returns its events; `None` if there are fewer.
pub(crate) async fn cancelled_at(n: usize, agent: &Agent) -> Option<Value> {
    let config = t();
    let token = config.get_cancel().clone();
    let mut stream = agent.configured(config).stream(agent.input("go"), [StreamMode::Custom]);
    let (mut seen, mut last) = (0, None);
    while let Some(event) = stream.next().await {
        if let Event::Custom { data, .. } = event {
            seen += 1;
            if seen == n {
                token.cancel();
                last = Some(data);
            }
        }
    }
    stream.outcome().await.unwrap();
    last
}

/// Returns the state of the thread, whose conversation is whole.
pub(crate) async fn state(agent: &Agent) -> AgentState {
    let state = head(agent.graph()).await.values;
    check::calls_are_answered(state.messages.iter());
    state
}
