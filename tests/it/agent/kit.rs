//! The tools of the scenarios, which count their runs, and the person who approves their calls.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use superstep::{
    agent::{
        Approval,
        approval::{ApprovalFuture, ApprovalRequest, Approver},
        deps::{Knowledge, LongTermMemory, MemoryEntry, MemoryError, MemoryFuture, Passage},
    },
    llm::{
        Behaviour, Message, Tool, ToolCx, ToolError, ToolFuture, ToolSpec, calls::ReconcileFuture,
        tokens::TokenCounter,
    },
};

/// The environment of one run of a scenario, with its observations. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Kit(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    ran: BTreeMap<String, usize>,
    keys: Vec<(String, String)>,
    asked: Vec<ApprovalRequest>,
    asking: usize,
    notes: Vec<String>,
    remembered: Vec<(Vec<Message>, String)>,
    searched: Vec<String>,
    at_once: usize,
    most_at_once: usize,
    results: Vec<&'static str>,
    without_time: bool,
}

impl Kit {
    /// Creates a kit whose `search` returns these results, one after the other.
    pub(crate) fn new(results: &[&'static str]) -> Self {
        let results = results.iter().rev().copied().collect();
        Self(Arc::new(Mutex::new(Seen { results, ..Seen::default() })))
    }

    /// Makes `slow` count turns of the executor instead of time, which the real clock would not divide equally.
    pub(crate) fn without_time(self) -> Self {
        self.0.lock().unwrap().without_time = true;
        self
    }

    pub(crate) fn tools(&self, names: &[&'static str]) -> Vec<Arc<dyn Tool>> {
        names.iter().map(|name| Arc::new(Scripted::new(name, self.clone())) as Arc<dyn Tool>).collect()
    }

    /// Returns the number of runs of a tool.
    pub(crate) fn n(&self, tool: &str) -> usize {
        self.0.lock().unwrap().ran.get(tool).copied().unwrap_or_default()
    }

    pub(crate) fn ran(&self) -> BTreeMap<String, usize> {
        self.0.lock().unwrap().ran.clone()
    }

    /// Returns the idempotency keys of all executions, in order.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.effects().into_iter().map(|(_, key)| key).collect()
    }

    /// Returns the idempotency keys of all executions, each with its tool.
    pub(crate) fn effects(&self) -> Vec<(String, String)> {
        self.0.lock().unwrap().keys.clone()
    }

    pub(crate) fn asked(&self) -> Vec<ApprovalRequest> {
        self.0.lock().unwrap().asked.clone()
    }

    pub(crate) fn remembered(&self) -> Vec<(Vec<Message>, String)> {
        self.0.lock().unwrap().remembered.clone()
    }

    /// Returns the searches, each with its memory or knowledge.
    pub(crate) fn searched(&self) -> Vec<String> {
        let mut searched = self.0.lock().unwrap().searched.clone();
        searched.sort();
        searched
    }

    /// Records an observation of a hook.
    pub(crate) fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().notes.push(what.into());
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        self.0.lock().unwrap().notes.clone()
    }

    /// Returns the maximum number of tools that ran at the same time.
    pub(crate) fn most_at_once(&self) -> usize {
        self.0.lock().unwrap().most_at_once
    }

    fn begin(&self, tool: &str, key: String) -> Running {
        let mut seen = self.0.lock().unwrap();
        *seen.ran.entry(tool.to_owned()).or_default() += 1;
        seen.keys.push((tool.to_owned(), key));
        seen.at_once += 1;
        seen.most_at_once = seen.most_at_once.max(seen.at_once);
        Running(self.clone())
    }
}

/// A running tool, until it is dropped.
struct Running(Kit);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().at_once -= 1;
    }
}

struct Scripted {
    spec: ToolSpec,
    kit: Kit,
}

