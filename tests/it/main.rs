//! The tests of the library as its users see it, in one binary.

mod support;

#[cfg(all(feature = "openai", feature = "sqlite"))]
mod agent;
mod engine;
mod error_pages;
mod tidy;
