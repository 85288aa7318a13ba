//! The body of a request or an answer: nothing, bytes, or a stream of a known length.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{mpsc, oneshot};

/// A body that goes out.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// Nothing.
    Empty,
    /// These.
    Whole(Bytes),
    /// What comes through a channel.
    Stream {
        blocks: mpsc::Receiver<io::Result<Bytes>>,
        /// Bytes that are yet to come; where that is not known they are sent in chunks.
        left: Option<u64>,
        /// Opens when the first byte may be sent.
        gate: Option<oneshot::Receiver<()>>,
    },
}

impl Outgoing {
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
            Self::Empty => Poll::Ready(None),
            Self::Whole(_) => {
                let Self::Whole(bytes) = std::mem::replace(&mut *self, Self::Empty) else {
                    return Poll::Ready(None);
                };
                Poll::Ready((!bytes.is_empty()).then_some(Ok(Frame::data(bytes))))
            }
            Self::Stream { blocks, left, gate } => {
                if let Some(opens) = gate {
                    let opened = std::task::ready!(Pin::new(opens).poll(context));
                    *gate = None;
                    if opened.is_err() {
                        return Poll::Ready(Some(Err(io::Error::other(
                            "the server does not want it",
                        ))));
                    }
                }
                match std::task::ready!(blocks.poll_recv(context)) {
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
        match self {
            Self::Empty => true,
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Stream { left, .. } => *left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream {
                left: Some(left), ..
            } => SizeHint::with_exact(*left),
            Self::Stream { .. } => SizeHint::default(),
        }
    }
}
