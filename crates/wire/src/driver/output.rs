//! Records on their way to the controller: a queue, and a thread that makes the lines and writes them.
//!
//! A sample of a large network is thousands of numbers. Making text of them takes as long as a hundred packets, so
//! the thread that moves packets only hands over the counters.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use serde::Serialize;
use venturi_plan::{Name, Sample, Seconds};

use super::machine;
use super::report;
use super::tun::Statistics;
use crate::model::LinkCounters;
use crate::protocol::Record;

/// Records that may wait for a slow reader, beyond which samples are left out: some minutes of them.
const WAITING_RECORDS: usize = 4096;

/// What the thread turns into lines.
#[derive(Debug)]
pub(crate) enum Message {
    /// The names of the links and where to ask for the interfaces' drops; before the first counters.
    Names(Vec<Name>, Vec<Statistics>),
    /// A record as it is.
    Record(Box<Record>),
    /// Counters, to become a sample.
    Counters(Box<Counters>),
    /// Look whether a ring has run over since `Names`, and tell.
    Overruns,
}

/// Counters at one moment.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) time_s: Seconds,
    pub(crate) links: Vec<LinkCounters>,
    /// Of the wire as a whole, by name. Absent is: not measured.
    pub(crate) wire: Vec<(&'static str, Option<f64>)>,
}

/// The way out, usable from any thread.
#[derive(Debug, Clone)]
pub(crate) struct Outbox(SyncSender<Message>);

/// Nobody reads any more.
#[derive(Debug)]
pub(crate) struct Broken;

impl Outbox {
    /// Starts the thread. It ends when all outboxes are gone, or standard output is.
    pub(crate) fn start() -> io::Result<(Self, JoinHandle<()>)> {
        let (sender, messages) = sync_channel(WAITING_RECORDS);
        let thread = std::thread::Builder::new()
            .name("output".into())
            .spawn(move || {
                machine::ordinary();
                // A reader that is gone shows to the senders, as the channel is closed then.
                let _ = write_all(&messages, io::stdout().lock());
            })?;
        Ok((Self(sender), thread))
    }

    /// Sends what must not be lost. Waits only for a reader that is thousands of records behind.
    pub(crate) fn send(&self, record: Record) -> Result<(), Broken> {
        self.pass(Message::Record(Box::new(record)))
    }

    /// Sends a message that must not be lost.
    pub(crate) fn pass(&self, message: Message) -> Result<(), Broken> {
        self.0.send(message).map_err(|_| Broken)
    }

    /// Sends counters, unless the reader is too far behind.
    pub(crate) fn offer(&self, counters: Counters) -> Result<(), Broken> {
        match self.0.try_send(Message::Counters(Box::new(counters))) {
            Err(TrySendError::Disconnected(_)) => Err(Broken),
            Ok(()) | Err(TrySendError::Full(_)) => Ok(()),
        }
    }
}

fn write_all(messages: &Receiver<Message>, mut sink: impl Write) -> io::Result<()> {
    let mut names = Names::default();
    let mut statistics = Vec::new();
    while let Ok(message) = messages.recv() {
        match message {
            Message::Names(links, theirs) => {
                names = Names::new(&links);
                statistics = theirs;
            }
            Message::Record(record) => write_line(&mut sink, &record)?,
            Message::Counters(counters) => {
                let sample = names.sample(*counters, tun_dropped(&statistics));
                write_line(&mut sink, &Record::Sample(sample))?;
            }
            Message::Overruns => {
                if let Some(finding) = tun_dropped(&statistics).and_then(report::overrun) {
                    write_line(&mut sink, &Record::Finding(finding))?;
                }
            }
        }
    }
    Ok(())
}

fn tun_dropped(statistics: &[Statistics]) -> Option<u64> {
    statistics.iter().map(Statistics::dropped).sum()
}

fn write_line(sink: &mut impl Write, record: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    sink.write_all(&line)?;
    sink.flush()
}

/// The names of the counters, made once.
#[derive(Debug, Default)]
struct Names {
    links: Vec<[Name; 7]>,
}

impl Names {
    fn new(links: &[Name]) -> Self {
        let of_link = |link: &Name| {
            [
                "bytes",
                "packets",
                "queue_drops",
                "loss_drops",
                "outage_drops",
                "queue_high_bytes",
                "busy_s",
            ]
            .map(|counter| format!("link.{link}.{counter}").into())
        };
        Self {
            links: links.iter().map(of_link).collect(),
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "samples are numbers of JSON: exact up to 2^53"
    )]
    fn sample(&self, counters: Counters, tun_dropped: Option<u64>) -> Sample {
        let mut values = BTreeMap::new();
        for (names, link) in self.links.iter().zip(&counters.links) {
            let numbers = [
                link.bytes as f64,
                link.packets as f64,
                link.queue_drops as f64,
                link.loss_drops as f64,
                link.outage_drops as f64,
                link.queue_high_bytes as f64,
                link.busy_ps as f64 / 1e12,
            ];
            values.extend(names.iter().cloned().zip(numbers));
        }
        let dropped = ("wire.tun_dropped", tun_dropped.map(|count| count as f64));
        for (name, value) in counters.wire.into_iter().chain([dropped]) {
            values.extend(value.map(|value| (Name::from(name), value)));
        }
        Sample {
            time_s: counters.time_s,
            counters: values,
        }
    }
}
