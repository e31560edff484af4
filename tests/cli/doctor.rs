//! `superstep doctor`: what a turn needs.

use serde_json::json;

use crate::support::Place;

#[tokio::test]
async fn what_is_missing_is_named_with_its_remedy() {
    let place = Place::new();
    let nothing = place.run(&["doctor"]).await;
    assert_eq!(nothing.code, Some(1), "{nothing:?}");
    assert!(nothing.stdout.contains("missing  model: no key and no local model server"), "{nothing:?}");
    assert!(
        nothing.stdout.contains("set OPENAI_API_KEY")
            && nothing.stdout.contains("which the first turn creates")
    );

    place.run(&["run", "2 + 2", "--model", "offline", "-q"]).await.ok();
    let all = place.run(&["doctor", "--model", "offline", "--json"]).await.ok().lines();
    let subjects: Vec<_> = all.iter().map(|line| line["subject"].as_str().unwrap()).collect();
    assert_eq!(subjects, ["folder", "database", "state folder", "model", "instructions", "features"]);
    assert!(all.iter().all(|line| line["ok"] == json!(true)), "{all:?}");
    assert!(all[1]["text"].as_str().unwrap().ends_with("with 1 thread"), "{}", all[1]);

    place.file("agent.toml", "[mcp.gone]\ncommand = \"no-such-program-anywhere\"\n");
    let gone = place.run(&["doctor", "--model", "offline", "--config", "agent.toml"]).await;
    assert!(gone.code == Some(1) && gone.stdout.contains("missing  MCP server: gone: "), "{gone:?}");
    // Nobody listens there.
    let dead = ["doctor", "--model", "m", "--base-url", "http://127.0.0.1:1/v1", "--json"];
    let dead = place.run(&dead).await;
    assert_eq!(dead.code, Some(1), "{dead:?}");
    assert!(
        dead.lines()[3]["text"].as_str().unwrap().starts_with("m at http://127.0.0.1:1/v1: "),
        "{dead:?}"
    );
}
