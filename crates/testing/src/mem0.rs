//! A Mem0 server on loopback, implemented from the documentation of both forms.
//!
//! Start at [`Mem0Server`].

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::{
    loopback::Loopback,
    wire::{Received, receive},
};

/// The two kinds of Mem0 servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mem0Kind {
    /// The platform, version 3: a memory can be found after the second request for the status of its event.
    Hosted,
    /// The open-source server.
    SelfHosted,
}

/// A Mem0 server on a free loopback port, until it is dropped.
///
/// It has no model: each message of a user becomes a memory as it is, and the score of a memory is its share
/// of the query's words. Otherwise it is as strict and as lenient as Mem0: it requires the key, rejects the
/// requests that either form rejects, treats `*` in a filter as any user, trims user ids, and does not
/// deduplicate.
#[derive(Debug)]
pub struct Mem0Server {
    server: Loopback,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    kind: Mem0Kind,
    key: String,
    received: Vec<Received>,
    memories: Vec<Memory>,
    /// Pending memories, with the number of status requests for their events.
    events: BTreeMap<String, (u32, Vec<Memory>)>,
    ids: u32,
    fails: bool,
}

#[derive(Clone, Debug)]
struct Memory {
    id: String,
    user_id: String,
    text: String,
    metadata: Value,
}

/// A status and a body.
type Reply = (u16, Value);

impl Mem0Server {
    /// Starts a server that requires `key`; an empty one disables the check.
    ///
    /// # Errors
    /// If no loopback port is free.
    pub async fn start(kind: Mem0Kind, key: &str) -> io::Result<Self> {
        let state = Arc::new(Mutex::new(State {
            kind,
            key: key.to_owned(),
            received: Vec::new(),
            memories: Vec::new(),
            events: BTreeMap::new(),
            ids: 0,
            fails: false,
        }));
        let shared = state.clone();
        let server = Loopback::start(move |connection| serve(connection, shared.clone())).await?;
        Ok(Self { server, state })
    }

    /// Returns its address, as in `http://127.0.0.1:4711`.
    pub fn base_url(&self) -> String {
        self.server.url()
    }

    /// Returns all requests so far.
    pub fn received(&self) -> Vec<Received> {
        self.state().received.clone()
    }

    /// Returns the stored memories, each with its user.
    pub fn memories(&self) -> Vec<(String, String)> {
        self.state().memories.iter().map(|memory| (memory.user_id.clone(), memory.text.clone())).collect()
    }

