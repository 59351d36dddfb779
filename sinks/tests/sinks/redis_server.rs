//! A Redis server of the test's own, on a free port, in a folder of its own.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fencepost_sinks::{RedisConfig, StoreConfig};

const START_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct RedisServer {
    process: Child,
    port: u16,
    folder: tempfile::TempDir,
    options: Vec<String>,
}

impl RedisServer {
    pub(crate) fn start(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder for redis");
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let port = free_port();
        let process = launch(port, &folder, &options);
        let mut server = Self { process, port, folder, options };
        // Another test may have been faster with the port.
        while !server.is_ready() {
            server.port = free_port();
            server.launch_again();
        }
        server
    }

    /// Ends the process as `kill -9` does, and starts it again on the same port and folder.
    pub(crate) fn crash_and_restart(&mut self) {
        self.process.kill().expect("it runs");
        self.launch_again();
        assert!(self.is_ready(), "redis did not start again on port {}", self.port);
    }

    fn launch_again(&mut self) {
        self.process.wait().expect("it has ended");
        self.process = launch(self.port, &self.folder, &self.options);
    }

    /// Waits until this very process answers; `false` when it has ended instead.
    fn is_ready(&mut self) -> bool {
        let deadline = Instant::now() + START_TIMEOUT;
        let client = redis::Client::open(self.config().url).expect("a redis URL");
        while Instant::now() < deadline {
            let info =
                client.get_connection().and_then(|mut connection| redis::cmd("INFO").query(&mut connection));
            let answers: Option<u32> = info.ok().and_then(|info: redis::InfoDict| info.get("process_id"));
            if answers == Some(self.process.id()) {
                return true;
            }
            if self.process.try_wait().expect("it is ours").is_some() {
                return false;
            }
            std::thread::yield_now();
        }
        panic!("redis did not start on port {}", self.port);
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn config(&self) -> RedisConfig {
        config_at(self.port)
    }

    pub(crate) fn store_config(&self) -> StoreConfig {
        StoreConfig::Redis(self.config())
    }

    pub(crate) fn connection(&self) -> redis::Connection {
        let client = redis::Client::open(self.config().url).expect("a redis URL");
        client.get_connection().expect("redis answers")
    }

    /// Runs a command written as in `redis-cli`.
    pub(crate) fn run<T: redis::FromRedisValue>(&self, command: &str) -> T {
        let mut words = command.split(' ');
        let mut call = redis::cmd(words.next().expect("a command"));
        call.arg(words.collect::<Vec<_>>());
        call.query(&mut self.connection()).unwrap_or_else(|error| panic!("{command}: {error}"))
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn config_at(port: u16) -> RedisConfig {
    RedisConfig { url: format!("redis://127.0.0.1:{port}"), ..RedisConfig::default() }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").port()
}

fn launch(port: u16, folder: &tempfile::TempDir, options: &[String]) -> Child {
    Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
        .arg(folder.path())
        .args(options)
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server must be on the PATH: install it (`apt-get install redis-server`, or run dev/install)")
}
