//! The doctor as a library: what the command cannot be told to do.

#![expect(clippy::unwrap_used, reason = "the helpers of tests panic as tests do")]

use std::process::Command;
use std::time::Duration;

use headwater::doctor::{Check, DoctorOptions, Report, Verdict, examine};

const MARK: &str = "HEADWATER_TEST_IN_NAMESPACE";

fn report(options: &DoctorOptions) -> (Report, Vec<Check>) {
    let mut observed = Vec::new();
    let report = examine(options, &mut |check| observed.push(check.clone())).unwrap();
    (report, observed)
}

fn options(group: &str) -> DoctorOptions {
    let (interface, wait) = (Some("lo".to_owned()), Duration::from_millis(50));
    DoctorOptions { interface, wait, ..DoctorOptions::new(group.parse().unwrap()) }
}

#[test]
fn every_check_is_observed_as_it_is_done() {
    let (report, observed) = report(&options("239.255.72.92:17292"));
    assert_eq!(report.checks, observed);
    assert_ne!(report.verdict(), Verdict::Problem, "{report:?}");
    assert!(examine(&DoctorOptions::new("192.0.2.1:1".parse().unwrap()), &mut |_| {}).is_err());
}

#[test]
fn a_port_that_is_taken_is_the_problem() {
    let holder = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let group = format!("239.255.72.92:{}", holder.local_addr().unwrap().port());
    let (report, _) = report(&options(&group));
    let last = report.checks.last().unwrap();
    assert_eq!((last.name, last.verdict), ("sockets", Verdict::Problem));
    assert!(last.advice.as_ref().unwrap().contains("ss -lunp"), "{last:?}");
}

/// Within a user namespace nobody may exceed `net.core.rmem_max`, not even root.
#[test]
fn a_short_receive_buffer_is_told_with_the_setting() {
    if std::env::var_os(MARK).is_none() {
        let this = std::env::current_exe().unwrap();
        let test = "a_short_receive_buffer_is_told_with_the_setting";
        let output = Command::new("unshare")
            .args(["--map-root-user", "--net", "sh", "-c"])
            .arg("ip link set dev lo up || exit 77; exec \"$0\" --exact \"$1\" --nocapture")
            .args([this.as_os_str(), test.as_ref()])
            .env(MARK, "1")
            .output();
        match output {
            Ok(output) if output.status.success() => {
                assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
            }
            Ok(output) if !matches!(output.status.code(), Some(1 | 77)) => panic!("{output:?}"),
            other => eprintln!("skipped, no network namespace: {other:?}"),
        }
        return;
    }
    let asked = 512 << 20;
    let (report, _) =
        report(&DoctorOptions { receive_buffer_bytes: asked, ..options("239.255.72.92:17293") });
    let buffers = report.checks.iter().find(|check| check.name == "buffers").unwrap();
    assert_eq!(buffers.verdict, Verdict::Warning, "{buffers:?}");
    assert!(
        buffers.advice.as_ref().unwrap().contains("sysctl -w net.core.rmem_max=536870912"),
        "{buffers:?}"
    );
}
