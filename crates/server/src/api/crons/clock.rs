//! The beginnings of the runs of crons.
//!
//! Start at [`run`].

use std::{convert::Infallible, future::pending, sync::Arc, time::Duration};

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
        let mut is_resumed = false;
        while !hub.stopping.is_cancelled() {
            let begun = async {
                if !is_resumed {
                    resume(hub, crons).await?;
                    is_resumed = true;
                }
                begin_due(hub, crons).await
            };
            let wait = begun.await.unwrap_or_else(|error| {
                tracing::warn!(error = error.detail, "the times of crons cannot be stored");
                PAUSE
            });
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = crons.changed.notified() => {}
                () = hub.stopping.cancelled() => {}
            }
        }
    }
    pending().await
}

/// Begins the runs that an earlier process was about to begin when it ended.
async fn resume(hub: &Arc<Hub>, crons: &Crons) -> Result<(), ApiError> {
    for row in crons.rows.list(|row| row.begins.is_some()) {
        let is_stored = |run: &str| hub.runs.count(|row| row.id == run) > 0;
        if row.begins.as_deref().is_some_and(is_stored) {
            crons.rows.change(&row.id, |row| row.begins = None).await?;
        } else {
            begin(hub, crons, row).await?;
        }
    }
    Ok(())
}

/// Begins the runs that are due, and returns the time until the next one.
async fn begin_due(hub: &Arc<Hub>, crons: &Crons) -> Result<Duration, ApiError> {
    loop {
        let now_us = time::now_us();
        let next = crons.rows.least(|row| row.next_us);
        let Some((_, id)) = next.as_ref().filter(|(next_us, _)| *next_us <= now_us) else {
            return Ok(wait(next.map(|(next_us, _)| next_us), now_us));
        };
        let change = |row: &mut CronRow| {
            // It may have been changed meanwhile.
            if row.next_us.is_some_and(|next_us| next_us <= now_us) {
                row.begins = Some(ids::new_ordered());
                row.next_us = row.next(now_us).unwrap_or_default();
            }
        };
        if let Some(row) = crons.rows.change(id, change).await? {
            begin(hub, crons, row).await?;
        }
    }
}

/// Begins the run whose id the row has, if it has one.
async fn begin(hub: &Arc<Hub>, crons: &Crons, row: CronRow) -> Result<(), ApiError> {
    let Some(run) = row.begins.clone() else { return Ok(()) };
    let begun = queue(hub, &row, run).await;
    if begun.is_err() && hub.stopping.is_cancelled() {
        // The next start begins it.
        return Ok(());
    }
    let problem = begun.err().map(|error| {
        tracing::warn!(cron = row.id, error = error.detail, "a time of a cron begins no run");
        error.detail
    });
    let change = |row: &mut CronRow| (row.begins, row.problem) = (None, problem);
    crons.rows.change(&row.id, change).await.map(drop)
}

async fn queue(hub: &Arc<Hub>, row: &CronRow, run: String) -> Result<(), ApiError> {
    let new = NewRun { id: run, ..new_run_of(hub, row)? };
    match &row.thread {
        None => queue_stateless(hub, &row.user(), new, row.keeps).await?,
        Some(thread) => hub.create(&hub.thread_row(thread)?, new).await?,
    };
    Ok(())
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
