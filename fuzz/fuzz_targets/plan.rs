//! A plan of the simulator is read or refused, whatever its text; what is read makes a scenario or says why
//! not.
#![no_main]
use headwater_netsim::plan::Plan;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(plan) = Plan::parse("plan.toml", text) else { return };
    for index in 0..plan.cells().min(4) {
        let _ = plan.scenario(&plan.cell(index), 0);
    }
});
