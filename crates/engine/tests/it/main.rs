//! The engine alone: scripted inputs, and the outputs they give.

mod support;

mod contract;
mod control;
mod machine;
mod orders;
