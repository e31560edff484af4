//! Inspection of threads and of the graph.

use serde_json::{Value, json};

use crate::{
    listed::{assert_table, commands},
    support::Place,
};

#[tokio::test]
async fn threads_are_listed_newest_first() {
    let place = Place::new();
    let none = place.run(&["threads"]).await.ok();
    assert_eq!(none.stdout, "no threads yet; begin one with: superstep run \"...\"\n");
    assert!(!place.database().exists(), "looking makes nothing");
    for thread in ["one", "two"] {
        place.run(&["run", "-q", "1 + 1", "--thread", thread]).await.ok();
    }
    let lines = place.run(&["threads", "--json"]).await.ok().lines();
    let names: Vec<_> = lines.iter().map(|line| line["thread"].clone()).collect();
    assert_eq!(names, ["two", "one"]);
    assert_eq!(lines[0]["next"], json!([]));
    let table = place.run(&["threads"]).await.ok().stdout;
    assert_eq!((&lines[0]["outcome"], &lines[0]["waits"]), (&json!("completed"), &json!([])));
    let first: Vec<_> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((first[0], &first[3..]), ("two", &["offline", "finished", "1", "+", "1"][..]), "{table}");
}

#[tokio::test]
async fn a_thread_that_is_damaged_is_listed_beside_the_others_and_can_be_deleted() {
    let place = Place::new();
    for thread in ["bad", "bad", "good"] {
        place.run(&["run", "-q", "1 + 1", "--thread", thread]).await.ok();
    }
    let head = format!(r#"{{"step":{},"next":[]}}"#, place.steps("bad").await[0]["step"]);
    let mut bytes = std::fs::read(place.database()).unwrap();
    let found: Vec<_> =
        bytes.windows(head.len()).enumerate().filter(|(_, at)| *at == head.as_bytes()).collect();
    let [(at, _)] = found[..] else { panic!("{head} is there {} times", found.len()) };
    bytes[at] = b'!';
    std::fs::write(place.database(), bytes).unwrap();

    let listed = place.run(&["threads", "--json"]).await.ok().lines();
    assert_eq!((&listed[0]["thread"], &listed[0]["outcome"]), (&json!("good"), &json!("completed")));
    assert_eq!((&listed[1]["thread"], &listed[1]["checkpoint"]), (&json!("bad"), &json!(null)));
    assert!(
        listed[1]["error"].as_str().unwrap().starts_with("SS304: checkpoint 18 of thread `bad`"),
        "{listed:?}"
    );
    let table = place.run(&["threads"]).await.ok().stdout;
    let last: Vec<_> = table.lines().nth(2).unwrap().split_whitespace().collect();
    assert_eq!(last, ["bad", "-", "-", "cannot", "be", "read", "-"], "{table}");
    place.run(&["resume", "bad"]).await.refused(4, listed[1]["error"].as_str().unwrap());
    let further = place.run(&["resume", "bad", "--from", "17", "-q"]).await.ok().stdout;
    assert!(further.starts_with("1 + 1 = 2\n"), "{further}");
    assert_eq!(place.run(&["threads", "--json"]).await.ok().lines()[0]["checkpoint"], 20);
    place.run(&["delete", "bad"]).await.ok();
    assert_eq!(place.run(&["threads", "--json"]).await.ok().lines().len(), 1);
}

#[tokio::test]
async fn the_state_is_shown_at_any_checkpoint() {
    let place = Place::new();
    place.run(&["run", "-q", "1 + 1", "--thread", "t"]).await.ok();
    let state = place.state("t").await;
    assert_eq!(state["values"]["outcome"], "completed");
    assert_eq!(state["values"]["messages"][0]["content"], "1 + 1");
    let shown = place.run(&["state", "t", "--at", "6"]).await.ok().stdout;
    let without_time =
        shown.lines().filter(|line| !line.starts_with("checkpoint")).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!(without_time, @r#"
    thread      t
    status      stopped before tools
    steps       0 of 25

    user: 1 + 1

    assistant:
      → calculate {"expression":"1 + 1"}
    "#);
    place
        .run(&["state", "t", "--at", "99"])
        .await
        .refused(5, "SS111: thread `t` has no checkpoint 99; its history lists those it has");
}

#[tokio::test]
async fn the_history_has_every_superstep() {
    let place = Place::new();
    place.run(&["run", "-q", "1 + 1", "--thread", "t"]).await.ok();
    let next: Vec<_> = place.steps("t").await.iter().map(|step| step["next"].to_string()).collect();
    assert_eq!(
        next,
        [
            "[]",
            r#"["finalize"]"#,
            r#"["agent"]"#,
            r#"["tools"]"#,
            r#"["agent"]"#,
            r#"["memory_trigger"]"#,
            r#"["retrieve"]"#,
            r#"["init_state"]"#,
            r#"["__start__"]"#
        ]
    );
    let tree = place.run(&["history", "t"]).await.ok().stdout;
    let checkpoints: Vec<&str> = tree.lines().filter(|line| line.starts_with("● ")).collect();
    assert_eq!(checkpoints.len(), 9, "{tree}");
    assert!(checkpoints[0].starts_with("● 1  input  "), "{tree}");
    assert!(checkpoints[8].starts_with("● 9  superstep 7  ") && checkpoints[8].ends_with("  head"), "{tree}");
    assert!(tree.contains("\n│     tools: messages = [{\"content\":\"2\""), "{tree}");
    let superstep = |nth: usize| tree.split("● ").nth(nth).expect("there are nine");
    assert!(superstep(2).contains("input: user_id = \"me\"") && !superstep(2).contains("= null"), "{tree}");
    assert!(superstep(3).contains("init_state: max_steps = 25"), "{tree}");
    let last = place.run(&["history", "t", "--limit", "2"]).await.ok().stdout;
    assert_eq!(last.lines().filter(|line| line.starts_with("● ")).count(), 2, "{last}");
}

#[tokio::test]
async fn the_tree_has_only_writes_that_changed_a_value() {
    let place = Place::new();
    let mut turns = Vec::new();
    for _ in 0..2 {
        place.run(&["run", "-q", "1 + 1", "--thread", "t"]).await.ok();
        let tree = place.run(&["history", "t"]).await.ok().stdout;
        turns.push(tree.split("● ").skip(1 + 9 * turns.len()).collect::<String>());
    }
    let written = |turn: usize, node: &str| -> Vec<&str> {
        let author = format!("{node}: ");
        let writes = turns[turn].lines().filter_map(|line| line.split_once(&author));
        writes.map(|(_, write)| write.split_once(" = ").map_or(write, |(channel, _)| channel)).collect()
    };
    // The others have their initial values.
    assert_eq!(written(0, "input"), ["messages", "user_id"]);
    assert_eq!(written(0, "init_state"), ["max_steps"]);
    assert_eq!(written(0, "retrieve"), ["(nothing)"]);
    // Each is the result of a merge, or a new value.
    assert_eq!(written(1, "input"), ["messages"]);
    let reset = written(1, "init_state");
    assert_eq!(reset[0], "reset: tool_call_history, tool_result_history, tools_used");
    assert!(
        ["current_step", "final_reply", "llm_calls"].iter().all(|name| reset.contains(name)),
        "{reset:?}"
    );
    assert!(!["answer", "error", "max_steps", "stop"].iter().any(|name| reset.contains(name)), "{reset:?}");
}

#[tokio::test]
async fn the_history_as_json_has_all_writes() {
    let place = Place::new();
    place.run(&["run", "-q", "1 + 1", "--thread", "t"]).await.ok();
    let steps = place.run(&["history", "t", "--json"]).await.ok().lines();
    let nodes: Vec<_> = steps.iter().rev().map(|step| step["writes"][0]["node"].to_string()).collect();
    let wanted =
        ["__start__", "init_state", "retrieve", "memory_trigger", "agent", "tools", "agent", "finalize"];
    assert_eq!(nodes[1..], wanted.map(|node| format!("\"{node}\"")));
    assert_eq!((&nodes[0][..], &steps[8]["writes"]), ("null", &json!([])));
    assert_eq!(steps[2]["writes"][0]["update"]["tools_used"], json!(["calculate"]));
    let reset = &steps[6]["writes"][0]["update"];
    assert_eq!((&reset["clear"][0], &reset["error"]), (&json!("tool_call_history"), &Value::Null));
    assert!(reset.as_object().unwrap().contains_key("error"), "{reset}");
}

#[tokio::test]
async fn two_states_are_compared_by_channel() {
    let place = Place::new();
    for (prompt, thread) in [("1 + 1", "one"), ("2 + 2", "two")] {
        place.run(&["run", "-q", prompt, "--thread", thread]).await.ok();
    }
    let steps = place.run(&["diff", "one@5", "@6", "--json"]).await.ok().lines();
    assert!(steps.iter().any(|line| line["channel"] == "messages"), "{steps:?}");
    let threads = place.run(&["diff", "one", "two"]).await.ok().stdout;
    assert!(threads.starts_with("--- one@9  superstep 7\n+++ two@9  superstep 7\n"), "{threads}");
    for line in ["  -   1 + 1 = 2", "  +   2 + 2 = 4"] {
        assert!(threads.lines().any(|found| found == line), "{line}: {threads}");
    }
    assert_eq!(place.run(&["diff", "one", "one"]).await.ok().stdout, "no differences\n");
}

#[tokio::test]
async fn a_watch_of_a_finished_thread_shows_its_end() {
    let place = Place::new();
    place.run(&["run", "-q", "1 + 1", "--thread", "t"]).await.ok();
    let watched = place.run(&["watch", "t"]).await.ok();
    assert!(watched.stdout.starts_with("● 9  superstep 7  "), "{watched:?}");
    assert_eq!(watched.stderr, "thread `t` is finished\n");
}

#[tokio::test]
async fn the_graph_is_drawn_in_three_languages_and_as_a_picture() {
    let place = Place::new();
    let draw = async |format: &str| place.run(&["draw", "--format", format]).await.ok().stdout;
    insta::assert_snapshot!(draw("text").await, @"
    START          ──▶ init_state
    init_state     ──▶ retrieve
    retrieve       ──▶ memory_trigger
    memory_trigger ──▶ agent
    agent          ┄┄▶ tools  (Tools)
    agent          ┄┄▶ agent  (Agent)
    agent          ┄┄▶ compact  (Compact)
    agent          ┄┄▶ finalize  (Finalize)
    tools          ──▶ agent
    compact        ──▶ agent
    finalize       ──▶ END
    ");
    // A run without flags has it.
    place.run(&["run", "-q", "1 + 1", "--thread", "t"]).await.ok();
    let ran = place.run(&["draw", "--thread", "t"]).await.ok().stdout;
    let nodes = |drawn: &str| {
        drawn.lines().map(|line| line.split("  ×").next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(nodes(&ran), nodes(&draw("text").await));
    assert_eq!(place.run(&["draw"]).await.ok().stdout, draw("text").await);
    let (mermaid, dot) = (draw("mermaid").await, draw("dot").await);
    assert!(mermaid.starts_with("flowchart TD\n") && mermaid.contains("[\"finalize\"]"), "{mermaid}");
    assert!(dot.starts_with("digraph {\n") && dot.contains("[label=\"finalize\"]"), "{dot}");
    let readme = include_str!("../../README.md");
    assert!(readme.contains(&format!("```mermaid\n{mermaid}```\n")), "README.md has another picture");
    let svg = draw("svg").await;
    assert!(svg.starts_with("<svg ") && svg.contains(">finalize</text>"), "{svg}");
    assert_eq!(place.run(&["graph", "--format", "svg"]).await.ok().stdout, svg);
}

#[tokio::test]
async fn the_graph_is_drawn_as_png_by_a_program_with_that_feature() {
    let place = Place::new();
    let mut draw = place.command(&["draw", "--format", "png"]);
    let ran = draw.output().await.unwrap();
    let error = String::from_utf8_lossy(&ran.stderr);
    if !cfg!(feature = "png") {
        assert!(error.contains("build superstep-cli with the feature `png`"), "{error}");
    } else if error.contains("no fonts") {
        superstep_testing::skipped("this machine has no fonts");
    } else {
        assert!(ran.status.success(), "{error}");
        assert!(ran.stdout.starts_with(b"\x89PNG\r\n\x1a\n"));
        // Both sides are twice those of the SVG.
        let side = |at: usize| u32::from_be_bytes(ran.stdout[at..at + 4].try_into().unwrap());
        let svg = place.run(&["draw", "--format", "svg"]).await.ok().stdout;
        let sides = format!("width=\"{}\" height=\"{}\"", side(16) / 2, side(20) / 2);
        assert!(svg.contains(&sides), "{sides}");
    }
}

#[tokio::test]
async fn the_path_of_a_thread_is_drawn() {
    let place = Place::new();
    place.run(&["run", "-q", "1 + 1", "--thread", "t"]).await.ok();
    insta::assert_snapshot!(place.run(&["draw", "--thread", "t"]).await.ok().stdout, @"
    START          ──▶ init_state  ×1
    init_state     ──▶ retrieve  ×1
    retrieve       ──▶ memory_trigger  ×1
    memory_trigger ──▶ agent  ×1
    agent          ┄┄▶ tools  (Tools)  ×1
    agent          ┄┄▶ agent  (Agent)
    agent          ┄┄▶ compact  (Compact)
    agent          ┄┄▶ finalize  (Finalize)  ×1
    tools          ──▶ agent  ×1
    compact        ──▶ agent
    finalize       ──▶ END  ×1
    ");
    let unknown = place.run(&["draw", "--thread", "nobody"]).await;
    assert!(unknown.stderr.contains("`nobody`") && unknown.stdout.is_empty(), "{unknown:?}");
}

#[tokio::test]
async fn help_teaches_and_completions_complete() {
    let place = Place::new();
    let help = place.run(&["--help"]).await.ok().stdout;
    for part in ["Examples:", "Exit codes:", "OPENAI_API_KEY", "superstep resume"] {
        assert!(help.contains(part), "{help}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = place.run(&["completions", shell]).await.ok().stdout;
        assert!(script.contains("superstep"), "{script}");
    }
    assert_eq!(
        place.run(&["--version"]).await.ok().stdout,
        concat!("superstep ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

#[tokio::test]
async fn the_help_of_a_command_has_its_thread_first_and_the_shared_options_last() {
    let place = Place::new();
    let steer = place.run(&["steer", "--help"]).await.ok().stdout;
    assert_eq!(
        steer,
        "\
Send a message to a running turn, for example in another terminal; the agent reads it before its
next model call

Usage: superstep steer [OPTIONS] <THREAD> <TEXT>

Arguments:
  <THREAD>  The thread
  <TEXT>    The message

Options:
      --db <FILE|URL>  The database [default: SUPERSTEP_DB, then `.superstep/threads.db` in `--cwd`]
      --cwd <DIR>      The folder of `.superstep` and the tools [default: the current one]
      --json           Print JSON: one object per line
      --log <FILTER>   Log on stderr: `info`, `debug`, or `superstep=debug,rmcp=info`
  -h, --help           Print help
"
    );
    let prune = place.run(&["prune", "--help"]).await.ok().stdout;
    assert_eq!(
        prune,
        "\
Delete older checkpoints of a thread; its newest one always stays

Usage: superstep prune [OPTIONS] <--keep-last <N>|--older-than <DURATION>|--leaves> <THREAD>

Arguments:
  <THREAD>  The thread

Options:
      --keep-last <N>          Retain this number of newest checkpoints
      --older-than <DURATION>  Delete those older than this, such as `12h`, `30d` or `2w`
      --leaves                 Retain the last one of each branch
  -y, --yes                    Skip the confirmation
      --db <FILE|URL>          The database [default: SUPERSTEP_DB, then `.superstep/threads.db` in
                               `--cwd`]
      --cwd <DIR>              The folder of `.superstep` and the tools [default: the current one]
      --json                   Print JSON: one object per line
      --log <FILTER>           Log on stderr: `info`, `debug`, or `superstep=debug,rmcp=info`
  -h, --help                   Print help
"
    );
}

#[tokio::test]
async fn the_help_of_the_worker_names_no_settings_of_a_thread_as_defaults() {
    let help = Place::new().run(&["worker", "--help"]).await.ok().stdout;
    assert!(help.contains("then OPENAI_MODEL]") && !help.contains("thread's"), "{help}");
}

#[tokio::test]
async fn the_guide_names_every_command_flag_and_exit_code() {
    let place = Place::new();
    let guide = include_str!("../../docs/cli.md");
    let help = place.run(&["--help"]).await.ok().stdout;
    let codes =
        help.split_once("Exit codes:").unwrap().1.lines().filter_map(|line| line.split_whitespace().next());
    for code in codes {
        assert!(guide.contains(&format!("| {code} |")), "exit code {code}");
    }
    let (_, environment) = help.split_once("Environment:").unwrap();
    let is_name = |word: &&str| word.len() > 3 && word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let names =
        environment.lines().take_while(|line| !line.starts_with("Exit")).flat_map(str::split_whitespace);
    let names: Vec<_> = names.map(|word| word.trim_matches(',')).filter(is_name).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert!(guide.contains(&format!("`{name}")), "{name}");
    }
    let commands = commands(&place).await;
    let (_, table) = guide.split_once("| command | effect |").unwrap();
    assert_table(table.split_once("\n\n").unwrap().0, "superstep ", &commands);
    for command in commands {
        for flag in command.flags() {
            assert!(guide.contains(&format!("`{flag}")), "{flag} of {}", command.name);
        }
    }
}

#[tokio::test]
async fn the_guide_describes_the_json_of_every_command() {
    let place = Place::new();
    let (_, table) =
        include_str!("../../docs/cli.md").split_once("| command | object |\n|---|---|\n").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let mut with_json = commands(&place).await;
    // The events of these two are in a table of their own.
    with_json.retain(|command| !["run", "resume"].contains(&&*command.name));
    with_json.retain(|command| command.flags().any(|flag| flag == "--json"));
    assert_table(table, "", &with_json);
    for thread in ["a", "b"] {
        place.run(&["run", "-q", "1 + 1", "--thread", thread]).await.ok();
    }
    place.file("a.thread.jsonl", &place.run(&["export", "a"]).await.ok().stdout);
    for words in [
        "threads",
        "state a",
        "diff a@2 @4",
        "replay a",
        "copy a c",
        "import a.thread.jsonl --as d",
        "prune a --keep-last 1",
        "db check",
        "db stats",
        "db prune --keep-last 1",
        "db vacuum",
        "db migrate",
        "delete b",
        "models claude-opus",
        "presets",
        "tools",
    ] {
        let args: Vec<_> = words.split(' ').chain(["--json"]).collect();
        let object = place.run(&args).await.ok().lines().remove(0);
        let is_of = |line: &&str| {
            let name = line.trim_start_matches("| `").split('`').next().unwrap();
            format!("{words} ").starts_with(&format!("{name} "))
        };
        let row = table.lines().find(is_of).unwrap();
        for field in object.as_object().unwrap().keys() {
            assert!(row.contains(&format!("`{field}`")), "`{words}` has the field `{field}`: {row}");
        }
    }
}

#[tokio::test]
async fn presets_are_listed_written_down_and_used() {
    let place = Place::new();
    let listed = place.run(&["presets"]).await.ok().stdout;
    for name in ["default", "cococat", "opencode", "harness", "graph", "agentscope"] {
        assert!(listed.contains(name), "{listed}");
    }
    let toml = place.run(&["presets", "harness"]).await.ok().stdout;
    assert!(toml.starts_with("preset = \"harness\"\n"), "{toml}");
    place.file("mine.toml", &toml.replace("max = 40", "max = 0"));
    let ran = place.run(&["run", "-q", "2 + 2", "--config", "mine.toml", "--thread", "t"]).await.ok();
    assert_eq!(ran.stdout, "Max iterations reached.\n");
    // The thread stores it, until another one is named.
    assert_eq!(
        place.run(&["run", "-q", "2 + 2", "--thread", "t"]).await.ok().stdout,
        "Max iterations reached.\n"
    );
    let other = place.run(&["run", "-q", "2 + 2", "--thread", "t", "--preset", "default"]).await.ok().stdout;
    assert!(other.contains('4'), "{other}");
}

#[tokio::test]
async fn a_configuration_that_does_not_fit_is_refused_by_name() {
    let place = Place::new();
    for (text, wanted) in [
        ("limits = 3", "does not fit: line 1, column 1: unknown field `limits`; did you mean `limit`?"),
        (
            "parts = true\npresett = \"default\"",
            "does not fit: line 2, column 1: unknown field `presett`; did you mean `preset`?",
        ),
        (
            "mode = \"foo\"",
            "does not fit: line 1, column 8: `mode`: unknown variant `foo`, expected `single` or `react`",
        ),
        (
            "preset = \"nope\"",
            "does not fit: line 1, column 1: unknown preset `nope`; known presets are default, cococat, \
             opencode, harness, graph, agentscope",
        ),
        (
            "[limit]\nmax = \"x\"",
            "does not fit: line 2, column 1: `limit.max`: invalid type: string \"x\", expected a whole number from 0 on",
        ),
        ("parts = true\nlimit = [", "is not valid TOML: line 2, column 10: unclosed array, expected `]`"),
    ] {
        place.file("bad.toml", text);
        let ran = place.run(&["run", "hi", "--config", "bad.toml"]).await;
        ran.refused(2, &format!("the configuration `bad.toml` {wanted}"));
    }
    place.file("bad.toml", "xyz = 1");
    let ran = place.run(&["run", "hi", "--config", "bad.toml"]).await;
    let all = "does not fit: line 1, column 1: unknown field `xyz`; known fields are `preset`, `mode`, \
        `models`, `tools`, `mcp`, ";
    assert!(ran.code == Some(2) && ran.stderr.contains(all), "{}", ran.stderr);
    let ran = place.run(&["run", "hi", "--config", "missing.toml"]).await;
    assert!(ran.code == Some(2) && ran.stderr.contains("cannot be read"), "{}", ran.stderr);
    place
        .run(&["run", "hi", "--config", "."])
        .await
        .refused(2, "the configuration `.` is not a regular file");
    let ran = place.run(&["presets", "nope"]).await;
    assert!(ran.code == Some(2) && ran.stderr.contains("unknown preset `nope`"), "{}", ran.stderr);
}
