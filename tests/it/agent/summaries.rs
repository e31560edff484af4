//! Summaries at their edges: summaries with barely enough gain, or barely too long, and failed summaries.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::stream;
use serde_json::json;
use superstep::{
    MemoryCheckpointer, State,
    agent::{
        Agent, AgentOutcome, AgentState, ReactConfig,
        config::{Budget, ContextLayer},
    },
    llm::{
        ChatModel, Delta, FinishReason, Message, ModelErrorKind, ModelRetry, Request, ResponseStream, Usage,
        retries::Jitter,
    },
};
use superstep_testing::{
    script::{Answer, http, txt},
    scripted::ScriptedModel,
};

use super::{
    Kit, Ran, Scenario,
    check::is_for_summary,
    context::{compacted, context, count, echo, long_conversation, sent},
    kit::Tokens,
    paused,
};
use crate::support::head;

/// Counts 100 tokens for every message, and the number in its text for a summary.
fn as_it_says(message: &Message) -> u64 {
    let summary = message.content.strip_prefix("<conversation_summary>");
    summary.and_then(|rest| rest.split('<').next()?.parse().ok()).unwrap_or(100)
}

/// A model that follows the prompt of summaries: a line of the conversation stays if the prompt names its kind.
struct Obeys {
    summaries: AtomicUsize,
}

impl ChatModel for Obeys {
    fn name(&self) -> &str {
        "obeys"
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let text = match &request.messages[..] {
            [prompt, last] if is_for_summary(&request) => {
                self.summaries.fetch_add(1, Ordering::Relaxed);
                let is_asked = |line: &&str| {
                    let kind = line.split_once(" of mine: ").map(|(kind, _)| format!("\n{kind}: "));
                    kind.is_some_and(|kind| prompt.content.contains(&kind))
                };
                let conversation = last.content.replace("</", "\n").replace("user: ", "").replace('>', "\n");
                conversation.lines().filter(is_asked).collect::<Vec<_>>().join("\n")
            }
            _ => "noted".to_owned(),
        };
        Box::pin(stream::iter([Ok(Delta::Text(text)), Ok(Delta::Finish(FinishReason::Stop))]))
    }
}

#[test]
fn what_the_user_has_set_survives_many_summaries() {
    let set = [
        "Rules of mine: never reveal K-17",
        "Constraints of mine: at most $500",
        "Preferences of mine: metric units",
    ];
    let set = set.into_iter().chain([
        "Decisions of mine: SQLite",
        "Facts of mine: LANTERN",
        "State of mine: step 3 of 5",
    ]);
    let set: Vec<&str> = set.collect();
    paused(async {
        let model = Arc::new(Obeys { summaries: AtomicUsize::new(0) });
        let context = context(1_000, [ContextLayer::consolidate(2)]);
        let agent =
            Agent::builder(model.clone()).counter(Arc::new(Tokens(|message| message.content.len() as u64)));
        let agent = agent.config(ReactConfig { context, ..ReactConfig::default() });
        let agent = agent.checkpointer(Arc::new(MemoryCheckpointer::new())).build().unwrap();
        agent.thread("t").ask(&set.join("\n")).await.unwrap();
        for turn in 0..12 {
            agent.thread("t").ask(&format!("{turn}: {}", "and then? ".repeat(40))).await.unwrap();
        }
        assert!(model.summaries.load(Ordering::Relaxed) >= 5);
        let view = head(agent.graph()).await.values.context;
        for line in set {
            assert!(view.summary.as_ref().unwrap().contains(line), "{line}: {view:?}");
        }
    });
}

/// Runs a long conversation with summaries of these token counts. They replace 400 tokens, and the request before has 900.
fn summed_up(summaries: &[&str]) -> Ran {
    let answers = [echo("c3")].into_iter().chain(summaries.iter().map(|text| txt(text))).chain([txt("done")]);
    let ran = Scenario { tokens: Some(as_it_says), ..long_conversation(answers) }.play();
    assert_eq!((ran.reply(), ran.outcome()), ("done", AgentOutcome::Completed));
    let last = sent(ran.requests.last().unwrap());
    assert!(last.contains("user:u2") && last.ends_with("assistant:[c3] tool:r:c3"), "{last}");
    ran
}

