//! Counters at the interval of the plan: of network cards as a host counts them, of links as the wire of a lab does.

use std::collections::BTreeMap;
use std::sync::Arc;

use venturi_plan::{CounterFamily, Finding, Name, Sample, Seconds};

use super::Simulation;
use super::meters::Meters;
use super::said::{Line, Said};
use crate::world::{LinkNumber, World};

/// The host under whose name links are sampled, as in a lab.
const NETWORK: &str = "network";

/// The counter of transfers under way.
const LIVE: &str = "transfers.live";

/// Most samples that are kept. When there are more, every other one is left out, and from then on only every other one is taken.
pub(super) const MOST_SAMPLES: usize = 20_000;

/// What is sampled, and when next.
#[derive(Debug)]
pub(super) struct Sampler {
    interval_s: f64,
    /// Only samples whose number is a multiple of this are taken.
    stride: u64,
    /// Number of the next sample.
    next: u64,
    /// A sample that was left out, as nothing had moved since the one before.
    left_out: Option<u64>,
    changed: bool,
    cards: Vec<Vec<Card>>,
    links: Vec<(LinkNumber, Name, Name)>,
    /// Whether the plan asks for network cards.
    nic: bool,
    kept: Vec<Kept>,
}

/// All counters at one moment.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    number: u64,
    pub time_s: f64,
    pub payload: Box<[f64]>,
    pub busy_s: Box<[f64]>,
    pub loopback: Box<[f64]>,
}

impl Kept {
    /// Before anything has moved.
    pub fn nothing(links: usize, hosts: usize) -> Self {
        Self {
            number: 0,
            time_s: 0.0,
            payload: vec![0.0; links].into(),
            busy_s: vec![0.0; links].into(),
            loopback: vec![0.0; hosts].into(),
        }
    }
}

#[derive(Debug)]
struct Card {
    received: Name,
    sent: Name,
    link_in: Option<LinkNumber>,
    link_out: Option<LinkNumber>,
}

impl Sampler {
    /// None if the plan asks for no samples.
    pub fn new(world: &World, hosts: &[Name]) -> Option<Self> {
        let measure = &world.header.measure;
        let interval_s = measure
            .interval_s
            .map(Seconds::get)
            .filter(|interval_s| *interval_s > 0.0)?;
        let nic = measure.counters.contains(&CounterFamily::Nic);
        let card = |(device, link_out, link_in): (String, _, _)| Card {
            received: format!("nic.{device}.rx_bytes").into(),
            sent: format!("nic.{device}.tx_bytes").into(),
            link_in,
            link_out,
        };
        let cards = |host: &Name| match nic {
            true => world.devices_of(host).into_iter().map(card).collect(),
            false => Vec::new(),
        };
        let links = world.links.iter().enumerate().map(|(number, link)| {
            (
                number,
                format!("link.{}.bytes", link.name).into(),
                format!("link.{}.busy_s", link.name).into(),
            )
        });
        Some(Self {
            interval_s,
            stride: 1,
            next: 0,
            left_out: None,
            changed: true,
            cards: hosts.iter().map(cards).collect(),
            links: links.collect(),
            nic,
            kept: Vec::new(),
        })
    }

    /// No sample is of a time before the plan is carried on with.
    pub fn from(mut self, start_s: f64) -> Self {
        self.next = (start_s / self.interval_s).ceil() as u64;
        self
    }

    fn keep(&mut self, meters: &Meters, number: u64, time_s: f64) {
        if self.kept.len() == MOST_SAMPLES {
            self.stride *= 2;
            let stride = self.stride;
            self.kept.retain(|kept| kept.number.is_multiple_of(stride));
        }
        self.kept.push(Kept {
            number,
            time_s,
            payload: meters.payload.as_slice().into(),
            busy_s: meters.busy_s.as_slice().into(),
            loopback: meters.loopback.as_slice().into(),
        });
    }
}

