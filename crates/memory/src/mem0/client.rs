//! A memory backed by a Mem0 server.
//!
//! Start at [`Mem0`].

use std::{collections::BTreeSet, fmt, time::Duration};

use reqwest::{Client, RequestBuilder, Response, StatusCode, Url, header};
use serde_json::{Value, json};
use superstep_agent::deps::{LongTermMemory, MemoryEntry, MemoryError, MemoryFuture};
use superstep_llm::{
    Message, Role,
    http::{base_url, client, root_cause},
    timers::check_timers,
    wire::excerpt,
};
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    answer::{self, Added, Event},
    config::{Mem0Config, Mem0ConfigError, Mem0Form},
    wire::{Call, MAX_FOUND, MAX_PAGE_ITEMS, is_id, name},
};

/// Maximum number of message bytes sent to be stored.
const MAX_SENT_BYTES: usize = 256 << 10;
/// Maximum number of bytes read of a response: a thousand entries.
const MAX_READ_BYTES: usize = 4 << 20;
/// Maximum number of bytes read of an error response.
const MAX_REFUSAL_BYTES: usize = 16 << 10;
const CONNECT: Duration = Duration::from_secs(10);

/// A [`LongTermMemory`] on a Mem0 server, hosted or self-hosted; see [`Mem0Config`].
///
/// Mem0's own model makes short sentences of each message, several or none ([`Mem0Config::infer`]);
/// [`add`](LongTermMemory::add) returns these. Mem0 does not deduplicate. Each memory's metadata therefore
/// has its key, and `add` searches for that key first. Two programs that add under the same key at the same
/// moment still store two, and so does a repetition after a crash while the hosted form still processes the
/// first one.
///
/// Every request is sent once, because callers wait for a few seconds at most; a rejected message is reported
/// as `memory_failed`.
/// # Users
/// A user id is sent unchanged, except for characters that Mem0 would interpret: spaces, which it
/// trims, `*`, which means everybody, control characters and `%` are sent as `%20`, `%2A` and so on. A memory
/// of another user in a response is an error.
/// # Errors
/// The server's message, truncated and without the key. A failure of its own model is an error,
/// too, if the server reports it.
#[derive(Clone)]
pub struct Mem0 {
    config: Mem0Config,
    base: Url,
    http: Client,
}

impl Mem0 {
    /// Checks `config` and creates the client without connecting.
    ///
    /// # Errors
    /// [`Mem0ConfigError`] for an invalid address, key or threshold.
    pub fn new(config: Mem0Config) -> Result<Self, Mem0ConfigError> {
        let base = base_url(&config.base_url).map_err(|problem| Mem0ConfigError::BaseUrl { problem })?;
        config.check()?;
        let http = client(&base, CONNECT).map_err(Mem0ConfigError::Client)?;
        Ok(Self { config, base, http })
    }

    async fn remember(
        &self,
        messages: &[Message],
        user_id: &str,
        key: &str,
    ) -> Result<Vec<MemoryEntry>, String> {
        let form = self.config.form;
        let (messages, first) = readable(messages)?;
        let Some(first) = first else { return Ok(Vec::new()) };
        let (user_id, key) = (name(user_id), name(key));
        let answer = self.send(form.under_key(&first, &user_id, &key)).await?;
        let under_key = answer::found_under(&key, &answer, &user_id)?;
        if !under_key.is_empty() {
            return Ok(under_key);
        }
        let answer = self.send(form.add(&messages, &user_id, &key, self.config.infer)).await?;
        let Added { mut entries, events } = answer::added(&answer)?;
        let patience = after(self.config.settle);
        for event in events {
            entries.extend(self.settled(&event, patience).await?);
        }
        Ok(entries)
    }

    /// Waits for the result of messages that the server processes asynchronously.
    // The hosted platform responds at once that the messages are queued. Without waiting, a failure of its model
    // would be reported as a success, and the stored entries could not be reported at all.
    async fn settled(&self, event: &str, patience: Instant) -> Result<Vec<MemoryEntry>, String> {
        let unknown = |why: String| format!("it received the messages, but the result is unknown: {why}");
        loop {
            let answer = self.send(Mem0Form::event(event)).await.map_err(unknown)?;
            match answer::event(&answer).map_err(unknown)? {
                Event::Stored(entries) => return Ok(entries),
                Event::Failed(why) => return Err(format!("it could not store the messages: {why}")),
                Event::Running if after(self.config.poll) > patience => {
                    let waited = self.config.settle.as_millis();
                    return Err(unknown(format!("its event `{event}` has not ended after {waited} ms")));
                }
                Event::Running => sleep(self.config.poll).await,
            }
        }
    }

