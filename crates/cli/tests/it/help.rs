//! Help, completions and man pages.

use crate::command::run;

#[test]
fn help_lists_the_commands_and_the_exit_codes() {
    let help = run(&["--help"]);
    assert_eq!(help.code, Some(0));
    for command in [
        "send ",
        "receive ",
        "pgm ",
        "relay ",
        "demo ",
        "doctor ",
        "inspect ",
        "simulate ",
        "bench ",
        "generate ",
    ] {
        assert!(help.stdout.contains(command), "{command} is missing");
    }
    for code in [
        "0  done",
        "2  usage",
        "3  network",
        "4  nothing",
        "5  incomplete",
        "6  verif",
        "7  disk",
        "130  int",
    ] {
        assert!(help.stdout.contains(code), "exit code '{code}' is missing");
    }
}

#[test]
fn the_contract_is_in_the_help() {
    let send = [
        "--group <ADDR:PORT>",
        "--interface <IF>",
        "--ttl <N>",
        "--rate <RATE|auto>",
        "--congestion-control <NAME>",
        "--fec <CODE>",
        "--tsi <N>",
        "--passes <N>",
        "--duration <TIME>",
        "--json",
        "--events <FILE>",
        "--memory <BYTES>",
        "--temp-dir <DIR>",
        "--dry-run",
        "<PATH>...",
        "239.255.72.87:7287",
        "--demand <WHETHER>",
    ];
    let receive = [
        "--group <ADDR:PORT>",
        "--source <HOST>",
        "--interface <IF>",
        "--tsi <N>",
        "--out <DIR>",
        "--timeout <TIME>",
        "--json",
        "--events <FILE>",
    ];
    for (command, options) in [("send", &send[..]), ("receive", &receive[..])] {
        let help = run(&[command, "--help"]).stdout;
        for option in options {
            assert!(help.contains(option), "{command} --help does not tell of {option}");
        }
        assert!(!help.contains("--drop"), "fault injection is not for everybody");
    }
}

#[test]
fn completions_and_man_pages_are_written() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(run(&["generate", folder.path().to_str().unwrap()]).code, Some(0));
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    for completion in ["headwater.bash", "_headwater", "headwater.fish"] {
        assert!(read(completion).contains("congestion-control"), "{completion}");
    }
    for page in [
        "headwater.1",
        "headwater-send.1",
        "headwater-receive.1",
        "headwater-demo.1",
        "headwater-inspect.1",
        "headwater-pgm-send.1",
    ] {
        assert!(read(page).starts_with(".ie"), "{page} is not roff");
    }
    assert!(read("headwater-send.1").contains("\\-\\-congestion\\-control"));
    assert!(read("headwater.1").contains("Exit codes"));
    assert!(read("headwater-generate.1").contains("headwater generate"));
}
