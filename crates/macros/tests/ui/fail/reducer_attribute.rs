use superstep_graph::State;

#[derive(State, Clone, Default)]
#[channel(append)]
struct Chat {
    #[channel(sum, max)]
    two: i64,
    #[channel(sum)]
    #[channel(max)]
    two_attributes: i64,
    #[channel()]
    empty: i64,
    #[channel]
    bare: i64,
    #[channel(self::Append)]
    path: Vec<String>,
    #[channel(with)]
    nothing: i64,
    #[channel(sum = 3)]
    value: i64,
}

fn main() {}
