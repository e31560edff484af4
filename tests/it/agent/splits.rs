//! Answers split into network reads at any place.

use std::sync::Arc;

use futures::StreamExt;
use superstep::{
    Event, StreamMode,
    agent::{Agent, AgentState},
    llm::{ApiKey, OpenAiConfig, OpenAiModel},
};
use superstep_testing::{
    script::{Answer, Script, txt},
    wire::WireServer,
};

use super::{kit::Kit, preset, real, show, show::Told, stream::ADD_CALL};

/// Plays `first` unchanged, split at every byte, and byte by byte; each time followed by `rest`. All runs are
/// equal.
fn play_all_cuts(first: Answer, rest: &[Answer]) -> (String, AgentState) {
    let length = first.bytes().len();
    let cuts = (1..length).map(|at| first.clone().split_at([at]));
    let variants: Vec<Answer> =
        [first.clone(), first.clone().byte_by_byte()].into_iter().chain(cuts).collect();
    let count = variants.len();
    assert!(count > 100, "{count} ways to cut are too few");
    let answers = variants.into_iter().flat_map(|first| [vec![first], rest.to_vec()].concat());
    real(async {
        let server = WireServer::start(Script::new(answers)).await.unwrap();
        let config = OpenAiConfig::new(server.base_url(), ApiKey::new("sk-test"), "m");
        let agent = Agent::builder(Arc::new(OpenAiModel::new(config).unwrap())).config(preset());
        let agent = agent.tools(Kit::default().tools(&["add"])).build().unwrap();
        let uncut = play(&agent).await;
        assert!(!uncut.0.contains('\u{fffd}'));
        for cut in 1..count {
            assert_eq!(play(&agent).await, uncut, "cut {cut}");
        }
        server.check().unwrap();
        uncut
    })
}

async fn play(agent: &Agent) -> (String, AgentState) {
    let mut stream = agent.without_thread().stream(agent.input("go"), [StreamMode::Custom]);
    let mut told = Vec::new();
    while let Some(event) = stream.next().await {
        if let Event::Custom { name, data, .. } = event {
            told.push(Told { at: 0, name, data });
        }
    }
    (show::events(&told), stream.outcome().await.unwrap().state)
}

#[test]
fn a_text_is_equal_for_any_split_of_its_bytes() {
    let (events, state) = play_all_cuts(txt("añ😀b"), &[]);
    assert_eq!(events, "a▸ tok(añ😀b) ◂a");
    assert_eq!(state.final_reply, "añ😀b");
}

#[test]
fn a_call_is_equal_for_any_split_of_its_bytes() {
    let (events, state) = play_all_cuts(Answer::sse(ADD_CALL), &[txt("5")]);
    assert_eq!(events, r#"a▸ ◂a tool_start{add,{"a":2,"b":3},call_1} tool_end{add,call_1,"5"} a▸ tok(5) ◂a"#);
    assert_eq!(state.usage.input_tokens, 20);
}
