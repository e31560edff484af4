//! Effects run once, for any number of runs of their node.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::json;
use superstep::{
    Answers, CompiledGraph, Cx, Durability, END, NodeError, NodeFailure, NodeOptions, RetryPolicy, RunError,
    START, State, StateGraph, Status,
    checkpoint::{CheckpointError, TaskRecord},
    node::Persistence,
};

use crate::support::{
    Backend, Plain, PlainUpdate, Stuck, failed, head, logging_node, names, on_every_store, say, text,
};

/// The external effects, with their idempotency keys.
#[derive(Clone, Default)]
struct Outside(Arc<Mutex<Vec<(String, String)>>>);

impl Outside {
    fn done(&self, what: &str, key: String) -> String {
        let mut done = self.0.lock().unwrap();
        done.push((what.to_owned(), key));
        format!("{what}{}", done.len())
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|(what, _)| what.clone()).collect()
    }

    fn keys(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|(_, key)| key.clone()).collect()
    }
}

/// Performs an external effect, once.
async fn charge(cx: &Cx, outside: &Outside, what: &str) -> Result<String, NodeError> {
    let done = |key| async { Ok::<_, NodeError>(outside.done(what, key)) };
    cx.once(what, done).await
}

/// Builds a graph with one node `a`, with three attempts without delays.
fn one<Fut>(node: impl Fn(Cx) -> Fut + Send + Sync + 'static) -> CompiledGraph<Plain>
where
    Fut: Future<Output = Result<PlainUpdate, NodeError>> + Send + 'static,
{
    let mut graph = StateGraph::<Plain>::new("g");
    let a = graph.add_node("a", move |_, cx| node(cx));
    let retry = RetryPolicy::default().initial(Duration::ZERO).jitter(Duration::ZERO);
    graph.configure(a, NodeOptions::new().retry(retry));
    graph.add_edge(START, a);
    graph.add_edge(a, END);
    graph.compile().unwrap()
}

/// Returns the record of the head's first task.
async fn record(backend: &Backend) -> Option<TaskRecord> {
    let head = backend.open().load(&"t".into(), None).await.unwrap().unwrap();
    head.tasks.into_iter().next().map(|(_, record)| record)
}

fn once_of(record: Option<TaskRecord>) -> Vec<(String, String)> {
    record
        .and_then(|record| record.once().cloned())
        .unwrap_or_default()
        .into_iter()
        .map(|(name, json)| (name, json.into_string()))
        .collect()
}

/// Charges, then fails in all attempts but the last.
fn charges_and_fails(outside: &Outside) -> CompiledGraph<Plain> {
    let outside = outside.clone();
    one(move |cx| {
        let outside = outside.clone();
        async move {
            let receipt = charge(&cx, &outside, "charge").await?;
            if cx.attempt() < 3 { Err(NodeError::new("not yet")) } else { Ok(say(&receipt)) }
        }
    })
}

#[tokio::test]
async fn without_a_checkpointer_a_retry_does_not_do_it_again() {
    let outside = Outside::default();
    let graph = charges_and_fails(&outside);
    let end = graph.run(Plain::update()).await.unwrap();
    assert_eq!((end.state.log_text().as_str(), outside.all().join(" ").as_str()), ("charge1", "charge"));
    // Another run is another task.
    let end = graph.run(Plain::update()).await.unwrap();
    assert_eq!((end.state.log_text().as_str(), outside.all().len()), ("charge2", 2));
}

on_every_store! {
    async fn a_retry_does_not_do_it_again(backend: Backend) {
        let outside = Outside::default();
        let end = backend.keep(charges_and_fails(&outside)).thread("t").run(Plain::update()).await.unwrap();
        assert_eq!((end.state.log_text().as_str(), outside.all().len()), ("charge1", 1));
        // The next turn is another task, with a key of its own.
        backend.keep(charges_and_fails(&outside)).thread("t").run(Plain::update()).await.unwrap();
        let keys = outside.keys();
        assert_eq!(keys.len(), 2);
        assert_ne!(keys[0], keys[1]);
        assert!(keys.iter().all(|key| key.ends_with("/charge")), "{keys:?}");
    }

    async fn it_is_stored_before_the_node_continues_and_not_repeated_after_a_crash(backend: Backend) {
        let (outside, stuck) = (Outside::default(), Stuck::default());
        let make = |crashes: bool| {
            let (outside, stuck) = (outside.clone(), stuck.clone());
            backend.keep(one(move |cx| {
                let (outside, stuck) = (outside.clone(), stuck.clone());
                async move {
                    let receipt = charge(&cx, &outside, "charge").await?;
                    if crashes {
                        stuck.here().await;
                    }
                    Ok(say(&receipt))
                }
            }))
        };
        stuck.crash(make(true).thread("t").run(say("in"))).await;
        let once = [("charge".to_owned(), r#""charge1""#.into())].into();
        assert_eq!(record(&backend).await, Some(TaskRecord::Started { attempts: 0, once }));
        let found = head(&make(false)).await;
        assert_eq!((found.tasks[0].error.as_deref(), found.values.log_text().as_str()), (None, "in"));
        stuck.crash(make(true).thread("t").resume()).await;
        assert_eq!(make(false).thread("t").resume().await.unwrap().state.log_text(), "in charge1");
        assert_eq!(outside.all(), ["charge"]);
    }

    async fn an_interrupt_behind_it_and_its_answer_do_not_do_it_again(backend: Backend) {
        let outside = Outside::default();
        let make = || {
            let outside = outside.clone();
            backend.keep(one(move |cx| {
                let outside = outside.clone();
                async move {
                    let first = charge(&cx, &outside, "first").await?;
                    let a: String = cx.interrupt("a", ()).await;
                    let second = charge(&cx, &outside, "second").await?;
                    let b: String = cx.interrupt("b", ()).await;
                    Ok(say(&format!("{first} {a} {second} {b}")))
                }
            }))
        };
        assert_eq!(make().thread("t").run(Plain::update()).await.unwrap().status, Status::Interrupted);
        assert_eq!(make().thread("t").resume().await.unwrap().status, Status::Interrupted, "it asks again");
        assert_eq!(make().thread("t").answer("a", "a").resume().await.unwrap().status, Status::Interrupted);
        let names: Vec<_> = once_of(record(&backend).await).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["first", "second"]);
        assert_eq!(make().thread("t").answer("b", "b").resume().await.unwrap().state.log_text(), "first1 a second2 b");
        assert_eq!(outside.all(), ["first", "second"]);
    }

    async fn the_answers_are_retained_beside_later_effects(backend: Backend) {
        let (outside, stuck) = (Outside::default(), Stuck::default());
        let make = |crashes: bool| {
            let (outside, stuck) = (outside.clone(), stuck.clone());
            backend.keep(one(move |cx| {
                let (outside, stuck) = (outside.clone(), stuck.clone());
                async move {
                    let a: String = cx.interrupt("a", ()).await;
                    let receipt = charge(&cx, &outside, "charge").await?;
                    if crashes {
                        stuck.here().await;
                    }
                    Ok(say(&format!("{a} {receipt}")))
                }
            }))
        };
        make(true).thread("t").run(Plain::update()).await.unwrap();
        let answers = Answers::new().answer("a", "yes");
        stuck.crash(make(true).thread("t").answers(answers).resume()).await;
        assert_eq!(make(false).thread("t").resume().await.unwrap().state.log_text(), "yes charge1");
        assert_eq!(outside.all(), ["charge"]);
    }

    async fn a_permanent_failure_and_a_cancel_retain_it(backend: Backend) {
        let outside = Outside::default();
        let make = |end: &'static str| {
            let outside = outside.clone();
            backend.keep(one(move |cx| {
                let outside = outside.clone();
                async move {
                    let receipt = charge(&cx, &outside, "charge").await?;
                    match end {
                        "fail" => Err(NodeError::new("no").fatal()),
                        "panic" => panic!("no"),
                        "cancel" => {
                            cx.cancel().cancel();
                            std::future::pending().await
                        }
                        "hang" => std::future::pending().await,
                        _ => Ok(say(&receipt)),
                    }
                }
            }))
        };
        failed(make("fail").thread("t").run(Plain::update()).await);
        assert!(matches!(record(&backend).await, Some(TaskRecord::Failed { attempts: 0, once, .. }) if once.len() == 1));
        failed(make("panic").thread("t").resume().await);
        assert_eq!(make("cancel").thread("t").resume().await.unwrap().status, Status::Cancelled);
        assert!(matches!(record(&backend).await, Some(TaskRecord::Cancelled { once }) if once.len() == 1));
        failed(make("hang").thread("t").step_timeout(Duration::from_secs(1)).resume().await);
        assert_eq!(make("").thread("t").resume().await.unwrap().state.log_text(), "charge1");
        assert_eq!(outside.all(), ["charge"]);
    }

    async fn an_error_is_not_stored(backend: Backend) {
        let outside = Outside::default();
        let tries = outside.clone();
        let graph = backend.keep(one(move |cx| {
            let tries = tries.clone();
            async move {
                let attempt = cx.attempt();
                let effect = |key| async move {
                    tries.done("try", key);
                    if attempt < 3 { Err(NodeError::new("refused")) } else { Ok(7) }
                };
                let seven: i64 = cx.once("pay", effect).await?;
                Ok(Plain::update().x(seven))
            }
        }));
        assert_eq!(graph.thread("t").run(Plain::update()).await.unwrap().state.x, 7);
        let keys = outside.keys();
        assert_eq!(keys.len(), 3);
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    }

    async fn two_calls_of_one_name_at_the_same_time_do_it_once(backend: Backend) {
        let outside = Outside::default();
        let done = outside.clone();
        let graph = backend.keep(one(move |cx| {
            let done = done.clone();
            async move {
                let slowly = |what: &'static str| {
                    let (cx, done) = (cx.clone(), done.clone());
                    async move {
                        let pause = cx.clone();
                        let effect = |key| async move {
                            pause.sleep(Duration::from_secs(1)).await;
                            Ok::<_, NodeError>(done.done(what, key))
                        };
                        cx.once(what, effect).await
                    }
                };
                // The first of them is dropped in the middle.
                let impatient = tokio::time::timeout(Duration::from_millis(500), slowly("a"));
                let (left, a, again, b) = tokio::join!(impatient, slowly("a"), slowly("a"), slowly("b"));
                assert!(left.is_err());
                Ok(say(&format!("{} {} {}", a?, again?, b?)))
            }
        }));
        let end = graph.thread("t").run(Plain::update()).await.unwrap();
        let mut said: Vec<_> = end.state.log_text().split(' ').map(str::to_owned).collect();
        assert_eq!(said[0], said[1]);
        said.sort();
        assert_eq!(outside.all().len(), 2, "{said:?}");
    }

    async fn a_fork_does_everything_afresh(backend: Backend) {
        let outside = Outside::default();
        let make = || {
            let outside = outside.clone();
            backend.keep(one(move |cx| {
                let outside = outside.clone();
                async move {
                    let receipt = charge(&cx, &outside, "charge").await?;
                    cx.interrupt::<bool>("q", ()).await;
                    Ok(say(&receipt))
                }
            }))
        };
        let asked = make().thread("t").run(Plain::update()).await.unwrap();
        make().thread("t").at(asked.checkpoint).resume().await.unwrap();
        let keys = outside.keys();
        assert_eq!(keys.len(), 2);
        assert_ne!(keys[0], keys[1]);
        let answers = Answers::new().answer("q", true);
        assert_eq!(make().thread("t").answers(answers).resume().await.unwrap().state.log_text(), "charge2");
        assert_eq!(outside.all().len(), 2);
    }

    async fn siblings_keep_their_own(backend: Backend) {
        let (outside, stuck) = (Outside::default(), Stuck::default());
        let make = |crashes: bool| {
            let mut graph = StateGraph::<Plain>::new("g");
            let deps = (outside.clone(), stuck.clone());
            let worker = graph.add_worker("w", move |item: u32, _: Plain, cx: Cx| {
                let (outside, stuck) = deps.clone();
                async move {
                    let receipt = charge(&cx, &outside, &format!("charge{item}-")).await?;
                    if crashes && item == 2 {
                        stuck.here().await;
                    }
                    Ok::<_, NodeError>(say(receipt.split('-').next().unwrap()))
                }
            });
            graph.add_fan_out(START, |_: &Plain| 0..3_u32, worker);
            let last = logging_node(&mut graph, "last");
            graph.add_edge(worker, last);
            backend.keep(graph.compile().unwrap())
        };
        stuck.crash(make(true).thread("t").run(Plain::update())).await;
        assert_eq!(make(false).thread("t").resume().await.unwrap().state.log_text(), "charge0 charge1 charge2 last");
        assert_eq!(outside.all().len(), 3);
    }

    async fn what_does_not_fit_any_more_is_a_clear_error_and_nothing_is_done(backend: Backend) {
        let stuck = Stuck::default();
        let (crashing, waiting) = (stuck.clone(), stuck);
        let graph = backend.keep(one(move |cx| {
            let stuck = crashing.clone();
            async move {
                cx.once("n", async |_| Ok::<_, NodeError>("seven".to_owned())).await?;
                stuck.here().await;
                Ok(Plain::update())
            }
        }));
        waiting.crash(graph.thread("t").run(Plain::update())).await;
        let graph = backend.keep(one(async |cx: Cx| {
            let never = async |_| -> Result<i64, NodeError> { panic!("it is done already") };
            Ok(Plain::update().x(cx.once("n", never).await?))
        }));
        for _ in 0..2 {
            let error = failed(graph.thread("t").resume().await);
            assert!(matches!(&error, RunError::Node { attempts: 1, .. }), "{error}");
            assert_eq!(
                text(&error),
                "SS101: superstep 1: node `a` failed after 1 attempt\n  cause: SS167: the stored result of \
                 `once` for `n` does not fit its current type; read it in its stored form, or use another \
                 name to repeat the effect\n  cause: invalid type: string \"seven\", expected i64 at line 1 \
                 column 7"
            );
        }
    }
}

