//! The handlers that read and write threads outside of runs.

use bytes::Bytes;
use superstep_checkpoint::{CheckpointError, ThreadId};

use crate::{
    keys::{GENERATION, Keys, LEASE, NAME, RUNNING},
    kv::{Kv as _, Memory},
    names::object_key,
    remote::{Remote as _, get_all, recorded},
    request::{Reply, Request},
    service::{
        Host, Kind,
        context::{Elsewhere, Handler},
    },
    storage::serve,
    wire::{Copy, Leased, Running, Token, Write, entries, keys_of, values, written, written_of},
};

/// Serves a write.
pub(super) async fn write(kind: Kind, host: &Host, handler: &mut Handler, write: Write) -> Bytes {
    written(try_write(kind, host, handler, write).await)
}

async fn try_write(
    kind: Kind,
    host: &Host,
    handler: &mut Handler,
    write: Write,
) -> Result<Reply, CheckpointError> {
    let Write { token, request } = write;
    let thread = request.thread().clone();
    if request.is_read() {
        let what = format!("a read of thread `{thread}` is not a write");
        return Err(CheckpointError::Storage { what, source: None });
    }
    if let Some(token) = token {
        let leased = leased(handler).await?;
        // The owner of a lease whose time is over continues until another one has taken it.
        if leased.is_none_or(|leased| leased.token != token) {
            return Err(CheckpointError::LeaseLost { thread });
        }
    }
    let object = kind.name(host);
    let deleted = match (kind, &request) {
        (Kind::Thread, Request::Delete { .. }) if !thread.is_child() => Some(request.clone()),
        _ => None,
    };
    set_name(handler, &thread.root());
    let reply = serve(handler, &mut Memory::default(), object, request).await?;
    if let Some(request) = deleted {
        let body = Write { token: None, request }.encode();
        let key = handler.key.clone();
        written_of(&thread, &handler.call(&host.names.beside, &key, "write", body).await?)?;
    }
    Ok(reply)
}

/// Stores the name of a root thread that is not the key of its object.
pub(super) fn set_name(handler: &mut Handler, root: &ThreadId) {
    if handler.key != root.as_str() {
        handler.set(NAME.to_owned(), Some(Bytes::copy_from_slice(root.as_str().as_bytes())));
    }
}

/// Returns the entries that a read needs.
pub(super) async fn read(
    kind: Kind,
    host: &Host,
    handler: &mut Handler,
    request: Request,
) -> Result<Bytes, CheckpointError> {
    if request.is_read() {
        return Ok(entries(recorded(handler, kind.name(host), request).await?));
    }
    let what = format!("a write of thread `{}` is not a read", request.thread());
    Err(CheckpointError::Storage { what, source: None })
}

/// Returns the values of the first of some entries.
pub(super) async fn get(handler: &mut Handler, keys: Vec<String>) -> Result<Bytes, CheckpointError> {
    Ok(values(&handler.get_all(keys).await?))
}

/// Returns the names of all entries.
pub(super) async fn keys(handler: &mut Handler) -> Result<Bytes, CheckpointError> {
    let keys = handler.keys().await?;
    Ok(serde_json::to_vec(&keys).expect("keys are JSON").into())
}

/// Reads the lease of a writer outside of runs.
pub(super) async fn leased(handler: &mut Handler) -> Result<Option<Leased>, CheckpointError> {
    let value = handler.get_all(vec![LEASE.to_owned()]).await?.pop().flatten();
    value.map(|value| serde_json::from_slice(&value).map_err(damaged)).transpose()
}

fn damaged(cause: serde_json::Error) -> CheckpointError {
    let what = "the lease of a thread is damaged".to_owned();
    CheckpointError::Corrupt { what, source: Some(cause.into()) }
}

/// Takes or renews a lease.
pub(super) async fn lease(handler: &mut Handler, token: Token) -> Bytes {
    written(try_lease(handler, token).await.map(|()| Reply::Done))
}

