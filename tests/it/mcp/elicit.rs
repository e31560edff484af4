//! Questions of servers to the user: interrupts of the run, whose answers reach the server with the repeated
//! call.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use serde_json::{Value, json};
use superstep::{
    Checkpointer, MemoryCheckpointer, RunError, RunOptions,
    agent::{
        Agent, AgentOutcome, Approval, ReactConfig, Reply,
        approval::{ApprovalFuture, ApprovalRequest, Approver},
        config::ToolMode,
    },
    llm::{Message, Role, ToolCx},
    mcp::{Endpoint, McpConfig, McpServer},
};
use superstep_testing::{
    script::{Answer, Script, call, calls, txt},
    scripted::ScriptedModel,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::yield_now,
    time::advance,
};

use super::{
    http::request,
    notices::{allowed, told},
};

const ACCEPTED: &str = r#"{"action":"accept","content":{"account":"main"}}"#;
const AGAIN: &str = "[The tool asked the user. The call was sent 2 times, each time from its beginning.]\n";

/// A bank that asks its customers, and their threads.
struct Bank {
    folder: TempDir,
    store: Arc<MemoryCheckpointer>,
    env: Vec<(&'static str, &'static str)>,
}

impl Bank {
    fn new(env: &[(&'static str, &'static str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, store: Arc::default(), env: [&[("ASKS", "Which account?")], env].concat() }
    }

    fn file(&self, suffix: &str) -> PathBuf {
        self.folder.path().join(format!("seen{suffix}"))
    }

    fn seen(&self) -> Vec<String> {
        fs::read_to_string(self.file("")).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Waits until the server has recorded this number of calls.
    async fn gets(&self, wanted: &str, times: usize) {
        while self.seen().iter().filter(|seen| *seen == wanted).count() < times {
            yield_now().await;
        }
    }

    async fn server(&self) -> McpServer {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/it/mcp/elicit.sh");
        let mut config = McpConfig::program("sh", [script]);
        let Endpoint::Program { env, .. } = &mut config.endpoint else { unreachable!("it is a program") };
        env.insert("SEEN".into(), self.file("").to_str().unwrap().into());
        env.extend(self.env.iter().map(|(name, value)| ((*name).to_owned(), value.replace('$', "$$"))));
        McpServer::connect("bank", config).await.unwrap()
    }

    /// Creates a new process, with a server of its own, whose questions are answered by interrupts.
    async fn program(&self, answers: impl IntoIterator<Item = Answer>) -> Agent {
        agent(self.server().await, self.store.clone(), answers)
    }

    /// Runs up to the question of a call, in a process that ends there.
    async fn asked(&self) -> Reply {
        let reply = self.program([call("c1", "bank_pay", r#"{"sum":5}"#)]).await;
        reply.thread("t").ask("go").await.unwrap()
    }
}

fn agent(
    server: McpServer,
    store: Arc<dyn Checkpointer>,
    answers: impl IntoIterator<Item = Answer>,
) -> Agent {
    let model = ScriptedModel::new(Script::new(answers));
    let agent = Agent::builder(Arc::new(model)).tool_source(Arc::new(server)).approve_by_interrupt();
    let config = ReactConfig { permissions: allowed(), ..ReactConfig::graph(5) };
    let config = ReactConfig { tool_mode: ToolMode::Parallel { max: 8 }, ..config };
    agent.config(config).checkpointer(store).build().unwrap()
}

fn t() -> RunOptions {
    RunOptions::new().thread("t")
}

fn main_account() -> Approval {
    Approval::Answer(json!({"account": "main"}))
}

/// Returns the results of the calls, as the model reads them.
async fn results(agent: &Agent) -> Vec<String> {
    let messages = agent.graph().thread("t").state().await.unwrap().values.messages;
    let results = messages.iter().filter(|message: &&Message| message.role == Role::Tool);
    results.map(|message| message.content.to_string()).collect()
}

#[tokio::test]
async fn a_question_of_a_server_interrupts_the_run_and_announces_the_repeated_call() {
    let bank = Bank::new(&[]);
    let reply = bank.asked().await;
    assert_eq!(reply.outcome, AgentOutcome::AwaitingApproval);
    let [asked] = &reply.interrupts[..] else { panic!("{:?}", reply.interrupts) };
    assert_eq!(asked.key, "c1.asks.1");
    let schema = json!({"type": "object", "properties": {"account": {"type": "string", "minLength": 2}}, "required": ["account"]});
    let form = json!({"from": "MCP server `bank`", "message": "Which account?", "schema": schema});
    assert_eq!(asked.question["form"], form);
    let question = asked.question["question"].as_str().unwrap();
    let wanted = format!(
        "MCP server `bank` asks:\n  | Which account?\nAn answer has values that fit {schema}.\nThe call has been stopped. Every \
         answer, also a denial, sends it again from its beginning: bank_pay with {{\"sum\":5}}. What it did before it asked may be \
         done twice."
    );
    assert_eq!(question, wanted);
    // The call was cancelled before its question was.
    bank.gets(r#"{"action":"cancel"}"#, 1).await;
    assert_eq!(bank.seen(), ["announced", "pay", "cancelled", r#"{"action":"cancel"}"#]);
}

#[tokio::test]
async fn an_answer_reaches_the_server_in_another_process() {
    for (approval, result) in [
        (main_account(), ACCEPTED),
        (Approval::Deny("no".into()), r#"{"action":"decline"}"#),
        (Approval::Cancel, r#"{"action":"cancel"}"#),
    ] {
        let bank = Bank::new(&[]);
        let id = bank.asked().await.interrupts[0].id.clone();
        bank.gets("cancelled", 1).await;
        let next = bank.program([txt("paid")]).await;
        let reply = next.thread("t").answer(&id, approval).resume().await.unwrap();
        assert_eq!((reply.outcome, &*reply.text), (AgentOutcome::Completed, "paid"));
        assert_eq!(results(&next).await, [format!("{AGAIN}{result}")]);
        assert_eq!(bank.seen().iter().filter(|seen| *seen == "pay").count(), 2);
        assert_eq!(bank.seen().last().unwrap(), result);
        next.graph().thread("t").replay().run().await.unwrap().assert_same();
        assert_eq!(bank.seen().iter().filter(|seen| *seen == "pay").count(), 2, "a replay calls nobody");
    }
}

#[tokio::test]
async fn a_fork_of_the_checkpoint_that_asks_calls_the_server_anew_and_has_an_answer_of_its_own() {
    let bank = Bank::new(&[]);
    let asked = bank.asked().await;
    let (waits, old) = (asked.checkpoint.unwrap(), asked.interrupts[0].id.clone());
    bank.gets("cancelled", 1).await;
    let fork = bank.program([]).await.thread("t").at(waits).resume().await.unwrap();
    let new = fork.interrupts[0].id.clone();
    assert_ne!(new, old);
    bank.gets("cancelled", 2).await;
    let late = bank.program([]).await.thread("t").answer(&old, main_account()).resume().await.unwrap_err();
    assert!(matches!(late, RunError::UnknownInterrupt { .. } | RunError::ChangedQuestion(_)), "{late}");
    let next = bank.program([txt("paid")]).await;
    next.thread("t").answer(&new, main_account()).resume().await.unwrap();
    assert_eq!(results(&next).await, [format!("{AGAIN}{ACCEPTED}")]);
    // Once for each question, and once with the answer.
    assert_eq!(bank.seen().iter().filter(|seen| *seen == "pay").count(), 3);
    // The first branch still has its own question.
    let first = next.graph().thread("t").at(waits).state().await.unwrap();
    assert!(first.tasks.iter().any(|task| task.interrupts.iter().any(|asked| asked.id == old)), "{first:?}");
    next.graph().thread("t").replay().run().await.unwrap().assert_same();
}

#[tokio::test]
async fn an_invalid_answer_is_requested_again_and_not_sent() {
    let bank = Bank::new(&[]);
    bank.asked().await;
    bank.gets("cancelled", 1).await;
    let form = "the answer does not fit: ";
    for (round, approval, problem) in [
        (1, Approval::Approve, format!("{form}`account` is missing")),
        (
            2,
            Approval::Answer(json!({"account": 7})),
            format!("{form}`account`: expected string, got a number"),
        ),
        (3, Approval::Answer(json!("main")), format!("{form}expected an object, got a string")),
        (
            4,
            Approval::Always,
            "this is a question of the tool, whose call has begun: answer it, deny it or cancel it"
                .to_owned(),
        ),
    ] {
        let key = if round == 1 { "c1.asks.1".to_owned() } else { format!("c1.asks.1.{round}") };
        let reply = bank.program([]).await.thread("t").answer(&key, approval).resume().await.unwrap();
        assert_eq!(reply.outcome, AgentOutcome::AwaitingApproval);
        let asked = &reply.interrupts[0];
        assert_eq!(
            (&*asked.key, &asked.question["problem"]),
            (&*format!("c1.asks.1.{}", round + 1), &json!(problem))
        );
    }
    assert_eq!(bank.seen().iter().filter(|seen| *seen == "pay").count(), 1);
    let last = bank.program([txt("paid")]).await;
    last.thread("t").answer("c1.asks.1.5", main_account()).resume().await.unwrap();
    assert_eq!(results(&last).await, [format!("{AGAIN}{ACCEPTED}")]);
}

#[tokio::test]
async fn a_waiting_question_is_repeated_without_the_call() {
    let bank = Bank::new(&[]);
    let first = bank.asked().await.interrupts;
    bank.gets("cancelled", 1).await;
    for _ in 0..2 {
        let again = bank.program([]).await.thread("t").resume().await.unwrap();
        assert_eq!((again.outcome, &again.interrupts), (AgentOutcome::AwaitingApproval, &first));
    }
    assert_eq!(bank.seen().iter().filter(|seen| *seen == "pay").count(), 1);
}

#[tokio::test]
async fn a_call_that_is_lost_after_the_answer_is_in_doubt_and_not_sent_a_third_time() {
    let bank = Bank::new(&[]);
    bank.asked().await;
    bank.gets("cancelled", 1).await;
    fs::write(bank.file(".hang"), "").unwrap();
    let killed = bank.program([]).await;
    tokio::select! {
        ended = killed.thread("t").answer("c1.asks.1", main_account()).resume() => panic!("{ended:?}"),
        () = bank.gets(ACCEPTED, 1) => {}
    }
    drop(killed);
    let next = bank.program([txt("ok")]).await;
    next.thread("t").resume().await.unwrap();
    let [result] = &results(&next).await[..] else { panic!("one call") };
    assert!(result.starts_with("Error: the outcome of this call is unknown"), "{result}");
    assert_eq!(bank.seen().iter().filter(|seen| *seen == "pay").count(), 2);
}

#[tokio::test]
async fn a_different_question_does_not_get_the_old_answer() {
    let bank = Bank::new(&[]);
    let first = bank.asked().await.interrupts[0].id.clone();
    bank.gets("cancelled", 1).await;
    fs::write(bank.file(".asks"), "Which account, really?").unwrap();
    let program = bank.program([]).await;
    let reply = program.thread("t").answer(&first, main_account()).resume().await.unwrap();
    let asked = &reply.interrupts[0];
    assert_eq!(
        (&*asked.key, &asked.question["form"]["message"]),
        ("c1.asks.2", &json!("Which account, really?"))
    );
    assert!(!bank.seen().contains(&ACCEPTED.to_owned()), "{:?}", bank.seen());
    let late = program.thread("t").answer(&first, main_account()).resume().await.unwrap_err();
    assert!(matches!(late, RunError::UnknownInterrupt { .. }), "{late}");
    let next = bank.program([txt("paid")]).await;
    next.thread("t").answer("c1.asks.2", main_account()).resume().await.unwrap();
    assert_eq!(results(&next).await, [format!("{}{ACCEPTED}", AGAIN.replace('2', "3"))]);
}

#[tokio::test]
async fn a_server_that_asks_and_asks_is_declined_in_the_end() {
    for (env, declined) in [("MORE", 0), ("COUNTS", 0)] {
        let bank = Bank::new(&[(env, "1")]);
        let mut reply = bank.asked().await;
        let mut questions = 0;
        while reply.outcome == AgentOutcome::AwaitingApproval {
            questions += 1;
            let id = reply.interrupts[0].id.clone();
            reply = bank
                .program([txt("ok")])
                .await
                .thread("t")
                .answer(&id, main_account())
                .resume()
                .await
                .unwrap();
        }
        assert_eq!((questions, declined), (16, 0), "{env}");
        let results = results(&bank.program([]).await).await;
        assert!(results[0].ends_with(r#"{"action":"decline"}"#), "{env}: {results:?}");
        assert_eq!(bank.seen().iter().filter(|seen| *seen == "pay").count(), 17, "{env}");
    }
}

#[tokio::test]
async fn two_equal_questions_of_one_call_get_an_answer_each() {
    let bank = Bank::new(&[("AGAIN", "1")]);
    bank.asked().await;
    let second =
        bank.program([]).await.thread("t").answer("c1.asks.1", main_account()).resume().await.unwrap();
    assert_eq!(second.interrupts[0].key, "c1.asks.2");
    let last = bank.program([txt("ok")]).await;
    last.thread("t").answer("c1.asks.2", Approval::Deny(String::new())).resume().await.unwrap();
    assert!(results(&last).await[0].ends_with(r#"{"action":"decline"}"#));
}

#[tokio::test]
async fn other_calls_of_the_answer_are_finished_or_not_begun_and_run_once() {
    let bank = Bank::new(&[]);
    let round = calls([("c0", "bank_note", "{}"), ("c1", "bank_pay", "{}"), ("c2", "bank_note", "{}")]);
    let reply = bank.program([round]).await.thread("t").ask("go").await.unwrap();
    assert_eq!((reply.interrupts.len(), &*reply.interrupts[0].key), (1, "c1.asks.1"));
    let noted = || bank.seen().iter().filter(|seen| *seen == "note").count();
    assert_eq!(noted(), 1, "the one behind the question waits");
    let next = bank.program([txt("ok")]).await;
    next.thread("t").answer("c1.asks.1", main_account()).resume().await.unwrap();
    assert_eq!(results(&next).await, ["noted".to_owned(), format!("{AGAIN}{ACCEPTED}"), "noted".to_owned()]);
    assert_eq!(noted(), 2);
}

#[tokio::test]
async fn calls_that_run_side_by_side_are_sent_one_at_a_time_once_one_of_them_asks() {
    let bank = Bank::new(&[]);
    let round = calls([("c1", "bank_peek", "{}"), ("c2", "bank_wait", "{}")]);
    let reply = bank.program([round]).await.thread("t").ask("go").await.unwrap();
    let asked: Vec<_> = reply.interrupts.iter().map(|asked| &*asked.key).collect();
    assert_eq!(asked, ["c1.asks.1"], "{:?}", bank.seen());
    let question = reply.interrupts[0].question["question"].as_str().unwrap();
    assert!(question.ends_with("The tool says that repeating a call does no harm."), "{question}");
    let next = bank.program([txt("ok")]).await;
    next.thread("t").answer("c1.asks.1", main_account()).resume().await.unwrap();
    assert_eq!(results(&next).await, [format!("{AGAIN}{ACCEPTED}"), "waited".to_owned()]);
}

#[tokio::test(start_paused = true)]
async fn a_call_has_its_whole_time_after_its_wait_for_others() {
    // While a task is ready, time passes only by `advance`.
    let busy = tokio::spawn(async {
        loop {
            yield_now().await;
        }
    });
    let bank = Bank::new(&[]);
    let server = Arc::new(bank.server().await);
    let sent = |name: &str| {
        let tool = server.tools().into_iter().find(|tool| tool.spec().name == name).unwrap();
        tokio::spawn(async move { tool.call(json!({}), ToolCx::new("c")).await })
    };
    // From now on calls are sent one at a time.
    let peek = sent("bank_peek");
    bank.gets("peek", 1).await;
    let wait = sent("bank_wait");
    assert!(peek.await.unwrap().is_ok() && wait.await.unwrap().is_ok());
    // Three calls get no result in the minute that each of them has.
    fs::write(bank.file(".hang"), "").unwrap();
    let unanswered = [(); 3].map(|()| sent("bank_pay"));
    bank.gets("pay", 1).await;
    let model = ScriptedModel::new(Script::new([call("c1", "bank_note", "{}"), txt("ok")]));
    let agent = Agent::builder(Arc::new(model)).tool_source(server.clone());
    let agent = agent.config(ReactConfig { permissions: allowed(), ..ReactConfig::graph(5) });
    let agent = agent.checkpointer(bank.store.clone()).build().unwrap();
    let passes = async {
        while unanswered.iter().any(|call| !call.is_finished()) {
            advance(Duration::from_secs(1)).await;
        }
    };
    let (reply, ()) = tokio::join!(async { agent.thread("t").ask("go").await }, passes);
    assert_eq!(reply.unwrap().text, "ok");
    assert_eq!(results(&agent).await, ["noted"]);
    busy.abort();
}

#[tokio::test]
async fn questions_without_a_user_are_declined_and_reported() {
    let declined = r#"{"action":"decline"}"#;
    for (stored, why) in [
        (true, "there is no user to answer it"),
        (false, "the run is not stored, so that no answer can follow"),
    ] {
        let bank = Bank::new(&[]);
        let model = ScriptedModel::new(Script::new([call("c1", "bank_pay", "{}"), txt("ok")]));
        let agent = Agent::builder(Arc::new(model)).tool_source(Arc::new(bank.server().await));
        let agent = agent.config(ReactConfig { permissions: allowed(), ..ReactConfig::graph(5) });
        let agent = match stored {
            true => agent.checkpointer(bank.store.clone()),
            false => agent.approve_by_interrupt(),
        };
        let (agent, config) = (agent.build().unwrap(), if stored { t() } else { RunOptions::new() });
        let mut stream = agent.configured(config).stream(agent.input("go"), superstep::StreamMode::Custom);
        let mut said = String::new();
        while let Some(event) = futures::StreamExt::next(&mut stream).await {
            if let superstep::Event::Custom { data, .. } = event {
                said.push_str(data["chunk"].as_str().unwrap_or_default());
            }
        }
        // The question is a value of the server's configuration.
        let wanted = format!("[warning] the server asks the user, which is declined ({why}): $ASKS\n");
        assert_eq!(said, wanted);
        assert_eq!(bank.seen().last().unwrap(), declined);
    }
}

#[tokio::test]
async fn unsupported_forms_are_declined_or_rejected_with_a_reason() {
    let warning = "[warning] the server asks the user, which is";
    let long = format!(
        r#"{{"message":"{}","requestedSchema":{{"type":"object","properties":{{}}}}}}"#,
        "x".repeat(17_000)
    );
    for (params, result, said) in [
        (
            r#"{"mode":"url","message":"Sign in","url":"https://example.com","elicitationId":"1"}"#,
            r#"{"action":"decline"}"#,
            "declined (it wants a web page visited, which is not supported): Sign in\n",
        ),
        (
            r#"{"message":"Which?","requestedSchema":{"type":"array"}}"#,
            "its `requestedSchema` is not an object of texts, numbers, truth values and choices",
            "refused: its `requestedSchema` is not an object of texts, numbers, truth values and choices\n",
        ),
        (&long, r#"{"action":"decline"}"#, "declined (it has 17033 bytes, of 16384 at most): xxxx"),
    ] {
        let mut bank = Bank::new(&[]);
        bank.env.push(("PARAMS", String::leak(params.to_owned())));
        let server = bank.server().await;
        let (text, told) = told(&server, "bank_pay").await;
        assert_eq!(text, result);
        assert!(told.len() == 1 && told[0].starts_with(&format!("{warning} {said}")), "{told:?}");
    }
}

/// A user whose first answer does not match.
struct Here;

impl Approver for Here {
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> ApprovalFuture<'a> {
        let account = if request.problem.is_none() { "m" } else { "main" };
        Box::pin(async move { Approval::Answer(json!({ "account": account })) })
    }
}

#[tokio::test]
async fn an_approver_answers_at_once() {
    let bank = Bank::new(&[]);
    let model = ScriptedModel::new(Script::new([call("c1", "bank_pay", "{}"), txt("ok")]));
    let agent = Agent::builder(Arc::new(model)).tool_source(Arc::new(bank.server().await));
    let agent = agent.config(ReactConfig { permissions: allowed(), ..ReactConfig::graph(5) });
    let agent = agent.approver(Arc::new(Here)).build().unwrap();
    let reply = agent.ask("go").await.unwrap();
    assert_eq!((&*reply.text, bank.seen().last().unwrap().as_str()), ("ok", ACCEPTED));
}

/// Starts a bank at an address, which records the answers that it receives.
async fn far() -> (String, watch::Receiver<Vec<Value>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let (notes, answers) = watch::channel(Vec::new());
    let notes = Arc::new(notes);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, notes.clone()));
        }
    });
    (url, answers)
}

async fn serve(stream: TcpStream, notes: Arc<watch::Sender<Vec<Value>>>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some((_, body)) = request(&mut stream).await {
        let Ok(body) = serde_json::from_slice::<Value>(&body) else {
            stream.write_all(b"HTTP/1.1 405 no\r\ncontent-length: 0\r\n\r\n").await?;
            continue;
        };
        let id = &body["id"];
        let result = match body["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "far", "version": "1"},
            }),
            Some("tools/list") => json!({"tools": [{"name": "pay", "inputSchema": {"type": "object"}}]}),
            Some("tools/call") => {
                let mut answers = notes.subscribe();
                let question =
                    json!({"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}});
                let asks =
                    json!({"jsonrpc": "2.0", "id": 9, "method": "elicitation/create", "params": question});
                let head = "HTTP/1.1 200 yes\r\nconnection: close\r\ncontent-type: text/event-stream\r\n\r\n";
                stream.write_all(format!("{head}data: {asks}\n\n").as_bytes()).await?;
                if answers.changed().await.is_err() {
                    return Ok(());
                }
                let answer = answers.borrow().last().cloned();
                let result = json!({"content": [], "structuredContent": answer});
                let result = json!({"jsonrpc": "2.0", "id": id, "result": result});
                return stream.write_all(format!("data: {result}\n\n").as_bytes()).await;
            }
            Some(_) => Value::Null,
            None => {
                notes.send_modify(|notes| notes.push(body["result"].clone()));
                Value::Null
            }
        };
        let response = match result {
            Value::Null => "HTTP/1.1 202 yes\r\ncontent-length: 0\r\n\r\n".to_owned(),
            result => {
                let body = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
                let length = body.len();
                format!(
                    "HTTP/1.1 200 yes\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
                )
            }
        };
        stream.write_all(response.as_bytes()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_address_asks_and_is_answered_like_a_program() {
    for (approval, result) in [
        (Approval::Approve, r#"{"action":"accept","content":{}}"#),
        (Approval::Deny("no".into()), r#"{"action":"decline"}"#),
        (Approval::Cancel, r#"{"action":"cancel"}"#),
    ] {
        let (url, answers) = far().await;
        let store = Arc::new(MemoryCheckpointer::new());
        let program = async |script: Answer| {
            let server = McpServer::connect("far", McpConfig::http(url.clone())).await.unwrap();
            agent(server, store.clone(), [script])
        };
        let first = program(call("c1", "far_pay", "{}")).await;
        let reply = first.thread("t").ask("go").await.unwrap();
        assert_eq!(reply.interrupts[0].question["form"]["from"], "MCP server `far`");
        // The abandoned question gets no answer.
        answers.clone().wait_for(|answers| *answers == [json!({"action": "cancel"})]).await.unwrap();
        drop(first);
        let next = program(txt("ok")).await;
        next.thread("t").answer(&reply.interrupts[0].id, approval).resume().await.unwrap();
        assert_eq!(results(&next).await, [format!("{AGAIN}{result}")]);
    }
}
