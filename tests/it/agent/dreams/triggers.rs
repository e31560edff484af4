//! The triggers of dreams, and their input.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::json;
use superstep::{
    RunOptions,
    agent::{Agent, AgentOutcome, facades::cococat::AgentLoop},
    llm::{ApiKey, Named, OpenAiConfig, OpenAiModel},
    memory::{DreamConfig, DreamEvent, DreamResult, Dreams, HistoryPlace},
};
use superstep_testing::{
    script::{Script, call, http, txt},
    wire::WireServer,
};

use super::{
    super::{preset, real},
    Bed, Dreamer, at, dreamt, scripted,
};

const HALF_AN_HOUR: i64 = 30 * 60_000;

#[tokio::test(start_paused = true)]
async fn it_is_time_after_more_than_half_an_hour_or_with_three_turns() {
    let bed = Bed::new();
    let (model, said) = (Dreamer::default(), 1_000);
    let dreams = bed.dreams(model.clone());
    let if_due = async |ms| dreams.dream_if_due("ada", at(ms)).await.unwrap();
    assert_eq!(if_due(said).await, DreamResult::NotDue { waiting: 0 });
    bed.say("ada", said, &["one"]).await;
    assert_eq!(if_due(said + HALF_AN_HOUR).await, DreamResult::NotDue { waiting: 1 });
    assert_eq!(model.requests().len(), 0);
    assert!(!bed.path("memory", "ada", "MEMORY.md").exists());
    assert_eq!(dreamt(if_due(said + HALF_AN_HOUR + 1).await).turns, 1);

    let said = said + 2 * HALF_AN_HOUR;
    bed.say("ada", said, &["two", "three"]).await;
    assert_eq!(if_due(said).await, DreamResult::NotDue { waiting: 2 });
    bed.say("ada", said, &["four"]).await;
    assert_eq!(dreamt(if_due(said).await).turns, 3);
    assert_eq!(if_due(said + 9 * HALF_AN_HOUR).await, DreamResult::NotDue { waiting: 0 });
    assert_eq!(bed.read("ada"), "# Memory\n- four\n- three\n- two\n- one\n");
}

#[tokio::test(start_paused = true)]
async fn due_dreams_are_configured_and_can_be_requested() {
    let bed = Bed::new();
    let config = DreamConfig { turns: 2, after: Duration::from_millis(10), ..DreamConfig::default() };
    let dreams = bed.dreams_on(bed.store.clone(), Dreamer::default(), config);
    bed.say("ada", 0, &["one"]).await;
    assert_eq!(dreams.dream_if_due("ada", at(10)).await.unwrap(), DreamResult::NotDue { waiting: 1 });
    assert_eq!(dreamt(dreams.dream_now("ada", at(10)).await.unwrap()).turns, 1);
    assert_eq!(dreams.dream_now("ada", at(10)).await.unwrap(), DreamResult::NotDue { waiting: 0 });
    bed.say("ada", 10, &["two", "three"]).await;
    assert_eq!(dreamt(dreams.dream_if_due("ada", at(10)).await.unwrap()).turns, 2);
    bed.say("ada", 20, &["four"]).await;
    assert_eq!(dreamt(dreams.dream_if_due("ada", at(31)).await.unwrap()).turns, 1);
}

