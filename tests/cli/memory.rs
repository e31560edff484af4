//! Long-term memory: `[memory]`, `--user`, and `superstep memory`.

use serde_json::Value;
use superstep_testing::{
    script::{call, txt},
    wire::WireServer,
};

use crate::support::{Place, serve};

/// Returns the memory entries of a request.
fn looked_up(server: &WireServer, request: usize) -> Vec<String> {
    let requests = server.requests();
    let messages = requests[request]["messages"].as_array().unwrap().iter();
    let texts = messages.filter_map(|message| message["content"].as_str());
    let found = texts.filter_map(|text| text.split_once("<long_term_memory>\n"));
    found.map(|(_, found)| found.trim_end_matches("</long_term_memory>").to_owned()).collect()
}

fn tools(server: &WireServer) -> Vec<String> {
    let tools = server.requests()[0]["tools"].as_array().cloned().unwrap_or_default();
    let names = tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned());
    names.filter(|name| name.ends_with("memory")).collect()
}

#[tokio::test]
async fn memories_of_one_thread_are_found_on_the_next_for_the_same_user_only() {
    for toml in [
        "[memory]\n",
        "[memory]\nstore = \"sqlite\"\n",
        "[memory]\nstore = \"file\"\npath = \"notes\"\n",
        "[memory]\nstore = \"sqlite\"\npath = \"notes/memory.db\"\n",
    ] {
        let place = Place::new();
        place.file("agent.toml", toml);
        let record = call("c1", "record_to_memory", r#"{"content":["Mia is my cat"]}"#);
        let server = serve([txt("noted"), record, txt("1"), txt("2"), txt("3"), txt("4")]).await;
        let url = server.base_url();
        let run = ["--base-url", &url, "--model", "m", "-q"];
        let config = [&run[..], &["--config", "agent.toml"]].concat();
        place.run(&[&["run", "remember that I like tea"], &config[..]].concat()).await.ok();
        place.run(&[&["run", "Which tea?", "--thread", "two"], &config[..]].concat()).await.ok();
        // The thread stores its memory and its user.
        place.run(&[&["run", "Which tea?", "--thread", "two"], &run[..]].concat()).await.ok();
        place
            .run(&[&["run", "Which tea?", "--thread", "ada", "--user", "ada"], &config[..]].concat())
            .await
            .ok();
        place.run(&[&["run", "Which tea?", "--thread", "ada"], &run[..]].concat()).await.ok();
        assert_eq!(tools(&server), ["record_to_memory", "retrieve_from_memory"]);
        assert!(looked_up(&server, 0).is_empty());
        assert_eq!(looked_up(&server, 1), ["- remember that I like tea\n"], "{toml}");
        assert_eq!(looked_up(&server, 3).len(), 2, "{toml}");
        assert!(looked_up(&server, 4).is_empty() && looked_up(&server, 5).is_empty(), "{toml}");
        assert_eq!(place.state("ada").await["values"]["user_id"], "ada");

        let list = ["memory", "list", "--json", "--config", "agent.toml"];
        let texts = |lines: Vec<Value>| {
            let mut texts: Vec<_> =
                lines.iter().map(|line| line["text"].as_str().unwrap().to_owned()).collect();
            texts.sort();
            texts
        };
        let listed = texts(place.run(&list).await.ok().lines());
        assert_eq!(listed, ["Mia is my cat", "remember that I like tea"], "{toml}");
        let others = place.run(&[&list[..], &["--user", "ada"]].concat()).await.ok().lines();
        assert!(others.is_empty(), "{toml}");
        // Memory entries are shown to the model, and are not part of the conversation.
        let shown = place.run(&["state", "two"]).await.ok().stdout;
        assert!(shown.contains("user: Which tea?") && !shown.contains("long_term_memory"), "{shown}");
    }
}

#[tokio::test]
async fn by_default_the_user_has_a_memory() {
    let place = Place::new();
    let server = serve([txt("noted"), txt("1"), txt("2"), txt("3"), txt("4")]).await;
    let url = server.base_url();
    let run = ["--base-url", &url, "--model", "m"];
    let said = place.run(&[&["run", "remember that I like tea"], &run[..]].concat()).await.ok().stderr;
    assert!(said.contains("stored a memory; see `superstep memory list`"), "{said}");
    place.run(&["memory", "add", "Mia likes tea, too"]).await.ok();
    // It is independent of the folder, and known in each.
    let names = std::fs::read_dir(place.work().join(".superstep")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(!names.iter().any(|name| name.contains("memory")), "{names:?}");
    std::fs::create_dir(place.beside("other")).unwrap();
    let other = place.beside("other");
    let elsewhere = ["run", "Which tea?", "--thread", "two", "--cwd", other.to_str().unwrap()];
    place.run(&[&elsewhere[..], &run].concat()).await.ok();
    let found = looked_up(&server, 1);
    assert!(found[0].contains("- remember that I like tea\n") && found[0].contains("Mia"), "{found:?}");
    assert!(tools(&server).is_empty(), "its tools are there only if a configuration says so");
    // Equal requests make one entry.
    place.run(&[&["run", "remember that I like tea"], &run[..]].concat()).await.ok();
    let listed = place.run(&["memory", "list", "--json"]).await.ok().lines();
    assert_eq!(listed.len(), 2, "{listed:?}");
    // One option disables it for a thread, like in a configuration.
    let off = ["run", "remember that I like tea and milk", "--thread", "off"];
    place.run(&[&off[..], &run, &["--no-memory"]].concat()).await.ok();
    place.run(&[&off[..], &run].concat()).await.ok();
    assert!(looked_up(&server, 3).is_empty() && looked_up(&server, 4).is_empty());
    assert_eq!(place.run(&["memory", "list", "--json"]).await.ok().lines().len(), 2);
}

#[tokio::test]
async fn without_a_state_folder_there_is_no_memory_and_a_note() {
    let place = Place::new();
    let server = serve([txt("1")]).await;
    let url = server.base_url();
    std::fs::write(place.state_folder(), "a file").unwrap();
    let ran = place.run(&["run", "Which tea?", "--base-url", &url, "--model", "m"]).await.ok();
    assert!(ran.stderr.contains("no long-term memory: the folder `"), "{}", ran.stderr);
    let listed = place.run(&["memory", "list"]).await;
    assert_eq!(listed.code, Some(4), "{listed:?}");
}

#[tokio::test]
async fn the_dreaming_preset_dreams_and_reports_it() {
    let place = Place::new();
    let edit = r##"{"path":"MEMORY.md","old":"# Memory","new":"# Memory\n- likes tea"}"##;
    let server = serve([txt("1"), txt("2"), txt("3"), call("c1", "edit_file", edit), txt("Done.")]).await;
    let url = server.base_url();
    let run = ["--thread", "t", "--base-url", &url, "--model", "m"];
    let first = place.run(&[&["run", "I like tea", "--preset", "cococat"], &run[..]].concat()).await.ok();
    assert!(
        first.stderr.contains("turns are recorded and consolidated by dreams; `--no-memory`"),
        "{}",
        first.stderr
    );
    let second = place.run(&[&["run", "Mia, too"], &run[..]].concat()).await.ok();
    assert!(!second.stderr.contains("consolidated by dreams"), "{}", second.stderr);
    let third = place.run(&[&["run", "yes"], &run[..]].concat()).await.ok();
    assert!(third.stderr.contains("consolidated 3 turns of `me`: Done."), "{}", third.stderr);
    assert!(place.run(&["memory", "list"]).await.ok().stdout.contains("likes tea"));
}

#[tokio::test]
async fn a_memory_is_inspected_and_changed_by_commands() {
    let place = Place::new();
    assert_eq!(place.run(&["memory", "list"]).await.ok().stdout, "nothing\n");
    assert_eq!(place.run(&["memory", "search", "tea"]).await.ok().stdout, "nothing\n");
    assert!(!place.database().exists(), "looking makes nothing");
    place.file("files.toml", "[memory]\nstore = \"file\"\n");
    let refused = "no entry `x` for user `me`; see `superstep memory list --user me --config files.toml`";
    place.run(&["memory", "forget", "x", "--config", "files.toml"]).await.refused(1, refused);
    let added = place.run(&["memory", "add", "I like\ngreen tea", "--json"]).await.ok().lines();
    let id = added[0]["id"].as_str().unwrap().to_owned();
    place.run(&["memory", "add", "I like coffee"]).await.ok();
    let (long, files) = ("茶".repeat(60), ["--config", "files.toml"]);
    place.run(&[&["memory", "add", "tea", "--user", &long], &files[..]].concat()).await.ok();
    let found = place.run(&[&["memory", "list", "--user", &long], &files[..]].concat()).await.ok().stdout;
    assert_eq!(found.lines().count(), 2, "{found}");
    // Files have no control characters.
    place.file("database.toml", "[memory]\nstore = \"sqlite\"\n");
    let ada = ["--user", "ada", "--config", "database.toml"];
    place.run(&[&["memory", "add", "tea \u{1b}[2J"], &ada[..]].concat()).await.ok();
    let found = place.run(&["memory", "search", "tea OR (", "--json"]).await.ok().lines();
    assert_eq!((found.len(), &found[0]["id"], &found[0]["text"]), (1, &added[0]["id"], &added[0]["text"]));
    let shown = place.run(&["memory", "search", "tea"]).await.ok().stdout;
    assert!(shown.contains("SCORE") && shown.contains("I like…") && shown.contains(&id), "{shown}");
    let shown = place.run(&[&["memory", "list"], &ada[..]].concat()).await.ok().stdout;
    assert!(shown.contains(r"tea \u{1b}[2J") && shown.lines().count() == 2, "{shown}");
    assert_eq!(place.run(&["memory", "list", "--limit", "1"]).await.ok().stdout.lines().count(), 2);

    let long = "a memory of 8001 characters is too long; use at most 8000";
    place.run(&["memory", "add", &"x".repeat(8_001)]).await.refused(2, long);
    place.run(&["memory", "add", " "]).await.refused(2, "the entry is empty; write what to store");
    let refused = format!("no entry `{id}` for user `ada`; see `superstep memory list --user ada`");
    place.run(&["memory", "forget", &id, "--user", "ada"]).await.refused(1, &refused);
    assert_eq!(place.run(&["memory", "forget", &id]).await.ok().stdout, format!("forgot {id}\n"));
    let left = place.run(&["memory", "list", "--json"]).await.ok().lines();
    assert_eq!((left.len(), &left[0]["text"]), (1, &Value::from("I like coffee")));
}

#[tokio::test]
async fn the_memory_is_configured_and_its_tools_are_listed() {
    let place = Place::new();
    place.file("agent.toml", "[memory]\ntools = false\nretrieve = 0\nuser = \"ada\"\nphrases = [\"NB\"]\n");
    let server = serve([txt("noted"), txt("ok")]).await;
    let url = server.base_url();
    let run = ["--thread", "t", "-q", "--base-url", &url, "--model", "m", "--config", "agent.toml"];
    place.run(&[&["run", "nb: tea"], &run[..]].concat()).await.ok();
    place.run(&[&["run", "remember that I like tea"], &run[..]].concat()).await.ok();
    assert!(tools(&server).is_empty() && looked_up(&server, 1).is_empty());
    let listed = place.run(&["memory", "list", "--json", "--user", "ada"]).await.ok().lines();
    assert_eq!((listed.len(), &listed[0]["text"]), (1, &Value::from("nb: tea")));
    place.file("tools.toml", "[memory]\n");
    let tools = place.run(&["tools", "--config", "tools.toml"]).await.ok().stdout;
    assert_eq!(tools.lines().filter(|line| line.starts_with(" memory")).count(), 2, "{tools}");
    place.file("bad.toml", "[memory]\nstore = \"file\"\nfolder = \"x\"\n");
    let ran = place.run(&["run", "go", "--config", "bad.toml"]).await;
    ran.refused(
        2,
        "the configuration `bad.toml` does not fit: line 3, column 1: `memory`: unknown field `folder`; \
         known fields are `store`, `path`, `user`, `retrieve`, `tools`, `phrases`, `base_url`, `key_env`, \
         `form`, `threshold`, `infer`, `embeddings`",
    );
}

#[tokio::test]
async fn a_memory_elsewhere_is_opened_only_if_a_file_configures_it() {
    let place = Place::new();
    let elsewhere = place.beside("elsewhere.db");
    place.file("agent.toml", &format!("[memory]\nstore = \"sqlite\"\npath = \"{}\"\n", elsewhere.display()));
    let server = serve([txt("noted"), txt("ok")]).await;
    let url = server.base_url();
    let run = ["run", "remember this", "--thread", "t", "--base-url", &url, "--model", "m"];
    place.run(&[&run[..], &["--config", "agent.toml"]].concat()).await.ok();
    assert!(elsewhere.exists());
    place.run(&run).await.refused(
        2,
        "thread `t` remembers a memory outside of its folder, which is not opened unless you name it: repeat `--config FILE`",
    );
    place.run(&[&run[..], &["--config", "agent.toml"]].concat()).await.ok();
}

#[cfg(unix)]
#[tokio::test]
async fn a_memory_below_the_folder_is_not_led_out_of_it_by_a_link() {
    use std::os::unix::fs::symlink;

    let place = Place::new();
    place.file("agent.toml", "[memory]\nstore = \"sqlite\"\npath = \"notes/deep/memory.db\"\n");
    let add = ["memory", "add", "I like tea", "--config", "agent.toml"];
    place.run(&["memory", "list", "--config", "agent.toml"]).await.ok();
    assert!(!place.work().join("notes").exists(), "looking makes nothing");
    place.run(&add).await.ok();
    assert!(
        place.work().join("notes/deep/memory.db").exists() && place.work().join("notes/.gitignore").exists()
    );
    let elsewhere = place.beside("elsewhere");
    for link in ["notes/deep/memory.db", "notes/deep", "notes"] {
        std::fs::rename(place.work().join(link), &elsewhere).unwrap();
        symlink(&elsewhere, place.work().join(link)).unwrap();
        let ran = place.run(&add).await;
        assert_eq!(ran.code, Some(4), "{}", ran.stderr);
        let wanted = "cannot use the database `notes/deep/memory.db` of the memory: `";
        assert!(ran.stderr.contains(wanted) && ran.stderr.contains(&format!("{link}` is a link")));
        std::fs::remove_file(place.work().join(link)).unwrap();
        std::fs::rename(&elsewhere, place.work().join(link)).unwrap();
    }
    place.run(&add).await.ok();
}

#[tokio::test]
async fn a_thread_before_its_search_can_be_inspected_and_resumed() {
    let place = Place::new();
    place.file("agent.toml", "[memory]\n");
    let server = serve([superstep_testing::script::http(401, &[], "{}"), txt("ok")]).await;
    let url = server.base_url();
    let run = ["run", "Which tea?", "--thread", "t", "--base-url", &url, "--model", "m"];
    assert_eq!(place.run(&[&run[..], &["--config", "agent.toml"]].concat()).await.code, Some(3));
    place.run(&["memory", "add", "I like tea"]).await.ok();
    let drawn = place.run(&["draw", "--thread", "t"]).await.ok().stdout;
    assert!(drawn.contains("retrieve"), "{drawn}");
    let history = place.run(&["history", "t", "--json"]).await.ok().lines();
    let before = history.iter().find(|meta| meta["control"]["next"][0] == "retrieve").unwrap();
    let at = before["id"].to_string();
    let state = place.run(&["state", "t", "--at", &at]).await.ok().stdout;
    assert!(state.contains("status      stopped before retrieve"), "{state}");
    assert_eq!(place.run(&["resume", "t", "-q", "--base-url", &url]).await.ok().stdout, "ok\n");
}