#[tokio::test]
async fn a_result_that_json_changes_is_rejected_the_first_time() {
    let graph = one(async |cx: Cx| {
        let rate: f64 = cx.once("rate", async |_| Ok::<_, NodeError>(f64::NAN)).await?;
        Ok(say(&rate.to_string()))
    });
    let error = failed(graph.run(Plain::update()).await);
    assert!(matches!(&error, RunError::Node { attempts: 1, .. }), "{error}");
    assert!(
        text(&error).contains("SS168: the result of `rate` cannot be stored as JSON"),
        "{}",
        text(&error)
    );
}

#[tokio::test]
async fn spawned_work_of_a_node_cannot_use_once() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let mut graph = StateGraph::<Plain>::new("g");
    let a = graph.add_node("a", move |_: Plain, cx: Cx| {
        let (tell, later) = (tell.clone(), cx.clone());
        cx.spawn(async move {
            later.sleep(Duration::from_millis(5)).await;
            let done = later.once("late", async |_| Ok::<_, NodeError>(1)).await;
            tell.lock().unwrap().push(done.unwrap_err().to_string());
        });
        async { say("a") }
    });
    graph.add_edge(START, a);
    let graph = graph.compile().unwrap();
    let end = graph.run(Plain::update()).await.unwrap();
    assert_eq!(end.state.log_text(), "a");
    let told = told.lock().unwrap().join("");
    assert!(told.starts_with("SS169: `once` was called for `late`"), "{told}");
}

