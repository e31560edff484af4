//! `superstep usage`: tokens and costs by day, model or thread.

use std::{collections::BTreeMap, time::Duration};

use serde_json::json;
use superstep::{
    clock::{Clock as _, SystemClock},
    llm::{Usage, models::NanoDollars},
};
use superstep_session::{
    error::SessionError,
    text::{count, printable_line},
    turn::usage::{TurnUsage, of_all},
};

use crate::{
    args::{
        command_line::{UsageArgs, UsageBy},
        shared::{AGENT, Locate},
    },
    output::{
        exit::Exit,
        note::print_note,
        table::{formatted, lines, local_day, new_table, print},
    },
};

/// The turns of a row.
#[derive(Default)]
struct Sum {
    turns: usize,
    usage: Usage,
    cost: Option<NanoDollars>,
    /// The price of some model is unknown.
    is_incomplete: bool,
}

impl Sum {
    fn add(&mut self, turn: &TurnUsage) {
        self.turns += 1;
        self.usage = self.usage + turn.usage;
        match turn.cost {
            Some(cost) => self.cost = Some(self.cost.unwrap_or_default() + cost),
            None => self.is_incomplete = true,
        }
    }

    fn cost(&self) -> String {
        match self.cost {
            None => "-".to_owned(),
            Some(cost) if self.is_incomplete => format!("> {cost}"),
            Some(cost) => cost.to_string(),
        }
    }
}

/// Sums the tokens of the turns in a database.
pub(crate) async fn usage(args: UsageArgs) -> Result<Exit, SessionError> {
    let UsageArgs { by, since, database } = args;
    let location = database.location.locate(AGENT)?;
    let ms = |age: Duration| i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    let since = since.map_or(i64::MIN, |age| SystemClock.now_ms().saturating_sub(ms(age)));
    let (turns, unreadable) = match location.find()? {
        Some(store) => of_all(&store, since).await?,
        None => Default::default(),
    };
    if !unreadable.is_empty() {
        print_note(&format!("{} cannot be read, see `superstep threads`", count(unreadable.len(), "thread")));
    }
    let (mut sums, mut all): (BTreeMap<String, Sum>, Sum) = Default::default();
    for turn in &turns {
        let key = match by {
            UsageBy::Day => local_day(turn.ended_ms),
            UsageBy::Model if turn.model.is_empty() => "unknown".to_owned(),
            UsageBy::Model => turn.model.clone(),
            UsageBy::Thread => turn.thread.to_string(),
        };
        sums.entry(key).or_default().add(turn);
        all.add(turn);
    }
    let name = by.name();
    if database.json {
        return print(&lines(sums.iter().map(|(key, sum)| {
            json!({
                name: key,
                "turns": sum.turns,
                "usage": sum.usage,
                "estimated_cost": sum.cost,
                "cost_incomplete": sum.cost.is_some() && sum.is_incomplete,
            })
        })));
    }
    if sums.is_empty() {
        return print("no turns yet\n");
    }
    let name = name.to_uppercase();
    let mut table = new_table(&[&name, "TURNS", "IN", "CACHED", "OUT", "COST"]);
    let mut row = |key: &str, sum: &Sum| {
        let Usage { input_tokens, cached_tokens, output_tokens, .. } = sum.usage;
        let numbers = [input_tokens, cached_tokens, output_tokens].map(|number| number.to_string());
        let [read, cached, written] = numbers;
        table.add_row([printable_line(key), sum.turns.to_string(), read, cached, written, sum.cost()]);
    };
    sums.iter().for_each(|(key, sum)| row(key, sum));
    if sums.len() > 1 {
        row("all", &all);
    }
    print(&formatted(table))
}
