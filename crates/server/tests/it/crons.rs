//! Crons: runs at recurring times, on a server whose rows are in memory, or in a PostgreSQL of the tests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture, future::join_all};
use reqwest::Method;
use serde_json::{Value, json};
use superstep_graph::{
    Checkpointer, MemoryCheckpointer, MemoryStore, Store,
    store::{Answer, Namespace, Operation, PutOptions, StoreError, StoreOptions},
};
use superstep_postgres::{PostgresCheckpointer, PostgresOptions, PostgresStore};
use superstep_server::{Keys, Limits, Role, Server, User};

use crate::{
    clients::{installed, run_at},
    graphs, postgres,
    support::{TestServer, serve},
};

/// The storage of a server, which survives it.
struct Storage {
    threads: Arc<dyn Checkpointer>,
    rows: Arc<dyn Store>,
}

impl Storage {
    fn in_memory() -> Self {
        Self { threads: Arc::new(MemoryCheckpointer::new()), rows: Arc::new(MemoryStore::new()) }
    }

    fn server(&self) -> Server {
        graphs::all(Server::new()).checkpointer(self.threads.clone()).rows(self.rows.clone()).crons()
    }

    async fn start(&self) -> TestServer {
        serve(self.server()).await
    }

    /// Changes the row of a cron of a server that has stopped.
    async fn change(&self, cron: &str, change: impl FnOnce(&mut Value)) {
        let namespace = Namespace::new(["superstep-server", "crons"]).unwrap();
        let mut row = self.rows.get(&namespace, cron).await.unwrap().unwrap().value;
        change(&mut row);
        self.rows.put_with(&namespace, cron, row, PutOptions::new()).await.unwrap();
    }

    /// Makes the next time of a cron of a server that has stopped earlier by a day.
    async fn miss(&self, cron: &str) {
        let day_us = 86_400_000_000;
        self.change(cron, |row| row["next_us"] = (row["next_us"].as_i64().unwrap() - day_us).into()).await;
    }
}

fn id(created: &Value) -> String {
    created["cron_id"].as_str().unwrap().to_owned()
}

