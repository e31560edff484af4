//! The spans of a run, and what they have.

use std::{
    fmt::{self, Write as _},
    sync::{Arc, Mutex},
};

use superstep::{MemoryCheckpointer, RetryPolicy, agent::ReactConfig, prelude::*};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    span,
};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt},
    registry::LookupSpan,
};

use super::{DIG, ECHO, Kit, agent, caller, preset, sub};

/// Spans and events in the order in which they began.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<Line>>>);

struct Line {
    depth: usize,
    text: String,
}

/// The number of a span's line.
struct Place(usize);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.text, " {}={value:?}", field.name()).unwrap();
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Seen {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let mut lines = self.0.lock().unwrap();
        let depth = span.scope().skip(1).count();
        let mut line = Line { depth, text: attributes.metadata().name().to_owned() };
        attributes.record(&mut line);
        span.extensions_mut().insert(Place(lines.len()));
        lines.push(line);
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let place = span.extensions().get::<Place>().unwrap().0;
        values.record(&mut self.0.lock().unwrap()[place]);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if !event.metadata().target().starts_with("superstep") {
            return;
        }
        let depth = context.event_scope(event).into_iter().flatten().count();
        let mut line = Line { depth, text: format!("[{}]", event.metadata().level()) };
        event.record(&mut line);
        self.0.lock().unwrap().push(line);
    }
}

impl Seen {
    /// Returns the lines as a tree, without the fields that begin with `otel.`.
    fn tree(&self) -> String {
        let lines = self.0.lock().unwrap();
        let shown = lines.iter().map(|Line { depth, text }| {
            let fields = text.split(' ').filter(|field| !field.starts_with("otel."));
            format!("{}{}\n", "  ".repeat(*depth), fields.collect::<Vec<_>>().join(" "))
        });
        shown.collect()
    }
}

#[tokio::test]
async fn a_turn_with_tools_and_a_sub_agent_is_one_tree_of_spans_without_content() {
    let seen = Seen::default();
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(seen.clone()));
    let (kit, boss, digger) = (Kit::default(), caller("boss", &[&[DIG, ECHO]]), caller("digger", &[&[ECHO]]));
    let config = || ReactConfig { tool_mode: superstep::agent::config::ToolMode::Sequential, ..preset() };
    let digger = agent(&digger, &kit, &["echo"]).config(config());
    let boss = agent(&boss, &kit, &["echo"]).sub_agent(sub("digger", digger)).config(config());
    let boss = boss.checkpointer(MemoryCheckpointer::new()).build().unwrap();
    boss.thread("t").ask("a secret question").await.unwrap();
    let tree = seen.tree();
    insta::assert_snapshot!(tree);
    for content in ["secret", "r:1", r#"\"x\""#, "task"] {
        assert!(!tree.contains(content), "{content}: {tree}");
    }
}

#[tokio::test]
async fn a_repeated_attempt_and_a_failed_run_are_in_the_trace() {
    #[derive(State, Clone, Debug, Default)]
    struct Empty {}
    let seen = Seen::default();
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(seen.clone()));
    let mut graph = StateGraph::<Empty>::new("flaky");
    let node = graph.add_node("fails", async |_: Empty, cx: Cx| match cx.attempt() {
        3 => panic!("three"),
        n => Err::<(), _>(NodeError::new(std::io::Error::other(format!("attempt {n}")))),
    });
    let retry = RetryPolicy {
        initial: std::time::Duration::from_millis(1),
        jitter: std::time::Duration::ZERO,
        ..RetryPolicy::default()
    };
    graph.configure(node, NodeOptions { retry: retry.into(), ..NodeOptions::default() });
    graph.add_edge(START, node);
    graph.add_edge(node, END);
    graph.compile().unwrap().run(Empty::update()).await.unwrap_err();
    insta::assert_snapshot!(seen.tree());
}
