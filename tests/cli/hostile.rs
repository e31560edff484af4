//! Hostile model servers: the program ends with an error that names the bound, and its memory stays small.
//!
//! The long form, `just hostile-models`, lets every server attack the defaults and measures the program's
//! memory.

use std::{fs, time::Duration};

use superstep_testing::hostile::{Attack, HostileServer};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Place, Ran};

/// Returns whether the long form was requested.
fn is_long() -> bool {
    std::env::var_os("HOSTILE_MODELS").is_some()
}

/// The maximum memory of the program in the long form.
pub(crate) const MAX_KB: u64 = 200 * 1024;

/// Runs the program against a server; in the long form, its peak memory in KB too.
async fn attacked(attack: Attack) -> (Ran, Option<u64>) {
    let place = Place::new();
    let server = HostileServer::start(attack, 7).await.unwrap();
    let file = place.beside("limits.toml");
    let limits = match (is_long(), attack) {
        (true, Attack::Slow) => "time_ms = 20000",
        (true, _) => "",
        (false, Attack::Slow) => "time_ms = 50",
        (false, _) => "answer_bytes = 65536\nreceived_bytes = 2097152\nargument_bytes = 16384",
    };
    fs::write(&file, format!("[models.main.limits]\n{limits}\n[retry]\nmax_attempts = 1\n")).unwrap();
    let (file, url) = (file.to_str().unwrap().to_owned(), server.base_url());
    let args = ["run", "go", "--quiet", "--config", &file, "--model", "m", "--base-url", &url];
    let mut command = place.command(&args);
    if !is_long() {
        return (crate::support::ended(&mut command).await, None);
    }
    measured(&mut command).await
}

/// Runs a program, and measures its peak memory in KB.
pub(crate) async fn measured(command: &mut tokio::process::Command) -> (Ran, Option<u64>) {
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    let status = format!("/proc/{}/status", child.id().unwrap());
    let end = timeout(Duration::from_secs(600), child.wait_with_output());
    tokio::pin!(end);
    let mut peak = 0;
    loop {
        let read = fs::read_to_string(&status).unwrap_or_default();
        let line = read.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kb = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        peak = kb.unwrap_or(0).max(peak);
        tokio::select! {
            ended = &mut end => return (Ran::of(ended.expect("it ends").unwrap()), Some(peak)),
            () = sleep(Duration::from_millis(5)) => {}
        }
    }
}

#[tokio::test]
async fn no_model_server_takes_more_than_it_may() {
    let short = [Attack::Tokens, Attack::Line, Attack::Calls, Attack::Depth, Attack::Slow, Attack::Headers];
    let attacks = if is_long() { &Attack::ALL[..] } else { &short };
    for &attack in attacks {
        let began = Instant::now();
        let (ran, peak) = attacked(attack).await;
        if let Some(kb) = peak {
            println!("{attack:?}: {} MB, {:.1} s", kb / 1024, began.elapsed().as_secs_f64());
            assert!(kb < MAX_KB, "{attack:?}: {kb} KB");
        }
        let wanted = match attack {
            Attack::Behind => {
                assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "whole\n"), "{ran:?}");
                continue;
            }
            Attack::Error => "the server answered 500: no such luck aaa",
            Attack::Headers => "message head is too large",
            Attack::Tokens | Attack::Reasoning => "the limit `answer_bytes` of an answer is ",
            Attack::Line | Attack::Body => "the limit `line_bytes` of an answer is 1048576",
            Attack::Calls => "the limit `tool_calls` of an answer is 128",
            Attack::Arguments => "the limit `argument_bytes` of an answer is ",
            Attack::Depth if is_long() => "the limit `argument_depth` of an answer is 64",
            Attack::Depth => "the limit `answer_bytes` of an answer is 65536",
            Attack::Values => "the limit `argument_values` of an answer is 20000",
            Attack::Slow => "the limit `time_ms` of an answer is ",
            _ => "the limit `received_bytes` of an answer is ",
        };
        assert_eq!(ran.code, Some(3), "{attack:?}: {ran:?}");
        assert!(ran.stderr.contains("error: the model call failed: "), "{attack:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(wanted), "{attack:?}: wanted {wanted}, got {}", ran.stderr);
    }
}
