//! Main loop for packets.
//!
//! This is the data path: one thread, or two if one is not enough, without allocations per packet
//! and without calls that can block for long. Each turn delivers due packets, waits for the next
//! packet or delivery, and reads some packets from each interface. After each read it checks for
//! due packets again.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::sys::epoll::Epoll;
use serde_json::json;
use venturi_plan::{AgentEvent, LinkSet, Name, Seconds};

use super::buffers::PacketBuffers;
use super::capture::LinkCapture;
use super::clock::{ModelClock, cpu_ns};
use super::interface::TunInterface;
use super::machine;
use super::output::{Broken, EmulatorCounters, Message, Outbox};
use super::report::{self, DeliveryTiming};
use super::tun::Tun;
use super::wait_strategy::{Wait, WaitStrategy};
use super::writer::{PacketWriter, WrittenDelivery};
use crate::EmulatorError;
use crate::model::{EmulatorWorld, InterfaceId, LinkCounters, LinkId, NetworkOutput};
use crate::packet::{PacketRejection, inspect, too_big};
use crate::protocol::{EmulatorDone, EmulatorRecord, Lateness, LinkTotals};

/// Maximum number of packets read from one interface in a turn.
const READS_PER_TURN: usize = 16;
/// Maximum number of consecutive deliveries before interfaces are read again.
const DELIVERIES_PER_TURN: usize = 32;
/// Maximum number of deliveries after each read packet.
const DELIVERIES_A_READ: usize = 4;
const SECOND_NS: u64 = 1_000_000_000;
/// Interval at which captured packets go to the file, if there are few of them.
const CAPTURE_FLUSH_NS: u64 = 250_000_000;
/// Interval between checks of the load of the machine; they do not wake the thread.
const READING_NS: u64 = 100_000_000;

pub(crate) struct EmulatorRun {
    pub(crate) clock: ModelClock,
    world: EmulatorWorld,
    interfaces: Arc<[TunInterface]>,
    // Declared before the memory that it reads, so that it is dropped first.
    writer: PacketWriter,
    buffers: PacketBuffers,
    strategy: WaitStrategy,
    punctuality: DeliveryTiming,
    counts: NetworkCounts,
    /// Whether the clock of the planned changes is running.
    gone: bool,
    captures: BTreeMap<LinkId, LinkCapture>,
    /// Ended captures whose files can be incomplete.
    ending: Vec<JoinHandle<()>>,
    outbox: Outbox,
    ticks: Ticks,
    /// High-water marks of the queues since the start.
    high_bytes: Vec<u64>,
}

/// Times of periodic actions.
struct Ticks {
    interval_ns: Option<u64>,
    next_sample_ns: u64,
    next_second_ns: u64,
    next_flush_ns: u64,
    next_reading_ns: u64,
}

/// Counts of packets that could not enter or leave the network.
#[derive(Debug, Clone, Copy, Default)]
struct NetworkCounts {
    not_ipv4: u64,
    multicast: u64,
    malformed: u64,
    too_big: u64,
    no_memory: u64,
    rejected: u64,
}

/// Interface of the network with the data that the loop needs.
pub(crate) struct OpenInterface {
    pub(crate) tun: Tun,
    pub(crate) offload: bool,
    pub(crate) mtu: u32,
}

