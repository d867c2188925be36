//! A listener with few connections open at one time. Others wait until one has ended.
//!
//! A runner has few descriptors to spare, and several nodes may ask it for more than it has room
//! for, each request over a connection of its own.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Takes connections from another listener, so many at one time.
pub(super) struct Few<L> {
    listener: L,
    room: Arc<Semaphore>,
}

impl<L> Few<L> {
    pub(super) fn new(listener: L, at_once: usize) -> Self {
        Self { listener, room: Arc::new(Semaphore::new(at_once)) }
    }
}

impl<L: Listener> Listener for Few<L> {
    type Io = Held<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let Ok(place) = Arc::clone(&self.room).acquire_owned().await else {
            // Nobody closes it.
            return std::future::pending().await;
        };
        let (stream, address) = self.listener.accept().await;
        (Held { stream, _place: place }, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// A connection, which keeps its place until it ends.
pub(super) struct Held<S> {
    stream: S,
    _place: OwnedSemaphorePermit,
}

impl<S: AsyncRead + Unpin> AsyncRead for Held<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Held<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn another_connection_waits_until_one_has_ended() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut few = Few::new(listener, 2);
        let connected = TcpStream::connect(address);
        let _outside = [connected.await, TcpStream::connect(address).await]
            .map(|stream| stream.expect("it listens"));
        let _third = TcpStream::connect(address).await.expect("it listens");
        let (first, _second) = (few.accept().await, few.accept().await);
        let moment = Duration::from_millis(50);
        assert!(timeout(moment, few.accept()).await.is_err(), "there is no room");
        drop(first);
        assert!(timeout(Duration::from_secs(5), few.accept()).await.is_ok(), "there is room");
    }
}
