//! Folders that another person made, with links and journals in `.superstep`.

use std::{
    fs,
    os::unix::fs::{OpenOptionsExt, symlink},
    path::Path,
};

use crate::support::Place;

/// Writes a journal that restores nothing and names `file` as its super-journal.
fn super_journal(journal: &Path, file: &Path) {
    let magic = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
    let name = file.to_str().unwrap().as_bytes();
    let mut bytes = magic.to_vec();
    for number in [0, 1, 13, 512, 4_096u32] {
        bytes.extend(number.to_be_bytes());
    }
    bytes.resize(512 + 4, 0);
    bytes.extend(name);
    bytes.extend(u32::try_from(name.len()).unwrap().to_be_bytes());
    bytes.extend(name.iter().map(|byte| u32::from(*byte)).sum::<u32>().to_be_bytes());
    bytes.extend(magic);
    fs::File::options().write(true).create_new(true).mode(0o600).open(journal).unwrap();
    fs::write(journal, bytes).unwrap();
}

#[tokio::test]
async fn no_command_deletes_the_file_that_a_journal_names() {
    let place = Place::new();
    place.run(&["run", "-q", "1 + 1", "--thread", "t"]).await.ok();
    let victim = place.beside("secret.txt");
    super_journal(&place.work().join(".superstep/threads.db-journal"), &victim);
    for command in [
        &["threads"][..],
        &["state", "t"],
        &["history", "t"],
        &["watch", "t"],
        &["export", "t"],
        &["replay", "t"],
        &["db", "check"],
        &["db", "stats"],
        &["copy", "t", "u"],
        &["prune", "t", "--leaves", "--yes"],
        &["run", "2 + 2", "--thread", "t"],
        &["resume", "t"],
        &["delete", "t", "--yes"],
    ] {
        let ran = place.run(command).await;
        let wanted = "threads.db-journal` names another file, which SQLite would delete";
        assert!(ran.code == Some(4) && ran.stderr.contains(wanted), "{command:?}: {ran:?}");
        assert!(victim.exists(), "{command:?}");
    }
}

#[tokio::test]
async fn a_deleted_thread_takes_no_files_behind_a_link_with_it() {
    for link in ["files", "files/+contents", "files/t", "results/t"] {
        let place = Place::new();
        place.run(&["run", "-q", "1 + 1", "--thread", "t"]).await.ok();
        let elsewhere = place.beside("elsewhere");
        let there = if link == "files" { elsewhere.join("+contents") } else { elsewhere.clone() };
        fs::create_dir_all(&there).unwrap();
        let own = ["0".repeat(64), "cafe".to_owned()].map(|name| there.join(name));
        own.iter().for_each(|path| fs::write(path, "").unwrap());
        let at = place.work().join(".superstep").join(link);
        let _ = fs::remove_dir_all(&at);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        symlink(&elsewhere, &at).unwrap();
        let ran = place.run(&["delete", "t", "--yes"]).await;
        let wanted = format!("there is a link in `.superstep/{}", link.split('/').next().unwrap());
        assert!(ran.code != Some(0) && ran.stderr.contains(&wanted), "{link}: {ran:?}");
        assert!(own.iter().all(|path| path.exists()), "{link}");
    }
}
