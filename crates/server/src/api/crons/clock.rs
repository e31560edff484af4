//! The beginnings of the runs of crons.
//!
//! Start at [`run`].

use std::{collections::BTreeSet, convert::Infallible, future::pending, sync::Arc, time::Duration};

use super::{super::runs::queue_stateless, new_run_of};
use crate::{
    error::ApiError,
    rows::cron::{CronRow, Crons},
    runs::hub::{Hub, lanes::NewRun},
    wire::{ids, time},
};

/// The longest time until the clock of the machine is read again, which may have been set.
const LONGEST: Duration = Duration::from_secs(60);

/// The time after which rows that could not be written are written again.
const PAUSE: Duration = Duration::from_secs(5);

/// Begins the runs of the crons at their times. The latest time without a server begins a run at the start.
pub(crate) async fn run(hub: &Arc<Hub>) -> Infallible {
    if let Some(crons) = &hub.crons {
        let mut queued = BTreeSet::new();
        while !hub.stopping.is_cancelled() {
            let wait = begin_due(hub, crons, &mut queued).await;
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = crons.changed.notified() => {}
                () = hub.stopping.cancelled() => {}
            }
        }
    }
    pending().await
}

/// Begins the runs that are due, also those that an earlier process was about to begin, and returns the time until the next one.
async fn begin_due(hub: &Arc<Hub>, crons: &Crons, queued: &mut BTreeSet<String>) -> Duration {
    let now_us = time::now_us();
    let mut is_left = false;
    for row in crons.rows.list(|row| row.begins.is_some() || row.is_due(now_us)) {
        if let Err(error) = begin(hub, crons, row, queued).await {
            // Its row says so, and it is tried again.
            tracing::warn!(error = error.detail, "a run of a cron cannot begin yet");
            is_left = true;
        }
    }
    match is_left {
        true => PAUSE,
        false => wait(crons.rows.least(|row| row.next_us).map(|(next_us, _)| next_us), time::now_us()),
    }
}

/// Begins a run of a cron, whose row names the run from before it is stored until after it.
///
/// `queued` has the runs that this process has begun, and whose rows it could not write since.
async fn begin(
    hub: &Arc<Hub>,
    crons: &Crons,
    row: CronRow,
    queued: &mut BTreeSet<String>,
) -> Result<(), ApiError> {
    let was_named = row.begins.is_some();
    let Some(row) = named(crons, row).await? else { return Ok(()) };
    let Some(run) = row.begins.clone() else { return Ok(()) };
    let is_stored = |run: &str| hub.runs.count(|row| row.id == run) > 0;
    let is_begun = queued.contains(&run) || was_named && is_stored(&run);
    let begun = if is_begun { Ok(()) } else { queue(hub, &row, run.clone()).await };
    let problem = match begun {
        Ok(()) => None,
        Err(error) if error.status.is_server_error() => return Err(error),
        Err(error) => {
            tracing::warn!(cron = row.id, error = error.detail, "a time of a cron begins no run");
            Some(error.detail)
        }
    };
    queued.insert(run.clone());
    let change = |row: &mut CronRow| {
        if row.begins.as_ref() == Some(&run) {
            (row.begins, row.problem) = (None, problem);
        }
    };
    crons.rows.change(&row.id, change).await?;
    queued.remove(&run);
    Ok(())
}

/// Names the run that a cron begins, and its next time, in one write. Returns its row; `None` if it was deleted meanwhile.
async fn named(crons: &Crons, row: CronRow) -> Result<Option<CronRow>, ApiError> {
    if row.begins.is_some() {
        return Ok(Some(row));
    }
    let now_us = time::now_us();
    let next_us = row.next(now_us)?;
    let change = |now: &mut CronRow| {
        // A client may have changed it meanwhile.
        if now.begins.is_none() && now.is_due(now_us) && now.updated_us == row.updated_us {
            // It stops at its end, also if the server did not run then.
            now.begins = now.end_us.is_none_or(|end_us| now_us <= end_us).then(ids::new_ordered);
            now.next_us = next_us;
        }
    };
    crons.rows.change(&row.id, change).await
}

async fn queue(hub: &Arc<Hub>, row: &CronRow, run: String) -> Result<(), ApiError> {
    let new = NewRun { id: run, ..new_run_of(hub, row)? };
    let Some(thread) = row.thread_key() else {
        return queue_stateless(hub, &row.user(), new, row.keeps).await.map(drop);
    };
    // Another user may have a thread of this name now.
    let thread = hub.row_of(&thread).ok_or_else(|| ApiError::not_found("thread", &thread.thread))?;
    hub.create(&thread, new).await.map(drop)
}

fn wait(next_us: Option<i64>, now_us: i64) -> Duration {
    let until = |next: i64| Duration::from_micros(u64::try_from(next.saturating_sub(now_us)).unwrap_or(0));
    next_us.map_or(LONGEST, |next| until(next).min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_ends_at_the_next_time() {
        for (next_us, expected) in [
            (None, LONGEST),
            (Some(61_000_000), LONGEST),
            (Some(2_500_000), Duration::from_millis(1_500)),
            (Some(1), Duration::ZERO),
        ] {
            assert_eq!(wait(next_us, 1_000_000), expected, "{next_us:?}");
        }
    }
}
