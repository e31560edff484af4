//! Invalid input: a clear message, an exit code, no lost data.

use std::{fs, path::Path, process::Stdio};

use superstep_testing::script::{Answer, call, http, txt};

use crate::support::{Place, ended, received, serve};

#[tokio::test]
async fn no_server_at_the_url() {
    let place = Place::new();
    let ran = place
        .run(&["run", "hi", "--thread", "t", "--base-url", "http://127.0.0.1:1/v1", "--model", "m"])
        .await;
    assert!(ran.stderr.contains("retrying in "), "{}", ran.stderr);
    ran.refused(
        3,
        "the model call failed: `http://127.0.0.1:1/v1`: no connection: Connection refused (os error 111)\n\
         resume with: superstep resume t",
    );
}

#[tokio::test]
async fn an_empty_database_is_refused_as_a_flag_and_unset_as_a_variable() {
    let place = Place::new();
    let empty = "`--db` is empty; name a file, or the URL of a PostgreSQL database";
    place.run(&["threads", "--db", ""]).await.refused(2, empty);
    ended(place.command(&["threads", "--db", ""]).env("SUPERSTEP_DB", "a.db")).await.refused(2, empty);
    ended(place.command(&["threads"]).env("SUPERSTEP_DB", "")).await.ok();
}

#[tokio::test]
async fn a_folder_that_cannot_be_read_is_not_an_empty_one() {
    let place = Place::new();
    place.file(".superstep", "");
    let ran = place.run(&["threads"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(4), ""), "{ran:?}");
    assert!(ran.stderr.contains("cannot open database"), "{ran:?}");
}

#[tokio::test]
async fn an_invalid_url() {
    let place = Place::new();
    place.run(&["run", "hi", "--base-url", "localhost", "--model", "m"]).await.refused(
        2,
        "the base URL `localhost` cannot be read (relative URL without a base); write it like \
         `https://api.openai.com/v1`",
    );
}

#[tokio::test]
async fn a_server_without_a_model_and_a_model_without_a_server() {
    let place = Place::new();
    place.run(&["run", "hi", "--base-url", "http://127.0.0.1:1/v1"]).await.refused(
        2,
        "the server `http://127.0.0.1:1/v1` needs the name of a model; give it with `--model` or \
         OPENAI_MODEL",
    );
    place.run(&["run", "hi", "--model", "llama"]).await.refused(
        3,
        "no server for model `llama`: none runs on this machine, and neither `--base-url` nor \
         OPENAI_BASE_URL nor OPENAI_API_KEY names one; name one, or use `--model offline`",
    );
}

#[tokio::test]
async fn a_refused_key_leaves_a_thread_that_can_be_resumed() {
    let place = Place::new();
    let server = serve([http(401, &[], r#"{"error":{"message":"bad key"}}"#), txt("hello")]).await;
    let args = ["run", "hi", "--thread", "t", "--base-url", &server.base_url(), "--model", "m"];
    let ran = place.run(&args).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), ""), "{ran:?}");
    assert!(ran.stderr.contains("error: the model call failed: "), "{ran:?}");
    assert!(ran.stderr.contains("401") && ran.stderr.contains("bad key"), "{ran:?}");
    assert!(ran.stderr.ends_with("\nresume with: superstep resume t\n"), "{ran:?}");
    assert_eq!(place.run(&["resume", "t", "-q"]).await.ok().stdout, "hello\n");
}

