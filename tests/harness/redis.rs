use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::observed::copy_folder;
use super::ports::free_port;
use super::stack::Stack;
use super::wait::wait_until;

/// The folder of its append-only file.
const APPEND_ONLY: &str = "appendonlydir";

/// A Redis of a test's own, with an append-only file, stopped when dropped.
pub(crate) struct Redis {
    url: String,
    port: u16,
    dir: PathBuf,
    server: Option<Child>,
}

impl Redis {
    pub(crate) fn start() -> Self {
        let (dir, port) = (Stack::get().new_folder("redis"), free_port());
        let mut redis = Self { url: format!("redis://127.0.0.1:{port}/"), port, dir, server: None };
        redis.restart();
        redis
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// A new connection.
    pub(crate) fn client(&self) -> redis::Connection {
        self.connect().expect("Redis is up")
    }

    fn connect(&self) -> redis::RedisResult<redis::Connection> {
        redis::Client::open(self.url())?.get_connection()
    }

    /// Ends it at once, as a crash would. What its append-only file has is kept.
    pub(crate) fn kill9(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        Stack::get().reaper().ended(server.id());
        server.kill().expect("redis-server is ours to kill");
        server.wait().expect("redis-server is ours to wait for");
    }

    /// Starts it again, on its port and with its data, and waits until these are loaded.
    pub(crate) fn restart(&mut self) {
        self.kill9();
        let log = std::fs::File::options().create(true).append(true).open(self.dir.join("log"));
        let server = Command::new("redis-server")
            .args([
                "--bind",
                "127.0.0.1",
                "--port",
                &self.port.to_string(),
                "--save",
                "",
                "--appendonly",
                "yes",
            ])
            .args(["--appendfsync", "everysec", "--maxmemory-policy", "noeviction", "--dir"])
            .arg(&self.dir)
            .stdin(Stdio::null())
            .stdout(log.expect("the test's folder is writable"))
            .spawn()
            .expect("redis-server is installed; run dev/install redis");
        Stack::get().reaper().started(server.id());
        self.server = Some(server);
        wait_until("Redis answers", || {
            self.connect().and_then(|mut redis| redis::cmd("PING").query::<String>(&mut redis)).is_ok()
        });
    }

    /// A copy of all it holds now.
    pub(crate) fn snapshot(&self) -> PathBuf {
        let copy = Stack::get().new_folder("redis-snapshot");
        copy_folder(&self.dir.join(APPEND_ONLY), &copy.join(APPEND_ONLY));
        copy
    }

    /// Replaces all it holds by a copy made earlier, as a failover to a replica that was behind does.
    pub(crate) fn restore(&mut self, copy: &Path) {
        self.kill9();
        fs::remove_dir_all(self.dir.join(APPEND_ONLY)).expect("the test's folder is writable");
        copy_folder(&copy.join(APPEND_ONLY), &self.dir.join(APPEND_ONLY));
        self.restart();
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill9();
    }
}
