//! Unary calls of gRPC with trailers: a server that counts, and a client that compares.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, client, server};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Calls at once.
const CLIENTS: u64 = 8;
/// What a call may take.
const LIMIT: Duration = Duration::from_secs(20);
/// Between two calls of a client.
const EVERY: Duration = Duration::from_millis(20);

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Answers each call with its message, counts those that it answered, and says so in trailers.
pub(crate) fn replica(address: SocketAddr, asked: Arc<AtomicU64>) {
    let listener = std::net::TcpListener::bind(address).unwrap();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        runtime().block_on(async {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&asked)));
            }
        });
    });
}

async fn serve(stream: TcpStream, asked: Arc<AtomicU64>) -> Result<(), h2::Error> {
    let mut connection = server::handshake(stream).await?;
    while let Some(call) = connection.accept().await {
        let (request, respond) = call?;
        asked.fetch_add(1, Relaxed);
        tokio::spawn(echo(request.into_body(), respond));
    }
    Ok(())
}

async fn echo(body: RecvStream, mut respond: SendResponse<Bytes>) -> Result<(), h2::Error> {
    let (message, _) = read(body).await?;
    let mut head = Response::new(());
    head.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    let mut stream = respond.send_response(head, false)?;
    stream.send_data(message.into(), false)?;
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    stream.send_trailers(trailers)
}

/// All of a message, and its trailers.
async fn read(mut body: RecvStream) -> Result<(Vec<u8>, HeaderMap), h2::Error> {
    let mut bytes = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        bytes.extend_from_slice(&piece);
        let _ = body.flow_control().release_capacity(piece.len());
    }
    Ok((bytes, body.trailers().await?.unwrap_or_default()))
}

/// Calls until the end, as clients of gRPC do: what a server says that it has not processed goes
/// to the next connection. Everything else is to be answered. The first failure is told.
pub(crate) fn clients(
    address: SocketAddr,
    ends: &Arc<AtomicBool>,
    answered: &Arc<AtomicU64>,
) -> io::Result<()> {
    runtime().block_on(async {
        let mut all = JoinSet::new();
        for number in 0..CLIENTS {
            all.spawn(calls(address, number, Arc::clone(ends), Arc::clone(answered)));
        }
        while let Some(ended) = all.join_next().await {
            ended.unwrap()?;
        }
        Ok(())
    })
}

async fn calls(
    address: SocketAddr,
    number: u64,
    ends: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
) -> io::Result<()> {
    let (mut kept, mut sent) = (None, 0);
    let mut pace = tokio::time::interval(EVERY);
    while !ends.load(Relaxed) {
        let mut sender: SendRequest<Bytes> = match kept.take() {
            Some(sender) => sender,
            None => connect(address).await?,
        };
        let message = format!("{number}/{sent}");
        let failed = |what: String| io::Error::other(format!("gRPC {message}: {what}"));
        let answer = tokio::time::timeout(LIMIT, call(&mut sender, &message)).await;
        match answer.map_err(|_| failed("no answer".to_owned()))? {
            Ok(Some((bytes, status))) if bytes == message.as_bytes() && status == "0" => {
                sent += 1;
                answered.fetch_add(1, Relaxed);
                kept = Some(sender);
                pace.tick().await;
            }
            Ok(None) => {} // the connection ends, and the next one is asked
            Ok(Some(other)) => return Err(failed(format!("got {other:?}"))),
            Err(error) => return Err(failed(format!("{error:?}"))),
        }
    }
    Ok(())
}

async fn connect(address: SocketAddr) -> io::Result<SendRequest<Bytes>> {
    let stream = TcpStream::connect(address).await?;
    let (sender, connection) = client::handshake(stream).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    Ok(sender)
}

/// A message and the `grpc-status` after it; nothing if it was not processed.
async fn call(
    sender: &mut SendRequest<Bytes>,
    message: &str,
) -> Result<Option<(Vec<u8>, String)>, h2::Error> {
    let request = Request::post("http://web.test/test.Echo/Call")
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    // After a goodbye there are no further streams.
    if poll_fn(|cx| sender.poll_ready(cx)).await.is_err() {
        return Ok(None);
    }
    let Ok((answer, mut upload)) = sender.send_request(request.body(()).unwrap(), false) else {
        return Ok(None);
    };
    let _ = upload.send_data(Bytes::copy_from_slice(message.as_bytes()), true);
    let answer = match answer.await {
        // The stream came after the last one that is answered.
        Err(error) if error.is_go_away() && error.reason() == Some(Reason::NO_ERROR) => {
            return Ok(None);
        }
        answer => answer?,
    };
    let status = |headers: &HeaderMap| {
        let status = headers.get("grpc-status").and_then(|status| status.to_str().ok());
        status.map(str::to_owned)
    };
    let in_head = status(answer.headers());
    let (bytes, trailers) = read(answer.into_body()).await?;
    Ok(Some((bytes, in_head.or_else(|| status(&trailers)).unwrap_or_default())))
}
