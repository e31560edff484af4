//! The fragments of SS140 to SS158.

use std::{sync::Mutex, time::Duration};

use superstep::{
    CompiledGraph, Cx, NodeError, NodeRef, Route, START, State, StateGraph, node::Persistence,
    prelude::Command,
};

use super::setup::{
    Done, Fields, Fields as Chat, Fields as Notes, Fields as Trip, FieldsUpdate, FieldsUpdate as ChatUpdate,
    FieldsUpdate as TripUpdate, assert_fails, empty, fails, idle_worker, nodes, single, stored,
};

const MINUTE: Duration = Duration::from_secs(60);

/// Creates `START → name`.
fn line(name: &str) -> StateGraph<Fields> {
    let mut graph = empty();
    let [node] = nodes(&mut graph, [name]);
    graph.add_edge(START, node);
    graph
}

#[tokio::test]
async fn ss140() -> Done {
    let mut graph = line("plan");
    let fetch = graph.add_worker("fetch", idle_worker);
    let graph = stored(graph);
    graph.thread("crawl-1").run(Fields::update()).await?;
    fails("SS140", async {
        graph.thread("crawl-1").resume_with(Command::new().goto("fetch")).await?; // `fetch` is a worker
        Ok(())
    })
    .await;

    let url = "https://example.org".to_owned();
    graph.thread("crawl-1").resume_with(Command::new().send(fetch, url)).await?;
    Ok(())
}

#[tokio::test]
async fn ss150() -> Done {
    let (graph, question) = (single("research"), Chat::update());
    fails("SS150", async {
        graph.thread("support-17\u{1f}research:0@3").run(question).await?;
        Ok(())
    })
    .await;

    let question = Chat::update();
    graph.thread("support-17").run(question).await?;
    Ok(())
}

/// Runs a node that calls a graph.
async fn calling<N, F>(node: N) -> Done
where
    N: Fn(CompiledGraph<Fields>, Cx) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<(), NodeError>> + Send + 'static,
{
    let search = line("search").compile()?;
    let mut graph = empty();
    let call = graph.add_node("call", move |_: Fields, cx: Cx| node(search.clone(), cx));
    graph.add_edge(START, call);
    stored(graph).thread("t").run(Fields::update()).await?;
    Ok(())
}

#[tokio::test]
async fn ss151() -> Done {
    fn question(text: &str) -> ChatUpdate {
        Chat::update().text(text)
    }

    let wrong = calling(async |search: CompiledGraph<Fields>, cx: Cx| {
        let first = cx.call(&search, question("rust")).key("search").await?;
        let second = cx.call(&search, question("tokio")).key("search").await?;
        Ok(())
    });
    fails("SS151", wrong).await;

    let fixed = calling(async |search: CompiledGraph<Fields>, cx: Cx| {
        let first = cx.call(&search, question("rust")).key("rust").await?;
        let second = cx.call(&search, question("tokio")).key("tokio").await?;
        Ok(())
    });
    fixed.await
}

/// Fans out to two tasks of a worker, and runs it.
async fn ss152_run(mut graph: StateGraph<Fields>, worker: superstep::WorkerRef<String>) -> Done {
    let [split] = nodes(&mut graph, ["split"]);
    graph.add_edge(START, split);
    graph.add_fan_out(split, |_: &Fields| ["one".to_owned(), "two".to_owned()], worker);
    stored(graph).thread("t").run(Fields::update()).await?;
    Ok(())
}

#[tokio::test]
async fn ss152() -> Done {
    type Item = String;

    fn remember(item: Item) -> FieldsUpdate {
        Fields::update().log([item])
    }

    fn learned(memory: Fields) -> FieldsUpdate {
        Fields::update().log(memory.log.iter().cloned())
    }

    fails("SS152", async {
        let (mut graph, memory) = (empty(), line("memory"));
        let memory = memory.compile()?.with_persistence(Persistence::PerNode);
        let worker = graph.add_worker("worker", move |item: Item, _, cx: Cx| {
            let memory = memory.clone();
            async move { cx.call(&memory, remember(item)).await.map(learned) }
        });
        ss152_run(graph, worker).await
    })
    .await;

    let (mut graph, memory) = (empty(), line("memory"));
    let memory = memory.compile()?.with_persistence(Persistence::PerTask);
    let worker = graph.add_worker("worker", move |item: Item, _, cx: Cx| {
        let memory = memory.clone();
        async move { cx.call(&memory, remember(item)).await.map(learned) }
    });
    ss152_run(graph, worker).await
}

#[tokio::test]
async fn ss153() -> Done {
    let wrong = calling(async |search: CompiledGraph<Fields>, cx: Cx| {
        let (question, user, topic) = (Chat::update(), "ada", "rust");
        let found = cx.call(&search, question).key(format!("{user}\n{topic}")).await?;
        Ok(())
    });
    fails("SS153", wrong).await;

    let fixed = calling(async |search: CompiledGraph<Fields>, cx: Cx| {
        let (question, user, topic) = (Chat::update(), "ada", "rust");
        let found = cx.call(&search, question).key(format!("{user}/{topic}")).await?;
        Ok(())
    });
    fixed.await
}

