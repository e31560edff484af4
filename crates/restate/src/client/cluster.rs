//! The threads of a namespace over HTTP.
//!
//! Start at [`Cluster`].

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, future::BoxFuture, stream};
use serde_json::{Value, json};
use superstep_checkpoint::{
    CheckpointError, CheckpointMeta, History, Lease, ThreadId,
    internal::{SEPARATOR, leftovers},
};
use tokio::time::{Instant, MissedTickBehavior};

use crate::{
    client::{
        background::Background,
        http::{CallError, Http, failed},
        unique,
    },
    keys::{HEAD, NAME, is_beside},
    names::{Names, object_key},
    remote::{Entries, Remote, read},
    request::{Reply, Request},
    requests::{Names as ThreadNames, Objects},
    wire::{Copy, Token, Write, entries_of, keys_of, values_of, written_of},
};

/// The time after which the lease of a program that does not renew it may be taken over.
const LEASE: Duration = Duration::from_secs(15);

/// The wait for a lease behind other work on the thread: a run is not waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// The wait for a lease that another program has, in which the release of a run that has just ended reaches the cluster.
const RELEASE: Duration = Duration::from_millis(300);

/// The pause between two attempts at such a lease.
const PAUSE: Duration = Duration::from_millis(20);

/// The number of threads whose heads are read at a time.
const READERS: usize = 16;

/// The threads of a namespace.
pub(super) struct Cluster {
    shared: Arc<Shared>,
    background: Arc<Background>,
}

struct Shared {
    http: Http,
    names: Names,
    /// The name of this opening, which no other has.
    owner: String,
    count: AtomicU64,
    /// The tokens of the leases of this opening.
    leases: Mutex<BTreeMap<ThreadId, String>>,
}

impl Cluster {
    pub(super) fn open(http: Http, names: Names) -> Result<Self, CheckpointError> {
        let shared = Arc::new(Shared {
            http,
            names,
            owner: unique()?,
            count: AtomicU64::new(0),
            leases: Mutex::default(),
        });
        let background = Background::start().map_err(|cause| {
            failed("the requests to Restate have no OS thread".to_owned(), Some(cause.into()))
        })?;
        let weak = Arc::downgrade(&shared);
        background.spawn(async move {
            let mut ticks = tokio::time::interval(LEASE / 3);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let Some(shared) = weak.upgrade() else { return };
                // A lease that is not renewed may be taken over; writes find out.
                let _ = tokio::time::timeout(LEASE / 3, shared.renew()).await;
            }
        });
        Ok(Self { shared, background: Arc::new(background) })
    }

    /// Completes a request even if the caller is gone.
    fn run<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, CheckpointError>> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, CheckpointError>> {
        let background = self.background.clone();
        Box::pin(async move {
            background
                .run(request)
                .await
                .unwrap_or_else(|| Err(failed("a request panicked".to_owned(), None)))
        })
    }
}

