//! The key is sent to the server only.

use std::fs;

use superstep_testing::script::{call, http, txt};

use crate::support::{Place, Ran, ended, serve};

const KEY: &str = "sk-very-secret-key";

fn shows_key(ran: &Ran) -> bool {
    ran.stdout.contains(KEY) || ran.stderr.contains(KEY)
}

fn stored_somewhere(place: &Place) -> bool {
    fs::read_dir(place.database().parent().unwrap()).unwrap().any(|file| {
        let path = file.unwrap().path();
        path.is_file() && fs::read(path).unwrap().windows(KEY.len()).any(|bytes| bytes == KEY.as_bytes())
    })
}

#[tokio::test]
async fn a_key_is_sent_but_neither_shown_nor_stored() {
    let place = Place::new();
    let answers = || [call("c1", "calculate", r#"{"expression":"1"}"#), txt("one")];
    let server = serve(answers().into_iter().chain(answers())).await;
    let args = ["run", "hi", "--thread", "t", "--json", "--base-url", &server.base_url(), "--model", "m"];
    let ran = ended(place.command(&args).env("OPENAI_API_KEY", KEY)).await.ok();
    let by_flag = place.run(&[&args[..], &["--api-key", KEY]].concat()).await.ok();
    for received in server.received() {
        assert_eq!(received.headers["authorization"], format!("Bearer {KEY}"));
        assert!(!received.text.contains(KEY));
    }
    assert_eq!(server.received().len(), 4);
    assert!(!shows_key(&ran) && !shows_key(&by_flag));
    assert!(!stored_somewhere(&place));
    for args in [&["state", "t", "--json"][..], &["history", "t", "--json"], &["threads", "--json"]] {
        assert!(!shows_key(&place.run(args).await.ok()));
    }
}

#[tokio::test]
async fn a_server_that_repeats_the_key_does_not_get_it_shown_or_stored() {
    let place = Place::new();
    let body = format!(r#"{{"error":{{"message":"wrong key {KEY}"}}}}"#);
    let server = serve([http(401, &[], &body)]).await;
    let args = ["run", "hi", "--base-url", &server.base_url(), "--model", "m"];
    let ran = ended(place.command(&args).env("OPENAI_API_KEY", KEY)).await;
    assert_eq!(ran.code, Some(3));
    assert!(ran.stderr.contains("wrong key [key]"), "{}", ran.stderr);
    assert!(!shows_key(&ran) && !stored_somewhere(&place));
}

#[tokio::test]
async fn the_key_of_the_environment_does_not_go_to_an_address_that_only_the_database_knows() {
    let place = Place::new();
    // An address of this machine that does not count as one.
    let url = "http://0.0.0.0:1/v1";
    // Without a key the thread stores the address.
    let ran = place.run(&["run", "hi", "--thread", "t", "--base-url", url, "--model", "m"]).await;
    assert_eq!(ran.code, Some(3));
    let ran = ended(place.command(&["resume", "t"]).env("OPENAI_API_KEY", KEY)).await;
    assert!(!shows_key(&ran));
    ran.refused(
        2,
        &format!(
            "the thread remembers the server `{url}`, to which the key of OPENAI_API_KEY is not sent unless you name it: \
             repeat `--base-url {url}`"
        ),
    );
}

#[cfg(unix)]
#[tokio::test]
async fn a_database_is_for_its_owner_only_and_out_of_sight_of_git() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    place.run(&["run", "-q", "1 + 1"]).await.ok();
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = place.database().parent().unwrap().to_owned();
    assert_eq!((mode(place.database()), mode(folder.clone())), (0o600, 0o700));
    assert_eq!(fs::read_to_string(folder.join(".gitignore")).unwrap(), "*\n");
}

#[tokio::test]
async fn commands_get_the_variables_that_the_user_names_and_none_that_a_database_names() {
    let place = Place::new();
    let ask = || call("c1", "shell", r#"{"command":"echo got-$MY_TOKEN; test -n \"$MY_TOKEN\""}"#);
    let server = serve([ask(), txt("ok"), ask(), txt("ok"), ask(), txt("ok")]).await;
    place.file("agent.toml", "[shell]\nenv = [\"MY_TOKEN\"]\n");
    for (user, more, wanted) in [
        ("ada", &["--config", "agent.toml"][..], "got-s3cret\n[exit code 0]"),
        ("ada", &[], "got-s3cret\n[exit code 0]"),
        (
            "bob",
            &[],
            "got-\n[exit code 1]\n[commands do not get `MY_TOKEN`, unless the user names it in the configuration: `[shell] env = \
             [\"MY_TOKEN\"]`]",
        ),
    ] {
        let url = server.base_url();
        let args = ["run", "go", "--thread", "t", "--yes", "--base-url", &url, "--model", "m"];
        let mut command = place.command_of(user, &[&args[..], more].concat());
        let ran = ended(command.env("MY_TOKEN", "s3cret")).await.ok();
        assert_eq!(ran.stderr.contains("`shell`"), user == "bob", "{}", ran.stderr);
        let request = server.requests().pop().unwrap();
        let result = request["messages"].as_array().unwrap().iter().rev().find(|it| it["role"] == "tool");
        assert_eq!(result.unwrap()["content"], wanted);
    }
}
