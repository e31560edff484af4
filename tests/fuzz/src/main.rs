//! One target, which `FUZZ_TARGET` names, under libFuzzer.

#![no_main]

#[cfg(feature = "configuration")]
mod configuration;
mod targets;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("FUZZ_TARGET").expect("`FUZZ_TARGET` names a target");
        let all = targets::TARGETS.to_vec();
        #[cfg(feature = "configuration")]
        let all = [all, configuration::TARGETS.to_vec()].concat();
        all.into_iter().find(|(known, _)| *known == name).expect("there is such a target").1
    });
    target(data);
});
