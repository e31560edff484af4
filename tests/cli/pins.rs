//! `superstep pin`: what the model must not forget.

use serde_json::json;

use superstep_testing::script::txt;

use crate::support::{Place, serve};

#[tokio::test]
async fn a_pin_reaches_the_next_request_and_is_listed_until_it_is_removed() {
    let place = Place::new();
    let server = serve([txt("ok"), txt("ok")]).await;
    let run = async |prompt: &str| {
        place
            .run(&["run", prompt, "--thread", "t", "--base-url", &server.base_url(), "--model", "m"])
            .await
            .ok();
    };
    run("hi").await;
    assert_eq!(place.run(&["pin", "t"]).await.ok().stdout, "no pins\n");
    place.run(&["pin", "t", "Never push to main."]).await.ok();
    place.run(&["pin", "t", "Release on Monday.", "--kind", "goal", "--id", "release"]).await.ok();
    let listed =
        place.run(&["pin", "t", "Release\non Friday.", "--kind", "goal", "--id", "release"]).await.ok();
    let (rule, goal) = listed.stdout.split_once("\n  Never push to main.\n").unwrap();
    assert!(rule.starts_with("rule `"), "{rule}");
    assert_eq!(goal, "goal `release`\n  Release\n  on Friday.\n");
    run("and now?").await;
    let state = place.run(&["state", "t"]).await.ok().stdout;
    let pins = "pins        rule: Never push to main.\n            goal: Release…\n";
    assert!(state.contains(pins), "{state}");
    let messages = server.requests()[1]["messages"].to_string();
    assert!(messages.contains("Never push to main.") && messages.contains("on Friday."), "{messages}");
    place
        .run(&["pin", "t", "--remove", "unknown"])
        .await
        .refused(5, "thread `t` has no pin `unknown`; list them with `superstep pin t`");
    let left = place.run(&["pin", "t", "--remove", "release", "--json"]).await.ok().lines();
    assert_eq!((left.len(), &left[0]["kind"], &left[0]["source"]), (1, &json!("rule"), &json!("user")));
    let kind = place.run(&["pin", "t", "x", "--kind", "law"]).await;
    assert_eq!(kind.code, Some(2));
    assert!(kind.stderr.contains("is `rule`, `goal`, `preference` or `fact`"), "{kind:?}");
    let refused = "names that begin with `model:` are those of the model's pins";
    place.run(&["pin", "t", "x", "--id", "model:a"]).await.refused(2, refused);
}

#[tokio::test]
async fn a_pin_of_the_configuration_is_removed_there() {
    let place = Place::new();
    place
        .file("pins.toml", "[[context.keep.pins]]\nid = \"push\"\nkind = \"rule\"\ntext = \"Never push.\"\n");
    place.file("none.toml", "");
    let server = serve([txt("ok"), txt("ok")]).await;
    let run = async |file: &str| {
        let of_server = ["--base-url", &server.base_url(), "--model", "m"];
        let args = [&["run", "hi", "--thread", "t", "--config", file][..], &of_server[..]].concat();
        place.run(&args).await.ok();
    };
    run("pins.toml").await;
    let remove = ["pin", "t", "--remove", "push"];
    place.run(&remove).await.refused(2, "pin `push` is one of the configuration; remove it there");
    run("none.toml").await;
    assert_eq!(place.run(&remove).await.ok().stdout, "no pins\n");
}