    async fn look(&self, query: &str, user_id: &str, limit: usize) -> Result<Vec<MemoryEntry>, String> {
        let limit = limit.min(self.config.top_k).min(MAX_FOUND);
        if limit == 0 || query.trim().is_empty() {
            return Ok(Vec::new());
        }
        let user_id = name(user_id);
        let call = self.config.form.search(query, &user_id, limit, self.config.threshold);
        let mut entries = answer::found(&self.send(call).await?, &user_id)?;
        let mut seen = BTreeSet::new();
        entries.retain(|entry| seen.insert(entry.text.clone()));
        entries.truncate(limit);
        Ok(entries)
    }

    async fn all(&self, user_id: &str, limit: usize) -> Result<Vec<MemoryEntry>, String> {
        let (user_id, limit) = (name(user_id), limit.min(MAX_FOUND));
        let mut entries = Vec::new();
        for page in 1..=limit.div_ceil(MAX_PAGE_ITEMS) {
            let answer = self.send(self.config.form.list(&user_id, page, limit)).await?;
            entries.extend(answer::found(&answer, &user_id)?);
            // A self-hosted server returns all entries at once, without a next page.
            if entries.len() >= limit || answer["next"].is_null() {
                break;
            }
        }
        entries.truncate(limit);
        Ok(entries)
    }

    /// Deletes a memory after checking its owner, because Mem0 does not check it.
    async fn lose(&self, id: &str, user_id: &str) -> Result<bool, String> {
        let (user_id, form) = (name(user_id), self.config.form);
        if !is_id(id) {
            return Ok(false);
        }
        let Some(memory) = self.send_to_one(form.get(id)).await? else { return Ok(false) };
        if memory["user_id"] != *user_id {
            return Ok(false);
        }
        Ok(self.send_to_one(form.delete(id)).await?.is_some())
    }

    fn request(&self, call: Call) -> RequestBuilder {
        let request = self.http.request(call.method.clone(), call.url(&self.base));
        let request = request.header(header::ACCEPT, "application/json");
        let key = self.config.api_key.reveal();
        let request = match self.config.form {
            Mem0Form::Hosted => request.header(header::AUTHORIZATION, format!("Token {key}")),
            Mem0Form::SelfHosted if key.is_empty() => request,
            Mem0Form::SelfHosted => request.header("x-api-key", key),
        };
        match call.body {
            Some(body) => request.header(header::CONTENT_TYPE, "application/json").body(body.to_string()),
            None => request,
        }
    }

    async fn send(&self, call: Call) -> Result<Value, String> {
        let (status, said) = self.exchange(call).await?;
        if !status.is_success() {
            return Err(refusal(status, &said));
        }
        serde_json::from_str(&said).map_err(|_| format!("its answer is not valid JSON: {}", excerpt(&said)))
    }

    /// Sends a request about one memory; `None` if it does not exist. A deletion may have an empty response.
    async fn send_to_one(&self, call: Call) -> Result<Option<Value>, String> {
        let (status, said) = self.exchange(call).await?;
        match status {
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::NO_CONTENT => Ok(Some(json!({}))),
            status if !status.is_success() => Err(refusal(status, &said)),
            _ => serde_json::from_str(&said)
                .map_err(|_| format!("its answer is not valid JSON: {}", excerpt(&said))),
        }
    }

    /// Sends a request once. The key is removed from the response before it is truncated.
    async fn exchange(&self, call: Call) -> Result<(StatusCode, String), String> {
        check_timers().map_err(|error| error.to_string())?;
        let patience = after(self.config.timeout);
        let late = || format!("it sent no whole answer within {} ms", self.config.timeout.as_millis());
        let response = match timeout_at(patience, self.request(call).send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(format!("no connection: {}", root_cause(&error))),
            Err(_) => return Err(late()),
        };
        let (status, mut body) = (response.status(), Vec::new());
        if status.is_success() {
            timeout_at(patience, read(response, MAX_READ_BYTES, &mut body)).await.map_err(|_| late())??;
        } else {
            // A body that breaks off, stalls or never ends is an error response already.
            let _ = timeout_at(patience, read(response, MAX_REFUSAL_BYTES, &mut body)).await;
        }
        Ok((status, self.config.api_key.hide_in(String::from_utf8_lossy(&body).into_owned())))
    }

