//! Input from others: it is rejected or read, and ends no program.

use std::{
    cell::OnceCell,
    io::Cursor,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::Value;
use superstep::{
    CompiledGraph, MemoryCheckpointer, State, ThreadId,
    agent::config::{PermissionRule, Permit},
    checkpoint::text::{self, ExportOptions},
    llm::{
        Assembler, ChatModel, Delta, Message, ModelError, Request, ResponseStream, complete,
        text::partial_json,
        wire::{ChunkReader, ReadsTextCalls, split_thinking},
    },
    topology::Control,
};
use superstep_checkpoint::internal::stored;
use tokio::runtime::Runtime;

// In the default format, as a new project has it.
#[rustfmt::skip]
#[path = "../../../crates/cli/template/src/expenses.rs"]
mod expenses;

use self::expenses::Claim;

/// A target and its name.
type Target = (&'static str, fn(&[u8]));

/// The targets.
pub(crate) const TARGETS: [Target; 4] = [
    ("stored_rows", stored_rows),
    ("thread_text", thread_text),
    ("sse", sse),
    ("permission_rules", permission_rules),
];

/// A column of a database: the first byte chooses which.
fn stored_rows(data: &[u8]) {
    let Some((kind, json)) = data.split_first() else { return };
    let thread = ThreadId::from("t");
    match kind % 6 {
        0 => {
            let Ok(record) = stored::record(json) else { return };
            let text = stored::record_text(&thread, 1, &record).expect("a record that was read is stored");
            assert_eq!(stored::record(text.as_bytes()).expect("it is read again"), record);
        }
        1 => {
            for task in stored::applied(json).into_iter().flatten() {
                let Some(update) = task.update else { continue };
                let update = superstep::state::StoredUpdate::from(update);
                let _ = (update.json(), update.split_recorded(), update.touches("log"));
                let _ =
                    serde_json::from_str::<<Claim as State>::Update>(task.update.expect("it is there").get());
            }
        }
        2 => {
            let Ok(channels) = stored::snapshot(json) else { return };
            let text = stored::snapshot_text(&thread, &channels).expect("a snapshot that was read is stored");
            assert_eq!(stored::snapshot(text.as_bytes()).expect("it is read again"), channels);
        }
        3 => {
            let Ok(control) = serde_json::from_slice::<Control>(json) else { return };
            let text = serde_json::to_string(&control).expect("a control record has a JSON form");
            assert_eq!(serde_json::from_str::<Control>(&text).expect("it is read again"), control);
            // A thread may be of another graph.
            let _ = graph().topology().fits(&control);
        }
        4 => _ = stored::source(json),
        _ => {
            let number = json.iter().fold(0_i64, |number, byte| number.wrapping_mul(256) + i64::from(*byte));
            if let Some(task) = stored::EffectSlots::task_of(number) {
                let _ = stored::EffectSlots::of(task);
            }
        }
    }
}

/// The graph of the threads in the corpus: that of a new project, with effects and a question.
fn graph() -> CompiledGraph<Claim> {
    thread_local!(static GRAPH: OnceCell<CompiledGraph<Claim>> = const { OnceCell::new() });
    let build = || expenses::expenses().expect("the graph is valid");
    GRAPH.with(|graph| graph.get_or_init(build).clone())
}

fn runtime<T>(work: impl Future<Output = T>) -> T {
    thread_local!(static RUNTIME: OnceCell<Runtime> = const { OnceCell::new() });
    RUNTIME.with(|runtime| {
        let build =
            || tokio::runtime::Builder::new_current_thread().enable_time().build().expect("it starts");
        runtime.get_or_init(build).block_on(work)
    })
}

/// A thread as text: what is imported is exported, imported again as the same text, and replayed.
fn thread_text(data: &[u8]) {
    runtime(async {
        let store = Arc::new(MemoryCheckpointer::new());
        let Ok(imported) = text::import(&*store, &mut Cursor::new(data)).await else { return };
        let thread = imported.thread;
        let options = ExportOptions::default();
        let once = text::export(&*store, &thread, &options).await.expect("an imported thread is exported");
        let other = MemoryCheckpointer::new();
        let again =
            text::import(&other, &mut Cursor::new(once.as_bytes())).await.expect("it is imported again");
        let twice = text::export(&other, &again.thread, &options).await.expect("it is exported again");
        assert_eq!(once, twice);
        let graph = graph().with_checkpointer(store);
        let handle = graph.thread(&thread);
        let _ = handle.state().await;
        let _ = handle.history().states().await;
        let replay = tokio::time::timeout(Duration::from_secs(20), handle.replay().run()).await;
        let _ = replay.expect("a replay ends");
    });
}

/// A model whose stream is fixed.
struct Fed(Mutex<Vec<Result<Delta, ModelError>>>);

impl ChatModel for Fed {
    fn name(&self) -> &str {
        "fed"
    }

    fn stream(&self, _: Request) -> ResponseStream<'_> {
        let deltas = std::mem::take(&mut *self.0.lock().expect("no thread panics here"));
        split_thinking(Box::pin(futures::stream::iter(deltas)))
    }
}

/// The stream of a provider, up to the message.
fn sse(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (mut reader, mut answer) = (ChunkReader::default(), Assembler::new());
    let mut deltas = Vec::new();
    for event in text.split("\n\n") {
        let lines = event.lines().filter_map(|line| line.strip_prefix("data:"));
        let event = lines.collect::<Vec<_>>().join("\n");
        match event.trim() {
            "" => {}
            "[DONE]" => deltas.extend(reader.done().into_iter().map(Ok)),
            event => match reader.read(event) {
                Ok(read) => deltas.extend(read.into_iter().map(Ok)),
                Err(error) => {
                    deltas.push(Err(error));
                    break;
                }
            },
        }
    }
    for delta in deltas.iter().flatten() {
        answer.push(delta);
    }
    for (_, arguments) in answer.calls() {
        let _ = partial_json(arguments);
    }
    let _: Message = answer.partial();
    let _ = (answer.text().len(), answer.is_finished(), answer.finish(), reader.end(None));
    let model = ReadsTextCalls(Fed(Mutex::new(deltas)));
    let request = Request { messages: vec![Message::user("u")], ..Request::default() };
    let _ = runtime(complete(&model, request));
}

/// Rules, one per line (`then|tool|argument|pattern`), and a call in the first line (`tool|argument|value`).
fn permission_rules(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.lines().map(|line| line.split('|').collect::<Vec<_>>());
    let Some([tool, argument, value]) = lines.next().and_then(|call| <[&str; 3]>::try_from(call).ok()) else {
        return;
    };
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
    let args = serde_json::json!({ argument: value });
    let rules: Vec<PermissionRule> = lines
        .filter_map(|rule| {
            let (then, tool, arguments) = match rule[..] {
                [then, tool] => (then, tool, None),
                [then, tool, argument, pattern] => (then, tool, Some((argument.into(), pattern.into()))),
                _ => return None,
            };
            let then = match then {
                "allow" => Permit::Allow,
                "ask" => Permit::Ask,
                "deny" => Permit::Deny,
                _ => return None,
            };
            Some(PermissionRule {
                arguments: arguments.into_iter().collect(),
                ..PermissionRule::new(tool, then)
            })
        })
        .collect();
    let decide = |rules: &[PermissionRule]| PermissionRule::decision(rules, tool, None, &args);
    let decided = decide(&rules);
    let with = |then| decide(&[&rules[..], &[PermissionRule::new("*", then)]].concat());
    // The last certain match decides.
    for then in [Permit::Allow, Permit::Ask, Permit::Deny] {
        assert_eq!(with(then), Some(then));
    }
    // A decision is that of a rule.
    assert!(decided.is_none_or(|decided| rules.iter().any(|rule| rule.then == decided)));
    for rule in &rules {
        // A rule that may match does not become certain by standing alone, and an allowing one never denies.
        let alone = decide(std::slice::from_ref(rule));
        assert!(alone.is_none_or(|alone| alone == rule.then), "{rule}: {alone:?}");
        let text = serde_json::to_string(rule).expect("a rule has a JSON form");
        assert_eq!(&serde_json::from_str::<PermissionRule>(&text).expect("it is read again"), rule);
        assert!(!rule.to_string().is_empty());
    }
}
