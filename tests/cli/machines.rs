//! Machines whose folders are linked, shared, or without modes and owners.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use crate::support::{Place, Ran, ended};

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn a_linked_state_folder_and_database_that_the_user_named_are_followed() {
    let place = Place::new();
    let (state, db) = (place.beside("real-state"), place.beside("real.db"));
    fs::create_dir(&state).unwrap();
    mode(&state, 0o700);
    symlink(&state, place.state_folder()).unwrap();
    place.run(&["run", "-q", "1 + 1", "--thread", "t", "--db", db.to_str().unwrap()]).await.ok();
    assert!(fs::read_dir(state.join("threads")).unwrap().count() > 0);
    let link = place.work().join("link.db");
    symlink(&db, &link).unwrap();
    let named = link.to_str().unwrap();
    let again = place.run(&["run", "-q", "2 + 2", "--thread", "t", "--db", named]).await.ok();
    assert_eq!(again.stderr, "");
    let mut command = place.command(&["threads", "--json"]);
    let listed = ended(command.env("SUPERSTEP_DB", named)).await.ok();
    assert_eq!(listed.lines()[0]["thread"], "t");
    // Its target is checked.
    mode(&db, 0o666);
    let refused = place.run(&["threads", "--db", named]).await;
    assert!(refused.stderr.contains("real.db` can be written by other users (mode 666)"), "{refused:?}");
    // One that came with a folder is not followed.
    fs::create_dir(place.work().join(".superstep")).unwrap();
    symlink(&db, place.database()).unwrap();
    let refused = place.run(&["threads"]).await;
    assert!(refused.code == Some(4) && refused.stderr.contains("is a link to"), "{refused:?}");
}

#[tokio::test]
async fn a_folder_that_others_can_write_is_used_if_the_user_trusts_it() {
    let place = Place::new();
    place.run(&["run", "-q", "1 + 1", "--thread", "t"]).await.ok();
    let folder = place.work().canonicalize().unwrap().join(".superstep");
    let trusting = async |trusted: &Path, args: &[&str]| -> Ran {
        ended(place.command(args).env("SUPERSTEP_TRUST_FOLDER", trusted)).await
    };
    let commands = [&["threads"][..], &["run", "-q", "2 + 2", "--thread", "t"], &["resume", "t"]];
    // As on exFAT, on an SMB share, or below `/mnt/c`.
    let all = |given: u32| ["", "threads.db"].map(|name| mode(&folder.join(name), given));
    all(0o777);
    let way_out = format!("set SUPERSTEP_TRUST_FOLDER={} if you trust everyone", folder.display());
    for args in commands {
        let refused = place.run(args).await;
        assert!(refused.code == Some(4) && refused.stderr.contains(&way_out), "{refused:?}");
        trusting(&folder, args).await.ok();
        trusting(&place.work(), args).await.ok();
        assert_eq!(trusting(&place.state_folder(), args).await.code, Some(4));
    }
    all(0o700);
    // As a bind mount of a container, whose user is root. Only an administrator can change the owner of a file.
    let all = |owner: u32| {
        ["", "threads.db"]
            .iter()
            .all(|name| std::os::unix::fs::chown(folder.join(name), Some(owner), None).is_ok())
    };
    if all(12345) {
        let refused = place.run(&["threads"]).await;
        assert!(refused.stderr.contains("(uid 12345)") && refused.stderr.contains(&way_out), "{refused:?}");
        for args in commands {
            trusting(&folder, args).await.ok();
        }
        all(0);
    }
    // A folder of one's group.
    let shared = place.beside("shared");
    fs::create_dir(&shared).unwrap();
    mode(&shared, 0o777);
    let db = shared.join("t.db");
    let args = ["run", "-q", "1 + 1", "--db", db.to_str().unwrap()];
    let refused = place.run(&args).await;
    assert!(
        refused.stderr.contains("is writable by everyone")
            && refused.stderr.contains("SUPERSTEP_TRUST_FOLDER=")
    );
    trusting(&shared, &args).await.ok();
    mode(&place.state_folder(), 0o770);
    let refused = place.run(&["run", "-q", "1 + 1"]).await;
    assert!(refused.code == Some(4) && refused.stderr.contains("SUPERSTEP_TRUST_FOLDER="), "{refused:?}");
    trusting(&place.state_folder(), &["run", "-q", "1 + 1"]).await.ok();
    mode(&place.state_folder(), 0o700);
    // Links and pipes are no matter of trust.
    fs::rename(folder.join("threads.db"), folder.join("real.db")).unwrap();
    symlink("real.db", folder.join("threads.db")).unwrap();
    let refused = trusting(&folder, &["threads"]).await;
    assert!(refused.code == Some(4) && refused.stderr.contains("is a link to"), "{refused:?}");
}

#[tokio::test]
async fn a_note_is_printed_once() {
    let place = Place::new();
    let note = "no key and no local model server";
    let run = async |more: &[&str]| place.run(&[&["run", "1 + 1"], more].concat()).await.ok().stderr;
    assert!(!run(&["-q"]).await.contains(note));
    assert!(run(&[]).await.contains(note));
    assert!(!run(&[]).await.contains(note) && !run(&["--json"]).await.contains(note));
    // Another model was used meanwhile.
    run(&["--model", "offline"]).await;
    assert!(run(&[]).await.contains(note));
}

#[tokio::test]
async fn a_thread_is_imported_from_stdin() {
    let place = Place::new();
    place.run(&["run", "-q", "1 + 1", "--thread", "t"]).await.ok();
    let text = place.run(&["export", "t"]).await.ok().stdout;
    for (path, name) in [("-", "a"), ("/dev/stdin", "b")] {
        let imported = place.run_with_stdin(&["import", path, "--as", name], text.as_bytes()).await.ok();
        assert!(imported.stdout.starts_with(&format!("imported thread `{name}` with ")), "{imported:?}");
    }
    let wrong = place.run_with_stdin(&["import", "-"], b"{}\n").await;
    assert!(wrong.code != Some(0) && wrong.stderr.contains("`-`: "), "{wrong:?}");
    let device = "stdin is a terminal or a device; pipe the text in, or name its file";
    place.run(&["import", "-"]).await.refused(2, device);
}
