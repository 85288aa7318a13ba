//! Body of a request or response: empty, bytes, or a stream.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Body that is sent.
#[derive(Debug)]
pub(crate) enum OutgoingBody {
    /// These bytes.
    Whole(Bytes),
    /// Blocks of a channel.
    Stream {
        blocks: Blocks,
        /// Remaining bytes; if unknown, the body is sent in chunks.
        remaining: Option<u64>,
        /// Opens when the body may be sent.
        gate: Option<oneshot::Receiver<()>>,
    },
}

/// Blocks, or the error that ends them.
pub(crate) type Receiver = mpsc::Receiver<io::Result<Bytes>>;

/// Source of the blocks of a stream.
pub(crate) enum Blocks {
    /// A task sends them.
    Coming(Receiver),
    /// A task starts when the first block is requested.
    OnDemand(Option<Box<dyn FnOnce() -> Receiver>>),
}

impl std::fmt::Debug for Blocks {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("blocks")
    }
}

impl Blocks {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        match self {
            Self::Coming(blocks) => blocks.poll_recv(context),
            Self::OnDemand(start) => {
                let Some(start) = start.take() else {
                    return Poll::Ready(None);
                };
                *self = Self::Coming(start());
                self.poll(context)
            }
        }
    }
}

impl OutgoingBody {
    /// Body without bytes.
    pub(crate) const EMPTY: Self = Self::Whole(Bytes::new());

    /// Hold the body back until the gate opens or its opener is dropped.
    pub(crate) fn gated(self, opens: oneshot::Receiver<()>) -> Self {
        match self {
            Self::Stream {
                blocks, remaining, ..
            } => Self::Stream {
                blocks,
                remaining,
                gate: Some(opens),
            },
            other => other,
        }
    }
}

impl Body for OutgoingBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut *self {
            Self::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then_some(Ok(Frame::data(bytes))))
            }
            Self::Stream {
                blocks,
                remaining,
                gate,
            } => {
                if let Some(opens) = gate {
                    let opened = ready!(Pin::new(opens).poll(context));
                    *gate = None;
                    if opened.is_err() {
                        return Poll::Ready(Some(Err(io::Error::other(
                            "the server rejected the body",
                        ))));
                    }
                }
                match ready!(blocks.poll(context)) {
                    Some(Ok(block)) => {
                        if let Some(remaining) = remaining {
                            *remaining = remaining.saturating_sub(block.len() as u64);
                        }
                        Poll::Ready(Some(Ok(Frame::data(block))))
                    }
                    Some(Err(error)) => Poll::Ready(Some(Err(error))),
                    // A truncated body must not look complete.
                    None if remaining.is_some_and(|remaining| remaining > 0) => {
                        Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::UnexpectedEof))))
                    }
                    None => Poll::Ready(None),
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.size_hint().exact() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream {
                remaining: Some(remaining),
                ..
            } => SizeHint::with_exact(*remaining),
            Self::Stream { .. } => SizeHint::default(),
        }
    }
}

/// Body that records the time of its last progress.
pub(crate) struct ProgressBody {
    body: OutgoingBody,
    moved: Rc<Cell<Instant>>,
}

impl ProgressBody {
    pub(super) fn new(body: OutgoingBody, moved: &Rc<Cell<Instant>>) -> Self {
        Self {
            body,
            moved: Rc::clone(moved),
        }
    }
}

impl Body for ProgressBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        self.moved.set(Instant::now());
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
