//! The cursor after each kind of end of a dream, and the next dream.

use std::sync::Arc;

use superstep::{
    Checkpointer, MemoryCheckpointer, ThreadId,
    agent::{AgentOutcome, config::Budget},
    memory::{DreamConfig, DreamEnd, DreamResult},
};
use superstep_testing::script::{Answer, call, http, txt};
use tokio::sync::Notify;

use super::{
    super::writes::{At, watched},
    Bed, Dreamer, at, dreamt, scripted,
};

/// Returns the end of a dream whose model gives these answers.
async fn ends(bed: &Bed, config: DreamConfig, answers: Vec<Answer>) -> Option<AgentOutcome> {
    let dreams = bed.dreams_on(bed.store.clone(), scripted(answers), config);
    let dream = dreamt(dreams.dream_now("ada", at(1)).await.unwrap());
    assert_eq!(dream.settled, dream.outcome == Some(AgentOutcome::Completed));
    dream.outcome
}

#[tokio::test(start_paused = true)]
async fn the_cursor_moves_only_with_a_dream_that_was_completed() {
    let read = |n: usize| call(&format!("c{n}"), "read_file", r#"{"path":"MEMORY.md"}"#);
    let usual = DreamConfig::default;
    let poor = DreamConfig {
        budget: Budget { tokens: Some(1), reserve_final: false, ..Budget::default() },
        ..usual()
    };
    let costly = Answer::stream().text(["I "]).call(0, "c", "read_file", [r#"{"path":"MEMORY.md"}"#]);
    let costly = costly.end("tool_calls").usage(10, 10).done();
    let empty = || Answer::stream().end("stop").done();
    for (config, answers, outcome) in [
        (usual(), vec![http(500, &[], "{}"); 3], AgentOutcome::LlmError),
        (DreamConfig { steps: 1, ..usual() }, vec![read(1)], AgentOutcome::Limit),
        (poor, vec![costly], AgentOutcome::Budget),
        (usual(), vec![empty(), empty(), empty(), empty()], AgentOutcome::Empty),
        (usual(), (0..6).map(read).collect(), AgentOutcome::LoopDetected),
    ] {
        let bed = Bed::new();
        bed.say("ada", 0, &["one", "two", "three"]).await;
        assert_eq!(ends(&bed, config, answers).await, Some(outcome));
        let cursor = bed.cursor("ada");
        assert_eq!((cursor.read.offset, cursor.last.unwrap().end.as_str()), (0, outcome.as_str()));
        // No turn is lost.
        let dream = dreamt(bed.dreams(Dreamer::default()).dream_now("ada", at(2)).await.unwrap());
        assert_eq!((dream.outcome, dream.turns), (Some(AgentOutcome::Completed), 3));
        assert_eq!(bed.read("ada"), "# Memory\n- three\n- two\n- one\n");
        assert_eq!(bed.cursor("ada").read.offset, bed.length("ada"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_gives_up_after_a_call_that_failed_has_completed_nothing() {
    let fails = || call("c1", "edit_file", r#"{"path":"MEMORY.md","old":"no such line","new":"x"}"#);
    let reads = call("c2", "read_file", r#"{"path":"MEMORY.md"}"#);
    let edits = call("c3", "edit_file", r##"{"path":"MEMORY.md","old":"# Memory","new":"# Memory\n- one"}"##);
    for (answers, is_settled) in
        [(vec![fails(), txt("I cannot.")], false), (vec![fails(), reads, edits, txt("Done.")], true)]
    {
        let bed = Bed::new();
        bed.say("ada", 0, &["one", "two", "three"]).await;
        let dream = dreamt(bed.dreams(scripted(answers)).dream_now("ada", at(1)).await.unwrap());
        assert_eq!((dream.outcome, dream.settled), (Some(AgentOutcome::Completed), is_settled));
        let (cursor, end) = (bed.cursor("ada"), if is_settled { "completed" } else { "last_call_failed" });
        assert_eq!(dream.end.as_str(), end);
        assert_eq!((cursor.read.offset > 0, cursor.last.unwrap().end.as_str()), (is_settled, end));
    }
}

#[tokio::test(start_paused = true)]
async fn an_edit_under_a_nearly_right_name_is_a_change() {
    let bed = Bed::new();
    bed.say("ada", 0, &["one", "two", "three"]).await;
    let reads = call("c1", "read_file", r#"{"path":"MEMORY.md"}"#);
    let edits = call("c2", "Edit_File", r##"{"path":"MEMORY.md","old":"# Memory","new":"# Memory\n- one"}"##);
    let dreams = bed.dreams(scripted([reads, edits, txt("Done.")]));
    let dream = dreamt(dreams.dream_now("ada", at(1)).await.unwrap());
    assert_eq!((dream.end.as_str(), dream.settled), ("completed", true));
}

#[tokio::test(start_paused = true)]
async fn a_dream_that_changed_nothing_consumes_no_turn_unless_the_next_one_changes_nothing_either() {
    let (bed, minute) = (Bed::new(), 60_000);
    bed.say("ada", 0, &["one", "two", "three"]).await;
    let reads = || call("c1", "read_file", r#"{"path":"MEMORY.md"}"#);
    let idle = || bed.dreams(scripted([reads(), txt("Nothing to do.")]));
    let dream = dreamt(idle().dream_if_due("ada", at(1)).await.unwrap());
    assert_eq!((dream.outcome, dream.settled), (Some(AgentOutcome::Completed), false));
    assert_eq!(dream.end, DreamEnd::NothingChanged);
    let cursor = bed.cursor("ada");
    assert_eq!((cursor.read.offset, cursor.last.unwrap().end.as_str()), (0, "nothing_changed"));
    // It stops, and the next one reads the same turns and later ones.
    bed.say("ada", 2, &["four"]).await;
    assert_eq!(idle().dream_if_due("ada", at(2)).await.unwrap(), DreamResult::NotDue { waiting: 4 });
    let dreams = bed.dreams(Dreamer::default());
    let dream = dreamt(dreams.dream_if_due("ada", at(31 * minute)).await.unwrap());
    assert_eq!((dream.turns, dream.settled), (4, true));
    assert_eq!(bed.read("ada"), "# Memory\n- four\n- three\n- two\n- one\n");
    // Turns without useful content are not read forever.
    bed.say("ada", 40 * minute, &["five"]).await;
    for settled in [false, true] {
        assert_eq!(dreamt(idle().dream_now("ada", at(41 * minute)).await.unwrap()).settled, settled);
    }
    assert_eq!(bed.cursor("ada").last.unwrap().end, "completed");
    assert_eq!(bed.cursor("ada").read.offset, bed.length("ada"));
}

#[tokio::test(start_paused = true)]
async fn a_crash_does_not_change_how_often_turns_without_content_are_read() {
    for (earlier, end, settled) in [(0, "nothing_changed", false), (1, "completed", true)] {
        for n in 1.. {
            let bed = Bed::new();
            bed.say("ada", 0, &["one", "two", "three"]).await;
            std::fs::write(bed.memory.file_of("ada").unwrap(), "# Memory\n- one\n- two\n- three\n").unwrap();
            for _ in 0..earlier {
                dreamt(bed.dreams(Dreamer::default()).dream_now("ada", at(1)).await.unwrap());
            }
            let (stops, now) = watched(bed.store.clone(), At::HangsBefore, n);
            let dreams = bed.dreams_on(stops, Dreamer::default(), DreamConfig::default());
            let has_fewer_writes = tokio::select! {
                dream = dreams.dream_now("ada", at(2)) => dreamt(dream.unwrap()).turns == 3,
                () = now.notified() => false,
            };
            if has_fewer_writes {
                break;
            }
            drop(dreams);
            let dream = dreamt(bed.dreams(Dreamer::default()).dream_now("ada", at(3)).await.unwrap());
            assert_eq!((dream.end.as_str(), dream.settled), (end, settled), "{n}");
            let cursor = bed.cursor("ada");
            let offset = if settled { bed.length("ada") } else { 0 };
            assert_eq!((cursor.read.offset, &*cursor.last.unwrap().end), (offset, end), "{n}");
        }
    }
}

/// Runs a dream that stops at its `n`-th write, like a crashed process.
async fn crash(bed: &Bed, n: usize) {
    let (stops, now): (Arc<dyn Checkpointer>, Arc<Notify>) = watched(bed.store.clone(), At::HangsAfter, n);
    let dreams = bed.dreams_on(stops, Dreamer::default(), DreamConfig::default());
    tokio::select! {
        end = dreams.dream_if_due("ada", at(1)) => panic!("it ended: {end:?}"),
        () = now.notified() => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_dream_that_a_crash_ended_is_gone_on_with_whether_it_is_due_or_not() {
    let bed = Bed::new();
    bed.say("ada", 0, &["one", "two", "three"]).await;
    crash(&bed, 6).await;
    // Later messages belong to the next dream.
    bed.say("ada", 5, &["four"]).await;
    let model = Dreamer::default();
    let dream = dreamt(bed.dreams(model.clone()).dream_if_due("ada", at(6)).await.unwrap());
    assert_eq!((dream.turns, dream.settled), (3, true));
    assert_eq!(bed.read("ada"), "# Memory\n- three\n- two\n- one\n");
    let end = bed.dreams(model).dream_if_due("ada", at(6)).await.unwrap();
    assert_eq!(end, DreamResult::NotDue { waiting: 1 });
}

#[tokio::test(start_paused = true)]
async fn turns_consolidated_from_another_database_are_not_repeated() {
    let bed = Bed::new();
    bed.say("ada", 0, &["one", "two", "three"]).await;
    crash(&bed, 6).await;
    let other =
        bed.dreams_on(Arc::new(MemoryCheckpointer::new()), Dreamer::default(), DreamConfig::default());
    dreamt(other.dream_if_due("ada", at(2)).await.unwrap());
    bed.say("ada", 3, &["four", "five", "six"]).await;
    dreamt(other.dream_if_due("ada", at(3)).await.unwrap());
    bed.say("ada", 4, &["seven"]).await;
    let (model, before) = (Dreamer::default(), bed.read("ada"));
    let dreams = bed.dreams(model.clone());
    assert_eq!(dreams.dream_if_due("ada", at(5)).await.unwrap(), DreamResult::NotDue { waiting: 1 });
    assert_eq!((model.requests().len(), bed.read("ada")), (0, before));
    assert_eq!(dreamt(dreams.dream_now("ada", at(5)).await.unwrap()).turns, 1);
}

#[tokio::test(start_paused = true)]
async fn a_user_has_one_dream_at_a_time() {
    let bed = Bed::new();
    bed.say("ada", 0, &["one", "two", "three"]).await;
    bed.say("bob", 0, &["one", "two", "three"]).await;
    let (holds, now) = watched(bed.store.clone(), At::HangsAfter, 6);
    let first = bed.dreams_on(holds, Dreamer::default(), DreamConfig::default());
    let dreams = bed.dreams(Dreamer::default());
    let others = async {
        now.notified().await;
        assert_eq!(dreams.dream_now("ada", at(1)).await.unwrap(), DreamResult::Busy);
        assert_eq!(dreamt(dreams.dream_now("bob", at(1)).await.unwrap()).turns, 3);
    };
    tokio::select! {
        end = first.dream_if_due("ada", at(1)) => panic!("it ended: {end:?}"),
        () = others => {}
    }
    // The owner of the thread without the lock of the file is another program as well.
    let lease = bed.store.lease(&ThreadId::from("dream:ada")).await.unwrap();
    assert_eq!(dreams.dream_now("ada", at(1)).await.unwrap(), DreamResult::Busy);
    drop(lease);
    assert_eq!(dreamt(dreams.dream_now("ada", at(1)).await.unwrap()).turns, 3);
}

#[tokio::test(start_paused = true)]
async fn the_cause_of_a_failed_dream_is_stored_and_it_pauses() {
    let bed = Bed::new();
    bed.say("ada", 0, &["one", "two", "three"]).await;
    // Its memory is not text, so that the dream cannot start.
    let memory = bed.memory.file_of("ada").unwrap();
    std::fs::write(&memory, b"\xff").unwrap();
    let (model, minute) = (scripted([txt("ok")]), 60_000);
    let dreams = bed.dreams(model.clone());
    let error = dreams.dream_if_due("ada", at(1)).await.unwrap_err();
    assert_eq!(error.to_string(), "the dream failed");
    let end = bed.cursor("ada").last.unwrap().end;
    assert!(
        end.starts_with("failed: the dream failed: SS101: ")
            && end.ends_with("`MEMORY.md` is not valid UTF-8"),
        "{end}"
    );
    std::fs::write(&memory, "# Mine\n").unwrap();
    bed.say("ada", 2, &["four"]).await;
    assert_eq!(dreams.dream_if_due("ada", at(2)).await.unwrap(), DreamResult::NotDue { waiting: 4 });
    dreamt(dreams.dream_if_due("ada", at(31 * minute)).await.unwrap());
    assert_eq!((bed.read("ada").as_str(), model.requests().len()), ("# Mine\n", 1));
}

#[tokio::test(start_paused = true)]
async fn a_requested_dream_runs_although_the_last_one_could_not_begin() {
    let bed = Bed::new();
    bed.say("ada", 0, &["one", "two", "three"]).await;
    let memory = bed.memory.file_of("ada").unwrap();
    std::fs::write(&memory, b"\xff").unwrap();
    let dreams = bed.dreams(Dreamer::default());
    dreams.dream_if_due("ada", at(1)).await.unwrap_err();
    std::fs::remove_file(&memory).unwrap();
    let dream = dreamt(dreams.dream_now("ada", at(2)).await.unwrap());
    assert_eq!((dream.turns, dream.settled, bed.cursor("ada").read.offset), (3, true, bed.length("ada")));
}

#[tokio::test(start_paused = true)]
async fn a_dream_of_another_folder_in_the_same_store_is_not_gone_on_with() {
    let here = Bed::new();
    let there = Bed::on(here.store.clone());
    here.say("ada", 0, &["one", "two", "three"]).await;
    there.say("ada", 1, &["four", "five", "six"]).await;
    crash(&here, 6).await;
    for (bed, lines) in [(&there, "six\n- five\n- four"), (&here, "three\n- two\n- one")] {
        let dream = dreamt(bed.dreams(Dreamer::default()).dream_now("ada", at(2)).await.unwrap());
        assert_eq!((dream.turns, dream.settled), (3, true));
        assert_eq!(bed.read("ada"), format!("# Memory\n- {lines}\n"));
        assert_eq!(bed.cursor("ada").read.offset, bed.length("ada"));
    }
}

#[tokio::test(start_paused = true)]
async fn deleted_turns_are_not_consolidated_by_a_resumed_dream() {
    let bed = Bed::new();
    bed.say("ada", 0, &["one", "two", "three"]).await;
    crash(&bed, 6).await;
    bed.history.delete("ada").await.unwrap();
    let model = Dreamer::default();
    let dreams = bed.dreams(model.clone());
    assert_eq!(dreams.dream_now("ada", at(2)).await.unwrap(), DreamResult::NotDue { waiting: 0 });
    bed.say("ada", 3, &["four"]).await;
    let dream = dreamt(dreams.dream_now("ada", at(3)).await.unwrap());
    assert_eq!((dream.turns, dream.settled), (1, true));
    assert_eq!(bed.read("ada"), "# Memory\n- four\n");
    assert!(!model.requests()[0].messages[1].content.contains("two"));
}

#[tokio::test(start_paused = true)]
async fn a_history_is_not_deleted_during_its_dream() {
    let bed = Bed::new();
    bed.say("ada", 0, &["one", "two", "three"]).await;
    let (holds, now) = watched(bed.store.clone(), At::HangsAfter, 6);
    let dreams = bed.dreams_on(holds, Dreamer::default(), DreamConfig::default());
    let forgets = async {
        now.notified().await;
        let refused = bed.history.delete("ada").await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::WouldBlock);
        assert!(bed.length("ada") > 0);
    };
    tokio::select! {
        end = dreams.dream_if_due("ada", at(1)) => panic!("it ended: {end:?}"),
        () = forgets => {}
    }
    bed.history.delete("ada").await.unwrap();
    assert!(!bed.path("history", "ada", "").exists());
}