impl EmulatorRun {
    pub(crate) fn new(
        clock: ModelClock,
        world: EmulatorWorld,
        opened: Vec<OpenInterface>,
        buffers: PacketBuffers,
        outbox: Outbox,
        interval_ns: Option<u64>,
        strategy: WaitStrategy,
    ) -> io::Result<Self> {
        let mtu =
            |id: InterfaceId| u16::try_from(opened[usize::from(id.0)].mtu).unwrap_or(u16::MAX);
        let mtus: Vec<Vec<u16>> = (0..)
            .map(InterfaceId)
            .take(opened.len())
            .map(|from| {
                let exits = world.destinations().map(|to| world.exit(from, to));
                exits.map(|exit| exit.map_or(u16::MAX, &mtu)).collect()
            })
            .collect();
        let now_ns = clock.now_ns();
        let interfaces: Arc<[TunInterface]> = opened
            .into_iter()
            .zip(mtus)
            .map(|(opened, mtus)| TunInterface {
                tun: opened.tun,
                joins: opened.offload,
                mtus,
            })
            .collect();
        Ok(Self {
            writer: PacketWriter::start(clock, Arc::clone(&interfaces))?,
            punctuality: DeliveryTiming::new(world.extremes()),
            high_bytes: vec![0; world.link_names().len()],
            interfaces,
            strategy,
            counts: NetworkCounts::default(),
            gone: false,
            captures: BTreeMap::new(),
            ending: Vec::new(),
            ticks: Ticks {
                interval_ns,
                next_sample_ns: interval_ns.map_or(u64::MAX, |interval_ns| now_ns + interval_ns),
                next_second_ns: now_ns + SECOND_NS,
                next_flush_ns: u64::MAX,
                next_reading_ns: now_ns,
            },
            clock,
            world,
            buffers,
            outbox,
        })
    }

    /// Send due deliveries, and return the wait for the next event.
    pub(crate) fn proceed(&mut self) -> Result<(u64, Wait), Broken> {
        self.deliver(DELIVERIES_PER_TURN)?;
        let now_ns = self.clock.now_ns();
        self.tick(now_ns)?;
        let due_ns = self.world.poll_timeout();
        let ticks = &self.ticks;
        let tick_ns = ticks
            .next_sample_ns
            .min(ticks.next_second_ns)
            .min(ticks.next_flush_ns);
        Ok(
            match self.strategy.wait(now_ns, due_ns, self.buffers.in_use()) {
                // A sample may be some microseconds late.
                Wait::Sleep { until_ns } => (
                    now_ns,
                    Wait::Sleep {
                        until_ns: until_ns.min(tick_ns),
                    },
                ),
                look @ Wait::Poll => (now_ns, look),
            },
        )
    }

    /// Record the end of a sleep.
    #[inline]
    pub(crate) fn slept(&mut self) {
        self.strategy.slept(self.clock.now_ns());
    }