async fn try_lease(handler: &mut Handler, token: Token) -> Result<(), CheckpointError> {
    let Token { owner, token, ttl_ms, is_renewal } = token;
    let thread = ThreadId::from(handler.key.as_str());
    let now_ms = handler.now_ms().await?;
    match leased(handler).await? {
        Some(leased) if leased.token == token => {}
        _ if is_renewal => return Err(CheckpointError::LeaseLost { thread }),
        // A lease of the same owner is released right now.
        Some(leased) if leased.owner != owner && leased.until_ms > now_ms => {
            return Err(CheckpointError::Busy { thread });
        }
        _ => {}
    }
    let until_ms = now_ms.saturating_add(ttl_ms.unwrap_or_default());
    let leased = Leased { owner, token, until_ms };
    handler.set(LEASE.to_owned(), Some(serde_json::to_vec(&leased).expect("a lease is JSON").into()));
    Ok(())
}

/// Releases a lease, if it was not taken over.
pub(super) async fn release(handler: &mut Handler, token: Token) -> Bytes {
    let released = async {
        if leased(handler).await?.is_some_and(|leased| leased.token == token.token) {
            handler.set(LEASE.to_owned(), None);
        }
        Ok(Reply::Done)
    };
    written(released.await)
}

/// Returns whether the thread has a writer: a run, or a program with a lease that is not this owner's.
pub(super) async fn has_writer(handler: &mut Handler, owner: &str) -> Result<Bytes, CheckpointError> {
    let is_running = running(handler).await?.is_some();
    let has_lease = match leased(handler).await? {
        Some(leased) if leased.owner != owner => leased.until_ms > handler.now_ms().await?,
        _ => false,
    };
    Ok(Bytes::from_static(if is_running || has_lease { b"true" } else { b"false" }))
}

/// Cancels the run at work, and returns whether there is one.
pub(super) async fn cancel(handler: &mut Handler) -> Result<Bytes, CheckpointError> {
    let Some(running) = running(handler).await? else { return Ok(Bytes::from_static(b"false")) };
    handler.cancel_invocation(&running.invocation);
    Ok(Bytes::from_static(b"true"))
}

async fn running(handler: &mut Handler) -> Result<Option<Running>, CheckpointError> {
    let value = handler.get_all(vec![RUNNING.to_owned()]).await?.pop().flatten();
    Ok(value.and_then(|value| serde_json::from_slice(&value).ok()))
}

/// Copies the entries of another object of its kind.
pub(super) async fn copy(kind: Kind, host: &Host, handler: &mut Handler, copy: Copy) -> Bytes {
    written(try_copy(kind, host, handler, copy).await.map(|()| Reply::Done))
}

async fn try_copy(kind: Kind, host: &Host, handler: &mut Handler, copy: Copy) -> Result<(), CheckpointError> {
    let object = kind.name(host).to_string();
    let Copy { from, to } = copy;
    let mut source = Elsewhere { handler, object, key: object_key(&from) };
    let entries = loop {
        let mut keys = keys_of(&source.call("keys", Vec::new()).await?)?;
        keys.retain(|key| Keys::of(&from).has(key));
        // The heads are first and last: they are the same if nothing was written meanwhile.
        keys.sort_by_key(|key| !key.starts_with('h'));
        let heads = keys.iter().filter(|key| key.starts_with('h')).cloned();
        let marks: Vec<String> = heads.chain([GENERATION.to_owned()]).collect();
        let before = get_all(&mut source, &marks).await?;
        let values = get_all(&mut source, &keys).await?;
        if get_all(&mut source, &marks).await? == before && values.iter().all(Option::is_some) {
            break keys.into_iter().zip(values).collect::<Vec<_>>();
        }
        source.pause(std::time::Duration::from_millis(20)).await;
    };
    let head = Keys::of(&from).head();
    if matches!(kind, Kind::Thread) && !entries.iter().any(|(key, _)| *key == head) {
        return Err(CheckpointError::NoThread { thread: from });
    }
    if handler.keys().await?.iter().any(|key| Keys::of(&to).has(key)) {
        return Err(CheckpointError::ThreadExists { thread: to });
    }
    if matches!(kind, Kind::Thread) {
        let body = serde_json::to_vec(&Copy { from, to: to.clone() }).expect("names are JSON");
        let key = handler.key.clone();
        written_of(&to, &handler.call(&host.names.beside, &key, "copy", body).await?)?;
    }
    if !entries.is_empty() {
        set_name(handler, &to);
    }
    // The heads are last.
    for (key, value) in entries.into_iter().rev() {
        handler.set(key, value);
    }
    Ok(())
}