#[tokio::test(start_paused = true)]
async fn a_dream_is_of_so_many_turns_and_the_next_one_of_those_behind_them() {
    let bed = Bed::new();
    let config = DreamConfig { most_turns: 2, turns: 2, ..DreamConfig::default() };
    let dreams = bed.dreams_on(bed.store.clone(), Dreamer::default(), config);
    bed.say("ada", 0, &["one", "two", "three", "four", "five"]).await;
    for (turns, lines) in [(2, "two\n- one"), (2, "four\n- three\n- two\n- one")] {
        assert_eq!(dreamt(dreams.dream_if_due("ada", at(1)).await.unwrap()).turns, turns);
        assert_eq!(bed.read("ada"), format!("# Memory\n- {lines}\n"));
    }
    assert_eq!(dreams.dream_if_due("ada", at(1)).await.unwrap(), DreamResult::NotDue { waiting: 1 });
    // More turns wait than one dream takes, but fewer than make one due.
    let config = DreamConfig { most_bytes: 1, turns: 100, ..DreamConfig::default() };
    bed.say("ada", 0, &["six"]).await;
    let few = bed.dreams_on(bed.store.clone(), Dreamer::default(), config);
    assert_eq!(dreamt(few.dream_if_due("ada", at(1)).await.unwrap()).turns, 1);
    assert_eq!(few.dream_if_due("ada", at(1)).await.unwrap(), DreamResult::NotDue { waiting: 1 });
    // A line is longer than the input of a dream.
    let config = DreamConfig { most_bytes: 1, turns: 1, ..DreamConfig::default() };
    let dreams = bed.dreams_on(bed.store.clone(), Dreamer::default(), config);
    assert_eq!(dreamt(dreams.dream_if_due("ada", at(1)).await.unwrap()).turns, 1);
    assert_eq!(bed.cursor("ada").read.offset, bed.length("ada"));
}

#[tokio::test(start_paused = true)]
async fn a_cococat_loop_writes_its_turn_down_and_dreams_before_it_returns() {
    let (bed, model) = (Bed::new(), Dreamer::default());
    let dreams = bed.dreams(model.clone());
    let agent = Agent::builder(Arc::new(scripted(["a", "b", "c"].map(txt)))).config(preset());
    let agent = agent.history(dreams.history().clone());
    let agent = AgentLoop::new(agent).unwrap().after_turn(Arc::new(dreams));
    for (said, asked) in [("one", 0), ("two", 0), ("three", 5)] {
        let reply = agent.run_with(said, "ada", at(7)).await.unwrap();
        assert_eq!(reply.iterations, 0);
        assert_eq!(model.requests().len(), asked, "{said}");
    }
    assert_eq!(bed.read("ada"), "# Memory\n- three\n- two\n- one\n");
}

