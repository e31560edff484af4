//! Cancellations at every event of a turn, after which the conversation can continue.

use std::sync::Arc;

use futures::StreamExt;
use superstep::{
    Checkpointer, Event, MemoryCheckpointer, RunOptions, State, StreamMode,
    agent::{Agent, AgentOutcome, AgentState, ReactConfig, config::ToolMode},
    llm::Message,
};
use superstep_testing::{
    script::{Answer, Script, txt},
    scripted::ScriptedModel,
};

use super::{Scenario, check, kit::Kit, paused};

/// Returns answers with reasoning, three tool calls and text, each with delays, so that listeners receive
/// events as they happen.
fn turn() -> Vec<Answer> {
    let calls = Answer::stream().text(["let "]).delay(5).text(["me"]).delay(5);
    let calls = calls.call(0, "c0", "slow", [r#"{"x":"#, r#""b"}"#]).delay(5);
    let calls = calls.call(1, "c1", "slow", [r#"{"x":"c"}"#]).call(2, "c2", "echo", [r#"{"x":"1"}"#]);
    let answer = Answer::stream().text(["o"]).delay(5).text(["k"]).delay(5).end("stop").done();
    vec![calls.delay(5).end("tool_calls").done(), answer]
}

fn agent(
    config: &ReactConfig,
    answers: Vec<Answer>,
    store: Option<Arc<dyn Checkpointer>>,
) -> (Agent, ScriptedModel) {
    let model = ScriptedModel::new(Script::new(answers));
    let scenario = Scenario { config: config.clone(), ..Scenario::new([]) }.tools(&["echo", "slow"]);
    let agent = scenario.agent(Arc::new(model.clone()), &Kit::default());
    let agent = match store {
        Some(store) => agent.checkpointer(store),
        None => agent,
    };
    (agent.build().unwrap(), model)
}

/// Returns the state of a turn that is cancelled at its nth event, and whether it has one.
async fn cancelled(agent: &Agent, config: RunOptions, nth: usize) -> (AgentState, bool) {
    let token = config.get_cancel().clone();
    let mut stream = agent.configured(config).stream(agent.input("go"), [StreamMode::Custom]);
    let mut seen = 0;
    while let Some(event) = stream.next().await {
        if matches!(event, Event::Custom { .. }) {
            if seen == nth {
                token.cancel();
            }
            seen += 1;
        }
    }
    (stream.outcome().await.unwrap().state, seen > nth)
}

/// Removes the id of a message, which belongs to a place on one thread.
fn nameless(message: &Message) -> Message {
    message.clone().with_id("")
}

/// Asserts that the next request contains the stored conversation without repairs.
fn is_sent_as_it_is(model: &ScriptedModel, before: &AgentState) {
    let request = model.requests().pop().unwrap();
    let stored: Vec<Message> = before.messages.iter().map(nameless).collect();
    let sent: Vec<Message> = request.messages.iter().take(stored.len()).map(nameless).collect();
    assert_eq!(sent, stored);
}

fn ended(state: &AgentState, nth: usize) {
    check::calls_are_answered(state.messages.iter());
    check::the_end_fits(state);
    let outcome = state.outcome.unwrap();
    assert!(matches!(outcome, AgentOutcome::Cancelled | AgentOutcome::Completed), "{nth}: {outcome:?}");
    assert_eq!(state.metadata.is_interrupted, outcome == AgentOutcome::Cancelled, "{nth}");
}

#[test]
fn a_turn_that_is_cancelled_at_any_event_is_followed_by_another_or_resumed() {
    let parallel = |config| ReactConfig { tool_mode: ToolMode::Parallel { max: 8 }, ..config };
    let configs = [
        super::preset(),
        parallel(super::preset()),
        ReactConfig::opencode(),
        parallel(ReactConfig::agentscope()),
    ];
    for config in &configs {
        let mut cancels = 0;
        for nth in 0.. {
            let store: Arc<dyn Checkpointer> = Arc::new(MemoryCheckpointer::new());
            let more = paused(async {
                let (first, _) = agent(config, turn(), Some(store.clone()));
                let (state, more) = cancelled(&first, RunOptions::new().thread("t"), nth).await;
                ended(&state, nth);
                cancels += usize::from(state.outcome == Some(AgentOutcome::Cancelled));
                store.copy(&"t".into(), &"u".into()).await.unwrap();

                let (second, model) = agent(config, vec![txt("fine")], Some(store.clone()));
                let reply = second.thread("t").ask("go on").await.unwrap();
                assert_eq!((reply.text.as_str(), reply.outcome), ("fine", AgentOutcome::Completed));
                is_sent_as_it_is(&model, &state);

                let (third, _) = agent(config, vec![txt("fine")], Some(store));
                let reply = third.thread("u").resume().await.unwrap();
                let wanted = if state.outcome == Some(AgentOutcome::Cancelled) { "fine" } else { "ok" };
                assert_eq!((reply.text.as_str(), reply.outcome), (wanted, AgentOutcome::Completed));
                let resumed = third.graph().thread("u").state().await.unwrap().values;
                check::calls_are_answered(resumed.messages.iter());
                more
            });
            if !more {
                break;
            }
        }
        assert!(cancels > 10, "only {cancels} of the events came before the end");
    }
}

#[test]
fn without_a_checkpointer_the_conversation_is_handed_on() {
    for nth in 0.. {
        let more = paused(async {
            let config = super::preset();
            let (first, _) = agent(&config, turn(), None);
            let (state, more) = cancelled(&first, RunOptions::new(), nth).await;
            ended(&state, nth);
            let (second, model) = agent(&config, vec![txt("fine")], None);
            let said = state.messages.iter().map(nameless).chain([Message::user("go on")]);
            let input = AgentState::update().messages(said.collect::<Vec<_>>());
            let end = second.graph().run(input).await.unwrap();
            assert_eq!(end.state.final_reply, "fine");
            is_sent_as_it_is(&model, &state);
            more
        });
        if !more {
            return;
        }
    }
}
