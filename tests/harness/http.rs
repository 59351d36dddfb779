use std::io::{Read, Write};
use std::net::TcpStream;

use super::process::Process;

/// Metrics and health of a running process.
impl Process {
    /// Where it serves them; it was started with `http.listen` on port 0.
    pub(crate) fn address(&mut self) -> String {
        self.wait_for_log("serving /metrics");
        let logs = self.logs();
        let at = logs.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next());
        at.unwrap_or_else(|| panic!("no address in:\n{logs}")).to_owned()
    }

    /// The status and the body that it answers to GET.
    pub(crate) fn get(&mut self, path: &str) -> (u16, String) {
        let address = self.address();
        let mut stream = TcpStream::connect(&address).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")
            .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
        status.zip(body).unwrap_or_else(|| panic!("no HTTP: {answer}"))
    }

    /// The value of one of its metrics, named with its labels.
    pub(crate) fn metric(&mut self, name: &str) -> u64 {
        let (status, body) = self.get("/metrics");
        assert_eq!(status, 200, "{body}");
        let line = body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = line.and_then(|value| value.parse().ok());
        value.unwrap_or_else(|| panic!("no whole number {name} in:\n{body}"))
    }
}
