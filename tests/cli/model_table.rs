//! Facts about models: windows, prices and the costs that they give, and how they are learned.

use std::fs;

use serde_json::{Value, json};
use superstep_testing::script::{Answer, http, txt};

use crate::support::{Place, ended, serve};

/// Writes the user's own table of models.
fn own_table(place: &Place, toml: &str) {
    let folder = place.beside("config/superstep");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("models.toml"), toml).unwrap();
}

const OWN: &str = "[[model]]\nid = \"m\"\nwindow = 8000\nas_of = \"2026-11-28\"\n\
                   price = { input = \"1\", cached = \"0.1\", output = \"10\" }\n";

fn counted(text: &str) -> Answer {
    let usage = json!({
        "prompt_tokens": 1_000, "completion_tokens": 20,
        "prompt_tokens_details": { "cached_tokens": 600 },
        "completion_tokens_details": { "reasoning_tokens": 5 },
    });
    let usage = json!({ "choices": [], "usage": usage }).to_string();
    Answer::stream().text([text]).data(&usage).end("stop").done()
}

#[tokio::test]
async fn the_cost_of_a_turn_is_an_estimate_by_the_users_prices() {
    let place = Place::new();
    own_table(&place, OWN);
    let server = serve([counted("hello"), counted("again")]).await;
    let args =
        ["run", "hi", "--thread", "t", "--no-memory", "--model", "m", "--base-url", &server.base_url()];
    let ran = place.run(&[&args[..], &["--json"]].concat()).await.ok();
    let lines = ran.lines();
    let end = &lines.last().unwrap()["data"];
    let usage =
        json!({ "input_tokens": 1_000, "output_tokens": 20, "cached_tokens": 600, "reasoning_tokens": 5 });
    assert_eq!(end["usage"], usage);
    // 400 tokens at 1, 600 at 0.1 and 20 at 10 millionths of a dollar.
    assert_eq!(end["estimated_cost"], json!({ "nano_dollars": 660_000, "as_of": "2026-11-28" }));
    let of_model = json!({ "m": { "nano_dollars": 660_000, "as_of": "2026-11-28" } });
    assert_eq!(end["metadata"]["estimated_cost"], of_model);
    assert_eq!(place.state("t").await["values"]["estimated_cost"], of_model);

    // The stored cost is that of its day.
    own_table(&place, &OWN.replace("\"10\"", "\"1000\""));
    let shown = place.run(&["state", "t"]).await.ok().stdout;
    assert!(shown.contains("cost        about $0.0007 by prices of 2026-11-28\n"), "{shown}");
    place.run(&["replay", "t"]).await.ok();
    let ran = place.run(&args).await.ok();
    let noted = "1000 tokens in (600 cached) and 20 out, about $0.0205 by prices of 2026-11-28, ";
    assert!(ran.stderr.contains(noted), "{}", ran.stderr);
}

#[tokio::test]
async fn a_cost_budget_needs_no_prices_for_a_known_model() {
    let place = Place::new();
    place.file("budget.toml", "[budget]\nreserve_final = false\ncost = { max = 0.0005 }\n");
    let server = serve([counted("hello")]).await;
    let base_url = server.base_url();
    let args = ["run", "hi", "--json", "--no-memory", "--config", "budget.toml", "--model", "m"];
    let args = [&args[..], &["--base-url", &base_url]].concat();
    let error = "a cost budget requires the prices of all models; set `per_million_input` and `per_million_output`, or use \
                 models whose prices are known";
    place.run(&args).await.refused(2, error);
    own_table(&place, OWN);
    let ran = place.run(&args).await;
    let events = ran.lines();
    let warned = events
        .iter()
        .any(|line| line["event"] == "budget_warning" && line["data"]["budget"] == "budget_cost");
    assert!(warned, "{events:?}");
}

