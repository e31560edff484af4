//! The program at a terminal, where the user can answer questions.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    process::Stdio,
    time::Duration,
};

use rustix::{
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};
use superstep_testing::script::{call, calls, txt};
use tokio::{
    process::{Child, Command},
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::timeout,
};

use crate::support::{Place, Ran, serve};

/// The program with a terminal as its stdin and stderr.
struct Terminal {
    child: Child,
    keys: File,
    screen: UnboundedReceiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    fn start(place: &Place, args: &[&str]) -> Self {
        Self::with(&mut place.command(args))
    }

    fn with(command: &mut Command) -> Self {
        Self::typed_ahead("", command)
    }

    /// Starts the program after some keys were typed.
    fn typed_ahead(keys: &str, command: &mut Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave: OwnedFd = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let mut typed = File::from(master.try_clone().unwrap());
        typed.write_all(keys.as_bytes()).unwrap();
        // The terminal has received them when it shows them.
        let mut echo = vec![0; keys.replace('\n', "\r\n").len()];
        typed.read_exact(&mut echo).unwrap();
        command.stdin(Stdio::from(slave.try_clone().unwrap())).stderr(Stdio::from(slave));
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        // Closes its copies of the terminal.
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let keys = File::from(master);
        let mut eyes = keys.try_clone().unwrap();
        let (see, screen) = unbounded_channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4_096];
            // Ends with an error when the program has closed its side.
            while let Ok(count @ 1..) = eyes.read(&mut buffer) {
                let _ = see.send(buffer[..count].to_vec());
            }
        });
        Self { child, keys, screen, seen: String::new() }
    }

    /// Waits until the text is on the screen, and drops the screen up to it.
    async fn sees(&mut self, text: &str) {
        while !self.seen.contains(text) {
            let more = timeout(Duration::from_secs(60), self.screen.recv()).await;
            let more = more.unwrap_or_else(|_| panic!("waited for {text:?}, saw {:?}", self.seen));
            self.seen += &String::from_utf8_lossy(&more.expect("it is still there"));
        }
        let at = self.seen.find(text).unwrap() + text.len();
        self.seen.drain(..at);
    }

    fn types(&mut self, line: &str) {
        self.keys.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn interrupts(&self) {
        let id = self.child.id().unwrap();
        assert!(
            std::process::Command::new("kill").args(["-INT", &id.to_string()]).status().unwrap().success()
        );
    }

    async fn ends(self) -> Ran {
        let output = timeout(Duration::from_secs(60), self.child.wait_with_output()).await.expect("it ends");
        Ran::of(output.unwrap())
    }
}

const QUESTION: &str = "Allow this? [y]es, [n]o WHY, [a]lways, [e]dit JSON, [r]espond TEXT, [v]iew all:";

fn made(place: &Place, name: &str) -> bool {
    place.work().join(name).exists()
}

