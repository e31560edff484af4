//! Programs that stop at a write of either agent, with models at both levels.

use std::sync::Arc;

use superstep::{
    Checkpointer, CompiledGraph, MemoryCheckpointer, ThreadId,
    agent::{Agent, AgentBuilder, AgentOutcome, AgentState, deps::SubAgent},
    llm::{ChatModel, Role},
};
use superstep_testing::{
    script::{call, calls, txt},
    wire::WireServer,
};

use super::{DIG, ECHO, IN_DOUBT, sub, valid};
use crate::agent::{
    crash::{LEVELS, Level, STOPS, model},
    kit::Kit,
    preset, real,
    writes::watched,
};

/// Creates the models of the boss and the digger with the answers that are not stored yet.
async fn goes_on(
    level: Level,
    store: &Arc<MemoryCheckpointer>,
    digger: &CompiledGraph<AgentState>,
) -> (Said, Said) {
    let boss = [calls([("b0", ECHO.0, ECHO.1), ("b1", DIG.0, DIG.1)]), txt("done")];
    let dug = [call("d0", ECHO.0, ECHO.1), txt("dug")];
    let graph = digger.clone().with_checkpointer(store.clone());
    let said = async |thread: &ThreadId| match store.load(thread, None).await.unwrap() {
        Some(_) => {
            let messages = graph.thread(thread).state().await.unwrap().values.messages;
            messages.iter().filter(|message| message.role == Role::Assistant).count()
        }
        None => 0,
    };
    let by_boss = said(&"t".into()).await;
    let by_digger = match store.children(&"t".into()).await.unwrap().first() {
        Some(child) => said(child).await,
        None => 0,
    };
    (model(level, boss[by_boss..].to_vec()).await, model(level, dug[by_digger..].to_vec()).await)
}

type Said = (Arc<dyn ChatModel>, Option<WireServer>);

fn wired_office(
    kit: &Kit,
    (boss, digger): (Arc<dyn ChatModel>, Arc<dyn ChatModel>),
) -> (AgentBuilder, SubAgent) {
    let of = |model, tools: &[&'static str]| Agent::builder(model).tools(kit.tools(tools)).config(preset());
    let digger = sub("digger", of(digger, &["echo"]));
    (of(boss, &["echo"]).sub_agent(digger.clone()), digger)
}

#[test]
fn a_crash_at_any_write_of_either_level_does_not_change_the_end() {
    for (level, stops) in LEVELS.into_iter().flat_map(|level| STOPS.map(|stops| (level, stops))) {
        real(async {
            let mut doubts = 0;
            for n in 1.. {
                let (kit, store) = (Kit::default(), Arc::new(MemoryCheckpointer::new()));
                let reader = wired_office(&kit, (model(level, []).await.0, model(level, []).await.0)).1;
                let (stopping, now) = watched(store.clone(), stops, n);
                let (boss, digger) = goes_on(level, &store, reader.graph()).await;
                let first = wired_office(&kit, (boss.0, digger.0)).0.checkpointer(stopping).build().unwrap();
                let ended = tokio::select! {
                    reply = first.thread("t").ask("go") => Some(reply.unwrap()),
                    () = now.notified() => None,
                };
                drop((first, boss.1, digger.1));
                let (boss, digger) = goes_on(level, &store, reader.graph()).await;
                let agent =
                    wired_office(&kit, (boss.0, digger.0)).0.checkpointer(store.clone()).build().unwrap();
                let stored = store.load(&"t".into(), None).await.unwrap().is_some();
                let stopped = ended.is_none();
                let reply = match ended {
                    Some(reply) => reply,
                    None if stored => agent.thread("t").resume().await.unwrap(),
                    None => agent.thread("t").ask("go").await.unwrap(),
                };
                assert_eq!((&*reply.text, reply.outcome), ("done", AgentOutcome::Completed), "{n}");
                let state = agent.graph().thread("t").state().await.unwrap().values;
                valid(&state);
                let results: Vec<_> = state.tool_result_history.iter().map(String::as_str).collect();
                assert_eq!(results[1], "dug", "{n}");
                match results[0].starts_with(IN_DOUBT) {
                    true => doubts += 1,
                    false => assert_eq!(results[0], "r:1", "{n}"),
                }
                assert!(kit.n("echo") <= 2, "{n}: no effect happens twice");
                for child in store.children(&"t".into()).await.unwrap() {
                    let graph = reader.graph().clone().with_checkpointer(store.clone());
                    valid(&graph.thread(&child).state().await.unwrap().values);
                }
                if !stopped {
                    assert!(n > 15, "there were writes of both agents: {n}");
                    break;
                }
            }
            assert_eq!(doubts, 1, "the boss's own call was in doubt once, {level:?}");
        });
    }
}
