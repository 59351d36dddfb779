use super::deployment::Deployment;
use super::process::Process;

/// The three roles of a deployment, each a process of its own.
pub(crate) struct Roles {
    pub(crate) relay: Process,
    pub(crate) pipeline: Process,
    pub(crate) applier: Process,
}

impl Roles {
    pub(crate) fn spawn(deployment: &Deployment) -> Self {
        Self { relay: relay(deployment), pipeline: pipeline(deployment), applier: applier(deployment) }
    }

    pub(crate) fn restart_relay(&mut self, deployment: &Deployment) {
        self.kill_running("relay");
        self.relay = relay(deployment);
    }

    /// Kills the pipeline, does this to what it left, and starts another.
    pub(crate) fn restart_pipeline(&mut self, deployment: &Deployment, between: impl FnOnce()) {
        self.kill_pipeline();
        between();
        self.pipeline = pipeline(deployment);
    }

    pub(crate) fn restart_applier(&mut self, deployment: &Deployment) {
        self.kill_running("applier");
        self.applier = applier(deployment);
    }

    pub(crate) fn restart_all(&mut self, deployment: &Deployment) {
        for role in ["relay", "pipeline", "applier"] {
            self.kill_running(role);
        }
        *self = Self::spawn(deployment);
    }

    /// Ends all of them, the relay first, and waits until they have finished what was begun.
    pub(crate) fn terminate(&mut self) {
        for role in [&mut self.relay, &mut self.pipeline, &mut self.applier] {
            assert_eq!(role.terminate().code(), Some(0), "{}", role.logs());
        }
    }

    pub(crate) fn kill_pipeline(&mut self) {
        self.kill_running("pipeline");
    }

    /// A role that has ended by itself is no role to kill: it gave up.
    fn kill_running(&mut self, role: &str) {
        let process = match role {
            "relay" => &mut self.relay,
            "pipeline" => &mut self.pipeline,
            _ => &mut self.applier,
        };
        assert!(process.is_running(), "the {role} ended by itself\n{}", process.logs());
        process.kill9();
    }
}

fn relay(deployment: &Deployment) -> Process {
    deployment.spawn(&["relay"])
}

fn pipeline(deployment: &Deployment) -> Process {
    deployment.spawn(&["pipeline"])
}

fn applier(deployment: &Deployment) -> Process {
    deployment.spawn(&["apply", "--store", "redis"])
}
