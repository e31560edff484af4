use superstep_graph::Route;

#[derive(Route)]
enum Next {
    End,
}

fn main() {}