#[tokio::test(start_paused = true)]
async fn a_dream_that_fails_does_not_reach_the_reply() {
    let bed = Bed::new();
    let down = http(500, &[], "{}");
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = told.clone();
    let dreams = bed.dreams(scripted(vec![down; 3])).listener(move |event| {
        if !matches!(event, DreamEvent::Agent(_)) {
            heard.lock().unwrap().push(serde_json::to_string(&event).unwrap());
        }
    });
    let agent = Agent::builder(Arc::new(scripted(["a", "b", "c", "d", "e"].map(txt)))).config(preset());
    let agent = agent.history(dreams.history().clone());
    let agent = AgentLoop::new(agent).unwrap().after_turn(Arc::new(dreams));
    for content in ["a", "b", "c"] {
        assert_eq!(agent.run_with("hi", "ada", at(7)).await.unwrap().content, content);
    }
    assert_eq!(
        std::mem::take(&mut *told.lock().unwrap()),
        [
            r#"{"event":"dream_begun","data":{"why":"turns","turns":3}}"#,
            r#"{"event":"dream_ended","data":{"outcome":"llm_error","turns":3,"settled":false}}"#
        ]
    );
    assert_eq!(bed.cursor("ada").last.unwrap().end, "llm_error");
    // It is not attempted in each turn.
    assert_eq!(agent.run_with("hi", "ada", at(8)).await.unwrap().content, "d");
    // The cursor cannot be read.
    std::fs::write(bed.path("history", "ada", "dream.json"), "{").unwrap();
    assert_eq!(agent.run_with("hi", "ada", at(9)).await.unwrap().content, "e");
    let told = told.lock().unwrap().join("\n");
    assert!(
        told.starts_with(r#"{"event":"dream_failed","data":{"user":"ada","reason":"the files of `ada` cannot be used for a dream: "#),
        "{told}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_caller_begins_no_dream() {
    let (bed, model) = (Bed::new(), Dreamer::default());
    bed.say("ada", 0, &["one", "two", "three"]).await;
    let config = at(1);
    config.get_cancel().cancel();
    let end = bed.dreams(model.clone()).dream_if_due("ada", config).await.unwrap();
    assert_eq!((end, model.requests().len()), (DreamResult::NotDue { waiting: 3 }, 0));
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_a_store_dreams_as_well() {
    let bed = Bed::new();
    bed.say("ada", 0, &["one", "two", "three"]).await;
    let agent = Agent::builder(Arc::new(Dreamer::default()));
    let config = DreamConfig::default();
    let dreams = Dreams::new(agent, bed.history.clone(), bed.memory.clone(), config).unwrap();
    let dream = dreamt(dreams.dream_if_due("ada", at(1)).await.unwrap());
    assert_eq!((dream.outcome, dream.settled, dream.checkpoint), (Some(AgentOutcome::Completed), true, None));
    let all = bed.history.read("ada", HistoryPlace::default(), 9, 9_999).await.unwrap();
    assert_eq!(bed.cursor("ada").read, all.to);
    assert_eq!(
        serde_json::to_value(DreamResult::Ended(dream)).unwrap(),
        json!({
            "dream": "ended", "outcome": "completed", "end": "completed", "turns": 3, "settled": true,
            "reply": "Done.",
            "usage": { "input_tokens": 200, "output_tokens": 50 },
        })
    );
}

#[test]
fn a_cococat_loop_dreams_over_the_wire() {
    real(async {
        let bed = Bed::new();
        let edit = r##"{"path":"MEMORY.md","old":"# Memory","new":"# Memory\n- likes tea"}"##;
        let answers = [txt("a"), txt("b"), txt("c"), call("c1", "edit_file", edit), txt("Done.")];
        let server = WireServer::start(Script::new(answers)).await.unwrap();
        let config = OpenAiConfig::new(server.base_url(), ApiKey::new("sk-test"), "m");
        let agent =
            Agent::builder(Arc::new(OpenAiModel::new(config).unwrap())).checkpointer(bed.store.clone());
        let config = DreamConfig::default();
        let dreams = Dreams::new(agent.clone(), bed.history.clone(), bed.memory.clone(), config).unwrap();
        let agent = agent.history(dreams.history().clone());
        let agent = AgentLoop::new(agent).unwrap().after_turn(Arc::new(dreams));
        for (thread, content) in [("one", "a"), ("two", "b"), ("three", "c")] {
            let reply = agent.run_with("I like tea", "ada", RunOptions::new().thread(thread)).await.unwrap();
            assert_eq!((reply.content.as_str(), reply.iterations), (content, 0));
        }
        server.check().unwrap();
        assert_eq!(server.refused(), []);
        assert_eq!(bed.read("ada"), "# Memory\n- likes tea\n");
        assert_eq!(bed.cursor("ada").read.offset, bed.length("ada"));
    });
}

#[tokio::test(start_paused = true)]
async fn a_dream_is_replayed_without_its_files() {
    let bed = Bed::new();
    let dreams = bed.dreams(Dreamer::default());
    bed.say("ada", 0, &["one", "two", "three"]).await;
    assert_eq!(dreamt(dreams.dream_if_due("ada", at(1)).await.unwrap()).turns, 3);
    bed.say("ada", 0, &["four", "five", "six"]).await;
    let (memory, cursor) = (bed.read("ada"), bed.cursor("ada"));
    let nobody = bed.dreams(Named::new("dreamer", scripted([])));
    let graph = nobody.graph("ada").unwrap();
    graph.thread(Dreams::thread("ada")).replay().run().await.unwrap().assert_same();
    assert_eq!((bed.read("ada"), bed.cursor("ada")), (memory, cursor));
}
