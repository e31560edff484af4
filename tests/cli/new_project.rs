//! `superstep new`: the project that it creates, whose sources are compiled and tested here, too.

#![allow(clippy::duplicate_mod, reason = "the graph is private in the program")]

use std::{collections::BTreeMap, fs, path::Path, process::Stdio, sync::Arc};

use superstep::{clock::Clock, prelude::*};

use crate::support::Place;

#[allow(dead_code, reason = "its `main` is that of a program")]
#[path = "../../crates/cli/template/src/main.rs"]
#[rustfmt::skip] // Users format it by the default rules.
mod program;

#[path = "../../crates/cli/template/src/expenses.rs"]
#[rustfmt::skip]
mod expenses;

/// The root of a checkout: that of this workspace.
const CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Returns the files of a folder with their contents.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read_to_string(path).unwrap());
            }
        }
    }
    found
}

#[tokio::test]
async fn a_project_has_all_files_and_the_next_commands_are_shown() {
    let place = Place::new();
    let created = place.run(&["new", "my-shop"]).await.ok();
    let unpublished =
        "the crates of superstep are in no registry yet, so `cargo test` needs a checkout of superstep";
    assert!(created.stderr.contains(unpublished), "{created:?}");
    let said = created.stdout;
    insta::assert_snapshot!(said, @r#"
    created the project `my-shop`

      cd my-shop
      cargo test
      cargo run -- run --input '{"purpose": "chairs", "euros": 240}' --thread chairs
      cargo run -- answer chairs approve true
      cargo run -- history chairs

    its README.md describes the next steps
    "#);
    let made = files(&place.work().join("my-shop"));
    insta::assert_snapshot!(made.keys().cloned().collect::<Vec<_>>().join("\n"), @r"
    .github/workflows/ci.yml
    .gitignore
    Cargo.toml
    README.md
    src/expenses.rs
    src/main.rs
    src/tests.rs
    threads/chairs.thread.jsonl
    ");
    insta::assert_snapshot!(made["Cargo.toml"], @r#"
    [package]
    name = "my-shop"
    version = "0.1.0"
    edition = "2024"
    rust-version = "1.91"
    publish = false

    [dependencies]
    superstep = "0.1.0"
    superstep-cli = "0.1.0"

    [dev-dependencies]
    insta = "1.49"
    superstep-testing = "0.1.0"
    tokio = { version = "1", features = ["macros", "rt"] }

    [profile.dev]
    debug = "line-tables-only"

    # The first build of the dependencies is a tenth shorter.
    [profile.dev.package."*"]
    debug = false
    "#);
    for (name, content) in &made {
        assert!(!content.contains("{{") || name.ends_with(".yml"), "{name}: {content}");
        assert!(!content.is_empty(), "{name}");
    }
    for file in ["src/main.rs", "src/expenses.rs", "src/tests.rs", "threads/chairs.thread.jsonl"] {
        let template = Path::new(env!("CARGO_MANIFEST_DIR")).join("template").join(file);
        assert_eq!(made[file], fs::read_to_string(template).unwrap(), "the file that is tested here");
    }
    assert!(made["README.md"].starts_with("# my-shop\n") && made["README.md"].contains("on GitHub.\n"));
    // What its CI checks first.
    let mut format = std::process::Command::new("rustfmt");
    format.args(["--edition", "2024", "--check", "src/main.rs"]).current_dir(place.work().join("my-shop"));
    let formatted = format.stdout(Stdio::piped()).output().unwrap();
    assert!(formatted.status.success(), "{}", String::from_utf8_lossy(&formatted.stdout));
    assert_eq!(fs::read_dir(place.work()).unwrap().count(), 2, "nothing else is left beside `notes.txt`");
}

#[tokio::test]
async fn a_project_depends_on_a_checkout() {
    let place = Place::new();
    let created = place.run(&["new", "shop", "--path", CHECKOUT]).await.ok();
    assert_eq!(created.stderr, "");
    let manifest = place.work().join("shop/Cargo.toml");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let read = std::process::Command::new(cargo)
        .args(["metadata", "--format-version=1", "--no-deps", "--offline", "--manifest-path"])
        .arg(&manifest)
        .output()
        .unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let read: serde_json::Value = serde_json::from_slice(&read.stdout).unwrap();
    let package = &read["packages"][0];
    assert_eq!((package["name"].as_str(), package["edition"].as_str()), (Some("shop"), Some("2024")));
    let dependencies = package["dependencies"].as_array().unwrap();
    for name in ["superstep", "superstep-cli", "superstep-testing"] {
        let dependency = dependencies.iter().find(|dependency| dependency["name"] == name).unwrap();
        let manifest = Path::new(dependency["path"].as_str().unwrap()).join("Cargo.toml");
        let manifest = fs::read_to_string(manifest).unwrap();
        assert!(manifest.contains(&format!("name = \"{name}\"\n")), "{manifest}");
    }
    // A GitHub runner has no folder of this machine.
    let ci = fs::read_to_string(place.work().join("shop/.github/workflows/ci.yml")).unwrap();
    assert!(!ci.contains(CHECKOUT) && ci.contains("repository: ${{ vars.SUPERSTEP_REPOSITORY }}\n"), "{ci}");
    let sed = ci.lines().find_map(|line| line.strip_prefix("      - run: sed -i ")).unwrap();
    let changed = std::process::Command::new("sh")
        .args(["-c", &format!("sed {}", sed.replace("Cargo.toml", &format!("'{}'", manifest.display())))])
        .output()
        .unwrap();
    let changed = String::from_utf8(changed.stdout).unwrap();
    for folder in ["superstep", "cli", "testing"] {
        assert!(changed.contains(&format!("{{ path = \"superstep/crates/{folder}\" }}\n")), "{changed}");
    }
    // Relative to the current folder, which is above the project.
    fs::create_dir_all(place.beside("step")).unwrap();
    std::os::unix::fs::symlink(Path::new(CHECKOUT).join("crates"), place.beside("step/crates")).unwrap();
    place.run(&["new", "other", "--path", "../step/"]).await.ok();
    let manifest = fs::read_to_string(place.work().join("other/Cargo.toml")).unwrap();
    assert!(manifest.contains("superstep-cli = { path = \"../../step/crates/cli\" }\n"), "{manifest}");
    let readme = fs::read_to_string(place.work().join("other/README.md")).unwrap();
    assert!(readme.contains("Set the variable `SUPERSTEP_REPOSITORY`"), "{readme}");
    place.run(&["new", "here", "--path", "./../step/."]).await.ok();
    let manifest = fs::read_to_string(place.work().join("here/Cargo.toml")).unwrap();
    assert!(manifest.contains("superstep-cli = { path = \"../../step/crates/cli\" }\n"), "{manifest}");
    // Cargo would read `link/..` as the current folder.
    std::os::unix::fs::symlink(place.beside("step"), place.work().join("link")).unwrap();
    place.run(&["new", "linked", "--path", "link/../step"]).await.ok();
    let manifest = fs::read_to_string(place.work().join("linked/Cargo.toml")).unwrap();
    let real = place.beside("step").canonicalize().unwrap();
    assert!(manifest.contains(&format!("{{ path = \"{}/crates/cli\" }}\n", real.display())), "{manifest}");
}

#[tokio::test]
async fn a_project_inside_of_a_workspace_is_a_package_of_its_own() {
    let place = Place::new();
    place.file("Cargo.toml", "[workspace]\nmembers = []\n");
    place.run(&["new", "shop", "--path", CHECKOUT]).await.ok();
    let manifest = fs::read_to_string(place.work().join("shop/Cargo.toml")).unwrap();
    assert!(manifest.ends_with("\n[workspace]\n"), "{manifest}");
}

#[tokio::test]
async fn a_project_reads_no_device_above_it() {
    let place = Place::new();
    let manifest = place.work().join("Cargo.toml");
    assert!(std::process::Command::new("mkfifo").arg(&manifest).status().unwrap().success());
    place.run(&["new", "one"]).await.ok();
    fs::remove_file(&manifest).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &manifest).unwrap();
    place.run(&["new", "two"]).await.ok();
}

#[tokio::test]
async fn an_empty_folder_is_filled_and_one_with_files_is_refused() {
    let place = Place::new();
    let empty = place.work().join("empty");
    fs::create_dir(&empty).unwrap();
    place.run(&["new", "empty"]).await.ok();
    let before = files(&empty);
    assert!(before.contains_key("src/main.rs"));
    let refused = "the folder `empty` exists and has files; choose another name";
    place.run(&["new", "empty"]).await.refused(2, refused);
    assert_eq!(files(&empty), before);
    place.file("file", "x");
    place.run(&["new", "file"]).await.refused(2, "`file` exists and is not a folder; choose another name");
    let refused = place.run(&["new", "shop", "--path", "empty"]).await;
    refused.refused(2, "`empty` is not a checkout of superstep: it has no `crates/superstep/Cargo.toml`");
    let refused = place.run(&["new", "a/b"]).await;
    let wanted =
        "invalid value 'a/b' for '<NAME>': a package's name has letters, digits, `-` and `_`, and no `/`";
    assert!(refused.code == Some(2) && refused.stderr.contains(wanted), "{refused:?}");
    assert!(!place.work().join("shop").exists());
}

#[cfg(unix)]
#[tokio::test]
async fn nothing_is_left_if_the_folder_cannot_be_written() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    place.run(&["new", "shop"]).await.ok();
    let mode = |path: &str| fs::metadata(place.work().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("shop"), mode("shop/src"), "as every folder");
    // Its files cannot be moved to a folder that got a file meanwhile; a root user may write everywhere, so a file is in
    // the place of the folder.
    std::os::unix::fs::symlink("nowhere", place.work().join("link")).unwrap();
    let refused = place.run(&["new", "link"]).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    let names = fs::read_dir(place.work()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!names.into_iter().any(|name| name.to_string_lossy().starts_with(".superstep-new")));
}

/// A clock that stands still.
struct Noon;

impl Clock for Noon {
    fn now_ms(&self) -> i64 {
        1_795_435_200_000
    }
}

/// The stored thread of the template is what its graph does now. `SUPERSTEP_WRITE_TEMPLATE=1` writes it.
#[tokio::test]
async fn the_stored_thread_is_that_of_the_commands_in_the_readme() {
    let graph = expenses::expenses().unwrap().with_checkpointer(MemoryCheckpointer::new());
    let thread = graph.thread("chairs").clock(Arc::new(Noon));
    let input = expenses::Claim::update().purpose("chairs").euros(240_u32);
    assert_eq!(thread.run(input).await.unwrap().status, Status::Interrupted);
    let end = thread.answer("approve", true).resume().await.unwrap();
    assert_eq!(end.state.receipt.as_deref(), Some("receipt for 240 €"));
    let text = thread.export().await.unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("template/threads/chairs.thread.jsonl");
    if std::env::var_os("SUPERSTEP_WRITE_TEMPLATE").is_some() {
        fs::write(&file, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(file).unwrap(), text);
}
