//! Hostile MCP servers: the run ends, and its memory stays small.
//!
//! The long form, `just hostile-mcp`, lets every server attack the defaults and measures the program's
//! memory.

use futures::{StreamExt, stream};
use superstep_testing::script::{call, txt};
use tokio::time::Instant;

use crate::{
    hostile::{MAX_KB, measured},
    support::{Place, Ran, ended, serve},
};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cli/hostile_mcp.sh");

/// The attacks, each with a part of the program's message: the result of the call, or its error.
const ATTACKS: [(&str, &str); 25] = [
    ("mute", "it did not answer for "),
    ("early", "it did not answer for "),
    ("chatter", "it did not answer for "),
    ("pages", "it has more than 1000"),
    ("cursor", "names tool `h_*`, which does not exist"),
    ("names", "does not list its tools: "),
    ("schemas", "have more than 100000 values"),
    ("values", "it has more than 100000"),
    ("objects", "it has more than 100000"),
    ("few", "content of kind `no kind`"),
    ("text", "truncated 6951424 bytes"),
    ("depth", "it has more than 100000"),
    ("frame", "did not answer in "),
    ("frames", "did not answer in "),
    ("utf8", "did not answer in "),
    ("garbage", "did not answer in "),
    ("ids", "did not answer in "),
    ("logs", "did not answer in "),
    ("progress", "did not answer in "),
    ("changes", "did not answer in "),
    ("pings", "did not answer in "),
    ("questions", "h_go asks:"),
    ("silent", "did not answer in "),
    ("stubborn", "did not answer in "),
    ("stderr", "well done"),
];

/// The number of servers that attack at the same time, each a separate program.
const AT_ONCE: usize = 4;

/// The attacks of the short form.
const SHORT: [&str; 8] = ["cursor", "schemas", "values", "objects", "depth", "garbage", "pings", "stderr"];

fn is_long() -> bool {
    std::env::var_os("HOSTILE_MCP").is_some()
}

/// Runs the program with a server; in the long form, its peak memory in KB too.
async fn attacked(attack: &str) -> (Ran, Option<u64>) {
    let place = Place::new();
    // The time limit ends those that never finish.
    let limits = match (is_long(), attack) {
        (false, "garbage" | "pings") => "call_timeout_ms = 300\n",
        _ => "",
    };
    place.file(
        "agent.toml",
        &format!(
            "[[permissions]]\ntool = \"h_*\"\nthen = \"allow\"\n[mcp.h]\ncommand = \"sh\"\nargs = [\"{SERVER}\"]\n\
             env = {{ ATTACK = \"{attack}\" }}\n{limits}"
        ),
    );
    let server = serve([call("c1", "h_go", "{}"), txt("done")]).await;
    let url = server.base_url();
    let args = ["run", "go", "--thread", "t", "--config", "agent.toml", "--base-url", &url, "--model", "m"];
    let mut command = place.command(&args);
    let (mut ran, peak) =
        if is_long() { measured(&mut command).await } else { (ended(&mut command).await, None) };
    if ran.code == Some(0) {
        // The text that the model read.
        ran.stderr.push_str(&place.state("t").await["values"]["tool_result_history"].to_string());
    }
    (ran, peak)
}

#[tokio::test]
async fn no_mcp_server_takes_more_than_it_may() {
    let attacks = ATTACKS.into_iter().filter(|(attack, _)| is_long() || SHORT.contains(attack));
    let mut attacks = stream::iter(attacks)
        .map(|(attack, wanted)| async move {
            let began = Instant::now();
            (attack, wanted, attacked(attack).await, began.elapsed())
        })
        .buffered(AT_ONCE);
    let mut failed = Vec::new();
    while let Some((attack, wanted, (ran, peak), took)) = attacks.next().await {
        if let Some(kb) = peak {
            println!("{attack}: {} MB, {:.1} s", kb / 1024, took.as_secs_f64());
        }
        let shown = &ran.stderr[..ran.stderr.floor_char_boundary(4_000)];
        if peak.is_some_and(|kb| kb >= MAX_KB) {
            failed.push(format!("{attack}: {peak:?} KB"));
        }
        if !ran.stderr.contains(wanted) {
            failed.push(format!("{attack}: wanted {wanted}, got {:?}: {shown}", ran.code));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
