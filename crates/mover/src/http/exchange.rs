//! One request and its answer, whatever is between: connections that are kept, redirections, attempts.
//!
//! One thread's: its connections are driven by tasks of its own runtime. A token goes to the server that the order names, and to no other:
//! who is redirected to elsewhere gets there what the redirection itself carries, as dCache and XRootD do. From https nobody is led to http.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, EXPECT, HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::answer::Answer;
use super::fault::Fault;
use super::outgoing::Outgoing;
use super::target::{Server, Target};
use crate::net::sockets::Tcp;
use crate::stop::Stop;

/// Redirections of one request; a door leads to a pool, and that perhaps to another.
const MOST_REDIRECTIONS: usize = 8;
/// Attempts of one request.
const MOST_ATTEMPTS: u32 = 4;
/// Waiting between them begins with this and doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest that a server may have us wait with `Retry-After`.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How long a server may take to begin an answer: it may have to compute a checksum first, or to find a file.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long a body is kept back for `100 Continue`; then it is sent (RFC 9110, section 10.1.1, leaves the time open; curl waits as long).
const WAIT_FOR_CONTINUE: Duration = Duration::from_secs(1);
/// What a connection reads at a time at most: what is read is written before it leaves the second cache of a core.
const READ_BYTES: usize = 128 << 10;
/// How often a wait looks whether we are to stop.
pub(super) const STOP_TICK: Duration = Duration::from_millis(100);
const AGENT: &str = concat!("venturi/", env!("CARGO_PKG_VERSION"));

pub(super) type Sender = SendRequest<Outgoing>;

/// What is asked of a server.
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    pub(crate) fields: HeaderMap,
    /// Makes the body, anew for each attempt.
    pub(crate) body: &'a dyn Fn() -> Outgoing,
    /// Whether the body waits until the server wants it: worth a round trip if it is large and the server may send us elsewhere.
    pub(crate) expects: bool,
}

impl Ask<'_> {
    /// One without a body.
    pub(crate) fn plain(method: Method, fields: HeaderMap) -> Self {
        Self {
            method,
            fields,
            body: &|| Outgoing::Empty,
            expects: false,
        }
    }
}

/// Connections of one thread.
pub(crate) struct Exchange {
    tls: Option<Arc<ClientConfig>>,
    /// What the server that the order names gets.
    token: Option<HeaderValue>,
    tcp: Tcp,
    stop: Stop,
    idle: RefCell<HashMap<Server, Vec<Sender>>>,
    addresses: RefCell<HashMap<Server, Vec<std::net::SocketAddr>>>,
    /// Connections that were opened.
    pub(crate) opened: Cell<u64>,
    /// Requests that were made again.
    pub(crate) repeated: Cell<u64>,
}

impl Exchange {
    pub(crate) fn new(
        tls: Option<Arc<ClientConfig>>,
        token: Option<HeaderValue>,
        tcp: Tcp,
        stop: Stop,
    ) -> Rc<Self> {
        Rc::new(Self {
            tls,
            token,
            tcp,
            stop,
            idle: RefCell::default(),
            addresses: RefCell::default(),
            opened: Cell::new(0),
            repeated: Cell::new(0),
        })
    }

    /// Asks, and asks again while it is worth it; what is no success is a fault, but for those in `also`.
    ///
    /// # Errors
    /// The last fault.
    pub(crate) async fn ask(
        self: &Rc<Self>,
        place: &Target,
        ask: &Ask<'_>,
        also: &[StatusCode],
    ) -> Result<Answer, Fault> {
        let mut pause = FIRST_PAUSE;
        for attempt in 1.. {
            let fault = match self.follow(place, ask).await {
                Ok(answer)
                    if answer.head.status.is_success() || also.contains(&answer.head.status) =>
                {
                    return Ok(answer);
                }
                Ok(answer) => answer.refusal().await,
                Err(fault) => fault,
            };
            if attempt == MOST_ATTEMPTS || !fault.is_temporary() {
                return Err(fault);
            }
            let after = match &fault {
                Fault::Status {
                    after: Some(after), ..
                } => (*after).min(LONGEST_PAUSE),
                _ => pause,
            };
            self.pause(after).await?;
            self.repeated.set(self.repeated.get() + 1);
            pause *= 2;
        }
        unreachable!("the last attempt returns")
    }

    /// Waits, unless we are to stop.
    pub(crate) async fn pause(&self, how_long: Duration) -> Result<(), Fault> {
        self.unless_stopped(
            how_long,
            Fault::Silence(how_long),
            tokio::time::sleep(how_long),
        )
        .await
    }

