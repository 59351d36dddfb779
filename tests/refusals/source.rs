//! The relay refuses a Postgres that is not what the log was written from.

use super::{assert_refused, like};
use crate::harness::{Deployment, Roles, Stack};

#[test]
fn a_missing_publication_is_refused_until_migrate_has_made_it() {
    let deployment = Deployment::migrated("no_publication");
    let mut roles = Roles::spawn(&deployment);
    like(&deployment, 1);
    deployment.audit();
    roles.terminate();
    let publication = deployment.name();
    deployment.sql().batch_execute(&format!("DROP PUBLICATION {publication}")).unwrap();
    assert_refused(&deployment, &["relay"], &[publication, "does not exist", "fencepost migrate"]);

    deployment.migrate();
    let _roles = Roles::spawn(&deployment);
    like(&deployment, 2);
    assert_eq!(deployment.audit(), 20);
}

#[test]
fn a_slot_that_is_missing_anothers_or_ahead_of_the_log_is_refused() {
    let mut deployment = Deployment::migrated("slots");
    let mut roles = Roles::spawn(&deployment);
    like(&deployment, 1);
    deployment.audit();
    roles.terminate();
    let (mut sql, mut elsewhere) = (deployment.sql(), Stack::get().sql());
    let slot = deployment.name().to_owned();
    let mut create =
        |plugin: &str| sql.execute("SELECT pg_create_logical_replication_slot($1, $2)", &[&slot, &plugin]);
    let mut drop_slot = || elsewhere.execute("SELECT pg_drop_replication_slot($1)", &[&slot]).unwrap();

    drop_slot();
    let start_anew = ["fencepost audit", "kafka.topic_prefix", "fencepost migrate"];
    let words = |what| [&[what][..], &start_anew].concat();
    assert_refused(&deployment, &["relay"], &words("does not exist"));

    create("test_decoding").unwrap();
    assert_refused(&deployment, &["relay"], &["plugin test_decoding", "relay.slot", "fencepost migrate"]);
    drop_slot();

    let mut other = Stack::get().sql();
    other.execute("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", &[&slot]).unwrap();
    assert_refused(&deployment, &["relay"], &["database postgres", "relay.slot", "fencepost migrate"]);
    drop_slot();

    // Made now, it has not what was liked since the log ended.
    like(&deployment, 2);
    create("pgoutput").unwrap();
    assert_refused(&deployment, &["relay"], &words("ahead of the log"));

    let prefix = format!("{}.anew.", deployment.name());
    deployment.set("kafka.topic_prefix", prefix);
    deployment.set("relay.slot", format!("{slot}_anew"));
    deployment.migrate();
    let mut relay = deployment.spawn(&["relay"]);
    relay.wait_for_log("relay resumed");
    assert!(relay.is_running(), "a new log is begun");
}
