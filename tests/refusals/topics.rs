//! Topics that are not those that the log was written to are refused.

use super::{assert_gives_up, assert_refused, like};
use crate::harness::{Deployment, Roles};

/// A deployment at rest whose log has likes in it, and whose roles have ended.
fn at_rest(name: &str) -> Deployment {
    let deployment = Deployment::migrated(name);
    let mut roles = Roles::spawn(&deployment);
    like(&deployment, 1);
    deployment.audit();
    roles.terminate();
    deployment
}

#[test]
fn a_flips_topic_that_was_made_anew_is_refused() {
    let deployment = at_rest("flips_anew");
    deployment.recreate("flips");
    assert_refused(&deployment, &["relay"], &["created anew", "fencepost audit", "kafka.topic_prefix"]);
    assert_refused(&deployment, &["pipeline"], &["flips topic", "set it back"]);
}

#[test]
fn a_windows_topic_that_was_made_anew_is_refused() {
    let deployment = at_rest("windows_anew");
    deployment.recreate("windows");
    assert_refused(&deployment, &["relay"], &["windows", "restore the topic", "fencepost audit"]);
}

#[test]
fn a_flips_topic_that_was_given_partitions_is_refused_running_and_at_start() {
    let deployment = Deployment::migrated("more_partitions");
    let mut roles = Roles::spawn(&deployment);
    like(&deployment, 1);
    deployment.audit();
    deployment.add_partitions("flips", 9);
    assert_gives_up(roles.pipeline, &["8 partitions", "9", "Restore it"]);
    roles.relay.terminate();
    roles.applier.terminate();
    assert_refused(&deployment, &["relay"], &["had 8 partitions", "has 9", "kafka.topic_prefix"]);
    assert_refused(&deployment, &["pipeline"], &["flips partitions 8", "has 9", "set it back"]);
}

#[test]
fn another_horizon_is_refused_until_it_is_set_back() {
    let mut deployment = at_rest("horizon");
    deployment.set("pipeline.horizon_windows", 200);
    let words = ["pipeline.horizon_windows 300", "has 200", "set it back", "checkpoint directory away"];
    assert_refused(&deployment, &["pipeline"], &words);
    deployment.set("pipeline.horizon_windows", 300);
    let _roles = Roles::spawn(&deployment);
    like(&deployment, 2);
    assert_eq!(deployment.audit(), 20);
}
