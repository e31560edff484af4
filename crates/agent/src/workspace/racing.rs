//! Other programs in the folder: what they swap for links, what they write at the same time, what they left when they were killed.

use std::{
    fs, io,
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
use superstep_llm::Tool;

use crate::Snapshots;

use super::{
    FileSnapshots, Workspace, edit_file, list_files, read_file, search_files, store::PREFIX, testing,
    testing::Place, write_file,
};

const FLIPS: usize = 300;

/// Has `dir` lead elsewhere and back again, and looks whether somebody was there.
fn flip(root: &Path) {
    let (dir, parked, elsewhere) = (root.join("dir"), root.join("parked"), root.join("../elsewhere"));
    // Between two steps nothing is there, and a tool may make a folder.
    let again = |step: &dyn Fn() -> io::Result<()>| {
        while step().is_err() {
            let _ = fs::remove_dir_all(&dir);
        }
    };
    for _ in 0..FLIPS {
        fs::rename(&dir, &parked).unwrap();
        again(&|| symlink("../elsewhere", &dir));
        thread::yield_now();
        fs::remove_file(&dir).unwrap();
        again(&|| fs::rename(&parked, &dir));
        thread::yield_now();
        let names: Vec<_> =
            fs::read_dir(&elsewhere).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["file"]);
        assert_eq!(fs::read_to_string(elsewhere.join("file")).unwrap(), "s3cret");
    }
}

/// Says when it is dropped that something is over.
struct Over(Arc<AtomicBool>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_becomes_a_link_again_and_again_leads_nobody_out() {
    let place = Place::new();
    fs::create_dir(place.dir.path().join("elsewhere")).unwrap();
    fs::write(place.dir.path().join("elsewhere/file"), "s3cret").unwrap();
    place.file("dir/file", "inside");
    let over = Arc::new(AtomicBool::new(false));
    let flipping = thread::spawn({
        let (root, over) = (place.workspace.root().to_owned(), Over(over.clone()));
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
    let mut texts = Vec::new();
    while !over.load(Ordering::Acquire) {
        for (tool, args) in &calls {
            match tool.call(args.clone(), testing::cx()).await {
                Ok(reply) => texts.push(reply.text),
                Err(error) => texts.push(error.to_string()),
            }
        }
        // A tree may be kept or not; what is in it is from inside.
        let _ = Snapshots::keep(&snapshots, Some("t")).await;
    }
    flipping.join().expect("nobody was where the link leads");
    assert!(texts.iter().all(|text| !text.contains("s3cret")), "{texts:?}");
    let hash = blake3::hash(b"s3cret").to_hex().to_string();
    let kept = ignore::WalkBuilder::new(place.at(".superstep")).standard_filters(false).build();
    assert!(kept.flatten().all(|entry| *entry.file_name() != *hash));
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_by_several_processes_all_count() {
    let place = Place::new();
    let numbers = 0..8;
    place.file("a", numbers.clone().map(|number| format!("<{number}>\n")).collect::<String>());
    let edits = numbers.clone().map(|number| {
        // As another process has it: nothing is shared but the folder.
        let workspace = Workspace::open(place.workspace.root()).unwrap();
        let args = json!({"path": "a", "old": format!("<{number}>"), "new": format!("[{number}]")});
        async move { edit_file(&workspace).call(args, testing::cx()).await.unwrap() }
    });
    join_all(edits).await;
    let expected: String = numbers.map(|number| format!("[{number}]\n")).collect();
    assert_eq!(fs::read_to_string(place.at("a")).unwrap(), expected);
}

#[tokio::test]
async fn what_a_killed_process_left_is_seen_by_no_tool_and_goes_with_the_next_write() {
    let place = Place::new();
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
}
