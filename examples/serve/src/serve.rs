//! Listens for requests until the system asks the server to end.

use std::{future::IntoFuture, net::SocketAddr, time::Duration};

use tokio::{net::TcpListener, runtime, signal, time};

use crate::{app::App, common::Failure, limits};

/// Serves requests. On the first signal to end it takes no more, and finishes those that it has
/// begun, for `drain` at most.
///
/// # Errors
/// The error of the system if it cannot listen on the address.
pub fn run(app: App, address: SocketAddr, drain: Duration) -> Result<(), Failure> {
    // Requests compute on threads of their own.
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(listen(app, address, drain));
    // Threads whose requests were stopped end after their step, and need not be waited for.
    runtime.shutdown_background();
    result
}

async fn listen(app: App, address: SocketAddr, drain: Duration) -> Result<(), Failure> {
    let listener = TcpListener::bind(address).await?;
    println!("{} on http://{}", app.name, listener.local_addr()?);
    let engine = app.engine.clone();
    let begin_drain = {
        let engine = engine.clone();
        async move {
            asked_to_end().await;
            engine.drain();
            eprintln!("finishing the answers that have begun");
        }
    };
    let server = axum::serve(listener, app.router()).with_graceful_shutdown(begin_drain).into_future();
    tokio::pin!(server);
    tokio::select! {
        result = &mut server => return result.map_err(Into::into),
        () = drained(drain) => {}
    }
    engine.end();
    // The streams send their errors. Clients that do not read them are left.
    _ = time::timeout(limits::LAST_WORDS, server).await;
    Ok(())
}

/// Waits for the time to finish answers after the first signal, or for a second signal.
async fn drained(drain: Duration) {
    asked_to_end().await;
    tokio::select! {
        () = time::sleep(drain) => {}
        () = asked_to_end() => {}
    }
}

/// Waits for a signal to end.
async fn asked_to_end() {
    #[cfg(unix)]
    {
        let terminate = signal::unix::signal(signal::unix::SignalKind::terminate());
        if let Ok(mut terminate) = terminate {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = signal::ctrl_c() => {}
            }
            return;
        }
    }
    _ = signal::ctrl_c().await;
}