impl Objects for Cluster {
    fn serve(&self, request: Request) -> BoxFuture<'static, Result<Reply, CheckpointError>> {
        let shared = self.shared.clone();
        self.run(async move { shared.serve(request).await })
    }

    fn lease(&self, thread: &ThreadId) -> BoxFuture<'static, Result<Lease, CheckpointError>> {
        let (shared, background, thread) = (self.shared.clone(), self.background.clone(), thread.clone());
        self.run(async move {
            let token = shared.unique();
            {
                let mut leases = shared.leases();
                if leases.contains_key(&thread) {
                    return Err(CheckpointError::Busy { thread });
                }
                leases.insert(thread.clone(), token.clone());
            }
            // Dropped, it releases the lease, even one that is granted later.
            let guard = Guard { shared: shared.clone(), background, thread: thread.clone(), token };
            match tokio::time::timeout(PATIENCE, shared.lease(&thread, &guard.token)).await {
                Ok(leased) => leased.map(|()| Lease::new(guard)),
                Err(_) => Err(CheckpointError::Busy { thread }),
            }
        })
    }

    fn has_writer(&self, thread: &ThreadId) -> BoxFuture<'static, Result<bool, CheckpointError>> {
        let (shared, thread) = (self.shared.clone(), thread.clone());
        self.run(async move {
            if shared.leases().contains_key(&thread) {
                return Ok(true);
            }
            let owner = serde_json::to_vec(&shared.owner).expect("a text is JSON");
            let has = shared.call(&shared.names.thread, &thread, "writer", None, owner).await?;
            Ok(&*has == b"true")
        })
    }

    fn copy(&self, from: &ThreadId, to: &ThreadId) -> BoxFuture<'static, Result<(), CheckpointError>> {
        let (shared, from, to) = (self.shared.clone(), from.clone(), to.clone());
        self.run(async move {
            if from.is_child() || to.is_child() {
                return Err(CheckpointError::NoThread { thread: from });
            }
            let body = serde_json::to_vec(&Copy { from, to: to.clone() }).expect("names are JSON");
            let id = shared.unique();
            written_of(&to, &shared.call(&shared.names.thread, &to, "copy", Some(&id), body).await?).map(drop)
        })
    }

    fn names(&self) -> BoxFuture<'static, Result<ThreadNames, CheckpointError>> {
        let shared = self.shared.clone();
        self.run(async move { shared.thread_names().await })
    }

    fn heads(&self) -> BoxFuture<'static, Result<Vec<(ThreadId, CheckpointMeta)>, CheckpointError>> {
        let shared = self.shared.clone();
        self.run(async move {
            let names = shared.thread_names().await?.threads;
            let newest = |thread: ThreadId| {
                let shared = shared.clone();
                async move {
                    let range = History { limit: Some(1), ..History::default() }.into();
                    let request = Request::History { thread: thread.clone(), range };
                    let Reply::History(found) = shared.serve(request).await? else { return Ok(None) };
                    Ok::<_, CheckpointError>(found.into_iter().next().map(|head| (thread, head)))
                }
            };
            let heads = stream::iter(names).map(newest).buffered(READERS);
            heads.try_filter_map(|head| std::future::ready(Ok(head))).try_collect().await
        })
    }
}

