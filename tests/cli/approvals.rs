//! Calls that wait for a decision, made in any process at any time.

use serde_json::Value;
use superstep_testing::{
    script::{Answer, call, calls, txt},
    wire::WireServer,
};

use crate::support::{Place, Ran, serve};

fn edit(id: &'static str) -> (&'static str, &'static str, &'static str) {
    (id, "edit_file", r#"{"path":"notes.txt","old":"needle","new":"thread"}"#)
}

fn write(id: &'static str) -> (&'static str, &'static str, &'static str) {
    (id, "write_file", r#"{"path":"new.txt","content":"made\n"}"#)
}

fn notes(place: &Place) -> String {
    std::fs::read_to_string(place.work().join("notes.txt")).unwrap()
}

/// Runs up to the first question.
async fn asked(place: &Place, server: &WireServer) -> Ran {
    let url = server.base_url();
    let ran = place.run(&["run", "go", "--thread", "t", "--json", "--base-url", &url, "--model", "m"]).await;
    assert_eq!(ran.code, Some(6), "{ran:?}");
    ran
}

fn events(ran: &Ran, name: &str) -> Vec<Value> {
    ran.lines().into_iter().filter(|line| line["event"] == name).map(|mut line| line["data"].take()).collect()
}

/// Returns the result of a call as the model read it.
fn result(server: &WireServer, id: &str) -> String {
    let requests = server.requests();
    let messages = requests.last().unwrap()["messages"].as_array().unwrap().clone();
    let message = messages.into_iter().find(|message| message["tool_call_id"] == id).unwrap();
    message["content"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_call_waits_without_a_terminal_and_runs_once_approved() {
    let place = Place::new();
    let server =
        serve([calls([edit("c1"), ("c2", "calculate", r#"{"expression":"1+1"}"#)]), txt("ok")]).await;
    let ran = asked(&place, &server).await;
    let requested = events(&ran, "approval_requested");
    assert_eq!(requested.len(), 1);
    assert_eq!((&requested[0]["id"], &requested[0]["tool"]), (&"c1".into(), &"edit_file".into()));
    let last = &events(&ran, "final")[0];
    assert_eq!((&last["outcome"], &last["metadata"]["llm_calls"]), (&"awaiting_approval".into(), &1.into()));
    assert_eq!(
        ran.stderr,
        "call `c1` of edit_file waits:\n    edit notes.txt\n    -needle\n    +thread\n\
         decide with: superstep resume t --approve\n\
         or with --deny-all REASON, --always, --edit ID=JSON, --respond ID=TEXT\n"
    );
    assert!(notes(&place).contains("needle"));

    // A repeated question decides nothing.
    let again = place.run(&["resume", "t", "--quiet"]).await;
    assert_eq!((again.code, again.stdout.as_str()), (Some(6), ""), "{again:?}");
    assert!(again.stderr.contains("call `c1` of edit_file waits"));

    let done = place.run(&["resume", "t", "--approve", "--json"]).await.ok();
    assert_eq!(events(&done, "final")[0]["final_reply"], "ok");
    assert_eq!(events(&done, "approval_requested"), Vec::<Value>::new(), "it is answered");
    assert_eq!(events(&done, "tool_start").len(), 1, "the other call has run, and does not run again");
    assert!(notes(&place).contains("the thread is here"));
    server.check().unwrap();
}

#[tokio::test]
async fn a_call_can_be_denied_changed_or_answered() {
    for (flags, wanted) in [
        (&["--deny-all", "not today"][..], "Error: Permission denied: not today"),
        (&["--deny", "c1=not = today"], "Error: Permission denied: not = today"),
        (&["--respond", "c1=it is done"], "it is done"),
        (
            &["--edit", r#"c1={"path":"notes.txt","old":"needle","new":"pin"}"#],
            "[The user changed the arguments to {\"new\":\"pin\",\"old\":\"needle\",\"path\":\"notes.txt\"}.]\n\
             edited 'notes.txt' at line 2: 1 line became 1 line",
        ),
    ] {
        let place = Place::new();
        let server = serve([calls([edit("c1")]), txt("ok")]).await;
        asked(&place, &server).await;
        place.run(&[&["resume", "t", "-q"], flags].concat()).await.ok();
        assert_eq!(result(&server, "c1"), wanted);
        assert_eq!(notes(&place).contains("pin"), flags[0] == "--edit");
        assert!(!notes(&place).contains("thread"));
    }
}

#[tokio::test]
async fn invalid_edited_arguments_are_requested_again() {
    let place = Place::new();
    let server = serve([calls([edit("c1")]), txt("ok")]).await;
    asked(&place, &server).await;
    let again = place.run(&["resume", "t", "--edit", r#"c1={"path":1}"#]).await;
    assert_eq!(again.code, Some(6), "{again:?}");
    assert!(
        again.stderr.contains("call `c1.2` of edit_file waits:\n    edit notes.txt\n"),
        "{}",
        again.stderr
    );
    assert!(again.stderr.contains("not possible: "), "{}", again.stderr);
    // The call's own id identifies it as well.
    place.run(&["resume", "t", "--approve", "c1"]).await.ok();
    assert!(notes(&place).contains("thread"));
}

#[tokio::test]
async fn several_calls_are_decided_in_any_order_and_nonsense_changes_nothing() {
    let place = Place::new();
    let server = serve([calls([edit("c1"), write("c2")]), txt("ok")]).await;
    asked(&place, &server).await;
    let before = place.state("t").await;
    for (flags, wrong) in [
        (
            &["--approve", "c9"][..],
            "no call `c9` waits on thread `t`; waiting calls: `c1`, `c2`; for all of them: `--approve`, `--always` or `--deny-all REASON`",
        ),
        (
            &["--deny", "c9=no"],
            "no call `c9` waits on thread `t`; waiting calls: `c1`, `c2`; for all of them: `--approve`, `--always` or `--deny-all REASON`",
        ),
        (&["--approve", "c1", "--deny", "c1=no"], "call `c1` is decided twice"),
        (&["--edit", "c1"], "`--edit` needs a value for the call `c1`: `--edit c1=JSON`"),
        (&["--respond", "no"], "`--respond` needs the call's id: `--respond ID=no`"),
    ] {
        place.run(&[&["resume", "t"], flags].concat()).await.refused(2, wrong);
    }
    assert_eq!(place.state("t").await, before);
    let half = place.run(&["resume", "t", "--approve", "c2"]).await;
    assert_eq!(half.code, Some(6), "{half:?}");
    assert!(half.stderr.contains("call `c1`") && !half.stderr.contains("call `c2`"), "{}", half.stderr);
    assert!(!place.work().join("new.txt").exists(), "they run when the last one is decided");
    place
        .run(&["resume", "t", "--approve", "c2"])
        .await
        .refused(2, "no call `c2` waits on thread `t`; waiting calls: `c1`; for all of them: `--approve`, `--always` or `--deny-all REASON`");
    place.run(&["resume", "t", "--deny-all", "no"]).await.ok();
    assert!(place.work().join("new.txt").exists() && notes(&place).contains("needle"));
    let late = place.run(&["resume", "t", "--approve"]).await;
    assert_eq!(late.stderr, "error: no call waits for a decision on thread `t`\n");
    late.refused(5, "no call waits for a decision on thread `t`");
}

#[tokio::test]
async fn permanently_allowed_tools_need_no_further_approval_on_the_thread() {
    let place = Place::new();
    let more = |id, name| call(id, "write_file", &format!(r#"{{"path":"{name}","content":""}}"#));
    let server = serve([calls([write("c1")]), more("c2", "a"), txt("ok"), more("c3", "b"), txt("ok")]).await;
    asked(&place, &server).await;
    place.run(&["resume", "t", "--always"]).await.ok();
    place.run(&["run", "more", "--thread", "t"]).await.ok();
    assert!(["new.txt", "a", "b"].iter().all(|name| place.work().join(name).exists()));
}

#[tokio::test]
async fn yes_is_like_a_rule_that_allows_everything_also_on_a_thread_that_waits() {
    let place = Place::new();
    let server = serve([calls([edit("c1")]), txt("ok"), calls([write("c1"), edit("c2")]), txt("ok")]).await;
    let url = server.base_url();
    let ran = place.run(&["run", "go", "--yes", "--base-url", &url, "--model", "m", "--json"]).await.ok();
    assert_eq!((events(&ran, "approval_requested").len(), events(&ran, "tool_end").len()), (0, 1));
    assert!(notes(&place).contains("thread"));
    assert_eq!(events(&ran, "tool_end")[0]["status"], "completed");
    let end = &events(&ran, "final")[0];
    assert!(end["usage"]["input_tokens"].as_u64().unwrap() > 0 && end["usage_estimated"] == true, "{end}");
    asked(&place, &server).await;
    place.run(&["resume", "t", "--yes", "--deny", "c2=no"]).await.ok();
    assert!(place.work().join("new.txt").exists());
    assert_eq!(result(&server, "c2"), "Error: Permission denied: no");
}

#[tokio::test]
async fn a_waiting_thread_rejects_a_new_prompt() {
    let place = Place::new();
    let server = serve([calls([edit("c1")]), txt("new")]).await;
    asked(&place, &server).await;
    place.run(&["run", "else", "--thread", "t"]).await.refused(
        5,
        "thread `t` waits for a decision about call `c1` of edit_file; decide with: superstep resume t\n\
         or drop that with `--discard`",
    );
    let shown = place.run(&["state", "t"]).await.ok().stdout;
    assert!(shown.contains("waits       call `c1` of edit_file: edit notes.txt…\n"), "{shown}");
    let task = &place.state("t").await["tasks"][0];
    assert_eq!((&task["node"], &task["waits"][0]["key"]), (&"tools".into(), &"c1".into()));
    place.run(&["run", "else", "--thread", "t", "--discard"]).await.ok();
    assert!(notes(&place).contains("needle"));
}

#[tokio::test]
async fn rules_of_the_configuration_decide_without_asking() {
    let place = Place::new();
    place.file(
        "rules.toml",
        "[[permissions]]\ntool = \"write_file\"\nthen = \"allow\"\n\n[[permissions]]\ntool = \"edit_*\"\nthen = \"deny\"\n\n\
         [[permissions]]\ntool = \"calculate\"\nthen = \"ask\"\n",
    );
    let sum = ("c3", "calculate", r#"{"expression":"1+1"}"#);
    let server = serve([calls([edit("c1"), write("c2"), sum]), txt("ok")]).await;
    let url = server.base_url();
    let args = ["run", "go", "--thread", "t", "--config", "rules.toml", "--base-url", &url, "--model", "m"];
    let ran = place.run(&args).await;
    assert_eq!(ran.code, Some(6), "{ran:?}");
    assert!(ran.stderr.contains("call `c3` of calculate waits:\n    Run calculate with"), "{}", ran.stderr);
    // The thread stores the rules.
    place.run(&["resume", "t", "--approve"]).await.ok();
    assert_eq!(result(&server, "c1"), "Error: Permission denied: a rule forbids it");
    assert_eq!(result(&server, "c2"), "made 'new.txt': 1 line");
    assert_eq!(result(&server, "c3"), "2");
}

#[tokio::test]
async fn killed_at_the_question_it_still_waits() {
    let place = Place::new();
    let server = serve([calls([edit("c1")]), Answer::stream().text(["o", "k"]).end("stop").done()]).await;
    let url = server.base_url();
    let args = ["run", "go", "--thread", "t", "--json", "--base-url", &url, "--model", "m"];
    let mut running = place.start(&args);
    running.line_with("approval_requested").await;
    running.child.kill().await.unwrap();
    // Whether the question was stored before the kill or is new.
    assert_eq!(place.run(&["resume", "t"]).await.code, Some(6));
    assert!(notes(&place).contains("needle"));
    place.run(&["resume", "t", "--approve"]).await.ok();
    assert!(notes(&place).contains("thread"));
    server.check().unwrap();
}
