//! MCP servers of a configuration.

use superstep_testing::script::{call, calls, txt};

use crate::support::{Place, ended, serve};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/it/mcp/server.sh");

fn configured(place: &Place, more: &str) {
    let env = "{ SEEN = \"seen\", GREETING = \"from ${HOME}\" }";
    let toml = format!("[mcp.small]\ncommand = \"sh\"\nargs = [\"{SERVER}\"]\nenv = {env}\n{more}");
    place.file("agent.toml", &toml);
}

#[tokio::test]
async fn a_thread_has_the_tools_of_its_servers_and_none_of_their_secrets() {
    let place = Place::new();
    let keyed = "[mcp.keyed]\ncommand = \"sh\"\nenv = { SEEN = \"../${KEYED}\" }\n";
    configured(&place, &format!("{keyed}args = [\"{SERVER}\"]\n"));
    let with_key = async |args: &[&str]| ended(place.command(args).env("KEYED", "sk-5ecret")).await.ok();
    let home = std::env::var("HOME").unwrap();
    let said = r#"{"what":"hi"}"#;
    let server =
        serve([call("c1", "small_say", said), txt("one"), call("c2", "small_say", said), txt("two")]).await;
    let base_url = server.base_url();
    let url = ["--base-url", &base_url, "--model", "m"];
    let run = [&["run", "go", "-q", "--thread", "t", "--config", "agent.toml"], &url[..]].concat();
    assert_eq!(with_key(&run).await.stdout, "one\n");
    let more = ["run", "more", "-q", "--thread", "t", "--config", "agent.toml"];
    assert_eq!(with_key(&more).await.stdout, "two\n");
    assert!(place.beside("sk-5ecret").exists(), "the server has the key, and made a file of this name");
    let state = place.state("t").await;
    let results = &state["values"]["tool_result_history"];
    assert_eq!(results[0], format!("hi no key from {home}"), "{results}");
    let stored = std::fs::read(place.database()).unwrap();
    let has = |text: &str| stored.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has("from ${HOME}") && has("${KEYED}"), "the names are stored");
    assert!(!has("sk-5ecret"), "the key is not");
    assert_eq!(std::fs::read_to_string(place.work().join("seen")).unwrap().matches("ended").count(), 2);
}

