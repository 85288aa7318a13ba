//! The body of a request or an answer: nothing, bytes, or a stream of a known length.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// A body that goes out.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// These.
    Whole(Bytes),
    /// What comes through a channel.
    Stream {
        blocks: Blocks,
        /// Bytes that are yet to come; where that is not known they are sent in chunks.
        left: Option<u64>,
        /// Opens when the first byte may be sent.
        gate: Option<oneshot::Receiver<()>>,
    },
}

/// Blocks, or why there are no more.
pub(crate) type Receiver = mpsc::Receiver<io::Result<Bytes>>;

/// Where the blocks of a stream come from.
pub(crate) enum Blocks {
    /// Somebody sends them.
    Coming(Receiver),
    /// Somebody is asked to when the first is wanted.
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
            Self::OnDemand(begin) => {
                let Some(begin) = begin.take() else {
                    return Poll::Ready(None);
                };
                *self = Self::Coming(begin());
                self.poll(context)
            }
        }
    }
}

impl Outgoing {
    /// Nothing.
    pub(crate) const EMPTY: Self = Self::Whole(Bytes::new());

    /// Keeps the bytes back until the gate opens or whoever can open it is gone.
    pub(crate) fn gated(self, opens: oneshot::Receiver<()>) -> Self {
        match self {
            Self::Stream { blocks, left, .. } => Self::Stream {
                blocks,
                left,
                gate: Some(opens),
            },
            other => other,
        }
    }
}

impl Body for Outgoing {
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
            Self::Stream { blocks, left, gate } => {
                if let Some(opens) = gate {
                    let opened = ready!(Pin::new(opens).poll(context));
                    *gate = None;
                    if opened.is_err() {
                        return Poll::Ready(Some(Err(io::Error::other(
                            "the server does not want it",
                        ))));
                    }
                }
                match ready!(blocks.poll(context)) {
                    Some(Ok(block)) => {
                        if let Some(left) = left {
                            *left = left.saturating_sub(block.len() as u64);
                        }
                        Poll::Ready(Some(Ok(Frame::data(block))))
                    }
                    Some(Err(error)) => Poll::Ready(Some(Err(error))),
                    // A body that is shorter than was said must not look like a whole one.
                    None if left.is_some_and(|left| left > 0) => {
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
                left: Some(left), ..
            } => SizeHint::with_exact(*left),
            Self::Stream { .. } => SizeHint::default(),
        }
    }
}

/// A body that tells when something of it last went.
pub(crate) struct Told {
    body: Outgoing,
    moved: Rc<Cell<Instant>>,
}

impl Told {
    pub(super) fn new(body: Outgoing, moved: &Rc<Cell<Instant>>) -> Self {
        Self {
            body,
            moved: Rc::clone(moved),
        }
    }
}

impl Body for Told {
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
