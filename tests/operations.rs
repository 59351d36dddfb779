//! What an operator sees of a deployment: its status, its configuration, its metrics and its health.

use serde_json::Value;

use crate::harness::{Copier, Deployment, Roles, wait_until};

fn status(deployment: &Deployment) -> Value {
    let printed = deployment.run(&["status", "--json"]).success().stdout;
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"))
}

#[test]
fn the_status_says_how_far_each_stage_has_come() {
    let deployment = Deployment::migrated("status");
    let before = status(&deployment);
    assert_eq!(before["log"]["window"], 0, "nothing has run: {before}");
    assert_eq!(before["slot"]["active"], false, "{before}");
    assert_eq!(before["stores"]["redis"]["lanes_missing"], 64, "{before}");

    let mut roles = Roles::spawn(&deployment);
    deployment.run(&["load", "--flips", "2000", "--bulk", "20", "--items", "100"]).success();
    deployment.audit();
    let running = status(&deployment);
    for stage in [&running["log"], &running["totals"], &running["stores"]["redis"]] {
        assert!(stage["window"].as_u64() > Some(0) && stage["as_of"].as_i64() > Some(0), "{running}");
        assert!(stage["staleness_ms"].as_i64() >= Some(0) && stage["lag_windows"].is_u64(), "{running}");
        assert_eq!(stage["kind"], "whole", "{running}");
    }
    assert_eq!(running["log"]["lag_windows"], 0, "{running}");
    assert_eq!(running["slot"]["active"], true, "{running}");
    assert_eq!(running["dead_letters"], 0, "{running}");
    assert_eq!(running["stores"]["redis"]["lanes_missing"], 0, "{running}");

    // The pipeline alone stands still: what is behind it falls behind, what is before it does not.
    roles.kill_pipeline();
    deployment.wait_for_log_window(8);
    let stopped = status(&deployment);
    assert_eq!(stopped["log"]["lag_windows"], 0, "{stopped}");
    assert!(stopped["totals"]["lag_windows"].as_u64() >= Some(7), "{stopped}");
    assert!(stopped["stores"]["redis"]["lag_windows"].as_u64() >= Some(7), "{stopped}");
    assert!(stopped["totals"]["as_of"].as_i64() < stopped["log"]["as_of"].as_i64(), "{stopped}");

    // The relay too: the slot keeps what it has not got.
    assert!(roles.relay.terminate().success());
    let lag = |status: &Value| status["slot"]["lag_bytes"].as_i64().unwrap();
    let quiet = lag(&status(&deployment));
    deployment.run(&["load", "--flips", "2000", "--bulk", "20", "--items", "100", "--seed", "2"]).success();
    let kept = status(&deployment);
    assert_eq!(kept["slot"]["active"], false, "{kept}");
    assert!(lag(&kept) > quiet + 100_000, "from {quiet}: {kept}");

    roles.relay = deployment.spawn(&["relay"]);
    roles.pipeline = deployment.spawn(&["pipeline"]);
    deployment.audit();
    wait_until("the slot is acknowledged", || lag(&status(&deployment)) < lag(&kept));
    let table = deployment.run(&["status"]).success().stdout;
    assert!(table.contains("store redis") && table.contains("read by a relay"), "{table}");
}

