//! Error handlers: nodes that run in place of a permanently failed node.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::json;
use superstep::{
    Answers, Command, CompiledGraph, Cx, END, FailureKind, NodeError, NodeFailure, NodeOptions, NodeRef,
    Retries, RetryPolicy, Route, RunError, START, State, StateGraph, Status, StreamMode, node::OnCancel,
    topology::ProblemKind,
};

use crate::support::{
    Calls, Plain, PlainUpdate, Stuck, entries, failed, h, head, id_at, id_prefixes, logging_node, names,
    on_every_store, say, t, task, text, told,
};

/// The failures that handlers received.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<NodeFailure>>>);

impl Heard {
    fn note(&self, failure: NodeFailure) {
        self.0.lock().unwrap().push(failure);
    }

    fn all(&self) -> Vec<NodeFailure> {
        self.0.lock().unwrap().clone()
    }
}

fn broken() -> NodeError {
    let why = std::io::Error::other("the disk is full");
    NodeError::new(Broken(why)).with_data(json!({"status": 507}))
}

#[derive(Debug)]
struct Broken(std::io::Error);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it broke")
    }
}

impl std::error::Error for Broken {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Adds a node that counts its calls and fails.
fn breaker(graph: &mut StateGraph<Plain>, name: &str, calls: &Calls) -> NodeRef {
    graph.add_node_with(name, calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
        calls.add(&cx);
        Err::<(), _>(broken())
    })
}

/// `START → a → b`, where `a` fails and `h` says so.
fn handled(calls: &Calls, heard: &Heard) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("g");
    let a = breaker(&mut graph, "a", calls);
    let b = logging_node(&mut graph, "b");
    graph.add_error_handler_with(
        a,
        "h",
        heard.clone(),
        async |heard: Heard, failure: NodeFailure, _: Plain, _: Cx| {
            heard.note(failure);
            say("h")
        },
    );
    graph.add_edge(START, a);
    graph.add_edge(a, b);
    graph.compile().unwrap()
}

