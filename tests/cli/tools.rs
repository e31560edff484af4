//! The effects of the program's tools, as a model reads them.

use std::fs;

use serde_json::Value;
use superstep_testing::script::{call, calls, txt};

use crate::support::{Place, ended, serve};

/// Returns the results of the calls of one round, which are all approved.
async fn round(place: &Place, calls_made: &[(&str, &str, &str)]) -> Vec<String> {
    let server = serve([calls(calls_made.iter().copied()), txt("ok")]).await;
    let url = server.base_url();
    let mut command = place.command(&["run", "go", "--yes", "--base-url", &url, "--model", "m"]);
    ended(command.env("OPENAI_API_KEY", "sk-very-secret-key").env("MY_TOKEN", "tok-hidden")).await.ok();
    let requests = server.requests();
    let messages = requests[1]["messages"].as_array().unwrap().iter();
    messages
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn files_are_written_and_commands_run_in_the_folder() {
    let place = Place::new();
    let results = round(
        &place,
        &[
            ("c1", "write_file", r#"{"path":"a/b.txt","content":"hello\n"}"#),
            ("c2", "shell", r#"{"command":"cat notes.txt | head -n 1; echo to-file > out.txt; exit 4"}"#),
            ("c3", "write_file", r#"{"path":"../out.txt","content":""}"#),
        ],
    )
    .await;
    assert_eq!(
        results,
        [
            "made 'a/b.txt': 1 line",
            "first line\n[exit code 4]",
            "Error: Permission denied: path '../out.txt' is outside the workspace root; use a path below it"
        ]
    );
    assert_eq!(fs::read_to_string(place.work().join("a/b.txt")).unwrap(), "hello\n");
    assert_eq!(fs::read_to_string(place.work().join("out.txt")).unwrap(), "to-file\n");
}

#[tokio::test]
async fn the_output_of_a_command_is_shown_line_by_line() {
    let place = Place::new();
    let command = r#"{"command":"printf '10 %%\\r90 %%\\n\\n\\033[31mred\\nend'"}"#;
    let server = serve([call("c1", "shell", command), txt("ok")]).await;
    let args = ["run", "hi", "--yes", "--base-url", &server.base_url(), "--model", "m"];
    let ran = place.run(&args).await.ok();
    let shown: Vec<_> = ran.stderr.lines().filter_map(|line| line.trim_start().strip_prefix("│ ")).collect();
    assert_eq!(shown, ["10 %", "90 %", "\\u{1b}[31mred", "end"], "{ran:?}");
}

#[tokio::test]
async fn a_command_does_not_get_the_secrets_of_the_environment() {
    let place = Place::new();
    let results = round(&place, &[("c1", "shell", r#"{"command":"env; true"}"#)]).await;
    assert!(results[0].contains("PATH=") && results[0].ends_with("[exit code 0]"), "{}", results[0]);
    assert!(
        !results[0].contains("sk-very-secret-key") && !results[0].contains("tok-hidden"),
        "{}",
        results[0]
    );
}

#[tokio::test]
async fn a_page_is_fetched_as_text() {
    let place = Place::new();
    let page = superstep_testing::script::http(200, &[("content-type", "text/html")], "<h1>Hi</h1><p>there");
    let web = serve([page]).await;
    let url = web.base_url();
    let args = format!(r#"{{"url":"{url}/page"}}"#);
    let results = round(&place, &[("c1", "fetch_url", &args)]).await;
    assert_eq!(results, [format!("[{url}/page, 19 bytes]\n# Hi\n\nthere")]);
}

#[tokio::test]
async fn the_todo_list_is_shown_and_stored_with_the_thread() {
    let place = Place::new();
    let list = |status: &str| {
        format!(r#"{{"items":[{{"text":"look","status":"{status}"}},{{"text":"say","status":"pending"}}]}}"#)
    };
    let (first, second) = (list("in_progress"), list("done"));
    let server = serve([call("c1", "todo", &first), call("c2", "todo", &second), txt("ok")]).await;
    let url = server.base_url();
    let ran = place.run(&["run", "go", "--thread", "t", "--base-url", &url, "--model", "m"]).await.ok();
    assert!(ran.stderr.contains("    [>] look\n    [ ] say\n"), "{}", ran.stderr);
    let shown = place.run(&["state", "t"]).await.ok().stdout;
    assert!(
        shown.contains("to do       [x] look\n            [ ] say\n            1 of 2 done\n"),
        "{shown}"
    );
}

#[tokio::test]
async fn a_permission_rule_with_a_wrong_name_is_refused() {
    let place = Place::new();
    let refused = async |rule: &str, what: &str| {
        place.file("rules.toml", &format!("[[permissions]]\n{rule}\n"));
        let ran = place.run(&["run", "go", "--yes", "--config", "rules.toml"]).await;
        ran.refused(2, &format!("a permission rule names tool {what}; see `superstep tools`"));
    };
    refused("tool = \"shel\"\nthen = \"deny\"", "`shel`, which does not exist").await;
    let argument = "tool = \"{edit,write}_file\"\narguments = { pat = \"docs/*\" }\nthen = \"allow\"";
    refused(argument, "`{edit,write}_file`, which has no argument `pat`").await;
    // It need not be one of the chosen ones.
    place.file("rules.toml", "[[permissions]]\ntool = \"sh*\"\nthen = \"deny\"\n");
    place.run(&["run", "1 + 1", "--tools", "calculate", "--config", "rules.toml"]).await.ok();
}

#[tokio::test]
async fn only_the_chosen_tools_are_there() {
    let place = Place::new();
    let names = |request: &Value| -> Vec<String> {
        let tools = request["tools"].as_array().cloned().unwrap_or_default();
        tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
    };
    place.file("few.toml", "tools = [\"read\", \"todo\"]\n");
    let server = serve([txt("1"), txt("2"), txt("3"), txt("4")]).await;
    let url = server.base_url();
    let run = ["run", "go", "--thread", "t", "--base-url", &url, "--model", "m"];
    place.run(&[&run[..], &["--config", "few.toml"]].concat()).await.ok();
    place.run(&run).await.ok();
    place.run(&[&run[..], &["--tools", "shell,calculate"]].concat()).await.ok();
    place.run(&[&run[..], &["--tools", ""]].concat()).await.ok();
    let requests = server.requests();
    let few = ["list_files", "read_file", "search_files", "todo"];
    assert_eq!(
        (names(&requests[0]), names(&requests[1])),
        (few.map(str::to_owned).into(), few.map(str::to_owned).into())
    );
    assert_eq!(names(&requests[2]), ["calculate", "shell"]);
    assert_eq!(names(&requests[3]), [""; 0]);
    let wrong = place.run(&["run", "go", "--tools", "read,nope"]).await;
    wrong.refused(2, "unknown tool or group of tools `nope`; see `superstep tools`");
    for name in ["memory", "record_to_memory"] {
        let wrong = place.run(&["run", "hi", "--tools", &format!("read,{name}")]).await;
        let error =
            format!("`{name}` is not among the tools to choose: `memory.tools` switches those of a memory");
        wrong.refused(2, &error);
    }
    place.file("bad.toml", "tools = \"read\"\n");
    place.run(&["run", "go", "--config", "bad.toml"]).await.refused(
        2,
        "the configuration `bad.toml` does not fit: line 1, column 9: `tools`: invalid type: string \"read\", expected a list \
         of names, such as `tools = [\"read\", \"shell\"]`",
    );
    place.file("bad.toml", "tools = [\"read\", \"nope\"]\n");
    place.run(&["run", "go", "--config", "bad.toml"]).await.refused(
        2,
        "the configuration `bad.toml` does not fit: line 1, column 1: `tools`: unknown tool or group of \
         tools `nope`; see `superstep tools`",
    );
}

#[tokio::test]
async fn the_tools_are_listed_with_their_groups() {
    let place = Place::new();
    let listed = place.run(&["tools"]).await.ok().stdout;
    for words in ["GROUP", "shell", "write_file", "APPROVAL", "required", "fetch_url"] {
        assert!(listed.contains(words), "{listed}");
    }
    let lines = place.run(&["tools", "--json"]).await.ok().lines();
    assert_eq!(lines.len(), 11);
    let shell = lines.iter().find(|line| line["tool"] == "shell").unwrap();
    assert_eq!((&shell["group"], &shell["asks"]), (&"shell".into(), &true.into()));
    assert!(shell["about"].as_str().unwrap().starts_with("Runs a command"));
    assert_eq!(shell["parameters"]["type"], "object");
}
