//! Finished tasks whose writes their superstep cannot fold, before it is over.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use superstep::{Command, CompiledGraph, Cx, NodeError, RunError, START, State, StateGraph, Status};

use crate::support::{Plain, PlainUpdate, failed, head, logging_node, names, on_every_store, say};

/// `a` and `b` write one channel, in parallel to `c` and `ask`.
fn rivals() -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("g");
    let a = graph.add_node("a", async |_: Plain, _: Cx| Plain::update().x(1));
    let b = graph.add_node("b", async |_: Plain, _: Cx| Plain::update().x(2));
    let c = logging_node(&mut graph, "c");
    let ask = graph.add_node("ask", async |_: Plain, cx: Cx| say(&cx.interrupt::<String>("q", "?").await));
    for node in [a, b, c, ask] {
        graph.add_edge(START, node);
    }
    graph.compile().unwrap()
}

#[derive(State, Clone, Debug, Default)]
struct Votes {
    #[channel(sum)]
    yes: u8,
}

/// `good` has a vote, `over` has `over` votes, and `ask` the number in its answer.
fn votes(over: u8) -> CompiledGraph<Votes> {
    let mut graph = StateGraph::<Votes>::new("g");
    let good = graph.add_node("good", async |_: Votes, _: Cx| Votes::update().yes(1));
    let over = graph.add_node("over", move |_: Votes, _: Cx| async move { Votes::update().yes(over) });
    let ask = graph
        .add_node("ask", async |_: Votes, cx: Cx| Votes::update().yes(cx.interrupt::<u8>("q", "?").await));
    for node in [good, over, ask] {
        graph.add_edge(START, node);
    }
    graph.compile().unwrap()
}

fn is_conflict(error: &RunError) -> bool {
    matches!(
        error,
        RunError::Conflict { channel, first, second, .. }
            if channel == "x" && first.as_str() == "a" && second.as_str() == "b"
    )
}

on_every_store! {
    async fn a_change_from_outside_takes_no_side_in_a_conflict(backend: Backend) {
        for way in ["command", "update"] {
            let make = || backend.keep(rivals());
            let asked = make().thread(way).run(Plain::update()).await.unwrap();
            assert_eq!(asked.status, Status::Interrupted);
            let seen = make().thread(way).state().await.unwrap();
            assert_eq!((seen.values.log_text().as_str(), seen.values.x, names(&seen.next).as_str()), ("c", 0, "a ask b"));
            for task in [0, 2] {
                let error = seen.tasks[task].error.as_deref().unwrap_or_default();
                assert!(error.starts_with("SS102: ") && seen.tasks[task].result.is_none(), "{error}");
            }

            if way == "command" {
                let again = make().thread(way).resume_with(Command::update(say("U"))).await.unwrap();
                assert_eq!(again.interrupts, asked.interrupts);
            } else {
                make().thread(way).update(say("U")).await.unwrap();
            }
            let seen = make().thread(way).state().await.unwrap();
            assert_eq!((seen.values.log_text().as_str(), seen.values.x, names(&seen.next).as_str()), ("c U", 0, "a ask b"));
            let error = failed(make().thread(way).answer("q", "R").resume().await);
            assert!(is_conflict(&error), "{error}");
        }
    }

    async fn an_update_in_the_name_of_a_writer_ends_a_conflict(backend: Backend) {
        let graph = backend.keep(rivals());
        graph.thread("t").run(Plain::update()).await.unwrap();
        graph.thread("t").update_as("b", Plain::update().x(5)).await.unwrap();
        let seen = head(&graph).await;
        assert_eq!((seen.values.x, names(&seen.next).as_str()), (5, "a ask"));
        let end = graph.thread("t").answer("q", "R").resume().await.unwrap();
        assert_eq!((end.status, end.state.log_text().as_str(), end.state.x), (Status::Completed, "c R", 1));
    }

    async fn a_refused_write_beside_a_question_leaves_the_thread_open(backend: Backend) {
        for way in ["command", "update", "update of the refused"] {
            let graph = backend.keep(votes(255));
            let asked = graph.thread(way).run(Votes::update().yes(1)).await.unwrap();
            let seen = graph.thread(way).state().await.unwrap();
            assert_eq!((seen.values.yes, names(&seen.next).as_str()), (2, "ask over"));
            assert_eq!(seen.tasks[0].interrupts, asked.interrupts);
            let error = seen.tasks[2].error.as_deref().unwrap_or_default();
            assert!(error.starts_with("SS103: superstep 1: the write of node `over`"), "{error}");

            let repaired = backend.keep(votes(5));
            let answered = || repaired.thread(way).answer("q", 3);
            let one = Votes::update().yes(1);
            let end = match way {
                "command" => answered().resume_with(Command::update(one)).await,
                "update" => {
                    repaired.thread(way).update(one).await.unwrap();
                    answered().resume().await
                }
                _ => {
                    repaired.thread(way).update_as("over", one).await.unwrap();
                    answered().resume().await
                }
            };
            let end = end.unwrap();
            let yes = if way == "update of the refused" { 6 } else { 11 };
            assert_eq!((end.status, end.state.yes), (Status::Completed, yes), "{way}");
        }
    }

    async fn the_effects_of_a_rejected_update_are_not_repeated(backend: Backend) {
        for way in ["resume", "command", "update"] {
            let paid = Arc::new(AtomicUsize::new(0));
            let graph = |other: PlainUpdate| {
                let mut graph = StateGraph::<Plain>::new("g");
                let pays = graph.add_node_with("pays", paid.clone(), async |paid: Arc<AtomicUsize>, _: Plain, cx: Cx| {
                    let pay = async |_| Ok::<_, NodeError>(paid.fetch_add(1, Ordering::SeqCst) + 1);
                    let payment: usize = cx.once("pay", pay).await?;
                    Ok::<_, NodeError>(say(&format!("payment{payment}")).x(1))
                });
                let rival = graph.add_node_with("rival", other, async |other: PlainUpdate, _: Plain, _: Cx| other);
                let ask = graph.add_node("ask", async |_: Plain, cx: Cx| say(&cx.interrupt::<String>("q", "?").await));
                for node in [pays, rival, ask] {
                    graph.add_edge(START, node);
                }
                backend.keep(graph.compile().unwrap())
            };
            let asked = graph(Plain::update().x(2)).thread(way).run(Plain::update()).await.unwrap();
            assert_eq!(asked.status, Status::Interrupted);
            // The superstep is complete in another run than that of the effect.
            let rivals = graph(Plain::update().x(2));
            let thread = rivals.thread(way);
            match way {
                "resume" => drop(failed(thread.answer("q", "end").resume().await)),
                "command" => {
                    let command = Command::<Plain, &str>::update(Plain::update());
                    failed(thread.answer("q", "end").resume_with(command).await);
                }
                _ => drop(thread.update_as("ask", say("end")).await.unwrap()),
            }
            let mut said = graph(say("rival")).thread(way).resume().await.unwrap().state.log_text();
            said = said.replace("end", "").replace("rival", "");
            assert_eq!((said.trim(), paid.load(Ordering::SeqCst)), ("payment1", 1), "{way}");
        }
    }
}
