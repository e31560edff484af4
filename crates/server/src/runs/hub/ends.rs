//! The ends of runs, for the webhooks that clients name.
//!
//! Start at [`Hub::send_end`].

use std::sync::Arc;

use serde_json::Value;

use crate::{
    rows::run::RunRow,
    runs::{
        hub::{Hub, run_key},
        live::{LiveRun, RunEnd},
    },
    wire::time,
};

impl Hub {
    /// Returns the row of a run that begins now, if it has a webhook.
    pub(super) fn row_with_webhook(&self, live: &LiveRun) -> Option<RunRow> {
        let row = self.runs.get(&run_key(&live.about.thread, &live.about.run))?;
        row.plan.webhook.is_some().then(|| RunRow { updated_us: time::now_us(), ..row })
    }

    /// Sends the end of a run to its webhook, without waiting for that. `row` is its row as it began.
    pub(super) fn send_end(self: &Arc<Self>, live: &LiveRun, row: Option<RunRow>, end: &RunEnd) {
        let (Some(mut row), Some(status)) = (row, end.status(live)) else { return };
        let Some(address) = row.plan.webhook.clone() else { return };
        let began = time::text(row.updated_us);
        (row.status, row.updated_us) = (status, time::now_us());
        let mut body = row.to_wire();
        body["run_started_at"] = began.into();
        body["run_ended_at"] = time::text(row.updated_us).into();
        let mut values = self.result(live, end);
        if let Some(error) = values.get_mut("__error__").map(Value::take) {
            body["error"] = error;
        } else {
            body["values"] = values;
        }
        let hub = self.clone();
        self.tasks.spawn(async move { hub.webhooks.send(&row.id, &address, body, &hub.stopping).await });
    }
}