#[tokio::test]
async fn ss154() -> Done {
    fails("SS154", async {
        let (mut graph, check, input) = (empty(), line("send"), Fields::update());
        let check = check.compile()?.with_persistence(Persistence::Ephemeral);
        let check = graph.add_subgraph("check", &check);
        graph.add_edge(START, check);
        graph.compile()?.thread("t").break_before(["check/send"]).run(input).await?;
        Ok(())
    })
    .await;

    let (mut graph, check, input) = (empty(), line("send"), Fields::update());
    let check = check.compile()?.with_persistence(Persistence::Ephemeral);
    let check = graph.add_subgraph("check", &check);
    graph.add_edge(START, check);
    graph.compile()?.thread("t").break_before(["check"]).run(input).await?;
    Ok(())
}

#[tokio::test]
async fn ss155() -> Done {
    let notes = line("note").compile()?.with_persistence(Persistence::PerNode);
    let mut graph = empty();
    let research =
        graph.add_subgraph_with("research", &notes, |_: &Chat| Notes::update(), |_: &Notes| Chat::update());
    graph.add_edge(START, research);
    let graph = stored(graph);
    graph.thread("support-17").run(Chat::update()).await?;
    fails("SS155", async {
        let notes = graph.thread("support-17").subgraph::<Chat>(["reserch"]).state().await?;
        Ok(())
    })
    .await;

    let notes = graph.thread("support-17").subgraph::<Notes>(["research"]).state().await?;
    Ok(())
}

#[derive(Route, Clone, Copy)]
enum Next {
    Human,
}

async fn guard(_: Chat, cx: Cx) -> ChatUpdate {
    cx.leave(Command::<Chat, Next>::update(Chat::update().blocked(true)).goto(Next::Human)).await
}

/// `START → guard`, which leaves the graph.
fn guarded_graph() -> StateGraph<Chat> {
    let mut guarded = empty();
    let node = guarded.add_node("guard", guard);
    guarded.add_edge(START, node);
    guarded
}

#[tokio::test]
async fn ss156() -> Done {
    fails("SS156", async {
        let (mut guarded, question) = (empty(), Chat::update());
        let node = guarded.add_node("guard", guard);
        guarded.add_edge(START, node);

        async fn guard(_: Chat, cx: Cx) -> ChatUpdate {
            cx.leave(Command::<Chat, Next>::update(Chat::update().blocked(true)).goto(Next::Human)).await
        }
        guarded.compile()?.thread("support-17").run(question).await?;
        Ok(())
    })
    .await;

    let (mut graph, guarded, question) = (empty(), guarded_graph(), Chat::update());
    let [human] = nodes(&mut graph, ["human"]);
    let guard = graph.add_routing_subgraph::<Next>("guard", &guarded.compile()?);
    graph.add_edge(START, guard);
    graph.add_routes(guard, |Next::Human| human);
    graph.compile()?.thread("support-17").run(question).await?;
    Ok(())
}

#[tokio::test]
async fn ss157() -> Done {
    let (mut graph, guarded) = (empty(), guarded_graph());
    let guard = graph.add_subgraph("guard", &guarded.compile()?);
    graph.add_edge(START, guard);
    assert_fails("SS157", graph.compile()?.run(Chat::update()).await);

    let (mut graph, guarded) = (empty(), guarded_graph());
    let [human] = nodes(&mut graph, ["human"]);
    let guard = graph.add_routing_subgraph::<Next>("guard", &guarded.compile()?);
    graph.add_routes(guard, |Next::Human| human);
    graph.add_edge(START, guard);
    graph.compile()?.run(Chat::update()).await?;
    Ok(())
}

/// Runs `START → ask → plan`, where `plan` calls a graph that takes two minutes.
async fn ss158_run(add: impl FnOnce(&mut StateGraph<Trip>, CompiledGraph<Trip>) -> NodeRef) -> Done {
    let mut search = empty();
    let node = search.add_node("search", async |_: Trip, cx: Cx| cx.sleep(MINUTE * 2).await);
    search.add_edge(START, node);
    let search = search.compile()?;
    let mut graph = empty();
    let ask = add(&mut graph, search.clone());
    let plan = graph.add_node_with("plan", search, async |search: CompiledGraph<Trip>, _: Trip, cx: Cx| {
        cx.call(&search, Trip::update()).key("plan").await.map(|_| ())
    });
    graph.add_edge(START, ask);
    graph.add_edge(ask, plan);
    stored(graph).thread("t").run(Trip::update()).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn ss158() -> Done {
    static REPORTED: Mutex<Vec<NodeError>> = Mutex::new(Vec::new());

    fn report(error: NodeError) {
        REPORTED.lock().unwrap().push(error);
    }

    fn question() -> TripUpdate {
        Trip::update()
    }

    {
        async fn ask(search: CompiledGraph<Trip>, _: Trip, cx: Cx) -> TripUpdate {
            let later = cx.clone();
            cx.spawn(async move {
                later.sleep(MINUTE).await;
                if let Err(error) = later.call(&search, question()).key("later").await {
                    report(error);
                }
            });
            Trip::update()
        }

        ss158_run(|graph, search| graph.add_node_with("ask", search, ask)).await?;
        let error = REPORTED.lock().unwrap().pop().expect("the call fails");
        assert_fails("SS158", Err::<(), _>(error.cause().to_string()));
    }

    async fn ask(search: CompiledGraph<Trip>, _: Trip, cx: Cx) -> Result<TripUpdate, NodeError> {
        let found = cx.call(&search, question()).key("now").await?;
        Ok(Trip::update().found(found.text))
    }

    ss158_run(|graph, search| graph.add_node_with("ask", search, ask)).await
}
