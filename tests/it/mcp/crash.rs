//! Calls of servers after crashes: programs that stop and turns that are cancelled at every point of them.

use std::{fs, path::Path, sync::Arc};

use superstep::{
    Checkpointer, MemoryCheckpointer,
    agent::{Agent, AgentOutcome, ReactConfig},
    llm::ChatModel,
};
use superstep_testing::script::{Answer, call, calls, txt};

use super::{Small, notices::allowed};
use crate::agent::{
    crash::{LEVELS, Lives, STOPS, cancelled_at, lives, model, state},
    real,
};

const IN_DOUBT: &str = "Error: the outcome of this call is unknown";

/// Creates two calls with an effect and one without in one round, and one more in the next.
fn answers() -> Vec<Answer> {
    let round = calls([
        ("c0", "small_note", r#"{"what":"a"}"#),
        ("c1", "small_say", r#"{"what":"x"}"#),
        ("c2", "small_note", r#"{"what":"b"}"#),
    ]);
    vec![round, call("c3", "small_note", r#"{"what":"c"}"#), txt("done")]
}

const RESULTS: [&str; 4] = ["noted a", "x no key no greeting", "noted b", "noted c"];

/// Creates a program, with a server of its own.
async fn program(small: &Small, model: Arc<dyn ChatModel>, store: Arc<dyn Checkpointer>) -> Agent {
    let server = Arc::new(small.connect().await);
    let agent = Agent::builder(model).tool_source(server).checkpointer(store);
    agent.config(ReactConfig { permissions: allowed(), ..ReactConfig::graph(9) }).build().unwrap()
}

fn effects(small: &Small, of: &str) -> usize {
    small.seen().split(' ').filter(|seen| *seen == format!("noted:{of}")).count()
}

#[test]
fn a_crash_at_any_write_around_a_call_is_recovered() {
    for (level, stops) in LEVELS.into_iter().flat_map(|level| STOPS.map(|stops| (level, stops))) {
        real(async {
            let mut in_doubt = Vec::new();
            for n in 1.. {
                let small = Small::new();
                let program = async |model, store| program(&small, model, store).await;
                let Lives { stopped, reply, agent } = lives((stops, n), level, &answers(), program).await;
                assert_eq!((reply.outcome, &*reply.text), (AgentOutcome::Completed, "done"), "{n}");
                let results = state(&agent).await.tool_result_history;
                let mut doubts = 0;
                for (at, result) in RESULTS.into_iter().enumerate() {
                    let effects = result.strip_prefix("noted ").map(|what| effects(&small, what));
                    if results[at].starts_with(IN_DOUBT) {
                        doubts += 1;
                        in_doubt.push(effects.expect("what only reads is called again"));
                    } else {
                        assert_eq!((&*results[at], effects.unwrap_or(1)), (result, 1), "{n}");
                    }
                }
                assert!(doubts <= 1, "{n}");
                if !stopped {
                    break;
                }
            }
            // It stopped after a call was noted and before it started: results that a dropped run knows are stored.
            assert_eq!(in_doubt, [0; 3], "{level:?}");
        });
    }
}

#[test]
fn a_call_that_a_server_has_not_answered_is_in_doubt_and_nothing_runs_twice() {
    for level in LEVELS {
        real(async {
            let (small, store) = (Small::new(), Arc::new(MemoryCheckpointer::new()));
            let mute = format!("{}.mute:b", small.seen_file().display());
            fs::write(Path::new(&mute), "").unwrap();
            let (first, server) = model(level, answers()).await;
            let agent = program(&small, first, store.clone()).await;
            tokio::select! {
                ended = agent.thread("t").ask("go") => panic!("{ended:?}"),
                () = small.sees("noted:b") => {}
            }
            drop((agent, server));
            let (second, _server) = model(level, answers().split_off(1)).await;
            let agent = program(&small, second, store).await;
            agent.thread("t").resume().await.unwrap();
            let results: Vec<_> = state(&agent).await.tool_result_history.iter().cloned().collect();
            assert_eq!([&results[0], &results[1], &results[3]], [RESULTS[0], RESULTS[1], RESULTS[3]]);
            assert!(results[2].starts_with(IN_DOUBT), "{}", results[2]);
            assert_eq!(["a", "b", "c"].map(|what| effects(&small, what)), [1, 1, 1]);
        });
    }
}

#[test]
fn a_turn_that_is_cancelled_at_any_event_of_a_call_is_followed_by_another() {
    let round = || {
        let (counts, notes) = (("c1", "small_count", "{}"), r#"{"what":"a"}"#);
        calls([("c0", "small_note", notes), counts, ("c2", "small_sleep", "{}")])
    };
    for level in LEVELS {
        real(async {
            for n in 1.. {
                let (small, store) = (Small::new(), Arc::new(MemoryCheckpointer::new()));
                let (first, _server) = model(level, [round()]).await;
                let agent = program(&small, first, store.clone()).await;
                let last = cancelled_at(n, &agent).await.unwrap();
                assert_eq!(state(&agent).await.outcome, Some(AgentOutcome::Cancelled), "{n}");
                assert!(effects(&small, "a") <= 1, "{n}");
                // The next turn has the same server.
                drop(agent);
                let (next, _server) =
                    model(level, [call("c9", "small_say", r#"{"what":"y"}"#), txt("ok")]).await;
                let agent = program(&small, next, store).await;
                let reply = agent.thread("t").ask("more").await.unwrap();
                assert_eq!(reply.text, "ok", "{n}");
                let results = state(&agent).await.tool_result_history;
                assert_eq!(results.last().unwrap(), "y no key no greeting", "{n}");
                // The start of the unanswered call is the last event.
                if last["id"] == "c2" {
                    break;
                }
            }
        });
    }
}
