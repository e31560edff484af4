//! A single round, or any number.

use superstep_testing::script::{call, txt};

use crate::support::{Place, serve};

fn sum(id: &str) -> superstep_testing::script::Answer {
    call(id, "calculate", r#"{"expression":"2+3"}"#)
}

#[tokio::test]
async fn a_single_round_asks_twice_at_the_most_and_the_thread_remembers_the_mode() {
    for flags in
        [&["--mode", "single"][..], &["--preset", "opencode"], &["--preset", "graph", "--mode", "single"]]
    {
        let place = Place::new();
        let server = serve([sum("c1"), txt("5"), sum("c2"), txt("again 5")]).await;
        let url = server.base_url();
        let args = ["run", "-q", "What is 2+3?", "--thread", "t", "--base-url", &url, "--model", "m"];
        let ran = place.run(&[&args[..], flags].concat()).await.ok();
        assert_eq!((ran.stdout.as_str(), server.requests().len()), ("5\n", 2), "{flags:?}");
        assert_eq!(server.requests()[1].get("tools"), None, "{flags:?}");
        let ran = place.run(&["run", "-q", "And again?", "--thread", "t"]).await.ok();
        assert_eq!(ran.stdout, "again 5\n", "{flags:?}");
        server.check().unwrap();
        assert_eq!(server.requests()[3].get("tools"), None, "{flags:?}");
    }
}

#[tokio::test]
async fn react_continues_until_it_is_done() {
    for flags in
        [&[][..], &["--preset", "opencode", "--mode", "react"], &["--preset", "opencode", "--max-steps", "9"]]
    {
        let place = Place::new();
        let server = serve([sum("c1"), sum("c2"), txt("5")]).await;
        let url = server.base_url();
        let args = ["run", "-q", "What is 2+3?", "--base-url", &url, "--model", "m"];
        let ran = place.run(&[&args[..], flags].concat()).await.ok();
        assert_eq!(ran.stdout, "5\n", "{flags:?}");
        server.check().unwrap();
        let prompt = server.requests()[0]["messages"][0]["content"].as_str().unwrap().to_owned();
        let is_explicit = flags.contains(&"--mode");
        assert_eq!(prompt.contains("Think → Act → Observe"), is_explicit, "{flags:?}: {prompt}");
        // It does not contradict itself about the number of calls.
        assert_eq!(prompt.contains("one or two tools"), is_explicit, "{flags:?}: {prompt}");
        assert_eq!(prompt.contains("several tools"), !is_explicit, "{flags:?}: {prompt}");
        assert_eq!(prompt.starts_with("# Role: "), is_explicit, "{flags:?}: {prompt}");
        let offered = server.requests()[0]["tools"].as_array().unwrap().clone();
        for called in prompt.lines().filter_map(|line| line.strip_prefix("Act: ")) {
            let name = called.split('(').next().unwrap();
            assert!(offered.iter().any(|tool| tool["function"]["name"] == name), "{called}");
        }
        assert_eq!(prompt.matches("\nAct: ").count(), if is_explicit { 2 } else { 0 }, "{prompt}");
    }
}

#[tokio::test]
async fn a_preset_written_to_a_file_makes_equal_requests() {
    let place = Place::new();
    for preset in ["default", "opencode", "harness"] {
        let server = serve([txt("1"), txt("2")]).await;
        let url = server.base_url();
        let args = ["run", "-q", "hi", "--base-url", &url, "--model", "m"];
        place.run(&[&args[..], &["--preset", preset]].concat()).await.ok();
        place.file("mine.toml", &place.run(&["presets", preset]).await.ok().stdout);
        place.run(&[&args[..], &["--config", "mine.toml"]].concat()).await.ok();
        let requests = server.requests();
        assert_eq!(requests[0], requests[1], "{preset}");
        assert_eq!(requests[0]["messages"][0]["role"], "system", "{preset}");
    }
}
