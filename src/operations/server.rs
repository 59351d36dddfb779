//! Serves metrics and health on a thread of its own.

use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use tokio::sync::oneshot;

use super::exposition::Exposition;
use super::readiness::Readiness;
use super::{HttpConfig, Role};

/// How often the roles are looked at: moments of progress are known to within this.
const LOOK_EVERY: Duration = Duration::from_millis(100);

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves until dropped.
pub(crate) struct Served {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that served metrics and health had panicked");
        }
    }
}

/// Serves the metrics and the health of these roles, if the configuration says where.
///
/// # Errors
/// When nothing can listen there.
pub(crate) fn serve(config: &HttpConfig, roles: Vec<Role>) -> anyhow::Result<Option<Served>> {
    if config.listen.is_empty() {
        return Ok(None);
    }
    let listener = TcpListener::bind(&config.listen).with_context(|| {
        format!("cannot listen on http.listen = {:?}: set it to a free address and port", config.listen)
    })?;
    listener.set_nonblocking(true).context("preparing the listener")?;
    let address = listener.local_addr().context("preparing the listener")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting what serves metrics and health")?;

    let mut registry = Registry::with_prefix("fencepost");
    registry.register_collector(Box::new(Exposition::new(&roles)));
    let readiness = Readiness::new(roles.iter().map(Role::name), Duration::from_millis(config.quiet_ms_max));
    let seen = Arc::new(Seen { registry, readiness: Mutex::new(readiness) });
    let (stop, stopped) = oneshot::channel();
    let thread = thread::Builder::new()
        .name("http".to_owned())
        .spawn(move || runtime.block_on(run(listener, &roles, seen, stopped)))
        .context("starting a thread")?;
    tracing::info!(%address, "serving /metrics, /healthz and /readyz");
    Ok(Some(Served { stop: Some(stop), thread: Some(thread) }))
}

/// What the answers are made from.
struct Seen {
    registry: Registry,
    readiness: Mutex<Readiness>,
}

impl Seen {
    fn with_readiness<T>(&self, act: impl FnOnce(&mut Readiness) -> T) -> T {
        act(&mut self.readiness.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn run(listener: TcpListener, roles: &[Role], seen: Arc<Seen>, stopped: oneshot::Receiver<()>) {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .with_state(Arc::clone(&seen));
    let served = async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        axum::serve(listener, router).await
    };
    tokio::select! {
        // It does not end by itself: accepting goes on after errors.
        end = served => if let Err(error) = end {
            tracing::error!(%error, "metrics and health are served no more; restart this process");
        },
        () = look(roles, &seen) => {}
        // Also when its sender is dropped.
        _ = stopped => {}
    }
}

async fn look(roles: &[Role], seen: &Seen) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    loop {
        let now = ticks.tick().await.into_std();
        seen.with_readiness(|readiness| readiness.look(roles.iter().map(Role::window), now));
    }
}

async fn metrics(State(seen): State<Arc<Seen>>) -> Response {
    let mut body = String::new();
    match text::encode(&mut body, &seen.registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPENMETRICS)], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn ready(State(seen): State<Arc<Seen>>) -> Response {
    let report = seen.with_readiness(|readiness| readiness.report(Instant::now()));
    let status = if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    match serde_json::to_string(&report) {
        Ok(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
