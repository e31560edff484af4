//! `superstep chat`: by lines, and on a terminal of tmux.

use std::{
    fmt::Write as _,
    fs,
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use superstep::llm::http::client_builder;
use superstep_testing::{
    script::{Answer, call, http, txt},
    skipped,
};
use tokio::time::{sleep, timeout};

use crate::support::{Place, received, serve};

/// A limit longer than any wait.
const LIMIT: Duration = Duration::from_secs(120);

#[tokio::test]
async fn each_line_of_a_pipe_is_a_turn_of_one_thread() {
    let place = Place::new();
    let server = serve([txt("four"), txt("six")]).await;
    let args = ["chat", "--thread", "t", "--base-url", &server.base_url(), "--model", "m"];
    let ran = place.run_with_stdin(&args, b"2 + 2?\n\n/mode\nand 2 more?\n").await.ok();
    assert_eq!(ran.stdout, "four\nsix\n");
    assert!(ran.stderr.contains("* ask "), "{}", ran.stderr);
    let messages = server.requests()[1]["messages"].clone();
    let said: Vec<_> =
        messages.as_array().unwrap().iter().rev().take(3).map(|it| it["content"].clone()).collect();
    assert_eq!(said, ["and 2 more?", "four", "2 + 2?"]);
    server.check().unwrap();
}

#[tokio::test]
async fn a_chat_by_lines_ends_with_the_codes_of_run() {
    let place = Place::new();
    let write = call("c1", "write_file", r#"{"path":"one","content":"x\n"}"#);
    let server = serve([write, txt("done"), http(400, &[], "{}")]).await;
    let args = ["chat", "--thread", "t", "--base-url", &server.base_url(), "--model", "m"];
    let ran = place.run_with_stdin(&args, b"make it\nnever sent\n").await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(6), ""), "{ran:?}");
    assert!(ran.stderr.contains("decide with: superstep resume t --approve"), "{}", ran.stderr);
    assert!(!place.work().join("one").exists());
    place.run(&["resume", "t", "--approve"]).await.ok();
    let ran = place.run_with_stdin(&args, b"and now?\n").await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert_eq!(place.run_with_stdin(&args, b"/nothing\n").await.code, Some(2));
    assert_eq!(place.run_with_stdin(&args, b"").await.code, Some(0));
}

#[tokio::test]
async fn the_newest_thread_of_the_folder_continues() {
    let place = Place::new();
    assert_eq!(place.run_with_stdin(&["chat", "--last"], b"").await.code, Some(5));
    let server = serve([txt("one"), txt("two"), txt("three")]).await;
    let url = server.base_url();
    let with = ["--base-url", &url, "--model", "m"];
    for thread in ["a", "b"] {
        place.run(&[&["run", "hi", "--thread", thread][..], &with].concat()).await.ok();
    }
    let ran = place.run_with_stdin(&["chat", "--last"], b"again\n").await.ok();
    assert_eq!((ran.stdout.as_str(), ran.stderr.starts_with("thread b\n")), ("three\n", true), "{ran:?}");
    // A chat without a turn leaves no thread.
    place.run_with_stdin(&["chat"], b"/quit\n").await.ok();
    assert_eq!(place.run(&["threads", "--json"]).await.ok().lines().len(), 2);
    let ran = place.run_with_stdin(&["chat", "--last"], b"/threads\n").await.ok();
    assert!(ran.stderr.contains("  b  hi\n") && ran.stderr.contains("  a  hi\n"), "{}", ran.stderr);
}