fn write(id: &str, name: &str) -> (String, String, String) {
    (id.to_owned(), "write_file".to_owned(), format!(r#"{{"path":"{name}","content":"x\n"}}"#))
}

#[tokio::test]
async fn a_person_at_the_terminal_decides_each_call() {
    let place = Place::new();
    let [one, two, three, four] =
        [write("c1", "one"), write("c2", "two"), write("c3", "three"), write("c4", "four")];
    // After `always`, the other call of the round needs no decision either.
    let round = [&one, &two, &four].map(|(id, tool, args)| (id.as_str(), tool.as_str(), args.as_str()));
    let server = serve([calls(round), call("c3", "write_file", &three.2), txt("done")]).await;
    let url = server.base_url();
    let mut terminal =
        Terminal::start(&place, &["run", "go", "--thread", "t", "--base-url", &url, "--model", "m"]);
    terminal.sees("make one, 1 line").await;
    terminal.sees(QUESTION).await;
    terminal.types("n not that one");
    terminal.sees("make two, 1 line").await;
    terminal.sees(QUESTION).await;
    terminal.types("perhaps");
    terminal.sees(QUESTION).await;
    terminal.types("always");
    let ran = terminal.ends().await.ok();
    assert_eq!(ran.stdout, "done\n");
    assert_eq!(["one", "two", "three", "four"].map(|name| made(&place, name)), [false, true, true, true]);
    let requests = server.requests();
    let denied =
        requests[1]["messages"].as_array().unwrap().iter().find(|message| message["tool_call_id"] == "c1");
    assert_eq!(denied.unwrap()["content"], "Error: Permission denied: not that one");
    server.check().unwrap();
}

#[tokio::test]
async fn input_typed_before_a_question_does_not_answer_it() {
    let place = Place::new();
    let (_, tool, args) = write("c1", "one");
    let server = serve([call("c1", &tool, &args), txt("done")]).await;
    let url = server.base_url();
    let args = ["run", "go", "--thread", "t", "--base-url", &url, "--model", "m"];
    let mut terminal = Terminal::typed_ahead("y\nalways\ny", &mut place.command(&args));
    terminal.sees(QUESTION).await;
    terminal.types("n");
    assert_eq!(terminal.ends().await.ok().stdout, "done\n");
    assert!(!made(&place, "one"));
    // The same applies to changes that cannot be undone.
    let mut terminal = Terminal::typed_ahead("y\n", &mut place.command(&["delete", "t"]));
    terminal.sees("This will delete thread `t`, with every checkpoint.").await;
    terminal.sees("Continue? [y/n]").await;
    terminal.types("n");
    assert_eq!(terminal.ends().await.code, Some(130));
    place.run(&["state", "t"]).await.ok();
}

#[tokio::test]
async fn a_form_of_a_call_that_another_process_left_is_filled_in_at_the_terminal() {
    let place = Place::new();
    let bank = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/it/mcp/elicit.sh");
    let rule = "[[permissions]]\ntool = \"bank_*\"\nthen = \"allow\"";
    let env = "{ SEEN = \"seen\", ASKS = \"Which account?\" }";
    let toml = format!("{rule}\n[mcp.bank]\ncommand = \"sh\"\nargs = [\"{bank}\"]\nenv = {env}\n");
    place.file("agent.toml", &toml);
    let server = serve([call("c1", "bank_pay", r#"{"sum":5}"#), txt("paid")]).await;
    let url = server.base_url();
    let run = ["run", "go", "--thread", "t", "--config", "agent.toml", "--base-url", &url, "--model", "m"];
    let asked = place.run(&run).await;
    assert_eq!(asked.code, Some(6), "{asked:?}");
    let form = "Answer this?";
    let resume = ["resume", "t", "-q", "--config", "agent.toml"];
    // The first person leaves before the form is complete, and it still waits.
    let mut terminal = Terminal::start(&place, &resume);
    terminal.sees("Which account?").await;
    terminal.sees(form).await;
    terminal.types("a");
    terminal.sees("account [string; characters, at least 2; required]:").await;
    terminal.interrupts();
    terminal.ends().await;
    let mut terminal = Terminal::start(&place, &resume);
    terminal.sees(form).await;
    terminal.types("a");
    terminal.sees("account [").await;
    terminal.types("x");
    terminal.sees("account [").await;
    terminal.types("main");
    terminal.sees(r#"Send {"account":"main"}? [y/n]"#).await;
    terminal.types("y");
    assert_eq!(terminal.ends().await.ok().stdout, "paid\n");
    let seen = std::fs::read_to_string(place.work().join("seen")).unwrap();
    assert_eq!(seen.lines().last(), Some(r#"{"action":"accept","content":{"account":"main"}}"#));
    server.check().unwrap();
}

#[tokio::test]
async fn a_line_that_stands_elsewhere_in_the_question_is_not_taken_for_shown() {
    let place = Place::new();
    // Below the shown lines, and a part of one of them.
    let lines: String = (0..25).map(|line| format!("# {line}: never rm -rf ~\\n")).collect();
    let args = format!(r#"{{"path":"one","content":"{lines}rm -rf ~"}}"#);
    let server = serve([call("c1", "write_file", &args), txt("done")]).await;
    let url = server.base_url();
    let args = ["run", "go", "--thread", "t", "--base-url", &url, "--model", "m"];
    let mut terminal = Terminal::start(&place, &args);
    terminal.sees("[not shown in full: `content` (").await;
    terminal.sees(QUESTION).await;
    terminal.types("n");
    terminal.ends().await.ok();
}

#[tokio::test]
async fn all_of_a_call_can_be_seen_before_it_is_approved() {
    let place = Place::new();
    let content: String = (0..200).map(|line| format!("line {line}\\n")).collect();
    let args = format!(r#"{{"path":"one","content":"{content}\u202eend\u2028"}}"#);
    let server = serve([call("c1", "write_file", &args), txt("done")]).await;
    let url = server.base_url();
    let args = ["run", "go", "--thread", "t", "--base-url", &url, "--model", "m"];
    // The pager has no keys of databases.
    let pager = r#"cat; echo "keys: [$SUPERSTEP_KEY$SUPERSTEP_OLD_KEY]""#;
    let key = place.run(&["db", "key"]).await.ok().stdout;
    let keys = [("SUPERSTEP_KEY", key.trim()), ("SUPERSTEP_OLD_KEY", key.trim()), ("PAGER", pager)];
    let mut terminal = Terminal::with(place.command(&args).envs(keys));
    terminal.sees("[not shown in full: `content` (1").await;
    terminal.sees("`v` shows all of it]").await;
    terminal.sees(QUESTION).await;
    terminal.types("v");
    terminal.sees("argument `content`:").await;
    terminal.sees("  | line 199\r\n  | \\u{202e}end\\u{2028}\r\n").await;
    terminal.sees("keys: []").await;
    terminal.sees(QUESTION).await;
    terminal.types("y");
    assert_eq!(terminal.ends().await.ok().stdout, "done\n");
    assert!(made(&place, "one"));
}

#[tokio::test]
async fn ctrl_c_at_the_question_leaves_it_open() {
    let place = Place::new();
    let (_, tool, args) = write("c1", "one");
    let server = serve([call("c1", &tool, &args), txt("done")]).await;
    let url = server.base_url();
    let mut terminal =
        Terminal::start(&place, &["run", "go", "--thread", "t", "--base-url", &url, "--model", "m"]);
    terminal.sees(QUESTION).await;
    terminal.interrupts();
    terminal.sees("interrupted; resume with: superstep resume t").await;
    assert_eq!(terminal.ends().await.code, Some(130));
    assert!(!made(&place, "one"));

    let mut terminal = Terminal::start(&place, &["resume", "t"]);
    terminal.sees("make one, 1 line").await;
    terminal.sees(QUESTION).await;
    // The end of the input decides nothing.
    terminal.keys.write_all(&[4]).unwrap();
    terminal.sees("decide with: superstep resume t --approve").await;
    assert_eq!(terminal.ends().await.code, Some(6));

    let mut terminal = Terminal::start(&place, &["resume", "t"]);
    terminal.sees(QUESTION).await;
    terminal.types("y");
    assert_eq!(terminal.ends().await.ok().stdout, "done\n");
    assert!(made(&place, "one"));
    server.check().unwrap();
}

#[tokio::test]
async fn each_divergence_of_a_case_is_accepted_rejected_or_skipped() {
    let place = Place::new();
    let server = serve([txt("Hello."), txt("Hello.")]).await;
    let url = server.base_url();
    let folder = place.work().join("cases");
    std::fs::create_dir(&folder).unwrap();
    for thread in ["one", "two"] {
        let args =
            ["run", "Hi.", "--thread", thread, "--base-url", &url, "--model", "m", "--quiet", "--no-memory"];
        place.run(&args).await.ok();
        let text = place.run(&["export", thread]).await.ok().stdout;
        std::fs::write(folder.join(format!("{thread}.thread.jsonl")), text).unwrap();
    }
    place.file("mine.toml", "system_prompt = \"Answer in French.\"\n");
    let text = |thread: &str| std::fs::read_to_string(folder.join(format!("{thread}.thread.jsonl"))).unwrap();
    let before = ["one", "two"].map(text);
    let args = ["replay", "--review", "cases", "--config", "mine.toml"];
    for (keys, code) in [(["r", "s"], 7), (["a", "r"], 7)] {
        let mut terminal = Terminal::start(&place, &args);
        for key in keys {
            terminal.sees("[a]ccept, [r]eject, [s]kip").await;
            terminal.types(key);
        }
        let ran = terminal.ends().await;
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.stdout.contains("+ Answer in French."), "{ran:?}");
        assert_eq!(text("two"), before[1]);
        assert_eq!(text("one") == before[0], keys[0] == "r");
    }
    assert!(text("one").contains("Answer in French."));
}
