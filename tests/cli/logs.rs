//! `--log`: spans and events on stderr.

use superstep_testing::script::{call, http, txt};

use crate::support::{Place, ended, serve};

#[tokio::test]
async fn a_log_shows_steps_and_no_contents() {
    let place = Place::new();
    let server = serve([
        http(500, &[("retry-after", "0")], "{}"),
        call("c1", "calculate", r#"{"expression":"40+2"}"#),
        txt("the result"),
    ])
    .await;
    let args = ["run", "a secret", "--thread", "t", "--base-url", &server.base_url(), "--model", "m"];
    let ran = place.run(&[&args[..], &["--log", "debug"]].concat()).await.ok();
    server.check().unwrap();
    assert_eq!(ran.stdout, "the result\n");
    let logged: Vec<_> = ran.stderr.lines().filter(|line| line.contains(" run{")).collect();
    for parts in [
        &["WARN", "node=agent", "a failed request to a model is repeated", "status=500"][..],
        &["INFO", r#"chat{gen_ai.operation.name="chat" gen_ai.request.model="m" attempt=2"#, "close"],
        &["INFO", r#"gen_ai.tool.name="calculate" gen_ai.tool.call.id="c1""#, "close"],
        &["DEBUG", "a checkpoint is stored", "superstep=3"],
        &["INFO", r#"run{graph="react" thread="t" status="completed"}: close"#],
    ] {
        let is_one = |line: &&str| parts.iter().all(|part| line.contains(part));
        assert!(logged.iter().any(is_one), "{parts:?}: {}", ran.stderr);
    }
    for content in ["secret", "40+2", "the result", "otel."] {
        assert!(logged.iter().all(|line| !line.contains(content)), "{content}: {}", ran.stderr);
    }
}

#[tokio::test]
async fn the_environment_selects_the_log_and_a_wrong_selection_is_named() {
    let place = Place::new();
    let run = ["run", "2+2", "--model", "offline", "--thread"];
    let mut command = place.command(&[&run[..], &["a"]].concat());
    let ran = ended(command.env("RUST_LOG", "superstep=info")).await.ok();
    assert!(ran.stderr.contains(r#"run{graph="react" thread="a" status="completed"}: close"#), "{ran:?}");
    let mut command = place.command(&[&run[..], &["b"]].concat());
    let ran = ended(command.env("RUST_LOG", "debug,hyper=info")).await.ok();
    assert!(ran.stderr.contains("`RUST_LOG` is ignored: it is a level"), "{ran:?}");
    assert!(!ran.stderr.contains("run{"), "{ran:?}");
    let ran = place.run(&[&run[..], &["c", "--log", "loud"]].concat()).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("a level (error, warn, info, debug, trace), or a list of"), "{ran:?}");
    let ran = place.own(&["--log", "info", "run", "digest", "--thread", "d"]).await.ok();
    assert!(ran.stderr.contains(r#"run{graph="digest" thread="d""#), "{ran:?}");
}
