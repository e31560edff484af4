//! The spans of a run, and what they have.

use std::{
    cell::RefCell,
    fmt::{self, Write as _},
    io::ErrorKind,
    sync::Once,
};

use superstep::{MemoryCheckpointer, RetryPolicy, agent::ReactConfig, prelude::*};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::Interest,
};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt},
    registry::LookupSpan,
};

use super::{DIG, ECHO, Kit, agent, caller, preset, sub};

thread_local! {
    /// The spans and events of a test's thread, in the order in which they began; `None` outside of these tests.
    static SEEN: RefCell<Option<Vec<Line>>> = const { RefCell::new(None) };
}

struct Line {
    depth: usize,
    text: String,
}

/// The number of a span's line.
struct Place(usize);

/// The subscriber of the whole process: those of single threads miss spans that another thread creates for the first time.
struct OfThread;

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            name if name.starts_with("otel.") => {}
            "message" => write!(self.text, " {value:?}").unwrap(),
            // Of the content, of which a time may be a part.
            "bytes" => self.text += if format!("{value:?}") == "0" { " bytes=0" } else { " bytes=.." },
            name => write!(self.text, " {name}={value:?}").unwrap(),
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for OfThread {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target().starts_with("superstep") && SEEN.with_borrow(Option::is_some)
    }

    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let depth = span.scope().skip(1).count();
        let mut line = Line { depth, text: attributes.metadata().name().to_owned() };
        attributes.record(&mut line);
        span.extensions_mut().insert(Place(push(line)));
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let place = span.extensions().get::<Place>().unwrap().0;
        SEEN.with_borrow_mut(|seen| values.record(&mut seen.as_mut().unwrap()[place]));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let depth = context.event_scope(event).into_iter().flatten().count();
        let mut line = Line { depth, text: format!("[{}]", event.metadata().level()) };
        event.record(&mut line);
        push(line);
    }
}

/// Adds a line, and returns its number.
fn push(line: Line) -> usize {
    SEEN.with_borrow_mut(|seen| {
        let seen = seen.as_mut().unwrap();
        seen.push(line);
        seen.len() - 1
    })
}

/// Begins to collect the spans and events of this thread.
fn collect() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        tracing::subscriber::set_global_default(tracing_subscriber::registry().with(OfThread)).unwrap()
    });
    SEEN.set(Some(Vec::new()));
}

/// Returns the collected lines as a tree, without the fields for OpenTelemetry.
fn collected() -> String {
    let lines = SEEN.take().unwrap();
    lines.iter().map(|Line { depth, text }| format!("{}{text}\n", "  ".repeat(*depth))).collect()
}

#[tokio::test]
async fn a_turn_with_tools_and_a_sub_agent_is_one_tree_of_spans_without_content() {
    collect();
    let (kit, boss, digger) = (Kit::default(), caller("boss", &[&[DIG, ECHO]]), caller("digger", &[&[ECHO]]));
    let config = || ReactConfig { tool_mode: superstep::agent::config::ToolMode::Sequential, ..preset() };
    let digger = agent(&digger, &kit, &["echo"]).config(config());
    let boss = agent(&boss, &kit, &["echo"]).sub_agent(sub("digger", digger)).config(config());
    let boss = boss.checkpointer(MemoryCheckpointer::new()).build().unwrap();
    boss.thread("t").ask("a secret question").await.unwrap();
    let tree = collected();
    insta::assert_snapshot!(tree);
    for content in ["secret", "r:1", "dig\"", "task\""] {
        assert!(!tree.contains(content), "{content}: {tree}");
    }
}

#[tokio::test]
async fn a_repeated_attempt_and_a_failed_run_are_in_the_trace() {
    #[derive(State, Clone, Debug, Default)]
    struct Empty {}
    collect();
    let mut graph = StateGraph::<Empty>::new("flaky");
    let node = graph.add_node("fails", async |_: Empty, cx: Cx| match cx.attempt() {
        3 => panic!("three"),
        n => Err::<(), _>(NodeError::new(std::io::Error::new(ErrorKind::TimedOut, format!("attempt {n}")))),
    });
    let retry =
        RetryPolicy::default().initial(std::time::Duration::from_millis(1)).jitter(std::time::Duration::ZERO);
    graph.configure(node, NodeOptions::new().retry(retry));
    graph.add_edge(START, node);
    graph.add_edge(node, END);
    graph.compile().unwrap().run(Empty::update()).await.unwrap_err();
    insta::assert_snapshot!(collected());
}
