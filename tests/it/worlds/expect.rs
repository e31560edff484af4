//! Models and tools whose calls a test expects.

use serde_json::json;
use superstep::llm::{ApiKey, Message, ModelErrorKind, OpenAiConfig, OpenAiModel, Request, ToolCx, complete};
use superstep_testing::{
    script::http,
    scripted::{ScriptedModel, ScriptedTool},
    wire::WireServer,
};

use super::{agent, panic_of, without_lines};

fn asks(text: &str) -> Request {
    Request { messages: vec![Message::system("You are brief."), Message::user(text)], ..Request::default() }
}

#[tokio::test(start_paused = true)]
async fn an_agent_makes_the_expected_calls_of_its_model_and_its_tools() {
    let (model, expect) = ScriptedModel::pair();
    let weather = ScriptedTool::named("weather")
        .expect(json!({"city": "Oslo"}))
        .returns("rain")
        .expect(json!({"city": "Atlantis"}))
        .fails("no such city");
    expect
        .user("What about Oslo and Atlantis?")
        .tools(["weather"])
        .reply_tool_calls([("weather", json!({"city": "Atlantis"})), ("weather", json!({"city": "Oslo"}))]);
    expect
        .tool_result("weather", "rain")
        .tool_result_contains("weather", "no such city")
        .reply_text("It rains in Oslo.");

    let agent = agent(model, [weather.tool()]);
    let reply = agent.ask("What about Oslo and Atlantis?").await.unwrap();
    assert_eq!(reply.text, "It rains in Oslo.");
    assert_eq!(weather.calls().len(), 2);
    expect.assert_done();
    weather.assert_done();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_match_fails_with_its_difference() {
    let (model, expect) = ScriptedModel::pair();
    expect.user("hi").reply_text("hello");
    expect.user("bye").tools(["add"]).system_contains("polite").reply_text("bye");
    complete(&model, asks("hi")).await.unwrap();
    let error = complete(&model, asks("good bye")).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::BadRequest);
    // A later call that would match does not hide the first failure.
    complete(&model, asks("bye")).await.unwrap_err();
    insta::assert_snapshot!(without_lines(&panic_of(|| drop(expect))), @r#"
    model call 2 does not match what expect.rs:LINE expects
      user
        expected "bye"
        got      "good bye"
      tools
        expected "add"
        got      ""
      system
        expected … "polite" …
        got      "You are brief."
    conversation
      system "You are brief."
      user "good bye"
    "#);
}

#[tokio::test(start_paused = true)]
async fn results_of_several_lines_differ_line_by_line() {
    let (model, expect) = ScriptedModel::pair();
    expect.user("read").reply_tool_call("read_file", json!({"path": "a"}));
    expect.tool_result("read_file", "one\ntwo\nthree\n").reply_text("done");
    let mut request = asks("read");
    let called = complete(&model, request.clone()).await.unwrap().message;
    assert_eq!(called.tool_calls[0].id, "call_1");
    request.messages.extend([called, Message::tool("call_1", "one\nzwei\nthree\n")]);
    complete(&model, request).await.unwrap_err();
    insta::assert_snapshot!(without_lines(&panic_of(|| expect.assert_done())), @r#"
    model call 2 does not match what expect.rs:LINE expects
      result of read_file, - expected, + got
         one
        -two
        +zwei
         three
    conversation
      system "You are brief."
      user "read"
      assistant calls read_file {"path":"a"}
      tool read_file "one\nzwei\nthree\n"
    "#);
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_not_made_or_not_expected_fail_the_test() {
    let (model, expect) = ScriptedModel::pair();
    expect.user("hi").reply_text("hello");
    expect.call().user_contains("weather").reply_text("rain");
    expect.call().reply(http(503, &[], "busy"));
    complete(&model, asks("hi")).await.unwrap();
    insta::assert_snapshot!(without_lines(&panic_of(|| drop(expect))), @r#"
    2 expected model calls were not made
      call 2, of expect.rs:LINE: user … "weather" …
      call 3, of expect.rs:LINE: any conversation
    call 1 was the last one
    conversation
      system "You are brief."
      user "hi"
    "#);

    let (model, expect) = ScriptedModel::pair();
    complete(&model, asks("hi")).await.unwrap_err();
    insta::assert_snapshot!(panic_of(|| drop(expect)), @r#"
    model call 1 is not expected
    conversation
      system "You are brief."
      user "hi"
    "#);
}

#[test]
fn a_panic_of_the_test_is_not_hidden_by_a_second_one() {
    let panic = panic_of(|| {
        let (_model, expect) = ScriptedModel::pair();
        let tool = ScriptedTool::named("weather").expect_any().returns("rain");
        expect.user("hi").reply_text("hello");
        let reason = format!("the test itself failed with {}", tool.calls().len());
        panic!("{reason}");
    });
    assert_eq!(panic, "the test itself failed with 0");
}

#[tokio::test]
async fn calls_of_a_tool_differ_by_their_arguments() {
    let weather = ScriptedTool::named("weather").expect(json!({"city": "Oslo", "days": 2})).returns("rain");
    let called = weather.tool().call(json!({"city": "Bergen", "days": 2}), ToolCx::new("c1")).await;
    assert!(called.is_err());
    insta::assert_snapshot!(without_lines(&panic_of(|| weather.assert_done())), @r#"
    call 1 of the tool `weather` does not match what expect.rs:LINE expects
      arguments, - expected, + got
         {
        -  "city": "Oslo",
        +  "city": "Bergen",
           "days": 2
         }
    "#);

    let weather = ScriptedTool::named("weather").expect(json!({"city": "Oslo"})).returns("rain");
    let tool = weather.tool();
    tool.call(json!({"city": "Oslo"}), ToolCx::new("c1")).await.unwrap();
    let weather = weather.expect_any().returns("snow");
    insta::assert_snapshot!(without_lines(&panic_of(|| drop(weather))), @r#"
    expected calls of the tool `weather` were not made
      any arguments, of expect.rs:LINE
    calls so far
      {"city":"Oslo"}
    "#);
}

#[tokio::test]
async fn a_server_has_the_same_expectations() {
    let (server, expect) = WireServer::pair().await.unwrap();
    expect.user("hi").reply_text("hello");
    let config = OpenAiConfig::new(server.base_url(), ApiKey::default(), "m");
    let model = OpenAiModel::new(config).unwrap();
    assert_eq!(complete(&model, asks("hi")).await.unwrap().message.content, "hello");
    complete(&model, asks("hi")).await.unwrap_err();
    let text = panic_of(|| expect.assert_done());
    assert!(text.starts_with("model call 2 is not expected\n"), "{text}");
}
