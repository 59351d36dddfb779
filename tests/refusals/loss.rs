//! Records deleted from the front of a topic are refused where a reader needs them, and harmless otherwise.

use super::{assert_refused, like};
use crate::harness::{Deployment, Roles};

#[test]
fn flips_deleted_before_the_pipeline_read_them_are_refused_and_after_it_harmless() {
    let deployment = Deployment::migrated("flips_deleted");
    let mut roles = Roles::spawn(&deployment);
    like(&deployment, 1);
    deployment.audit();
    let read = deployment.ends("flips");
    deployment.wait_for_windows(3);
    deployment.delete_records("flips", &read);
    roles.restart_pipeline(&deployment, || {});
    like(&deployment, 2);
    assert_eq!(deployment.audit(), 20);

    roles.kill_pipeline();
    like(&deployment, 3);
    deployment.wait_for_log_window(3);
    let unread = deployment.ends("flips");
    deployment.wait_for_log_window(1);
    deployment.delete_records("flips", &unread);
    roles.relay.terminate();
    roles.applier.terminate();
    assert_refused(&deployment, &["pipeline"], &["not yet counted are gone", "Rebuild the stores"]);
    assert_eq!(deployment.count(1), 2, "the store keeps what it had");
}

#[test]
fn windows_deleted_from_the_front_are_harmless_until_none_is_left() {
    let deployment = Deployment::migrated("windows_deleted");
    let mut roles = Roles::spawn(&deployment);
    like(&deployment, 1);
    deployment.audit();
    let first = deployment.ends("windows");
    deployment.wait_for_windows(3);
    deployment.delete_records("windows", &first);
    roles.restart_all(&deployment);
    like(&deployment, 2);
    assert_eq!(deployment.audit(), 20);

    roles.terminate();
    deployment.delete_records("windows", &deployment.ends("windows"));
    assert_refused(&deployment, &["relay"], &["history is lost", "Restore the topic"]);
}

#[test]
fn totals_deleted_before_the_applier_read_them_are_refused_and_after_it_harmless() {
    let deployment = Deployment::migrated("totals_deleted");
    let mut roles = Roles::spawn(&deployment);
    like(&deployment, 1);
    deployment.audit();
    let read = deployment.ends("totals");
    deployment.wait_for_windows(3);
    deployment.delete_records("totals", &read);
    roles.restart_all(&deployment);
    like(&deployment, 2);
    assert_eq!(deployment.audit(), 20);

    roles.applier.kill9();
    like(&deployment, 3);
    deployment.wait_for_log_window(4);
    let unread = deployment.ends("totals");
    deployment.wait_for_log_window(4);
    roles.relay.terminate();
    roles.pipeline.terminate();
    deployment.delete_records("totals", &unread);
    assert_refused(
        &deployment,
        &["apply", "--store", "redis"],
        &["nothing that follows window", "restart the pipeline", "rebuild the store"],
    );
    assert_eq!(deployment.count(1), 2, "the store keeps what it had");
}
