//! The agent's overhead on its model: until the first token, and for building the request of a long
//! conversation.
//!
//! `cargo bench --bench agent --features openai` prints a table.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{Arc, Mutex},
};

use futures::{StreamExt as _, stream};
use superstep::{
    Event, MemoryCheckpointer, State as _, StreamMode,
    agent::{
        Agent, AgentState, ReactConfig,
        deps::{LongTermMemory, MemoryEntry, MemoryError, MemoryFuture, MemoryTrigger},
        presets::PRESETS,
    },
    llm::{
        ApiKey, ChatModel, Delta, FinishReason, Message, OpenAiConfig, OpenAiModel, Request, ResponseStream,
        ToolCall, wire::WireConfig,
    },
};
use superstep_testing::{
    script::{Script, txt},
    wire::WireServer,
};
use tokio::{runtime::Builder, time::Instant};

const TURNS: usize = 200;

#[expect(clippy::print_stdout, reason = "the numbers are the output")]
fn main() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime can be built");
    runtime.block_on(async {
        let (raw, agent) = first_token().await;
        println!("| what | median µs |\n|---|---|");
        println!("| first token, raw HTTP stream | {raw:.0} |");
        println!("| first token, agent | {agent:.0} |");
        println!("| first token, added | {:.0} |", agent - raw);
        for preset in PRESETS {
            for messages in [100, 10_000] {
                let took = request((preset.config)(), messages).await;
                println!("| request of {messages} messages, preset {} | {took:.0} |", preset.name);
            }
        }
    });
}

/// Measures the time from the question to the first piece of the answer, in microseconds: on a bare
/// connection, and with an agent.
async fn first_token() -> (f64, f64) {
    let script = (0..2 * TURNS + 2).map(|_| txt("hello"));
    let server = WireServer::start(Script::new(script)).await.expect("a loopback port is free");
    let config = OpenAiConfig::new(server.base_url(), ApiKey::new("sk-test"), "m");
    let model = OpenAiModel::new(config).expect("the server has a base URL");
    let agent = Agent::builder(Arc::new(model)).build().expect("an agent without tools is whole");
    let (mut raw, mut whole) = (Vec::new(), Vec::new());
    for turn in 0..=TURNS {
        let address = server.base_url().trim_start_matches("http://").trim_end_matches("/v1").to_owned();
        let bare = tokio::task::spawn_blocking(move || bare(&address)).await.expect("it does not panic");
        let began = Instant::now();
        let mut stream = agent.without_thread().stream(agent.input("hi"), [StreamMode::Custom]);
        let mut first = None;
        while let Some(event) = stream.next().await {
            if let Event::Custom { name: "llm_token", .. } = event {
                first = first.or(Some(began.elapsed().as_secs_f64() * 1e6));
            }
        }
        // The first turn warms up.
        if turn > 0 {
            raw.push(bare);
            whole.push(first.expect("there is an answer"));
        }
    }
    (median(raw), median(whole))
}

/// Measures the same on a plain socket.
fn bare(address: &str) -> f64 {
    let began = Instant::now();
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}"#;
    let mut connection = TcpStream::connect(address).expect("the server listens");
    connection.set_nodelay(true).expect("a socket takes options");
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    connection.write_all((head + body).as_bytes()).expect("the server reads");
    let (mut heard, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let read = connection.read(&mut buffer).expect("the server answers");
        assert_ne!(read, 0, "the answer has a token");
        heard.extend_from_slice(&buffer[..read]);
        if String::from_utf8_lossy(&heard).contains("hello") {
            return began.elapsed().as_secs_f64() * 1e6;
        }
    }
}

/// The time at which the agent began to build a request, and the times at which bodies were written.
type Times = Arc<Mutex<(Option<Instant>, Vec<f64>)>>;

struct Writes(Times);

impl ChatModel for Writes {
    fn name(&self) -> &str {
        "writes"
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let wire = WireConfig { model: "m".into(), ..WireConfig::default() };
        let body = serde_json::to_vec(&wire.body(&request)).expect("a request has a JSON form");
        assert!(body.len() > request.messages.len(), "it was written");
        let mut times = self.0.lock().expect("nobody panics");
        if let Some(began) = times.0.take() {
            times.1.push(began.elapsed().as_secs_f64() * 1e6);
        }
        stream::iter([Delta::Text("ok".into()), Delta::Finish(FinishReason::Stop)]).map(Ok).boxed()
    }
}

struct Nothing;

impl LongTermMemory for Nothing {
    fn add<'a>(&'a self, _: Vec<Message>, _: &'a str, _: &'a str) -> MemoryFuture<'a, Vec<MemoryEntry>> {
        Box::pin(async { Err(MemoryError("nothing is stored".into())) })
    }

    fn search<'a>(&'a self, _: &'a str, _: &'a str, _: usize) -> MemoryFuture<'a, Vec<MemoryEntry>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn list<'a>(&'a self, _: &'a str, _: usize) -> MemoryFuture<'a, Vec<MemoryEntry>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn forget<'a>(&'a self, _: &'a str, _: &'a str) -> MemoryFuture<'a, bool> {
        Box::pin(async { Ok(false) })
    }
}

/// Measures the time from the end of the node before `agent` to the bytes of the request's body, in
/// microseconds, for a conversation of this number of messages. Each turn adds two.
async fn request(config: ReactConfig, messages: usize) -> f64 {
    let times = Times::default();
    let begins = times.clone();
    let trigger = MemoryTrigger::asking(Arc::new(Nothing), move |_| {
        begins.lock().expect("nobody panics").0 = Some(Instant::now());
        false
    });
    let agent = Agent::builder(Arc::new(Writes(times.clone()))).config(config).memory(trigger);
    let agent = agent.checkpointer(Arc::new(MemoryCheckpointer::new())).build();
    let agent = agent.expect("an agent without tools is whole");
    let rounds = (0..messages / 4).flat_map(|n| {
        let id = format!("c{n}");
        [
            Message::user(format!("question {n}: {}", "why ".repeat(40))),
            Message::assistant("").with_tool_calls([ToolCall::new(&id, "search", r#"{"query":"because"}"#)]),
            Message::tool(&id, format!("result {n}: {}", "thus ".repeat(40))),
            Message::assistant(format!("answer {n}: {}", "so ".repeat(40))),
        ]
    });
    let input = AgentState::update().messages(rounds.chain([Message::user("go")]).collect::<Vec<_>>());
    agent.graph().thread("long").run(input).await.expect("the run does not fail");
    times.lock().expect("nobody panics").1.clear();
    for _ in 0..21 {
        agent.thread("long").ask("more").await.expect("the run does not fail");
    }
    let took = times.lock().expect("nobody panics").1.clone();
    assert_eq!(took.len(), 21, "each turn asks once");
    median(took)
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
