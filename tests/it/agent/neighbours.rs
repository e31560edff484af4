//! Every preset at small limits, with every kind of answer, and the end of each turn.

use superstep::{
    agent::{ReactConfig, config::Limit, presets::PRESETS},
    llm::{ModelRetry, retries::Jitter},
};
use superstep_testing::script::{Answer, call, calls, http, txt};

use super::Scenario;

/// Returns the kinds of model behaviour, each repeated.
fn kinds() -> Vec<(&'static str, Vec<Answer>)> {
    let echoes = |n: usize| -> Vec<Answer> {
        (0..n).map(|n| call(&format!("c{n}"), "echo", &format!(r#"{{"x":"{n}"}}"#))).collect()
    };
    let again = |answer: Answer| vec![answer; 40];
    let with = |mut answers: Vec<Answer>, last: Answer| {
        answers.push(last);
        answers
    };
    let spoken =
        Answer::stream().text(["let me"]).call(0, "c", "echo", [r#"{"x":"1"}"#]).end("tool_calls").done();
    vec![
        ("text", vec![txt("añ😀b")]),
        ("one call, then text", with(echoes(1), txt("done"))),
        ("calls without end", echoes(40)),
        ("the same call without end", again(call("c", "echo", r#"{"x":"1"}"#))),
        ("the same call with words without end", again(spoken)),
        (
            "three calls at once, equal",
            with(
                vec![calls([
                    ("a", "echo", r#"{"x":"1"}"#),
                    ("b", "echo", r#"{"x":"1"}"#),
                    ("c", "echo", r#"{"x":"1"}"#),
                ])],
                txt("done"),
            ),
        ),
        ("nothing", again(Answer::stream().end("stop").done())),
        ("nothing but thoughts", again(Answer::stream().reasoning("hm").end("stop").done())),
        ("a cut text", again(Answer::stream().text(["part "]).end("length").done())),
        ("a filtered text", again(Answer::stream().text(["part "]).end("content_filter").done())),
        ("a cut call", again(Answer::stream().call(0, "c", "echo", [r#"{"x":"1"}"#]).end("length").done())),
        ("an unknown tool", with(vec![call("c", "nope", "{}")], txt("done"))),
        ("broken arguments", with(vec![call("c", "echo", "{x")], txt("done"))),
        ("503", again(http(503, &[], r#"{"error":{"message":"busy"}}"#))),
        ("400", again(http(400, &[], r#"{"error":{"message":"no"}}"#))),
    ]
}

fn ends() -> String {
    let mut table = String::new();
    for (kind, answers) in kinds() {
        table += &format!("# {kind}\n");
        for preset in PRESETS {
            for max in [0, 1, 2, 5] {
                let config = (preset.config)();
                let limit = Limit { max, ..config.limit.clone() };
                let retry = ModelRetry { jitter: Jitter::None, ..config.retry };
                let scenario = Scenario::new(answers.clone());
                let config = ReactConfig { limit, retry, ..config };
                let ran = Scenario { config, exact: false, ..scenario }.play_here();
                let state = ran.state();
                table += &format!(
                    "{} {max}: {} requests, {} rounds, {} executed, {} {:?} → {}\n",
                    preset.name,
                    ran.requests.len(),
                    state.current_step,
                    ran.kit.n("echo"),
                    ran.outcome().as_str(),
                    state.stop_reason.as_str(),
                    ran.reply(),
                );
            }
        }
    }
    table
}

#[test]
fn turns_end_as_they_should() {
    insta::assert_snapshot!(ends());
}
