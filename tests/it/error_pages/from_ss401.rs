//! The fragments of SS401.

use serde_json::json;
use superstep::worker::Schedule;

use super::setup::{Done, fails};

#[tokio::test]
async fn ss401() -> Done {
    let input = json!({"days": 1});
    fails("SS401", async {
        let input = input.clone();
        let times = Schedule::new("digest", "every morning", "Europe/Berlin")?;
        let digest = times.run("digest", "digest-{time}", input)?;
        Ok(())
    })
    .await;

    let times = Schedule::new("digest", "0 9 * * 1-5", "Europe/Berlin")?;
    let digest = times.run("digest", "digest-{time}", input)?;
    Ok(())
}
