//! Traces and metrics at a collector of OpenTelemetry.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use opentelemetry_proto::tonic::{
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    common::v1::{KeyValue, any_value::Value},
    trace::v1::Span,
};
use prost::Message as _;
use serde_json::json;
use superstep_testing::script::{Answer, call, txt};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use crate::{
    acp::editor::Editor,
    support::{Place, Running, ended, serve},
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// The request line and the body of each received request.
type Received = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// A collector on loopback, until it is dropped.
struct Collector {
    address: String,
    received: Received,
    accepting: JoinHandle<()>,
}

impl Collector {
    async fn start() -> Self {
        Self::replying("200 OK").await
    }

    async fn replying(status: &'static str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let received = Received::default();
        let shared = Arc::clone(&received);
        let accepting = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(collect(connection, Arc::clone(&shared), status));
            }
        });
        Self { address, received, accepting }
    }

    fn bodies(&self, path: &str) -> Vec<Vec<u8>> {
        let received = self.received.lock().unwrap();
        received.iter().filter(|(line, _)| line.contains(path)).map(|(_, body)| body.clone()).collect()
    }

    /// Returns the spans, and the names of the services.
    fn spans(&self) -> (Vec<Span>, Vec<String>) {
        let (mut spans, mut services) = (Vec::new(), Vec::new());
        for body in self.bodies("/v1/traces") {
            for of_service in ExportTraceServiceRequest::decode(&*body).unwrap().resource_spans {
                services.extend(text(&of_service.resource.unwrap().attributes, "service.name"));
                spans.extend(of_service.scope_spans.into_iter().flat_map(|scope| scope.spans));
            }
        }
        (spans, services)
    }

    /// Returns the names of the metrics with the number of their data points.
    fn metrics(&self) -> BTreeMap<String, usize> {
        use opentelemetry_proto::tonic::metrics::v1::metric::Data;
        let bodies = self.bodies("/v1/metrics");
        let requests = bodies.iter().map(|body| ExportMetricsServiceRequest::decode(&**body).unwrap());
        let scopes = requests.flat_map(|request| request.resource_metrics).flat_map(|of| of.scope_metrics);
        let points = |data| match data {
            Some(Data::Histogram(histogram)) => histogram.data_points.len(),
            Some(Data::Sum(sum)) => sum.data_points.len(),
            other => panic!("{other:?}"),
        };
        scopes.flat_map(|scope| scope.metrics).map(|metric| (metric.name, points(metric.data))).collect()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Stores the requests of one connection.
async fn collect(connection: TcpStream, received: Received, status: &str) {
    let mut connection = BufReader::new(connection);
    loop {
        let (mut first, mut length) = (String::new(), 0);
        if connection.read_line(&mut first).await.unwrap_or(0) == 0 {
            return;
        }
        loop {
            let mut header = String::new();
            connection.read_line(&mut header).await.unwrap();
            match header.to_ascii_lowercase().trim().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        connection.read_exact(&mut body).await.unwrap();
        received.lock().unwrap().push((first, body));
        let reply = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        connection.write_all(reply.as_bytes()).await.unwrap();
    }
}

fn text(attributes: &[KeyValue], name: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == name)?;
    match found.value.clone()?.value? {
        Value::StringValue(text) => Some(text),
        other => Some(format!("{other:?}")),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the span of this name, and the name of its parent.
#[track_caller]
fn one<'a>(spans: &'a [Span], name: &str) -> (&'a Span, &'a str) {
    let mut found = spans.iter().filter(|span| span.name == name);
    let names: Vec<_> = spans.iter().map(|span| &span.name).collect();
    let (Some(span), None) = (found.next(), found.next()) else { panic!("one `{name}` in {names:?}") };
    let parent = spans.iter().find(|parent| parent.span_id == span.parent_span_id);
    (span, parent.map_or("", |parent| parent.name.as_str()))
}

#[tokio::test]
async fn a_trace_goes_through_model_tools_and_servers_and_has_no_content() {
    let (place, collector) = (Place::new(), Collector::start().await);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/it/mcp/server.sh");
    let env = r#"env = { SEEN = "seen" }"#;
    place.file("agent.toml", &format!("[mcp.small]\ncommand = \"sh\"\nargs = [\"{script}\"]\n{env}\n"));
    let server = serve([
        call("c1", "shell", r#"{"command":"echo trace=$TRACEPARENT"}"#),
        call("c2", "small_say", r#"{"what":"the argument"}"#),
        Answer::stream()
            .text(["the result"])
            .end("stop")
            .data(
                r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":1}}}"#,
            )
            .done(),
    ])
    .await;
    let base_url = server.base_url();
    let run = ["run", "a secret", "-q", "--yes", "--thread", "t", "--config", "agent.toml", "--model", "m"];
    let mut command = place.command(&[&run[..], &["--base-url", &base_url]].concat());
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.address);
    command.env("TRACEPARENT", format!("00-{TRACE}-00f067aa0ba902b7-01"));
    let ran = ended(&mut command).await.ok();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("the result\n", ""));
    server.check().unwrap();

    let (spans, services) = collector.spans();
    assert!(services.iter().all(|service| service == "superstep") && !services.is_empty(), "{services:?}");
    assert!(spans.iter().all(|span| hex(&span.trace_id) == TRACE), "one trace, that of the caller");
    let (command, _) = one(&spans, "superstep run");
    assert_eq!(hex(&command.parent_span_id), "00f067aa0ba902b7");
    assert_eq!(one(&spans, "run react").1, "superstep run");
    let (shell, of_shell) = one(&spans, "execute_tool shell");
    let (say, of_say) = one(&spans, "tools/call say");
    assert_eq!((of_shell, of_say), ("tools", "execute_tool small_say"));
    assert_eq!(text(&say.attributes, "mcp.server").as_deref(), Some("small"));
    let chats: Vec<_> = spans.iter().filter(|span| span.name == "chat m").collect();
    assert_eq!(chats.len(), 3);
    assert!(chats.iter().all(|chat| text(&chat.attributes, "gen_ai.request.model").as_deref() == Some("m")));

    let context = |span: &Span| format!("00-{TRACE}-{}-01", hex(&span.span_id));
    let sent: Vec<_> =
        server.received().iter().map(|received| received.headers["traceparent"].clone()).collect();
    for chat in chats {
        assert!(sent.contains(&context(chat)), "{sent:?}");
    }
    let results = place.state("t").await["values"]["tool_result_history"].to_string();
    assert!(results.contains(&format!("trace={}", context(shell))), "{results}");
    let seen = std::fs::read_to_string(place.work().join("seen")).unwrap();
    assert!(seen.contains(&format!("traced:{}", context(say))), "{seen}");

    let metrics = collector.metrics();
    let measured: Vec<_> = metrics.keys().map(String::as_str).collect();
    assert_eq!(
        measured,
        [
            "gen_ai.client.operation.duration",
            "gen_ai.client.token.usage",
            "superstep.checkpoint.size",
            "superstep.node.duration",
            "superstep.run.duration",
            "superstep.token.parts",
            "superstep.tool.duration",
        ]
    );
    // Input and output; cached and reasoning.
    assert_eq!((metrics["gen_ai.client.token.usage"], metrics["superstep.token.parts"]), (2, 2));
    assert_eq!(metrics["superstep.tool.duration"], 2);
    for (_, body) in collector.received.lock().unwrap().iter() {
        for content in ["a secret", "the argument", "the result", "echo trace"] {
            let has = body.windows(content.len()).any(|window| window == content.as_bytes());
            assert!(!has, "{content}");
        }
    }
}

#[tokio::test]
async fn content_is_exported_only_on_request_without_secrets_and_not_logged() {
    let (place, collector) = (Place::new(), Collector::start().await);
    place.file(
        "prices.toml",
        "[budget.cost]\nmax = 1000000000.0\nper_million_input = 1000000.0\nper_million_output = 2000000.0\n",
    );
    let server = serve([
        call("c1", "shell", r#"{"command":"echo sk-0123456789 hush-hush"}"#),
        Answer::stream().text(["the result"]).end("stop").usage(3, 2).done(),
    ])
    .await;
    let base_url = server.base_url();
    let run =
        ["run", "the question of sk-0123456789", "-q", "--yes", "--no-memory", "--config", "prices.toml"];
    let model = ["--model", "m", "--base-url", &base_url, "--log", "debug"];
    let mut command = place.command(&[&run[..], &model].concat());
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.address).env("MY_PASSWORD", "hush-hush");
    command.env("OPENAI_API_KEY", "sk-0123456789");
    let on = ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY");
    let ran = ended(command.env(on.0, on.1)).await.ok();
    let (spans, _) = collector.spans();
    let chats: Vec<_> = spans.iter().filter(|span| span.name == "chat m").collect();
    let asked = text(&chats[0].attributes, "gen_ai.input.messages").unwrap();
    assert!(asked.contains("the question of [redacted]") && asked.contains(r#""role":"user""#), "{asked}");
    assert!(text(&chats[0].attributes, "gen_ai.system_instructions").is_some());
    let replied = text(&chats[1].attributes, "gen_ai.output.messages").unwrap();
    assert_eq!(
        replied,
        r#"[{"finish_reason":"stop","parts":[{"content":"the result","type":"text"}],"role":"assistant"}]"#
    );
    let (shell, _) = one(&spans, "execute_tool shell");
    let arguments = text(&shell.attributes, "gen_ai.tool.call.arguments").unwrap();
    assert_eq!(arguments, r#"{"command":"echo [redacted] [redacted]"}"#);
    assert!(text(&shell.attributes, "gen_ai.tool.call.result").unwrap().contains("[redacted]"));
    for (_, body) in collector.received.lock().unwrap().iter() {
        for secret in ["sk-0123456789", "hush-hush"] {
            assert!(!body.windows(secret.len()).any(|window| window == secret.as_bytes()), "{secret}");
        }
    }
    for content in ["the question", "the result", "echo"] {
        assert!(!ran.stderr.contains(content), "{content}: {}", ran.stderr);
    }
    // 3 input tokens and 2 output tokens of the second call; the first reported none.
    assert!(ran.stderr.contains("cost=7.0"), "{}", ran.stderr);
    assert_eq!(collector.metrics().get("superstep.cost"), Some(&1));

    let mut command = place.command(&["run", "2+2", "--model", "offline", "-q", "--no-memory"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.address).env(on.0, "EVENT_ONLY");
    let ran = ended(&mut command).await.ok();
    assert!(
        ran.stderr.contains("is `EVENT_ONLY`, and the only supported value is `SPAN_ONLY` or `NO_CONTENT`"),
        "{ran:?}"
    );
}

/// Batches leave while the program runs: what was closed before it was killed is not lost, once its batch was sent.
#[tokio::test]
async fn a_killed_program_has_exported_the_batches_before_its_end() {
    let (place, collector) = (Place::new(), Collector::start().await);
    let server =
        serve([call("c1", "calculate", r#"{"expression":"1+1"}"#), Answer::stream().text(["never"]).stall()])
            .await;
    let base_url = server.base_url();
    let mut command =
        place.command(&["run", "go", "--json", "--no-memory", "--base-url", &base_url, "--model", "m"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.address).env("OTEL_BSP_SCHEDULE_DELAY", "20");
    let running = Running::of(command);
    let arrived = async {
        while !collector.spans().0.iter().any(|span| span.name == "execute_tool calculate") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(300), arrived).await.expect("the batch arrives");
    running.signal("KILL");
    running.unread().await;
    let (spans, _) = collector.spans();
    one(&spans, "execute_tool calculate");
    // A span is exported when it closes, and these never did.
    assert!(
        !spans.iter().any(|span| ["run react", "superstep run"].contains(&span.name.as_str())),
        "{spans:?}"
    );
}

#[tokio::test]
async fn programs_of_ones_own_export_under_their_name_and_failures_have_a_status() {
    let (place, collector) = (Place::new(), Collector::start().await);
    let mut command = place.own_command(&["run", "digest", "--thread", "d"]);
    ended(command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.address)).await.ok();
    let (spans, services) = collector.spans();
    assert_eq!(one(&spans, "run digest").1, "own_program run");
    assert!(services.iter().all(|service| service == "own_program"), "{services:?}");
    let server = serve([superstep_testing::script::http(400, &[], r#"{"error":{"message":"no"}}"#)]).await;
    let mut command =
        place.command(&["run", "x", "--base-url", &server.base_url(), "--model", "m", "--thread", "t"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.address).env("OTEL_SERVICE_NAME", "named");
    let ran = ended(&mut command).await;
    assert_ne!(ran.code, Some(0), "{ran:?}");
    let (spans, services) = collector.spans();
    assert_eq!(services.last().map(String::as_str), Some("named"));
    let (chat, _) = one(&spans, "chat m");
    assert_eq!(text(&chat.attributes, "error.type").as_deref(), Some("bad_request"));
    assert_eq!(chat.status.as_ref().map(|status| status.code), Some(2), "{:?}", chat.status);
}

#[tokio::test]
async fn a_collector_that_refuses_and_settings_that_are_wrong_are_named_and_stop_no_run() {
    let place = Place::new();
    let run = |thread| place.command(&["run", "2+2", "--model", "offline", "-q", "--thread", thread]);
    let refusing = Collector::replying("404 Not Found").await;
    let nowhere = &refusing.address;
    let ran = ended(run("a").env("OTEL_EXPORTER_OTLP_ENDPOINT", nowhere)).await.ok();
    assert!(ran.stdout.starts_with("2+2 = 4"), "{ran:?}");
    assert!(ran.stderr.contains("the last traces or metrics could not be exported"), "{ran:?}");
    let mut grpc = run("b");
    grpc.env("OTEL_EXPORTER_OTLP_ENDPOINT", nowhere).env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let ran = ended(&mut grpc).await.ok();
    let wanted = "traces and metrics are not exported: `OTEL_EXPORTER_OTLP_PROTOCOL` is `grpc`";
    assert!(ran.stdout.starts_with("2+2 = 4") && ran.stderr.contains(wanted), "{ran:?}");
    let mut off = run("c");
    off.env("OTEL_EXPORTER_OTLP_ENDPOINT", nowhere).env("OTEL_SDK_DISABLED", "true");
    let ran = ended(&mut off).await.ok();
    assert_eq!(ran.stderr, "");
}

#[tokio::test]
async fn the_turn_of_a_prompt_is_a_part_of_the_trace_of_its_editor() {
    let (place, collector) = (Place::new(), Collector::start().await);
    let server = serve([txt("four")]).await;
    let url = server.base_url();
    let mut command = place.command(&["acp", "--no-memory", "--base-url", &url, "--model", "m"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.address);
    let mut editor = Editor::with(command, json!({})).await;
    let session = editor.new_session(&place).await;
    let meta = json!({ "traceparent": format!("00-{TRACE}-00f067aa0ba902b7-01") });
    let prompt = json!([{ "type": "text", "text": "2 + 2?" }]);
    let prompt = json!({ "sessionId": session, "prompt": prompt, "_meta": meta });
    let id = editor.request("session/prompt", prompt).await;
    assert_eq!(editor.turn(id, &[]).await.text(), "four");
    assert_eq!(editor.end().await.code, Some(0));
    let (spans, _) = collector.spans();
    let (request, _) = one(&spans, "request");
    assert_eq!(
        (hex(&request.trace_id).as_str(), hex(&request.parent_span_id).as_str()),
        (TRACE, "00f067aa0ba902b7")
    );
    let (run, of_run) = one(&spans, "run react");
    assert_eq!((hex(&run.trace_id).as_str(), of_run), (TRACE, "request"));
}
