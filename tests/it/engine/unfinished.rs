//! A new input for a thread with pending tasks.

use superstep::{
    Cx, NodeError, OnUnfinished, Route, RunError, RunOptions, START, State, StateGraph, StreamMode,
};

use crate::support::{Plain, entries, failed, h, head, line, names, on_every_store, say, t, told};

#[derive(Route, Clone, Copy)]
enum To {
    Ask,
}

fn one_step() -> RunOptions {
    t().step_limit(1)
}

on_every_store! {
    async fn a_new_input_for_unfinished_work_is_refused_and_changes_nothing(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        failed(graph.thread("t").step_limit(1).run(say("1")).await);
        let before = h(&graph).await;
        let error = failed(graph.thread("t").run(say("2")).await);
        assert!(
            matches!(&error, RunError::Unfinished { thread, next } if thread.as_str() == "t" && names(next) == "b"),
            "{error}"
        );
        assert_eq!(h(&graph).await, before);
        assert_eq!(head(&graph).await.values.log_text(), "1 a");
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "1 a b");
    }

    async fn a_new_input_may_discard_unfinished_work_and_reports_it(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        failed(graph.thread("t").step_limit(1).run(say("1")).await);
        let discard = one_step().on_unfinished(OnUnfinished::Discard);
        assert_eq!(
            told(&graph, say("2"), discard, &[StreamMode::Values]).await,
            [
                "discarded [b]",
                "values 3: [1 a 2]",
                "values 4: [1 a 2 a]",
                "SS105: 1 superstep did not finish the run, `b` would be next; raise `step_limit`, or check that the \
                 graph's cycles end",
            ]
        );
        let head = head(&graph).await;
        assert_eq!((head.values.log_text().as_str(), names(&head.next).as_str()), ("1 a 2 a", "b"));
        assert_eq!(
            h(&graph).await,
            entries(&[
                ("loop", 4, "b"),
                ("loop", 3, "a"),
                ("input", 2, "__start__"),
                ("loop", 1, "b"),
                ("loop", 0, "a"),
                ("input", -1, "__start__"),
            ])
        );
    }

    async fn an_input_at_the_id_of_the_head_is_one_at_the_head(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        failed(graph.thread("t").step_limit(1).run(say("1")).await);
        let checkpoint = head(&graph).await.checkpoint.unwrap().id;
        let error = failed(graph.thread("t").at(checkpoint).run(say("2")).await);
        assert!(matches!(&error, RunError::Unfinished { next, .. } if names(next) == "b"), "{error}");
        let discard = t().at(checkpoint).on_unfinished(OnUnfinished::Discard);
        assert_eq!(
            told(&graph, say("2"), discard, &[StreamMode::Updates]).await,
            ["discarded [b]", r#"update 4 a: {"log":["a"]}"#, r#"update 5 b: {"log":["b"]}"#]
        );
        // An older checkpoint begins another branch, which discards nothing.
        assert_eq!(graph.thread("t").at(checkpoint).run(say("3")).await.unwrap().state.log_text(), "1 a 3 a b");
    }

    async fn a_new_input_after_a_failure_is_the_same_choice(backend: Backend) {
        let graph = backend.keep(crate::engine::failures::ok_and_bad(false, &Default::default()));
        failed(graph.thread("t").run(Plain::update()).await);
        let error = failed(graph.thread("t").run(say("2")).await);
        assert!(matches!(&error, RunError::Unfinished { next, .. } if names(next) == "bad ok"), "{error}");
        let discard = t().on_unfinished(OnUnfinished::Discard);
        let repaired = backend.keep(crate::engine::failures::ok_and_bad(true, &Default::default()));
        assert_eq!(
            told(&repaired, say("2"), discard, &[StreamMode::Values]).await,
            ["discarded [bad ok]", "values 2: [2]", "values 3: [2 bad ok]", "values 4: [2 bad ok j]"],
            "what ok wrote the first time is dropped"
        );
    }

    async fn what_a_discarded_task_did_once_may_stay(backend: Backend) {
        let mut graph = StateGraph::<Plain>::new("asks");
        let asks = graph.add_node("asks", async |_: Plain, cx: Cx| {
            let did: String = cx.once("did", async |_| Ok::<_, NodeError>("did".to_owned())).await?;
            let _: bool = cx.interrupt("why", did).await;
            Ok::<_, NodeError>(Plain::update())
        });
        graph.add_edge(START, asks);
        graph.on_discard(asks, |_, task| say(&task.did::<String>("did").unwrap_or("nothing".into())));
        let graph = backend.keep(graph.compile().unwrap());
        graph.thread("t").run(say("1")).await.unwrap();
        assert_eq!(graph.thread("t").on_unfinished(OnUnfinished::Discard).run(say("2")).await.unwrap().state.log_text(), "1 did 2");
        // A replay is given the input as it was stored.
        let replayed = graph.thread("t").replay().run().await.unwrap();
        assert!(replayed.divergence.is_none(), "{replayed}");
        // A task that has not begun did nothing.
        graph.thread("t").on_unfinished(OnUnfinished::Discard).step_limit(1).run(say("3")).await.unwrap();
        assert_eq!(head(&graph).await.values.log_text(), "1 did 2 did 3");
    }

    async fn a_rejected_input_discards_nothing(backend: Backend) {
        let mut graph = StateGraph::<Plain>::new("asks");
        let ask = graph.add_node("ask", async |_: Plain, cx: Cx| say(&cx.interrupt::<String>("q", "?").await));
        let routes = |state: &Plain| if state.log.last().unwrap() == "bad" { vec![] } else { vec![To::Ask] };
        graph.add_conditional_edges(START, routes, move |To::Ask| ask);
        let graph = backend.keep(graph.compile().unwrap());
        graph.thread("t").run(say("in")).await.unwrap();
        let discard = || t().on_unfinished(OnUnfinished::Discard);
        let told_of = told(&graph, say("bad"), discard(), &[StreamMode::Updates]).await;
        assert!(matches!(&told_of[..], [error] if error.starts_with("SS104")), "{told_of:?}");
        assert_eq!(head(&graph).await.tasks[0].interrupts.len(), 1);
        let stops = discard().break_before(["ask"]);
        let told_of = told(&graph, say("good"), stops, &[StreamMode::Checkpoints]).await;
        assert_eq!(told_of[..2], ["checkpoint input 1 -> [__start__]", "discarded [ask]"]);
    }
}
