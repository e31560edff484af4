//! The limits of a migration of the job tables.

use std::time::Duration;

use superstep_graph::error::chain;
use superstep_postgres::PostgresOptions;
use superstep_worker::{Jobs, Listed, Worker};
use tokio_postgres::{Client, NoTls};

use crate::{
    server::{Server, shared},
    support::{Control, assert_whole, fresh, input, trip},
};

/// Another program with the same database.
async fn other(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn refused(options: &PostgresOptions) -> String {
    chain(&Jobs::open(options.clone()).await.unwrap_err())
}

/// Creates a database of its own and of the schema's name, because triggers of events are for whole databases, with a trigger that does
/// this.
fn watched(server: &Server, action: &str) -> PostgresOptions {
    let options = fresh(server);
    let (schema, action) = (&options.schema, action.replace("SCHEMA", &format!("{}_jobs", options.schema)));
    server.sql(&format!(
        r"CREATE DATABASE {schema};
        \connect {schema}
        CREATE TABLE public.seen (statement text, lock text, gone text);
        CREATE FUNCTION public.see() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN {action} END $$;
        CREATE EVENT TRIGGER see ON ddl_command_start EXECUTE FUNCTION public.see();"
    ));
    let url = server.url().replace("/postgres", &format!("/{schema}"));
    options.url(url)
}

#[tokio::test]
async fn a_migration_of_the_jobs_has_no_limit_of_time_except_for_locks_and_ends_with_its_process() {
    let Some(server) = shared() else { return };
    let action = "INSERT INTO public.seen VALUES (current_setting('statement_timeout'), current_setting('lock_timeout'),
        current_setting('client_connection_check_interval', true));";
    let options = watched(server, action);
    drop(Jobs::open(options.clone()).await.unwrap());
    let seen = |what: &str| {
        server.sql(&format!("\\connect {}\nSELECT DISTINCT {what} FROM public.seen", options.schema))
    };
    assert_eq!(seen("statement, lock"), "0|5s");
    // Servers before version 14 notice that a process has ended at the end of a statement only.
    let gone = seen("coalesce(gone, '10s')");
    assert_eq!(gone, "10s");
}

#[tokio::test]
async fn a_migration_of_the_jobs_does_not_wait_long_for_tables_that_others_use() {
    let Some(server) = shared() else { return };
    let options = fresh(server);
    drop(Jobs::open(options.clone()).await.unwrap());
    let schema = format!("{}_jobs", options.schema);
    // As an older version has left it.
    server.sql(&format!("DROP INDEX {schema}.superstep_running"));
    let other = other(&server.url()).await;
    let lock = format!("BEGIN; LOCK TABLE {schema}._private_jobs IN ROW EXCLUSIVE MODE");
    other.batch_execute(&lock).await.unwrap();
    let error = refused(&options).await;
    let advice = "another program holds a lock for too long; wait until it is done, or end it";
    assert!(
        error.contains("cannot make the tables of jobs in database") && error.contains(advice),
        "{error}"
    );
    other.batch_execute("ROLLBACK").await.unwrap();
    drop(Jobs::open(options).await.unwrap());
    let index = server.sql(&format!("SELECT to_regclass('{schema}.superstep_running') IS NOT NULL"));
    assert_eq!(index, "t");
}

#[tokio::test]
async fn a_migration_of_the_jobs_waits_for_another_one_as_long_as_for_a_statement() {
    let Some(server) = shared() else { return };
    // The lock is one of the database, which other tests use as well.
    let options = watched(server, "");
    let url = server.url().replace("/postgres", &format!("/{}", options.schema));
    let other = other(&url).await;
    let lock = 0x0073_7320_6a6f_6273_i64;
    other.batch_execute(&format!("BEGIN; SELECT pg_advisory_xact_lock({lock})")).await.unwrap();
    let brief = options.clone().statement_timeout(Duration::from_millis(300));
    let error = refused(&brief).await;
    assert!(
        error.contains("another process creates or migrates them; try again when that is done"),
        "{error}"
    );
    let opening = tokio::spawn(Jobs::open(options));
    other.batch_execute("COMMIT").await.unwrap();
    drop(opening.await.unwrap().unwrap());
}

#[tokio::test]
async fn a_migration_of_the_jobs_that_ended_in_the_middle_is_continued() {
    let Some(server) = shared() else { return };
    let killed = "IF to_regclass('SCHEMA.migrations') IS NOT NULL THEN
        IF (SELECT count(*) FROM SCHEMA.migrations) = 9 THEN RAISE 'killed'; END IF; END IF;";
    let options = watched(server, killed);
    let error = refused(&options).await;
    assert!(error.starts_with("SS303: cannot make the tables of jobs in database"), "{error}");
    let sql = |sql: &str| server.sql(&format!("\\connect {}\n{sql}", options.schema));
    let versions = || -> u32 {
        sql(&format!("SELECT count(*) FROM {}_jobs.migrations", options.schema)).parse().unwrap()
    };
    // Each version is a transaction.
    assert_eq!(versions(), 8);
    sql("DROP EVENT TRIGGER see");
    let (jobs, control) = (Jobs::open(options.clone()).await.unwrap(), Control::default());
    assert!(versions() > 20);
    let graph = trip(&options, &control);
    jobs.run(&graph, "a", input("a")).send().await.unwrap();
    assert_eq!(Worker::new(&jobs).graph(graph.clone()).run_due().await.unwrap(), 1);
    assert_whole(&graph.thread("a").state().await.unwrap().values);
    assert_eq!(jobs.list(Listed::All).await.unwrap(), []);
}