    /// Read packets from the host of an interface; return false if the device has disappeared.
    pub(crate) fn read(&mut self, number: u16) -> Result<bool, Broken> {
        for _ in 0..READS_PER_TURN {
            let tun = &self.interfaces[usize::from(number)].tun;
            let Some(spare) = self.buffers.spare() else {
                // All memory for packets is in use. Packets that arrive now must be read and
                // counted.
                self.counts.no_memory += u64::from(tun.discard());
                return Ok(true);
            };
            // Take the time before the read, which takes a while; the packet has arrived by then.
            let came_ns = self.clock.now_ns();
            match tun.read(spare) {
                Ok(length) => self.admit(came_ns, InterfaceId(number), length)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Stop watching an interface whose device has disappeared.
    pub(crate) fn forget(&self, number: u16, epoll: &Epoll) {
        let _ = epoll.delete(&self.interfaces[usize::from(number)].tun); // it may be removed already
    }

    /// Pass the read packet to the network.
    #[inline]
    fn admit(&mut self, came_ns: u64, from: InterfaceId, length: usize) -> Result<(), Broken> {
        self.strategy.happened(came_ns);
        let bytes = self.buffers.read(length);
        match inspect(bytes) {
            Ok(packet) => {
                let destination = self.world.destination(packet.destination);
                let interface = &self.interfaces[usize::from(from.0)];
                let mtu = interface.mtus[destination.index()];
                if packet.shape.max_bytes() > mtu {
                    self.counts.too_big += u64::from(packet.shape.segments);
                    if packet.dont_fragment {
                        // If the host rejects it, the sender gets no message.
                        let _ = interface.tun.write(&too_big(bytes, mtu));
                    }
                    return Ok(());
                }
                let kept = self.buffers.keep(length, packet.shape.segments);
                self.world
                    .handle_packet(came_ns, from, kept, packet.shape, destination);
            }
            Err(PacketRejection::Protocol) => self.counts.not_ipv4 += 1,
            Err(PacketRejection::Multicast) => self.counts.multicast += 1,
            Err(PacketRejection::Malformed) => self.counts.malformed += 1,
        }
        self.deliver(DELIVERIES_A_READ)
    }

    /// Send due deliveries, up to a maximum number.
    #[inline]
    fn deliver(&mut self, max: usize) -> Result<(), Broken> {
        self.record_event();
        let mut done = 0;
        while done < max {
            let now_ns = self.clock.now_ns();
            match self.world.poll(now_ns) {
                None => break,
                Some(NetworkOutput::Deliver {
                    interface,
                    due_ns,
                    chunk,
                }) => {
                    self.strategy.happened(now_ns);
                    done += 1;
                    // Keep the order: while the writer has deliveries, it gets all later
                    // deliveries, too.
                    let is_helped = self.strategy.is_helped() || self.writer.is_busy();
                    while is_helped && !self.writer.has_capacity() {
                        if let Some(written) = self.writer.wait() {
                            self.note(&written);
                        }
                    }
                    let bytes = self.buffers.bytes(chunk.packet);
                    if is_helped {
                        // SAFETY: the packet is released after the writer has reported it as
                        // written.
                        unsafe { self.writer.write(bytes, interface, chunk, due_ns) };
                        continue;
                    }
                    let late_ns = now_ns.saturating_sub(due_ns);
                    let rejected =
                        self.interfaces[usize::from(interface.0)].hand_over(bytes, &chunk);
                    self.note(&WrittenDelivery {
                        chunk,
                        late_ns,
                        rejected,
                    });
                }
                Some(NetworkOutput::Drop(chunk)) => self.buffers.release(chunk.packet, chunk.count),
                Some(NetworkOutput::Capture { link, sent }) => {
                    if let Some(capture) = self.captures.get_mut(&link) {
                        let bytes = self.buffers.bytes(sent.chunk.packet);
                        capture.add(&sent, bytes, &self.clock);
                    }
                }
                Some(NetworkOutput::Changed { time_ns, link, set }) => {
                    self.report_change(time_ns, link, &set)?
                }
            }
        }
        Ok(())
    }

    /// Process results of the writer.
    #[inline]
    fn record_event(&mut self) {
        while let Some(written) = self.writer.written() {
            self.note(&written);
        }
    }

    /// Record a delivery.
    #[inline]
    fn note(&mut self, written: &WrittenDelivery) {
        self.punctuality.recent.add(written.late_ns);
        self.counts.rejected += written.rejected;
        let chunk = &written.chunk;
        self.buffers.release(chunk.packet, chunk.count);
    }

    /// Start the clock of the planned changes at `elapsed`, once.
    pub(crate) fn go(&mut self, elapsed: Seconds) -> Result<(), EmulatorError> {
        if elapsed < Seconds::ZERO {
            return Err(EmulatorError::Order {
                command: "go",
                expected: "an `elapsed_s` of at least 0".into(),
                found: elapsed.to_string(),
            });
        }
        if std::mem::replace(&mut self.gone, true) {
            return Err(EmulatorError::Order {
                command: "go",
                expected: "`go` once".into(),
                found: "it again".into(),
            });
        }
        let now_ns = self.clock.now_ns();
        self.world.go(now_ns, elapsed);
        Ok(())
    }

    /// Change a link now.
    pub(crate) fn change(
        &mut self,
        link: &Name,
        set: &LinkSet,
    ) -> Result<Result<(), EmulatorError>, Broken> {
        let id = match self.link("change", link) {
            Ok(id) => id,
            Err(error) => return Ok(Err(error)),
        };
        let now_ns = self.clock.now_ns();
        match self.world.handle_change(now_ns, id, set) {
            Ok(()) => self.report_change(now_ns, id, set).map(Ok),
            Err(error) => Ok(Err(error)),
        }
    }

    fn report_change(&self, time_ns: u64, link: LinkId, set: &LinkSet) -> Result<(), Broken> {
        let link = &*self.world.link_names()[usize::from(link.0)];
        let detail = [("link", json!(link)), ("set", json!(set))];
        self.outbox.send(EmulatorRecord::Event(AgentEvent {
            time_s: self.clock.run_s(time_ns),
            kind: "network-change".into(),
            detail: detail.map(|(key, value)| (key.to_owned(), value)).into(),
        }))
    }

    /// Start a capture of a link to a file.
    pub(crate) fn capture(
        &mut self,
        link: &Name,
        path: std::path::PathBuf,
        snap_bytes: Option<u32>,
    ) -> Result<(), EmulatorError> {
        let id = self.link("capture", link)?;
        if self.captures.contains_key(&id) {
            return Err(EmulatorError::Order {
                command: "capture",
                expected: "a link without a capture".into(),
                found: format!("`{link}` with a capture; send `capture_stop` first"),
            });
        }
        let capture = LinkCapture::start(
            link.clone(),
            path,
            snap_bytes,
            self.clock,
            self.outbox.clone(),
        );
        let capture = capture.map_err(|source| EmulatorError::System {
            expected: "a thread for a capture",
            source,
        })?;
        let now_ns = self.clock.now_ns();
        self.captures.insert(id, capture);
        self.world.capture(now_ns, id, true);
        self.ticks.next_flush_ns = now_ns + CAPTURE_FLUSH_NS;
        Ok(())
    }

    /// End the capture of a link.
    pub(crate) fn capture_stop(
        &mut self,
        link: &Name,
    ) -> Result<Result<(), EmulatorError>, Broken> {
        let id = match self.link("capture_stop", link) {
            Ok(id) if self.captures.contains_key(&id) => id,
            Ok(_) => {
                return Ok(Err(EmulatorError::Order {
                    command: "capture_stop",
                    expected: "a link with a capture".into(),
                    found: format!("`{link}`, which has none"),
                }));
            }
            Err(error) => return Ok(Err(error)),
        };
        self.finish_capture(id)?;
        Ok(Ok(()))
    }

    fn finish_capture(&mut self, id: LinkId) -> Result<(), Broken> {
        let now_ns = self.clock.now_ns();
        self.world.capture(now_ns, id, false);
        // Earlier packets are still in the model.
        self.deliver(usize::MAX)?;
        if let Some(capture) = self.captures.remove(&id) {
            self.ending.push(capture.finish());
        }
        Ok(())
    }

    fn link(&self, command: &'static str, name: &Name) -> Result<LinkId, EmulatorError> {
        self.world.link(name).ok_or_else(|| EmulatorError::Order {
            command,
            expected: "the name of a link".into(),
            found: format!("`{name}`"),
        })
    }

    /// Do periodic work when it is due: samples, checks of each second, flushes of files.
    #[inline]
    fn tick(&mut self, now_ns: u64) -> Result<(), Broken> {
        if now_ns >= self.ticks.next_sample_ns {
            self.sample(now_ns)?;
            // Missed samples are skipped.
            let interval_ns = self.ticks.interval_ns.unwrap_or(u64::MAX);
            while self.ticks.next_sample_ns <= now_ns {
                self.ticks.next_sample_ns = self.ticks.next_sample_ns.saturating_add(interval_ns);
            }
        }
        if now_ns >= self.ticks.next_second_ns {
            self.punctuality.second_passed();
            self.ticks.next_second_ns = now_ns + SECOND_NS;
        }
        if now_ns >= self.ticks.next_reading_ns {
            self.strategy
                .see_running(now_ns, machine::running_threads());
            self.ticks.next_reading_ns = now_ns + READING_NS;
        }
        if now_ns >= self.ticks.next_flush_ns {
            self.captures.values_mut().for_each(LinkCapture::flush);
            self.ticks.next_flush_ns = if self.captures.is_empty() {
                u64::MAX
            } else {
                now_ns + CAPTURE_FLUSH_NS
            };
        }
        Ok(())
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "samples are numbers of JSON: exact up to 2^53"
    )]
    fn sample(&mut self, now_ns: u64) -> Result<(), Broken> {
        let links = self.take_counters(now_ns);
        let recent = &self.punctuality.recent;
        let (deliveries, late_ns) = self.punctuality.deliveries();
        let seconds = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e9);
        let counts = self.counts;
        let awake_ns = self.strategy.awake_cpu_ns();
        let emulator = vec![
            ("emulator.late_p50_s", seconds(recent.quantile_ns(0.5))),
            ("emulator.late_p99_s", seconds(recent.quantile_ns(0.99))),
            ("emulator.late_max_s", seconds(recent.largest_ns())),
            ("emulator.late_sum_s", seconds(Some(late_ns))),
            ("emulator.deliveries", Some(deliveries as f64)),
            (
                "emulator.cpu_s",
                seconds(Some(cpu_ns().saturating_sub(awake_ns))),
            ),
            ("emulator.awake_cpu_s", seconds(Some(awake_ns))),
            ("emulator.packets_held", Some(self.buffers.in_use() as f64)),
            (
                "emulator.unrouted",
                Some(self.world.counts().unrouted as f64),
            ),
            ("emulator.too_big", Some(counts.too_big as f64)),
            ("emulator.not_ipv4", Some(counts.not_ipv4 as f64)),
            ("emulator.multicast", Some(counts.multicast as f64)),
            ("emulator.malformed", Some(counts.malformed as f64)),
            ("emulator.no_memory", Some(counts.no_memory as f64)),
            ("emulator.refused", Some(counts.rejected as f64)),
        ];
        self.punctuality.sampled();
        self.outbox.offer(EmulatorCounters {
            time_s: self.clock.run_s(now_ns),
            links,
            emulator,
        })
    }

    /// Return the counters of the links, with the high-water marks since the last call.
    fn take_counters(&mut self, now_ns: u64) -> Vec<LinkCounters> {
        let links = self.world.counters(now_ns);
        self.world.restart_high_water(now_ns);
        for (high, link) in self.high_bytes.iter_mut().zip(&links) {
            *high = link.queue_high_bytes.max(*high);
        }
        links
    }

    /// Send a last sample, the findings, and `done` if requested.
    pub(crate) fn finish(mut self, done: bool) -> Result<(), Broken> {
        for link in self.captures.keys().copied().collect::<Vec<_>>() {
            self.finish_capture(link)?;
        }
        for thread in std::mem::take(&mut self.ending) {
            let _ = thread.join(); // a panic there was printed on stderr
        }
        while let Some(written) = self.writer.wait() {
            self.note(&written);
        }
        let now_ns = self.clock.now_ns();
        if self.ticks.interval_ns.is_some() {
            self.sample(now_ns)?;
        }
        let links = self.take_counters(now_ns);
        let (lateness, late) = self.punctuality.check_timing();
        let lateness = Lateness::from(lateness);
        for finding in late
            .into_iter()
            .chain(report::no_memory(self.counts.no_memory))
        {
            self.outbox.send(EmulatorRecord::Finding(finding))?;
        }
        self.outbox.pass(Message::Overruns)?;
        if done {
            let names = self.world.link_names().iter().cloned();
            let totals = links.iter().zip(&self.high_bytes);
            self.outbox.send(EmulatorRecord::Done(EmulatorDone {
                time_s: self.clock.run_s(now_ns),
                links: names
                    .zip(totals.map(|(link, high)| LinkTotals::new(link, *high)))
                    .collect(),
                lateness,
            }))?;
        }
        Ok(())
    }
}
