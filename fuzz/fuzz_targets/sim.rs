//! What is read as SIM's congestion control information, feedback or holding is written as one that reads the
//! same.
#![no_main]
use headwater_wire::sim::{Data, Holding, SimReport};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(data) = Data::parse(bytes) {
        assert_eq!(data.to_cci().as_bytes(), bytes);
    }
    if let Ok(report) = SimReport::parse(bytes) {
        assert!(report.congested <= report.reports && report.reports <= report.population);
        assert_eq!(SimReport::parse(&report.emit()), Ok(report));
    }
    if let Ok(holding) = Holding::parse(bytes) {
        assert_eq!(Holding::parse(&holding.emit()), Ok(holding));
    }
});
