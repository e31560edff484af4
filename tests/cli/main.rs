//! The program, as its users meet it: the real binary, real files, servers on loopback.

mod support;

mod answers;
mod kill;
mod refusals;
mod secrets;
mod show;
mod stop;