impl Scripted {
    fn new(name: &'static str, kit: Kit) -> Self {
        let (text, number) = (json!({"type": "string"}), json!({"type": "integer"}));
        let fields: Vec<(&str, Value)> = match name {
            "echo" | "slow" | "solo" | "tell" => vec![("x", text)],
            "poll" => vec![("id", text)],
            "add" => vec![("a", number.clone()), ("b", number)],
            "big" | "accents" => vec![("n", number)],
            "send" => vec![("to", text)],
            "search" | "find" => vec![("q", text)],
            "again" | "known" | "boom" | "unsure" | "hang" | "brief" | "deaf" | "late" | "fails" | "ping" => {
                vec![]
            }
            name => panic!("no scenario has a tool `{name}`"),
        };
        let required: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
        let properties: BTreeMap<&str, Value> = fields.iter().cloned().collect();
        let parameters = json!({"type": "object", "properties": properties, "required": required});
        Self { spec: ToolSpec { name: name.to_owned(), description: name.to_owned(), parameters }, kit }
    }
}

impl Tool for Scripted {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn behaviour(&self) -> Behaviour {
        let name = self.spec.name.as_str();
        Behaviour {
            exclusive: name == "solo",
            poll: name == "poll",
            answers: name == "tell",
            idempotent: name == "again",
            timeout: (name == "brief").then_some(Duration::from_millis(40)),
        }
    }

    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        let known = self.spec.name == "known" && self.kit.keys().iter().any(|seen| seen == key);
        Box::pin(async move { known.then(|| Ok("it was done".to_owned())) })
    }

    fn approval(&self, args: &Value) -> Option<String> {
        if self.spec.name == "unsure" {
            std::panic::resume_unwind(Box::new("what to ask?"));
        }
        (self.spec.name == "send").then(|| format!("Send to {}?", args["to"].as_str().unwrap_or_default()))
    }

    fn call(&self, args: Value, cx: ToolCx) -> ToolFuture<'_> {
        let (name, kit) = (self.spec.name.as_str(), self.kit.clone());
        Box::pin(async move {
            let _running = kit.begin(name, cx.idempotency_key.clone());
            let text = |field: &str| args[field].as_str().unwrap_or_default().to_owned();
            let repeat = |what: &str| what.repeat(usize::try_from(args["n"].as_u64().unwrap()).unwrap());
            let said = match name {
                "echo" => Ok(format!("r:{}", text("x"))),
                "again" if kit.n("again") > 1 => Ok("done at last".to_owned()),
                "tell" if text("x") == "fail" => Err(ToolError::failed("no luck")),
                "tell" if text("x") == "hang" => std::future::pending().await,
                "tell" => Ok(text("x")),
                "poll" => Ok("pending".to_owned()),
                "slow" | "solo" => {
                    let ms = match text("x").as_str() {
                        "a" => 300,
                        "b" => 100,
                        _ => 10,
                    };
                    let without_time = kit.0.lock().unwrap().without_time;
                    if without_time {
                        for _ in 0..ms {
                            tokio::task::yield_now().await;
                        }
                    } else {
                        tokio::time::sleep(Duration::from_millis(ms)).await;
                    }
                    Ok(format!("r:{}", text("x")))
                }
                "add" => Ok((args["a"].as_i64().unwrap() + args["b"].as_i64().unwrap()).to_string()),
                "big" => Ok(repeat("x")),
                "accents" => Ok(repeat("é")),
                "send" => Ok("sent".to_owned()),
                "ping" => Ok("pong".to_owned()),
                "search" | "find" => Ok(kit.0.lock().unwrap().results.pop().unwrap_or_default().to_owned()),
                // Unwinds like a panic, without output on the terminal.
                "boom" => std::panic::resume_unwind(Box::new("boom")),
                "fails" => Err(ToolError::failed("no luck")),
                "hang" | "brief" => {
                    cx.cancel.cancelled().await;
                    Err(ToolError::failed("cancelled"))
                }
                "late" => {
                    cx.cancel.cancelled().await;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    Ok("too late".to_owned())
                }
                _ => std::future::pending().await,
            };
            said.map(Into::into)
        })
    }
}

/// The decision of a person: `None` for no decision, ever.
pub(crate) type Decide = fn(&ApprovalRequest) -> Option<Approval>;

