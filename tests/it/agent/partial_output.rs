//! Replies with a schema, while they are written.

use serde_json::{Value, json};
use superstep::agent::{
    AgentOutcome, ReactConfig,
    config::{Finish, LengthPolicy, Limit, OutputMode},
};
use superstep_testing::script::{Answer, call};

use super::{Cancel, Ran, Scenario};

const FINISH: &str = "generate_response";

fn asked(output: OutputMode, schema: Value, answers: impl IntoIterator<Item = Answer>) -> Scenario {
    let finish = Finish { output, schema: Some(schema), ..Finish::default() };
    Scenario::new(answers).config(|config| ReactConfig { finish, ..config })
}

fn items() -> Value {
    json!({"type": "object", "properties": {"items": {"type": "array"}}, "required": ["items"]})
}

/// Returns the events of the partial reply, including those that void it.
fn told(ran: &Ran) -> String {
    let shown = ran.events();
    let tells =
        |event: &&str| event.starts_with("+output_partial") || event.starts_with("+attempt_discarded");
    shown.split(' ').filter(tells).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_partial_output_is_reported_while_it_is_written() {
    let list = json!({"type": "array", "items": {"type": "string"}});
    let pieces = [r#"{"result":["a"#, r#"b","#, r#" "c"]}"#];
    let answer = Answer::stream().call(0, "c1", FINISH, pieces).end("tool_calls").done();
    let ran = asked(OutputMode::Tool, list, [answer]).play();
    assert_eq!(
        ran.events().split(" tool_start").next().unwrap(),
        r#"a▸ +output_partial{["a"]} +output_partial{["ab"]} +output_partial{["ab","c"]} ◂a"#
    );
    assert_eq!(ran.state().output, Some(json!(["ab", "c"])));
}

#[test]
fn a_text_reply_is_reported_incrementally() {
    for output in [OutputMode::Native, OutputMode::Prompted] {
        let pieces = ["```json\n", r#"{"items":["#, r#"1,"#, r#"2]}"#, "\n```"];
        let ran = asked(output, items(), [Answer::stream().text(pieces).end("stop").done()]).play();
        let parts = [r#"{"items":[]}"#, r#"{"items":[1]}"#, r#"{"items":[1,2]}"#];
        assert_eq!(
            told(&ran),
            parts.map(|part| format!("+output_partial{{{part}}}")).join(" "),
            "{output:?}"
        );
        assert_eq!(ran.state().output, Some(json!({"items": [1, 2]})));
    }
}

#[test]
fn the_reply_at_the_step_limit_is_reported_incrementally() {
    for output in [OutputMode::Tool, OutputMode::Native, OutputMode::Prompted] {
        let reply = Answer::stream().text([r#"{"items":["a"#, r#"b"]}"#]).end("stop").done();
        let ran = asked(output, items(), [call("c1", "echo", r#"{"x":"1"}"#), reply])
            .config(|config| ReactConfig { limit: Limit { max: 1, ..config.limit.clone() }, ..config })
            .play();
        let parts = [r#"{"items":["a"]}"#, r#"{"items":["ab"]}"#];
        assert_eq!(
            told(&ran),
            parts.map(|part| format!("+output_partial{{{part}}}")).join(" "),
            "{output:?}"
        );
    }
}

#[test]
fn a_continued_reply_is_reported_from_its_beginning() {
    let first = Answer::stream().text([r#"{"items":[{"name":"a"},"#]).end("length").done();
    let rest = Answer::stream().text([r#"{"name":"b"}"#, "]}"]).end("stop").done();
    let ran = asked(OutputMode::Native, items(), [first, rest])
        .config(|config| ReactConfig {
            length: LengthPolicy::Continue { max: 3, prompt: "continue".into() },
            ..config
        })
        .play();
    let (one, two) = (r#"{"items":[{"name":"a"}]}"#, r#"{"items":[{"name":"a"},{"name":"b"}]}"#);
    assert_eq!(told(&ran), [one, two].map(|part| format!("+output_partial{{{part}}}"))[..].join(" "));
    assert_eq!(ran.state().output, Some(json!({"items": [{"name": "a"}, {"name": "b"}]})));
}

#[test]
fn text_before_another_call_is_not_part_of_the_reply() {
    let chat = Answer::stream().text([r#"I'll send {"items":[1]}."#]);
    let answer = chat.call(0, "c1", "echo", [r#"{"x":"1"}"#]).end("tool_calls").done();
    let ran = asked(OutputMode::Tool, items(), [answer, call("c2", FINISH, r#"{"items":[2]}"#)]).play();
    assert_eq!(told(&ran), r#"+output_partial{{"items":[2]}}"#);
}

#[test]
fn output_of_a_discarded_attempt_is_void() {
    let began =
        |end: fn(Answer) -> Answer| end(Answer::stream().call(0, "c1", FINISH, [r#"{"items":["tea"#]));
    let (part, void) = (r#"+output_partial{{"items":["tea"]}}"#, "+attempt_discarded{1}");
    // A retried reply is emitted again, including equal parts.
    let whole = call("c2", FINISH, r#"{"items":["tea"]}"#);
    let ran = asked(OutputMode::Tool, items(), [began(|answer| answer.cut()), whole]).play();
    assert_eq!(told(&ran), [part, void, part].join(" "));
    // No attempt follows the last one, and a cancelled turn has no other.
    let mut last = asked(OutputMode::Tool, items(), [began(|answer| answer.cut())]);
    last.config.retry.max_attempts = 1;
    let ran = last.play();
    assert_eq!((told(&ran), ran.outcome()), ([part, void].join(" "), AgentOutcome::LlmError));
    let slow = began(|answer| answer.delay(100).end("tool_calls").done());
    let ran = Scenario { cancel: Cancel::At(50), ..asked(OutputMode::Tool, items(), [slow]) }.play_here();
    assert_eq!((told(&ran), ran.outcome()), ([part, void].join(" "), AgentOutcome::Cancelled));
}

#[test]
fn a_long_reply_is_reported_in_larger_steps_and_a_too_long_one_not_at_all() {
    let reply = |length: usize| {
        let pieces = (0..length).map(|_| "0123456789abcdef");
        let pieces = [r#"{"items":[""#].into_iter().chain(pieces).chain([r#""]}"#]);
        let answer = Answer::stream().call(0, "c1", FINISH, pieces).end("tool_calls").done();
        let ran = asked(OutputMode::Tool, items(), [answer]).play_here();
        let of_output = ran.turn().told.iter().filter(|told| told.name == "output_partial");
        let longest = of_output.clone().map(|told| told.data.to_string().len()).max();
        assert_eq!(ran.state().output.as_ref().unwrap()["items"][0].as_str().unwrap().len(), 16 * length);
        (of_output.count(), longest.unwrap())
    };
    // 16 bytes are a 64th of 1 KiB.
    assert_eq!(reply(32).0, 33);
    let (told, longest) = reply(6_000);
    assert!((200..600).contains(&told), "{told}");
    assert!((62 * 1024..66 * 1024).contains(&longest), "{longest}");
}