on_every_store! {
    async fn a_handler_has_effects_of_its_own_under_the_names_of_its_node(backend: Backend) {
        let mut graph = StateGraph::<Plain>::new("g");
        let a = graph.add_node("a", async |_: Plain, cx: Cx| {
            cx.once("send", async |_| Ok::<_, NodeError>("sent by a".to_owned())).await?;
            Err::<(), _>(broken())
        });
        let h = graph.add_error_handler(a, "h", async |_: NodeFailure, _: Plain, cx: Cx| {
            Ok::<_, NodeError>(say(&cx.once("send", async |_| Ok::<_, NodeError>("sent by h".to_owned())).await?))
        });
        graph.add_edge(START, a);
        graph.add_edge(a, END);
        graph.add_edge(h, END);
        let end = backend.keep(graph.compile().unwrap()).thread("t").run(say("in")).await.unwrap();
        assert_eq!(end.state.log_text(), "in sent by h");
    }

    async fn a_handler_runs_in_the_superstep_of_the_node_that_failed(backend: Backend) {
        let (calls, heard) = (Calls::default(), Heard::default());
        let graph = backend.keep(handled(&calls, &heard));
        let modes = [StreamMode::Updates, StreamMode::Tasks];
        assert_eq!(
            told(&graph, Plain::update(), t(), &modes).await,
            [
                "start 1 a #1",
                "end 1 a #1: it broke: the disk is full",
                "start 1 h #1",
                r#"update 1 h: {"log":["h"]}"#,
                "end 1 h #1",
            ]
        );
        let done = head(&graph).await;
        assert_eq!((done.values.log_text().as_str(), done.next.len(), calls.all().as_str()), ("h", 0, "a"));
        assert_eq!(h(&graph).await, entries(&[("loop", 1, ""), ("loop", 0, "a"), ("input", -1, "__start__")]));
        let told = heard.all();
        let expected = json!({
            "node": "a", "attempts": 1, "kind": "error", "message": "it broke", "causes": ["the disk is full"],
            "data": {"status": 507},
        });
        assert_eq!(told.iter().map(|failure| serde_json::to_value(failure).unwrap()).collect::<Vec<_>>(), [expected]);
    }

    async fn a_handler_that_goes_to_b_is_followed_by_it(backend: Backend) {
        let calls = Calls::default();
        let mut graph = StateGraph::<Plain>::new("g");
        let a = breaker(&mut graph, "a", &calls);
        let [b, c] = ["b", "c"].map(|name| logging_node(&mut graph, name));
        let handler = graph.add_routing_error_handler(a, "h", async |failure: NodeFailure, _: Plain, _: Cx| {
            let way = if failure.kind == FailureKind::Error { Way::B } else { Way::End };
            Command::update(say("h")).goto(way)
        });
        graph.add_edge(START, a);
        graph.add_edge(a, c);
        graph.add_routes(handler, |way| match way {
            Way::B => b,
            Way::End => END,
        });
        let graph = backend.keep(graph.compile().unwrap());
        assert_eq!(graph.thread("t").run(Plain::update()).await.unwrap().state.log_text(), "h b");
    }

    /// The handler receives the same typed failure when it runs again.
    async fn a_handler_that_fails_runs_again_and_its_node_does_not(backend: Backend) {
        let (calls, heard) = (Calls::default(), Heard::default());
        let graph = |mends: bool| {
            let mut graph = StateGraph::<Plain>::new("g");
            let a = breaker(&mut graph, "a", &calls);
            let b = logging_node(&mut graph, "b");
            let deps = (calls.clone(), heard.clone());
            let handler = graph.add_error_handler_with(
                a,
                "h",
                deps,
                move |(calls, heard): (Calls, Heard), failure: NodeFailure, _: Plain, cx: Cx| async move {
                    calls.add(&cx);
                    heard.note(failure);
                    if mends { Ok(say("h")) } else { Err(NodeError::new("so did I")) }
                },
            );
            graph.add_edge(START, a);
            graph.add_edge(handler, b);
            backend.keep(graph.compile().unwrap())
        };
        let error = failed(graph(false).thread("t").run(Plain::update()).await);
        assert_eq!(text(&error), "SS101: superstep 1: node `h` failed after 1 attempt\n  cause: so did I");
        let now = head(&graph(false)).await;
        assert_eq!((names(&now.next).as_str(), now.values.log_text().as_str()), ("a", ""));
        assert_eq!(task(&now.tasks[0]), ("a".into(), json!(null), "SS101: superstep 1: node `h` failed after 1 attempt: so did I".into()));
        failed(graph(false).thread("t").resume().await);
        let end = graph(true).thread("t").resume().await.unwrap();
        assert_eq!((end.state.log_text().as_str(), calls.all().as_str()), ("h b", "a h h h"));
        let told = heard.all();
        assert_eq!(told.len(), 3);
        assert!(told.iter().all(|failure| *failure == told[0] && failure.data == Some(json!({"status": 507}))));
    }

    /// The process ends after the node failed, and before its handler is done.
    async fn a_crash_does_not_lose_a_failure(backend: Backend) {
        let (calls, stuck) = (Calls::default(), Stuck::default());
        let graph = |hangs: bool| {
            let mut graph = StateGraph::<Plain>::new("g");
            let a = breaker(&mut graph, "a", &calls);
            let deps = (calls.clone(), stuck.clone());
            graph.add_error_handler_with(
                a,
                "h",
                deps,
                move |(calls, stuck): (Calls, Stuck), failure: NodeFailure, _: Plain, cx: Cx| async move {
                    calls.add(&cx);
                    if hangs {
                        stuck.here().await;
                    }
                    say(&format!("{} {:?}", failure.message, failure.causes))
                },
            );
            graph.add_edge(START, a);
            backend.keep(graph.compile().unwrap())
        };
        let first = graph(true);
        stuck.crash(first.thread("t").run(Plain::update())).await;
        drop(first);
        let pending = head(&graph(false)).await;
        assert_eq!(task(&pending.tasks[0]), ("a".into(), json!(null), "it broke: the disk is full".into()));
        let end = graph(false).thread("t").resume().await.unwrap();
        assert_eq!((end.state.log_text().as_str(), calls.all().as_str()), (r#"it broke ["the disk is full"]"#, "a h h"));
    }

    async fn siblings_of_a_failed_node_go_on_and_are_folded_with_its_handler_by_name(backend: Backend) {
        let (calls, stuck) = (Calls::default(), Stuck::default());
        let graph = |hangs: bool| {
            let mut graph = StateGraph::<Plain>::new("g");
            let b = breaker(&mut graph, "b", &calls);
            let handler = graph.add_error_handler(b, "z", async |_: NodeFailure, _: Plain, _: Cx| say("z"));
            let [a, j] = ["a", "j"].map(|name| logging_node(&mut graph, name));
            let c = graph.add_node_with("c", stuck.clone(), move |stuck: Stuck, _: Plain, _: Cx| async move {
                if hangs {
                    stuck.here().await;
                }
                say("c")
            });
            for node in [a, b, c] {
                graph.add_edge(START, node);
            }
            graph.add_join([a, handler, c], j);
            backend.keep(graph.compile().unwrap())
        };
        // The effects of the handler are stored before the sibling is done.
        let stored = async |graph: &CompiledGraph<Plain>, thread: &str| {
            graph.thread(thread).state().await.is_ok_and(|now| names(&now.next) == "c")
        };
        let first = graph(true);
        stuck.crash_once(first.thread("t").run(Plain::update()), async || stored(&first, "t").await).await;
        drop(first);
        let now = head(&graph(false)).await;
        assert_eq!((names(&now.next).as_str(), now.values.log_text().as_str()), ("c", "a z"));
        let end = graph(false).thread("t").resume().await.unwrap();
        assert_eq!((end.state.log_text().as_str(), calls.all().as_str()), ("a z c j", "b"));
        // The same by hand: what a handler wrote is taken along, and its edges are followed.
        let second = graph(true);
        stuck.crash_once(second.thread("u").run(Plain::update()), async || stored(&second, "u").await).await;
        drop(second);
        let end = graph(false).thread("u").resume_with(Command::update(say("U"))).await.unwrap();
        assert_eq!(end.state.log_text(), "a z U c j");
    }

    async fn a_handler_with_its_failure_receives_it_again_beside_a_command(backend: Backend) {
        let calls = Calls::default();
        let graph = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let a = breaker(&mut graph, "a", &calls);
            graph.add_error_handler(a, "h", async |failure: NodeFailure, _: Plain, cx: Cx| {
                let answer: String = cx.interrupt("really", &failure.message).await;
                say(&answer)
            });
            let b = logging_node(&mut graph, "b");
            graph.add_edge(START, a);
            graph.add_edge(b, END);
            backend.keep(graph.compile().unwrap())
        };
        let asked = graph().thread("t").run(Plain::update()).await.unwrap();
        assert_eq!((asked.status, id_prefixes(&asked.interrupts)), (Status::Interrupted, vec!["h:1.0:really"]));
        assert_eq!(head(&graph()).await.tasks[0].interrupts, asked.interrupts);
        let asked = graph().thread("t").resume_with(Command::update(say("U")).goto("b")).await.unwrap();
        assert_eq!((id_prefixes(&asked.interrupts), asked.state.log_text().as_str()), (vec!["h:1.0:really"], "U b"));
        let answers = Answers::new().answer(id_at(&asked.interrupts, "h:1.0:really"), "yes");
        let end = graph().thread("t").answers(answers).resume().await.unwrap();
        assert_eq!((end.state.log_text().as_str(), calls.all().as_str()), ("U yes b", "a"));
        let error = failed(graph().thread("t").resume_with(Command::new().goto("h")).await);
        let why = "SS140: a command cannot lead to node `h` of graph `g`: only a failure leads to an error handler";
        assert_eq!(error.to_string(), why);
    }

    /// An answer for the node is not an answer for its handler.
    async fn interrupts_never_reach_a_handler(backend: Backend) {
        let calls = Calls::default();
        let graph = || {
            let mut graph = StateGraph::<Plain>::new("g");
            let a = graph.add_node_with("a", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
                calls.add(&cx);
                let answer: String = cx.interrupt("q", "a asks").await;
                Err::<(), _>(NodeError::new(answer))
            });
            graph.add_error_handler_with(a, "h", calls.clone(), async |calls: Calls, failure: NodeFailure, _: Plain, cx: Cx| {
                calls.add(&cx);
                let answer: String = cx.interrupt("q", "h asks").await;
                say(&format!("{} {answer}", failure.message))
            });
            graph.add_edge(START, a);
            backend.keep(graph.compile().unwrap())
        };
        graph().thread("t").run(Plain::update()).await.unwrap();
        assert_eq!(calls.all(), "a");
        let asked = graph().thread("t").answer("q", "one").resume().await.unwrap();
        assert_eq!((asked.interrupts[0].question.clone(), calls.all().as_str()), (json!("h asks"), "a a h"));
        let end = graph().thread("t").answer("q", "two").resume().await.unwrap();
        assert_eq!((end.state.log_text().as_str(), calls.all().as_str()), ("one two", "a a h h"));
    }

    async fn a_cancelled_handler_is_what_runs_on(backend: Backend) {
        let (calls, stuck) = (Calls::default(), Stuck::default());
        let graph = |hangs: bool| {
            let mut graph = StateGraph::<Plain>::new("g");
            let a = breaker(&mut graph, "a", &calls);
            graph.add_error_handler_with(a, "h", stuck.clone(), move |stuck: Stuck, _: NodeFailure, _: Plain, _: Cx| async move {
                if hangs {
                    stuck.here().await;
                }
                say("h")
            });
            graph.add_edge(START, a);
            backend.keep(graph.compile().unwrap())
        };
        let config = t();
        let cancel = config.get_cancel().clone();
        let first = graph(true);
        let (end, ()) = tokio::join!(first.configured(config).run(Plain::update()), async {
            stuck.reached().await;
            cancel.cancel();
        });
        assert_eq!(end.unwrap().status, Status::Cancelled);
        drop(first);
        let end = graph(false).thread("t").resume().await.unwrap();
        assert_eq!((end.state.log_text().as_str(), calls.all().as_str()), ("h", "a"));
    }

    /// The node may finish after a cancellation and fails, and its attempts are not over.
    async fn a_handler_does_not_replace_the_attempts_that_a_cancel_prevents(backend: Backend) {
        for fails in [1, 3] {
            let calls = Calls::default();
            let mut graph = StateGraph::<Plain>::new("g");
            let a = graph.add_node_with("a", calls.clone(), move |calls: Calls, _: Plain, cx: Cx| async move {
                calls.add(&cx);
                if calls.named("a") == 1 {
                    cx.cancel().cancelled().await;
                }
                if calls.named("a") <= fails { Err(broken()) } else { Ok(say(&format!("a{}", cx.attempt()))) }
            });
            let retry = RetryPolicy::attempts(3).initial(Duration::ZERO).jitter(Duration::ZERO);
            graph.configure(a, NodeOptions::new().on_cancel(OnCancel::Finish).retry(Retries::on(|_| true, retry)));
            let h = graph.add_error_handler(a, "h", async |failure: NodeFailure, _: Plain, _: Cx| {
                say(&format!("h{}", failure.attempts))
            });
            graph.configure(h, NodeOptions::new().on_cancel(OnCancel::Finish));
            graph.add_edge(START, a);
            let graph = backend.keep(graph.compile().unwrap());
            let config = t().thread(fails.to_string());
            config.get_cancel().cancel();
            let end = graph.configured(config).run(Plain::update()).await.unwrap();
            assert_eq!((end.status, calls.all().as_str()), (Status::Cancelled, "a"));
            let thread = graph.thread(fails.to_string());
            assert_eq!(task(&thread.state().await.unwrap().tasks[0]).2, "it broke: the disk is full");
            let end = thread.resume().await.unwrap();
            let (said, all) = if fails == 1 { ("a2", "a a") } else { ("h3", "a a a") };
            assert_eq!((end.state.log_text().as_str(), calls.all().as_str()), (said, all));
        }
    }

    /// The node may finish after a cancellation and fails; its handler may not, and waits.
    async fn a_handler_that_a_cancel_prevents_from_starting_stays_pending(backend: Backend) {
        let calls = Calls::default();
        let mut graph = StateGraph::<Plain>::new("g");
        let a = graph.add_node_with("a", calls.clone(), async |calls: Calls, _: Plain, cx: Cx| {
            calls.add(&cx);
            cx.cancel().cancelled().await;
            Err::<(), _>(broken())
        });
        graph.configure(a, NodeOptions::new().on_cancel(OnCancel::Finish));
        graph.add_error_handler(a, "h", async |_: NodeFailure, _: Plain, _: Cx| say("h"));
        graph.add_edge(START, a);
        let graph = backend.keep(graph.compile().unwrap());
        let config = t();
        config.get_cancel().cancel();
        let end = graph.configured(config).run(Plain::update()).await.unwrap();
        assert_eq!((end.status, calls.all().as_str()), (Status::Cancelled, "a"));
        assert_eq!(task(&head(&graph).await.tasks[0]).2, "it broke: the disk is full");
        let end = graph.thread("t").resume().await.unwrap();
        assert_eq!((end.state.log_text().as_str(), calls.all().as_str()), ("h", "a"));
    }

    async fn what_a_lost_handler_wrote_is_not_folded_as_something_else(backend: Backend) {
        let (calls, stuck) = (Calls::default(), Stuck::default());
        let graph = |handles: bool| {
            let mut graph = StateGraph::<Plain>::new("g");
            let a = breaker(&mut graph, "a", &calls);
            let hang = graph.add_node_with("hang", stuck.clone(), async |stuck: Stuck, _: Plain, _: Cx| {
                stuck.here().await;
            });
            if handles {
                graph.add_error_handler(a, "h", async |_: NodeFailure, _: Plain, _: Cx| say("h"));
            }
            graph.add_edge(START, a);
            graph.add_edge(START, hang);
            backend.keep(graph.compile().unwrap())
        };
        let first = graph(true);
        let handled = async || head(&first).await.tasks[0].result.is_some();
        stuck.crash_once(first.thread("t").run(Plain::update()), handled).await;
        drop(first);
        let error = failed(graph(false).thread("t").resume().await);
        assert!(matches!(&error, RunError::Restore { .. }), "{error}");
        assert!(error.to_string().contains("the error handler of node `a` wrote it"), "{error}");
        let error = failed(graph(false).thread("t").update_as("hang", say("U")).await);
        assert!(error.to_string().contains("the error handler of node `a` wrote it"), "{error}");
    }
}