impl Simulation {
    /// Takes the samples that are due up to the next event; they do not change what happens.
    pub(super) fn sample_until(&mut self, time_s: f64) -> Result<(), crate::world::Error> {
        if self.ledger.is_some() {
            self.look(time_s);
            return Ok(());
        }
        let Some(mut sampler) = self.sampler.take() else {
            return Ok(());
        };
        loop {
            if self.meters.is_idle() && !sampler.changed {
                // Nothing moves: all but the last of them say what the first has said.
                let last = (time_s / sampler.interval_s) as u64 / sampler.stride * sampler.stride;
                if last >= sampler.next {
                    sampler.left_out = Some(last);
                    sampler.next = last + sampler.stride;
                }
                break;
            }
            let due_s = sampler.next as f64 * sampler.interval_s;
            if due_s > time_s {
                break;
            }
            if let Some(number) = sampler.left_out.take() {
                sampler.keep(&self.meters, number, number as f64 * sampler.interval_s);
            }
            self.pass_to(due_s)?;
            sampler.changed = !self.meters.is_idle();
            let number = sampler.next;
            sampler.keep(&self.meters, number, due_s);
            sampler.next = (number / sampler.stride + 1) * sampler.stride;
        }
        self.sampler = Some(sampler);
        Ok(())
    }

    /// Something begins to move: the next sample will differ.
    pub(super) fn note_change(&mut self) {
        if let Some(sampler) = &mut self.sampler {
            sampler.changed = true;
        }
    }

    /// Says all samples, at the end: only then is it known how many there are.
    pub(super) fn tell_samples(&mut self) {
        let Some(mut sampler) = self.sampler.take() else {
            return;
        };
        let doubt = if let Some(ledger) = self.ledger.take() {
            for (kept, live) in ledger.kept(self.now) {
                self.tell_sample(&sampler, &kept, Some(live));
            }
            ledger.doubt(self.now)
        } else {
            let next = sampler.next;
            sampler.keep(&self.meters, next, self.now);
            for kept in &sampler.kept {
                self.tell_sample(&sampler, kept, None);
            }
            (sampler.stride > 1).then(|| thinned(self.now, sampler.interval_s, sampler.stride))
        };
        self.out.extend(doubt.map(|finding| Line {
            host: Arc::from(NETWORK),
            said: Said::Finding(finding),
        }));
    }

    /// `live`: transfers under way, where they are not recorded each.
    fn tell_sample(&mut self, sampler: &Sampler, kept: &Kept, live: Option<u64>) {
        let time_s = Seconds::new(kept.time_s);
        if sampler.nic {
            self.tell_cards(sampler, kept);
        }
        if sampler.links.is_empty() && live.is_none() {
            return;
        }
        let both = sampler.links.iter().flat_map(|(number, bytes, busy)| {
            let passed = kept.payload[*number] * self.world.links[*number].wire_ratio;
            [
                (bytes.clone(), passed.round()),
                (busy.clone(), kept.busy_s[*number]),
            ]
        });
        let live = live.map(|live| (LIVE.into(), live as f64));
        let said = Said::Sample(Sample {
            time_s,
            counters: both.chain(live).collect(),
        });
        self.out.push_back(Line {
            host: Arc::from(NETWORK),
            said,
        });
    }
}

impl Simulation {
    /// What the network cards of each host have carried.
    fn tell_cards(&mut self, sampler: &Sampler, kept: &Kept) {
        let time_s = Seconds::new(kept.time_s);
        let over = |world: &World, link: Option<LinkNumber>| {
            link.map_or(0.0, |link| {
                kept.payload[link] * world.links[link].packet_ratio
            })
        };
        for (host, cards) in sampler.cards.iter().enumerate() {
            let both = cards.iter().flat_map(|card| {
                [
                    (
                        card.received.clone(),
                        over(&self.world, card.link_in).round(),
                    ),
                    (card.sent.clone(), over(&self.world, card.link_out).round()),
                ]
            });
            let mut counters: BTreeMap<Name, f64> = both.collect();
            let own = kept.loopback[host].round();
            counters.insert(self.lo.0.clone(), own);
            counters.insert(self.lo.1.clone(), own);
            self.say(host, Said::Sample(Sample { time_s, counters }));
        }
    }
}

/// That samples are fewer than the plan asks for.
pub(super) fn thinned(end_s: f64, interval_s: f64, stride: u64) -> Finding {
    Finding {
        code: "samples-thinned".into(),
        subject: NETWORK.into(),
        evidence: format!(
            "in {end_s} s there were more than {MOST_SAMPLES} samples at {interval_s} s: one in {stride} was kept"
        ),
        advice:
            "ask for a longer measure.interval, or a shorter plan; totals are exact all the same"
                .into(),
    }
}