    /// Sets whether its model fails from now on.
    pub fn fail(&self, fails: bool) {
        self.state().fails = fails;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(mut connection: TcpStream, state: Arc<Mutex<State>>) -> io::Result<()> {
    let Some(received) = receive(&mut connection).await? else { return Ok(()) };
    let (status, body) = {
        let mut state = lock(&state);
        state.received.push(received.clone());
        state.answer(&received)
    };
    let body = if status == 204 { String::new() } else { body.to_string() };
    let answer = format!(
        "HTTP/1.1 {status} Scripted\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.write_all(answer.as_bytes()).await?;
    connection.shutdown().await
}

fn refused(status: u16, why: &str) -> Reply {
    (status, json!({ "detail": why }))
}

impl State {
    fn answer(&mut self, received: &Received) -> Reply {
        let shown = match self.kind {
            Mem0Kind::Hosted => {
                received.headers.get("authorization").and_then(|text| text.strip_prefix("Token "))
            }
            Mem0Kind::SelfHosted => received.headers.get("x-api-key").map(String::as_str),
        };
        if shown.unwrap_or_default() != self.key {
            return refused(401, "Invalid API key.");
        }
        let (method, target) = received.line.split_once(' ').unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        let body = &received.body;
        match (self.kind, method, segments.as_slice()) {
            (Mem0Kind::Hosted, "POST", ["v3", "memories", "add"]) => self.promise(body),
            (Mem0Kind::Hosted, "GET", ["v1", "event", id]) => self.event(id),
            (Mem0Kind::Hosted, "POST", ["v3", "memories", "search"]) => self.search(body),
            (Mem0Kind::Hosted, "POST", ["v3", "memories"]) => self.page(body, query),
            (Mem0Kind::SelfHosted, "POST", ["memories"]) => self.store(body),
            (Mem0Kind::SelfHosted, "POST", ["search"]) => self.search(body),
            (Mem0Kind::SelfHosted, "GET", ["memories"]) => self.list(query),
            (Mem0Kind::Hosted, _, ["v1", "memories", id]) | (Mem0Kind::SelfHosted, _, ["memories", id]) => {
                self.one(method, id)
            }
            _ => refused(404, "Not Found"),
        }
    }

    /// Returns the memories extracted from messages.
    fn made(&mut self, body: &Value) -> Result<Vec<Memory>, Reply> {
        let user_id = body["user_id"].as_str().map(str::trim).unwrap_or_default().to_owned();
        if user_id.is_empty() {
            return Err(refused(400, "At least one identifier (user_id, agent_id, run_id) is required."));
        }
        let Some(messages) = body["messages"].as_array() else {
            return Err(refused(422, "messages: Field required"));
        };
        let of_the_user = messages.iter().filter(|message| message["role"] == "user");
        let texts: Vec<_> = of_the_user.filter_map(|message| message["content"].as_str()).collect();
        let made = texts.into_iter().map(|text| {
            self.ids += 1;
            Memory {
                id: format!("mem-{}", self.ids),
                user_id: user_id.clone(),
                text: text.to_owned(),
                metadata: body["metadata"].clone(),
            }
        });
        Ok(made.collect())
    }

    fn store(&mut self, body: &Value) -> Reply {
        let made = match self.made(body) {
            Ok(made) => made,
            Err(refused) => return refused,
        };
        if self.fails {
            return refused(502, "The LLM provider is not available.");
        }
        self.memories.extend(made.iter().cloned());
        (200, json!({ "results": made.iter().map(added).collect::<Vec<_>>() }))
    }

    fn promise(&mut self, body: &Value) -> Reply {
        let made = match self.made(body) {
            Ok(made) => made,
            Err(refused) => return refused,
        };
        let id = format!("evt-{}", self.events.len() + 1);
        self.events.insert(id.clone(), (0, made));
        let message = "Memory processing has been queued for background execution";
        (200, json!({ "message": message, "status": "PENDING", "event_id": id }))
    }

    fn event(&mut self, id: &str) -> Reply {
        let Some((asked, made)) = self.events.get_mut(id) else { return refused(404, "Event not found") };
        *asked += 1;
        let (status, results) = match *asked {
            1 => ("RUNNING", Value::Null),
            _ if self.fails => ("FAILED", Value::Null),
            _ => ("SUCCEEDED", made.iter().map(added).collect()),
        };
        if *asked == 2 && !self.fails {
            self.memories.append(&mut made.clone());
        }
        (200, json!({ "id": id, "event_type": "ADD", "status": status, "results": results }))
    }

    fn search(&self, body: &Value) -> Reply {
        let (Some(query), filters) = (body["query"].as_str(), &body["filters"]) else {
            return refused(422, "query: Field required");
        };
        if self.kind == Mem0Kind::Hosted && !body["user_id"].is_null() {
            return refused(400, "Entity ids belong into filters.");
        }
        if !names_user(filters) {
            return refused(400, "filters must contain at least one of: user_id, agent_id, run_id.");
        }
        let threshold = body["threshold"].as_f64().unwrap_or(0.1);
        let most = body["top_k"].as_u64().unwrap_or(10);
        let found = self.memories.iter().filter(|memory| self.fits(memory, filters));
        let mut found: Vec<_> = found.map(|memory| (score(query, &memory.text), memory)).collect();
        found.retain(|(score, _)| *score >= threshold);
        found.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let found = found.iter().take(usize::try_from(most).unwrap_or(usize::MAX));
        let results = found.map(|(score, memory)| {
            let mut shown = shown(memory);
            shown["score"] = json!(score);
            shown
        });
        (200, json!({ "results": results.collect::<Vec<_>>() }))
    }

    fn page(&self, body: &Value, query: &str) -> Reply {
        let filters = &body["filters"];
        if !names_user(filters) {
            return refused(400, "filters must contain at least one of: user_id, agent_id, app_id, run_id.");
        }
        let number =
            |name, default| parameter(query, name).and_then(|text| text.parse().ok()).unwrap_or(default);
        let (page, size): (usize, usize) = (number("page", 1), number("page_size", 100));
        if page == 0 || !(1..=200).contains(&size) {
            return refused(400, "page or page_size is out of range");
        }
        let found: Vec<_> =
            self.memories.iter().filter(|memory| self.fits(memory, filters)).map(shown).collect();
        let next =
            (found.len() > page * size).then(|| format!("/v3/memories/?page={}&page_size={size}", page + 1));
        let results: Vec<_> = found.iter().skip((page - 1) * size).take(size).collect();
        (200, json!({ "count": found.len(), "next": next, "previous": null, "results": results }))
    }

    fn list(&self, query: &str) -> Reply {
        let Some(user_id) = parameter(query, "user_id") else {
            return refused(403, "Admin role required to list all memories.");
        };
        let most = parameter(query, "top_k").and_then(|text| text.parse().ok()).unwrap_or(100);
        let filters = json!({ "user_id": user_id });
        let found = self.memories.iter().filter(|memory| self.fits(memory, &filters)).take(most).map(shown);
        (200, json!({ "results": found.collect::<Vec<_>>() }))
    }

    fn one(&mut self, method: &str, id: &str) -> Reply {
        let at = self.memories.iter().position(|memory| memory.id == id);
        match (method, at) {
            // The open-source server returns no specific error for an unknown memory.
            ("GET", None) if self.kind == Mem0Kind::SelfHosted => (200, Value::Null),
            ("GET", Some(at)) => (200, shown(&self.memories[at])),
            ("DELETE", Some(at)) => {
                self.memories.remove(at);
                match self.kind {
                    Mem0Kind::Hosted => (204, Value::Null),
                    Mem0Kind::SelfHosted => (200, json!({ "message": "Memory deleted successfully" })),
                }
            }
            (_, None) => refused(404, "Memory not found"),
            _ => refused(405, "Method Not Allowed"),
        }
    }

    /// Returns whether a memory matches filters. Those of the platform name metadata; those of the other
    /// server mix it with other fields.
    fn fits(&self, memory: &Memory, filters: &Value) -> bool {
        let is =
            |have: &str, want: &Value| want == "*" || want.as_str().is_some_and(|want| want.trim() == have);
        let Some(filters) = filters.as_object() else { return false };
        filters.iter().all(|(name, want)| match (name.as_str(), self.kind) {
            ("user_id", _) => is(&memory.user_id, want),
            ("AND", Mem0Kind::Hosted) => {
                want.as_array().is_some_and(|all| all.iter().all(|filters| self.fits(memory, filters)))
            }
            ("metadata", Mem0Kind::Hosted) => want.as_object().is_some_and(|want| {
                want.iter().all(|(name, want)| is(memory.metadata[name].as_str().unwrap_or_default(), want))
            }),
            (_, Mem0Kind::Hosted) => false,
            (name, Mem0Kind::SelfHosted) => is(memory.metadata[name].as_str().unwrap_or_default(), want),
        })
    }
}

fn names_user(filters: &Value) -> bool {
    let inside = filters["AND"].as_array().is_some_and(|all| all.iter().any(names_user));
    filters["user_id"].as_str().is_some_and(|user_id| !user_id.trim().is_empty()) || inside
}

fn added(memory: &Memory) -> Value {
    json!({ "id": memory.id, "memory": memory.text, "event": "ADD" })
}

fn shown(memory: &Memory) -> Value {
    let Memory { id, user_id, text, metadata } = memory;
    json!({ "id": id, "memory": text, "user_id": user_id, "metadata": metadata, "created_at": "2026-01-15T10:30:00Z" })
}

/// Returns the share of the question's words that a text has.
fn score(query: &str, text: &str) -> f64 {
    let words = |text: &str| -> Vec<String> {
        text.to_lowercase()
            .split(|char: char| !char.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let (asked, has) = (words(query), words(text));
    let hits = asked.iter().filter(|word| has.contains(word)).count();
    // Few enough for any float.
    hits as f64 / asked.len().max(1) as f64
}

/// Returns one parameter of an address, decoded.
fn parameter(query: &str, name: &str) -> Option<String> {
    let pair =
        |pair: &str| pair.split_once('=').filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned());
    let value = query.split('&').find_map(pair)?;
    let mut bytes = value.bytes();
    let mut decoded = Vec::new();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        assert_eq!(parameter("a=1&user_id=x%26%C3%A9+y", "user_id").as_deref(), Some("x&é y"));
        assert_eq!(parameter("a=1", "b"), None);
        assert_eq!(parameter("a=%4", "a"), None);
    }

    #[test]
    fn a_memory_fits_by_the_words_of_the_question() {
        assert!((score("tea or coffee?", "I like Tea") - 1.0 / 3.0).abs() < 1e-9);
        assert!(score("", "I like tea").abs() < 1e-9);
    }
}
