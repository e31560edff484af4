//! Jobs and workers of the agent's own program.

use serde_json::Value;
use superstep_testing::script::{Answer, call, calls, http, txt};

use crate::{
    jobs::database,
    postgres::{assert_secret, server},
    support::{Place, Ran, Running, ended, received, serve},
};

/// The commands of one user on a database.
struct User<'a> {
    place: &'a Place,
    url: String,
    /// The name of another user, or of the same one on another machine.
    name: Option<&'a str>,
}

impl User<'_> {
    async fn run(&self, args: &[&str]) -> Ran {
        let mut command = match self.name {
            Some(name) => self.place.command_of(name, args),
            None => self.place.command(args),
        };
        let ran = ended(command.env("SUPERSTEP_DB", &self.url)).await;
        assert_secret(&ran);
        ran
    }

    /// Sends a job, and returns its number.
    async fn send(&self, args: &[&str]) -> String {
        self.run(&[&["jobs"], args, &["--json"]].concat()).await.ok().lines()[0]["job"].to_string()
    }

    /// Runs the jobs that are due, one after the other: a job whose thread is busy would be due again after the end of the worker.
    async fn work(&self, args: &[&str]) -> Ran {
        self.run(&[&["worker", "--once", "--concurrency", "1"], args].concat()).await.ok()
    }

    async fn state(&self, thread: &str) -> Value {
        self.run(&["state", thread, "--json"]).await.ok().lines().remove(0)
    }

    async fn waits(&self, thread: &str) -> bool {
        !self.state(thread).await["tasks"].as_array().unwrap().is_empty()
    }

    async fn error(&self, job: &str) -> String {
        let listed = self.run(&["jobs", "list", "--json"]).await.ok().lines();
        let number: i64 = job.parse().unwrap();
        let job = listed.iter().find(|listed| listed["id"] == number).unwrap();
        job["last_error"].as_str().unwrap().to_owned()
    }
}

fn write(id: &'static str, path: &'static str) -> Answer {
    let args: &'static str = Box::leak(format!(r#"{{"path":"{path}","content":"made"}}"#).into_boxed_str());
    call(id, "write_file", args)
}

