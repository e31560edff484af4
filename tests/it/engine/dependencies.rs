//! Dependencies of nodes: every kind of node takes them in the same place.

use superstep::{
    Command, Cx, END, Log, NodeError, NodeFailure, Route, START, State, StateGraph, View, error::chain,
};

#[derive(State, Clone, Debug, Default)]
struct Order {
    items: Vec<String>,
    #[channel(append)]
    log: Log<String>,
}

#[derive(View)]
#[view(of = Order)]
struct Items {
    items: Vec<String>,
}

#[derive(Route, Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Pack,
    Stop,
}

/// A client of a printer.
#[derive(Clone)]
struct Printer {
    name: &'static str,
    has_paper: bool,
}

impl Printer {
    const READY: Self = Self { name: "laser", has_paper: true };
    const EMPTY: Self = Self { name: "laser", has_paper: false };

    /// Prints a text, or fails with an error that is a text.
    fn print(&self, text: &str) -> Result<String, String> {
        match self.has_paper {
            true => Ok(format!("{} {text}", self.name)),
            false => Err(format!("{} has no paper", self.name)),
        }
    }
}

fn logged(line: String) -> OrderUpdate {
    Order::update().log([line])
}

async fn log_of(graph: StateGraph<Order>) -> Vec<String> {
    let end =
        graph.compile().unwrap().run(Order::update().items(["a".to_owned(), "b".to_owned()])).await.unwrap();
    end.state.log.iter().cloned().collect()
}

async fn error_of(graph: StateGraph<Order>) -> String {
    match graph.compile().unwrap().run(Order::update().items(["a".to_owned()])).await {
        Err(error) => chain(&error),
        Ok(end) => panic!("{:?}", end.status),
    }
}

#[tokio::test]
async fn a_node_has_dependencies() {
    let graph = |printer: Printer| {
        let mut graph = StateGraph::new("orders");
        let print = graph.add_node_with("print", printer, async |printer: Printer, order: Order, _: Cx| {
            Ok::<_, NodeError>(logged(printer.print(&order.items.join("+"))?))
        });
        graph.add_edge(START, print);
        graph.add_edge(print, END);
        graph
    };
    assert_eq!(log_of(graph(Printer::READY)).await, ["laser a+b"]);
    assert!(error_of(graph(Printer::EMPTY)).await.contains("laser has no paper"));
}

#[tokio::test]
async fn a_worker_has_dependencies() {
    let graph = |printer: Printer| {
        let mut graph = StateGraph::new("orders");
        let print = graph.add_worker_with(
            "print",
            printer,
            async |printer: Printer, item: String, _: Order, _: Cx| {
                Ok::<_, NodeError>(logged(printer.print(&item)?))
            },
        );
        graph.add_fan_out(START, |order: &Order| order.items.clone(), print);
        graph.add_edge(print, END);
        graph
    };
    assert_eq!(log_of(graph(Printer::READY)).await, ["laser a", "laser b"]);
    assert!(error_of(graph(Printer::EMPTY)).await.contains("laser has no paper"));
}

#[tokio::test]
async fn a_view_node_has_dependencies() {
    let graph = |printer: Printer| {
        let mut graph = StateGraph::new("orders");
        let print =
            graph.add_view_node_with("print", printer, async |printer: Printer, seen: Items, _: Cx| {
                Ok::<_, NodeError>(logged(printer.print(&seen.items.join("+"))?))
            });
        graph.add_edge(START, print);
        graph.add_edge(print, END);
        graph
    };
    assert_eq!(log_of(graph(Printer::READY)).await, ["laser a+b"]);
    assert!(error_of(graph(Printer::EMPTY)).await.contains("laser has no paper"));
}

#[tokio::test]
async fn a_routing_node_has_dependencies() {
    let graph = |printer: Printer| {
        let mut graph = StateGraph::new("orders");
        let pack = graph.add_node("pack", async |_: Order, _: Cx| logged("packed".to_owned()));
        let print =
            graph.add_routing_node_with("print", printer, async |printer: Printer, order: Order, _: Cx| {
                let next = if order.items.is_empty() { Next::Stop } else { Next::Pack };
                Ok::<_, NodeError>(Command::update(logged(printer.print("label")?)).goto(next))
            });
        graph.add_edge(START, print);
        graph.add_routes(print, |next| match next {
            Next::Pack => pack,
            Next::Stop => END,
        });
        graph.add_edge(pack, END);
        graph
    };
    assert_eq!(log_of(graph(Printer::READY)).await, ["laser label", "packed"]);
    assert!(error_of(graph(Printer::EMPTY)).await.contains("laser has no paper"));
}

#[tokio::test]
async fn an_error_handler_has_dependencies() {
    let graph = |printer: Printer| {
        let mut graph = StateGraph::new("orders");
        let fail = graph.add_node("fail", async |_: Order, _: Cx| Err::<(), _>(NodeError::new("offline")));
        let report = graph.add_error_handler_with(
            fail,
            "report",
            printer,
            async |printer: Printer, failure: NodeFailure, _: Order, _: Cx| {
                Ok::<_, NodeError>(logged(printer.print(&failure.message)?))
            },
        );
        graph.add_edge(START, fail);
        graph.add_edge(fail, END);
        graph.add_edge(report, END);
        graph
    };
    assert_eq!(log_of(graph(Printer::READY)).await, ["laser offline"]);
    assert!(error_of(graph(Printer::EMPTY)).await.contains("laser has no paper"));
}

#[tokio::test]
async fn a_routing_error_handler_has_dependencies() {
    let graph = |printer: Printer| {
        let mut graph = StateGraph::new("orders");
        let fail = graph.add_node("fail", async |_: Order, _: Cx| Err::<(), _>(NodeError::new("offline")));
        let pack = graph.add_node("pack", async |_: Order, _: Cx| logged("packed".to_owned()));
        let report = graph.add_routing_error_handler_with(
            fail,
            "report",
            printer,
            async |printer: Printer, failure: NodeFailure, _: Order, _: Cx| {
                let line = printer.print(&failure.message)?;
                Ok::<_, NodeError>(Command::update(logged(line)).goto(Next::Pack))
            },
        );
        graph.add_edge(START, fail);
        graph.add_edge(fail, END);
        graph.add_routes(report, |next| match next {
            Next::Pack => pack,
            Next::Stop => END,
        });
        graph.add_edge(pack, END);
        graph
    };
    assert_eq!(log_of(graph(Printer::READY)).await, ["laser offline", "packed"]);
    assert!(error_of(graph(Printer::EMPTY)).await.contains("laser has no paper"));
}