    async fn follow(self: &Rc<Self>, place: &Target, ask: &Ask<'_>) -> Result<Answer, Fault> {
        let mut at = place.clone();
        for _ in 0..=MOST_REDIRECTIONS {
            let answer = self.once(&at, ask, at.server == place.server).await?;
            if !is_redirection(answer.head.status) {
                return Ok(answer);
            }
            let location = answer
                .head
                .headers
                .get(LOCATION)
                .and_then(|value| value.to_str().ok());
            let wrong = |found: String| Fault::Answer {
                expected: "a redirection to a place of HTTP",
                found,
            };
            let next = location.ok_or_else(|| wrong("one without a place".into()))?;
            let next = at.redirected(next).map_err(wrong)?;
            if at.server.tls && !next.server.tls {
                return Err(wrong(format!(
                    "one from https to {next}, where nothing is protected"
                )));
            }
            // A body that is still kept back keeps its connection from being used again.
            if !ask.expects {
                answer.finish().await;
            }
            at = next;
        }
        Err(Fault::Answer {
            expected: "an answer",
            found: format!("more than {MOST_REDIRECTIONS} redirections"),
        })
    }

    /// One request over one connection. One that was kept may have been closed meanwhile: then a new one is taken, once.
    async fn once(
        self: &Rc<Self>,
        at: &Target,
        ask: &Ask<'_>,
        is_ours: bool,
    ) -> Result<Answer, Fault> {
        if let Some(sender) = self.kept(&at.server) {
            match self.over(sender, at, ask, is_ours).await {
                Err(Fault::Connection(_)) => self.repeated.set(self.repeated.get() + 1),
                other => return other,
            }
        }
        let sender = self.connect(&at.server).await?;
        self.over(sender, at, ask, is_ours).await
    }

    async fn over(
        self: &Rc<Self>,
        mut sender: Sender,
        at: &Target,
        ask: &Ask<'_>,
        is_ours: bool,
    ) -> Result<Answer, Fault> {
        let (request, opener) = self.request(at, ask, is_ours)?;
        // The gate opens by a 100, by its absence, and never when the answer is there before.
        let sent = sender.send_request(request);
        let answered = self.unless_stopped(PATIENCE, Fault::Silence(PATIENCE), async {
            let mut sent = std::pin::pin!(sent);
            if let Some(opener) = opener {
                if let Ok(done) = timeout(WAIT_FOR_CONTINUE, sent.as_mut()).await {
                    return done;
                }
                opener.open();
            }
            sent.await
        });
        let answer = answered.await?.map_err(|error| broken(&error))?;
        let (head, body) = answer.into_parts();
        Ok(Answer::new(
            (head, body),
            at.clone(),
            sender,
            Rc::clone(self),
        ))
    }

    fn request(
        &self,
        at: &Target,
        ask: &Ask<'_>,
        is_ours: bool,
    ) -> Result<(Request<Outgoing>, Option<Opener>), Fault> {
        let unfit = |_| Fault::Answer {
            expected: "a place that can be asked for",
            found: "signs that it must not have".into(),
        };
        let mut body = (ask.body)();
        let mut opener = None;
        if ask.expects {
            let (open, opened) = oneshot::channel();
            body = body.gated(opened);
            opener = Some(Opener::new(open));
        }
        let mut request = Request::builder()
            .method(&ask.method)
            .uri(&at.path)
            .body(body)
            .map_err(unfit)?;
        let host = HeaderValue::try_from(at.server.authority());
        let fields = request.headers_mut();
        fields.extend(ask.fields.clone());
        fields.insert(
            HOST,
            host.map_err(|_| Fault::Answer {
                expected: "the name of a host",
                found: "other signs".into(),
            })?,
        );
        fields.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        if let (Some(token), true) = (&self.token, is_ours) {
            fields.insert(AUTHORIZATION, token.clone());
        }
        if let Some(opener) = &opener {
            request
                .headers_mut()
                .insert(EXPECT, HeaderValue::from_static("100-continue"));
            let opener = opener.clone();
            hyper::ext::on_informational(&mut request, move |told| {
                if told.status() == StatusCode::CONTINUE {
                    opener.open();
                }
            });
        }
        Ok((request, opener))
    }

    /// Keeps a connection whose answer was read to its end.
    pub(super) fn keep(&self, server: &Server, sender: Sender) {
        self.idle
            .borrow_mut()
            .entry(server.clone())
            .or_default()
            .push(sender);
    }

