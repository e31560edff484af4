//! Runs in text files.

use superstep::{CompiledGraph, Cx, END, Log, NodeError, START, State, StateGraph, agent::AgentState};
use superstep_testing::fixture::{self, World};

use super::{agent, panic_of};

/// An order that needs an approval above 100 cents.
#[derive(State, Clone, Debug, Default)]
struct Order {
    cents: u32,
    #[channel(append)]
    log: Log<String>,
}

fn orders(_: &World) -> CompiledGraph<Order> {
    let mut graph = StateGraph::<Order>::new("orders");
    let pay = graph.add_node("pay", async |order: Order, cx: Cx| {
        if order.cents > 100 && !cx.interrupt::<bool>("approve", order.cents).await {
            return Err(NodeError::new("not approved").fatal());
        }
        cx.emit("paid", order.cents);
        Ok(Order::update().log([format!("paid {}", order.cents)]))
    });
    graph.add_edge(START, pay);
    graph.add_edge(pay, END);
    graph.compile().unwrap()
}

fn agents(world: &World) -> CompiledGraph<AgentState> {
    agent(world.model(), world.tools()).graph().clone()
}

#[test]
fn a_file_of_inputs_and_answers_is_a_run_of_a_graph() {
    insta::glob!("runs/orders/*.run", |path| insta::assert_snapshot!(fixture::run(path, orders)));
}

#[test]
fn a_file_of_messages_replies_and_results_is_a_run_of_an_agent() {
    insta::glob!("runs/agent/*.run", |path| insta::assert_snapshot!(fixture::run(path, agents)));
}

#[test]
fn a_reply_of_several_parts_is_one_reply() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/it/worlds/runs/reads_a_file.run");
    let transcript = fixture::run(path, agents);
    let lines: Vec<_> = transcript.lines().collect();
    assert_eq!(lines[..2], ["> user What is in a.txt", "  and in b.txt?"]);
    assert_eq!(lines.last(), Some(&"completed"));
    let line = |part: &str| lines.iter().position(|line| line.contains(" → ") && line.contains(part));
    let call = line(r#""name":"read_file","arguments":"{\"path\":\"b.txt\"}""#).unwrap();
    let results = line("no such file").unwrap();
    let end = line("The first says hello, the second does not exist.").unwrap();
    assert!(call < results && results < end, "{transcript}");
    assert!(lines[call].contains("Let me look.") && lines[results].contains("hello"), "{transcript}");
}

#[test]
fn a_file_with_an_invalid_line_or_unused_parts_fails() {
    let file = |text: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.run");
        std::fs::write(&path, text).unwrap();
        let panic = panic_of(|| drop(fixture::run(&path, agents)));
        panic.replace(&path.display().to_string(), "bad.run")
    };
    for (text, problem) in [
        (
            "user hi\nsay hello",
            "bad.run: line 2: `say` begins no line of a fixture; these do: input, user, answer, resume, model, tool, #",
        ),
        (
            "user hi\nmodel call add {",
            "bad.run: line 2: `{` is not JSON: EOF while parsing an object at line 1 column 1",
        ),
        ("user hi\nmodel", "bad.run: line 2: a reply has `text`, `call`, `http` or `cut`"),
        (
            "user hi\nmodel\n  says hi",
            "bad.run: line 2: a reply has `text`, `call`, `http` or `cut`, not `says`",
        ),
        ("user hi\ntool add 5", "bad.run: line 2: a tool `returns` or `fails`: `tool NAME returns TEXT`"),
        ("# nothing\n", "bad.run: there is no `input` or `user`, so nothing runs"),
    ] {
        assert_eq!(file(text), problem);
    }
    let unused = file("user hi\nmodel text hello\nmodel text bye\n");
    assert!(unused.starts_with("bad.run: 1 scripted answers were not used\n> user hi\n"), "{unused}");
    let unused = file("user hi\nmodel text hello\ntool add returns 5\n");
    assert!(unused.starts_with("bad.run: expected calls of the tool `add` were not made\n"), "{unused}");
}