impl Shared {
    fn leases(&self) -> MutexGuard<'_, BTreeMap<ThreadId, String>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unique(&self) -> String {
        format!("{}.{}", self.owner, self.count.fetch_add(1, Ordering::Relaxed))
    }

    async fn call(
        &self,
        object: &str,
        thread: &ThreadId,
        handler: &str,
        id: Option<&str>,
        body: Vec<u8>,
    ) -> Result<Bytes, CallError> {
        self.http.call((object, &object_key(&thread.root()), handler), id, body).await
    }

    async fn serve(&self, request: Request) -> Result<Reply, CheckpointError> {
        let thread = request.thread().clone();
        let object = if is_beside(&thread) { &self.names.beside } else { &self.names.thread };
        if request.is_read() {
            let reply = self.read(object, &request).await?;
            return match (reply, &request) {
                (Reply::Threads(mut found), Request::Children { .. }) if !is_beside(&thread) => {
                    if let Reply::Threads(others) = self.read(&self.names.beside, &request).await? {
                        found.extend(others);
                    }
                    found.sort_unstable();
                    Ok(Reply::Threads(found))
                }
                (reply, _) => Ok(reply),
            };
        }
        request.encode()?;
        let token = self.leases().get(&thread.root()).filter(|_| !is_beside(&thread)).cloned();
        let body = Write { token, request }.encode();
        written_of(&thread, &self.call(object, &thread, "write", Some(&self.unique()), body).await?)
    }

    async fn read(&self, object: &str, request: &Request) -> Result<Reply, CheckpointError> {
        let mut object_of_thread = Object { shared: self, object, thread: request.thread() };
        read(&mut object_of_thread, &object, request).await
    }

    /// Takes a lease.
    async fn lease(&self, thread: &ThreadId, token: &str) -> Result<(), CheckpointError> {
        let until = Instant::now() + RELEASE;
        loop {
            match self.token("lease", thread, token, false).await {
                Err(CheckpointError::Busy { .. }) if Instant::now() < until => {
                    tokio::time::sleep(PAUSE).await
                }
                taken => return taken,
            }
        }
    }

    /// Takes, renews or releases a lease.
    async fn token(
        &self,
        handler: &str,
        thread: &ThreadId,
        token: &str,
        is_renewal: bool,
    ) -> Result<(), CheckpointError> {
        let ttl_ms = (handler == "lease").then(|| i64::try_from(LEASE.as_millis()).unwrap_or(i64::MAX));
        let body = Token { owner: self.owner.clone(), token: token.to_owned(), ttl_ms, is_renewal };
        let body = serde_json::to_vec(&body).expect("a token is JSON");
        // The thread of an error is the key of the object, which may be a hash.
        match written_of(thread, &self.call(&self.names.thread, thread, handler, None, body).await?) {
            Err(CheckpointError::Busy { .. }) => Err(CheckpointError::Busy { thread: thread.clone() }),
            done => done.map(drop),
        }
    }

    async fn renew(&self) {
        let leases = self.leases().clone();
        let renewed = leases.iter().map(|(thread, token)| self.token("lease", thread, token, true));
        futures::future::join_all(renewed).await;
    }

    /// Lists the heads of all threads of the namespace.
    async fn thread_names(&self) -> Result<ThreadNames, CheckpointError> {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
        let query = format!(
            "SELECT service_key, key, CASE WHEN key = {} THEN value_utf8 END AS name FROM state \
             WHERE service_name IN ({}, {}) AND (key = {0} OR starts_with(key, {}))",
            quoted(NAME),
            quoted(&self.names.thread),
            quoted(&self.names.beside),
            quoted(HEAD),
        );
        let reply = self.http.admin("query", &json!({"query": query})).await?;
        let mut objects: BTreeMap<&str, (Option<&str>, Vec<&str>)> = BTreeMap::new();
        for row in reply["rows"].as_array().into_iter().flatten() {
            let column = |name: &str| row[name].as_str();
            let (Some(object), Some(key)) = (column("service_key"), column("key")) else { continue };
            let (name, heads) = objects.entry(object).or_default();
            match column("name") {
                Some(own) => *name = Some(own),
                None => heads.push(key),
            }
        }
        let mut names = ThreadNames::default();
        for (object, (name, heads)) in objects {
            let root = ThreadId::from(name.unwrap_or(object));
            if heads.contains(&HEAD) {
                names.threads.push(root);
                continue;
            }
            let child = |head: &&str| head.find(SEPARATOR).map(|at| format!("{root}{}", &head[at..]).into());
            if !leftovers(heads.iter().filter_map(child).collect()).is_empty() {
                names.orphans.push(root);
            }
        }
        names.threads.sort_unstable();
        names.orphans.sort_unstable();
        Ok(names)
    }
}

/// One object.
struct Object<'a> {
    shared: &'a Shared,
    object: &'a str,
    thread: &'a ThreadId,
}

impl Remote for Object<'_> {
    fn entries_of<'a>(&'a mut self, request: &'a Request) -> BoxFuture<'a, Result<Entries, CheckpointError>> {
        Box::pin(async move {
            let body = request.encode()?;
            entries_of(&self.shared.call(self.object, self.thread, "read", None, body).await?)
        })
    }

    fn get_some<'a>(
        &'a mut self,
        keys: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Option<Bytes>>, CheckpointError>> {
        Box::pin(async move {
            let keys = Value::from(keys).to_string().into_bytes();
            values_of(&self.shared.call(self.object, self.thread, "get", None, keys).await?)
        })
    }

    fn all_keys(&mut self) -> BoxFuture<'_, Result<Vec<String>, CheckpointError>> {
        Box::pin(async move {
            keys_of(&self.shared.call(self.object, self.thread, "keys", None, Vec::new()).await?)
        })
    }

    fn pause(&mut self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }
}

/// A lease that is released when it is dropped.
struct Guard {
    shared: Arc<Shared>,
    background: Arc<Background>,
    thread: ThreadId,
    token: String,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.leases().remove(&self.thread);
        let (shared, thread, token) = (self.shared.clone(), self.thread.clone(), self.token.clone());
        self.background.spawn_last(async move {
            // A lease that stays expires.
            let _ = shared.token("release", &thread, &token, false).await;
        });
    }
}
