//! The rest of a long result.

#![cfg(feature = "workspace-tools")]

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use futures::StreamExt;
use superstep::{
    Event, StreamMode,
    agent::{Agent, ReactConfig},
    llm::{
        Message, Tool,
        spill::{Spill, SpillError, SpillFuture, SpillText},
    },
    tools::{self, RESULTS, SpillFiles, Workspace},
};
use superstep_testing::{
    script::{Answer, Script, call, calls, txt},
    scripted::ScriptedModel,
};

use super::{check, kit::Kit, paused, show::Told};
use crate::support::Backend;

/// Creates an agent that works in a folder, on a store.
fn agent(dir: &Path, store: &Backend, answers: Vec<Answer>, spill: Option<Arc<dyn Spill>>) -> Agent {
    let model = Arc::new(ScriptedModel::new(Script::new(answers)));
    let read = tools::read_file(&Workspace::open(dir).unwrap());
    let tools =
        Kit::default().tools(&["big", "accents"]).into_iter().chain([Arc::new(read) as Arc<dyn Tool>]);
    let config = ReactConfig {
        limit: superstep::agent::config::Limit { max: 6, ..ReactConfig::default().limit },
        ..ReactConfig::default()
    };
    let mut agent = Agent::builder(model).tools(tools).config(config).checkpointer(store.open());
    if let Some(spill) = spill {
        agent = agent.spill(spill);
    }
    agent.build().unwrap()
}

fn files(dir: &Path) -> Option<Arc<dyn Spill>> {
    Some(Arc::new(SpillFiles::new(dir, RESULTS).unwrap()))
}

/// Returns the events of a turn, and the conversation.
async fn turn(agent: &Agent) -> (Vec<Told>, Vec<Message>) {
    let mut stream = agent.thread("t/1").stream(agent.input("go"), StreamMode::Custom);
    let mut told = Vec::new();
    while let Some(event) = stream.next().await {
        if let Event::Custom { name, data, .. } = event {
            told.push(Told { at: 0, name, data });
        }
    }
    let messages: Vec<_> = stream.outcome().await.unwrap().state.messages.iter().cloned().collect();
    check::calls_are_answered(&messages);
    (told, messages)
}

fn result<'a>(messages: &'a [Message], call: &str) -> &'a str {
    &messages.iter().find(|message| message.tool_call_id == call).unwrap().content
}

#[test]
fn the_full_text_of_a_long_result_is_stored_where_the_agent_reads_it() {
    let (dir, store) = (tempfile::tempdir().unwrap(), Backend::sqlite());
    let path = ".superstep/results/t%2f1/c1.txt";
    let answers = vec![
        calls([("c1", "big", r#"{"n":20000}"#), ("c2", "accents", r#"{"n":16000}"#)]),
        call("c3", "read_file", &format!(r#"{{"path":"{path}"}}"#)),
        txt("ok"),
    ];
    let (told, messages) =
        paused(async { turn(&agent(dir.path(), &store, answers, files(dir.path()))).await });
    let half = "x".repeat(8_000);
    let said = format!("{half}\n[truncated 4000 of 20000 chars; all of it is in {path}]\n{half}");
    assert_eq!(result(&messages, "c1"), said);
    assert_eq!(result(&messages, "c2"), "é".repeat(16_000));
    assert!(result(&messages, "c3").contains("xxx"), "{}", result(&messages, "c3"));
    assert_eq!(std::fs::read_to_string(dir.path().join(path)).unwrap(), "x".repeat(20_000));

    let of_c1: Vec<_> = told.iter().filter(|told| told.text("id") == "c1").collect();
    assert_eq!(of_c1.iter().map(|told| told.name).collect::<Vec<_>>(), ["tool_start", "spilled", "tool_end"]);
    assert_eq!((of_c1[1].text("path"), &of_c1[1].data["chars"]), (path, &20_000.into()));
    assert_eq!(of_c1[2].text("result"), said);
}

#[test]
fn a_repeated_call_id_does_not_overwrite_a_stored_text() {
    let (dir, store) = (tempfile::tempdir().unwrap(), Backend::memory());
    let answers = vec![call("c1", "big", r#"{"n":20000}"#), call("c1", "big", r#"{"n":20001}"#), txt("ok")];
    let (told, _) = paused(async { turn(&agent(dir.path(), &store, answers, files(dir.path()))).await });
    let paths: Vec<_> =
        told.iter().filter(|told| told.name == "spilled").map(|told| told.text("path")).collect();
    assert_eq!(paths, [".superstep/results/t%2f1/c1.txt", ".superstep/results/t%2f1/c1.2.txt"]);
    for (path, n) in paths.iter().zip([20_000, 20_001]) {
        assert_eq!(std::fs::metadata(dir.path().join(path)).unwrap().len(), n);
    }
}

#[test]
fn equal_results_are_equal_wherever_their_full_text_is_stored() {
    let (dir, store) = (tempfile::tempdir().unwrap(), Backend::memory());
    let same = (0..5).map(|n| call(&format!("c{n}"), "big", r#"{"n":20000}"#)).chain([txt("enough")]);
    let agent = agent(dir.path(), &store, same.collect(), files(dir.path()));
    let (told, messages) = paused(async { turn(&agent).await });
    let found: Vec<_> = told.iter().filter(|told| told.name == "loop").map(|told| &told.data["n"]).collect();
    assert_eq!(found, [3, 4, 5]);
    assert!(result(&messages, "c2").contains("/c2.txt]"), "what the model reads still says where it is");
}

/// A spill that rejects all texts, and counts them.
#[derive(Default)]
struct Full(Mutex<usize>);

impl Spill for Full {
    fn keep<'a>(&'a self, _: SpillText<'a>) -> SpillFuture<'a> {
        *self.0.lock().unwrap() += 1;
        Box::pin(async { Err(SpillError("the disk is full".to_owned())) })
    }
}

#[test]
fn without_storage_a_result_is_truncated_nevertheless() {
    let (dir, store) = (tempfile::tempdir().unwrap(), Backend::memory());
    let answers = || vec![call("c1", "big", r#"{"n":20000}"#), txt("ok")];
    let half = "x".repeat(8_000);
    let said = format!("{half}\n[truncated 4000 of 20000 chars]\n{half}");
    let full = Arc::new(Full::default());
    let (told, messages) =
        paused(async { turn(&agent(dir.path(), &store, answers(), Some(full.clone()))).await });
    assert_eq!((result(&messages, "c1"), *full.0.lock().unwrap()), (said.as_str(), 1));
    let failed = told.iter().find(|told| told.name == "spill_failed").unwrap();
    assert_eq!((failed.text("id"), failed.text("reason")), ("c1", "the disk is full"));

    let store = Backend::memory();
    let (told, messages) = paused(async { turn(&agent(dir.path(), &store, answers(), None)).await });
    assert_eq!(result(&messages, "c1"), said);
    assert!(told.iter().all(|told| !told.name.starts_with("spill")));
}