    fn kept(&self, server: &Server) -> Option<Sender> {
        let mut idle = self.idle.borrow_mut();
        let kept = idle.get_mut(server)?;
        while let Some(sender) = kept.pop() {
            if sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    async fn connect(&self, server: &Server) -> Result<Sender, Fault> {
        let addresses = self.addresses(server).await?;
        let mut last = Fault::Connection("a name without an address".into());
        for address in addresses {
            match self.tcp.connect(address).await {
                Ok(stream) => {
                    self.opened.set(self.opened.get() + 1);
                    return self.begin(server, stream).await;
                }
                Err(error) => last = Fault::Connection(crate::error::said(&error)),
            }
        }
        Err(last)
    }

    async fn addresses(&self, server: &Server) -> Result<Vec<std::net::SocketAddr>, Fault> {
        if let Some(known) = self.addresses.borrow().get(server) {
            return Ok(known.clone());
        }
        let found = tokio::net::lookup_host((server.host.as_str(), server.port)).await;
        let found: Vec<_> = found
            .map_err(|error| Fault::Connection(format!("no address of {}: {error}", server.host)))?
            .collect();
        self.addresses
            .borrow_mut()
            .insert(server.clone(), found.clone());
        Ok(found)
    }

    async fn begin(&self, server: &Server, stream: TcpStream) -> Result<Sender, Fault> {
        let Some(tls) = self.tls.as_ref().filter(|_| server.tls) else {
            return drive(TokioIo::new(stream)).await;
        };
        let name = ServerName::try_from(server.host.clone());
        let name =
            name.map_err(|_| Fault::Tls(format!("`{}`, which is no name of a host", server.host)))?;
        let connector = TlsConnector::from(Arc::clone(tls));
        let secured = timeout(PATIENCE, connector.connect(name, stream)).await;
        let secured = secured.map_err(|_| Fault::Silence(PATIENCE))?;
        let stream = secured.map_err(|error| match error.get_ref() {
            Some(inner) if inner.is::<rustls::Error>() => Fault::Tls(inner.to_string()),
            _ => Fault::Connection(crate::error::said(&error)),
        })?;
        drive(TokioIo::new(stream)).await
    }

    pub(super) async fn unless_stopped<T>(
        &self,
        limit: Duration,
        late: Fault,
        work: impl Future<Output = T>,
    ) -> Result<T, Fault> {
        let mut work = std::pin::pin!(work);
        let begin = tokio::time::Instant::now();
        loop {
            match timeout(STOP_TICK, work.as_mut()).await {
                Ok(done) => return Ok(done),
                Err(_) if self.stop.asked() => return Err(Fault::Stopped),
                Err(_) if begin.elapsed() > limit => return Err(late),
                Err(_) => {}
            }
        }
    }
}

async fn drive<I>(io: I) -> Result<Sender, Fault>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + 'static,
{
    // XRootD knows `Content-Length` and `Depth`, and not `content-length` and `depth`.
    let begun = Builder::new()
        .max_buf_size(READ_BYTES)
        .title_case_headers(true)
        .handshake(io)
        .await;
    let (sender, connection) = begun.map_err(|error| broken(&error))?;
    // It ends with its sender; what went wrong with it, its request is told.
    tokio::task::spawn_local(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

/// What hyper says of a connection, in one line.
pub(super) fn broken(error: &hyper::Error) -> Fault {
    use std::error::Error;
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(tls) = inner
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref)
        {
            // An alert that comes after the handshake, as in TLS 1.3: a certificate that is wanted, or is not trusted.
            if tls.is::<rustls::Error>() {
                return Fault::Tls(tls.to_string());
            }
        }
        said = format!("{said}: {inner}");
        cause = inner.source();
    }
    if error.is_parse() {
        return Fault::Answer {
            expected: "an answer of HTTP",
            found: said,
        };
    }
    Fault::Connection(said)
}

fn is_redirection(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 307 | 308)
}

/// Opens the gate of a body, whoever comes first.
#[derive(Clone)]
struct Opener(Arc<std::sync::Mutex<Option<oneshot::Sender<()>>>>);

impl Opener {
    fn new(open: oneshot::Sender<()>) -> Self {
        Self(Arc::new(std::sync::Mutex::new(Some(open))))
    }

    fn open(&self) {
        let open = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take();
        if let Some(open) = open {
            // The body may be gone already.
            let _ = open.send(());
        }
    }
}