#[tokio::test]
async fn the_last_json_line_reports_a_failed_model_call() {
    let place = Place::new();
    let server = serve([http(404, &[], r#"{"error":{"message":"no such model"}}"#)]).await;
    let ran = place.run(&["run", "hi", "--json", "--base-url", &server.base_url(), "--model", "m"]).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let last = ran.lines().pop().unwrap();
    assert_eq!(last["data"]["outcome"], "llm_error");
    assert!(last["data"]["final_reply"].as_str().unwrap().starts_with("No answer: "), "{last}");
}

#[tokio::test]
async fn prompts_that_are_empty_too_long_or_no_text() {
    let place = Place::new();
    let empty = "the prompt is empty; write what you want to know";
    place.run(&["run", "  "]).await.refused(2, empty);
    place.run(&["run"]).await.refused(2, empty);
    let long = "the prompt is longer than 1 MiB; put it into a file under `--cwd` and ask about that";
    place.run_with_stdin(&["run", "-"], &vec![b'x'; 10 << 20]).await.refused(2, long);
    place.run_with_stdin(&["run"], b"\xff\xfe").await.refused(2, "the prompt on stdin is not valid UTF-8");
    assert!(!place.database().exists(), "nothing is stored");
}

#[tokio::test]
async fn a_negative_step_limit() {
    let ran = Place::new().run(&["run", "hi", "--max-steps", "-1"]).await;
    assert_eq!(ran.code, Some(2));
    let told = "error: invalid value '-1' for '--max-steps <N>': -1 is not in 0..=10000\n";
    assert!(ran.stderr.starts_with(told), "{}", ran.stderr);
}

#[tokio::test]
async fn a_missing_or_invalid_folder() {
    let place = Place::new();
    let hint = "choose another folder with `--cwd`";
    place
        .run(&["run", "hi", "--cwd", "missing"])
        .await
        .refused(2, &format!("cannot work in `missing`: it does not exist; {hint}"));
    place
        .run(&["run", "hi", "--cwd", "notes.txt"])
        .await
        .refused(2, &format!("cannot work in `notes.txt`: it is not a folder; {hint}"));
}

#[tokio::test]
async fn databases_that_cannot_be_used() {
    let place = Place::new();
    let db = place.beside("threads.db");
    let path = db.to_str().unwrap();
    let run = async |db: &str| place.run(&["run", "hi", "--db", db]).await;
    let cannot = |what: &str| format!("SS303: cannot open database `{path}`: {what}");

    fs::write(&db, "no database at all, but long enough to look at it\n".repeat(50)).unwrap();
    let before = fs::read(&db).unwrap();
    let ran = run(path).await;
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(ran.stderr.contains("it is not an SQLite database; use another file"), "{ran:?}");
    assert_eq!(fs::read(&db).unwrap(), before, "it is not touched");

    fs::remove_file(&db).unwrap();
    place.run(&["run", "-q", "1+1", "--db", path]).await.ok();
    let mut bytes = fs::read(&db).unwrap();
    // The place of SQLite's `user_version` in a file.
    bytes[60..64].copy_from_slice(&99u32.to_be_bytes());
    fs::write(&db, &bytes).unwrap();
    run(path).await.refused(
        4,
        &cannot(
            "it was written by a newer superstep (schema 99, this program knows 4); update superstep or use another file",
        ),
    );
    assert_eq!(fs::read(&db).unwrap(), bytes, "it is not touched");

    let missing = place.beside("missing/threads.db");
    let ran = run(missing.to_str().unwrap()).await;
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(ran.stderr.contains("does not exist; create it or use another file"), "{ran:?}");

    // A read-only file system.
    let ran = run("/proc/self/threads.db").await;
    assert_eq!(ran.code, Some(4), "{ran:?}");
    let told = "SS303: cannot open database `/proc/self/threads.db`: the folder `/proc/self` takes no files; use a folder";
    assert!(ran.stderr.contains(told), "{ran:?}");
}

#[tokio::test]
async fn a_thread_name_like_a_flag() {
    let place = Place::new();
    let told = "a thread's name does not begin with `-`, which is for flags";
    for args in [&["run", "1+1", "--thread=-weird"][..], &["copy", "t", "--", "-weird"]] {
        let ran = place.run(args).await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(told), "{ran:?}");
    }
    let ran = place.run(&["run", "1+1", "--thread", "t", "--db=-x.db"]).await.ok();
    assert!(
        ran.stderr.ends_with("ask more with: superstep run --thread t --db ./-x.db \"...\"\n"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn an_invalid_list_of_servers() {
    let place = Place::new();
    let ran =
        ended(place.command(&["run", "hi"]).env("SUPERSTEP_LOCAL_SERVERS", "http://127.0.0.1:1/v1")).await;
    ran.refused(
        2,
        "invalid server `http://127.0.0.1:1/v1` in SUPERSTEP_LOCAL_SERVERS; write it like \
         `Ollama=http://127.0.0.1:11434/v1`",
    );
}

#[tokio::test]
async fn an_unknown_thread() {
    let place = Place::new();
    let db = place.work().canonicalize().unwrap().join(".superstep/threads.db");
    let told = format!("thread `nope` does not exist in `{}`; see `superstep threads`", db.display());
    for made in [false, true] {
        for command in ["resume", "state", "history"] {
            place.run(&[command, "nope"]).await.refused(5, &told);
        }
        assert_eq!(place.database().exists(), made);
        place.run(&["run", "-q", "1+1"]).await.ok();
    }
    let ran = place.run(&["resume", ""]).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
}

#[tokio::test]
async fn a_second_run_on_a_busy_thread() {
    let place = Place::new();
    let server = serve([Answer::stream().stall()]).await;
    let args = ["run", "hi", "--thread", "t", "--base-url", &server.base_url(), "--model", "m"];
    let _running = place.start(&args);
    received(&server, 1).await;
    let busy =
        "SS301: thread `t` is busy, another run is working on it; wait for it to end or use another thread";
    place.run(&["run", "more", "--thread", "t"]).await.refused(5, busy);
    place.run(&["resume", "t"]).await.refused(5, busy);
    place.run(&["run", "-q", "1+1", "--thread", "other"]).await.ok();
    assert_eq!(place.state("t").await["next"][0], "agent", "looking is allowed");
}

#[tokio::test]
async fn an_unfinished_thread_is_resumed_or_discarded_and_never_overwritten() {
    let place = Place::new();
    let server = serve([Answer::stream().stall(), txt("fresh")]).await;
    let args = ["run", "hi", "--thread", "t", "--base-url", &server.base_url(), "--model", "m"];
    let mut running = place.start(&args);
    received(&server, 1).await;
    running.child.kill().await.unwrap();
    place.run(&["run", "other", "--thread", "t"]).await.refused(
        5,
        "thread `t` is not finished, `agent` still to run; resume it with: superstep resume t\nor drop that \
         with `--discard`",
    );
    let ran = place.run(&["run", "other", "--thread", "t", "--discard", "--json"]).await.ok();
    assert_eq!(ran.stdout.lines().next(), Some(r#"{"event":"discarded","data":{"nodes":["agent"]}}"#));
    assert_eq!(ran.lines().pop().unwrap()["data"]["final_reply"], "fresh");
}

#[cfg(unix)]
#[tokio::test]
async fn tools_do_not_leave_the_folder_not_even_through_a_link() {
    let place = Place::new();
    std::os::unix::fs::symlink("../secret.txt", place.work().join("link.txt")).unwrap();
    let read = |id: &str, path: &str| call(id, "read_file", &format!(r#"{{"path":"{path}"}}"#));
    let server = serve([
        read("c1", "../secret.txt"),
        read("c2", "link.txt"),
        read("c3", ".superstep/threads.db"),
        call("c4", "search_files", r#"{"pattern":"secret"}"#),
        txt("I could not."),
    ])
    .await;
    place.run(&["run", "read", "--base-url", &server.base_url(), "--model", "m"]).await.ok();
    let last = server.requests().pop().unwrap();
    let results: Vec<_> =
        last["messages"].as_array().unwrap().iter().filter(|said| said["role"] == "tool").cloned().collect();
    let results: Vec<_> = results.iter().map(|said| said["content"].as_str().unwrap()).collect();
    assert_eq!(
        results,
        [
            "Error: Permission denied: path '../secret.txt' is outside the workspace root; use a path below it",
            "Error: Permission denied: path 'link.txt' is outside the workspace root; use a path below it",
            "Error: Permission denied: path '.superstep/threads.db' is reserved: `.git` and `.superstep` are out of reach",
            "[no match in 1 text files of '.']\n[not searched: 1 link (link.txt)]",
        ]
    );
    let ran = place.run(&["run", "-q", "Show link.txt and ../secret.txt"]).await.ok();
    assert!(!ran.stdout.contains("the secret"), "{}", ran.stdout);
}

#[cfg(unix)]
#[tokio::test]
async fn a_full_disk_is_reported_and_stored_data_remains() {
    let place = Place::new();
    place.run(&["run", "-q", "1 + 1", "--thread", "t"]).await.ok();
    let before = place.state("t").await;
    // A file must not exceed this number of blocks of 512 bytes; without the trap the signal would end the
    // program.
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\"";
    let mut command = place.bare(Path::new("sh"));
    command.args(["-c", script, env!("CARGO_BIN_EXE_superstep"), "run", "2 + 2", "--thread", "t"]);
    let ran = ended(&mut command).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(4), ""), "{ran:?}");
    assert!(ran.stderr.contains("error: SS303: "), "{ran:?}");
    assert!(!ran.stderr.contains("resume with"), "there is nothing to resume: {ran:?}");
    assert_eq!(place.state("t").await, before);
    place.run(&["run", "-q", "2 + 2", "--thread", "t"]).await.ok();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_behind_stdout_is_reported() {
    let place = Place::new();
    for args in [&["draw"][..], &["--help"], &["run", "--json", "1 + 1"], &["run", "-q", "1 + 1"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = place.command(args);
        let child = command.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        let output = child.wait_with_output().await.unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(
            told.ends_with("error: cannot write to stdout: No space left on device (os error 28)\n"),
            "{told}"
        );
    }
}
