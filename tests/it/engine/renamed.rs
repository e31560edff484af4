//! Graphs whose nodes are renamed while threads wait: stored tasks resume at the nodes that had their names.

use std::sync::{Arc, Mutex};

use superstep::{
    Answers, Command, CompiledGraph, Cx, NodeError, NodeFailure, NodeOptions, NodeRef, START, State,
    StateGraph, Status, node::Persistence,
};

use crate::support::{Plain, failed, logging_node, names, on_every_store, say};

/// The effects of nodes.
#[derive(Clone, Default)]
struct Effects(Arc<Mutex<Vec<String>>>);

impl Effects {
    /// Performs an effect once, and asks then.
    async fn before_question(
        &self,
        what: &'static str,
        cx: &Cx,
    ) -> Result<<Plain as State>::Update, NodeError> {
        let effect = async |_| {
            self.0.lock().unwrap().push(what.to_owned());
            Ok::<_, NodeError>(())
        };
        cx.once(what, effect).await?;
        let _: bool = cx.interrupt(what, what).await;
        Ok(say(what))
    }
}

/// The names after the renaming, which have another order.
const RENAMED: [(&str, &str); 11] = [
    ("ask", "z-ask"),
    ("bad", "y-bad"),
    ("early", "b-early"),
    ("h", "a-h"),
    ("inner", "new inner"),
    ("j", "a-j"),
    ("late", "b-late"),
    ("sub", "a-sub"),
    ("sum", "a-sum"),
    ("total", "b-total"),
    ("w", "c-w"),
];

/// A program before or after the renaming.
#[derive(Clone, Copy, PartialEq)]
enum Names {
    Old,
    New,
}