#[test]
fn a_service_that_is_away_hides_no_other() {
    let mut deployment = Deployment::migrated("status_away");
    let roles = Roles::spawn(&deployment);
    deployment.wait_for_windows(2);
    drop(roles);
    deployment.redis.kill9();
    let output = deployment.run(&["status", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let status: Value = serde_json::from_str(&output.stdout).unwrap();
    assert!(status["stores"]["redis"]["error"].as_str().unwrap().contains("redis"), "{status}");
    assert!(status["totals"]["window"].as_u64() > Some(0), "{status}");
}

#[test]
fn the_configuration_in_effect_can_be_read_back() {
    let deployment = Deployment::new("effective");
    let printed = deployment.run(&["config", "--set", "relay.window_ms=321"]).success().stdout;
    let table: toml::Table = printed.parse().unwrap();
    assert_eq!(table["relay"]["window_ms"].as_integer(), Some(321), "{printed}");
    assert_eq!(table["store"]["redis"]["key_prefix"].as_str(), Some("likes:"), "a default: {printed}");
    assert!(printed.contains("# A window is closed when"), "{printed}");

    let completions = deployment.run(&["completions", "bash"]).success().stdout;
    assert!(completions.contains("complete -F _fencepost"), "{completions}");
    assert!(deployment.run(&["man"]).success().stdout.contains(".TH fencepost 1"));
}

/// A port of its own for each role.
fn with_http(name: &str) -> Deployment {
    let mut deployment = Deployment::migrated(name);
    deployment.set("http.listen", "127.0.0.1:0");
    deployment
}

#[test]
fn metrics_count_exactly_what_was_done() {
    let deployment = with_http("metrics");
    let mut roles = Roles::spawn(&deployment);
    let mut sql = deployment.sql();
    let mut transaction = sql.transaction().unwrap();
    transaction
        .execute("SELECT fencepost.set_likes(array_agg(n % 500), array_agg(n), array_agg(true)) FROM generate_series(1, 5000::bigint) n", &[])
        .unwrap();
    // The same identities at other positions.
    transaction.execute("INSERT INTO fencepost.outbox SELECT * FROM fencepost.outbox", &[]).unwrap();
    transaction.commit().unwrap();
    deployment.audit();
    assert_eq!(roles.relay.metric("fencepost_relay_events_total"), 10_000);
    assert_eq!(roles.relay.metric("fencepost_relay_sessions_total"), 1);
    assert_eq!(roles.pipeline.metric("fencepost_pipeline_flips_total"), 10_000);
    assert_eq!(roles.pipeline.metric("fencepost_pipeline_known_by_identity_total"), 5_000);
    assert_eq!(roles.pipeline.metric("fencepost_pipeline_known_by_position_total"), 0);
    assert_eq!(roles.applier.metric("fencepost_applier_counters_total{store=\"redis\"}"), 500);
    assert_eq!(roles.applier.metric("fencepost_applier_refusals_total{store=\"redis\"}"), 0);

    // The same positions once more.
    let copier = Copier::start(&deployment.kafka());
    wait_until("every copy of an event is left out", || {
        roles.pipeline.metric("fencepost_pipeline_known_by_position_total") >= 10_000
    });
    drop(copier);
    deployment.audit();
    assert_eq!(roles.pipeline.metric("fencepost_pipeline_known_by_position_total"), 10_000);
    assert_eq!(roles.pipeline.metric("fencepost_pipeline_flips_total"), 10_000);

    wait_until("the relay counts the windows of the log", || {
        let (closed, last) = (
            roles.relay.metric("fencepost_relay_windows_total"),
            roles.relay.metric("fencepost_relay_window"),
        );
        let windows = deployment.windows();
        windows.iter().filter(|window| window.window <= last).count() as u64 == closed
    });
    assert!(roles.relay.terminate().success());
    let windows = deployment.windows();
    let last = windows.last().unwrap().window;
    wait_until("the store has applied them all", || deployment.applied() == last);
    wait_until("the applier says so", || {
        roles.applier.metric("fencepost_applier_window{store=\"redis\"}") == last
    });
    let lane_windows = roles.applier.metric("fencepost_applier_lane_windows_total{store=\"redis\"}");
    assert_eq!(lane_windows, 64 * windows.len() as u64);
    roles.relay = deployment.spawn(&["relay"]);
    deployment.audit();
}

#[test]
fn an_applier_that_answers_is_not_ready_while_only_the_pipeline_stands_still() {
    let mut deployment = with_http("readiness");
    deployment.set("http.quiet_ms_max", 5_000);
    let mut roles = Roles::spawn(&deployment);
    for (name, process) in
        [("relay", &mut roles.relay), ("pipeline", &mut roles.pipeline), ("apply redis", &mut roles.applier)]
    {
        wait_until(&format!("{name} is ready"), || process.get("/readyz").0 == 200);
        assert!(process.get("/readyz").1.contains(&format!("\"role\":\"{name}\"")));
    }
    let applied = deployment.applied();
    roles.pipeline.freeze();
    wait_until("the applier is not ready", || roles.applier.get("/readyz").0 == 503);
    assert_eq!(roles.applier.get("/healthz").0, 200, "it lives");
    assert!(roles.applier.is_running());
    wait_until("the relay is ready", || roles.relay.get("/readyz").0 == 200);

    roles.pipeline.thaw();
    wait_until("the applier is ready again", || roles.applier.get("/readyz").0 == 200);
    wait_until("the pipeline is ready again", || roles.pipeline.get("/readyz").0 == 200);
    assert!(deployment.applied() > applied);
    deployment.audit();
}
