//! Several models, named by a configuration.

use std::fs;

use superstep_testing::script::{Answer, call, http, txt};

use crate::support::{Place, ended, serve};

const MAIN_KEY: &str = "sk-key-of-main";
const OTHER_KEY: &str = "sk-key-of-fallback";

/// Writes a configuration and returns its path.
fn config(place: &Place, text: &str) -> String {
    let file = place.beside("models.toml");
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_fallback_answers_with_a_key_of_its_own_and_the_thread_remembers_it() {
    let place = Place::new();
    let refusal = || http(401, &[], "{}");
    let main = serve([refusal(), refusal()]).await;
    let thought =
        Answer::stream().text(["<think>hm</think>", "from the other"]).end("stop").usage(7, 2).done();
    let other = serve([thought, txt("again")]).await;
    let file = config(
        &place,
        &format!(
            "preset = \"graph\"\n[models.main]\nmodel = \"a\"\nbase_url = \"{}\"\nkey_env = \"MAIN_KEY\"\n\
             [[models.fallback]]\nname = \"spare\"\nmodel = \"b\"\nbase_url = \"{}\"\nkey_env = \"OTHER_KEY\"\n\
             think_tags = true\nmax_tokens = 50\nextra = {{ seed = 1 }}\n",
            main.base_url(),
            other.base_url()
        ),
    );
    let mut run = place.command(&["run", "hi", "--thread", "t", "--json", "--config", &file]);
    let ran = ended(run.env("MAIN_KEY", MAIN_KEY).env("OTHER_KEY", OTHER_KEY)).await.ok();
    let lines = ran.lines();
    let fell_back = lines.iter().find(|line| line["event"] == "model_fallback").unwrap();
    assert_eq!(fell_back["data"]["from"], "a");
    assert_eq!(fell_back["data"]["to"], "spare");
    let end = &lines.last().unwrap()["data"];
    assert_eq!(end["final_reply"], "from the other");
    assert_eq!(end["metadata"]["model"], "spare");
    assert_eq!(end["metadata"]["usage_by_model"]["spare"]["input_tokens"], 7);

    let mut run = place.command(&["run", "go on", "--thread", "t"]);
    let ran = ended(run.env("MAIN_KEY", MAIN_KEY).env("OTHER_KEY", OTHER_KEY)).await.ok();
    assert_eq!(ran.stdout, "again\n");
    assert!(ran.stderr.contains("a failed: the server answered 401; calling spare"), "{}", ran.stderr);

    for (server, key) in [(&main, MAIN_KEY), (&other, OTHER_KEY)] {
        assert_eq!(server.received().len(), 2);
        for received in server.received() {
            assert_eq!(received.headers["authorization"], format!("Bearer {key}"));
        }
    }
    let body = &other.requests()[0];
    assert_eq!((&body["model"], &body["max_tokens"], &body["seed"]), (&"b".into(), &50.into(), &1.into()));
    for file in fs::read_dir(place.database().parent().unwrap()).unwrap() {
        let path = file.unwrap().path();
        let text = if path.is_file() {
            String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()
        } else {
            String::new()
        };
        assert!(!text.contains(MAIN_KEY) && !text.contains(OTHER_KEY));
    }
}

#[tokio::test]
async fn a_secondary_model_is_on_the_main_models_server_by_default() {
    let place = Place::new();
    let server = serve([http(404, &[], "{}"), txt("ok")]).await;
    let file = config(&place, "[models.fallback]\nmodel = \"small\"\n");
    let args = ["run", "hi", "--config", &file, "--model", "large", "--base-url", &server.base_url()];
    let ran = ended(place.command(&args).env("OPENAI_API_KEY", MAIN_KEY)).await.ok();
    assert_eq!(ran.stdout, "ok\n");
    let received = server.received();
    assert_eq!([&received[0].body["model"], &received[1].body["model"]], ["large", "small"]);
    assert!(received.iter().all(|one| one.headers["authorization"] == format!("Bearer {MAIN_KEY}")));
}

#[tokio::test]
async fn a_key_goes_to_no_server_but_the_one_it_is_for() {
    let place = Place::new();
    let (main, other) = (serve([http(401, &[], "{}")]).await, serve([txt("ok")]).await);
    let text = format!("[models.fallback]\nmodel = \"b\"\nbase_url = \"{}\"\n", other.base_url());
    let file = config(&place, &text);
    let args = ["run", "hi", "--config", &file, "--model", "a", "--base-url", &main.base_url()];
    ended(place.command(&args).env("OPENAI_API_KEY", MAIN_KEY)).await.ok();
    assert!(main.received()[0].headers.contains_key("authorization"));
    assert!(!other.received()[0].headers.contains_key("authorization"));
}

#[tokio::test]
async fn a_database_cannot_send_a_variable_to_a_server_of_its_choice() {
    for models in [
        "[models.main]\nmodel = \"m\"\nbase_url = \"http://0.0.0.0:1/v1\"\nkey_env = \"SECRET\"\n",
        "[models.main]\nmodel = \"offline\"\n\
         [models.fallback]\nmodel = \"m\"\nbase_url = \"http://0.0.0.0:1/v1\"\nkey_env = \"SECRET\"\n",
    ] {
        let place = Place::new();
        let file = config(
            &place,
            &format!("{models}[models.compaction]\nmodel = \"c\"\n[retry]\nmax_attempts = 1\n"),
        );
        let args = ["run", "hi", "--thread", "t", "--config", &file];
        let ran = ended(place.command(&args).env("SECRET", MAIN_KEY)).await;
        assert!(
            ran.stderr.contains(&format!("--config {file}")),
            "the way on names it again: {}",
            ran.stderr
        );
        // Not even to another server named by the user.
        let args = ["run", "hi", "--thread", "t", "--discard"];
        let named = ["--model", "m", "--base-url", "http://0.0.0.0:1/v1"];
        for more in [&[][..], &named[..if models.contains("fallback") { 0 } else { 4 }]] {
            let ran = ended(place.command(&[&args, more].concat()).env("SECRET", MAIN_KEY)).await;
            assert_eq!(ran.code, Some(2), "{ran:?}");
        }
        let ran = ended(place.command(&args).env("SECRET", MAIN_KEY)).await;
        assert!(ran.stderr.contains("the key of SECRET is not sent unless you name it"), "{}", ran.stderr);
    }
}

#[tokio::test]
async fn invalid_model_settings_are_reported_before_any_request() {
    let place = Place::new();
    for (models, wanted) in [
        (
            "[models.main]\nmodel = \"m\"\nkey_env = \"NOT_SET\"\nbase_url = \"http://127.0.0.1:1/v1\"",
            "the configuration takes a key from the variable `NOT_SET`, which is not set",
        ),
        (
            "[models.fallback]\nbase_url = \"http://h/v1\"",
            "the configuration names no `model` for `models.fallback`",
        ),
    ] {
        let file = config(&place, models);
        let model: &[&str] = if models.contains("main") { &[] } else { &["--model", "offline"] };
        place.run(&[&["run", "hi", "--config", &file], model].concat()).await.refused(2, wanted);
    }
    let file = config(&place, "[models.main]\napi_key = \"sk-x\"");
    let ran = place.run(&["run", "hi", "--config", &file]).await;
    let wanted = "does not fit: line 2, column 1: `models.main`: unknown field `api_key`; ";
    assert!(ran.stderr.contains(wanted), "{}", ran.stderr);
    let file = config(
        &place,
        "[models.main]\nmodel = \"m\"\nbase_url = \"http://h/v1\"\n[models.fallback]\nmodel = \"m\"",
    );
    place
        .run(&["run", "hi", "--config", &file])
        .await
        .refused(2, "duplicate model name `m`; set another `name` for one of the models");
}

#[tokio::test]
async fn a_silent_server_times_out_as_configured() {
    let place = Place::new();
    let server = serve([Answer::stream().text(["Hel"]).stall()]).await;
    let file = config(
        &place,
        &format!(
            "[models.main]\nmodel = \"a\"\nbase_url = \"{}\"\ntimeouts = {{ idle_ms = 50 }}\n[retry]\nmax_attempts = 1\n",
            server.base_url()
        ),
    );
    let ran = place.run(&["run", "hi", "--thread", "t", "--config", &file]).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("the server was silent for 0.05 s"), "{}", ran.stderr);
}