impl Names {
    fn of(self, name: &'static str) -> &'static str {
        match self {
            Self::Old => name,
            Self::New => RENAMED.iter().find(|(old, _)| *old == name).unwrap().1,
        }
    }

    fn options(self, name: &'static str) -> NodeOptions {
        match self {
            Self::Old => NodeOptions::new(),
            Self::New => NodeOptions::new().was(name),
        }
    }

    /// Adds a node that says its old name.
    fn add(self, graph: &mut StateGraph<Plain>, name: &'static str) -> NodeRef {
        let node = graph.add_node(self.of(name), move |_, _| async move { say(name) });
        graph.configure(node, self.options(name));
        node
    }

    /// Adds a node that has an effect and asks.
    fn add_asking(self, graph: &mut StateGraph<Plain>, name: &'static str, effects: &Effects) -> NodeRef {
        let effects = effects.clone();
        let node = graph.add_node(self.of(name), move |_: Plain, cx: Cx| {
            let effects = effects.clone();
            async move { effects.before_question(name, &cx).await }
        });
        graph.configure(node, self.options(name));
        node
    }

    /// `START → (ask, early, late, bad, sub)`, `START ⇒ w`: `ask`, an item of `w`, the error handler `h` of `bad`, and the node
    /// `inner` of the subgraph ask. `j` joins `ask` and `early`, `total` joins `w`, `sum` follows it by an edge, and `late` is
    /// deferred.
    fn graph(self, effects: &Effects) -> CompiledGraph<Plain> {
        let mut sub = StateGraph::<Plain>::new("sub");
        let inner = self.add_asking(&mut sub, "inner", effects);
        sub.add_edge(START, inner);
        let mut graph = StateGraph::<Plain>::new("g");
        let [early, j, sum, total, late] =
            ["early", "j", "sum", "total", "late"].map(|name| self.add(&mut graph, name));
        graph.configure(late, self.options("late").deferred());
        let ask = self.add_asking(&mut graph, "ask", effects);
        let bad = graph
            .add_node(self.of("bad"), async |_: Plain, _: Cx| Err::<(), _>(NodeError::new("down").fatal()));
        let given = effects.clone();
        let h = graph.add_error_handler(bad, self.of("h"), move |_: NodeFailure, _: Plain, cx: Cx| {
            let effects = given.clone();
            async move { effects.before_question("h", &cx).await }
        });
        let given = effects.clone();
        let w = graph.add_worker(self.of("w"), move |item: i64, _: Plain, cx: Cx| {
            let effects = given.clone();
            async move {
                match item {
                    2 => effects.before_question("w2", &cx).await,
                    item => Ok(say(&format!("w{item}"))),
                }
            }
        });
        let sub = graph.add_subgraph(self.of("sub"), &sub.compile().unwrap());
        for (node, name) in [(bad, "bad"), (h, "h"), (w.into(), "w"), (sub, "sub")] {
            graph.configure(node, self.options(name));
        }
        for to in [ask, early, late, bad, sub] {
            graph.add_edge(START, to);
        }
        graph.add_fan_out(START, |_: &Plain| [1, 2, 3], w);
        graph.add_join([ask, early], j);
        graph.add_join([w], total);
        graph.add_edge(w, sum);
        graph.compile().unwrap()
    }
}

fn sorted(state: &Plain) -> Vec<String> {
    let mut words: Vec<_> = state.log.iter().filter(|word| *word != "U").cloned().collect();
    words.sort();
    words
}

on_every_store! {
    async fn every_stored_task_resumes_at_the_renamed_node(backend: Backend) {
        for way in ["none", "old update", "update", "command", "one by one", "by key"] {
            let effects = Effects::default();
            let thread = |names: Names| backend.keep(names.graph(&effects)).thread(way);
            let begun = thread(Names::Old).run(Plain::update()).await.unwrap();
            let mut ids: Vec<_> = begun.interrupts.iter().map(|asked| asked.id.clone()).collect();
            assert_eq!((begun.status, ids.len()), (Status::Interrupted, 4), "{way}");
            match way {
                "old update" => drop(thread(Names::Old).resume_with(Command::update(say("U"))).await.unwrap()),
                "update" => drop(thread(Names::New).update_as("early", say("early")).await.unwrap()),
                "command" => drop(thread(Names::New).resume_with(Command::update(say("U"))).await.unwrap()),
                _ => {}
            }
            let head = thread(Names::New).state().await.unwrap();
            let waiting: Vec<_> = head.tasks.iter().flat_map(|task| &task.interrupts).collect();
            let mut shown: Vec<_> = waiting.iter().map(|asked| asked.id.clone()).collect();
            shown.sort();
            ids.sort();
            assert_eq!(shown, ids, "{way}: the ids of waiting questions remain");
            let mut asking: Vec<_> = waiting.iter().map(|asked| asked.node.as_str().trim_start_matches("new ")).collect();
            asking.sort_unstable();
            assert_eq!(asking, ["a-h", "c-w", "inner", "z-ask"], "{way}");
            let answers = match way {
                "by key" => ["ask", "h", "inner", "w2"].into_iter().fold(Answers::new(), |all, key| all.answer(key, true)),
                _ => ids.iter().fold(Answers::new(), |all, id| all.answer(id, true)),
            };
            let end = match way {
                "one by one" => {
                    for id in &ids[..3] {
                        let status = thread(Names::New).answer(id, true).resume().await.unwrap().status;
                        assert_eq!(status, Status::Interrupted);
                    }
                    thread(Names::New).answer(&ids[3], true).resume().await.unwrap()
                }
                _ => thread(Names::New).answers(answers).resume().await.unwrap(),
            };
            let words = ["ask", "early", "h", "inner", "j", "late", "sum", "total", "w1", "w2", "w3"];
            assert_eq!((end.status, sorted(&end.state)), (Status::Completed, words.map(str::to_owned).to_vec()), "{way}");
            let mut done = effects.0.lock().unwrap().clone();
            done.sort();
            assert_eq!(done, ["ask", "h", "inner", "w2"], "{way}: no effect is repeated");
        }
    }

    async fn arrivals_and_nodes_that_wait_are_found_under_their_former_names(backend: Backend) {
        let effects = Effects::default();
        let thread = |names: Names| backend.keep(names.graph(&effects)).thread("t");
        thread(Names::Old).run(Plain::update()).await.unwrap();
        thread(Names::Old).resume_with(Command::update(say("U"))).await.unwrap();
        let control = thread(Names::New).state().await.unwrap().checkpoint.unwrap().control;
        assert_eq!((control.arrived.len(), control.held.len(), names(&control.deferred).as_str()), (1, 1, "late"));
        let keys = ["ask", "h", "inner", "w2"].into_iter().fold(Answers::new(), |all, key| all.answer(key, true));
        let end = thread(Names::New).answers(keys).resume().await.unwrap();
        let words = ["ask", "early", "h", "inner", "j", "late", "sum", "total", "w1", "w2", "w3"];
        assert_eq!(sorted(&end.state), words);
    }

    async fn the_memory_of_a_renamed_subgraph_is_found(backend: Backend) {
        let graph = |names: Names| {
            let mut mem = StateGraph::<Plain>::new("mem");
            let keep = mem.add_node("keep", async |_: Plain, _: Cx| {});
            mem.add_edge(START, keep);
            let mem = mem.compile().unwrap().with_persistence(Persistence::PerNode);
            let mut graph = StateGraph::<Plain>::new("g");
            let last = |state: &Plain| say(state.log.last().unwrap());
            let mem = graph.add_subgraph_with(names.of("sub"), &mem, last, |mem: &Plain| say(&format!("[{}]", mem.log_text())));
            graph.configure(mem, names.options("sub"));
            graph.add_edge(START, mem);
            backend.keep(graph.compile().unwrap())
        };
        graph(Names::Old).thread("t").run(say("one")).await.unwrap();
        graph(Names::New).thread("t").run(say("two")).await.unwrap();
        let end = graph(Names::New).thread("t").run(say("three")).await.unwrap();
        assert_eq!(end.state.log_text(), "one [one] two [one two] three [one two three]");
    }

    async fn a_former_name_stands_for_the_node_in_updates_and_breakpoints(backend: Backend) {
        let graph = |name: &'static str, was: &[&str]| {
            let mut graph = StateGraph::<Plain>::new("g");
            let [a, b] = ["a", name].map(|name| logging_node(&mut graph, name));
            let options = was.iter().fold(NodeOptions::new(), |options, name| options.was(name));
            graph.configure(b, options);
            graph.add_edge(START, a);
            graph.add_edge(a, b);
            backend.keep(graph.compile().unwrap())
        };
        graph("b", &[]).thread("t").break_before(["b"]).run(Plain::update()).await.unwrap();
        let error = failed(graph("c", &[]).thread("t").resume().await);
        assert_eq!(error.code(), "SS114");
        let twice = || graph("d", &["c", "b"]);
        assert_eq!(names(&twice().thread("t").state().await.unwrap().next), "d");
        twice().thread("t").copy_to("copy").await.unwrap();
        twice().thread("copy").update_as("b", say("by hand")).await.unwrap();
        assert_eq!(twice().thread("copy").state().await.unwrap().values.log_text(), "a by hand");
        assert_eq!(twice().thread("t").resume().await.unwrap().state.log_text(), "a d");
    }
}

#[test]
fn a_former_name_of_two_nodes_is_refused() {
    let graph = |was: [&str; 2]| {
        let mut graph = StateGraph::<Plain>::new("g");
        let [a, b] = ["a", "b"].map(|name| logging_node(&mut graph, name));
        for (node, was) in [a, b].into_iter().zip(was) {
            graph.configure(node, NodeOptions::new().was(was));
            graph.add_edge(START, node);
        }
        graph.compile().map(drop).unwrap_err().to_string()
    };
    let error = graph(["x", "a"]);
    assert!(error.contains("SS025: node `b` was `a`, and a node has that name now;"), "{error}");
    let error = graph(["x", "x"]);
    assert!(error.contains("SS025: node `b` was `x`, and node `a` was as well;"), "{error}");
    assert!(graph(["a", "x"]).contains("SS025: node `a` was `a`, and a node has that name now;"));
}
