//! `superstep config`, and the files `superstep.toml` of a folder and of the user.

use std::fs;

use serde_json::Value;
use superstep_testing::script::{call, txt};

use crate::support::{Place, ended, serve};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/it/mcp/server.sh");

/// Writes the user's file.
fn of_user(place: &Place, toml: &str) {
    let folder = place.beside("config").join("superstep");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("superstep.toml"), toml).unwrap();
}

/// Returns the value and the source of a setting.
fn row(rows: &[Value], name: &str) -> (Value, String) {
    let row = rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name}: {rows:?}"));
    (row["value"].clone(), row["source"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn each_value_has_its_source() {
    let place = Place::new();
    of_user(
        &place,
        "snapshots = false\n[limit]\nmax = 9\n[models.main]\nmodel = \"of-user\"\nkey_env = \"MINE\"\n",
    );
    place.file("superstep.toml", "tools = [\"read\"]\n[limit]\nmax = 7\n");
    let rows = async |args: &[&str], model: &str| {
        let args = [&["config", "--json"], args].concat();
        let mut command = place.command(&args);
        command.env("OPENAI_MODEL", model).env("OPENAI_API_KEY", "sk-5ecret").env("MINE", "sk-5ecret");
        let ran = ended(&mut command).await.ok();
        assert!(!ran.stdout.contains("sk-5ecret"), "{ran:?}");
        ran.lines()
    };
    let is = |rows: &[Value], name: &str, value: Value, source: &str| {
        assert_eq!(row(rows, name), (value, source.to_owned()), "{name}");
    };
    let first = rows(&[], "").await;
    is(&first, "limit.max", 9.into(), "user");
    is(&first, "model", "of-user".into(), "user");
    is(&first, "tools", serde_json::json!(["read"]), "project, not confirmed");
    is(&first, "api_key", "set".into(), "environment");
    let confirmed = place.run(&["config", "--trust"]).await.ok();
    assert!(confirmed.stdout.contains("superstep.toml"), "{confirmed:?}");
    let then = rows(&[], "of-environment").await;
    is(&then, "limit.max", 7.into(), "project");
    is(&then, "tools", serde_json::json!(["read"]), "project");
    is(&then, "snapshots", false.into(), "user");
    is(&then, "model", "of-environment".into(), "environment");
    is(&then, "preset", "default".into(), "default");
    is(&then, "db", ".superstep/threads.db".into(), "default");
    assert_eq!(row(&then, "finish.by").1, "default");
    let flags = rows(&["--max-steps", "3", "--model", "of-flag"], "of-environment").await;
    is(&flags, "limit.max", 3.into(), "flag");
    is(&flags, "model", "of-flag".into(), "flag");
    place.file("agent.toml", "snapshots = true\n");
    let file = rows(&["--config", "agent.toml"], "").await;
    is(&file, "snapshots", true.into(), "config");
    assert!(file.iter().all(|row| row["source"] != "project" && row["source"] != "user"), "{file:?}");
    let table = place.run(&["config"]).await.ok().stdout;
    assert!(table.contains("limit.max") && table.contains("project /"), "{table}");
}

#[tokio::test]
async fn the_file_of_a_folder_counts_once_it_is_confirmed() {
    let place = Place::new();
    let server = serve(["1", "2", "3", "4", "5"].map(txt)).await;
    let url = server.base_url();
    let tools = |request: usize| {
        let tools = server.requests()[request]["tools"].as_array().cloned().unwrap_or_default();
        let names = tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    let run = async |thread: &str| {
        let args = ["run", "go", "--thread", thread, "--no-memory", "--model", "m", "--base-url", &url];
        place.run(&args).await.ok().stderr
    };
    place.file("superstep.toml", "tools = [\"read_file\"]\n");
    let note = "is not used, because you have not confirmed it on this machine";
    assert!(run("a").await.contains(note));
    assert!(tools(0).len() > 1, "{:?}", tools(0));
    place.run(&["config", "--trust"]).await.ok();
    assert!(!run("b").await.contains(note));
    assert_eq!(tools(1), ["read_file"]);
    // A changed file is to be confirmed again, and a thread keeps what it began with.
    place.file("superstep.toml", "tools = [\"shell\"]\n");
    assert!(run("c").await.contains(note));
    assert!(tools(2).len() > 1, "{:?}", tools(2));
    place.run(&["config", "--trust"]).await.ok();
    run("d").await;
    run("b").await;
    assert_eq!((tools(3), tools(4)), (vec!["shell".to_owned()], vec!["read_file".to_owned()]));
    // The confirmation is that of this user on this machine.
    let other = ended(&mut place.command_of("other", &["config", "--json"])).await.ok().lines();
    assert_eq!(row(&other, "tools").1, "project, not confirmed");
}

#[tokio::test]
async fn a_wrong_setting_is_named_with_its_place_and_the_one_that_was_meant() {
    let place = Place::new();
    of_user(&place, "snapshots = true\ntols = []\n");
    for args in [&["run", "2 + 2"][..], &["config"], &["doctor"], &["tools"]] {
        let meant =
            "superstep.toml` does not fit: line 2, column 1: unknown field `tols`; did you mean `tools`?";
        let ran = place.run(args).await;
        assert!(ran.code == Some(2) && ran.stderr.contains(meant), "{args:?}: {ran:?}");
    }
    of_user(&place, "");
    place.file("superstep.toml", "[models.main]\napi_key = \"sk-5ecret\"\n");
    place.run(&["run", "2 + 2", "--model", "offline"]).await.ok();
    let wrong = place.run(&["config", "--trust"]).await;
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.stderr.contains("line 2, column 1: `models.main`: unknown field `api_key`"), "{wrong:?}");
    assert!(!wrong.stderr.contains("sk-5ecret"), "{wrong:?}");
    let none = place.run(&["config", "--trust", "--cwd", ".."]).await;
    assert!(none.code == Some(2) && none.stderr.contains("no `superstep.toml` to confirm"), "{none:?}");
}

#[tokio::test]
async fn a_confirmed_file_names_servers_also_for_later_turns() {
    let place = Place::new();
    let said = r#"{"what":"hi"}"#;
    let server =
        serve([call("c1", "small_say", said), txt("one"), call("c2", "small_say", said), txt("two")]).await;
    let model =
        format!("[models.main]\nmodel = \"m\"\nbase_url = \"{}\"\nkey_env = \"MINE\"\n", server.base_url());
    let small = format!(
        "[mcp.small]\ncommand = \"sh\"\nargs = [\"{SERVER}\"]\nask = \"never\"\nenv = {{ SEEN = \"seen\" }}\n"
    );
    place.file("superstep.toml", &(model + &small));
    let seen = place.work().join("seen");
    let turn = async |prompt: &str| {
        let mut command = place.command(&["run", prompt, "-q", "--thread", "t"]);
        ended(command.env("MINE", "sk-5ecret")).await
    };
    place.run(&["config", "--trust"]).await.ok();
    assert_eq!(turn("go").await.ok().stdout, "one\n");
    assert_eq!(turn("more").await.ok().stdout, "two\n");
    assert!(seen.exists());
    // A file that changed names no server any more.
    fs::remove_file(&seen).unwrap();
    place.file("superstep.toml", "snapshots = true\n");
    let refused = turn("and now?").await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(!seen.exists());
}

#[tokio::test]
async fn a_folder_only_adds_guardrails_and_a_blocked_turn_is_shown() {
    let place = Place::new();
    of_user(&place, "[guardrails]\noutput_size = 5\nhold = true\n");
    place.file("superstep.toml", "[guardrails]\noutput_size = 500\n");
    place.run(&["config", "--trust"]).await.ok();
    let server = serve([txt("much too long"), txt("much too long")]).await;
    let url = server.base_url();
    let args = ["run", "hi", "--base-url", &url, "--model", "m"];
    let ran = place.run(&[&args[..], &["--json"]].concat()).await.ok();
    assert!(!ran.stdout.contains("much too long"), "{}", ran.stdout);
    let last = ran.lines().pop().unwrap();
    assert_eq!(last["data"]["outcome"], "guarded");
    assert_eq!(last["data"]["metadata"]["stop_reason"], "guardrail:output_size");
    let ran = place.run(&args).await.ok();
    assert_eq!(ran.stdout, "The text has 13 characters; 5 are allowed.\n");
    assert!(ran.stderr.contains("a guardrail blocked the turn (guardrail:output_size)"), "{}", ran.stderr);
    server.check().unwrap();
}