#[tokio::test]
async fn a_worker_of_the_agent_replies_to_the_prompts_of_jobs() {
    let Some(server) = server::shared() else { return };
    let place = Place::new();
    let user = User { place: &place, url: database(server, "agent_prompts"), name: None };
    user.send(&["run", "12 + 30", "--thread", "t"]).await;
    user.send(&["run", "2 + 2", "--thread", "u", "--key", "u"]).await;
    user.send(&["run", "3 + 3", "--thread", "u", "--key", "u"]).await;
    let listed = user.run(&["jobs", "list"]).await.ok().stdout;
    assert_eq!((listed.matches(" react ").count(), listed.matches("queued").count()), (3, 3), "{listed}");
    // Two workers at once take different threads.
    let (one, other) = tokio::join!(user.work(&["--model", "offline"]), user.work(&["--model", "offline"]));
    let ran =
        |ran: &Ran| ran.stderr.lines().last().unwrap().split(' ').next().unwrap().parse::<u32>().unwrap();
    user.work(&["--model", "offline"]).await;
    assert!(ran(&one) + ran(&other) >= 2, "{one:?} {other:?}");
    assert_eq!(user.run(&["jobs", "list"]).await.ok().stdout, "no jobs\n");
    let reply = |state: &Value| state["values"]["final_reply"].to_string();
    assert!(reply(&user.state("t").await).contains("42"));
    let (state, u) = (user.state("u").await, "u");
    assert!(reply(&state).contains('6'), "{state}");
    assert_eq!(
        user.run(&["history", u, "--json"])
            .await
            .ok()
            .lines()
            .iter()
            .filter(|it| it["source"] == "input")
            .count(),
        2
    );
    // A thread that the worker began is not one that the user set up.
    let own = user.run(&["run", "1 + 1", "--thread", "t", "--model", "offline"]).await.ok();
    assert!(own.stderr.contains("not set up by you on this machine"), "{own:?}");

    for (args, error) in [
        (&["jobs", "resume", "x"][..], "thread `x` does not exist"),
        (&["jobs", "answer", "x", "--approve"], "thread `x` does not exist"),
        (&["jobs", "answer", "t", "--approve"], "no call waits for a decision on thread `t`"),
        (&["jobs", "answer", "t"], "nothing is decided"),
        (&["jobs", "run", " "], "the prompt is empty"),
        (&["worker", "--once", "--config", "m.toml"], "a worker has no long-term memory"),
        (&["worker", "--once", "--deny", "shel"], "a permission rule names tool `shel`"),
        (&["worker", "--once", "--deny", "shell:command"], "write an argument like"),
    ] {
        place.file("m.toml", "[memory]\nstore = \"file\"\n");
        let ran = user.run(args).await;
        assert!(ran.code != Some(0) && ran.stderr.contains(error), "{args:?} {ran:?}");
    }
    let file = place.run(&["worker", "--once"]).await;
    assert!(file.code == Some(2) && file.stderr.contains("jobs need a PostgreSQL database"), "{file:?}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_worker_that_runs_once_gives_its_jobs_back_at_the_first_signal() {
    let Some(server) = server::shared() else { return };
    let (place, model) = (Place::new(), serve([Answer::stream().text(["half an"]).stall()]).await);
    let user = User { place: &place, url: database(server, "agent_once"), name: None };
    user.send(&["run", "hi", "--thread", "t"]).await;
    let base = model.base_url();
    let work = ["worker", "--once", "--grace", "0s", "--base-url", &base, "--model", "m"];
    let mut command = place.command(&work);
    command.env("SUPERSTEP_DB", &user.url);
    let running = Running::of(command);
    received(&model, 1).await;
    running.signal("TERM");
    let ran = running.end().await;
    let told = "\nstopping; press Ctrl-C again to stop at once\nstopped after 0 runs\n";
    assert!(ran.code == Some(0) && ran.stderr.ends_with(told), "{ran:?}");
    let listed = user.run(&["jobs", "list", "--json"]).await.ok().lines();
    assert_eq!((listed.len(), &listed[0]["state"]), (1, &"queued".into()), "{listed:?}");
}

#[tokio::test]
async fn a_call_of_a_job_waits_for_the_decision_of_the_workers_user() {
    let Some(server) = server::shared() else { return };
    let (place, url) = (Place::new(), database(server, "agent_answers"));
    let model = serve([
        calls([
            ("c1", "write_file", r#"{"path":"a.txt","content":"made"}"#),
            ("c2", "write_file", r#"{"path":"b.txt","content":"made"}"#),
        ]),
        txt("done"),
    ])
    .await;
    let base = model.base_url();
    let worker = ["--base-url", &base, "--model", "m"];
    let user = User { place: &place, url: url.clone(), name: None };
    let other = User { place: &place, url, name: Some("mallory") };
    user.send(&["run", "write both", "--thread", "t"]).await;
    user.work(&worker).await;
    assert!(user.waits("t").await);
    assert_eq!(user.run(&["jobs", "list"]).await.ok().stdout, "no jobs\n");
    // Somebody else approves: a decision that only the database has.
    other.send(&["answer", "t", "--approve"]).await;
    user.work(&worker).await;
    assert!(user.waits("t").await && !place.work().join("a.txt").exists());
    // A result that somebody else invents is not one either.
    other.send(&["answer", "t", "--respond", "c2=it is written"]).await;
    user.work(&worker).await;
    let waits = user.state("t").await["tasks"].to_string();
    assert!(waits.contains(r#""key":"c1.2""#) && waits.contains(r#""key":"c2.3""#), "{waits}");
    // The user of the worker decides about both.
    let answer = ["jobs", "answer", "t", "--approve", "c1", "--deny", "c2=not this", "--json"];
    let sent = user.run(&[&answer[..], &["--key", "t", "--priority", "-1"]].concat()).await.ok();
    assert_eq!(sent.lines().len(), 2);
    let listed = user.run(&["jobs", "list", "--json"]).await.ok().lines();
    assert_eq!(listed.iter().map(|job| job["priority"].clone()).collect::<Vec<_>>(), [-1, -1]);
    user.work(&worker).await;
    assert!(!user.waits("t").await);
    assert!(place.work().join("a.txt").exists() && !place.work().join("b.txt").exists());
    let requests = model.requests();
    assert!(requests.last().unwrap()["messages"].to_string().contains("not this"));
}

#[tokio::test]
async fn a_job_whose_model_is_unavailable_is_tried_again_and_not_dropped() {
    let Some(server) = server::shared() else { return };
    let (place, url) = (Place::new(), database(server, "agent_down"));
    let model = serve([http(401, &[], "no such key"), txt("here I am")]).await;
    let base = model.base_url();
    let worker = ["--base-url", &base, "--model", "m"];
    let user = User { place: &place, url, name: None };
    let id = user.send(&["run", "hi", "--thread", "t", "--attempts", "1"]).await;
    user.work(&worker).await;
    let dead = user.run(&["jobs", "list", "--dead", "--json"]).await.ok().lines();
    assert_eq!((dead.len(), dead[0]["id"].to_string()), (1, id.clone()), "{dead:?}");
    assert!(user.error(&id).await.starts_with("the turn has no answer (llm_error): "), "{dead:?}");
    user.run(&["jobs", "retry", &id]).await.ok();
    user.work(&worker).await;
    assert_eq!(user.run(&["jobs", "list"]).await.ok().stdout, "no jobs\n");
    assert_eq!(user.state("t").await["values"]["final_reply"], "here I am");
}

#[tokio::test]
async fn a_prompt_behind_a_waiting_call_keeps_its_place_and_its_attempts() {
    let Some(server) = server::shared() else { return };
    let (place, url) = (Place::new(), database(server, "agent_behind"));
    let model = serve([write("c1", "a.txt"), txt("done"), txt("two"), txt("three")]).await;
    let base = model.base_url();
    let worker = ["--base-url", &base, "--model", "m"];
    let user = User { place: &place, url, name: None };
    for prompt in ["first", "second", "third"] {
        user.send(&["run", prompt, "--thread", "t", "--key", "t"]).await;
    }
    user.work(&worker).await;
    user.work(&worker).await;
    let listed = user.run(&["jobs", "list", "--json"]).await.ok().lines();
    let about: Vec<_> = listed.iter().map(|job| (job["state"].as_str(), job["attempts"].as_i64())).collect();
    assert_eq!(about, [(Some("queued"), Some(0)); 2], "{listed:?}");
    assert_eq!(listed[0]["last_error"], "the thread waits for an answer");
    // The answer has the same key, and is sent after them.
    user.send(&["answer", "t", "--approve", "--key", "t"]).await;
    user.work(&worker).await;
    assert_eq!(user.run(&["jobs", "list"]).await.ok().stdout, "no jobs\n");
    let requests = model.requests();
    let messages = requests.last().unwrap()["messages"].to_string();
    let at = |text: &str| messages.find(text).unwrap_or_else(|| panic!("`{text}` in {messages}"));
    assert!(at("first") < at("second") && at("second") < at("two") && at("two") < at("third"), "{messages}");
}

#[tokio::test]
async fn a_worker_accepts_the_decisions_of_others_only_if_its_user_says_so() {
    let Some(server) = server::shared() else { return };
    let (place, url) = (Place::new(), database(server, "agent_trusts"));
    let model = serve([write("c1", "a.txt"), txt("done")]).await;
    let base = model.base_url();
    let worker = ["--base-url", &base, "--model", "m", "--trust-answers"];
    let user = User { place: &place, url: url.clone(), name: None };
    let other = User { place: &place, url, name: Some("bob") };
    user.send(&["run", "write", "--thread", "t"]).await;
    user.work(&worker).await;
    other.send(&["answer", "t", "--approve"]).await;
    user.work(&worker).await;
    assert!(place.work().join("a.txt").exists());
}

#[tokio::test]
async fn nothing_in_a_job_or_a_thread_widens_what_a_worker_may_do() {
    let Some(server) = server::shared() else { return };
    let (place, url) = (Place::new(), database(server, "agent_narrow"));
    let model =
        serve([write("c1", "a.txt"), write("c2", "b.txt"), txt("no"), write("c3", "c.txt"), txt("ok")]).await;
    let base = model.base_url();
    let worker = ["--base-url", &base, "--model", "m"];
    let user = User { place: &place, url: url.clone(), name: None };
    let other = User { place: &place, url, name: Some("mallory") };
    // A thread of somebody else whose settings and rules allow all, with a granted rule.
    place.file("wide.toml", "[[permissions]]\ntool = \"*\"\nthen = \"allow\"\n");
    let ran = other
        .run(&[
            "run",
            "go",
            "--thread",
            "t",
            "--config",
            "wide.toml",
            "--base-url",
            &base,
            "--model",
            "m",
            "--no-memory",
        ])
        .await;
    assert!(place.work().join("a.txt").exists() && place.work().join("b.txt").exists(), "{ran:?}");
    user.send(&["run", "again", "--thread", "t"]).await;
    user.work(&worker).await;
    assert!(user.waits("t").await && !place.work().join("c.txt").exists());

    // A job with more than a prompt.
    let table = "superstep_jobs._private_jobs";
    let id = user.send(&["run", "x", "--thread", "v", "--attempts", "1", "--delay", "2h"]).await;
    let wide = r#"{"prompt": "x", "permissions": [{"tool": "*", "then": "allow"}]}"#;
    server.sql(&format!(
        "\\c agent_narrow\nUPDATE {table} SET payload = jsonb_set(payload::jsonb, '{{work,run,input}}', '{wide}')::json WHERE id = {id}"
    ));
    user.run(&["jobs", "retry", &id]).await.ok();
    user.work(&worker).await;
    let error = user.error(&id).await;
    assert!(error.contains("unknown field `permissions`"), "{error}");
    let dead = user.run(&["jobs", "list", "--failed"]).await.ok().stdout;
    assert!(dead.contains("dead") && dead.contains("1/1"), "{dead}");

    // The thread of a dream.
    let dream = "dream:me";
    let sent = user.run(&["jobs", "run", "x", "--thread", dream]).await;
    assert!(sent.code == Some(5) && sent.stderr.contains("belongs to dreams"), "{sent:?}");
    server.sql(&format!(
        "\\c agent_narrow\nUPDATE {table} SET payload = jsonb_set(jsonb_set(payload::jsonb, '{{work,run,input}}', '{{\"prompt\": \"x\"}}'), '{{thread}}', '\"{dream}\"')::json WHERE id = {id}"
    ));
    user.run(&["jobs", "retry", &id]).await.ok();
    user.work(&worker).await;
    let error = user.error(&id).await;
    assert!(error.contains("belongs to dreams"), "{error}");

    // An unfinished turn of another folder.
    std::fs::create_dir(place.work().join("below")).unwrap();
    let id = user.send(&["resume", "t", "--attempts", "1"]).await;
    user.work(&[&worker[..], &["--cwd", "below"]].concat()).await;
    let error = user.error(&id).await;
    assert!(error.contains("began in the folder"), "{error}");
}

#[tokio::test]
async fn the_rules_of_a_workers_flags_apply_to_every_job() {
    let Some(server) = server::shared() else { return };
    let place = Place::new();
    let user = User { place: &place, url: database(server, "agent_rules"), name: None };
    let model = serve([
        calls([
            ("c1", "write_file", r#"{"path":"a.txt","content":"made"}"#),
            ("c2", "shell", r#"{"command":"touch b.txt"}"#),
            ("c3", "write_file", r#"{"path":"c.txt","content":"made"}"#),
        ]),
        txt("done"),
    ])
    .await;
    let base = model.base_url();
    user.send(&["run", "go", "--thread", "t"]).await;
    let rules = [
        "--allow",
        "write_file:path=*.txt",
        "--allow",
        "shell",
        "--deny",
        "shell",
        "--deny",
        "write_file:path=c*",
    ];
    user.work(&[&["--base-url", &base, "--model", "m"], &rules[..]].concat()).await;
    assert!(!user.waits("t").await);
    let there = ["a.txt", "b.txt", "c.txt"].map(|name| place.work().join(name).exists());
    assert_eq!(there, [true, false, false]);
}

#[tokio::test]
async fn a_schedule_of_the_agent_is_stored_changed_and_run() {
    let Some(server) = server::shared() else { return };
    let place = Place::new();
    let user = User { place: &place, url: database(server, "agent_schedules"), name: None };
    let schedule = async |args: &[&str]| user.run(&[&["jobs", "schedule"], args].concat()).await;
    for (times, error) in [
        ("0 25 * * *", "invalid times `0 25 * * *`: field 2, the hour, is `25`: "),
        ("0 9 * *", "it has 4 fields, not five"),
    ] {
        let wrong = schedule(&["add", "digest", times, "1 + 1"]).await;
        assert!(wrong.code == Some(2) && wrong.stderr.contains(error), "{wrong:?}");
    }
    let wrong = schedule(&["add", "digest", "0 9 * * *", "1 + 1", "--zone", "Europe/Bonn"]).await;
    assert!(wrong.code == Some(2) && wrong.stderr.contains("unknown time zone `Europe/Bonn`"), "{wrong:?}");
    let dream = schedule(&["add", "dream:me", "@daily", "1 + 1", "--thread", "dream:me"]).await;
    assert!(dream.code == Some(5) && dream.stderr.contains("belongs to dreams"), "{dream:?}");
    assert_eq!(schedule(&["list"]).await.ok().stdout, "no schedules\n");

    let added =
        schedule(&["add", "digest", "0 0 1 1 *", "20 + 3", "--zone", "Europe/Berlin"]).await.ok().stdout;
    assert!(added.contains("digest-{time}") && added.contains("Europe/Berlin"), "{added}");
    let twice = schedule(&["add", "digest", "@daily", "1 + 1"]).await;
    assert!(twice.code == Some(5) && twice.stderr.contains("there is a schedule `digest`"), "{twice:?}");
    let paused = schedule(&["pause", "digest"]).await.ok().stdout;
    assert!(paused.contains("paused"), "{paused}");
    let resumed = schedule(&["resume", "digest", "--json"]).await.ok().lines();
    assert_eq!((&resumed[0]["paused"], resumed[0]["next_ms"].is_i64()), (&false.into(), true));
    // As if it had been stored two years ago.
    server.sql(
        "\\c agent_schedules\nUPDATE superstep_jobs._private_known_crontabs SET last_execution = now() - interval '2 years'",
    );
    user.work(&["--model", "offline"]).await;
    let threads = user.run(&["threads", "--json"]).await.ok().lines();
    let thread = threads[0]["thread"].as_str().unwrap();
    assert!(threads.len() == 1 && thread.starts_with("digest-20"), "{threads:?}");
    assert!(user.state(thread).await["values"]["final_reply"].to_string().contains("23"));
    assert_eq!(schedule(&["remove", "digest"]).await.ok().stdout, "schedule digest is removed\n");
    for command in ["remove", "pause", "resume"] {
        let gone = schedule(&[command, "digest"]).await;
        assert!(gone.code == Some(5) && gone.stderr.contains("unknown schedule `digest`"), "{gone:?}");
    }
}