#[tokio::test]
async fn a_file_has_the_reply_once_also_if_an_attempt_broke_off() {
    let place = Place::new();
    let call = call("c1", "calculate", r#"{"expression":"2+3"}"#);
    let server = serve([call, Answer::stream().text(["half of", " it"]).cut(), txt("the whole")]).await;
    let file = config(
        &place,
        &format!(
            "[models.main]\nmodel = \"a\"\nbase_url = \"{}\"\n[retry]\nbase_ms = 1\n",
            server.base_url()
        ),
    );
    let ran = place.run(&["run", "hi", "--config", &file]).await.ok();
    assert_eq!(ran.stdout, "the whole\n");
    assert!(ran.stderr.contains("its text so far is discarded"), "{}", ran.stderr);
    server.check().unwrap();
}

#[tokio::test]
async fn the_end_of_each_step_is_an_event() {
    let place = Place::new();
    let server = serve([call("c1", "calculate", r#"{"expression":"2+3"}"#), txt("5")]).await;
    let args = ["run", "hi", "--json", "--base-url", &server.base_url(), "--model", "m"];
    let lines = place.run(&args).await.ok().lines();
    let steps: Vec<_> = lines.iter().filter(|line| line["event"] == "finish_step").collect();
    let nexts: Vec<_> = steps.iter().map(|line| line["data"]["next"].as_str().unwrap()).collect();
    assert_eq!(nexts, ["continue", "stop"]);
    let place_of = |event: &str| lines.iter().position(|line| line["event"] == event).unwrap();
    assert!(
        place_of("tool_end") < place_of("finish_step") && place_of("finish_step") < place_of("llm_token")
    );
}

#[tokio::test]
async fn a_call_that_is_reported_twice_runs_once() {
    let piece = |delta: &str| format!(r#"{{"choices":[{{"index":0,"delta":{delta}}}]}}"#);
    let arguments = r#""arguments":"{\"command\":\"echo ran >> log\"}""#;
    let begun = piece(r#"{"tool_calls":[{"index":0,"id":"X","function":{"name":"shell","arguments":""}}]}"#);
    let rest = piece(&format!(r#"{{"tool_calls":[{{"index":0,"id":"X","function":{{{arguments}}}}}]}}"#));
    let call = |index: u32| {
        format!(
            r#"{{"tool_calls":[{{"index":{index},"id":"X","function":{{"name":"shell",{arguments}}}}}]}}"#
        )
    };
    let whole =
        format!(r#"{{"choices":[{{"index":0,"message":{},"finish_reason":"tool_calls"}}]}}"#, call(0));
    for (name, pieces) in [
        ("second index", [begun.clone(), rest.clone(), piece(&call(1))]),
        ("whole message", [begun.clone(), rest.clone(), whole]),
        ("repeated piece", [piece(&call(0)), piece(&call(0)), piece("{}")]),
        ("repeated arguments", [begun, rest.clone(), rest]),
    ] {
        let place = Place::new();
        let answer =
            pieces.iter().fold(Answer::stream(), |answer, piece| answer.data(piece)).end("tool_calls");
        let server = serve([answer, txt("ok")]).await;
        place.run(&["run", "go", "--yes", "--base-url", &server.base_url(), "--model", "m"]).await.ok();
        assert_eq!(fs::read_to_string(place.work().join("log")).unwrap(), "ran\n", "{name}");
    }
}

#[tokio::test]
async fn no_call_of_an_answer_that_failed_or_was_cut_runs() {
    let call = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"X","function":{"name":"shell","arguments":"{\"command\":\"touch ran\"}"}}]}}]}"#;
    for end in [
        r#"{"choices":[{"delta":{},"finish_reason":"tool_calls","error":{"code":502,"message":"UP"}}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"tool_calls","native_finish_reason":"network_error"}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"model_context_window_exceeded"}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"MALFORMED_FUNCTION_CALL"}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"timeout"}]}"#,
    ] {
        let place = Place::new();
        let server = serve([Answer::stream().data(call).data(end).done(), txt("second")]).await;
        let file = config(
            &place,
            &format!(
                "[models.main]\nmodel = \"a\"\nbase_url = \"{}\"\n[retry]\nbase_ms = 1\n",
                server.base_url()
            ),
        );
        let ran = place.run(&["run", "go", "--yes", "--config", &file]).await.ok();
        assert_eq!(ran.stdout, "second\n", "{end}");
        assert!(!place.work().join("ran").exists(), "{end}");
    }
    // A withheld answer is not asked for again.
    let place = Place::new();
    let end = r#"{"choices":[{"delta":{},"finish_reason":"PROHIBITED_CONTENT"}]}"#;
    let server = serve([Answer::stream().data(call).data(end).done()]).await;
    place.run(&["run", "go", "--yes", "--base-url", &server.base_url(), "--model", "a"]).await;
    assert_eq!(server.requests().len(), 1);
    assert!(!place.work().join("ran").exists());
}
