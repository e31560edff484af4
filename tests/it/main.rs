//! The tests of the library from its users' view, in one binary.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod support;

#[cfg(all(feature = "openai", feature = "sqlite"))]
mod agent;
mod axum_service;
mod compaction;
mod engine;
mod error_pages;
mod evolution;
#[cfg(all(feature = "openai", feature = "sqlite"))]
mod fuzz;
mod langgraph;
#[cfg(feature = "openai")]
mod llm;
#[cfg(all(feature = "mcp", unix))]
mod mcp;
mod nodes;
#[cfg(all(feature = "postgres", unix))]
mod postgres;
#[cfg(all(any(feature = "postgres", feature = "restate"), unix))]
mod real;
#[cfg(all(feature = "restate", unix))]
mod restate;
mod simulation;
mod tidy;
#[cfg(all(feature = "openai", feature = "sqlite"))]
mod worlds;
