use superstep_graph::Route;

#[derive(Route, Clone, Copy)]
struct Struct;

#[derive(Route, Clone, Copy)]
enum Empty {}

#[derive(Route, Clone, Copy)]
enum Data {
    None,
    Tuple(u8),
    Named { tool: u8 },
}

#[derive(Route, Clone, Copy)]
enum Generic<T> {
    One(T),
}

fn main() {}