    async fn reported<T>(&self, doing: impl Future<Output = Result<T, String>>) -> Result<T, MemoryError> {
        doing.await.map_err(|problem| self.error(problem))
    }

    /// Returns the error of a request, with the server's address and without the key.
    fn error(&self, problem: String) -> MemoryError {
        let base = self.base.as_str().trim_end_matches('/');
        MemoryError(self.config.api_key.hide_in(format!("the Mem0 server `{base}`: {problem}")))
    }
}

impl LongTermMemory for Mem0 {
    fn add<'a>(
        &'a self,
        messages: Vec<Message>,
        user_id: &'a str,
        key: &'a str,
    ) -> MemoryFuture<'a, Vec<MemoryEntry>> {
        Box::pin(async move { self.reported(self.remember(&messages, user_id, key)).await })
    }

    fn search<'a>(
        &'a self,
        query: &'a str,
        user_id: &'a str,
        limit: usize,
    ) -> MemoryFuture<'a, Vec<MemoryEntry>> {
        Box::pin(self.reported(self.look(query, user_id, limit)))
    }

    fn list<'a>(&'a self, user_id: &'a str, limit: usize) -> MemoryFuture<'a, Vec<MemoryEntry>> {
        Box::pin(self.reported(self.all(user_id, limit)))
    }

    fn forget<'a>(&'a self, id: &'a str, user_id: &'a str) -> MemoryFuture<'a, bool> {
        Box::pin(self.reported(self.lose(id, user_id)))
    }
}

impl fmt::Debug for Mem0 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mem0").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Returns a deadline, saturating for very long times.
fn after(time: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    Instant::now() + time.min(YEAR)
}

/// Converts the user's and the model's messages to Mem0's format, and returns the first text.
fn readable(messages: &[Message]) -> Result<(Vec<Value>, Option<String>), String> {
    let readable: Vec<_> = messages
        .iter()
        .filter(|message| matches!(message.role, Role::User | Role::Assistant))
        .filter(|message| !message.content.trim().is_empty())
        .collect();
    let bytes: usize = readable.iter().map(|message| message.content.len()).sum();
    if bytes > MAX_SENT_BYTES {
        return Err(format!(
            "it is not sent messages of {bytes} bytes: more than {MAX_SENT_BYTES} are not to be remembered at once"
        ));
    }
    let wire = readable.iter().map(|message| json!({ "role": message.role, "content": message.content }));
    Ok((wire.collect(), readable.first().map(|message| message.content.clone())))
}

fn refusal(status: StatusCode, said: &str) -> String {
    let hint = match status.as_u16() {
        300..=399 => {
            "; it redirects elsewhere, which a request with a key does not follow: correct the base URL"
        }
        401 | 403 => "; is the key the one of this server?",
        404 => "; is the base URL right, and the form that of this server?",
        _ => "",
    };
    let said = excerpt(said);
    let separator = if said.is_empty() { "" } else { ": " };
    format!("it answered {}{separator}{said}{hint}", status.as_u16())
}

/// Reads a body, or its beginning and the problem with the rest.
async fn read(mut response: Response, most: usize, body: &mut Vec<u8>) -> Result<(), String> {
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| format!("the connection broke in its answer: {}", root_cause(&error)))?
    {
        let room = most - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            return Err(format!("its answer is longer than {most} bytes"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_limited_to_supported_fields_and_sizes() {
        let messages = [Message::user("I like tea"), Message::tool("c1", "r"), Message::assistant(" ")];
        let (wire, first) = readable(&messages).unwrap();
        assert_eq!(json!(wire), json!([{"role": "user", "content": "I like tea"}]));
        assert_eq!(first.as_deref(), Some("I like tea"));
        assert_eq!(readable(&messages[1..]).unwrap(), (Vec::new(), None));
        let much = [Message::user("é".repeat(MAX_SENT_BYTES / 2)), Message::user("!")];
        assert!(readable(&much).unwrap_err().contains("messages of 262145 bytes"));
        assert!(readable(&much[..1]).is_ok());
    }
}
