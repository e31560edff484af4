//! The tests of the library as its users see it, in one binary.

mod engine;
