//! Tests against concurrent processes in the folder: files swapped for links, concurrent writes, files left
//! by killed processes.

use std::{
    env, fs, io,
    os::unix::fs::symlink,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use futures::future::join_all;
use serde_json::json;
use superstep_llm::{Tool, snapshots::Snapshots};

use super::FileSnapshots;
use crate::{
    testing,
    workspace::{
        Workspace, edit::edit_file, files::list_files, read::read_file, root::PREFIX, search::search_files,
        testing::TestWorkspace, write::write_file,
    },
};

const FLIPS: usize = 300;

/// Returns the factor that lengthens the races; `just races` sets it.
fn races() -> usize {
    env::var("SUPERSTEP_RACES").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// Yields to other threads a few times, from a fixed seed.
struct Pauses(u64);

impl Pauses {
    fn take(&mut self) {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (0..self.0 % 4).for_each(|_| thread::yield_now());
    }
}

/// Makes `dir` a link to elsewhere and back again, and reports whether it was accessed in between.
fn flip(root: &Path) {
    let mut pauses = Pauses(7);
    let (dir, parked, elsewhere) = (root.join("dir"), root.join("parked"), root.join("../elsewhere"));
    // Between two steps the path does not exist, and a tool may create a folder.
    let again = |step: &dyn Fn() -> io::Result<()>| {
        while step().is_err() {
            let _ = fs::remove_dir_all(&dir);
        }
    };
    for _ in 0..FLIPS * races() {
        fs::rename(&dir, &parked).unwrap();
        again(&|| symlink("../elsewhere", &dir));
        pauses.take();
        fs::remove_file(&dir).unwrap();
        again(&|| fs::rename(&parked, &dir));
        pauses.take();
        let names: Vec<_> =
            fs::read_dir(&elsewhere).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["file"]);
        assert_eq!(fs::read_to_string(elsewhere.join("file")).unwrap(), "s3cret");
    }
}

/// Prints figures of a long run.
fn report(figures: &str) {
    if races() > 1 {
        eprintln!("{figures}");
    }
}

/// Sets a flag when it is dropped.
struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_swapped_for_a_link_repeatedly_never_leads_outside() {
    let place = TestWorkspace::new();
    fs::create_dir(place.dir.path().join("elsewhere")).unwrap();
    fs::write(place.dir.path().join("elsewhere/file"), "s3cret").unwrap();
    place.file("dir/file", "inside");
    let over = Arc::new(AtomicBool::new(false));
    let flipping = thread::spawn({
        let (root, over) = (place.workspace.root().to_owned(), SetOnDrop(over.clone()));
        move || {
            let _over = over;
            flip(&root);
        }
    });
    let w = &place.workspace;
    let calls: [(Box<dyn Tool>, _); 6] = [
        (Box::new(read_file(w)), json!({"path": "dir/file"})),
        (Box::new(search_files(w)), json!({"pattern": "."})),
        (Box::new(list_files(w)), json!({})),
        (Box::new(write_file(w)), json!({"path": "dir/file", "content": "inside"})),
        (Box::new(write_file(w)), json!({"path": "dir/new/file", "content": "inside"})),
        (Box::new(edit_file(w)), json!({"path": "dir/file", "old": "inside", "new": "inside "})),
    ];
    let snapshots = FileSnapshots::new(w).unwrap();
    let (mut done, mut refused) = (0, 0);
    while !over.load(Ordering::Acquire) {
        for (tool, args) in &calls {
            let text = match tool.call(args.clone(), testing::cx()).await {
                Ok(reply) => reply.text,
                Err(error) => {
                    refused += 1;
                    error.to_string()
                }
            };
            done += 1;
            assert!(!text.contains("s3cret"), "{text}");
        }
        // A tree may be stored or not; its contents come from inside the root.
        let _ = Snapshots::keep(&snapshots, Some("t")).await;
    }
    flipping.join().expect("nobody was where the link leads");
    report(&format!("{} flips of a folder, {done} calls, {refused} of them refused", FLIPS * races()));
    let hash = blake3::hash(b"s3cret").to_hex().to_string();
    let kept = ignore::WalkBuilder::new(place.at(".superstep")).standard_filters(false).build();
    assert!(kept.flatten().all(|entry| *entry.file_name() != *hash));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_of_a_turn_that_becomes_a_link_again_and_again_is_not_left() {
    let place = TestWorkspace::new();
    let (root, parked) = (place.workspace.root().to_owned(), place.dir.path().join("parked"));
    fs::create_dir(place.dir.path().join("elsewhere")).unwrap();
    fs::write(place.dir.path().join("elsewhere/file"), "s3cret").unwrap();
    place.file("file", "inside");
    let over = Arc::new(AtomicBool::new(false));
    let flipping = thread::spawn({
        let (root, over) = (root.clone(), SetOnDrop(over.clone()));
        move || {
            let (_over, mut pauses) = (over, Pauses(11));
            for _ in 0..FLIPS * races() {
                fs::rename(&root, &parked).unwrap();
                symlink("elsewhere", &root).unwrap();
                pauses.take();
                fs::remove_file(&root).unwrap();
                fs::rename(&parked, &root).unwrap();
                pauses.take();
            }
        }
    });
    let (read, write) = (read_file(&place.workspace), write_file(&place.workspace));
    let tools: [(&dyn Tool, _); 2] =
        [(&read, json!({"path": "file"})), (&write, json!({"path": "file", "content": "inside"}))];
    let (mut bound, mut unbound) = (0, 0);
    while !over.load(Ordering::Acquire) {
        for (tool, args) in &tools {
            // Bound as for each round of a turn.
            let Ok(Some(tool)) = tool.in_folder(&root) else {
                unbound += 1;
                continue;
            };
            bound += 1;
            let text = match tool.call(args.clone(), testing::cx()).await {
                Ok(reply) => reply.text,
                Err(error) => error.to_string(),
            };
            assert!(!text.contains("s3cret"), "{text}");
        }
    }
    flipping.join().expect("the folder is moved and put back");
    assert_eq!(fs::read_to_string(place.dir.path().join("elsewhere/file")).unwrap(), "s3cret");
    report(&format!("{} flips of a root, {bound} calls, {unbound} tools not bound", FLIPS * races()));
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_by_several_processes_all_count() {
    for _ in 0..races() {
        let place = TestWorkspace::new();
        let numbers = 0..8;
        place.file("a", numbers.clone().map(|number| format!("<{number}>\n")).collect::<String>());
        let edits = numbers.clone().map(|number| {
            // Like another process: nothing is shared but the folder.
            let workspace = Workspace::open(place.workspace.root()).unwrap();
            let args = json!({"path": "a", "old": format!("<{number}>"), "new": format!("[{number}]")});
            async move { edit_file(&workspace).call(args, testing::cx()).await.unwrap() }
        });
        join_all(edits).await;
        let expected: String = numbers.map(|number| format!("[{number}]\n")).collect();
        assert_eq!(fs::read_to_string(place.at("a")).unwrap(), expected);
    }
    report(&format!("{} times eight edits of one file at once", races()));
}

#[tokio::test]
async fn leftovers_of_a_killed_process_are_hidden_and_removed_by_the_next_write() {
    let place = TestWorkspace::new();
    let left = format!("dir/{PREFIX}Ab3");
    place.file("dir/a", "needle");
    place.file(&left, "needle");
    let w = &place.workspace;
    assert_eq!(testing::call(&list_files(w), json!({})).await, "dir/a");
    assert_eq!(testing::call(&search_files(w), json!({"pattern": "needle"})).await, "dir/a:1: needle");
    assert!(testing::refusal(&read_file(w), json!({"path": left})).await.contains("is reserved"));
    testing::call(&write_file(w), json!({"path": "b", "content": ""})).await;
    assert!(place.at(&left).exists());
    testing::call(&write_file(w), json!({"path": "dir/b", "content": ""})).await;
    assert!(!place.at(&left).exists());
    place.file(&left, "needle");
    testing::call(&edit_file(w), json!({"path": "dir/a", "old": "needle", "new": "thread"})).await;
    assert!(!place.at(&left).exists());
    // A snapshot finds those of other folders, and leaves them to a writer.
    place.file(&left, "needle");
    let snapshots = FileSnapshots::new(w).unwrap();
    let turn = w.edit_turn().unwrap();
    Snapshots::keep(&snapshots, Some("t")).await.unwrap();
    assert!(place.at(&left).exists());
    drop(turn);
    Snapshots::keep(&snapshots, Some("t")).await.unwrap();
    assert!(!place.at(&left).exists());
}
