//! Everything that goes through the public API of the server, by HTTP.

mod assistants;
mod clients;
mod door;
mod graphs;
mod runs;
mod state;
mod store;
mod streams;
mod support;
mod survival;
mod threads;