#[tokio::test]
async fn the_table_is_listed_by_name_and_by_configuration() {
    let place = Place::new();
    own_table(&place, OWN);
    let all = place.run(&["models", "claude-opus", "--json"]).await.ok().lines();
    assert!(all.len() > 3 && all.iter().all(|model| model["id"].as_str().unwrap().contains("claude-opus")));
    let opus = all.iter().find(|model| model["id"] == "claude-opus-5-5").unwrap();
    assert_eq!((&opus["window"], &opus["price"]["input"]), (&json!(1_000_000), &json!("4")));

    place.file(
        "two.toml",
        "[models.main]\nmodel = \"m\"\ncontext_window = 900\n[models.fallback]\nmodel = \"x\"\n",
    );
    let listed = place.run(&["models", "--config", "two.toml", "--json"]).await.ok().lines();
    assert_eq!((&listed[0]["id"], &listed[0]["window"]), (&json!("m"), &json!(900)));
    assert_eq!(listed[1], json!({ "id": "x" }), "nothing is known about it");
    let shown = place.run(&["models", "--config", "two.toml"]).await.ok().stdout;
    assert!(shown.contains("MODEL") && shown.contains("2026-11-28") && shown.contains('?'), "{shown}");

    let error = "no known model has `nothing` in its name; `superstep models learn --model nothing` queries its server";
    place.run(&["models", "nothing"]).await.refused(2, error);
}

#[tokio::test]
async fn a_learned_entry_is_one_of_the_users_table() {
    let place = Place::new();
    let list = json!({ "data": [{ "id": "m", "context_length": 4_000, "top_provider": { "max_completion_tokens": 500 },
        "pricing": { "prompt": "0.000001", "completion": "0.00001" }, "supported_parameters": ["tools"] }] });
    let server = serve([http(200, &[], &list.to_string()), txt("hello")]).await;
    let args = ["models", "learn", "--model", "m", "--base-url", &server.base_url()];
    let ran = ended(place.command(&args).env("OPENAI_API_KEY", "sk-secret")).await.ok();
    let [asked] = &server.received()[..] else { panic!("{:?}", server.received()) };
    assert_eq!((&*asked.line, &*asked.headers["authorization"]), ("GET /v1/models", "Bearer sk-secret"));
    assert!(!ran.stdout.contains("sk-secret"));

    own_table(&place, &ran.stdout);
    let known = place.run(&["models", "m", "--json"]).await.ok().lines();
    let known: Vec<&Value> = known.iter().filter(|model| model["id"] == "m").collect();
    let facts = ["window", "max_output", "can", "price"].map(|field| known[0][field].clone());
    assert_eq!(facts, [json!(4_000), json!(500), json!(["tools"]), json!({ "input": "1", "output": "10" })]);
    assert!(known[0]["source"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{known:?}");

    // A run sends no such request.
    let args = ["run", "hi", "-q", "--no-memory", "--model", "m", "--base-url", &server.base_url()];
    assert_eq!(place.run(&args).await.ok().stdout, "hello\n");
    assert_eq!(server.received().len(), 2);
}

#[tokio::test]
async fn a_server_that_reports_nothing_is_an_error() {
    let place = Place::new();
    let answers: Vec<_> = (0..6).map(|_| http(404, &[], "{}")).collect();
    let server = serve(answers).await;
    let base_url = server.base_url();
    let ran = place.run(&["models", "learn", "--model", "m", "--base-url", &base_url]).await;
    let error = format!("the server `{base_url}` reports nothing about `m`: the server answered 404");
    assert!(ran.stderr.ends_with(&format!("error: {error}\n")), "{}", ran.stderr);
    assert_eq!((ran.code == Some(0), ran.stdout.as_str()), (false, ""));
    let lines: Vec<_> = server.received().iter().map(|received| received.line.clone()).collect();
    let wanted = [
        "GET /v1/models",
        "GET /v1/models/m",
        "GET /props",
        "GET /api/v1/models",
        "POST /api/show",
        "GET /api/ps",
    ];
    assert_eq!(lines, wanted);
}

#[tokio::test]
async fn an_invalid_table_of_the_user_is_named() {
    let place = Place::new();
    own_table(&place, "[[model]]\nwindow = 3\n");
    let file = place.beside("config/superstep/models.toml");
    let error = format!(
        "the table of models `{}` cannot be used: entry 1 of the table of models has no `id`; name the model",
        file.display()
    );
    place.run(&["run", "hi", "--model", "offline"]).await.refused(2, &error);
}