/// A person who approves one call at a time.
pub(crate) struct Person {
    pub(crate) kit: Kit,
    pub(crate) decide: Decide,
}

impl Approver for Person {
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> ApprovalFuture<'a> {
        Box::pin(async move {
            let asking = Asking::begin(&self.kit, request);
            tokio::time::sleep(Duration::from_millis(1)).await;
            let decision = (self.decide)(request);
            drop(asking);
            match decision {
                Some(decision) => decision,
                None => std::future::pending().await,
            }
        })
    }
}

/// A pending question, until it is answered or dropped, as by a crash.
struct Asking(Kit);

impl Asking {
    fn begin(kit: &Kit, request: &ApprovalRequest) -> Self {
        let mut seen = kit.0.lock().unwrap();
        seen.asked.push(request.clone());
        seen.asking += 1;
        let asking = seen.asking;
        drop(seen);
        let this = Self(kit.clone());
        assert_eq!(asking, 1, "a person is asked two things at once");
        this
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().asking -= 1;
    }
}

/// The behaviour of a scenario's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Works,
    Fails,
    Panics,
    Hangs,
    /// Panics when it is offered a message.
    Puzzled,
}

/// A memory, or knowledge.
pub(crate) struct Store {
    pub(crate) kit: Kit,
    pub(crate) how: Memory,
    /// The result of every search.
    pub(crate) knows: Vec<&'static str>,
}

impl Store {
    async fn look<T>(&self, query: &str, of: &str, make: impl Fn(&str) -> T) -> Result<Vec<T>, MemoryError> {
        self.kit.0.lock().unwrap().searched.push(format!("{of}: {query}"));
        match self.how {
            Memory::Works => Ok(self.knows.iter().map(|text| make(text)).collect()),
            Memory::Puzzled => std::panic::resume_unwind(Box::new("what is this?")),
            _ => self.answer().await.map(|()| Vec::new()),
        }
    }

    async fn answer(&self) -> Result<(), MemoryError> {
        match self.how {
            Memory::Works | Memory::Puzzled => Ok(()),
            Memory::Fails => Err(MemoryError("LLMError: no key".to_owned())),
            Memory::Panics => std::panic::resume_unwind(Box::new("the store is broken")),
            Memory::Hangs => std::future::pending().await,
        }
    }
}

impl Knowledge for Store {
    fn name(&self) -> &str {
        "guides"
    }

    fn search<'a>(&'a self, query: &'a str, _: usize) -> MemoryFuture<'a, Vec<Passage>> {
        let passage = |text: &str| Passage { source: "guide.md".to_owned(), text: text.to_owned() };
        Box::pin(self.look(query, "guides", passage))
    }
}

impl LongTermMemory for Store {
    fn add<'a>(
        &'a self,
        messages: Vec<Message>,
        user_id: &'a str,
        _: &'a str,
    ) -> MemoryFuture<'a, Vec<MemoryEntry>> {
        self.kit.0.lock().unwrap().remembered.push((messages, user_id.to_owned()));
        Box::pin(async move { self.answer().await.map(|()| Vec::new()) })
    }

    fn search<'a>(&'a self, query: &'a str, user: &'a str, _: usize) -> MemoryFuture<'a, Vec<MemoryEntry>> {
        let entry = |text: &str| MemoryEntry { id: text.to_owned(), text: text.to_owned(), score: None };
        Box::pin(self.look(query, user, entry))
    }

    fn list<'a>(&'a self, _: &'a str, _: usize) -> MemoryFuture<'a, Vec<MemoryEntry>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn forget<'a>(&'a self, _: &'a str, _: &'a str) -> MemoryFuture<'a, bool> {
        Box::pin(async { Ok(false) })
    }
}

/// A token counter of a scenario. Tools have no tokens.
pub(crate) struct Tokens(pub(crate) fn(&Message) -> u64);

impl TokenCounter for Tokens {
    fn text(&self, text: &str) -> u64 {
        self.0(&Message::user(text))
    }

    fn message(&self, message: &Message) -> u64 {
        self.0(message)
    }

    fn tool(&self, _: &ToolSpec) -> u64 {
        0
    }
}