#[derive(Route, Clone, Copy)]
enum Way {
    B,
    End,
}

/// Returns the failure that a handler of `a` receives.
async fn failure_of(options: NodeOptions, node: fn(u32) -> Result<PlainUpdate, NodeError>) -> NodeFailure {
    let heard = Heard::default();
    let mut graph = StateGraph::<Plain>::new("g");
    let a = graph.add_node("a", move |_: Plain, cx: Cx| async move {
        if cx.attempt() > 9 {
            cx.sleep(Duration::from_secs(60)).await
        }
        let end = node(cx.attempt());
        cx.sleep(Duration::from_secs(3)).await;
        end
    });
    graph.configure(a, options);
    graph.add_error_handler_with(
        a,
        "h",
        heard.clone(),
        async |heard: Heard, failure: NodeFailure, _: Plain, _: Cx| {
            heard.note(failure);
        },
    );
    graph.add_edge(START, a);
    graph.compile().unwrap().run(Plain::update()).await.unwrap();
    heard.all().pop().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_handler_receives_the_last_attempt_of_a_timeout_and_of_a_panic() {
    let retry = RetryPolicy::attempts(3);
    let options = NodeOptions::new().retry(retry);
    let failure = failure_of(options, |attempt| Err(NodeError::new(format!("attempt {attempt}")))).await;
    assert_eq!((failure.attempts, failure.message.as_str()), (3, "attempt 3"));
    let options = NodeOptions::new().timeout(Duration::from_secs(1));
    let failure = failure_of(options, |_| Ok(say("late"))).await;
    assert_eq!((failure.kind, failure.attempts), (FailureKind::Timeout, 1));
    let failure = failure_of(NodeOptions::default(), |_| panic!("boo")).await;
    assert_eq!((failure.kind, failure.message.as_str()), (FailureKind::Panic, "panicked: boo"));
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_retried_by_its_own_options_and_may_have_a_handler() {
    let calls = Calls::default();
    let mut graph = StateGraph::<Plain>::new("g");
    let a = breaker(&mut graph, "a", &calls);
    let handler = graph.add_error_handler_with(
        a,
        "h",
        calls.clone(),
        async |calls: Calls, failure: NodeFailure, _: Plain, cx: Cx| {
            calls.add(&cx);
            Err::<(), _>(NodeError::new(format!("{}, attempt {}", failure.node, cx.attempt())))
        },
    );
    graph.configure(handler, NodeOptions::new().retry(RetryPolicy::default()));
    graph.add_error_handler(handler, "last", async |failure: NodeFailure, _: Plain, _: Cx| {
        say(&format!("{} {}: {}", failure.node, failure.attempts, failure.message))
    });
    graph.add_edge(START, a);
    let graph = graph.compile().unwrap();
    let end = graph.run(Plain::update()).await.unwrap();
    assert_eq!((end.state.log_text().as_str(), calls.all().as_str()), ("h 3: a, attempt 3", "a h h h"));
}

#[tokio::test]
async fn a_workers_handler_knows_the_item_and_takes_its_place() {
    let mut graph = StateGraph::<Plain>::new("g");
    let s = logging_node(&mut graph, "s");
    let w = graph.add_worker(
        "w",
        async |item: i64, _: Plain, _: Cx| {
            if item == 2 { Err(broken()) } else { Ok(say(&item.to_string())) }
        },
    );
    let handler = graph.add_error_handler(w, "h", async |failure: NodeFailure, _: Plain, _: Cx| {
        say(&format!("not {}", failure.item.unwrap()))
    });
    let after = logging_node(&mut graph, "after");
    graph.add_edge(START, s);
    graph.add_fan_out(s, |_: &Plain| [1, 2, 3], w);
    graph.add_edge(handler, after);
    let end = graph.compile().unwrap().run(Plain::update()).await.unwrap();
    assert_eq!(end.state.log_text(), "s 1 not 2 3 after");
}

#[tokio::test]
async fn a_handler_names_its_effects_otherwise_than_the_node_that_failed() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let mut graph = StateGraph::<Plain>::new("g");
    let note = |heard: &Arc<Mutex<Vec<String>>>, cx: &Cx| {
        let dice: u64 = rand::RngExt::random(&mut cx.rng());
        heard.lock().unwrap().extend([cx.key(), cx.id("x"), dice.to_string()]);
    };
    let a = graph.add_node_with("a", heard.clone(), move |heard, _: Plain, cx: Cx| async move {
        note(&heard, &cx);
        Err::<(), _>(broken())
    });
    graph.add_error_handler_with(
        a,
        "h",
        heard.clone(),
        move |heard, _: NodeFailure, _: Plain, cx: Cx| async move {
            note(&heard, &cx);
        },
    );
    graph.add_edge(START, a);
    graph.compile().unwrap().run(Plain::update()).await.unwrap();
    let mut said = heard.lock().unwrap().clone();
    assert_eq!(said.len(), 6);
    said.sort();
    said.dedup();
    assert_eq!(said.len(), 6, "{said:?}");
}

#[tokio::test]
async fn a_run_stops_after_a_handler_and_after_the_node_it_stands_for() {
    for node in ["a", "h"] {
        let (calls, heard) = (Calls::default(), Heard::default());
        let mut graph = StateGraph::<Plain>::new("g");
        let a = breaker(&mut graph, "a", &calls);
        let handler =
            graph.add_error_handler_with(a, "h", heard, async |_: Heard, _: NodeFailure, _: Plain, _: Cx| {
                say("h")
            });
        let b = logging_node(&mut graph, "b");
        graph.add_edge(START, a);
        graph.add_edge(handler, b);
        let graph = crate::support::Backend::memory().keep(graph.compile().unwrap());
        let stopped = graph.thread("t").break_after([node.to_owned()]).run(Plain::update()).await.unwrap();
        assert_eq!((stopped.status, stopped.state.log_text().as_str()), (Status::Interrupted, "h"));
    }
}

#[tokio::test]
async fn nothing_stops_before_a_handler_and_it_is_never_deferred() {
    let graph = |stops: bool| {
        let mut graph = StateGraph::<Plain>::new("g");
        let a = logging_node(&mut graph, "a");
        let handler = graph.add_error_handler(a, "h", async |_: NodeFailure, _: Plain, _: Cx| say("h"));
        let w = graph.add_worker("w", async |_: i64, _: Plain, _: Cx| ());
        graph.add_edge(START, a);
        graph.add_fan_out(a, |_| Vec::<i64>::new(), w);
        if stops {
            graph.configure(w, NodeOptions::new().deferred());
            graph.configure(handler, NodeOptions::new().deferred());
            graph.stop_before(handler);
        }
        graph.stop_after(handler);
        graph.compile()
    };
    let problems = graph(true).err().unwrap().problems;
    let problems: Vec<_> = problems.iter().map(|problem| problem.kind.to_string()).collect();
    let expected = [
        "SS017: no run can stop before error handler `h`, which runs in the middle of a superstep; stop \
         after it, or interrupt the run in it",
        "SS016: node `h` cannot be deferred, because it handles the failures of another, and runs when that fails; remove \
         `deferred`, or defer the node that comes after it",
        "SS016: node `w` cannot be deferred, because it takes an item, and runs once it is sent one; remove `deferred`, or \
         defer the node that comes after it",
    ];
    assert_eq!(problems, expected);
    let graph = crate::support::Backend::memory().keep(graph(false).unwrap());
    let error = failed(graph.thread("t").break_before(["h"]).run(Plain::update()).await);
    assert_eq!(
        error.to_string(),
        "SS123: no run of graph `g` can stop before error handler `h`, which runs in the middle of a \
         superstep; stop after it"
    );
    let stopped = graph.thread("t").break_before(["*"]).run(Plain::update()).await.unwrap();
    assert_eq!(stopped.status, Status::Interrupted);
}

#[test]
fn only_a_failure_leads_to_a_handler_and_a_node_has_one() {
    let handler = async |_: NodeFailure, _: Plain, _: Cx| ();
    let mut other = StateGraph::<Plain>::new("other");
    let stranger = logging_node(&mut other, "stranger");
    let mut graph = StateGraph::<Plain>::new("broken");
    let [a, b] = ["a", "b"].map(|name| logging_node(&mut graph, name));
    graph.add_edge(START, a);
    graph.add_edge(a, b);
    let first = line!() + 1;
    let h = graph.add_error_handler(a, "h", handler);
    graph.add_error_handler(a, "h2", handler);
    graph.add_error_handler(START, "h3", handler);
    graph.add_error_handler(END, "h4", handler);
    graph.add_error_handler(stranger, "h5", handler);
    graph.add_edge(b, h);
    graph.add_join([a, b], h);
    let error = graph.compile().err().unwrap();
    let lines: Vec<_> =
        error.problems.iter().map(|problem| problem.place.line().saturating_sub(first)).collect();
    assert_eq!(lines[..6], [1, 2, 3, 4, 5, 6], "{error}");
    let kinds: Vec<_> = error.problems.iter().map(|problem| &problem.kind).collect();
    assert!(
        matches!(kinds[0], ProblemKind::TwoHandlers(node, place) if node.as_str() == "a" && place.line() == first)
    );
    assert!(
        matches!(kinds[1], ProblemKind::NothingToHandle(..))
            && matches!(kinds[2], ProblemKind::NothingToHandle(..))
    );
    assert!(matches!(kinds[3], ProblemKind::ForeignNode(_)));
    assert!(matches!(kinds[4], ProblemKind::EdgeIntoHandler(node) if node.as_str() == "h"));
    assert!(matches!(kinds[5], ProblemKind::EdgeIntoHandler(node) if node.as_str() == "h"));
}

#[test]
fn a_handler_is_drawn_and_counts_as_reachable() {
    let graph = handled(&Calls::default(), &Heard::default());
    assert_eq!(graph.warnings().len(), 0);
    assert!(graph.topology().text().contains("a     ┄┄▶ h  (error)"), "{}", graph.topology().text());
}
