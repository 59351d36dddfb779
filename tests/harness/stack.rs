use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::ports::free_port;
use super::reaper::Reaper;

/// Kafka and Postgres of this test process: on free ports, in a folder of their own, wiped when the process ends.
pub(crate) struct Stack {
    dir: PathBuf,
    kafka_port: u16,
    postgres_port: u16,
    reaper: Reaper,
    folders: AtomicU32,
    /// Held as long as the process lives: tells a stack in use from one that a crash left behind.
    _lock: File,
}

impl Stack {
    /// The stack of this process; the first caller starts it and the others wait.
    pub(crate) fn get() -> &'static Self {
        static STACK: OnceLock<Stack> = OnceLock::new();
        STACK.get_or_init(Self::start)
    }

    fn start() -> Self {
        let stacks = Path::new(env!("CARGO_TARGET_TMPDIR")).join("e2e");
        fs::create_dir_all(&stacks).expect("the target folder is writable");
        remove_leftovers(&stacks);

        let dir = stacks.join(process::id().to_string());
        let lock = File::create(lock_of(&dir)).expect("the target folder is writable");
        lock.lock().expect("file locks work");
        fs::create_dir_all(&dir).expect("the target folder is writable");
        let reaper = Reaper::start(&dir);

        let (kafka_port, postgres_port) = (free_port(), free_port());
        let up = dev("up", &dir)
            .args(["kafka", "postgres"])
            .env("KAFKA_PORT", kafka_port.to_string())
            .env("KAFKA_CONTROLLER_PORT", free_port().to_string())
            .env("POSTGRES_PORT", postgres_port.to_string())
            .output()
            .expect("dev/up runs");
        assert!(up.status.success(), "dev/up: {}", String::from_utf8_lossy(&up.stderr));
        Self { dir, kafka_port, postgres_port, reaper, folders: AtomicU32::new(0), _lock: lock }
    }

    pub(crate) fn kafka_port(&self) -> u16 {
        self.kafka_port
    }

    pub(crate) fn bootstrap_servers(&self) -> String {
        format!("127.0.0.1:{}", self.kafka_port)
    }

    pub(crate) fn postgres_url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.postgres_port)
    }

    /// A new connection to the database of no deployment.
    pub(crate) fn sql(&self) -> postgres::Client {
        postgres::Client::connect(&self.postgres_url("postgres"), postgres::NoTls).expect("Postgres is up")
    }

    /// Ends with this process what a test has started.
    pub(super) fn reaper(&self) -> &Reaper {
        &self.reaper
    }

    /// A new folder, removed with the stack; its name starts with `name`.
    pub(super) fn new_folder(&self, name: &str) -> PathBuf {
        let number = self.folders.fetch_add(1, Ordering::Relaxed);
        let folder = self.dir.join(format!("{name}-{number}"));
        fs::create_dir(&folder).expect("the target folder is writable");
        folder
    }
}

/// A script of `dev/`, for the stack in `dir`.
fn dev(script: &str, dir: &Path) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("dev").join(script));
    command.env("STACK_DIR", dir);
    command
}

/// Beside the folder, since wiping removes that.
fn lock_of(dir: &Path) -> PathBuf {
    dir.with_extension("lock")
}

/// Ends and wipes stacks whose process and reaper were both killed.
fn remove_leftovers(stacks: &Path) {
    for entry in fs::read_dir(stacks).expect("the target folder is readable").flatten() {
        let lock = entry.path();
        if lock.extension().is_none_or(|extension| extension != "lock") {
            continue;
        }
        // Another process may have removed it meanwhile, or be using it.
        let Ok(file) = File::open(&lock) else { continue };
        if file.try_lock().is_err() {
            continue;
        }
        // Its reaper may be wiping it at this moment; what fails now is tried again by the next run.
        let wiped = dev("down", &lock.with_extension("")).arg("--wipe").status().expect("dev/down runs");
        if wiped.success() {
            let _ = fs::remove_file(&lock);
        }
    }
}
