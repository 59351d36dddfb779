//! Ends what a test process started when that process ends, in whatever way: a static is never dropped, a killed
//! process runs no handler. So a small shell reads from a pipe that only the test process holds; the end of the pipe
//! is the end of the process.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

/// Lines `+pid` and `-pid` say what runs; at the end of input that is killed and the stack, `$1`, is wiped.
const SCRIPT: &str = r#"
declare -A running
while read -r line; do
  case $line in
    +*) running[${line:1}]=1 ;;
    -*) unset "running[${line:1}]" ;;
  esac
done
((${#running[@]} == 0)) || kill -KILL "${!running[@]}"
STACK_DIR=$1 exec dev/down --wipe
"#;

pub(super) struct Reaper {
    shell: Mutex<Child>,
}

impl Reaper {
    /// Watches over this process; `stack_dir` is the stack to wipe when it has ended.
    pub(super) fn start(stack_dir: &Path) -> Self {
        let shell = Command::new("bash")
            .args(["-c", SCRIPT, "reaper"])
            .arg(stack_dir)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdin(Stdio::piped())
            // Whoever waits for the end of the tests' output does not wait for the reaper.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Of its own group, so that an interrupt at the terminal does not end it first.
            .process_group(0)
            .spawn()
            .expect("bash runs");
        Self { shell: Mutex::new(shell) }
    }

    pub(super) fn started(&self, pid: u32) {
        self.tell(&format!("+{pid}\n"));
    }

    /// To be told as soon as the process was waited for: from then on its id may be another's.
    pub(super) fn ended(&self, pid: u32) {
        self.tell(&format!("-{pid}\n"));
    }

    fn tell(&self, line: &str) {
        let mut shell = self.shell.lock().expect("no panic under this lock");
        shell.stdin.as_mut().expect("the pipe is ours").write_all(line.as_bytes()).expect("the reaper reads");
    }
}
