use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use super::stack::Stack;
use super::wait::wait_until;

/// How many of the last lines of a process's logs a failed test shows.
const LINES_SHOWN: usize = 60;

/// A running `fencepost`, its output in files. Killed when dropped; a failed test shows the end of the logs.
pub(crate) struct Process {
    name: String,
    child: Child,
    stdout: PathBuf,
    /// The logs.
    stderr: PathBuf,
}

/// What a `fencepost` that has ended left.
#[derive(Debug)]
pub(crate) struct Output {
    name: String,
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    /// # Panics
    /// When the exit status was another than 0; shows both outputs.
    #[track_caller]
    pub(crate) fn success(self) -> Self {
        let Self { name, status, stdout, stderr } = &self;
        assert!(status.success(), "{name}: {status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}");
        self
    }
}

impl Process {
    /// Starts the command. What it prints goes to the file `files` with the extensions `out` and `log`.
    pub(super) fn spawn(name: String, command: &mut Command, files: &Path) -> Self {
        let (stdout, stderr) = (files.with_extension("out"), files.with_extension("log"));
        let create = |path: &Path| File::create(path).expect("the test's folder is writable");
        command.stdin(Stdio::null()).stdout(create(&stdout)).stderr(create(&stderr));
        let child = command.spawn().expect("the binary was built");
        Stack::get().reaper().started(child.id());
        Self { name, child, stdout, stderr }
    }

    /// Ends it at once, as a crash would.
    pub(crate) fn kill9(&mut self) {
        self.signal(Signal::KILL);
        self.wait_exit();
    }

    /// Asks it to end (SIGTERM) and waits until it has.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait_exit()
    }

    /// Stops it in its tracks (SIGSTOP), its locks and connections kept: a zombie to be.
    pub(crate) fn freeze(&mut self) {
        self.signal(Signal::STOP);
    }

    /// Lets a frozen one go on, knowing nothing of the time that has passed.
    pub(crate) fn thaw(&mut self) {
        self.signal(Signal::CONT);
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("the child is ours").is_none()
    }

    /// Waits until it has ended by itself.
    pub(crate) fn wait_exit(&mut self) -> ExitStatus {
        let what = format!("{} ends", self.name);
        let mut status = None;
        wait_until(&what, || {
            status = self.child.try_wait().expect("the child is ours");
            status.is_some()
        });
        Stack::get().reaper().ended(self.child.id());
        status.expect("it has ended")
    }

    /// Waits until it has ended by itself, and reads what it printed.
    pub(crate) fn finish(mut self) -> Output {
        let status = self.wait_exit();
        Output { name: self.name.clone(), status, stdout: read(&self.stdout), stderr: self.logs() }
    }

    /// All that it has logged up to now.
    pub(crate) fn logs(&self) -> String {
        read(&self.stderr)
    }

    /// Waits until it has logged this.
    pub(crate) fn wait_for_log(&mut self, text: &str) {
        wait_until(&format!("{} logs {text:?}", self.name), || {
            let running = self.is_running();
            let found = self.logs().contains(text);
            assert!(found || running, "{} ended before it logged {text:?}", self.name);
            found
        });
    }

    fn signal(&mut self, signal: Signal) {
        // The id of one that was waited for may be another's by now.
        if self.is_running() {
            kill_process(Pid::from_child(&self.child), signal).expect("the child is ours");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if thread::panicking() {
            let logs = self.logs();
            let lines: Vec<_> = logs.lines().collect();
            let shown = &lines[lines.len().saturating_sub(LINES_SHOWN)..];
            eprintln!(
                "--- the last logs of {}, in {}\n{}",
                self.name,
                self.stderr.display(),
                shown.join("\n")
            );
        }
        // Does nothing to one that was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
        Stack::get().reaper().ended(self.child.id());
    }
}

fn read(file: &Path) -> String {
    String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
}
