//! Jobs and workers of a program with graphs of its own.

use std::time::Duration;

use crate::{
    postgres::{assert_secret, server},
    support::{Place, Ran, ended},
};

const ORDER: &str = r#"{"items": [{"name": "tea", "euros": 120}]}"#;

/// Creates a database of the server, and returns its URL.
pub(crate) fn database(server: &server::Server, name: &str) -> String {
    server.sql(&format!("CREATE DATABASE {name}"));
    server.url().replace("/postgres", &format!("/{name}"))
}

#[tokio::test]
async fn a_worker_runs_the_jobs_that_the_program_sends() {
    let Some(server) = server::shared() else { return };
    let (place, url) = (Place::new(), database(server, "jobs"));
    let run = async |args: &[&str]| -> Ran {
        let mut command = place.own_command(args);
        let ran = ended(command.env("SUPERSTEP_DB", &url)).await;
        assert_secret(&ran);
        ran
    };
    let send = async |args: &[&str]| run(args).await.ok().lines()[0]["job"].to_string();
    let thread = "job-order-7";
    send(&["jobs", "run", "orders", "--input", ORDER, "--thread", thread, "--json", "--id", "o7"]).await;
    let listed = run(&["jobs", "list", "--thread", thread]).await.ok().stdout;
    assert!(listed.contains("orders") && listed.contains("queued") && listed.contains("0/10"), "{listed}");
    let quiet = run(&["worker", "--once", "--quiet", "orders"]).await.ok();
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", ""));
    let asked = run(&["state", thread, "--json"]).await.ok().lines();
    assert_eq!(asked[0]["tasks"][0]["waits"][0]["key"], "approve");
    send(&["jobs", "answer", thread, "approve", "true", "--json"]).await;
    run(&["worker", "--once"]).await.ok();
    let state = run(&["state", thread, "--json"]).await.ok().lines();
    assert_eq!(state[0]["values"]["status"], "paid");
    // The same request again.
    send(&["jobs", "run", "orders", "--input", ORDER, "--thread", thread, "--json", "--id", "o7"]).await;
    run(&["worker", "--once"]).await.ok();
    assert_eq!(run(&["state", thread, "--json"]).await.ok().lines(), state);
    assert_eq!(run(&["jobs", "list", "--thread", thread]).await.ok().stdout, "no jobs\n");

    let id = send(&["jobs", "resume", thread, "--delay", "2h", "--json"]).await;
    assert_eq!(run(&["jobs", "retry", &id]).await.ok().stdout, format!("job {id}: due now\n"));
    assert_eq!(run(&["jobs", "cancel", &id]).await.ok().stdout, format!("job {id}: removed\n"));
    let gone = run(&["jobs", "cancel", &id]).await;
    let unknown = format!("job {id} is unknown: it is finished or never existed");
    assert!(gone.code == Some(5) && gone.stderr.contains(&unknown), "{gone:?}");
    let wrong = run(&["jobs", "answer", thread, "aprove", "true"]).await;
    assert!(wrong.code == Some(5) && wrong.stderr.contains("waits for an answer"), "{wrong:?}");
    // What was done before an unknown job is reported.
    let later = ["jobs", "resume", thread, "--delay", "2h", "--json"];
    let (one, two) = (send(&later).await, send(&later).await);
    let part = run(&["jobs", "retry", &one, "99999", &two, "--json"]).await;
    assert_eq!((part.code, part.stdout), (Some(5), format!("{{\"job\":{one},\"now\":\"due now\"}}\n")));
    assert!(part.stderr.contains("job 99999 "), "{}", part.stderr);
    run(&["jobs", "cancel", &one, &two]).await.ok();
    let unfit = run(&["jobs", "run", "orders", "--input", r#"{"itms": []}"#]).await;
    assert!(unfit.code == Some(2) && unfit.stderr.contains("did you mean `items`?"), "{unfit:?}");
}

#[tokio::test]
async fn jobs_need_a_server_and_a_worker_needs_trust() {
    let place = Place::new();
    for args in [&["worker"][..], &["jobs", "list"], &["jobs", "run", "orders"]] {
        let ran = place.own(args).await;
        assert!(ran.code == Some(2) && ran.stderr.contains("jobs need a PostgreSQL database"), "{ran:?}");
    }
    let ran = place.own(&["worker", "--db", "x.db"]).await;
    let is_file = "jobs need a PostgreSQL database, and `";
    assert!(
        ran.code == Some(2) && ran.stderr.contains(is_file) && ran.stderr.contains("x.db` is a file; name"),
        "{ran:?}"
    );
    let Some(server) = server::shared() else { return };
    let url = database(server, "elsewhere");
    // Another machine makes the database.
    Place::new().own(&["run", "digest", "--db", &url]).await.ok();
    let ran = place.own(&["worker", "--once", "--db", &url]).await;
    assert!(ran.code == Some(2) && ran.stderr.contains("repeat the command with `--trust`"), "{ran:?}");
}

#[tokio::test]
async fn a_worker_ends_with_the_first_signal() {
    use rustix::process::{Pid, Signal, kill_process};
    let Some(server) = server::shared() else { return };
    let place = Place::new();
    let mut command = place.own_command(&["worker", "--db", &database(server, "stopped"), "digest"]);
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = {
        use tokio::io::{AsyncBufReadExt as _, BufReader};
        BufReader::new(child.stderr.take().unwrap()).lines()
    };
    let first = lines.next_line().await.unwrap().unwrap();
    assert!(first.starts_with("taking jobs for `digest` from `postgres://"), "{first}");
    let id = i32::try_from(child.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(id).unwrap(), Signal::TERM).unwrap();
    let status = tokio::time::timeout(Duration::from_secs(60), child.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(0));
}

/// A thread may be imported after its job was sent.
#[tokio::test]
async fn a_worker_does_not_run_a_thread_that_was_imported_since_its_job_was_sent() {
    let Some(server) = server::shared() else { return };
    let (place, url) = (Place::new(), database(server, "imported"));
    let run = async |args: &[&str]| ended(place.own_command(args).env("SUPERSTEP_DB", &url)).await;
    run(&["run", "orders", "--input", ORDER, "--thread", "job-order-1"]).await;
    let text = run(&["export", "job-order-1"]).await.ok().stdout;
    place.file("case.thread.jsonl", &text);
    let sent =
        run(&["jobs", "run", "orders", "--thread", "job-order-2", "--json", "--attempts", "1"]).await.ok();
    run(&["import", "case.thread.jsonl", "--as", "job-order-2"]).await.ok();
    run(&["worker", "--once"]).await.ok();
    let dead = run(&["jobs", "list", "--failed", "--json"]).await.ok().lines();
    assert_eq!((dead.len(), &dead[0]["id"]), (1, &sent.lines()[0]["job"]));
    let error = dead[0]["last_error"].as_str().unwrap();
    assert!(error.contains("was imported from a file") && error.contains("--trust"), "{error}");
    // Trusted by name, and then by the worker as well.
    run(&["jobs", "answer", "job-order-2", "approve", "true", "--trust"]).await.ok();
    run(&["worker", "--once"]).await.ok();
    assert_eq!(run(&["state", "job-order-2", "--json"]).await.ok().lines()[0]["values"]["status"], "paid");
    // A worker that finds no thread keeps the mark: an import may be about to store it.
    let name = "job-order-3";
    run(&["jobs", "run", "orders", "--input", ORDER, "--thread", name, "--attempts", "2"]).await.ok();
    run(&["import", "case.thread.jsonl", "--as", name]).await.ok();
    server.sql("\\c imported\nDELETE FROM superstep.threads WHERE name = 'job-order-3'");
    assert_eq!(run(&["state", name]).await.code, Some(5));
    for _ in 0..2 {
        run(&["worker", "--once"]).await.ok();
        let failed = run(&["jobs", "list", "--thread", name, "--json"]).await.ok().lines().remove(0);
        assert!(failed["last_error"].to_string().contains("was imported from a file"), "{failed}");
        run(&["jobs", "retry", &failed["id"].to_string()]).await.ok();
    }
}

#[tokio::test]
async fn a_schedule_and_a_limit_are_those_of_a_graph() {
    let Some(server) = server::shared() else { return };
    let (place, url) = (Place::new(), database(server, "scheduled"));
    let run = async |args: &[&str]| ended(place.own_command(args).env("SUPERSTEP_DB", &url)).await;
    let add = async |args: &[&str]| run(&[&["jobs", "schedule", "add"], args].concat()).await;
    let unfit = add(&["big", "@daily", "orders", "--input", r#"{"itms": []}"#]).await;
    assert!(unfit.code == Some(2) && unfit.stderr.contains("did you mean `items`?"), "{unfit:?}");
    let unknown = add(&["big", "@daily", "order"]).await;
    assert!(unknown.code == Some(2) && unknown.stderr.contains("did you mean `orders`?"), "{unknown:?}");
    add(&["big", "@daily", "orders", "--input", ORDER, "--thread", "job-order-9"]).await.ok();
    let listed = run(&["jobs", "schedule", "list", "--json"]).await.ok().lines();
    assert_eq!((&listed[0]["graph"], &listed[0]["thread"]), (&"orders".into(), &"job-order-9".into()));
    server.sql(
        "\\c scheduled\nUPDATE superstep_jobs._private_known_crontabs SET known_since = now() - interval '2 days'",
    );
    run(&["worker", "--once", "--limit", "orders=1"]).await.ok();
    let state = run(&["state", "job-order-9", "--json"]).await.ok().lines();
    assert_eq!(state[0]["tasks"][0]["waits"][0]["key"], "approve");
    let wrong = run(&["worker", "--once", "--limit", "ordrs=1"]).await;
    assert!(wrong.code == Some(2) && wrong.stderr.contains("did you mean `orders`?"), "{wrong:?}");
    run(&["worker", "--once", "digest", "--limit", "orders=1"])
        .await
        .refused(2, "`--limit orders`: this worker does not take jobs of that graph");
    let long = "x".repeat(190);
    for name in ["x\u{200b}", &long] {
        let wrong =
            add(&["named", "@daily", "orders", "--input", ORDER, "--thread", &format!("{name}{{time}}")])
                .await;
        assert!(wrong.code == Some(2) && wrong.stderr.contains("a thread's name"), "{wrong:?}");
    }
    let wrong = add(&[&long, "@daily", "orders", "--input", ORDER]).await;
    assert!(wrong.code == Some(2) && wrong.stderr.contains("at most 200 bytes"), "{wrong:?}");
}
