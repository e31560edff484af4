//! External updates of a state.

use superstep::{
    Answers, CheckpointId, Command, CompiledGraph, Cx, END, NodeError, NodeFailure, NodeRef, Route, RunError,
    START, State, StateGraph, Status, checkpoint::Source, thread::AsNode,
};

use crate::support::{
    Calls, Plain, entries, failed, h, head, id_at, id_prefixes, line, logging_node, names, on_every_store,
    say,
};

/// `START → (left, right) → join`.
fn side_by_side() -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("side_by_side");
    let [left, right, join] = ["left", "right", "join"].map(|name| logging_node(&mut graph, name));
    graph.add_edge(START, left);
    graph.add_edge(START, right);
    graph.add_join([left, right], join);
    graph.compile().unwrap()
}

#[derive(Route, Clone, Copy)]
enum Review {
    Ask,
    Done,
}

/// `START → review ⇄ ask`, where `review` is left by its own routes alone, and goes to the end after an answer.
fn reviewed() -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("reviewed");
    let review = graph.add_routing_node("review", async |state: Plain, _: Cx| {
        let is_answered = state.log.iter().any(|word| word == "yes");
        let route = if is_answered { Review::Done } else { Review::Ask };
        Command::<Plain, Review>::update(say("review")).goto(route)
    });
    let ask = graph.add_node("ask", async |_: Plain, cx: Cx| say(&cx.interrupt::<String>("q", "?").await));
    graph.add_edge(START, review);
    graph.add_edge(ask, review);
    graph.add_routes(review, move |route| match route {
        Review::Ask => ask,
        Review::Done => END,
    });
    graph.compile().unwrap()
}

