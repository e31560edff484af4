//! A node that is cut off from the others, but not from the workers and the callers.
//!
//! Each node has a network namespace of its own, which needs root on Linux. `just restate-partition` runs it.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use superstep_graph::State as _;
use superstep_testing::proof::order::Order;
use tokio::time::Instant;

use crate::{
    cluster::Cluster,
    proof::{Faults, number, prove},
};

const NODES: usize = 3;

/// The address of the workers and of the callers.
const OWN: &str = "10.77.0.1";

/// Set in the process within the namespaces.
const INSIDE: &str = "SUPERSTEP_PARTITION_INSIDE";

/// The time before the cut, and its length.
const BEFORE: Duration = Duration::from_secs(3);
const CUT: Duration = Duration::from_secs(12);

/// Connects namespaces with a bridge, and executes a command beside them. All of it ends with that.
const NETWORKS: &str = "mkdir -p /run/netns; mount -t tmpfs none /run/netns; ip link set lo up
ip link add bridge type bridge; ip addr add 10.77.0.1/24 dev bridge; ip link set bridge up
for n in 0 1 2; do
ip netns add n$n; ip link add v$n type veth peer name w$n; ip link set w$n netns n$n; ip link set v$n master bridge up
ip -n n$n link set lo up; ip -n n$n addr add 10.77.0.1$n/24 dev w$n; ip -n n$n link set w$n up
done
exec \"$@\"";

/// Returns the beginning of a command in the network of a node.
pub(crate) fn within(nth: usize) -> String {
    format!("ip netns exec n{nth}")
}

fn host(nth: usize) -> String {
    format!("10.77.0.1{nth}")
}

#[test]
fn runs_over_a_partition_keep_every_promise() {
    if number("SUPERSTEP_PARTITIONED", 0) == 0 {
        // Three servers are too much beside the other tests; the recipe starts them.
        return;
    }
    let unshared = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount"]).args(args);
        command
    };
    let is_allowed = unshared(&["true"]).stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    if !is_allowed {
        superstep_testing::skipped("network namespaces need root on Linux");
        return;
    }
    let mut inside = unshared(&["sh", "-ec", NETWORKS, "networks"]);
    inside.arg(std::env::current_exe().unwrap()).args(["--exact", "partition::inside", "--nocapture"]);
    assert!(inside.env(INSIDE, "1").status().unwrap().success());
}

/// Runs in the namespaces only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inside() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    let Some(mut cluster) = Cluster::start_at((0..NODES).map(host).collect()) else { return };
    let runs = number("SUPERSTEP_PARTITIONED", 200) as usize;
    let seed = number("SUPERSTEP_PROOF_SEED", 15);
    prove(&mut cluster, OWN, runs / 2, seed, Faults::Partition).await.check();
}

/// Cuts the first node off for some time. It must not serve meanwhile.
pub(crate) async fn cut_and_heal(cluster: &Cluster) {
    let change = |change: &str| {
        for other in &cluster.hosts()[1..] {
            let mut route = Command::new("ip");
            route.args(["-n", "n0", "route", change, "blackhole", &format!("{other}/32")]);
            assert!(route.status().unwrap().success(), "{route:?}");
        }
    };
    tokio::time::sleep(BEFORE).await;
    change("add");
    let healed = Instant::now() + CUT;
    tokio::time::sleep(CUT / 4).await;
    let thread = cluster.client_of(0).thread("order", "refused");
    let served = tokio::time::timeout(CUT / 4, thread.run(Order::update())).await;
    println!("a run through the node that is cut off: {served:?}");
    assert!(!matches!(served, Ok(Ok(_))), "the minority serves");
    tokio::time::sleep_until(healed).await;
    change("del");
}