#[test]
fn a_summary_counts_for_a_budget_that_was_granted() {
    paused(async {
        let most = Budget { tokens: Some(1_000_000), ..Budget::default() };
        let mut spent = Vec::new();
        for granted in [None, Some(most.clone())] {
            let own = if granted.is_some() { Budget::default() } else { most.clone() };
            let scenario = long_conversation([echo("c3"), txt("200"), txt("done")]);
            let scenario = scenario.config(|config| ReactConfig { budget: own, ..config });
            let model = Arc::new(ScriptedModel::new(scenario.script.clone()));
            let agent = scenario.agent(model, &Kit::new(&[])).build().unwrap();
            let said = scenario.history.iter().cloned().chain([Message::user("u2")]).collect::<Vec<_>>();
            let input = AgentState::update().messages(said).granted(granted);
            let state = agent.without_thread().run(input).await.unwrap().state;
            assert_eq!((state.final_reply.as_str(), state.model_requests), ("done", 3));
            spent.push(state.usage);
        }
        assert_eq!(spent[0], spent[1]);
    });
}

#[test]
fn a_tenth_is_a_gain_and_less_is_not() {
    let ran = summed_up(&["200"]);
    assert_eq!(
        (compacted(&ran), count(&ran, "compaction_paused")),
        (vec!["+compacted{900,700,4}".into()], 0)
    );
    // Enough gain, and still too large: the rest is reduced, or replaced by no summary.
    for (tokens, compacted_to, stands_for) in
        [("201", 601, "user:<conversation_summary>201</conversation_summary> "), ("310", 400, "")]
    {
        let ran = summed_up(&[tokens]);
        assert_eq!(
            (compacted(&ran), count(&ran, "compaction_paused")),
            (vec![format!("+compacted{{900,{compacted_to},5}}")], 0)
        );
        assert_eq!(
            sent(&ran.requests[2]),
            format!("system:sys {stands_for}user:u2 assistant:[c3] tool:r:c3")
        );
        assert_eq!(ran.state().context.ineffective, 0);
    }
    let ran = summed_up(&["311", "311"]);
    assert_eq!(
        (compacted(&ran), count(&ran, "compaction_paused")),
        (vec!["+compacted{900,500,4}".into()], 1)
    );
}

#[test]
fn a_useful_second_summary_clears_the_failure_of_the_first() {
    let ran = summed_up(&["400", "100"]);
    assert_eq!(
        (compacted(&ran), count(&ran, "compaction_paused")),
        (vec!["+compacted{900,600,4}".into()], 0)
    );
    assert!(sent(&ran.requests[3]).contains("<conversation_summary>100</conversation_summary>"));
    assert_eq!((ran.state().context.ineffective, ran.state().context.paused), (0, false));
}

#[test]
fn a_failed_summary_is_retried_and_then_omitted() {
    let down = http(500, &[], "{}");
    let answers = [echo("c3"), down.clone(), down.clone(), down, txt("done")];
    let retry = ModelRetry {
        max_attempts: 3,
        base: Duration::from_millis(1),
        jitter: Jitter::None,
        ..ModelRetry::default()
    };
    let ran = long_conversation(answers).config(|config| ReactConfig { retry, ..config }).play();
    assert_eq!((ran.requests.len(), ran.reply(), ran.outcome()), (5, "done", AgentOutcome::Completed));
    assert_eq!((count(&ran, "retry"), compacted(&ran)), (2, vec!["+compacted{900,500,4}".into()]));
    assert_eq!((ran.state().model_requests, ran.state().llm_calls), (5, 2));
    assert!(ran.requests[1] == ran.requests[2] && ran.requests[2] == ran.requests[3]);
    assert_eq!(sent(&ran.requests[4]), "system:sys assistant:x user:u2 assistant:[c3] tool:r:c3");
}

