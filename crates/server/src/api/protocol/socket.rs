//! A WebSocket with commands, their replies, and the events of its subscriptions.
//!
//! Start at [`Connection`].

use std::{sync::Arc, time::Duration};

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use serde_json::{Value, json};

use super::{
    Follower,
    commands::{self, Code, Command, Refusal},
};
use crate::{
    access::User,
    runs::hub::Hub,
    thread::{
        filter::Filter,
        log::{Read, ThreadReader},
    },
};

/// The maximum number of subscriptions of a connection.
const SUBSCRIPTIONS: usize = 64;

/// The reason of a close after which the client may come again: the server stops, or it read too slowly.
const GOING_AWAY: u16 = 1_001;

/// The time that a connection waits for more subscriptions before it replays events. Clients subscribe several times at once, and
/// end all subscriptions at the end of a run that one of them receives.
const BURST: Duration = Duration::from_millis(10);

/// A connection of one client.
pub(super) struct Connection {
    hub: Arc<Hub>,
    user: User,
    thread: String,
    /// Reads for all subscriptions but the new ones, which receive what comes before its position in a replay.
    follower: Follower,
    subscriptions: Vec<Subscription>,
    /// The number of subscriptions so far.
    subscribed: u64,
    socket: WebSocket,
}

struct Subscription {
    id: String,
    filter: Filter,
    /// The number of the first event of the replay, until it was sent.
    from: Option<u64>,
}

/// The end of a connection.
struct Closed;

impl Connection {
    pub(super) fn new(
        hub: Arc<Hub>,
        user: User,
        thread: String,
        follower: Follower,
        socket: WebSocket,
    ) -> Self {
        Self { hub, user, thread, follower, subscriptions: Vec::new(), subscribed: 0, socket }
    }

    /// Serves until one side closes.
    pub(super) async fn serve(mut self) {
        let end = self.exchange().await;
        if end.is_ok() {
            close(self.socket, CloseFrame { code: GOING_AWAY, reason: "".into() }).await;
        }
    }

    /// Returns `Ok` if this side closes.
    async fn exchange(&mut self) -> Result<(), Closed> {
        let hub = self.hub.clone();
        loop {
            let is_new = self.subscriptions.iter().any(|subscription| subscription.from.is_some());
            if !is_new {
                match self.follower.reader.read() {
                    Read::Event(event) => {
                        if self.subscriptions.iter().any(|wanted| wanted.filter.matches(&event)) {
                            self.send(event.json.clone()).await?;
                        }
                        continue;
                    }
                    Read::Lost => return Ok(()),
                    Read::Head => {}
                }
            }
            let quiet = if is_new { BURST } else { hub.limits.heartbeat };
            tokio::select! {
                () = self.follower.reader.changed(), if !is_new => {}
                () = hub.stopping.cancelled() => return Ok(()),
                () = tokio::time::sleep(quiet) => {
                    if is_new {
                        self.replay().await?;
                    } else {
                        self.socket.send(Message::Ping(Default::default())).await.map_err(|_| Closed)?;
                    }
                }
                message = self.socket.recv() => match message {
                    Some(Ok(Message::Text(text))) => self.receive(text.as_bytes()).await?,
                    Some(Ok(Message::Binary(bytes))) => self.receive(&bytes).await?,
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(Closed),
                },
            }
        }
    }

    /// Sends the new subscriptions the events before those that come: each once, in order.
    async fn replay(&mut self) -> Result<(), Closed> {
        let new: Vec<_> = self
            .subscriptions
            .iter_mut()
            .filter_map(|new| Some((new.from.take()?, new.filter.clone())))
            .collect();
        let Some(first) = new.iter().map(|(from, _)| *from).min() else { return Ok(()) };
        let mut reader = ThreadReader::new(self.follower.reader.log(), first.checked_sub(1));
        while reader.position() < self.follower.reader.position()
            && let Read::Event(event) = reader.read()
        {
            if new.iter().any(|(from, filter)| *from <= event.seq && filter.matches(&event)) {
                self.send(event.json.clone()).await?;
            }
        }
        Ok(())
    }

    async fn receive(&mut self, message: &[u8]) -> Result<(), Closed> {
        let json = serde_json::from_slice(message)
            .map_err(|error| Refusal::new(Code::InvalidArgument, format!("invalid JSON: {error}")));
        let id = json.as_ref().ok().and_then(|json: &Value| json["id"].as_u64());
        let command = match json.and_then(Command::read) {
            Ok(command) => command,
            Err(refusal) => return self.send(refusal.reply(id).to_string()).await,
        };
        let id = command.id;
        let result = match &*command.method {
            "subscription.subscribe" => self.subscribe(&command.params),
            "subscription.unsubscribe" => self.unsubscribe(&command.params),
            _ => commands::execute(&self.hub, &self.user, &self.thread, command).await,
        };
        self.send(commands::reply(id, result).to_string()).await
    }

    /// Adds a subscription, and counts the events of its replay.
    fn subscribe(&mut self, params: &Value) -> Result<Value, Refusal> {
        let filter = Filter::read(params).map_err(|problem| Refusal::new(Code::InvalidArgument, problem))?;
        if self.subscriptions.len() >= SUBSCRIPTIONS {
            let problem = format!("a connection has at most {SUBSCRIPTIONS} subscriptions; end one");
            return Err(Refusal::new(Code::InvalidArgument, problem));
        }
        let mut reader = ThreadReader::new(self.follower.reader.log(), filter.since);
        let from = reader.position();
        let mut replayed = 0;
        while reader.position() < self.follower.reader.position()
            && let Read::Event(event) = reader.read()
        {
            replayed += u64::from(filter.matches(&event));
        }
        self.subscribed += 1;
        let id = format!("sub-{}", self.subscribed);
        self.subscriptions.push(Subscription { id: id.clone(), filter, from: Some(from) });
        Ok(json!({ "subscription_id": id, "replayed_events": replayed }))
    }

    fn unsubscribe(&mut self, params: &Value) -> Result<Value, Refusal> {
        let wanted = params["subscription_id"].as_str().unwrap_or_default();
        let before = self.subscriptions.len();
        self.subscriptions.retain(|subscription| subscription.id != wanted);
        if self.subscriptions.len() == before {
            let problem = format!("no subscription `{wanted}` on this connection");
            return Err(Refusal::new(Code::NoSuchSubscription, problem));
        }
        Ok(json!({}))
    }

    async fn send(&mut self, text: String) -> Result<(), Closed> {
        self.socket.send(Message::Text(text.into())).await.map_err(|_| Closed)
    }
}

/// Closes a connection.
pub(super) async fn close(mut socket: WebSocket, frame: CloseFrame) {
    // It may be closed already.
    let _ = socket.send(Message::Close(Some(frame))).await;
}
