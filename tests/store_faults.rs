//! Redis goes away, comes back with less, forgets scripts, loses answers: its own fences say what is missing.

use redis::Commands;

use crate::harness::{Deployment, Proxy, Roles, wait_until};

const LOAD: &[&str] =
    &["load", "--rate", "1000", "--bulk", "10", "--clients", "4", "--items", "1000", "--users", "5000"];

#[test]
fn redis_killed_and_restarted_under_load_ends_exact() {
    let mut deployment = Deployment::migrated("redis_restart");
    let mut roles = Roles::spawn(&deployment);
    let load = deployment.spawn(LOAD);
    for _ in 0..3 {
        deployment.wait_for_windows(4);
        deployment.redis.kill9();
        deployment.wait_for_log_window(3);
        deployment.redis.restart();
    }
    deployment.wait_for_windows(2);
    assert!(roles.applier.is_running(), "it waited for Redis in place");
    drop(load);
    deployment.audit();
}

#[test]
fn a_redis_that_went_back_is_brought_forward_again() {
    let mut deployment = Deployment::migrated("redis_back");
    let mut roles = Roles::spawn(&deployment);
    deployment.run(&["load", "--flips", "5000", "--bulk", "20", "--items", "300"]).success();
    deployment.audit();
    let old = deployment.redis.snapshot();
    let before = deployment.fences();
    deployment.run(&["load", "--flips", "5000", "--bulk", "20", "--items", "300", "--seed", "2"]).success();
    deployment.audit();
    deployment.redis.restore(&old);
    roles.applier.wait_for_log("went back");
    deployment.audit();
    assert!(deployment.fences().iter().all(|(lane, fence)| fence.window > before[lane].window));
}

#[test]
fn a_lost_reply_is_not_applied_again() {
    let mut deployment = Deployment::migrated("lost_reply");
    let proxy = Proxy::start(deployment.redis.url());
    deployment.set("store.redis.url", proxy.url());
    let mut roles = Roles::spawn(&deployment);
    let load = deployment.spawn(LOAD);
    for lost in 1..=5 {
        deployment.wait_for_windows(2);
        proxy.swallow_replies(1);
        wait_until("a reply is lost", || proxy.swallowed() == lost);
    }
    deployment.wait_for_windows(4);
    assert!(roles.applier.is_running());
    drop(load);
    deployment.audit();
}

#[test]
fn forgotten_scripts_are_loaded_again() {
    let deployment = Deployment::migrated("script_flush");
    let mut roles = Roles::spawn(&deployment);
    let load = deployment.spawn(LOAD);
    for _ in 0..5 {
        deployment.wait_for_windows(2);
        let () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut deployment.redis.client()).unwrap();
    }
    deployment.wait_for_windows(4);
    let errors: String = redis::cmd("INFO").arg("errorstats").query(&mut deployment.redis.client()).unwrap();
    assert!(errors.contains("errorstat_NOSCRIPT"), "the applier met a script that was forgotten: {errors}");
    assert!(roles.applier.is_running());
    drop(load);
    deployment.audit();
}

#[test]
fn an_emptied_store_is_refused_until_it_is_built_anew() {
    let deployment = Deployment::migrated("emptied");
    let mut roles = Roles::spawn(&deployment);
    deployment.run(&["load", "--flips", "5000", "--bulk", "20", "--items", "300"]).success();
    deployment.audit();
    let mut client = deployment.redis.client();
    let () = redis::cmd("FLUSHALL").query(&mut client).unwrap();
    assert_eq!(roles.applier.wait_exit().code(), Some(1));
    assert!(roles.applier.logs().contains("--from-start"), "{}", roles.applier.logs());
    let refused = deployment.run(&["apply", "--store", "redis"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(refused.stderr.contains("--from-start"), "{}", refused.stderr);
    let keys: Vec<String> = client.keys("*").unwrap();
    assert!(keys.is_empty(), "nothing was written: {keys:?}");
    let _applier = deployment.spawn(&["apply", "--store", "redis", "--from-start"]);
    deployment.audit();
}
