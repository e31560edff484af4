//! A statement that is composed with its parameters.
//!
//! Start at [`Query`].

use std::fmt::Write as _;

use futures::future::join_all;
use tokio_postgres::{
    Row, Statement,
    types::{ToSql, Type},
};

use crate::{error::Failed, session::Client};

/// A statement with its parameters. Equal conditions result in equal texts, so that a connection prepares each only once.
#[derive(Default)]
pub(crate) struct Query<'a> {
    sql: String,
    params: Vec<&'a (dyn ToSql + Sync)>,
    types: Vec<Type>,
}

/// A parameter, whose type is known before the statement is prepared.
pub(crate) trait Param: Sync {
    fn typed(&self) -> (&(dyn ToSql + Sync), Type);
}

macro_rules! params {
    ($($name:ident: $($of:ty),+;)+) => {
        $($(impl Param for $of {
            fn typed(&self) -> (&(dyn ToSql + Sync), Type) {
                (self, Type::$name)
            }
        })+)+
    };
}

params! {
    BOOL: bool;
    BYTEA: &[u8], Option<&[u8]>, Vec<u8>;
    FLOAT4_ARRAY: Vec<f32>;
    FLOAT8: f64;
    INT4: i32;
    INT8: i64, Option<i64>;
    INT8_ARRAY: Vec<i64>;
    TEXT: &str, Option<&str>, String, Option<String>;
    TEXT_ARRAY: Vec<&str>, Vec<String>, &[String];
}

impl<'a> Query<'a> {
    /// Creates a statement with the parameters `$1`, `$2` and so on.
    pub(crate) fn of(sql: impl Into<String>, params: &[&'a dyn Param]) -> Self {
        let (params, types) = params.iter().map(|param| param.typed()).unzip();
        Self { sql: sql.into(), params, types }
    }

    /// Appends a part of the statement, in which each `?` is the next parameter.
    pub(crate) fn push(&mut self, part: &str, params: &[&'a dyn Param]) -> &mut Self {
        let mut parts = part.split('?');
        self.sql.push_str(parts.next().unwrap_or_default());
        for (param, part) in params.iter().zip(parts) {
            let (param, of) = param.typed();
            self.params.push(param);
            self.types.push(of);
            let _ = write!(self.sql, "${}{part}", self.params.len());
        }
        self
    }

    /// Prepares it, if the connection did not do so before.
    pub(crate) async fn prepare(&self, client: Client<'_>) -> Result<Statement, Failed> {
        client.prepare(&self.sql, &self.types).await
    }

    /// Executes it, prepared, and returns its rows. The request is sent when the future is polled for the first time, so that the
    /// order of requests that are awaited together is that of their futures.
    pub(crate) async fn run(&self, client: Client<'_>, prepared: &Statement) -> Result<Vec<Row>, Failed> {
        client.query(prepared, &self.params).await
    }

    /// Prepares and executes it, and returns its rows.
    pub(crate) async fn rows(&self, client: Client<'_>) -> Result<Vec<Row>, Failed> {
        let prepared = self.prepare(client).await?;
        self.run(client, &prepared).await
    }

    /// Prepares and executes it, and returns its first row.
    pub(crate) async fn row(&self, client: Client<'_>) -> Result<Option<Row>, Failed> {
        Ok(self.rows(client).await?.into_iter().next())
    }

    /// Executes a statement that always has one row.
    pub(crate) async fn only(&self, client: Client<'_>) -> Result<Row, Failed> {
        Ok(self.row(client).await?.expect("the statement has no condition"))
    }
}

/// Executes statements of one text, all sent at once.
pub(crate) async fn run_all(queries: &[Query<'_>], client: Client<'_>) -> Result<(), Failed> {
    let Some(first) = queries.first() else { return Ok(()) };
    let prepared = first.prepare(client).await?;
    let all = join_all(queries.iter().map(|query| query.run(client, &prepared))).await;
    all.into_iter().try_for_each(|rows| rows.map(drop))
}
