//! What an operator types.

use crate::harness::{Deployment, Roles};

#[test]
fn every_topic_can_be_read_and_counts_say_as_of_when() {
    let deployment = Deployment::migrated("commands");
    deployment.migrate();
    let _roles = Roles::spawn(&deployment);
    deployment.sql().execute("SELECT fencepost.set_like(42, 7, true)", &[]).unwrap();
    deployment.audit();

    let flips = deployment.run(&["dump", "flips"]).success().stdout;
    assert!(flips.contains(r#""i":42,"#) && flips.contains(r#""u":7,"#), "{flips}");
    let windows = deployment.run(&["dump", "windows", "--limit", "2"]).success().stdout;
    assert_eq!(windows.lines().count(), 2, "{windows}");
    assert!(!deployment.run(&["dump", "totals", "--limit", "1"]).success().stdout.is_empty());
    assert!(deployment.run(&["dump", "dead-letters"]).success().stdout.is_empty());

    let counts = deployment.run(&["get", "42", "43"]).success().stdout;
    let lines: Vec<_> = counts.lines().collect();
    assert!(
        lines[0].starts_with("item 42 count 1 as_of ") && lines[1].starts_with("item 43 count 0 "),
        "{counts}"
    );
    assert!(counts.contains("kind whole"), "{counts}");
}

#[test]
fn what_is_wrong_is_said_with_what_to_do() {
    let mut deployment = Deployment::new("refusals");
    let relay = deployment.run(&["relay"]);
    assert_eq!(relay.status.code(), Some(1));
    assert!(relay.stderr.contains("fencepost migrate"), "{}", relay.stderr);
    let applier = deployment.run(&["apply", "--store", "nosuch"]);
    assert!(applier.stderr.contains("[store.nosuch]"), "{}", applier.stderr);
    deployment.set("relay.window_msec", 250);
    let unknown = deployment.run(&["relay"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(unknown.stderr.contains("window_msec"), "{}", unknown.stderr);
}
