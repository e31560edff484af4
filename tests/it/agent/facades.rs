//! The agent in the form of other designs, with a scripted model and over
//! loopback.

mod agentscope;
mod cococat;
mod graph;
mod harness;
mod opencode;

use std::{future::Future, sync::Arc};

use superstep::{
    agent::{Agent, AgentBuilder, ReactConfig},
    llm::{ApiKey, ModelRetry, OpenAiConfig, OpenAiModel, retries::Jitter},
};
use superstep_testing::{
    script::{Answer, Script, call},
    scripted::ScriptedModel,
    wire::WireServer,
};

use super::{kit::Kit, paused, real};

/// The entry point of a facade.
pub(super) struct Asked {
    /// An agent without a configuration, with the tools of the scenarios.
    pub(super) agent: AgentBuilder,
    pub(super) kit: Kit,
}

/// The sent requests and the executed calls.
#[derive(Debug, PartialEq)]
pub(super) struct Sent {
    pub(super) requests: usize,
    /// The texts of the last request, with its roles.
    pub(super) last: Vec<String>,
    pub(super) offered_tools: bool,
    pub(super) echoed: usize,
}

/// The tools of the scenarios.
pub(super) const TOOLS: &[&str] = &["echo", "slow", "hang", "send"];

/// Plays the same scenario at both levels, which must agree, and returns the result.
pub(super) fn both<T, F>(answers: &[Answer], play: impl Fn(Asked) -> F) -> (T, Sent)
where
    T: PartialEq + std::fmt::Debug,
    F: Future<Output = T>,
{
    let script = || Script::new(answers.to_vec());
    let asked = |agent: AgentBuilder, kit: &Kit| {
        let tools = kit.tools(TOOLS);
        Asked { agent: agent.tools(tools), kit: kit.clone() }
    };
    let wire = super::WireConfig { model: "m".to_owned(), ..Default::default() };
    let here = paused(async {
        let (model, kit) = (ScriptedModel::new(script()), Kit::new(&[]));
        let made = play(asked(Agent::builder(Arc::new(model.clone())), &kit)).await;
        model.check().unwrap();
        let requests: Vec<_> = model
            .requests()
            .iter()
            .map(|request| serde_json::to_value(wire.body(request)).unwrap())
            .collect();
        (made, sent(&requests, &kit))
    });
    let wired = real(async {
        let server = WireServer::start(script()).await.unwrap();
        let config = OpenAiConfig::new(server.base_url(), ApiKey::new("sk-test"), "m");
        let kit = Kit::new(&[]).without_time();
        let model = OpenAiModel::new(config).unwrap();
        let made = play(asked(Agent::builder(Arc::new(model)), &kit)).await;
        server.check().unwrap();
        (made, sent(&server.requests(), &kit))
    });
    assert_eq!(here, wired, "the levels differ");
    here
}

fn sent(requests: &[serde_json::Value], kit: &Kit) -> Sent {
    let last = requests.last().cloned().unwrap_or_default();
    let text = |message: &serde_json::Value| {
        format!("{}: {}", message["role"].as_str().unwrap(), message["content"].as_str().unwrap_or_default())
    };
    Sent {
        requests: requests.len(),
        last: last["messages"].as_array().into_iter().flatten().map(text).collect(),
        offered_tools: last.get("tools").is_some(),
        echoed: kit.n("echo"),
    }
}

/// Returns a preset whose retries have no delay.
fn at_once(preset: ReactConfig) -> ReactConfig {
    let retry = ModelRetry { base: std::time::Duration::ZERO, jitter: Jitter::None, ..preset.retry };
    ReactConfig { retry, ..preset }
}

fn echo(n: usize) -> Answer {
    call(&format!("c{n}"), "echo", &format!(r#"{{"x":"{n}"}}"#))
}