#[tokio::test]
async fn the_servers_of_a_thread_are_started_only_if_a_file_configures_them() {
    let place = Place::new();
    configured(&place, "ask = \"always\"\n");
    let server = serve([call("c1", "small_say", r#"{"what":"hi"}"#), txt("ok")]).await;
    let (base_url, seen) = (server.base_url(), place.work().join("seen"));
    let url = ["--base-url", &base_url, "--model", "m"];
    let run = [&["run", "go", "--thread", "t", "--config", "agent.toml"], &url[..]].concat();
    let ran = place.run(&run).await;
    assert_eq!(ran.code, Some(6), "{ran:?}");
    let command = "decide with: superstep resume t --approve --config agent.toml\n";
    assert!(ran.stderr.contains(command), "{}", ran.stderr);
    std::fs::remove_file(&seen).unwrap();
    let turns: [&[_]; 5] = [
        &["run", "more", "--thread", "t", "--discard"],
        &["resume", "t", "--approve"],
        &["resume", "t", "--approve", "--preset", "default"],
        &["replay", "t", "--current-tools"],
        &["replay", "t", "--live-tools"],
    ];
    for turn in turns {
        let wanted = "thread `t` remembers an MCP server, which is not started unless you name it: repeat \
                      `--config FILE`";
        place.run(turn).await.refused(2, wanted);
        assert!(!seen.exists(), "{turn:?}");
    }
    // An answer to an unknown call starts nothing.
    let unknown = place.run(&["resume", "t", "--respond", "c9=hi", "--config", "agent.toml"]).await;
    assert_ne!(unknown.code, Some(0));
    assert!(!seen.exists());
    let resume = place.run(&["resume", "t", "-q", "--approve", "--config", "agent.toml"]).await;
    assert_eq!(resume.ok().stdout, "ok\n");
}

#[tokio::test]
async fn a_replay_needs_no_server() {
    let place = Place::new();
    configured(&place, "ask = \"never\"\n");
    let rule = "[[permissions]]\ntool = \"small_say\"\nthen = \"allow\"\n";
    let servers = std::fs::read_to_string(place.work().join("agent.toml")).unwrap();
    place.file("rule.toml", &format!("{servers}{rule}"));
    let server = serve([call("c1", "small_say", r#"{"what":"hi"}"#), txt("ok")]).await;
    let base_url = server.base_url();
    let url = ["--base-url", &base_url, "--model", "m"];
    place.run(&[&["run", "go", "--thread", "t", "--config", "rule.toml"], &url[..]].concat()).await.ok();
    let text = place.run(&["export", "t"]).await.ok().stdout;
    std::fs::remove_file(place.work().join("rule.toml")).unwrap();
    std::fs::remove_file(place.work().join("seen")).unwrap();
    place.run(&["replay", "t", "--strict"]).await.ok();
    assert!(!place.work().join("seen").exists());
    let changed = text.replace(r#"{\"what\":\"hi\"}"#, r#"{\"what\":\"ho\"}"#);
    assert_ne!(changed, text);
    place.file("t.thread.jsonl", &changed);
    let replayed = place.run(&["replay", "--all", "t.thread.jsonl"]).await;
    assert_eq!(replayed.code, Some(7), "{replayed:?}");
}

#[tokio::test]
async fn a_server_works_in_the_folder_of_the_tools_or_below_it() {
    let place = Place::new();
    let elsewhere = place.beside("elsewhere");
    std::fs::create_dir_all(elsewhere.join("sub")).unwrap();
    let say = || [call("c1", "small_say", r#"{"what":"hi"}"#), txt("ok")];
    let server = serve(say().into_iter().chain(say())).await;
    let url = server.base_url();
    let flags = ["--config", "agent.toml", "--cwd", "../elsewhere", "--base-url", &url, "--model", "m"];
    let run = [&["run", "go", "-q"], &flags[..]].concat();
    for (more, seen) in [("", "seen"), ("cwd = \"sub\"\n", "sub/seen")] {
        configured(&place, more);
        assert_eq!(place.run(&run).await.ok().stdout, "ok\n");
        assert!(elsewhere.join(seen).exists() && !place.work().join("seen").exists(), "{seen}");
    }
    configured(&place, "cwd = \"gone\"\n");
    let ran = place.run(&run).await;
    assert!(ran.stderr.contains("MCP server `small`: the working folder"), "{}", ran.stderr);
}

#[tokio::test]
async fn progress_and_logs_of_a_call_are_shown() {
    let place = Place::new();
    let env = "{ SEEN = \"seen\", LOGS = \"1\" }";
    let rule = "[[permissions]]\ntool = \"small_*\"\nthen = \"allow\"";
    let small = format!("command = \"sh\"\nargs = [\"{SERVER}\"]\nenv = {env}");
    place.file("agent.toml", &format!("{rule}\n[mcp.small]\n{small}\n[mcp.other]\n{small}"));
    let server = serve([call("c1", "small_count", "{}"), txt("done")]).await;
    let base_url = server.base_url();
    let run = ["run", "go", "--config", "agent.toml", "--base-url", &base_url, "--model", "m"];
    let ran = place.run(&run).await.ok();
    let told: Vec<_> = ran.stderr.lines().filter(|line| line.contains('[')).map(str::trim_end).collect();
    let wanted =
        ["    │ [warning] disk nearly full", "    │ [1/2] one", "    │ [info] half of it", "    │ [2/2]"];
    assert_eq!(
        told,
        [&wanted[..], &["MCP server `other`: [warning] disk nearly full"]].concat(),
        "{}",
        ran.stderr
    );
}

#[tokio::test]
async fn a_question_of_a_server_is_answered_on_the_command_line() {
    let bank = SERVER.replace("server.sh", "elicit.sh");
    for (flag, id, said) in [
        (
            "--answer",
            "c1.asks.1={\"account\":\"main\"}",
            r#"{"action":"accept","content":{"account":"main"}}"#,
        ),
        ("--deny", "c1.asks.1", r#"{"action":"decline"}"#),
        ("--cancel", "c1.asks.1", r#"{"action":"cancel"}"#),
    ] {
        let place = Place::new();
        let rule = "[[permissions]]\ntool = \"bank_*\"\nthen = \"allow\"";
        let env = "{ SEEN = \"seen\", ASKS = \"Which\\u001b[2J account?\" }";
        let toml = format!("{rule}\n[mcp.bank]\ncommand = \"sh\"\nargs = [\"{bank}\"]\nenv = {env}\n");
        place.file("agent.toml", &toml.replace("\\u001b", "\\\\u001b"));
        let server = serve([call("c1", "bank_pay", r#"{"sum":5}"#), txt("paid")]).await;
        let base_url = server.base_url();
        let url = ["--base-url", &base_url, "--model", "m"];
        let run = [&["run", "go", "--yes", "--thread", "t", "--config", "agent.toml"], &url[..]].concat();
        let ran = place.run(&run).await;
        assert_eq!(ran.code, Some(6), "{ran:?}");
        let question = "call `c1.asks.1` of bank_pay asks:\n    MCP server `bank` asks:\n      | Which\\u{1b}[2J account?\n";
        assert!(ran.stderr.contains(question), "{}", ran.stderr);
        assert!(
            ran.stderr.contains("Every answer, also a denial, sends it again from its beginning"),
            "{}",
            ran.stderr
        );
        let resume = ["resume", "t", "-q", "--config", "agent.toml"];
        let misfit = place.run(&[&resume[..], &["--approve"]].concat()).await;
        assert_eq!(misfit.code, Some(6), "{misfit:?}");
        let wrong = "not possible: the answer does not fit: `account` is missing\n";
        assert!(misfit.stderr.contains(wrong), "{}", misfit.stderr);
        let id = id.replace("asks.1", "asks.1.2");
        assert_eq!(place.run(&[&resume[..], &[flag, &id]].concat()).await.ok().stdout, "paid\n");
        let seen = std::fs::read_to_string(place.work().join("seen")).unwrap();
        assert_eq!(seen.lines().last(), Some(said));
        assert_eq!(seen.lines().filter(|line| *line == "pay").count(), 2, "{seen}");
    }
}

#[tokio::test]
async fn the_tools_of_servers_are_listed() {
    let place = Place::new();
    configured(&place, "tools = [\"say\", \"fail\"]\n");
    let listed = place.run(&["tools", "--config", "agent.toml"]).await.ok().stdout;
    let rows: Vec<_> = listed.lines().filter(|line| line.contains("mcp.small")).collect();
    assert_eq!(rows.len(), 2, "{listed}");
    assert!(rows[0].contains("small_say") && !rows[0].contains("required"), "{listed}");
    assert!(rows[1].contains("small_fail") && rows[1].contains("required"), "{listed}");
}

#[tokio::test]
async fn a_group_of_a_server_can_be_chosen_and_a_tool_that_cannot_be_used_is_named() {
    let place = Place::new();
    let odd = SERVER.replace("server.sh", "odd.sh");
    let tools = r#"[{"name":"odd","inputSchema":{"type":"object"}},{"name":"none"}]"#;
    let odd = format!(
        "[mcp.odd]\ncommand = \"sh\"\nargs = [\"{odd}\"]\nenv = {{ SEEN = \"odd\", TOOLS = '{tools}' }}\n"
    );
    configured(&place, &odd);
    let listed = place.run(&["tools", "--config", "agent.toml"]).await.ok();
    assert!(listed.stdout.contains("mcp.odd") && listed.stdout.contains("odd_odd"), "{}", listed.stdout);
    let wanted =
        "MCP server `odd`: [warning] tool `none` cannot be used: its `inputSchema` is not an object\n";
    assert_eq!(listed.stderr, wanted);
    std::fs::remove_file(place.work().join("odd")).unwrap();
    let said = r#"{"what":"hi"}"#;
    let server = serve([call("c1", "small_say", said), txt("one")]).await;
    let base_url = server.base_url();
    let run = |tools: &'static str| {
        [
            "run",
            "go",
            "-q",
            "--config",
            "agent.toml",
            "--model",
            "m",
            "--base-url",
            &base_url,
            "--tools",
            tools,
        ]
    };
    assert_eq!(place.run(&run("mcp.small,read")).await.ok().stdout, "one\n");
    assert!(!place.work().join("odd").exists(), "a server that is not chosen is not started");
    let unknown = "unknown tool or group of tools `mcp.far`; see `superstep tools`";
    place.run(&run("mcp.far")).await.refused(2, unknown);
}

#[tokio::test]
async fn a_server_that_ignores_its_end_is_ended_when_another_one_cannot_be_used() {
    let place = Place::new();
    let odd = SERVER.replace("server.sh", "odd.sh");
    let env = "{ SEEN = \"odd\", STUBBORN = \"1\", START = \"mute\" }";
    let odd =
        format!("[mcp.odd]\ncommand = \"sh\"\nargs = [\"{odd}\"]\nenv = {env}\nstart_timeout_ms = 500\n");
    place.file("agent.toml", &format!("{odd}[mcp.none]\ncommand = \"superstep-no-such-program\"\n"));
    let ran = place.run(&["run", "go", "--config", "agent.toml"]).await;
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let id = std::fs::read_to_string(place.work().join("odd")).unwrap();
    assert!(!std::path::Path::new("/proc").join(id.trim()).exists(), "it has ended");
}

#[tokio::test]
async fn an_invalid_server_ends_the_run_before_it_begins() {
    let place = Place::new();
    place.file("agent.toml", "[mcp.small]\ncmd = \"sh\"\n");
    let ran = place.run(&["run", "go", "--config", "agent.toml"]).await;
    ran.refused(
        2,
        "the configuration `agent.toml` does not fit: line 2, column 1: `mcp.small`: unknown field `cmd`; \
         known fields are `command`, `args`, `env`, `cwd`, `url`, `headers`, `tools`, `ask`, \
         `start_timeout_ms`, `call_timeout_ms`",
    );
    place.file("agent.toml", "[mcp.small]\ncommand = \"superstep-no-such-program\"\n");
    let ran = place.run(&["run", "go", "--config", "agent.toml"]).await;
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("MCP server `small`: program `superstep-no-such-program` not found"),
        "{}",
        ran.stderr
    );
    place.file("agent.toml", "[mcp.small]\nurl = \"example\"\n");
    let ran = place.run(&["run", "go", "--config", "agent.toml"]).await;
    ran.refused(1, "MCP server `small`: relative URL without a base");
}

#[tokio::test]
async fn a_signal_while_a_stubborn_server_is_shut_down_ends_the_program_at_once() {
    let place = Place::new();
    let odd = SERVER.replace("server.sh", "odd.sh");
    let env = r#"{ SEEN = "odd", TOOLS = "[]", STUBBORN = "yes" }"#;
    place.file("agent.toml", &format!("[mcp.odd]\ncommand = \"sh\"\nargs = [\"{odd}\"]\nenv = {env}\n"));
    let args = ["run", "1 + 1", "--thread", "t", "--json", "--config", "agent.toml", "--model", "offline"];
    let mut running = place.start(&args);
    running.line_with("\"final\"").await;
    // The first one may arrive before the shutdown begins.
    while running.child.try_wait().unwrap().is_none() {
        running.signal("INT");
    }
    assert_eq!(running.end().await.code, Some(130), "the shutdown takes seconds otherwise");
    assert_eq!(place.state("t").await["values"]["outcome"], "completed");
}

#[tokio::test]
async fn a_replay_has_the_recorded_tools_of_a_server_unless_those_of_now_are_wanted() {
    let place = Place::new();
    let odd = SERVER.replace("server.sh", "odd.sh");
    let having = |names: &[&str]| {
        let tools: Vec<_> = names
            .iter()
            .map(|name| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#))
            .collect();
        let env = format!("{{ SEEN = \"seen\", TOOLS = '[{}]', ANSWER = '{ANSWER}' }}", tools.join(","));
        place.file(
            "agent.toml",
            &format!("[mcp.odd]\ncommand = \"sh\"\nargs = [\"{odd}\"]\nask = \"never\"\nenv = {env}\n"),
        );
    };
    having(&["a", "b"]);
    let server = serve([call("c1", "odd_a", "{}"), txt("ok")]).await;
    let base_url = server.base_url();
    let run = [
        "run",
        "go",
        "-q",
        "--thread",
        "t",
        "--config",
        "agent.toml",
        "--base-url",
        &base_url,
        "--model",
        "m",
    ];
    assert_eq!(place.run(&run).await.ok().stdout, "ok\n");
    let replay = ["replay", "t", "--config", "agent.toml"];
    let whole = "supersteps replayed, no divergence\n";
    let same = place.run(&replay).await.ok();
    assert!(same.stdout.ends_with(whole) && same.stderr.is_empty(), "{same:?}");
    having(&["b", "c"]);
    let same = place.run(&replay).await.ok();
    let note = "the replay uses the recorded tools of MCP servers, which differ from the current ones: added `odd_c`; removed \
                `odd_a`; `--current-tools` uses the current ones\n";
    assert!(same.stdout.ends_with(whole), "{same:?}");
    assert_eq!(same.stderr, note);
    let same = place.run(&[&replay[..], &["--json", "--strict"]].concat()).await.ok();
    assert_eq!(same.lines()[0]["tools"], serde_json::json!({"added": ["odd_c"], "removed": ["odd_a"]}));
    let ran = place.run(&[&replay[..], &["--current-tools"]].concat()).await;
    assert_eq!(ran.code, Some(7), "{ran:?}");
    assert!(ran.stdout.contains("node `agent`: the effect `tools` is different"), "{}", ran.stdout);
}

const ANSWER: &str = r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"done"}]}}"#;

#[tokio::test]
async fn the_servers_of_a_replay_are_started_once() {
    let place = Place::new();
    configured(&place, "");
    let server = serve([txt("one"), txt("two"), txt("three")]).await;
    let base_url = server.base_url();
    for (thread, model) in [("t", "m"), ("t", "n"), ("u", "m")] {
        let run = ["run", "go", "-q", "--thread", thread, "--config", "agent.toml", "--base-url", &base_url];
        place.run(&[&run[..], &["--model", model]].concat()).await.ok();
    }
    let seen = place.work().join("seen");
    for replay in [["replay", "t"], ["replay", "--all"]] {
        std::fs::remove_file(&seen).unwrap();
        place.run(&[&replay[..], &["--config", "agent.toml"]].concat()).await.ok();
        let seen = std::fs::read_to_string(&seen).unwrap();
        assert_eq!(
            (seen.matches("started").count(), seen.matches("ended").count()),
            (1, 1),
            "{replay:?}: {seen}"
        );
    }
}

#[tokio::test]
async fn an_image_of_a_server_reaches_a_model_that_takes_images_and_no_terminal() {
    const GIF: &str = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7";
    let place = Place::new();
    let odd = SERVER.replace("server.sh", "odd.sh");
    let image = format!(r#"{{"type":"image","data":"{GIF}","mimeType":"image/gif"}}"#);
    let answer = ANSWER.replace(r#"{"type":"text","text":"done"}"#, &image);
    let tools = r#"[{"name":"a","inputSchema":{"type":"object"}}]"#;
    let mcp = format!(
        "[mcp.odd]\ncommand = \"sh\"\nargs = [\"{odd}\"]\nask = \"never\"\n\
         env = {{ SEEN = \"seen\", TOOLS = '{tools}', ANSWER = '{answer}' }}\n"
    );
    for (accepts, sees) in [("[]", false), ("[\"images\"]", true)] {
        place.file("agent.toml", &format!("{mcp}[models.main]\naccepts = {accepts}\n"));
        for output in ["--quiet", "--json", "--no-memory"] {
            let server = serve([call("c1", "odd_a", "{}"), txt("a dot")]).await;
            let base_url = server.base_url();
            let thread = format!("{sees}{output}");
            let run = ["run", "go", "--thread", &thread, "--config", "agent.toml", "--base-url", &base_url];
            let ran = place.run(&[&run[..], &["--model", "m", output]].concat()).await.ok();
            assert!(!ran.stdout.contains(GIF) && !ran.stderr.contains(GIF), "{ran:?}");
            let request = server.requests()[1].to_string();
            assert_eq!(request.contains(&format!("data:image/gif;base64,{GIF}")), sees, "{request}");
            assert!(request.contains("[image: image/gif, 42 bytes]"), "{request}");
            let state = place.state(&thread).await;
            let messages = state["values"]["messages"].as_array().unwrap();
            let media: Vec<_> = messages.iter().filter_map(|message| message.get("media")).collect();
            assert_eq!(media, [&serde_json::json!([{ "mime": "image/gif", "data": GIF }])]);
            let shown = place.run(&["state", &thread]).await.ok();
            assert!(
                !shown.stdout.contains(GIF) && shown.stdout.contains("[image: image/gif"),
                "{}",
                shown.stdout
            );
            let replayed = place.run(&["replay", &thread, "--config", "agent.toml", "--strict"]).await.ok();
            assert!(replayed.stdout.ends_with("no divergence\n"), "{}", replayed.stdout);
        }
    }
    // The results of a discarded round have their images.
    let round = calls([("c1", "odd_a", "{}"), ("c2", "write_file", r#"{"path":"a","content":"a"}"#)]);
    let server = serve([round, txt("a dot")]).await;
    let base_url = server.base_url();
    let go = ["--thread", "w", "--config", "agent.toml", "--base-url", &base_url, "--model", "m"];
    assert_eq!(place.run(&[&["run", "go"], &go[..]].concat()).await.code, Some(6));
    place.run(&[&["run", "what was it?", "--discard"], &go[..]].concat()).await.ok();
    let request = server.requests()[1].to_string();
    assert!(request.contains(&format!("data:image/gif;base64,{GIF}")), "{request}");
}