/// Waits until the threads that a request finds are as many as expected, and returns them.
async fn until(server: &TestServer, method: Method, path: &str, expected: usize) -> Vec<Value> {
    for _ in 0..2_000 {
        let answer = server.send(method.clone(), path, json!({})).await;
        let found: Vec<Value> = answer.json().await.unwrap();
        if found.len() == expected {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{path} never finds {expected}");
}

/// Waits until a cron has no run that is about to begin.
async fn settled(server: &TestServer, cron: &str, is_settled: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..2_000 {
        let shown = server.get(&format!("/runs/crons/{cron}")).await;
        if is_settled(&shown) {
            return shown;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the cron never is as expected");
}

#[tokio::test]
async fn a_cron_is_created_found_changed_and_deleted() {
    let server = Storage::in_memory().start().await;
    assert_eq!(server.get("/info").await["flags"]["crons"], true);
    let thread = server.thread().await;
    let daily = json!({
        "assistant_id": "counter", "schedule": "0 9 * * *", "timezone": "Europe/Berlin", "input": { "n": 1 },
        "metadata": { "by": "ada" }, "end_time": "2999-01-01T00:00:00", "config": null,
    });
    let on_thread = server.post(&format!("/threads/{thread}/runs/crons"), daily).await;
    assert_eq!(on_thread["assistant_id"], "09d6caf4-2ef3-5a8b-b1a7-114690ed5d45");
    assert_eq!((&on_thread["thread_id"], &on_thread["on_run_completed"]), (&json!(thread), &Value::Null));
    assert_eq!(on_thread["end_time"], "2999-01-01T00:00:00.000000+00:00");
    assert_eq!((&on_thread["metadata"], &on_thread["user_id"]), (&json!({ "by": "ada" }), &Value::Null));
    let expected = (&json!({ "n": 1 }), &json!("0 9 * * *"));
    assert_eq!((&on_thread["payload"]["input"], &on_thread["payload"]["schedule"]), expected);
    let next = on_thread["next_run_date"].as_str().unwrap();
    assert!(next.ends_with("T07:00:00.000000+00:00") || next.ends_with("T08:00:00.000000+00:00"), "{next}");
    let off = json!({ "assistant_id": "gate", "schedule": "@hourly", "enabled": false, "on_run_completed": "keep" });
    let off = server.post("/runs/crons", off).await;
    assert_eq!((&off["next_run_date"], &off["on_run_completed"]), (&Value::Null, &json!("keep")));

    let found = server.post("/runs/crons/search", json!({})).await;
    assert_eq!(found, json!([off, on_thread]));
    for (search, expected) in [
        (json!({ "assistant_id": "counter" }), &on_thread),
        (json!({ "assistant_id": on_thread["assistant_id"] }), &on_thread),
        (json!({ "thread_id": thread }), &on_thread),
        (json!({ "metadata": { "by": "ada" } }), &on_thread),
        (json!({ "enabled": false }), &off),
        (json!({ "sort_order": "asc", "limit": 1 }), &on_thread),
        (json!({ "sort_by": "next_run_date", "sort_order": "asc", "offset": 1 }), &off),
    ] {
        assert_eq!(server.post("/runs/crons/search", search.clone()).await, json!([expected]), "{search}");
    }
    let selected = server.post("/runs/crons/search", json!({ "select": ["enabled"], "limit": 1 })).await;
    assert_eq!(selected, json!([{ "enabled": false }]));
    assert_eq!(server.post("/runs/crons/count", json!({ "assistant_id": "gate" })).await, 1);

    let path = format!("/runs/crons/{}", id(&on_thread));
    let changes = json!({ "schedule": "30 6 * * *", "timezone": "UTC", "end_time": null, "metadata": null });
    let changed: Value = server.send(Method::PATCH, &path, changes).await.json().await.unwrap();
    assert!(changed["next_run_date"].as_str().unwrap().ends_with("T06:30:00.000000+00:00"), "{changed}");
    assert_eq!((&changed["end_time"], &changed["metadata"]), (&Value::Null, &json!({})));
    assert_eq!(changed["payload"]["input"], json!({ "n": 1 }));
    assert_eq!(server.get(&path).await, changed);
    let paused: Value =
        server.send(Method::PATCH, &path, json!({ "enabled": false })).await.json().await.unwrap();
    assert_eq!(paused["next_run_date"], Value::Null);

    assert_eq!(server.delete(&format!("/runs/crons/{}", id(&off))).await, 204);
    assert_eq!(server.delete(&format!("/runs/crons/{}", id(&off))).await, 404);
    // Those of a thread end with it.
    assert_eq!(server.delete(&format!("/threads/{thread}")).await, 204);
    assert_eq!(server.post("/runs/crons/count", json!({})).await, 0);
}

#[tokio::test]
async fn a_cron_that_could_not_run_is_refused() {
    let storage = Storage::in_memory();
    let server = serve(storage.server().limits(Limits { crons: 1, ..Limits::default() })).await;
    let valid = json!({ "assistant_id": "counter", "schedule": "@daily", "input": {} });
    for (field, value, expected) in [
        ("schedule", json!("0 25 * * *"), "schedule: invalid times `0 25 * * *`: field 2, the hour, is `25`"),
        ("schedule", json!("0 0 9 * * *"), "it has 6 fields, not five"),
        ("schedule", json!("0 0 30 2 *"), "no date fits it"),
        ("schedule", Value::Null, "schedule"),
        ("timezone", json!("Europe/Bonn"), "timezone: unknown time zone `Europe/Bonn`"),
        ("end_time", json!("2020-01-01T00:00:00Z"), "end_time: expected a time to come"),
        ("end_time", json!("tomorrow"), "end_time: expected a time, such as"),
        ("on_run_completed", json!("burn"), "on_run_completed"),
        ("assistant_id", json!("nobody"), "assistant `nobody` not found"),
        ("assistant_id", Value::Null, "assistant_id"),
        ("input", json!({ "n": "x" }), "n"),
        ("config", json!({ "recursion_limit": -1 }), "config.recursion_limit"),
        ("metadata", json!({ "long": "x".repeat(1 << 20) }), "longer than 1 MiB"),
    ] {
        let mut body = valid.clone();
        body[field] = value;
        let (status, detail) = server.refused(Method::POST, "/runs/crons", body).await;
        assert!(status == 422 && detail.contains(expected), "{field}: {status} {detail}");
    }
    assert_eq!(server.refused(Method::POST, "/threads/none/runs/crons", valid.clone()).await.0, 404);
    let cron = server.post("/runs/crons", valid.clone()).await;
    let full = (409, "there are 1 crons already; delete one".to_owned());
    assert_eq!(server.refused(Method::POST, "/runs/crons", valid).await, full);
    let path = format!("/runs/crons/{}", id(&cron));
    let (status, _) = server.refused(Method::PATCH, &path, json!({ "schedule": "never" })).await;
    assert_eq!(status, 422);
    assert_eq!(server.get(&path).await, cron);
    let (status, _) = server.refused(Method::POST, "/runs/crons/search", json!({ "sort_by": "size" })).await;
    assert_eq!(status, 422);
}

async fn times_begin_runs(storage: Storage) {
    let server = storage.start().await;
    let thread = server.thread().await;
    let body = json!({
        "assistant_id": "counter", "schedule": "*/5 * * * *", "input": { "n": 1 }, "metadata": { "by": "ada" },
    });
    let cron = server.post(&format!("/threads/{thread}/runs/crons"), body.clone()).await;
    let mut keeps = body;
    keeps["on_run_completed"] = "keep".into();
    let stateless = server.post("/runs/crons", keeps).await;
    server.stop().await;
    storage.miss(&id(&cron)).await;
    storage.miss(&id(&stateless)).await;

    // Of all the times that were missed the latest is made up for.
    let server = storage.start().await;
    let runs = format!("/threads/{thread}/runs");
    let run = until(&server, Method::GET, &runs, 1).await.remove(0);
    assert_eq!((&run["metadata"]["cron_id"], &run["metadata"]["by"]), (&cron["cron_id"], &json!("ada")));
    let run = run["run_id"].as_str().unwrap();
    server.until(&thread, run, "success").await;
    assert_eq!(server.get(&format!("/threads/{thread}")).await["values"]["n"], 3);
    let shown = server.get(&format!("/runs/crons/{}", id(&cron))).await;
    assert!(shown["next_run_date"].as_str() >= cron["next_run_date"].as_str(), "{shown}");
    let threads = until(&server, Method::POST, "/threads/search", 2).await;
    let own = threads.iter().find(|found| found["thread_id"] != thread).unwrap();
    let own = format!("/threads/{}/runs", own["thread_id"].as_str().unwrap());
    let of_own = until(&server, Method::GET, &own, 1).await;
    assert_eq!(of_own[0]["metadata"]["cron_id"], stateless["cron_id"]);
    server.stop().await;

    // A process was killed before it stored a run, and one after it.
    let begun = "01985e2c-0000-7000-8000-000000000001";
    storage.change(&id(&cron), |row| row["begins"] = begun.into()).await;
    let stored = of_own[0]["run_id"].clone();
    storage.change(&id(&stateless), |row| row["begins"] = stored).await;
    let server = storage.start().await;
    let found = until(&server, Method::GET, &runs, 2).await;
    assert!(found.iter().any(|run| run["run_id"] == begun), "{found:?}");
    server.until(&thread, begun, "success").await;
    server.stop().await;
    let server = storage.start().await;
    assert_eq!(until(&server, Method::GET, &runs, 2).await, server.get(&runs).await.as_array().unwrap()[..]);
    assert_eq!(server.post("/threads/count", json!({})).await, 2);
}

#[tokio::test]
async fn the_times_of_a_cron_begin_runs() {
    times_begin_runs(Storage::in_memory()).await;
}

#[tokio::test]
async fn the_times_of_a_cron_in_postgresql_begin_runs() {
    let Some(server) = postgres::shared() else { return };
    let options = PostgresOptions::new(server.url()).schema(server.schema()).connections(4);
    let threads = Arc::new(PostgresCheckpointer::open(options.clone()).unwrap());
    let rows = Arc::new(PostgresStore::open(options, StoreOptions::default()).unwrap());
    times_begin_runs(Storage { threads, rows }).await;
}

/// A store that fails to put one of the rows of a table.
struct FailsOnce {
    rows: Arc<dyn Store>,
    table: &'static str,
    /// The number of rows that it puts before; below zero, which wraps, after it.
    before: AtomicUsize,
}

impl Store for FailsOnce {
    fn batch(&self, operations: Vec<Operation>) -> BoxFuture<'_, Result<Vec<Answer>, StoreError>> {
        let is_of = |namespace: &Namespace| namespace.to_string().ends_with(self.table);
        let puts = operations.iter().any(|operation| match operation {
            Operation::Put { namespace, .. } => is_of(namespace),
            _ => false,
        });
        if puts && self.before.fetch_sub(1, Relaxed) == 0 {
            return async { Err(StoreError::Storage { what: "gone".to_owned(), source: None }) }.boxed();
        }
        self.rows.batch(operations)
    }

    fn sweep(&self) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.rows.sweep()
    }
}

#[tokio::test]
async fn rows_that_cannot_be_written_lose_and_repeat_no_time() {
    // The row of a cron is put before its run is stored, and after it.
    let failures = [("crons", 0), ("crons", 1), ("threads", 0), ("runs", 0)].map(async |(table, before)| {
        let storage = Storage::in_memory();
        let server = storage.start().await;
        let body = json!({ "assistant_id": "counter", "schedule": "@yearly", "input": { "n": 1 }, "on_run_completed": "keep" });
        let cron = id(&server.post("/runs/crons", body).await);
        server.stop().await;
        storage.change(&cron, |row| row["next_us"] = 1.into()).await;

        let rows = Arc::new(FailsOnce { rows: storage.rows.clone(), table, before: before.into() });
        let server = serve(storage.server().rows(rows.clone())).await;
        let thread = until(&server, Method::POST, "/threads/search", 1).await.remove(0);
        let runs = format!("/threads/{}/runs", thread["thread_id"].as_str().unwrap());
        until(&server, Method::GET, &runs, 1).await;
        let namespace = Namespace::new(["superstep-server", "crons"]).unwrap();
        let is_settled = async || storage.rows.get(&namespace, &cron).await.unwrap().unwrap().value["begins"].is_null();
        while !is_settled().await || rows.before.load(Relaxed) < 100 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(server.post("/threads/count", json!({})).await, 1, "{table} {before}");
        assert_eq!(server.get(&runs).await.as_array().unwrap().len(), 1, "{table} {before}");
        assert_eq!(server.get(&format!("/runs/crons/{cron}")).await["problem"], Value::Null);
    });
    join_all(failures).await;
}

/// The run has ended, and its thread is deleted, before its cron can be written again.
#[tokio::test]
async fn a_deleted_run_is_not_repeated_when_its_cron_could_not_be_written() {
    let storage = Storage::in_memory();
    let server = storage.start().await;
    let body = json!({ "assistant_id": "counter", "schedule": "@yearly", "input": { "n": 1 } });
    let cron = id(&server.post("/runs/crons", body).await);
    server.stop().await;
    storage.change(&cron, |row| row["next_us"] = 1.into()).await;
    let rows = FailsOnce { rows: storage.rows.clone(), table: "crons", before: 1.into() };
    let server = serve(storage.server().rows(Arc::new(rows))).await;
    let namespace = Namespace::new(["superstep-server", "crons"]).unwrap();
    let begins = async || storage.rows.get(&namespace, &cron).await.unwrap().unwrap().value["begins"].clone();
    while begins().await.is_null() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let success = "superstep_runs_total{graph=\"counter\",status=\"success\"} 1";
    let metrics = async || server.send(Method::GET, "/metrics", json!({})).await.text().await.unwrap();
    while !metrics().await.contains("superstep_runs_total{graph=") || !begins().await.is_null() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Another one would be under way, or have ended.
    let runs = metrics().await;
    assert!(runs.contains(success) && runs.contains("superstep_runs_running 0"), "{runs}");
    assert_eq!(server.post("/threads/count", json!({})).await, 0);
}

#[tokio::test]
async fn a_time_that_comes_after_the_end_of_a_cron_begins_no_run() {
    let storage = Storage::in_memory();
    let server = storage.start().await;
    let body = json!({ "assistant_id": "counter", "schedule": "@hourly", "input": {}, "end_time": "2999-01-01T00:00:00Z" });
    let cron = id(&server.post("/runs/crons", body).await);
    server.stop().await;
    storage.change(&cron, |row| (row["next_us"], row["end_us"]) = (1.into(), 2.into())).await;
    let server = storage.start().await;
    let shown = settled(&server, &cron, |shown| shown["next_run_date"].is_null()).await;
    assert_eq!((&shown["enabled"], &shown["problem"]), (&json!(true), &Value::Null));
    assert_eq!(server.post("/threads/count", json!({})).await, 0);
}

#[tokio::test]
async fn a_time_that_begins_no_run_is_a_problem_of_its_cron() {
    let storage = Storage::in_memory();
    let server = storage.start().await;
    let assistant = server.post("/assistants", json!({ "graph_id": "counter" })).await;
    let assistant = assistant["assistant_id"].as_str().unwrap();
    let body = json!({ "assistant_id": assistant, "schedule": "@hourly", "input": {} });
    let cron = server.post("/runs/crons", body).await;
    assert_eq!(cron["problem"], Value::Null);
    assert_eq!(server.delete(&format!("/assistants/{assistant}")).await, 204);
    server.stop().await;
    storage.miss(&id(&cron)).await;
    let server = storage.start().await;
    let shown = settled(&server, &id(&cron), |shown| shown["problem"].is_string()).await;
    assert!(shown["problem"].as_str().unwrap().contains(&format!("`{assistant}` not found")), "{shown}");
    assert!(shown["next_run_date"].as_str() >= cron["next_run_date"].as_str(), "{shown}");
    // It can be paused nevertheless, and another assistant is a way out.
    let path = format!("/runs/crons/{}", id(&cron));
    for enabled in [false, true] {
        let changed = server.send(Method::PATCH, &path, json!({ "enabled": enabled })).await;
        assert_eq!(changed.status(), 200);
    }
    let changed = server.send(Method::PATCH, &path, json!({ "assistant_id": "counter" })).await;
    assert_eq!(changed.status(), 200);
    server.stop().await;
    storage.miss(&id(&cron)).await;
    let server = storage.start().await;
    settled(&server, &id(&cron), |shown| shown["problem"].is_null()).await;
}

#[tokio::test]
async fn a_server_that_reads_only_begins_no_run() {
    let storage = Storage::in_memory();
    let server = storage.start().await;
    let body =
        json!({ "assistant_id": "counter", "schedule": "@hourly", "input": {}, "on_run_completed": "keep" });
    let cron = server.post("/runs/crons", body).await;
    server.stop().await;
    storage.miss(&id(&cron)).await;
    let server = serve(storage.server().read_only()).await;
    let shown = server.get(&format!("/runs/crons/{}", id(&cron))).await;
    assert!(shown["next_run_date"].as_str() < cron["next_run_date"].as_str(), "{shown}");
    let (status, _) = server.refused(Method::DELETE, &format!("/runs/crons/{}", id(&cron)), json!({})).await;
    assert_eq!(status, 403);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(server.post("/threads/count", json!({})).await, 0);
}

#[tokio::test]
async fn the_crons_of_another_user_do_not_exist() {
    let storage = Storage::in_memory();
    let users = [
        User::new("alice"),
        User::new("bob"),
        User::new("carol").role(Role::Read),
        User::new("root").role(Role::Admin),
    ];
    let keys = || {
        users.iter().cloned().fold(Keys::new(), |keys, user| {
            let key = user.id.clone();
            keys.user(user, &key)
        })
    };
    let server = serve(storage.server().authenticate(keys())).await;
    let send = async |server: &TestServer, key: &str, method: Method, path: &str, body: Value| {
        let request = server.request(method, path).header("x-api-key", key).json(&body);
        let response = request.send().await.unwrap();
        let (status, text) = (response.status().as_u16(), response.text().await.unwrap());
        (status, serde_json::from_str::<Value>(&text).unwrap_or_default())
    };
    let post = |key: &'static str, path: String, body: Value| {
        let send = &send;
        let server = &server;
        async move { send(server, key, Method::POST, &path, body).await }
    };
    let body =
        json!({ "assistant_id": "counter", "schedule": "@hourly", "input": {}, "on_run_completed": "keep" });
    let (_, thread) = post("alice", "/threads".to_owned(), json!({})).await;
    let on_thread = format!("/threads/{}/runs/crons", thread["thread_id"].as_str().unwrap());
    assert_eq!(post("bob", on_thread.clone(), body.clone()).await.0, 404);
    assert_eq!(post("carol", "/runs/crons".to_owned(), body.clone()).await.0, 403);
    // The cron of a thread belongs to the owner of the thread.
    let (_, by_root) = post("root", on_thread, body.clone()).await;
    let (_, own) = post("alice", "/runs/crons".to_owned(), body.clone()).await;
    assert_eq!((&by_root["user_id"], &own["user_id"]), (&json!("alice"), &json!("alice")));
    for cron in [&by_root, &own] {
        let path = format!("/runs/crons/{}", id(cron));
        for method in [Method::GET, Method::PATCH, Method::DELETE] {
            let missing = json!({ "detail": format!("cron `{}` not found", id(cron)) });
            assert_eq!(send(&server, "bob", method, &path, json!({})).await, (404, missing));
        }
        assert_eq!(send(&server, "alice", Method::GET, &path, Value::Null).await, (200, cron.clone()));
    }
    for (key, expected) in [("alice", 2), ("bob", 0), ("carol", 0), ("root", 2)] {
        assert_eq!(post(key, "/runs/crons/count".to_owned(), json!({})).await.1, expected, "{key}");
        let (_, found) =
            post(key, "/runs/crons/search".to_owned(), json!({ "assistant_id": "counter" })).await;
        assert_eq!(found.as_array().unwrap().len(), expected, "{key}");
    }
    // An assistant of another user is none for a cron either.
    let (_, assistant) = post("alice", "/assistants".to_owned(), json!({ "graph_id": "counter" })).await;
    let mut foreign = body;
    foreign["assistant_id"] = assistant["assistant_id"].clone();
    assert_eq!(post("bob", "/runs/crons".to_owned(), foreign).await.0, 404);

    // Runs of a cron are those of its owner. One on a thread that another user has now begins none.
    server.stop().await;
    storage.miss(&id(&own)).await;
    storage.miss(&id(&by_root)).await;
    storage.change(&id(&by_root), |row| row["owner"] = "bob".into()).await;
    let server = serve(storage.server().authenticate(keys())).await;
    for _ in 0..2_000 {
        if send(&server, "alice", Method::POST, "/threads/count", json!({})).await.1 == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for (key, expected) in [("alice", 2), ("bob", 0), ("root", 2)] {
        let (_, found) = send(&server, key, Method::POST, "/threads/count", json!({})).await;
        assert_eq!(found, expected, "{key}");
    }
    let path = format!("/runs/crons/{}", id(&by_root));
    for _ in 0..2_000 {
        let (_, shown) = send(&server, "bob", Method::GET, &path, Value::Null).await;
        if let Some(problem) = shown["problem"].as_str() {
            assert!(problem.starts_with("thread `") && problem.ends_with("` not found"), "{problem}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the cron has no problem");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sdks_create_find_change_and_delete_crons_unchanged() {
    let server = Storage::in_memory().start().await;
    if let Some(clients) = installed("venv/bin/python") {
        run_at(&server.url, clients.join("venv/bin/python"), "crons.py", &clients, &[]).await;
    }
    if let Some(clients) = installed("node_modules/@langchain/langgraph-sdk") {
        run_at(&server.url, "node".into(), "crons.mjs", &clients, &[]).await;
    }
}