#[tokio::test]
async fn a_fork_leaves_the_old_line() {
    let place = Place::new();
    let server = serve([txt("one"), txt("two"), txt("other")]).await;
    let args = ["chat", "--thread", "t", "--base-url", &server.base_url(), "--model", "m"];
    let ran = place.run_with_stdin(&args, b"first\nsecond\n/history\n").await.ok();
    let second = ran.stderr.lines().find(|line| line.ends_with("  second")).unwrap();
    let before = second.split_whitespace().next().unwrap().to_owned();
    let input = format!("/fork {before}\nanother\n");
    let ran = place.run_with_stdin(&args, input.as_bytes()).await.ok();
    assert_eq!(ran.stdout, "other\n");
    let said = |state: serde_json::Value| {
        let messages = state["values"]["messages"].as_array().cloned().unwrap_or_default();
        messages.iter().map(|it| it["content"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(said(place.state("t").await), ["first", "one", "second", "two"]);
    let copy =
        ran.stderr.lines().filter_map(|line| line.strip_prefix("thread ")).next_back().unwrap().to_owned();
    assert_eq!(said(place.state(&copy).await), ["first", "one", "another", "other"]);
}

#[tokio::test]
async fn commands_show_the_thread_as_those_of_the_shell_do() {
    let place = Place::new();
    let server = serve([txt("four"), txt("six")]).await;
    let args = ["chat", "--thread", "t", "--base-url", &server.base_url(), "--model", "m"];
    let input = b"/graph\n";
    let ran = place.run_with_stdin(&args, input).await;
    assert_eq!((ran.code, ran.stderr.contains("the thread has no turn yet")), (Some(5), true), "{ran:?}");
    let input = b"2 + 2?\n/diff\nand 2 more?\n/state\n/state llm_calls\n/diff\n/tools\n/memory\n/graph\n/replay\n/export kept.jsonl\n";
    let said = place.run_with_stdin(&args, input).await.ok().stderr;
    for wanted in [
        "this is the first turn",
        "status      finished\n",
        "channels    ",
        "--- t@",
        "  + - content: \"and 2 more?\"\n",
        "read_file",
        "nothing\n",
        "the thread is in kept.jsonl\n",
    ] {
        assert!(said.contains(wanted), "{wanted:?} is missing in {said}");
    }
    let drawing = place.run(&["draw", "--thread", "t"]).await.ok().stdout;
    let replay = place.run(&["replay", "t"]).await.ok().stdout;
    for shown in [drawing.trim_end(), replay.trim_end()] {
        assert!(said.contains(shown), "{shown} is missing in {said}");
    }
    let exported = place.run(&["export", "t"]).await.ok().stdout;
    assert_eq!(fs::read_to_string(place.work().join("kept.jsonl")).unwrap(), exported);
    let again = place.run_with_stdin(&args, b"/export kept.jsonl\n").await;
    assert_eq!((again.code, again.stderr.contains("cannot write `")), (Some(1), true), "{again:?}");
    let wrong = place.run_with_stdin(&args, b"/state mesages\n").await;
    assert_eq!((wrong.code, wrong.stderr.contains("did you mean `messages`?")), (Some(2), true), "{wrong:?}");
}

#[tokio::test]
async fn a_summary_on_request_precedes_the_next_message() {
    let place = Place::new();
    let server = serve([txt("noted"), txt("the summary"), txt("two"), txt("three")]).await;
    let args = ["chat", "--thread", "t", "--base-url", &server.base_url(), "--model", "m"];
    let input = format!("{}\n/compact\nnext\nlast\n", "a long text ".repeat(8_000));
    let ran = place.run_with_stdin(&args, input.as_bytes()).await.ok();
    assert_eq!(ran.stdout, "noted\ntwo\nthree\n");
    let shortened = ran.stderr.matches("the conversation was shortened for the model").count();
    assert_eq!(shortened, 1, "{}", ran.stderr);
    let requests = server.requests();
    let summarized = requests[1].to_string();
    assert!(requests[1].get("tools").is_none() && !summarized.contains("user: next"), "{summarized}");
    for (request, said) in [(2, &["next"][..]), (3, &["next", "two", "last"])] {
        let messages = requests[request]["messages"].as_array().unwrap();
        let texts: Vec<_> = messages.iter().map(|it| it["content"].as_str().unwrap()).collect();
        let (before, after) = texts.split_at(texts.len() - said.len());
        assert_eq!(after, said);
        assert!(before.last().unwrap().contains("the summary"), "{before:?}");
    }
    server.check().unwrap();
    let short = serve([txt("hi"), txt("bye")]).await;
    let args = ["chat", "--thread", "s", "--base-url", &short.base_url(), "--model", "m"];
    let refused = place.run_with_stdin(&args, b"/compact\n").await;
    assert_eq!((refused.code, refused.stderr.contains("the thread has no turn yet")), (Some(5), true));
    let ran = place.run_with_stdin(&args, b"hi\n/compact\nbye\n").await.ok();
    assert!(ran.stderr.contains("the conversation was not summarized: it is too short"), "{}", ran.stderr);
    short.check().unwrap();
}

#[tokio::test]
async fn a_pin_reaches_the_next_request_until_it_is_removed() {
    let place = Place::new();
    let server = serve([txt("one"), txt("two"), txt("three")]).await;
    let args = ["chat", "--thread", "t", "--base-url", &server.base_url(), "--model", "m"];
    let early = place.run_with_stdin(&args, b"/pin x\n").await;
    assert_eq!(
        (early.code, early.stderr.contains("the thread has no turn yet")),
        (Some(5), true),
        "{early:?}"
    );
    let input = b"hi\n/pin\n/pin Never push.\n/pin goal: Ship it.\nand?\n/unpin gone\n";
    let ran = place.run_with_stdin(&args, input).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(5), "one\ntwo\n"), "{ran:?}");
    assert!(ran.stderr.contains("no pins\n") && ran.stderr.contains("  Never push.\n"), "{ran:?}");
    assert!(ran.stderr.contains("thread `t` has no pin `gone`"), "{ran:?}");
    let rule = place.run(&["pin", "t", "--json"]).await.ok().lines()[0]["id"].as_str().unwrap().to_owned();
    let ran = place.run_with_stdin(&args, format!("/unpin {rule}\nnow?\n").as_bytes()).await.ok();
    assert!(ran.stderr.contains("goal `") && !ran.stderr.contains("Never push."), "{ran:?}");
    let requests = server.requests();
    let second = requests[1]["messages"].to_string();
    assert!(second.find("Never push.") < second.find("and?") && second.contains("Ship it."), "{second}");
    let third = requests[2]["messages"].to_string();
    assert!(third.contains("No longer valid"), "{third}");
    server.check().unwrap();
}

#[tokio::test]
async fn the_studio_of_a_chat_reads_with_its_key_alone() {
    let place = Place::new();
    let server = serve([txt("seen")]).await;
    let url = server.base_url();
    let Some(tmux) = Tmux::start(&place, 200, &["chat", "--thread", "t", "--base-url", &url, "--model", "m"])
    else {
        return;
    };
    tmux.sees("ready").await;
    tmux.says("hi");
    tmux.sees("seen").await;
    tmux.says("/studio");
    let all = tmux.sees("#key=").await;
    let line = all.lines().find(|line| line.contains("#key=")).unwrap();
    let (address, key) = line.trim().split_once("#key=").unwrap();
    let (door, thread) = address.split_once("/studio/t/").unwrap();
    assert_eq!((thread, key.len()), ("t", 64));
    let (client, threads) =
        (client_builder().unwrap().no_proxy().build().unwrap(), format!("{door}/studio/api/threads"));
    assert_eq!(client.get(&threads).send().await.unwrap().status(), 401);
    let answer = client.get(&threads).header("x-api-key", key).send().await.unwrap();
    assert!(answer.text().await.unwrap().contains("\"t\""));
    let fork = format!("{door}/threads/t/copy");
    assert_eq!(client.post(&fork).header("x-api-key", key).send().await.unwrap().status(), 403);
    tmux.says("/quit");
    tmux.until("the end of the chat", |_| tmux.tmux(&["display-message", "-p", "#{pane_dead}"]) == "1\n")
        .await;
    assert!(client.get(&threads).send().await.is_err());
}

/// A terminal in which the program runs.
struct Tmux {
    socket: PathBuf,
}

impl Tmux {
    /// Starts the program in a terminal of this many columns; `None` without tmux.
    fn start(place: &Place, columns: u16, args: &[&str]) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            skipped("tmux is missing, so the chat on a terminal is not tested");
            return None;
        }
        // The server of an earlier terminal may still be ending on its socket.
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let socket = place.beside(&format!("tmux{}", COUNT.fetch_add(1, Ordering::Relaxed)));
        let it = Self { socket };
        let settings = place.beside("tmux.conf");
        fs::write(
            &settings,
            "set -g history-limit 50000\nset -g set-clipboard on\nset -g remain-on-exit on\n",
        )
        .unwrap();
        let program = [env!("CARGO_BIN_EXE_superstep")].into_iter().chain(args.iter().copied());
        let program: Vec<_> = program.map(|word| format!("'{word}'")).collect();
        let mut command = place.bare("tmux".as_ref()).into_std();
        command.arg("-S").arg(&it.socket).arg("-f").arg(settings);
        command.args(["new-session", "-d", "-y", "24", "-x", &columns.to_string()]).arg(program.join(" "));
        assert!(command.env("PAGER", "cat").env("NO_COLOR", "").status().unwrap().success());
        Some(it)
    }

    fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux").arg("-S").arg(&self.socket).args(args).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn types(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    fn key(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    fn says(&self, text: &str) {
        self.types(text);
        self.key("Enter");
    }

    /// Returns the history and the screen.
    fn all(&self) -> String {
        let all = self.tmux(&["capture-pane", "-p", "-J", "-S", "-"]);
        all.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// Waits until the history and the screen are as they should be.
    async fn until(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let waits = async {
            loop {
                let all = self.all();
                if is_there(&all) {
                    return all;
                }
                sleep(Duration::from_millis(30)).await;
            }
        };
        timeout(LIMIT, waits).await.unwrap_or_else(|_| panic!("waited for {what:?}, saw {}", self.all()))
    }

    /// Waits until the reply of a turn of this number is shown and the turn has ended.
    async fn replied(&self, turn: u32) {
        let reply = format!("reply {turn}\n");
        self.until(&reply, |all| all.contains(&reply) && all.contains("ready · ")).await;
    }

    async fn sees(&self, text: &str) -> String {
        self.until(text, |all| all.contains(text)).await
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[tokio::test]
async fn a_stream_is_in_the_history_once_and_in_order_at_every_width() {
    let place = Place::new();
    let mut answer = Answer::stream();
    for part in 0..50 {
        let lines = (part * 20..(part + 1) * 20).fold(String::new(), |mut lines, number| {
            writeln!(lines, "- line {number}").unwrap();
            lines
        });
        answer = answer.text([lines.as_str()]).delay(40);
    }
    let server = serve([answer.end("stop").done(), txt("second")]).await;
    let url = server.base_url();
    let Some(tmux) = Tmux::start(&place, 80, &["chat", "--thread", "t", "--base-url", &url, "--model", "m"])
    else {
        return;
    };
    tmux.sees("ready").await;
    tmux.says("go");
    tmux.sees("- line 100\n").await;
    tmux.types("my draft stays");
    for columns in ["40", "200", "57", "120"] {
        tmux.tmux(&["resize-window", "-x", columns, "-y", "24"]);
        sleep(Duration::from_millis(200)).await;
    }
    tmux.sees("- line 999\n").await;
    let all = tmux.until("the end", |all| all.contains("ready")).await;
    let seen: Vec<_> = all.lines().filter_map(|line| line.trim().strip_prefix("- line ")).collect();
    let wanted: Vec<_> = (0..1_000).map(|number| number.to_string()).collect();
    assert_eq!(seen, wanted, "{all}");
    assert_eq!(all.matches("> my draft stays").count(), 1, "{all}");
    assert_eq!(all.matches(" · ask · t #").count(), 1, "{all}");
    tmux.key("Enter");
    tmux.sees("second").await;
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn a_long_diff_is_in_the_history_and_each_answer_means_what_it_does_for_resume() {
    let place = Place::new();
    let text = |word: &str| (0..100).fold(String::new(), |text, number| format!("{text}{word} {number}\n"));
    place.file("long.txt", &text("old"));
    let edit = serde_json::json!({ "path": "long.txt", "old": text("old"), "new": text("new") }).to_string();
    let write = |id: &str, name: &str| {
        call(id, "write_file", &serde_json::json!({ "path": name, "content": "x\n" }).to_string())
    };
    let answers = [
        call("c1", "edit_file", &edit),
        write("c2", "two"),
        write("c3", "three"),
        write("c4", "four"),
        txt("done"),
    ];
    let server = serve(answers).await;
    let url = server.base_url();
    let Some(tmux) =
        Tmux::start(&place, 80, &["chat", "go", "--thread", "t", "--base-url", &url, "--model", "m"])
    else {
        return;
    };
    let all = tmux.sees("[a]lways").await;
    for number in 0..100 {
        assert!(
            all.contains(&format!("{:>3} -old {number}\n", number + 1))
                && all.contains(&format!("{:>3} +new {number}\n", number + 1)),
            "{all}"
        );
    }
    tmux.says("perhaps");
    tmux.sees("`perhaps` is not an answer").await;
    tmux.says("y");
    tmux.sees("make two").await;
    tmux.says("n not that one");
    tmux.sees("make three").await;
    tmux.says(r#"e {"path": "edited", "content": "y\n"}"#);
    tmux.sees("make four").await;
    tmux.says("r it is there");
    tmux.sees("done").await;
    let made = ["two", "three", "edited", "four"].map(|name| place.work().join(name).exists());
    assert_eq!(made, [false, false, true, false]);
    assert_eq!(fs::read_to_string(place.work().join("long.txt")).unwrap(), text("new"));
    let requests = server.requests();
    let result = |request: usize, id: &str| {
        let messages = requests[request]["messages"].as_array().unwrap();
        let found = messages.iter().find(|message| message["tool_call_id"] == id);
        found.unwrap()["content"].as_str().unwrap().to_owned()
    };
    assert_eq!(result(2, "c2"), "Error: Permission denied: not that one");
    assert!(result(4, "c4").contains("it is there"));
}

#[tokio::test]
async fn enter_steers_the_turn_and_tab_queues_the_next() {
    let place = Place::new();
    let slow = call("c1", "shell", r#"{"command":"until test -e go; do sleep 0.05; done"}"#);
    let server = serve([slow, txt("one"), txt("two")]).await;
    let url = server.base_url();
    let args = ["chat", "begin", "--thread", "t", "--yes", "--base-url", &url, "--model", "m"];
    let Some(tmux) = Tmux::start(&place, 100, &args) else { return };
    tmux.sees("● shell").await;
    tmux.says("steered text");
    tmux.sees("> steered text  (sent").await;
    tmux.types("queued text");
    tmux.key("Tab");
    tmux.sees("> queued text  (queued").await;
    place.file("go", "");
    received(&server, 3).await;
    let requests = server.requests();
    let last = |request: usize| {
        requests[request]["messages"].as_array().unwrap().last().unwrap()["content"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!((last(1).as_str(), last(2).as_str()), ("steered text", "queued text"));
    let all = tmux.sees("two\n").await;
    assert_eq!(all.matches("> steered text").count(), 1, "{all}");
    assert_eq!(all.matches("> queued text").count(), 1, "{all}");
}

#[tokio::test]
async fn escape_keeps_a_valid_thread_and_says_how_to_continue() {
    let place = Place::new();
    let server = serve([Answer::stream().text(["half of"]).stall(), txt("whole"), txt("more")]).await;
    let url = server.base_url();
    let args = ["chat", "begin", "--thread", "t", "--base-url", &url, "--model", "m"];
    let Some(tmux) = Tmux::start(&place, 80, &args) else { return };
    tmux.sees("half of").await;
    tmux.key("Escape");
    tmux.sees("cancelled; the last turn is not finished").await;
    tmux.says("/continue");
    tmux.sees("whole").await;
    tmux.until("the end", |all| all.contains("ready")).await;
    tmux.key("C-c");
    let all = tmux.sees("continue with: superstep chat --thread t").await;
    assert_eq!(all.matches("ready").count(), 0, "the live part is gone: {all}");
    place.run(&["run", "go", "--thread", "t"]).await.ok();
    server.check().unwrap();
}

#[tokio::test]
async fn ctrl_t_shows_the_whole_conversation_and_returns() {
    let place = Place::new();
    let rows = call("c1", "shell", r#"{"command":"seq -f 'row %g' 200"}"#);
    let server = serve([rows, txt("the reply"), txt("more")]).await;
    let url = server.base_url();
    let args = ["chat", "begin", "--thread", "t", "--yes", "--base-url", &url, "--model", "m"];
    let Some(tmux) = Tmux::start(&place, 80, &args) else { return };
    let before = tmux.until("the end", |all| all.contains("the reply") && all.contains("ready")).await;
    assert!(!before.contains("row 100"), "{before}");
    tmux.types("draft");
    tmux.sees("> draft").await;
    tmux.key("C-t");
    tmux.sees("q: back").await;
    for number in (100..=190).rev().step_by(15) {
        tmux.until("an earlier page", |_| {
            tmux.key("Up");
            tmux.all().contains(&format!("    row {number}\n"))
        })
        .await;
    }
    tmux.key("g");
    tmux.sees("> begin").await;
    tmux.types("/ROW 120");
    tmux.key("Enter");
    tmux.sees("    row 120\n").await;
    tmux.key("g");
    tmux.tmux(&["resize-window", "-x", "60", "-y", "20"]);
    tmux.sees("of 2").await;
    tmux.key("Escape");
    let after = tmux.until("the chat", |all| all.contains("> draft") && !all.contains("q: back")).await;
    assert!(!after.contains("row 100"), "{after}");
    assert_eq!(after.matches("> draft").count(), 1, "{after}");
    assert_eq!(after.matches("> begin").count(), 1, "{after}");
    tmux.key("Enter");
    tmux.sees("more").await;
}

#[tokio::test]
async fn the_last_reply_is_copied_and_the_menu_has_every_command() {
    let place = Place::new();
    let server = serve([txt("the *reply*")]).await;
    let url = server.base_url();
    let args = ["chat", "begin", "--thread", "t", "--base-url", &url, "--model", "m"];
    let Some(tmux) = Tmux::start(&place, 80, &args) else { return };
    tmux.until("the end", |all| all.contains("the reply") && all.contains("ready")).await;
    tmux.types("/cop");
    tmux.sees("copy the last reply").await;
    tmux.key("Tab");
    tmux.key("Enter");
    tmux.sees("sent 11 characters to the clipboard").await;
    tmux.until("the buffer", |_| tmux.tmux(&["show-buffer"]) == "the *reply*").await;
    tmux.says("/help");
    let help = tmux.sees("/quit").await;
    for command in ["/tools", "/state", "/diff", "/replay", "/graph", "/memory", "/copy", "/export"] {
        assert!(help.contains(&format!("{command} ")), "{command}: {help}");
    }
}

#[tokio::test]
async fn after_a_kill_in_a_tool_nothing_runs_twice() {
    let place = Place::new();
    let slow = call("c1", "shell", r#"{"command":"echo ran >> runs; sleep 1000"}"#);
    let server = serve([slow, txt("it is done")]).await;
    let url = server.base_url();
    let args = ["chat", "begin", "--thread", "t", "--yes", "--base-url", &url, "--model", "m"];
    let Some(tmux) = Tmux::start(&place, 80, &args) else { return };
    let runs = place.work().join("runs");
    tmux.until("the tool", |_| runs.exists()).await;
    let id = tmux.tmux(&["display-message", "-p", "#{pane_pid}"]);
    assert!(Command::new("kill").args(["-9", id.trim()]).status().unwrap().success());
    drop(tmux);
    let Some(tmux) = Tmux::start(&place, 80, &["chat", "--last"]) else { return };
    tmux.sees("> begin").await;
    tmux.sees("the last turn is not finished").await;
    tmux.says("/continue");
    tmux.sees("it is done").await;
    assert_eq!(fs::read_to_string(runs).unwrap(), "ran\n");
}

#[tokio::test]
async fn ten_turns_survive_tools_decisions_a_steer_a_fork_and_a_kill() {
    let place = Place::new();
    place.file("note.txt", "the note\n");
    let write = |id: &str, path: &str| {
        call(id, "write_file", &serde_json::json!({ "path": path, "content": "x\n" }).to_string())
    };
    let shell = |id: &str, line: &str| call(id, "shell", &serde_json::json!({ "command": line }).to_string());
    let server = serve([
        txt("reply 1"),
        call("c2", "read_file", r#"{"path":"note.txt"}"#),
        txt("reply 2"),
        write("c3", "wrong"),
        txt("reply 3"),
        shell("c4", "until test -e go; do sleep 0.05; done"),
        txt("reply 4"),
        write("c5", "never"),
        txt("reply 5"),
        txt("reply 6"),
        shell("c7", "echo ran >> runs; sleep 1000"),
        txt("reply 7"),
        txt("reply 8"),
        txt("reply 9"),
        txt("reply 10"),
    ])
    .await;
    let url = server.base_url();
    let args = ["chat", "--thread", "t", "--base-url", &url, "--model", "m", "--no-memory"];
    let Some(tmux) = Tmux::start(&place, 80, &args) else { return };
    // What is typed before belongs to the terminal, whose Enter is another character.
    tmux.sees("ready").await;
    for turn in 1..=2 {
        tmux.says(&format!("turn {turn}"));
        tmux.replied(turn).await;
    }
    tmux.says("turn 3");
    tmux.sees("make wrong").await;
    tmux.says(r#"e {"path": "right", "content": "y\n"}"#);
    tmux.replied(3).await;
    tmux.says("turn 4");
    tmux.sees("until test -e go").await;
    tmux.says("y");
    tmux.sees("● shell").await;
    tmux.says("and this");
    tmux.sees("> and this  (sent").await;
    place.file("go", "");
    tmux.replied(4).await;
    tmux.says("turn 5");
    tmux.sees("make never").await;
    tmux.says("n not now");
    tmux.replied(5).await;
    tmux.says("/fork");
    // The copy shows its last two turns again.
    tmux.until("the copy", |all| all.matches("> turn 5").count() == 2 && !all.contains(" · t #")).await;
    tmux.says("turn 6");
    tmux.replied(6).await;
    tmux.says("turn 7");
    tmux.sees("sleep 1000").await;
    tmux.says("y");
    let runs = place.work().join("runs");
    tmux.until("the tool", |_| runs.exists()).await;
    let id = tmux.tmux(&["display-message", "-p", "#{pane_pid}"]);
    assert!(Command::new("kill").args(["-9", id.trim()]).status().unwrap().success());
    drop(tmux);
    let Some(tmux) = Tmux::start(&place, 80, &["chat", "--last"]) else { return };
    tmux.sees("the last turn is not finished").await;
    tmux.says("/continue");
    tmux.replied(7).await;
    for turn in 8..=10 {
        tmux.says(&format!("turn {turn}"));
        tmux.replied(turn).await;
    }
    tmux.key("C-c");
    let all = tmux.sees("continue with: superstep chat --thread ").await;
    let copy = all.rsplit("--thread ").next().unwrap().split_whitespace().next().unwrap().to_owned();
    let user = |state: serde_json::Value| {
        let messages = state["values"]["messages"].as_array().cloned().unwrap_or_default();
        let of_user = messages.into_iter().filter(|message| message["role"] == "user");
        of_user.map(|message| message["content"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let turns = |most: u32| {
        let texts = (1..=most).map(|turn| format!("turn {turn}"));
        texts.flat_map(|text| if text == "turn 4" { vec![text, "and this".to_owned()] } else { vec![text] })
    };
    assert!(user(place.state("t").await).into_iter().eq(turns(5)));
    assert!(user(place.state(&copy).await).into_iter().eq(turns(10)));
    let made = ["wrong", "right", "never"].map(|name| place.work().join(name).exists());
    assert_eq!(made, [false, true, false]);
    assert_eq!(fs::read_to_string(runs).unwrap(), "ran\n");
    server.check().unwrap();
}

/// Types this number of turns. `just chat-turns` does 3,000.
#[tokio::test]
async fn many_turns_leave_the_memory_flat_and_no_stale_line() {
    let turns: usize = match std::env::var("SUPERSTEP_CHAT_TURNS") {
        Ok(turns) => turns.parse().unwrap(),
        Err(_) => 30,
    };
    let place = Place::new();
    let args = ["chat", "--thread", "t", "--model", "offline", "--no-memory"];
    let Some(tmux) = Tmux::start(&place, 80, &args) else { return };
    tmux.sees("ready").await;
    let kilobytes = || {
        let id = tmux.tmux(&["display-message", "-p", "#{pane_pid}"]);
        let shown = Command::new("ps").args(["-o", "rss=", "-p", id.trim()]).output().unwrap();
        String::from_utf8(shown.stdout).unwrap().trim().parse::<u64>().unwrap()
    };
    let mut at_third = 0;
    for turn in 1..=turns {
        tmux.says(&format!("{turn} + {turn}"));
        let reply = format!("{turn} + {turn} = {}", 2 * turn);
        let ended = async {
            loop {
                // The screen only: the whole history would be read again for each turn.
                let screen = tmux.tmux(&["capture-pane", "-p", "-J"]);
                // `-J` keeps the blanks at the end of a line.
                let has_reply = screen.lines().any(|line| line.trim_end() == reply);
                if has_reply && screen.contains("ready · ") {
                    break;
                }
                sleep(Duration::from_millis(15)).await;
            }
        };
        timeout(LIMIT, ended).await.unwrap_or_else(|_| panic!("turn {turn}: {}", tmux.all()));
        if turn % 10 == 5 {
            let columns = if turn % 20 == 5 { "60" } else { "110" };
            tmux.tmux(&["resize-window", "-x", columns, "-y", "30"]);
        }
        // Memory grows by a step of about 50 MB between 200 and 400 turns, probably the table of tokens, near the window of the model.
        if turn == turns / 3 {
            at_third = kilobytes();
        }
    }
    let grown = kilobytes().saturating_sub(at_third);
    println!("{turns} turns: {at_third} kB after a third of them, and {grown} kB more at the end");
    // A turn has its messages, and the allocator takes some megabytes at a time.
    assert!(grown < 16_000 + turns as u64 * 8, "{grown} kB");
    let all = tmux.until("the last turn", |all| all.contains(" · ask · t #")).await;
    let prompts: Vec<_> = all.lines().filter_map(|line| line.strip_prefix("> ")).collect();
    let wanted: Vec<_> = (1..=turns).map(|turn| format!("{turn} + {turn}")).collect();
    // The history of the terminal has the newest lines.
    let lost = wanted.len().saturating_sub(prompts.len());
    assert!(turns > 1_000 || lost == 0, "{all}");
    assert_eq!(prompts[1..], wanted[lost + 1..], "in order, and once");
    assert_eq!(all.matches(" · ask · t").count(), 1, "the status is on the screen only");
}
