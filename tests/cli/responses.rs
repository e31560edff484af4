//! Responses of unusual servers and models.

use serde_json::{Value, json};
use superstep_testing::script::{Answer, call, txt};

use crate::support::{Place, Ran, serve};

/// Runs a turn with a configuration and flags. Returns the requests too.
async fn run(place: &Place, config: &str, flags: &[&str], answers: Vec<Answer>) -> (Ran, Vec<Value>) {
    let server = serve(answers).await;
    place.file("c.toml", config);
    let url = server.base_url();
    let args = ["run", "go", "--config", "c.toml", "--base-url", &url, "--model", "m"];
    let ran = place.run(&[&args, flags].concat()).await;
    (ran, server.requests())
}

fn end(ran: &Ran) -> Value {
    ran.lines().pop().unwrap()["data"].clone()
}

#[tokio::test]
async fn a_call_in_a_refusal_is_not_made_whatever_the_finish_reason() {
    let call = |answer: Answer| answer.call(0, "c1", "write_file", [r#"{"path":"a","content":"x"}"#]);
    for reason in ["stop", "tool_calls", "length", "eos"] {
        let place = Place::new();
        let refusal = Answer::stream().chunk(r#"{"refusal":"I cannot."}"#, None);
        for answer in [call(refusal.clone()).end(reason).done(), refusal.end(reason).done()] {
            let (ran, requests) = run(&place, "", &["--yes", "--json"], vec![answer, txt("more")]).await;
            let end = end(&ran);
            assert_eq!(
                (&end["outcome"], &end["final_reply"]),
                (&json!("refusal"), &json!("I cannot.")),
                "{reason}"
            );
            assert_eq!((requests.len(), place.work().join("a").exists()), (1, false), "{reason}");
        }
    }
}

#[tokio::test]
async fn a_call_that_is_only_considered_is_not_made() {
    let place = Place::new();
    let call = r#"<tool_call>{"name":"write_file","arguments":{"path":"a","content":"x"}}</tool_call>"#;
    let said = format!("<think>I could run\n{call}\nbut better not.</think>\nHello");
    let (ran, requests) = run(&place, "", &["--yes", "-q"], vec![txt(&said), txt("more")]).await;
    assert_eq!((ran.ok().stdout, requests.len()), (format!("{said}\n"), 1));
    assert!(!place.work().join("a").exists());
}

#[tokio::test]
async fn a_json_reply_that_looks_like_a_call_is_the_reply() {
    let place = Place::new();
    let schema = "[finish]\noutput = \"prompted\"\n[finish.schema]\ntype = \"object\"\nrequired = [\"name\", \"arguments\"]\n\
                  [finish.schema.properties]\nname = { type = \"string\" }\narguments = { type = \"object\" }\n";
    let reply = r#"{"name":"calculate","arguments":{"expression":"1+1"}}"#;
    for output in ["prompted", "native"] {
        let schema = schema.replace("prompted", output);
        let (ran, requests) = run(&place, &schema, &["--json"], vec![txt(reply), txt("more")]).await;
        let end = end(&ran.ok());
        assert_eq!((&end["outcome"], &end["final_reply"]), (&json!("completed"), &json!(reply)), "{output}");
        assert_eq!((&end["output"]["name"], requests.len()), (&json!("calculate"), 1), "{output}");
    }
    let (ran, requests) = run(&place, "", &["--json"], vec![txt(reply), txt("2")]).await;
    assert_eq!((&end(&ran.ok())["final_reply"], requests.len()), (&json!("2"), 2));
}

#[tokio::test]
async fn a_character_cut_between_its_escapes_is_one() {
    let place = Place::new();
    let call = Answer::stream()
        .call(0, "c1", "write_file", [])
        .data(r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"path\":\"a\",\"content\":\"\ud83d"}}]}}]}"#)
        .data(r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\ude00\"}"}}]}}]}"#)
        .end("tool_calls")
        .done();
    let text = Answer::stream()
        .data(r#"{"choices":[{"delta":{"content":"a\ud83d"}}]}"#)
        .data(r#"{"choices":[{"delta":{"content":"\ude00b\ud83d"}}]}"#)
        .end("stop")
        .done();
    let (ran, requests) = run(&place, "", &["--yes", "-q"], vec![call, text]).await;
    assert_eq!((ran.ok().stdout.as_str(), requests.len()), ("a😀b\u{FFFD}\n", 2));
    assert_eq!(std::fs::read_to_string(place.work().join("a")).unwrap(), "😀");
}

#[tokio::test]
async fn two_calls_of_a_tool_without_ids_are_two() {
    let place = Place::new();
    let piece = |function: Value| {
        json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": function}]}}]}).to_string()
    };
    let mut answer = Answer::stream();
    for expression in ["1+1", "2+2"] {
        answer = answer.data(&piece(json!({"name": "calculate", "arguments": ""})));
        answer = answer.data(&piece(json!({"arguments": json!({"expression": expression}).to_string()})));
    }
    let (ran, requests) = run(&place, "", &["-q"], vec![answer.end("tool_calls").done(), txt("ok")]).await;
    assert_eq!(ran.ok().stdout, "ok\n");
    let messages = requests[1]["messages"].as_array().unwrap();
    let results = messages.iter().filter(|message| message["role"] == "tool");
    assert_eq!(results.map(|result| &result["content"]).collect::<Vec<_>>(), ["2", "4"]);
}

#[tokio::test]
async fn a_streamed_reply_is_printed_once() {
    let place = Place::new();
    let schema = "[finish.schema]\ntype = \"object\"\nrequired = [\"answer\"]\n[finish.schema.properties]\nanswer = { type = \"integer\" }\n";
    for (config, reply) in [
        ("preset = \"agentscope\"\n", "plain text"),
        ("[finish]\nby = \"tool\"\n", "plain text"),
        (schema, r#"{"answer":3}"#),
    ] {
        let ran = run(&place, config, &[], vec![txt(reply)]).await.0.ok();
        assert_eq!(ran.stdout, format!("{reply}\n"), "{config}");
        let sum = call("c1", "calculate", r#"{"expression":"1"}"#);
        let ran = run(&place, config, &[], vec![sum, txt(reply)]).await.0.ok();
        assert_eq!(ran.stdout, format!("{reply}\n"), "{config}");
    }
}

#[tokio::test]
async fn a_request_that_cannot_be_shortened_is_reported_with_its_excess() {
    let place = Place::new();
    let long = json!({"path": "none", "content": "word ".repeat(8_000)}).to_string();
    let config =
        "[context]\nwindow = 6000\nbudget = { ratio = 1.0 }\nlayers = [{ snip = { keep_last = 4 } }]\n";
    let (ran, requests) = run(&place, config, &[], vec![call("c1", "read_file", &long), txt("ok")]).await;
    let ran = ran.ok();
    assert_eq!((ran.stdout.as_str(), requests.len()), ("ok\n", 2));
    assert!(!ran.stderr.contains("was shortened"), "{}", ran.stderr);
    let excess = ran.stderr.lines().find_map(|line| line.strip_prefix("the last request was ")).unwrap();
    let (tokens, rest) = excess.split_once(' ').unwrap();
    assert!(tokens.parse::<u64>().unwrap() > 1_000, "{excess}");
    assert_eq!(rest, "tokens more than `context` allows, and could not be shortened");
}

#[tokio::test]
async fn a_turn_that_a_failed_tool_ended_fails() {
    let place = Place::new();
    let failing = || vec![call("c1", "read_file", r#"{"path":"none"}"#), txt("more")];
    let (ran, requests) = run(&place, "tool_errors = \"fail\"\n", &["--json"], failing()).await;
    assert_eq!(
        (ran.code, &end(&ran)["outcome"], requests.len()),
        (Some(1), &json!("tool_error"), 1),
        "{ran:?}"
    );
    let (ran, _) = run(&place, "", &["--json"], failing()).await;
    assert_eq!((ran.code, &end(&ran)["outcome"]), (Some(0), &json!("completed")), "{ran:?}");
}

#[tokio::test]
async fn a_part_of_a_summary_does_not_replace_the_conversation() {
    let config = "[context]\nbudget = { tokens = 3000 }\nlayers = [{ consolidate = { keep_recent = 2 } }]\n";
    let cut = Answer::stream().text(["SUM"]).end("length").done();
    let calls = Answer::stream().text(["SUM"]).call(0, "c9", "calculate", ["{}"]).end("tool_calls").done();
    for (summary, replaces) in [(cut, false), (calls, false), (txt("SUM"), true)] {
        let place = Place::new();
        place.file("long.txt", &"one more line\n".repeat(900));
        let reads = call("c1", "read_file", r#"{"path":"long.txt"}"#);
        let sums = call("c2", "calculate", r#"{"expression":"1+1"}"#);
        let (ran, requests) = run(&place, config, &["-q"], vec![reads, sums, summary, txt("ok")]).await;
        assert_eq!((ran.ok().stdout.as_str(), requests.len()), ("ok\n", 4));
        assert_eq!(requests[2].get("tools"), None);
        let last = requests[3].to_string();
        assert_eq!(
            (last.contains("<conversation_summary>"), last.contains("one more line")),
            (replaces, !replaces)
        );
    }
}
