//! Agreement of the table with the controls' own defaults and with the user's documentation.

use super::*;
use crate::control::Arrival;
use crate::layering::path::SENDER;
use crate::machine::{ChannelId, Ecn};

const COMMAND: &str = include_str!("../../../../docs/reference/command.md");

fn by_default(control: &'static Control) -> Description {
    let description = Description::new(control);
    let default = |parameter: Parameter| Rate::from_bits(parameter.default).unwrap();
    assert_eq!(description, description.with_rates(1_424, default(BASE_RATE), default(MAX_RATE)));
    description
}

#[test]
fn defaults_of_the_table_are_the_controls_own() {
    let (base, max) = (Rate::from_kilobits(120), Rate::from_kilobits(100_000));
    let m2c = DynamicConfig::fine(1_424, max).with_base_rate(base);
    assert_eq!(by_default(&M2C).dynamic(), Ok(m2c));
    assert_eq!(Description::from(&m2c), by_default(&M2C));
    let webrc = DynamicConfig::new(1_424, max).with_shape(Shape::Webrc).with_base_rate(base);
    assert_eq!(by_default(&WEBRC).dynamic(), Ok(webrc));
    assert_eq!(Description::from(&webrc), by_default(&WEBRC));
    let flid = flid::FlidConfig::dynamic_layers(1_424, max).with_base_rate(base);
    assert_eq!(by_default(&FLID_DL).flid(), Ok(flid));
    assert_eq!(Description::from(&sim::SimConfig::new(8, 1_424).facts()), by_default(&SIM));
}

#[test]
fn each_control_is_found_by_its_name_and_its_defaults_are_in_bounds() {
    for control in CONTROLS {
        assert_eq!(Control::of(control.name), Some(control));
        assert!(control.parameters.len() <= PARAMETERS_MAX);
        let description = Description::new(control);
        assert!(description.channels().is_ok(), "{}", control.name);
        let read = Description::from_fdt(description.to_fdt().as_ref()).unwrap();
        assert_eq!(read.values, description.values);
        assert_eq!(read.control.network, control.network);
    }
    assert_eq!(Control::of_fdt(FIXED.name), None, "an FDT names no fixed rate");
    assert_eq!(Control::of_fdt(LE_SBCC_TFRC.name), None, "an FDT names LE-SBCC alone");
}

/// The rules of a receiver, made as sockets make it.
#[test]
fn each_control_with_rules_heeds_them() {
    for control in CONTROLS.iter().filter(|control| control.constructors.is_some()) {
        let description = Description::new(control);
        let receiver = |rules| {
            let options = ReceiverOptions { rules, ..ReceiverOptions::default() };
            description.receiver(&options).unwrap()
        };
        let estimates = Rules::NAMES.map(|(_, rules)| begun(&description, receiver(rules)));
        let has_rules = control.receiver_parameters.contains(&RULES);
        let expected = if *control == M2C { [true, false] } else { [false; 2] };
        assert_eq!(estimates, expected, "{}", control.name);
        assert_eq!(has_rules, [M2C, WEBRC].contains(control), "{}", control.name);
    }
    let default = Rules::NAMES[usize::try_from(RULES.default).unwrap()];
    assert_eq!(default.1, Rules::default());
    assert!(
        Rules::NAMES.iter().all(|(name, rules)| Rules::of(name) == Some(*rules) && rules.name() == *name)
    );
}

/// Gives a receiver the first packets of its sender. Returns whether the receiver estimates the path, as
/// only the rules that the papers lack do.
fn begun(description: &Description, mut receiver: ReceiverEnd) -> bool {
    let mut sender = description.sender(Instant::ZERO).unwrap();
    receiver.start(Instant::ZERO);
    for _ in 0..100 {
        let Some(now) = sender.next_departure() else { break };
        if let Some(departure) =
            sender.departure(now).filter(|departure| departure.channel == ChannelId::BASE)
        {
            let arrival = Arrival {
                source: SENDER.into(),
                channel: departure.channel,
                cci: &departure.cci,
                ecn: Ecn::NotCapable,
                bytes: 1_424,
                lateness: Duration::ZERO,
            };
            receiver.arrived(now, &arrival);
        }
        sender.departed(now, 1_424);
    }
    receiver.status(Instant::ZERO).path.is_some()
}

/// The table under "Rates" of docs/reference/command.md.
#[test]
fn the_command_page_has_the_controls_in_this_order_with_their_help() {
    let rows = COMMAND.lines().skip_while(|line| !line.starts_with("| control |")).skip(2);
    let rows: Vec<&str> = rows.take_while(|line| line.starts_with('|')).collect();
    let expected = CONTROLS.iter().map(|control| format!("| `{}` | {} |", control.name, control.help));
    let expected: Vec<String> = expected.collect();
    assert_eq!(rows, expected);
}