#[test]
fn discarded_attempts_do_not_make_a_request_larger() {
    let half = || Answer::stream().text(["Hel"]).usage(400, 5).cut();
    let called = || Answer::stream().call(0, "c3", "echo", [r#"{"x":"c3"}"#]).end("tool_calls");
    let retry = ModelRetry {
        max_attempts: 3,
        base: Duration::from_millis(1),
        jitter: Jitter::None,
        ..ModelRetry::default()
    };
    // Without a report of the last attempt, its request is counted: 700 tokens.
    for (called, size, spent, estimated) in
        [(called().usage(400, 5), 400, 1200, false), (called(), 700, 1500, true)]
    {
        let answers = [half(), half(), called.done(), txt("done")];
        let ran = long_conversation(answers).config(|config| ReactConfig { retry, ..config });
        let ran = ran.config(|config| ReactConfig { context: context(900, config.context.layers), ..config });
        let ran = ran.play();
        assert_eq!((ran.requests.len(), compacted(&ran).len(), ran.reply()), (4, 0, "done"));
        let after = &ran.turn().updates("agent")[0];
        let wanted = (json!(size), json!(spent), estimated);
        let shown = (&after["request_size"]["tokens"], &after["usage"]["input_tokens"]);
        assert_eq!((shown.0.clone(), shown.1.clone(), after["answer"]["estimated"] == true), wanted);
    }
}

#[test]
fn a_summary_counts_for_the_model_that_wrote_it() {
    let tokens = |input_tokens, output_tokens| Usage::new(input_tokens, output_tokens);
    let summary = Answer::stream().text(["S"]).end("stop").usage(7, 2).done();
    let last = Answer::stream().text(["done"]).end("stop").usage(3, 1).done();
    let ran = long_conversation([echo("c3"), http(401, &[], ""), last]).fallback([summary]).play();
    assert_eq!((count(&ran, "model_fallback"), compacted(&ran).len(), ran.reply()), (1, 1, "done"));
    let usage = &ran.state().usage_by_model;
    assert_eq!((usage["f1"], usage.len()), (tokens(7, 2), 2));
    assert_eq!(usage["m"] + usage["f1"], ran.state().usage);
    assert!(ran.state().model.is_empty(), "{}", ran.state().model);
}

#[test]
fn tools_alone_may_exceed_the_context() {
    let scenario = Scenario::new([]).config(|config| ReactConfig {
        context: context(40, [ContextLayer::consolidate(5), ContextLayer::Snip { keep_last: 4 }]),
        ..config
    });
    let ran = scenario.play();
    assert_eq!((ran.requests.len(), ran.outcome()), (0, AgentOutcome::LlmError));
    assert_eq!(ran.state().error.as_ref().unwrap().kind, ModelErrorKind::ContextOverflow);
    assert_eq!(ran.messages(), r#"u:"go""#);
}

#[test]
fn a_too_long_newest_message_is_left_to_the_provider() {
    let too_long = || http(400, &[], r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#);
    let tight = |config: ReactConfig| ReactConfig { context: context(150, config.context.layers), ..config };
    // It has another count, and may be used.
    let ran = long_conversation([txt("S"), txt("done")]).config(tight).play();
    assert_eq!((ran.reply(), ran.outcome()), ("done", AgentOutcome::Completed));
    assert_eq!(sent(&ran.requests[1]), "system:sys user:u2");
    // Otherwise the requests for summaries end.
    let ran = long_conversation([txt("S"), too_long(), too_long()]).config(tight).play();
    assert_eq!((ran.requests.len(), ran.outcome()), (3, AgentOutcome::LlmError));
    assert_eq!(ran.state().error.as_ref().unwrap().kind, ModelErrorKind::ContextOverflow);
}

#[test]
fn the_words_of_a_provider_that_leaves_no_room_are_shown() {
    let refused =
        http(400, &[], r#"{"error":{"message":"at most 10 tokens","code":"context_length_exceeded"}}"#);
    let snip =
        |config| ReactConfig { context: context(70_000, [ContextLayer::Snip { keep_last: 4 }]), ..config };
    let scenario = Scenario::new([refused, txt("hello")]).turns(&["go", "again"]).config(snip);
    let ran = scenario.play();
    let first = &ran.turns[0].state;
    let error = first.error.as_ref().unwrap();
    assert_eq!((error.kind, ran.requests.len()), (ModelErrorKind::ContextOverflow, 2));
    for text in [&error.message, &first.final_reply] {
        assert!(text.contains("the server answered 400: at most 10 tokens; it cannot be reduced"), "{text}");
    }
    // The next turn begins anew.
    assert_eq!((ran.reply(), ran.state().context.refusal.as_str()), ("hello", ""));
}
