//! The behaviour of each preset where the designs differ.

use serde_json::Value;
use superstep::{
    agent::{
        AgentOutcome, ReactConfig,
        config::{Limit, LoopAction, LoopRule, Repeat, ResultOrder, ToolMode},
    },
    llm::{ModelRetry, retries::Jitter},
};
use superstep_testing::script::{Answer, call, http, txt};

use super::{Cancel, Ran, Scenario};

fn echo(id: &str, x: &str) -> Answer {
    call(id, "echo", &format!(r#"{{"x":"{x}"}}"#))
}

/// Creates the preset with exact delays, and with at most `max` steps if given.
fn preset(name: &str, max: Option<u32>) -> ReactConfig {
    let config = ReactConfig::preset(name).unwrap();
    let limit = Limit { max: max.unwrap_or(config.limit.max), ..config.limit.clone() };
    ReactConfig { limit, retry: ModelRetry { jitter: Jitter::None, ..config.retry }, ..config }
}

fn of(name: &str, max: Option<u32>, answers: impl IntoIterator<Item = Answer>) -> Scenario {
    Scenario { config: preset(name, max), ..Scenario::new(answers) }
}

fn messages(request: &Value) -> Vec<(&str, &str)> {
    let messages = request["messages"].as_array().unwrap();
    messages
        .iter()
        .map(|message| (message["role"].as_str().unwrap(), message["content"].as_str().unwrap_or_default()))
        .collect()
}

fn has_tools(ran: &Ran) -> Vec<bool> {
    ran.requests.iter().map(|request| request.get("tools").is_some()).collect()
}

fn three_rounds(last: Option<Answer>) -> Vec<Answer> {
    [echo("c1", "1"), echo("c2", "2"), echo("c3", "3")].into_iter().chain(last).collect()
}

#[test]
fn cococat_ends_with_the_last_message() {
    let ran = of("cococat", Some(3), three_rounds(None)).play();
    assert_eq!((ran.requests.len(), ran.kit.n("echo"), ran.reply()), (3, 3, "r:3"));
    assert_eq!((ran.state().current_step, ran.outcome()), (3, AgentOutcome::Limit));
}

#[test]
fn opencode_is_reminded_at_its_last_call() {
    let two = || [echo("c1", "1"), echo("c2", "2")];
    let ran = of("opencode", Some(3), two().into_iter().chain([txt("partial")])).play();
    assert_eq!((ran.requests.len(), ran.kit.n("echo"), ran.reply()), (3, 2, "partial"));
    let (role, last) = *messages(&ran.requests[2]).last().unwrap();
    assert_eq!((role, last.starts_with("This is the last step")), ("user", true), "{last}");
    assert_eq!(ran.outcome(), AgentOutcome::Limit);

    let ran = of("opencode", Some(3), three_rounds(None)).play();
    assert_eq!((ran.requests.len(), ran.kit.n("echo"), ran.state().current_step), (3, 2, 2));
    assert_eq!(ran.result("c3"), "Error: step limit reached, not executed.");
    assert_eq!(
        ran.reply(),
        "No answer: the step limit was reached before the model gave an answer (max_steps)."
    );
}

#[test]
fn harness_ends_with_a_fixed_reply() {
    let ran = of("harness", Some(3), three_rounds(None)).play();
    assert_eq!((ran.requests.len(), ran.kit.n("echo"), ran.reply()), (3, 3, "Max iterations reached."));
    assert_eq!(ran.state().metadata.tools_used.len(), 3);
    assert_eq!(ran.state().messages.last().unwrap().content, "r:3");

    let ran = of("harness", Some(0), []).play();
    assert_eq!((ran.requests.len(), ran.reply()), (0, "Max iterations reached."));
}

#[test]
fn agentscope_summarises_without_tools() {
    let ran = of("agentscope", Some(3), three_rounds(Some(txt("partial")))).play();
    assert_eq!((has_tools(&ran), ran.kit.n("echo")), (vec![true, true, true, false], 3));
    let summarise = "You have failed to generate response within the maximum iterations. Now respond directly by \
                     summarizing the current situation.";
    assert_eq!(*messages(&ran.requests[3]).last().unwrap(), ("user", summarise));
    assert_eq!((ran.reply(), ran.outcome()), ("partial", AgentOutcome::Limit));
    assert!(ran.state().messages.iter().all(|message| message.content != summarise));
}

#[test]
fn a_limit_may_fail_the_run() {
    let mut config = preset("graph", Some(1));
    config.limit.at = superstep::agent::config::AtLimit::Fail;
    let model =
        superstep_testing::scripted::ScriptedModel::new(superstep_testing::script::Script::new([echo(
            "c1", "1",
        )]));
    let kit = super::Kit::default();
    let scenario = Scenario { config, ..Scenario::new([]) };
    let agent = scenario.agent(std::sync::Arc::new(model), &kit).build().unwrap();
    let error = super::paused(agent.ask("go")).unwrap_err();
    assert_eq!(
        superstep::error::chain(&error),
        "SS101: superstep 5: node `agent` failed after 1 attempt: the turn reached its limit of 1 without an answer"
    );
}

#[test]
fn cococat_replies_with_the_error() {
    let ran =
        of("cococat", None, [http(503, &[], "a"), http(503, &[], "b"), http(503, &[], "c")]).play_here();
    assert_eq!((ran.times.as_slice(), ran.outcome()), (&[0, 1000, 3000][..], AgentOutcome::LlmError));
    assert_eq!(ran.reply(), ran.state().error.as_ref().unwrap().message);
}

#[test]
fn opencode_asks_again_after_a_broken_connection() {
    let broken = Answer::stream().text(["Hel", "lo wor"]).cut();
    for first in [Answer::NoConnection, broken] {
        let ran = of("opencode", None, [first, txt("Hello world")]).play_here();
        assert_eq!((ran.reply(), ran.state().model_requests), ("Hello world", 2));
        assert!(ran.events().contains("+retry{2,1000,null}"), "{}", ran.events());
    }
}

#[test]
fn an_answer_that_was_cut_off_is_continued() {
    let cut = |text: &str| Answer::stream().text([text]).end("length").done();
    let ran = of("cococat", None, [cut("The answer "), txt("is 42.")]).play();
    assert_eq!((ran.reply(), ran.requests.len(), ran.state().llm_calls), ("The answer is 42.", 2, 2));
    assert_eq!(messages(&ran.requests[1])[1..], [("assistant", "The answer "), ("user", "continue")]);
    assert_eq!((ran.messages().as_str(), ran.state().current_step), ("u:\"go\", a:\"The answer is 42.\"", 0));
    assert_eq!(ran.outcome(), AgentOutcome::Completed);

    let ran = of("cococat", None, [cut("The answer "), cut("answer ")]).play();
    assert_eq!((ran.reply(), ran.requests.len(), ran.outcome()), ("The answer ", 2, AgentOutcome::Length));

    // What was thought before a repeated text is discarded with it; before no text, it is kept.
    let thinks = |text: &str| Answer::stream().reasoning("hm").text([text]).end("length").done();
    let ran = of("cococat", None, [cut("The answer "), thinks("answer ")]).play();
    let last = ran.state().messages.last().unwrap().clone();
    assert_eq!((&*last.content, &*last.reasoning, ran.outcome()), ("The answer ", "", AgentOutcome::Length));
    let only = Answer::stream().reasoning("hm").end("length").done();
    let ran = of("cococat", None, [cut("The answer "), only]).play();
    let last = ran.state().messages.last().unwrap().clone();
    assert_eq!((&*last.content, &*last.reasoning), ("The answer ", "hm"));

    let bound = preset("default", None);
    let ran = Scenario { config: bound, ..Scenario::new([cut("a"), cut("b"), cut("c"), cut("d")]) }.play();
    assert_eq!((ran.reply(), ran.requests.len()), ("abcd", 4));
    assert_eq!((ran.state().stop_reason.as_str(), ran.outcome()), ("length_limit", AgentOutcome::Length));

    let ran = of("cococat", None, [cut("The answer "), Answer::stream().end("length").done()]).play();
    assert_eq!((ran.reply(), ran.requests.len(), ran.outcome()), ("The answer ", 2, AgentOutcome::Completed));

    let ran = of("graph", None, [cut("The answer ")]).play();
    assert_eq!((ran.reply(), ran.requests.len(), ran.outcome()), ("The answer ", 1, AgentOutcome::Completed));
    assert!(ran.events().contains("+truncated_answer"), "{}", ran.events());
}

#[test]
fn a_response_at_the_limit_is_continued_by_the_fixed_word_only() {
    let cut = Answer::stream().text(["The answer "]).end("length").done();
    let ran = of("default", Some(1), [echo("c1", "1"), cut, txt("is 42.")]).play();
    assert_eq!((ran.reply(), ran.requests.len()), ("The answer is 42.", 3));
    let told = |request: &Value| messages(request).last().unwrap().1.to_owned();
    assert!(told(&ran.requests[1]).starts_with("You have failed to generate"), "{}", told(&ran.requests[1]));
    let third = messages(&ran.requests[2]);
    assert_eq!(third[third.len() - 2..], [("assistant", "The answer "), ("user", "continue")]);
}

#[test]
fn the_text_at_the_limit_is_the_reply() {
    let same = (0..3).map(|n| echo(&format!("c{n}"), "1")).chain([txt("partial")]);
    let ran = of("default", Some(3), same).play();
    let told = messages(&ran.requests[3]);
    let [(_, loops), (_, limit)] = told[told.len() - 2..] else { panic!("{told:?}") };
    assert!(loops.starts_with("You repeated 'echo' 3 times"), "{loops}");
    assert!(limit.starts_with("You have failed to generate"), "{limit}");
}

#[test]
fn a_turn_continues_after_a_continued_response() {
    let cut = Answer::stream().text(["Let me "]).end("length").done();
    let looks =
        Answer::stream().text(["look."]).call(0, "c1", "echo", [r#"{"x":"1"}"#]).end("tool_calls").done();
    let ran = of("cococat", None, [cut, looks, txt("found")]).play();
    assert_eq!((ran.reply(), ran.kit.n("echo"), ran.requests.len()), ("found", 1, 3));
    let second: Vec<_> = ran.state().messages.iter().map(|message| message.content.as_str()).collect();
    assert_eq!(second, ["go", "Let me look.", "r:1", "found"]);
}

#[test]
fn two_cut_off_rounds_lead_to_a_call_without_tools() {
    let cut = |id: &str| Answer::stream().call(0, id, "echo", [r#"{"x":"a"#]).end("length").done();
    let ran = of("default", None, [cut("c1"), cut("c2"), txt("as far as I can tell")]).play();
    assert_eq!((has_tools(&ran), ran.kit.n("echo")), (vec![true, true, false], 0));
    assert_eq!((ran.reply(), ran.outcome()), ("as far as I can tell", AgentOutcome::Length));
    let ran = of("default", None, [cut("c1"), echo("c2", "1"), cut("c3"), txt("ok")]).play();
    assert_eq!((ran.outcome(), ran.kit.n("echo")), (AgentOutcome::Completed, 1));
}

#[test]
fn an_empty_response_is_retried() {
    let empty = || Answer::stream().end("stop").usage(3, 1).done();
    let ran = of("cococat", None, [empty(), txt("ok")]).play();
    assert_eq!((ran.reply(), ran.requests.len(), ran.requests[0] == ran.requests[1]), ("ok", 2, true));
    assert_eq!((ran.messages().as_str(), ran.state().usage.input_tokens), ("u:\"go\", a:\"ok\"", 3));
    assert_eq!(ran.state().llm_calls, 1);

    let blank = Answer::stream().text(["\n "]).end("stop").done();
    let thinks = Answer::stream().reasoning("hm").end("stop").done();
    let ran = of("cococat", None, [blank, thinks, empty(), empty()]).play();
    assert_eq!((ran.requests.len(), ran.outcome()), (4, AgentOutcome::Empty));
    assert_eq!(ran.state().stop_reason.as_str(), "empty_response");
    assert_eq!(ran.reply(), "No answer: the model gave empty answers only (empty_response).");

    let ran = of("default", None, [empty(), txt("ok")]).play();
    let nudge = ("user", "Your last reply was empty. Answer in text or call a tool.");
    assert_eq!(messages(&ran.requests[1]), [("user", "go"), nudge]);
    assert_eq!(ran.messages(), "u:\"go\", a:\"ok\"");

    let ran = of("default", None, [empty(), empty(), empty(), txt("at last")]).play();
    assert_eq!((has_tools(&ran), ran.reply()), (vec![true, true, true, false], "at last"));
    let ran = of("default", None, [empty(), empty(), empty(), empty()]).play();
    assert_eq!((ran.requests.len(), ran.outcome()), (4, AgentOutcome::Empty));

    for name in ["harness", "graph"] {
        let ran = of(name, None, [empty()]).play();
        assert_eq!((ran.requests.len(), ran.reply(), ran.outcome()), (1, "", AgentOutcome::Completed));
    }
}

/// Creates three calls that are equal except for the order of their fields.
fn identical() -> Vec<Answer> {
    let args = [r#"{"x":"a","y":1}"#, r#"{"y":1,"x":"a"}"#, r#"{ "x":"a", "y":1 }"#];
    (1..).zip(args).map(|(n, args)| call(&format!("c{n}"), "echo", args)).chain([txt("sorry")]).collect()
}

#[test]
fn opencode_refuses_the_third_identical_call() {
    let ran = of("opencode", None, identical()).play();
    assert_eq!((ran.kit.n("echo"), ran.reply(), ran.outcome()), (2, "sorry", AgentOutcome::Completed));
    let warning =
        "You repeated 'echo' 3 times with the same arguments and result. Change your approach or answer now.";
    assert_eq!(ran.result("c3"), warning);
    assert!(ran.events().contains("+loop{identical,echo,3}"), "{}", ran.events());

    let raises = LoopRule { when: Repeat::Identical { n: 3 }, then: LoopAction::Stop };
    let config = ReactConfig { loops: vec![raises], ..preset("opencode", None) };
    let ran = Scenario { config, ..Scenario::new(identical().into_iter().take(3)) }.play();
    assert_eq!(
        (ran.kit.n("echo"), ran.outcome(), ran.result("c3")),
        (2, AgentOutcome::LoopDetected, warning)
    );

    let config = ReactConfig { loops: Vec::new(), ..preset("opencode", None) };
    assert_eq!(Scenario { config, ..Scenario::new(identical()) }.play().kit.n("echo"), 3);

    let broken = [echo("c1", "a"), echo("c2", "a"), echo("c3", "b"), echo("c4", "a"), txt("ok")];
    assert_eq!(of("opencode", None, broken).play().kit.n("echo"), 4);
}

#[test]
fn a_refused_repetition_names_only_what_is_the_same() {
    let refused = |when, args: [&str; 4], found: &[&'static str]| {
        let rule = LoopRule { when, then: LoopAction::Refuse };
        let config = ReactConfig { loops: vec![rule], ..preset("default", None) };
        let calls = (0..).zip(args).map(|(n, args)| call(&format!("c{n}"), "search", args));
        let scenario = Scenario { config, found: found.to_vec(), ..Scenario::new(calls.chain([txt("ok")])) };
        let ran = scenario.tools(&["search"]).play();
        ["c2", "c3"].map(|id| ran.result(id).to_owned())
    };
    let same = [r#"{"q":"Rust"}"#; 4];
    let text = |n: usize, what: &str| {
        format!("You repeated 'search' {n} times with {what}. Change your approach or answer now.")
    };
    let identical = Repeat::Identical { n: 3 };
    let found = refused(identical, same, &["10 hits", "10 hits"]);
    assert_eq!(found, [3, 4].map(|n| text(n, "the same arguments and result")));
    let found = refused(identical, same, &["10 hits", "11 hits"]);
    assert_eq!(found, [3, 4].map(|n| text(n, "the same arguments")));
    // A result that was there before is not a new one.
    let found = refused(Repeat::NoProgress { n: 3 }, same, &["10 hits", "11 hits", "10 hits"]);
    assert_eq!(found, ["10 hits".to_owned(), text(3, "the same arguments")]);
    let similar = Repeat::Similar { n: 3, threshold: 0.9 };
    let spelt = [r#"{"q":"Rust"}"#, r#"{"q":"rust"}"#, r#"{"q":"rust "}"#, r#"{"q":"RUST"}"#];
    let found = refused(similar, spelt, &["10 hits", "10 hits"]);
    assert_eq!(found, [3, 4].map(|n| text(n, "similar arguments and the same result")));
    let found = refused(similar, spelt, &["10 hits: a, b", "10 hits: a, b."]);
    assert_eq!(found, [3, 4].map(|n| text(n, "similar arguments")));
}

#[test]
fn the_default_warns_of_calls_without_progress_refuses_them_and_then_asks_for_an_answer() {
    let calls = |n: usize| (0..n).map(|n| echo(&format!("c{n}"), "a"));
    let ran = of("default", None, calls(3).chain([txt("ok")])).play();
    let warning =
        "You repeated 'echo' 3 times with the same arguments and result. Change your approach or answer now.";
    assert_eq!(*messages(&ran.requests[3]).last().unwrap(), ("user", warning));
    assert_eq!((ran.kit.n("echo"), ran.outcome()), (3, AgentOutcome::Completed));
    // The fourth and the fifth are rejected; then there is an answer.
    let ran = of("default", None, calls(5).chain([txt("as far as I can tell")])).play();
    assert_eq!((ran.kit.n("echo"), ran.result("c3")), (3, &*warning.replace('3', "4")));
    assert_eq!(has_tools(&ran), [true, true, true, true, true, false]);
    let end =
        "You repeated 'echo' 5 times with the same arguments and result. Answer now with what you have.";
    assert_eq!(*messages(&ran.requests[5]).last().unwrap(), ("user", end));
    assert_eq!((ran.reply(), ran.outcome()), ("as far as I can tell", AgentOutcome::LoopDetected));
    assert_eq!(ran.state().metadata.stop_reason.as_str(), "loop_detected");
    // Further calls of the model run no tool, and the reply has the reason.
    let ran = of("default", None, calls(6)).play();
    assert_eq!((ran.kit.n("echo"), ran.requests.len(), ran.outcome()), (3, 6, AgentOutcome::LoopDetected));
    assert_eq!(
        ran.reply(),
        "No answer: the model repeated the same tool call with the same result (loop_detected)."
    );

    let pattern = |n: usize| (0..n).map(|n| echo(&format!("c{n}"), ["a", "b"][n % 2]));
    let ran = of("default", None, pattern(6).chain([txt("ok")])).play();
    assert!(ran.events().contains("+loop{period,echo,3}"), "{}", ran.events());
    let ran = of("default", None, pattern(10).chain([txt("enough")])).play();
    assert_eq!((ran.kit.n("echo"), ran.reply(), ran.outcome()), (7, "enough", AgentOutcome::LoopDetected));
}

#[test]
fn equal_calls_of_one_answer_are_judged_once_their_results_were_read() {
    let batch = |from: usize, n: usize| {
        let call = |(at, n): (usize, usize)| (at, format!("c{n}"));
        (from..from + n)
            .enumerate()
            .map(call)
            .fold(Answer::stream(), |answer, (at, id)| answer.call(at, &id, "echo", [r#"{"x":"a"}"#]))
    };
    let batch = |from: usize, n: usize| batch(from, n).end("tool_calls").done();
    for name in ["default", "opencode", "graph"] {
        let ran = of(name, None, [batch(0, 5), txt("done")]).play();
        assert_eq!((ran.kit.n("echo"), ran.reply()), (5, "done"), "{name}");
        assert_eq!(ran.outcome(), AgentOutcome::Completed, "{name}");
    }
    // The model was notified, and repeats it.
    let ran = of("default", None, [batch(0, 5), batch(5, 2), txt("done")]).play();
    assert_eq!((ran.kit.n("echo"), ran.outcome()), (5, AgentOutcome::LoopDetected));
    let ran = of("opencode", None, [batch(0, 5), batch(5, 2), txt("done")]).play();
    assert_eq!((ran.kit.n("echo"), ran.outcome()), (5, AgentOutcome::Completed));
}

#[test]
fn only_a_text_that_was_not_there_before_is_progress() {
    let searches = |n: usize| (0..n).map(|n| call(&format!("c{n}"), "search", r#"{"q":"state"}"#));
    let scenario = |found: &[&'static str], calls: usize| {
        let scenario = of("default", None, searches(calls).chain([txt("ok")])).tools(&["search"]);
        Scenario { found: found.to_vec(), ..scenario }.play()
    };
    let ran = scenario(&["10%", "20%", "30%", "40%", "50%"], 5);
    assert_eq!((ran.kit.n("search"), ran.outcome()), (5, AgentOutcome::Completed));
    assert!(!ran.events().contains("+loop"), "{}", ran.events());
    // Alternating between two texts is not a loop.
    let ran = scenario(&["up", "down", "up", "down"], 4);
    assert!(ran.events().contains("+loop{no_progress,search,3}"), "{}", ran.events());
}

#[test]
fn different_paths_with_equal_errors_are_not_a_loop() {
    let missing = "Error: no such file";
    let looks = |paths: [&str; 2]| {
        let calls = paths.map(|path| call(path, "search", &serde_json::json!({ "q": path }).to_string()));
        let scenario =
            of("graph", None, calls.into_iter().chain([txt("neither is there")])).tools(&["search"]);
        Scenario { found: vec![missing, missing], ..scenario }
    };
    for paths in [
        ["crates/agent/src/nodes/main.rs", "crates/agent/src/nodes/mail.rs"],
        ["docs/README.md", "docs/readme.md"],
        ["notes/a.txt", "notes/./a.txt"],
    ] {
        let ran = looks(paths).play();
        assert_eq!((ran.reply(), ran.outcome()), ("neither is there", AgentOutcome::Completed), "{paths:?}");
    }
    let mut same = looks(["a.txt", "a.txt"]);
    same.script.answers.pop();
    assert_eq!(same.play().outcome(), AgentOutcome::LoopDetected);
}

#[test]
fn opencode_continues_after_tools_with_a_synthetic_user_message() {
    let ran = of("opencode", None, [echo("c1", "1"), txt("done")]).play();
    let synthetic = "Based on the tool output above, continue with your task.";
    assert_eq!(*messages(&ran.requests[1]).last().unwrap(), ("user", synthetic));
    let stored: Vec<_> = ran.state().messages.iter().filter(|message| message.synthetic).collect();
    assert_eq!((stored.len(), stored[0].content.as_str()), (1, synthetic));
    assert_eq!(ran.state().messages.last().unwrap().content, "done");
    let without = of("graph", None, [echo("c1", "1"), txt("done")]).play();
    assert!(without.state().messages.iter().all(|message| !message.synthetic));
}

#[test]
fn agentscope_adds_a_reply_when_it_is_interrupted() {
    let batch = Answer::stream().call(0, "c0", "echo", [r#"{"x":"1"}"#]).call(1, "c1", "hang", ["{}"]);
    let batch = batch.call(2, "c2", "echo", [r#"{"x":"2"}"#]).end("tool_calls").done();
    let scenario = of("agentscope", None, [batch, txt("going on")]).tools(&["echo", "hang"]);
    let ran = Scenario { cancel: Cancel::At(50), turns: vec!["go", "go on"], ..scenario }.play_here();
    let first = &ran.turns[0].state;
    let halt = "I noticed that you have interrupted me. What can I do for you?";
    let interrupted = "The tool call has been interrupted by the user.";
    let said: Vec<_> = first.messages.iter().skip(2).map(|message| message.content.as_str()).collect();
    assert_eq!(said, ["r:1", interrupted, interrupted, halt]);
    assert_eq!((first.final_reply.as_str(), first.metadata.is_interrupted), (halt, true));
    assert_eq!((ran.kit.n("echo"), first.outcome), (1, Some(AgentOutcome::Cancelled)));
    assert_eq!(ran.reply(), "going on");
}

#[test]
fn results_may_be_stored_as_they_come() {
    let calls =
        Answer::stream().call(0, "c0", "slow", [r#"{"x":"a"}"#]).call(1, "c1", "slow", [r#"{"x":"b"}"#]);
    let calls = calls.call(2, "c2", "slow", [r#"{"x":"c"}"#]).end("tool_calls").done();
    let mut config = preset("cococat", None);
    config.result_order = ResultOrder::Completion;
    assert_eq!(config.tool_mode, ToolMode::Parallel { max: 5 });
    let model = superstep_testing::scripted::ScriptedModel::new(superstep_testing::script::Script::new([
        calls,
        txt("ok"),
    ]));
    let scenario = Scenario { config, ..Scenario::new([]) }.tools(&["slow"]);
    let agent = scenario.agent(std::sync::Arc::new(model.clone()), &super::Kit::default()).build().unwrap();
    let ran = super::paused(async {
        use superstep::State;
        let go = superstep::agent::AgentState::update().messages([superstep::llm::Message::user("go")]);
        agent.graph().run(go).await.unwrap()
    });
    let results: Vec<_> = ran.state.messages.iter().map(|message| message.tool_call_id.as_str()).collect();
    assert_eq!(results, ["", "", "c2", "c1", "c0", ""]);
    let sent = &model.requests()[1].messages;
    let sent: Vec<_> = sent.iter().map(|message| message.tool_call_id.as_str()).collect();
    assert_eq!(sent, ["", "", "c2", "c1", "c0"], "the model reads them as they came");
}

#[test]
fn a_single_round_is_complete_with_its_answer() {
    let single = |answers: Vec<Answer>| {
        let config = ReactConfig::single_round(preset("graph", None));
        Scenario { config, ..Scenario::new(answers) }.play()
    };
    let ran = single(vec![echo("c1", "1"), txt("done")]);
    assert_eq!((ran.reply(), ran.outcome()), ("done", AgentOutcome::Completed));
    assert_eq!((has_tools(&ran), ran.state().stop_reason.as_str()), (vec![true, false], ""));
    let ran = single(vec![echo("c1", "1"), echo("c2", "2")]);
    assert_eq!((ran.kit.n("echo"), ran.outcome()), (1, AgentOutcome::Limit));
}