on_every_store! {
    async fn stored_answers_that_are_not_json_are_errors(backend: Backend) {
        let store = backend.open();
        let graph = one(async |cx: Cx| Ok(say(&cx.interrupt::<String>("q", ()).await)));
        let graph = graph.with_checkpointer(store.clone());
        let end = graph.thread("t").run(Plain::update()).await.unwrap();
        let task = superstep::checkpoint::TaskKey { thread: "t".into(), checkpoint: end.checkpoint.unwrap(), slot: 0 };
        let record = TaskRecord::Interrupted {
            questions: Vec::new(),
            answers: [("q".to_owned(), "{no".into())].into(),
            asked: Default::default(),
            attempts: 0,
            error: None,
            once: Default::default(),
        };
        store.record(&task, record).await.unwrap();
        let error = failed(graph.thread("t").resume().await);
        let expected = "SS115: thread `t`, checkpoint 2: the stored data of the answers of node `a` does not fit the state: key must be a string at line 1 column 2";
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn records_without_results_are_stored_as_they_always_were() {
    let once = || [("charge".to_owned(), "7".into())].into();
    let none = Default::default;
    for (record, stored) in [
        (TaskRecord::Cancelled { once: none() }, json!({ "end": "cancelled" })),
        (TaskRecord::Cancelled { once: once() }, json!({ "end": "cancelled", "once": { "charge": "7" } })),
        (
            TaskRecord::Failed { attempts: 1, error: "no".into(), once: none() },
            json!({ "end": "failed", "attempts": 1, "error": "no" }),
        ),
        (
            TaskRecord::Started { attempts: 0, once: once() },
            json!({ "end": "started", "once": { "charge": "7" } }),
        ),
    ] {
        assert_eq!(serde_json::to_value(&record).unwrap(), stored);
        assert_eq!(serde_json::from_value::<TaskRecord>(stored).unwrap(), record);
    }
}

on_every_store! {
    async fn what_its_key_is_named_after_is_stored_before_it_is_done(backend: Backend) {
        for durability in [Durability::Async, Durability::Exit] {
            let store = backend.open();
            let graph = backend.keep(one(move |cx| {
                let store = store.clone();
                async move {
                    let thread = cx.thread().unwrap();
                    let look = |_| async {
                        let head = store.load(thread, None).await?.unwrap();
                        Ok::<_, CheckpointError>(names(&head.meta.control.next))
                    };
                    Ok(say(&cx.once("look", look).await?))
                }
            }));
            assert_eq!(graph.thread(format!("{durability:?}")).durability(durability).run(Plain::update()).await.unwrap().state.log_text(), "a", "{durability:?}");
        }
    }
}

/// Charges for each of three items, and asks two questions for each. `levels` graphs without storage are between the
/// caller and its tasks.
fn charges_inside(outside: &Outside, levels: usize) -> CompiledGraph<Plain> {
    let mut inner = StateGraph::<Plain>::new("items");
    let deps = outside.clone();
    let work = inner.add_worker("work", move |item: u32, _: Plain, cx: Cx| {
        let outside = deps.clone();
        async move {
            let first = charge(&cx, &outside, &format!("first{item}")).await?;
            let _: bool = cx.interrupt("ok", item).await;
            let second = charge(&cx, &outside, &format!("second{item}")).await?;
            let _: bool = cx.interrupt("sure", item).await;
            Ok::<_, NodeError>(say(&format!("{first}+{second}")))
        }
    });
    inner.add_fan_out(START, |_: &Plain| vec![1_u32, 2, 3], work);
    let mut graph = inner.compile().unwrap().with_persistence(Persistence::Ephemeral);
    for _ in 0..levels {
        let mut outer = StateGraph::<Plain>::new("outer");
        let sub = outer.add_subgraph_with(
            "sub",
            &graph,
            |_: &Plain| Plain::update(),
            |it: &Plain| say(&it.log_text()),
        );
        outer.add_edge(START, sub);
        graph = outer.compile().unwrap().with_persistence(Persistence::Ephemeral);
    }
    graph
}

on_every_store! {
    async fn a_graph_without_storage_does_not_repeat_it_after_an_answer(backend: Backend) {
        for levels in [1, 2, 3] {
            let outside = Outside::default();
            let thread = format!("{levels}");
            // In a new process each time.
            let here = || backend.keep(charges_inside(&outside, levels)).thread(&*thread);
            let mut end = here().run(Plain::update()).await.unwrap();
            let mut answers = 0;
            while let Some(asked) = end.interrupts.last() {
                end = here().answer(&asked.id, true).resume().await.unwrap();
                answers += 1;
            }
            let mut all = outside.all();
            all.sort();
            assert_eq!(all, ["first1", "first2", "first3", "second1", "second2", "second3"]);
            assert_eq!((answers, end.status), (6, Status::Completed));
            assert_eq!(end.state.log_text(), "first11+second16 first22+second25 first33+second34");
            let replayed = here().replay().run().await.unwrap();
            assert!(replayed.divergence.is_none(), "{replayed}");
            assert_eq!(outside.all().len(), 6);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_graph_without_storage_does_not_repeat_it_when_its_caller_is_retried() {
    for handled in [false, true] {
        let outside = Outside::default();
        let mut inner = StateGraph::<Plain>::new("inner");
        let deps = outside.clone();
        let pay = inner.add_node("pay", move |_: Plain, cx: Cx| {
            let outside = deps.clone();
            async move {
                let receipt = charge(&cx, &outside, "charge").await?;
                charge(&cx, &outside, "look").await?;
                if handled { Err(NodeError::new("no").fatal()) } else { Ok(say(&receipt)) }
            }
        });
        inner.add_edge(START, pay);
        if handled {
            let deps = outside.clone();
            // The effects of the handler are others, also if they have the same name.
            inner.add_error_handler(pay, "handler", move |_: NodeFailure, _: Plain, cx: Cx| {
                let outside = deps.clone();
                async move { Ok::<_, NodeError>(say(&charge(&cx, &outside, "charge").await?)) }
            });
        }
        let inner = inner.compile().unwrap();
        let attempts = Arc::new(Mutex::new(0));
        let graph = one(move |cx| {
            let (inner, attempts) = (inner.clone(), attempts.clone());
            async move {
                let end = cx.call(&inner, Plain::update()).await?;
                *attempts.lock().unwrap() += 1;
                if *attempts.lock().unwrap() < 3 {
                    Err(NodeError::new("again"))
                } else {
                    Ok(say(&end.log_text()))
                }
            }
        });
        let end = graph.run(Plain::update()).await.unwrap();
        let (said, all) =
            if handled { ("charge3", "charge look charge") } else { ("charge1", "charge look") };
        assert_eq!((end.state.log_text().as_str(), outside.all().join(" ").as_str()), (said, all));
    }
}
