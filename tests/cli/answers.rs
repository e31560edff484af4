//! Prompts and their answers.

use serde_json::{Value, json};
use superstep_testing::script::{Answer, call, txt};

use crate::support::{Place, ended, serve};

const SIGNATURE: &str = "(This is superstep's offline demonstration, no language model: it quotes what its tools found and \
    understands nothing. For answers, set OPENAI_API_KEY or start a local model server.)";

#[tokio::test]
async fn without_key_and_server_a_prompt_is_answered_with_quotes_and_a_note() {
    let place = Place::new();
    let ran = place.run(&["run", "Where is the needle?"]).await.ok();
    assert_eq!(
        ran.stdout,
        format!(
            "`needle` is in 1 line. Closest to the question:\n\nnotes.txt:1: first line\nnotes.txt:2: the needle is \
             here\nnotes.txt:3: last line\n\n{SIGNATURE}\n"
        )
    );
    let told: Vec<_> = ran.stderr.lines().collect();
    assert_eq!(
        told[0],
        "no key and no local model server (neither OPENAI_BASE_URL nor OPENAI_API_KEY is set): answering with \
         `--model offline`, which is not a language model; it plans tool calls and quotes their results"
    );
    let thread = told[1].strip_prefix("thread ").unwrap();
    assert!(thread.starts_with("t-2"), "{thread}");
    assert_eq!(told[2], r#"  → search_files {"pattern":"(?i)needle"}"#);
    assert!(told[3].starts_with("  ← search_files: notes.txt:2: the needle is here ("), "{}", told[3]);
    assert_eq!(told[4], r#"  → read_file {"limit":5,"offset":1,"path":"notes.txt"}"#);
    assert!(told[5].starts_with("  ← read_file: 3 lines ("), "{}", told[5]);
    assert!(told[6].starts_with("2 steps, 3 model calls, tokens not counted, "), "{}", told[6]);
    assert_eq!(told[7], format!("ask more with: superstep run --thread {thread} \"...\""));
    assert_eq!(told.len(), 8);
    assert!(place.database().exists());
}

#[tokio::test]
async fn arithmetic_is_calculated_and_a_named_file_is_read() {
    let place = Place::new();
    let ran = place.run(&["run", "--quiet", "What is 37*91+5?"]).await.ok();
    assert_eq!((ran.stdout, ran.stderr), (format!("37*91+5 = 3372\n\n{SIGNATURE}\n"), String::new()));
    let ran = place.run(&["run", "-q", "Which needle is in notes.txt?"]).await.ok();
    assert_eq!(ran.stdout, format!("notes.txt:2: the needle is here\n\n{SIGNATURE}\n"));
}

#[tokio::test]
async fn a_prompt_is_read_from_stdin() {
    let place = Place::new();
    for args in [&["run", "-q"][..], &["run", "-q", "-"]] {
        let ran = place.run_with_stdin(args, b"What is 2 + 3?\n").await.ok();
        assert_eq!(ran.stdout, format!("2 + 3 = 5\n\n{SIGNATURE}\n"));
    }
}

#[tokio::test]
async fn json_lines_are_the_events_and_the_final_reply() {
    let place = Place::new();
    let server = serve([
        call("c1", "calculate", r#"{"expression":"2+3"}"#),
        Answer::stream().reasoning("hm").text(["It is", " 5."]).end("stop").usage(7, 3).done(),
    ])
    .await;
    let url = server.base_url();
    let args = ["run", "What is 2+3?", "--json", "--thread", "t1", "--base-url", &url, "--model", "m"];
    let ran = place.run(&args).await.ok();
    insta::assert_snapshot!(ran.stdout, @r#"
    {"event":"node_start","data":{"node":"agent"}}
    {"event":"node_end","data":{"node":"agent"}}
    {"event":"tool_start","data":{"args":{"expression":"2+3"},"id":"c1","tool":"calculate"}}
    {"event":"tool_end","data":{"id":"c1","result":"5","status":"completed","tool":"calculate"}}
    {"event":"node_start","data":{"node":"agent"}}
    {"event":"finish_step","data":{"next":"continue"}}
    {"event":"llm_token","data":{"reasoning_token":"hm","token":""}}
    {"event":"llm_token","data":{"reasoning_token":"","token":"It is"}}
    {"event":"llm_token","data":{"reasoning_token":"","token":" 5."}}
    {"event":"node_end","data":{"node":"agent"}}
    {"event":"finish_step","data":{"next":"stop"}}
    {"event":"final","data":{"final_reply":"It is 5.","metadata":{"steps_taken":1,"tools_used":["calculate"],"stop_reason":"","llm_calls":2},"thread":"t1","outcome":"completed","usage":{"input_tokens":1409,"output_tokens":19},"usage_estimated":true}}
    "#);
    assert_eq!(ran.stderr, "ask more with: superstep run --thread t1 \"...\"\n");
    server.check().unwrap();
    let tools: Vec<_> = server.requests()[0]["tools"].as_array().unwrap().clone();
    let names: Vec<_> =
        tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(
        names,
        [
            "calculate",
            "current_time",
            "edit_file",
            "fetch_url",
            "list_files",
            "pin",
            "read_file",
            "search_files",
            "shell",
            "todo",
            "write_file"
        ]
    );
}

#[tokio::test]
async fn tokens_arrive_while_the_model_still_speaks() {
    let place = Place::new();
    let server = serve([Answer::stream().text(["first\n", "second\n"]).stall()]).await;
    let mut running = place.start(&["run", "hi", "--json", "--base-url", &server.base_url(), "--model", "m"]);
    for token in ["first\\n", "second\\n"] {
        while !running.line().await.expect("the model has sent it").contains(token) {}
    }
    assert_eq!(running.child.try_wait().unwrap(), None);
}

#[tokio::test]
async fn the_summary_has_steps_calls_tokens_and_time() {
    let place = Place::new();
    let server = serve([Answer::stream().text(["yes"]).end("stop").usage(7, 3).done()]).await;
    let ran = place
        .run(&["run", "hi", "--thread", "t", "--base-url", &server.base_url(), "--model", "m"])
        .await
        .ok();
    assert_eq!(ran.stdout, "yes\n");
    assert!(ran.stderr.starts_with("0 steps, 1 model call, 7 tokens in and 3 out, "), "{}", ran.stderr);
}

#[tokio::test]
async fn a_thread_continues_its_conversation_with_its_stored_settings() {
    let place = Place::new();
    let server = serve([txt("Hello Ann."), txt("Ann.")]).await;
    let url = server.base_url();
    let first = ["run", "I am Ann.", "--thread", "t", "--base-url", &url, "--model", "m", "--max-steps", "3"];
    place.run(&first).await.ok();
    let ran = place.run(&["run", "-q", "Who am I?", "--thread", "t"]).await.ok();
    assert_eq!(ran.stdout, "Ann.\n");
    let second = server.requests().pop().unwrap();
    assert_eq!(second["model"], "m");
    let said: Vec<_> = second["messages"].as_array().unwrap()[1..].to_vec();
    assert_eq!(
        said,
        [
            json!({"role": "user", "content": "I am Ann."}),
            json!({"role": "assistant", "content": "Hello Ann."}),
            json!({"role": "user", "content": "Who am I?"})
        ]
    );
    assert_eq!(place.state("t").await["values"]["max_steps"], 3);
}

#[tokio::test]
async fn the_environment_sets_the_server_and_a_flag_overrides_it() {
    let place = Place::new();
    let (one, two) = (serve([txt("one")]).await, serve([txt("two")]).await);
    let mut command = place.command(&["run", "-q", "hi"]);
    command.env("OPENAI_BASE_URL", one.base_url()).env("OPENAI_MODEL", "env-model");
    assert_eq!(ended(&mut command).await.ok().stdout, "one\n");
    assert_eq!(one.requests()[0]["model"], "env-model");
    let mut command = place.command(&["run", "-q", "hi", "--base-url", &two.base_url(), "--model", "flag"]);
    command.env("OPENAI_BASE_URL", one.base_url()).env("OPENAI_MODEL", "env-model");
    assert_eq!(ended(&mut command).await.ok().stdout, "two\n");
    assert_eq!(two.requests()[0]["model"], "flag");
}

#[tokio::test]
async fn a_server_on_this_machine_is_found_and_named() {
    let place = Place::new();
    let models = r#"{"object":"list","data":[{"id":"nomic-embed"},{"id":"llama"}]}"#;
    let server = serve([superstep_testing::script::http(200, &[], models), txt("hello")]).await;
    let mut command = place.command(&["run", "hi"]);
    let list = format!("Nothing=http://127.0.0.1:1/v1,Ollama={}", server.base_url());
    let ran = ended(command.env("SUPERSTEP_LOCAL_SERVERS", list)).await.ok();
    assert_eq!(ran.stdout, "hello\n");
    let found = format!("found Ollama at {}: using its model llama\n", server.base_url());
    assert!(ran.stderr.starts_with(&found), "{}", ran.stderr);
    assert_eq!(server.received()[0].line, "GET /v1/models");
    assert_eq!(server.requests()[1]["model"], "llama");
}

#[tokio::test]
async fn an_unlisted_model_is_an_error_that_lists_the_available_ones() {
    let place = Place::new();
    let list = |names: &[&str]| {
        let data: Vec<_> = names.iter().map(|name| serde_json::json!({ "id": name })).collect();
        superstep_testing::script::http(200, &[], &serde_json::json!({ "data": data }).to_string())
    };
    let one = || serve([list(&["llama3.2:latest", "nomic-embed"]), txt("of one")]);
    let two = || serve([list(&["qwen3:8b"]), txt("of two")]);
    let run = async |model: &str| {
        let (one, two) = (one().await, two().await);
        let mut command = place.command(&["run", "hi", "--model", model]);
        let servers = format!("Ollama={},LM Studio={}", one.base_url(), two.base_url());
        (ended(command.env("SUPERSTEP_LOCAL_SERVERS", servers)).await, one, two)
    };
    let (ran, one, two) = run("llama").await;
    let error = format!(
        "no server on this machine lists model `llama`: Ollama at {} has `llama3.2:latest`, `nomic-embed`; LM Studio at {} \
         has `qwen3:8b`; name one of these, or the server of `llama` with `--base-url`",
        one.base_url(),
        two.base_url()
    );
    ran.refused(3, &error);
    assert_eq!(run("llama3.2").await.0.ok().stdout, "of one\n");
    assert_eq!(run("qwen3:8b").await.0.ok().stdout, "of two\n");
}

#[tokio::test]
async fn a_refusal_and_a_filtered_response_are_distinguished_from_a_reply() {
    let place = Place::new();
    let refusal = || Answer::stream().chunk(r#"{"refusal":"I cannot."}"#, None).end("stop").done();
    let withheld = || Answer::stream().end("content_filter").done();
    for (answer, outcome, reply, note) in [
        (refusal as fn() -> Answer, "refusal", "I cannot.", "the model refused to answer"),
        (
            withheld,
            "content_filter",
            "No answer: the provider's content filter withheld the answer (content_filter).",
            "the provider's content filter withheld the answer, or the rest of it",
        ),
    ] {
        let server = serve([answer(), answer()]).await;
        let url = server.base_url();
        let args = ["run", "hi", "--base-url", &url, "--model", "m"];
        let ran = place.run(&[&args[..], &["--json"]].concat()).await.ok();
        let last = ran.lines().pop().unwrap();
        assert_eq!(
            (&last["data"]["outcome"], &last["data"]["final_reply"]),
            (&outcome.into(), &reply.into())
        );
        assert_eq!(last["data"]["metadata"]["stop_reason"], outcome);
        let ran = place.run(&args).await.ok();
        assert_eq!(ran.stdout, format!("{reply}\n"));
        assert!(ran.stderr.contains(note), "{}", ran.stderr);
        server.check().unwrap();
    }
}

#[tokio::test]
async fn done_ends_a_response_if_configured() {
    let place = Place::new();
    let file = place.beside("done.toml");
    std::fs::write(&file, "[models.main]\ndone_finishes = true\n[retry]\nmax_attempts = 1\n").unwrap();
    let answer = || Answer::stream().text(["all of it"]).done();
    let server = serve([answer(), answer()]).await;
    let url = server.base_url();
    let args = ["run", "-q", "hi", "--base-url", &url, "--model", "m"];
    let config = ["--config", file.to_str().unwrap()];
    assert_eq!(place.run(&[&args[..], &config].concat()).await.ok().stdout, "all of it\n");
    std::fs::write(&file, "[retry]\nmax_attempts = 1\n").unwrap();
    let ran = place.run(&[&args[..], &config].concat()).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("the stream ended before the model gave a finish reason"), "{}", ran.stderr);
}

#[tokio::test]
async fn the_step_limit_ends_a_turn_with_an_answer() {
    let place = Place::new();
    let server = serve([call("c1", "calculate", r#"{"expression":"1"}"#), txt("enough")]).await;
    let args = ["run", "go", "--max-steps", "1", "--json", "--base-url", &server.base_url(), "--model", "m"];
    let ran = place.run(&args).await.ok();
    let last = ran.lines().pop().unwrap();
    assert_eq!(last["data"]["outcome"], "limit");
    assert_eq!(last["data"]["final_reply"], "enough");
    assert_eq!(server.requests()[1].get("tools"), None);
}

#[tokio::test]
async fn a_turn_that_ended_early_has_the_same_outcome_everywhere() {
    let place = Place::new();
    let empty = || Answer::stream().end("stop").done();
    let cut = || Answer::stream().text(["part "]).end("length").done();
    for (answers, outcome) in [
        ([empty(), empty(), empty(), empty()], "empty_response"),
        ([cut(), cut(), cut(), cut()], "length_limit"),
    ] {
        let server = serve(answers).await;
        let url = server.base_url();
        let ran = place
            .run(&["run", "go", "--thread", outcome, "--json", "--base-url", &url, "--model", "m"])
            .await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(ran.lines().pop().unwrap()["data"]["outcome"], outcome);
        assert_eq!(place.state(outcome).await["values"]["outcome"], outcome);
        let shown = place.run(&["state", outcome]).await.ok().stdout;
        assert!(shown.contains(&format!("outcome     {outcome}\n")), "{shown}");
    }
}

#[tokio::test]
async fn a_reader_that_goes_away_stops_the_run_which_can_be_resumed() {
    let place = Place::new();
    let server = serve([Answer::stream().text(["a"]).delay(100).text(["b"]).stall(), txt("again")]).await;
    let url = server.base_url();
    let mut running =
        place.start(&["run", "hi", "--json", "--thread", "t", "--base-url", &url, "--model", "m"]);
    running.line_with(r#""token":"a""#).await;
    let ran = running.unread().await;
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert_eq!(ran.stderr, "interrupted; resume with: superstep resume t\n");
    assert_eq!(place.run(&["resume", "t", "-q"]).await.ok().stdout, "again\n");
    server.check().unwrap();
}

#[tokio::test]
async fn a_database_elsewhere_remembers_the_folder_of_each_thread() {
    let place = Place::new();
    let (db, other) = (place.beside("threads.db"), place.beside("other"));
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("there.txt"), "a marble\n").unwrap();
    let (db, other) = (db.to_str().unwrap(), other.to_str().unwrap());
    let first = ["run", "-q", "Where is the marble?", "--thread", "t", "--db", db, "--cwd", other];
    assert!(place.run(&first).await.ok().stdout.contains("there.txt:1: a marble"));
    let again = place.run(&["run", "-q", "Where is the marble?", "--thread", "t", "--db", db]).await.ok();
    assert!(again.stdout.contains("there.txt:1: a marble"), "{}", again.stdout);
    let here = ["run", "-q", "Where is the marble?", "--thread", "t", "--db", db, "--cwd", "."];
    assert!(place.run(&here).await.ok().stdout.starts_with("No file here has `marble`."));
}

#[tokio::test]
async fn piped_input_is_appended_to_the_prompt_on_request_and_otherwise_reported() {
    let place = Place::new();
    let server = serve([txt("ok"), txt("ok"), txt("ok")]).await;
    let url = server.base_url();
    let run = ["run", "Review this.", "--thread", "t", "--base-url", &url, "--model", "m"];
    let ran = place.run_with_stdin(&[&run[..], &["-"]].concat(), b"-a\n+b\n").await.ok();
    assert!(!ran.stderr.contains("piped"), "{}", ran.stderr);
    let told = "the piped input is not read; to append it to the prompt, write `-` after the prompt\n";
    let ran = place.run_with_stdin(&[&run[..], &["-q"]].concat(), b"-a\n+b\n").await.ok();
    assert_eq!(ran.stderr.contains(told), cfg!(unix), "{}", ran.stderr);
    assert!(!place.run(&run).await.ok().stderr.contains("piped"));
    let asked = |request: &Value| request["messages"].as_array().unwrap().last().unwrap()["content"].clone();
    let asked: Vec<_> = server.requests().iter().map(asked).collect();
    assert_eq!(asked, ["Review this.\n\n-a\n+b", "Review this.", "Review this."]);
    let unquoted = place.run(&["run", "Review", "this"]).await;
    assert_eq!(unquoted.code, Some(2));
    assert!(unquoted.stderr.contains("put it in quotes"), "{}", unquoted.stderr);
}

#[tokio::test]
async fn a_thread_continues_from_an_older_checkpoint_on_its_own_branch() {
    let place = Place::new();
    let server = serve([txt("one"), txt("two"), txt("other two"), txt("again two")]).await;
    let url = server.base_url();
    let ask = ["run", "-q", "--thread", "t", "--base-url", &url, "--model", "m"];
    place.run(&[&ask[..], &["first"]].concat()).await.ok();
    let first = place.state("t").await["checkpoint"]["id"].to_string();
    place.run(&[&ask[..], &["second"]].concat()).await.ok();
    let before = place.run(&["history", "t", "--json"]).await.ok().lines();
    let ran = place.run(&["run", "-q", "--thread", "t", "--from", &first, "else"]).await.ok();
    assert_eq!(ran.stdout, "other two\n");
    let texts = |request: &Value| -> Vec<Value> {
        let messages = request["messages"].as_array().unwrap();
        messages[1..].iter().map(|message| message["content"].clone()).collect()
    };
    assert_eq!(texts(&server.requests()[2]), ["first", "one", "else"]);

    // The checkpoint of the second turn before its model call, once more.
    let asks = before.iter().find(|meta| meta["control"]["next"][0] == "agent").unwrap()["id"].to_string();
    assert_eq!(place.run(&["resume", "t", "-q", "--from", &asks]).await.ok().stdout, "again two\n");
    assert_eq!(texts(&server.requests()[3]), ["first", "one", "second"]);

    let over = format!(
        "no turn is in progress at checkpoint {first} of thread `t`; start a new one from it with: superstep run --thread t --from {first} \"...\""
    );
    place.run(&["resume", "t", "--from", &first]).await.refused(5, &over);
    let unknown = "SS111: thread `t` has no checkpoint 99; its history lists those it has";
    place.run(&["run", "hi", "--thread", "t", "--from", "99"]).await.refused(5, unknown);
    let undecided = "with `--from` nothing waits yet; decide when it asks, or with a `resume` without it";
    place.run(&["resume", "t", "--from", &asks, "--approve"]).await.refused(2, undecided);
}
