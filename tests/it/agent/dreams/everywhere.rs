//! A dream that is stopped at any place is continued: the file is complete, no edit is made twice, and no
//! turn is lost.

use std::{
    future::{Future, poll_fn},
    sync::Arc,
    task::Poll,
};

use superstep::{
    Checkpointer, RunOptions,
    agent::AgentOutcome,
    memory::{DreamConfig, DreamResult},
};

use super::{
    super::{
        check,
        writes::{At, watched},
    },
    Bed, Dreamer, at, dreamt,
};
use crate::support::Backend;

const MEMORY: &str = "# Memory\n- three\n- two\n- one\n";

async fn bed() -> Bed {
    bed_on(Backend::memory().open()).await
}

async fn bed_on(store: Arc<dyn Checkpointer>) -> Bed {
    let bed = Bed::on(store);
    bed.say("ada", 0, &["one", "two", "three"]).await;
    bed
}

/// Returns the result of a dream after all other work on the files has ended, which may continue after its
/// future is dropped.
async fn alone(wish: impl AsyncFn() -> DreamResult) -> DreamResult {
    loop {
        match wish().await {
            DreamResult::Busy => tokio::task::yield_now().await,
            dreamt => return dreamt,
        }
    }
}

/// Finishes the dream in another process, in at most this number of dreams.
async fn goes_on(bed: &Bed, most: usize) {
    let file = bed.read("ada");
    assert!(file.is_empty() || (file.starts_with("# Memory\n") && file.ends_with('\n')), "{file}");
    let dreams = bed.dreams(Dreamer::default());
    for _ in 0..most {
        match alone(async || dreams.dream_if_due("ada", at(2)).await.unwrap()).await {
            DreamResult::Ended(dream) if dream.settled => break,
            // All edits were made before, and the end is requested once more.
            DreamResult::Ended(dream) if dream.outcome == Some(AgentOutcome::Completed) => {
                let again = alone(async || dreams.dream_now("ada", at(2)).await.unwrap()).await;
                assert!(dreamt(again).settled);
                break;
            }
            DreamResult::Ended(dream) => assert_eq!(dream.outcome, Some(AgentOutcome::Cancelled)),
            DreamResult::NotDue { waiting: 0 } => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(bed.read("ada"), MEMORY);
    assert_eq!(bed.cursor("ada").read.offset, bed.length("ada"));
    let none = alone(async || dreams.dream_now("ada", at(3)).await.unwrap()).await;
    assert_eq!(none, DreamResult::NotDue { waiting: 0 });
    let head = dreams.graph("ada").unwrap().thread("dream:ada").state().await.unwrap();
    assert!(head.next.is_empty());
    check::calls_are_answered(head.values.agent.messages.iter());
    let left = std::fs::read_dir(bed.path("memory", "ada", ".")).unwrap();
    let names: Vec<_> = left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let own = |name: &String| name.starts_with("MEMORY.md") || name.ends_with(".next");
    assert!(names.iter().all(own), "{names:?}");
}

/// The same on a paused clock: the work of a dropped dream may hold the lock of the file for a moment of real time.
async fn goes_on_in_real_time(bed: &Bed, most: usize) {
    tokio::time::resume();
    goes_on(bed, most).await;
    tokio::time::pause();
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_makes_no_edit_twice() {
    for point in [At::HangsBefore, At::HangsAfter] {
        for n in 1.. {
            let bed = bed().await;
            let (stops, now) = watched(bed.store.clone(), point, n);
            let dreams = bed.dreams_on(stops, Dreamer::default(), DreamConfig::default());
            let ended = tokio::select! {
                end = dreams.dream_if_due("ada", at(1)) => Some(dreamt(end.unwrap())),
                () = now.notified() => None,
            };
            goes_on_in_real_time(&bed, 1).await;
            if ended.is_some() {
                assert!(n > 10, "there were writes of every node: {n}");
                break;
            }
        }
    }
}

/// Another process opens the database again.
#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_to_a_database_makes_no_edit_twice() {
    for n in (2..).step_by(3) {
        let backend = Backend::sqlite();
        let bed = bed_on(backend.open()).await;
        let (stops, now) = watched(bed.store.clone(), At::HangsAfter, n);
        let dreams = bed.dreams_on(stops, Dreamer::default(), DreamConfig::default());
        let ended = tokio::select! {
            end = dreams.dream_if_due("ada", at(1)) => Some(dreamt(end.unwrap())),
            () = now.notified() => None,
        };
        drop(dreams);
        let bed = Bed { store: backend.open(), ..bed };
        goes_on_in_real_time(&bed, 1).await;
        if ended.is_some() {
            assert!(n > 10, "there were writes of every node: {n}");
            break;
        }
    }
}

/// Polls a future `times` times and drops it; returns its output if it was done by then.
async fn polled<T>(times: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = Box::pin(future);
    let mut left = times;
    poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

/// File operations continue briefly on another thread, as they would until the process has ended.
#[tokio::test]
async fn a_crash_while_it_waits_for_anything_makes_no_edit_twice() {
    for times in 1.. {
        let bed = bed().await;
        let dreams = bed.dreams(Dreamer::default());
        let ended = polled(times, dreams.dream_if_due("ada", at(1))).await;
        let is_over = ended.is_some();
        drop((ended, dreams));
        goes_on(&bed, 1).await;
        if is_over {
            assert!(times > 8, "it waited for many things: {times}");
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_at_any_write_leaves_a_dream_that_another_one_completes() {
    for n in 1.. {
        let bed = bed().await;
        let (tells, now): (Arc<dyn Checkpointer>, _) = watched(bed.store.clone(), At::Tells, n);
        let dreams = bed.dreams_on(tells, Dreamer::default(), DreamConfig::default());
        let config: RunOptions = at(1);
        let cancel = config.get_cancel().clone();
        let run = dreams.dream_if_due("ada", config);
        tokio::pin!(run);
        let told = tokio::select! {
            biased;
            end = &mut run => { end.unwrap(); false }
            () = now.notified() => { cancel.cancel(); true }
        };
        if !told {
            assert!(n > 10, "there were writes of every node: {n}");
            break;
        }
        let dream = dreamt(run.await.unwrap());
        let is_completed = dream.outcome == Some(AgentOutcome::Completed);
        assert!(
            is_completed || matches!(dream.outcome, Some(AgentOutcome::Cancelled) | None),
            "{n}: {dream:?}"
        );
        assert_eq!(dream.settled, is_completed, "{n}");
        assert_eq!(bed.cursor("ada").read.offset, if is_completed { bed.length("ada") } else { 0 }, "{n}");
        // A dream that was stopped between two nodes may still have to report its cancellation.
        goes_on_in_real_time(&bed, 2).await;
    }
}