on_every_store! {
    async fn at_a_breakpoint_the_node_that_ran_last_is_meant(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        let end = graph.thread("t").break_before(["b"]).run(say("1")).await.unwrap();
        assert_eq!(end.status, Status::Interrupted);
        graph.thread("t").update(say("human")).await.unwrap();
        assert_eq!(h(&graph).await[..2], entries(&[("update", 2, "b"), ("loop", 1, "b")]));
        // Who made an update by hand is who ran last.
        graph.thread("t").update(say("again")).await.unwrap();
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "1 a human again b");
    }

    async fn if_several_ran_last_the_update_has_to_name_its_node(backend: Backend) {
        let graph = backend.keep(side_by_side());
        graph.thread("t").break_before(["join"]).run(say("1")).await.unwrap();
        let stored = h(&graph).await;
        let error = failed(graph.thread("t").update(say("u")).await);
        assert_eq!(
            error.to_string(),
            "SS190: thread `t`: `left`, `right` ran last, so the node of the update is ambiguous; name one \
             of them"
        );
        assert_eq!(h(&graph).await, stored);
        graph.thread("t").update_as("left", say("u")).await.unwrap();
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "1 left right u join");
    }

    async fn of_older_checkpoints_and_forks_the_node_that_ran_before_them_is_meant(backend: Backend) {
        let graph = backend.keep(line(&["a", "b", "c"]));
        graph.thread("t").run(say("in")).await.unwrap();
        for (checkpoint, next) in [(1, "a"), (2, "a"), (3, "b"), (4, "c"), (5, "")] {
            graph.thread("t").at(CheckpointId(checkpoint)).update(say("u")).await.unwrap();
            assert_eq!(names(&head(&graph).await.next), next, "checkpoint {checkpoint}");
            graph.thread("t").fork(CheckpointId(checkpoint)).await.unwrap();
            graph.thread("t").fork(None).await.unwrap();
            graph.thread("t").update(say("u")).await.unwrap();
            assert_eq!(names(&head(&graph).await.next), next, "a fork of checkpoint {checkpoint}");
        }
    }

    async fn an_update_by_the_end_leaves_nothing_to_run(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        graph.thread("t").break_before(["b"]).run(say("1")).await.unwrap();
        graph.thread("t").update_as(AsNode::End, Plain::update()).await.unwrap();
        assert_eq!(h(&graph).await[..2], entries(&[("update", 2, ""), ("loop", 1, "b")]));
        let end = head(&graph).await;
        assert_eq!((end.values.log_text().as_str(), end.next.len(), end.tasks.len()), ("1 a", 0, 0));
        assert_eq!(graph.thread("t").resume().await.unwrap().status, Status::Completed);
        // The thread takes the next input.
        assert_eq!(graph.thread("t").run(say("2")).await.unwrap().state.log_text(), "1 a 2 a b");
    }

    async fn an_update_by_the_end_may_write_and_drops_what_waits_at_joins(backend: Backend) {
        let graph = backend.keep(side_by_side());
        graph.thread("t").update_as(AsNode::Input, say("in")).await.unwrap();
        graph.thread("t").update_as("left", say("l")).await.unwrap();
        assert!(!head(&graph).await.checkpoint.unwrap().control.arrived.is_empty());
        graph.thread("t").update_as("__end__", say("bye")).await.unwrap();
        let end = head(&graph).await;
        assert_eq!((end.values.log_text().as_str(), end.next.len()), ("in l bye", 0));
        assert!(end.checkpoint.unwrap().control.arrived.is_empty());
    }

    async fn a_bulk_update_makes_a_checkpoint_for_each_superstep(backend: Backend) {
        let graph = backend.keep(side_by_side());
        let last = graph
            .thread("t").bulk_update(vec![
                    vec![(say("in"), AsNode::Input)],
                    // Folded in the given order.
                    vec![(say("R"), "right".into()), (say("L"), "left".into())],
                    vec![(say("J"), "join".into())],
                ])
            .await
            .unwrap();
        assert_eq!(last, CheckpointId(3));
        assert_eq!(
            h(&graph).await,
            entries(&[("update", 2, ""), ("update", 1, "join"), ("update", 0, "left right")])
        );
        let history = graph.thread("t").history().states().await.unwrap();
        let said: Vec<_> = history.iter().map(|snapshot| snapshot.values.log_text()).collect();
        assert_eq!(said, ["in R L J", "in R L", "in"]);
        let parents: Vec<_> = history.iter().map(|it| it.checkpoint.as_ref().unwrap().parent).collect();
        assert_eq!(parents, [Some(CheckpointId(2)), Some(CheckpointId(1)), None]);
        assert!(history.iter().all(|it| it.checkpoint.as_ref().unwrap().source == Source::Update));
        // And from an older checkpoint, on a branch of its own.
        let updates = vec![vec![(say("l"), "left".into())], vec![(say("r"), "right".into())]];
        assert_eq!(graph.thread("t").at(CheckpointId(1)).bulk_update(updates).await.unwrap(), CheckpointId(5));
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "in l r join");
    }

    async fn a_bulk_update_that_fails_stores_nothing(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        graph.thread("t").run(say("in")).await.unwrap();
        let stored = h(&graph).await;
        let good = || vec![(say("u"), AsNode::from("a"))];
        for empty in [vec![], vec![good(), vec![]]] {
            let error = failed(graph.thread("t").bulk_update(empty).await);
            assert!(matches!(error, RunError::NoUpdates { .. }), "{error}");
        }
        let error = failed(graph.thread("t").bulk_update(vec![good(), vec![(say("v"), "z".into())]]).await);
        assert!(matches!(&error, RunError::UnknownNode { node, .. } if node == "z"), "{error}");
        let twice = vec![(Plain::update().x(1), "a".into()), (Plain::update().x(2), "b".into())];
        let error = failed(graph.thread("t").bulk_update(vec![good(), twice]).await);
        assert!(
            matches!(&error, RunError::Conflict { channel, first, second, .. }
                if channel == "x" && first.as_str() == "a" && second.as_str() == "b"),
            "{error}"
        );
        // Two nodes are authors of the last superstep.
        let both = vec![(say("l"), "a".into()), (say("r"), "b".into())];
        let unclear = vec![both, vec![(say("u"), AsNode::LastRun)]];
        let error = failed(graph.thread("t").bulk_update(unclear).await);
        assert!(matches!(&error, RunError::AmbiguousUpdate { .. }), "{error}");
        assert_eq!(h(&graph).await, stored);
    }
    /// `p` had an effect and an answer. Both updates give it another slot.
    async fn a_task_that_stays_retains_its_effects_and_answers(backend: Backend) {
        let (calls, paid) = (Calls::default(), Calls::default());
        let graph = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let deps = (calls.clone(), paid.clone());
            let p = graph.add_node_with("p", deps, async |(calls, paid): (Calls, Calls), _: Plain, cx: Cx| {
                calls.add(&cx);
                let effect = async |_| {
                    paid.add(&cx);
                    Ok::<_, NodeError>(7)
                };
                let receipt: i64 = cx.once("pay", effect).await?;
                let [one, two]: [String; 2] = [cx.interrupt("one", 1).await, cx.interrupt("two", 2).await];
                Ok::<_, NodeError>(say(&format!("{receipt} {one} {two}")))
            });
            let [a, b, c] = ["a", "b", "c"].map(|name| logging_node(&mut graph, name));
            graph.add_edge(START, p);
            graph.add_edge(a, b);
            graph.add_edge(a, c);
            graph.add_edge(p, END);
            backend.keep(graph.compile().unwrap())
        };
        let asked = graph().thread("t").run(Plain::update()).await.unwrap();
        let one = id_at(&asked.interrupts, "p:1.0:one");
        assert_eq!(graph().thread("t").answer(&one, "1").resume().await.unwrap().status, Status::Interrupted);
        graph().thread("t").update_as("a", say("U")).await.unwrap();
        let updates = ["b", "c", "a"].map(|name| vec![(say(name), AsNode::from(name))]);
        graph().thread("t").bulk_update(updates.into()).await.unwrap();
        let found = head(&graph()).await;
        assert_eq!(names(&found.next), "b c p");
        let asked: Vec<_> = found.tasks.iter().flat_map(|task| task.interrupts.clone()).collect();
        assert_eq!(id_prefixes(&asked), ["p:1.0:two"]);
        let end = graph().thread("t").answer("two", "2").resume().await.unwrap();
        assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "U b c a b c 7 1 2"));
        assert_eq!((calls.all().as_str(), paid.all().as_str()), ("p p p", "p"));
    }

    async fn an_update_in_the_name_of_the_task_or_on_an_older_checkpoint_leaves_it_behind(backend: Backend) {
        let graph = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let p = graph.add_node("p", async |_: Plain, cx: Cx| say(&cx.interrupt::<String>("q", ()).await));
            let a = logging_node(&mut graph, "a");
            graph.add_edge(START, p);
            graph.add_edge(p, a);
            backend.keep(graph.compile().unwrap())
        };
        let asked = graph().thread("t").run(Plain::update()).await.unwrap();
        graph().thread("t").update_as("p", say("by hand")).await.unwrap();
        let found = head(&graph()).await;
        assert_eq!((names(&found.next).as_str(), found.tasks[0].interrupts.len()), ("a", 0));
        graph().thread("t").at(asked.checkpoint).update_as(AsNode::Input, say("U")).await.unwrap();
        let found = head(&graph()).await;
        assert_eq!((names(&found.next).as_str(), found.tasks[0].interrupts.len()), ("p", 0));
    }

    /// `w` ran last; one of its items waits and another failed.
    async fn an_update_without_a_name_keeps_the_tasks_of_the_node_that_ran_last(backend: Backend) {
        for (nth, words) in [vec![vec!["U"]], vec![vec!["U", "V"]], vec![vec!["U"], vec!["V"]]].into_iter().enumerate() {
            let graph = |broken: bool| {
                let mut graph = StateGraph::<Plain>::new("g");
                let w = graph.add_worker("w", move |item: i64, _: Plain, cx: Cx| async move {
                    match item {
                        0 => Ok(say(&cx.interrupt::<String>("q", ()).await)),
                        1 if broken => Err(NodeError::new("it broke").fatal()),
                        _ => Ok(say(&item.to_string())),
                    }
                });
                let j = logging_node(&mut graph, "j");
                graph.add_fan_out(START, |_: &Plain| [0, 2, 1], w);
                graph.add_join([w], j);
                backend.keep(graph.compile().unwrap())
            };
            failed(graph(true).thread(nth.to_string()).max_concurrency(1).run(Plain::update()).await);
            let before = graph(true).thread(nth.to_string()).state().await.unwrap();
            assert_eq!((names(&before.next).as_str(), before.values.log_text().as_str()), ("w w", "2"));
            let asked = before.tasks[0].interrupts.clone();
            assert_eq!(asked.len(), 1);

            let unnamed = |words: &Vec<&str>| words.iter().map(|word| (say(word), AsNode::LastRun)).collect();
            graph(true).thread(nth.to_string()).bulk_update(words.iter().map(unnamed).collect()).await.unwrap();
            let after = graph(true).thread(nth.to_string()).state().await.unwrap();
            assert_eq!((names(&after.next).as_str(), &after.tasks[0].interrupts), ("w w", &asked));
            assert!(after.tasks[1].error.as_deref().is_some_and(|error| error.contains("it broke")));
            let answers = Answers::new().answer(&asked[0].id, "0");
            let end = graph(false).thread(nth.to_string()).answers(answers).resume().await.unwrap();
            assert_eq!(end.state.log_text(), format!("2 {} 0 1 j", words.concat().join(" ")));
        }
    }

    /// All successors of `split` wait: it ran last, and has sent its items.
    async fn an_update_without_a_name_sends_no_item_a_second_time(backend: Backend) {
        for (nth, supersteps) in [vec![1], vec![2], vec![1, 1]].into_iter().enumerate() {
            let mut graph = StateGraph::<Plain>::new("g");
            let split = logging_node(&mut graph, "split");
            let w = graph.add_worker("w", async |item: i64, _: Plain, cx: Cx| {
                let _: bool = cx.interrupt("pay", item).await;
                say(&format!("paid {item}"))
            });
            let j = logging_node(&mut graph, "j");
            graph.add_edge(START, split);
            graph.add_fan_out(split, |_: &Plain| [1, 2], w);
            graph.add_join([NodeRef::from(w), split], j);
            let graph = backend.keep(graph.compile().unwrap());
            let asked = graph.thread(nth.to_string()).run(Plain::update()).await.unwrap().interrupts;
            let unnamed = |updates| (0..updates).map(|_| (say("U"), AsNode::LastRun)).collect();
            graph.thread(nth.to_string()).bulk_update(supersteps.iter().copied().map(unnamed).collect()).await.unwrap();
            let found = graph.thread(nth.to_string()).state().await.unwrap();
            let waiting: Vec<_> = found.tasks.into_iter().flat_map(|task| task.interrupts).collect();
            assert_eq!((names(&found.next).as_str(), waiting), ("w w", asked.clone()));
            let answers = asked.iter().fold(Answers::new(), |answers, asked| answers.answer(&asked.id, true));
            let end = graph.thread(nth.to_string()).answers(answers).resume().await.unwrap();
            let updates = "U ".repeat(supersteps.iter().sum());
            assert_eq!(end.state.log_text(), format!("split {updates}paid 1 paid 2 j"));
        }
    }

    /// The only successor of `a` is done by hand in the same superstep.
    async fn an_update_without_a_name_beside_one_in_a_name_plans_no_task_again(backend: Backend) {
        let graph = backend.keep(line(&["a", "b", "c"]));
        for (nth, is_first) in [true, false].into_iter().enumerate() {
            let thread = graph.thread(nth.to_string());
            thread.break_before(["b"]).run(Plain::update()).await.unwrap();
            let mut updates = vec![(say("hand"), AsNode::from("b"))];
            updates.insert(usize::from(!is_first), (say("U"), AsNode::LastRun));
            thread.bulk_update(vec![updates]).await.unwrap();
            assert_eq!(names(&thread.state().await.unwrap().next), "c");
            let wanted = if is_first { "a U hand c" } else { "a hand U c" };
            assert_eq!(thread.resume().await.unwrap().state.log_text(), wanted);
        }
    }

    /// `b` has reached the join that is about to run; the next turn's `a` must not count for it.
    async fn an_update_without_a_name_reaches_no_join_a_second_time(backend: Backend) {
        #[derive(Route, Clone, Copy)]
        enum Next { Again, End }
        let mut graph = StateGraph::<Plain>::new("g");
        let [a, b, j] = ["a", "b", "j"].map(|name| logging_node(&mut graph, name));
        graph.add_edge(START, a);
        graph.add_edge(a, b);
        graph.add_join([a, b], j);
        let turns = |state: &Plain| state.log.iter().filter(|said| *said == "j").count();
        let more = move |state: &Plain| if turns(state) < 2 { Next::Again } else { Next::End };
        graph.add_conditional_edges(j, more, move |next| match next {
            Next::Again => a,
            Next::End => END,
        });
        let graph = backend.keep(graph.compile().unwrap());
        graph.thread("t").break_before(["j"]).run(say("in")).await.unwrap();
        graph.thread("t").update(say("U")).await.unwrap();
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "in a b U j a b j");
    }

    async fn an_update_in_the_name_of_a_node_with_several_tasks_has_to_be_for_all_of_them(backend: Backend) {
        let graph = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let w = graph.add_worker("w", async |item: i64, _: Plain, cx: Cx| say(&cx.interrupt::<String>("q", item).await));
            graph.add_fan_out(START, |_: &Plain| [1, 2], w);
            backend.keep(graph.compile().unwrap())
        };
        let asked = graph().thread("t").run(Plain::update()).await.unwrap().interrupts;
        let error = failed(graph().thread("t").update_as("w", say("U")).await).to_string();
        let wanted = format!(
            "SS198: thread `t`: 2 tasks of node `w` are not finished, and 1 of the updates are in its name, \
             so the remaining tasks are ambiguous (`{}` waits, `{}` waits); give one update for each, name \
             another node, or none",
            asked[0].id, asked[1].id
        );
        assert_eq!(error, wanted);
        let waiting: Vec<_> = head(&graph()).await.tasks.into_iter().flat_map(|task| task.interrupts).collect();
        assert_eq!(waiting, asked);
        let both = vec![vec![(say("U"), "w".into()), (say("V"), "w".into())]];
        graph().thread("t").bulk_update(both).await.unwrap();
        assert_eq!(graph().thread("t").resume().await.unwrap().state.log_text(), "U V");
    }

    /// The update belongs to the handler, which finished last, and not to the failed node.
    async fn a_handler_that_finished_is_who_ran_last(backend: Backend) {
        let graph = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let bad = graph.add_node("bad", async |_: Plain, _: Cx| Err::<(), _>(NodeError::new("it broke")));
            let mend = graph.add_error_handler(bad, "mend", async |_: NodeFailure, _: Plain, _: Cx| say("mend"));
            let ask = graph.add_node("q", async |_: Plain, cx: Cx| say(&cx.interrupt::<String>("q", ()).await));
            let [x, y] = ["x", "y"].map(|name| logging_node(&mut graph, name));
            graph.add_edge(START, bad);
            graph.add_edge(START, ask);
            graph.add_edge(bad, x);
            graph.add_edge(mend, y);
            backend.keep(graph.compile().unwrap())
        };
        assert_eq!(graph().thread("t").run(Plain::update()).await.unwrap().status, Status::Interrupted);
        graph().thread("t").update(say("U")).await.unwrap();
        let found = head(&graph()).await;
        assert_eq!((names(&found.next).as_str(), found.values.log_text().as_str()), ("q y", "mend U"));
    }

    async fn an_error_handler_keeps_its_task_until_it_had_its_turn(backend: Backend) {
        let calls = Calls::default();
        let graph = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let bad = graph.add_node_with("bad", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
                calls.add(&cx);
                Err::<(), _>(NodeError::new("it broke"))
            });
            let mend = graph.add_error_handler(bad, "mend", async |_: NodeFailure, _: Plain, cx: Cx| {
                say(&cx.interrupt::<String>("q", ()).await)
            });
            let [a, y] = ["a", "y"].map(|name| logging_node(&mut graph, name));
            graph.add_edge(START, bad);
            graph.add_edge(a, END);
            graph.add_edge(mend, y);
            backend.keep(graph.compile().unwrap())
        };
        for by_hand in [false, true] {
            let asked = graph().thread(format!("by hand: {by_hand}")).run(Plain::update()).await.unwrap();
            graph().thread(format!("by hand: {by_hand}")).update_as("a", say("U")).await.unwrap();
            let end = if by_hand {
                graph().thread(format!("by hand: {by_hand}")).update_as("mend", say("mended")).await.unwrap();
                graph().thread(format!("by hand: {by_hand}")).resume().await.unwrap()
            } else {
                let answers = Answers::new().answer(id_at(&asked.interrupts, "mend:1.0:q"), "mended");
                graph().thread(format!("by hand: {by_hand}")).answers(answers).resume().await.unwrap()
            };
            assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "U mended y"));
        }
        assert_eq!(calls.all(), "bad bad");
    }

    async fn items_of_a_worker_that_is_gone_go_with_it(backend: Backend) {
        let graph = |lost: bool| {
            let mut graph = StateGraph::<Plain>::new("g");
            for (name, from) in [("gone", 1), ("w", 3)] {
                if name == "w" || !lost {
                    let w = graph.add_worker(name, async |item: i64, _: Plain, _: Cx| say(&item.to_string()));
                    graph.add_fan_out(START, move |_: &Plain| [from, from + 1], w);
                }
            }
            let [a, b] = ["a", "b"].map(|name| logging_node(&mut graph, name));
            graph.add_edge(START, a);
            graph.add_edge(a, b);
            backend.keep(graph.compile().unwrap())
        };
        graph(false).thread("t").break_before(["gone"]).run(Plain::update()).await.unwrap();
        graph(true).thread("t").update_as("a", say("U")).await.unwrap();
        let end = graph(true).thread("t").resume().await.unwrap();
        assert_eq!(end.state.log_text(), "U b 3 4");
    }
    async fn items_of_a_worker_that_takes_none_any_more_are_not_ignored(backend: Backend) {
        let graph = |is_worker: bool| {
            let mut graph = StateGraph::<Plain>::new("g");
            if is_worker {
                let w = graph.add_worker("w", async |item: Option<i64>, _: Plain, _: Cx| say(&format!("w{item:?}")));
                graph.add_fan_out(START, |state: &Plain| vec![Some(1); state.x.try_into().unwrap()], w);
            } else {
                let w = logging_node(&mut graph, "w");
                graph.add_edge(START, w);
            }
            backend.keep(graph.compile().unwrap())
        };
        for x in [1_u8, 2] {
            let thread = x.to_string();
            graph(true).thread(&*thread).break_before(["w"]).run(Plain::update().x(i64::from(x))).await.unwrap();
            for _ in 0..2 {
                let error = failed(graph(false).thread(&*thread).resume().await).to_string();
                let wanted = "SS114: graph `g` cannot resume from this checkpoint: at the checkpoint of superstep 0 a task of \
                              node `w` has an item, but the node takes no items; let it take items again, or update the thread as this node";
                assert_eq!(error, wanted);
            }
            let by_hand = (0..x).map(|_| (say("hand"), AsNode::from("w"))).collect();
            graph(false).thread(&*thread).bulk_update(vec![by_hand]).await.unwrap();
            assert!(graph(false).thread(&*thread).state().await.unwrap().next.is_empty());
        }
        graph(false).thread("t").break_before(["w"]).run(Plain::update()).await.unwrap();
        let error = failed(graph(true).thread("t").resume().await).to_string();
        assert!(error.contains("the task of node `w` has no item, but the node takes items"), "{error}");
        graph(false).thread("t").resume().await.unwrap();
    }

    /// Its route was taken when it ran, and an update has none.
    async fn an_update_after_a_node_that_only_routes_leaves_all_tasks_pending(backend: Backend) {
        let inner = backend.keep(reviewed());
        let mut outer = StateGraph::<Plain>::new("outer");
        let sub = outer.add_subgraph("sub", &inner);
        outer.add_edge(START, sub);
        let outer = backend.keep(outer.compile().unwrap());
        for in_subgraph in [false, true] {
            let graph = if in_subgraph { &outer } else { &inner };
            let thread = graph.thread(format!("in a subgraph: {in_subgraph}"));
            let asked = thread.run(say("in")).await.unwrap();
            let update = match in_subgraph {
                true => thread.subgraph::<Plain>(["sub"]).update(say("u")).await,
                false => thread.update(say("u")).await,
            };
            update.unwrap();
            if !in_subgraph {
                let now = thread.state().await.unwrap();
                assert_eq!((names(&now.next).as_str(), &now.tasks[0].interrupts), ("ask", &asked.interrupts));
            }
            assert_eq!(thread.resume().await.unwrap().status, Status::Interrupted);
            let end = thread.answer("q", "yes").resume().await.unwrap();
            assert_eq!((end.status, end.state.log_text().as_str()), (Status::Completed, "in review u yes review"));
        }
        // It is also the node that ran last on a finished thread.
        let thread = inner.thread("in a subgraph: false");
        thread.update(say("v")).await.unwrap();
        assert!(thread.state().await.unwrap().next.is_empty());
        let error = failed(thread.update_as("review", say("w")).await).to_string();
        assert!(error.starts_with("SS104: superstep 6: routing node `review` returned no route"), "{error}");
        // It sends nothing again, so that no join of its workers is reached.
        let mut graph = StateGraph::<Plain>::new("sends");
        let sends = graph.add_routing_node("sends", async |_: Plain, _: Cx| {
            Command::<Plain, Review>::update(say("sends")).goto(Review::Done)
        });
        let worker = graph.add_worker("worker", async |_: String, _: Plain, _: Cx| say("worked"));
        let after = graph.add_node("after", async |_: Plain, _: Cx| say("after"));
        graph.add_edge(START, sends);
        graph.add_sends(sends, worker);
        graph.add_join([worker], after);
        graph.add_edge(after, END);
        graph.add_routes(sends, move |route| match route {
            Review::Ask => after,
            Review::Done => END,
        });
        let thread = backend.keep(graph.compile().unwrap()).thread("sends");
        thread.run(say("in")).await.unwrap();
        thread.update(say("u")).await.unwrap();
        assert!(thread.state().await.unwrap().next.is_empty());
    }

    async fn an_update_after_one_by_the_end_leaves_later_tasks_pending(backend: Backend) {
        let graph = backend.keep(reviewed());
        graph.thread("t").run(say("in")).await.unwrap();
        graph.thread("t").update_as(AsNode::End, say("end")).await.unwrap();
        // Nothing is pending yet.
        graph.thread("t").update(say("u")).await.unwrap();
        assert!(head(&graph).await.next.is_empty());
        let asked = graph.thread("t").resume_with(Command::new().goto("ask")).await.unwrap();
        assert_eq!(asked.interrupts.len(), 1);
        for word in ["v", "w"] {
            graph.thread("t").update(say(word)).await.unwrap();
            let now = head(&graph).await;
            assert_eq!((names(&now.next).as_str(), &now.tasks[0].interrupts), ("ask", &asked.interrupts));
        }
        let end = graph.thread("t").answer("q", "yes").resume().await.unwrap();
        assert_eq!(end.state.log_text(), "in review end u v w yes review");
        graph.thread("t").update_as(AsNode::End, say("end")).await.unwrap();
        assert!(head(&graph).await.next.is_empty());
    }
}
