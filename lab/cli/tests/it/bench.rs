//! The bench runs to its end and compares what it says it compares. How fast is nobody's test.

use crate::command::run;

#[test]
fn netsim_measures_loads_beside_a_bare_loop() {
    let run = run(&["bench", "netsim", "--json", "--time", "30ms"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let rows = run.json();
    for what in ["17 TCPs over one bottleneck", "star of 10000 leaves", "star of 10000 unequal leaves"] {
        let row = rows.iter().find(|row| row["what"] == what);
        let row = row.unwrap_or_else(|| panic!("no row '{what}' in {rows:?}"));
        assert_eq!(row["bare"], "bare loop");
        assert!(row["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), "{row}");
    }
}
