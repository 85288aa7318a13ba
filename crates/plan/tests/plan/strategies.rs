//! Strategies for arbitrary plans, records and commands.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use proptest::prelude::*;
use venturi_plan::*;

fn name() -> impl Strategy<Value = Name> {
    "\\PC{0,8}".prop_map(Name::from)
}

fn seconds() -> impl Strategy<Value = Seconds> {
    (prop::num::f64::NORMAL | prop::num::f64::ZERO | prop::num::f64::SUBNORMAL)
        .prop_map(Seconds::new)
}

fn bytes() -> impl Strategy<Value = Bytes> {
    any::<u64>().prop_map(Bytes::new)
}

fn endpoint() -> impl Strategy<Value = Endpoint> {
    let text = prop_oneof![
        Just("null:".to_owned()),
        Just("zero:".to_owned()),
        "[a-z]{1,5}:[a-z0-9 äß\"\\\\]{1,8}(/[a-z]{1,3})?"
    ];
    text.prop_map(|text| text.parse().expect("made to be one"))
}

fn via() -> impl Strategy<Value = Option<Via>> {
    prop::option::of("[a-z äß\"]{1,5}/[a-z]{1,5}".prop_map(|text| text.parse().expect("a way")))
}

fn or_draw<T: std::fmt::Debug + Clone>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = OrDraw<T>> {
    prop_oneof![
        value.prop_map(OrDraw::Fixed),
        name().prop_map(|draw| OrDraw::Draw(DrawName { draw }))
    ]
}

fn scalar() -> impl Strategy<Value = Scalar> {
    prop_oneof![
        Just(Scalar::Null),
        any::<bool>().prop_map(Scalar::Bool),
        any::<i64>().prop_map(Scalar::Integer),
        (prop::num::f64::NORMAL | prop::num::f64::ZERO).prop_map(Scalar::Number),
        name().prop_map(Scalar::Text),
    ]
}

fn map<T: std::fmt::Debug>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = BTreeMap<Name, T>> {
    prop::collection::btree_map(name(), value, 0..3)
}

fn leaf() -> impl Strategy<Value = Step> {
    let transfer = (
        name(),
        any::<u32>(),
        or_draw(endpoint()),
        or_draw(endpoint()),
        any::<u64>(),
        or_draw(bytes()),
        (any::<bool>(), via(), via()),
        map(scalar()),
    );
    let transfer = transfer.prop_map(
        |(
            call,
            slot,
            source,
            destination,
            files,
            bytes,
            (keep, source_via, destination_via),
            labels,
        )| {
            Step::Transfer(Box::new(TransferStep {
                call,
                slot,
                source,
                source_via,
                destination,
                destination_via,
                files,
                bytes,
                keep,
                labels,
            }))
        },
    );
    let read = (
        name(),
        any::<u32>(),
        or_draw(endpoint()),
        or_draw(bytes()),
        or_draw(bytes()),
        via(),
    )
        .prop_map(|(call, slot, source, offset_bytes, bytes, source_via)| {
            Step::Read(Box::new(ReadStep {
                call,
                slot,
                source,
                source_via,
                offset_bytes,
                bytes,
            }))
        });
    let files = (name(), any::<u64>(), any::<u64>(), any::<bool>()).prop_map(
        |(dataset, first, files, warm)| {
            let cache = if warm { Cache::Warm } else { Cache::AsIs };
            Step::Prepare(PrepareStep {
                dataset,
                first,
                files,
                cache,
            })
        },
    );
    prop_oneof![
        transfer,
        read,
        files,
        or_draw(seconds()).prop_map(|time_s| Step::At(AtStep { time_s })),
        or_draw(seconds()).prop_map(|core_s| Step::Compute(ComputeStep { core_s })),
        or_draw(seconds()).prop_map(|duration_s| Step::Pause(PauseStep { duration_s })),
        (name(), any::<u64>()).prop_map(|(counter, add)| Step::Signal(SignalStep { counter, add })),
        (name(), any::<u64>()).prop_map(|(counter, until)| Step::Wait(WaitStep { counter, until })),
        (name(), any::<u32>()).prop_map(|(pool, count)| Step::Acquire(PoolStep { pool, count })),
        (name(), any::<u32>()).prop_map(|(pool, count)| Step::Release(PoolStep { pool, count })),
        (name(), any::<u64>(), any::<u64>()).prop_map(|(dataset, first, files)| Step::DropCaches(
            DropCachesStep {
                dataset,
                first,
                files
            }
        )),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    leaf().prop_recursive(3, 16, 3, |inner| {
        let steps = prop::collection::vec(inner, 0..3);
        let limit = prop_oneof![
            any::<u64>().prop_map(RepeatLimit::Count),
            seconds().prop_map(RepeatLimit::Until),
            seconds().prop_map(RepeatLimit::For)
        ];
        prop_oneof![
            (limit, steps.clone())
                .prop_map(|(limit, steps)| Step::Repeat(RepeatStep { limit, steps })),
            (
                prop::collection::vec((seconds(), 0.0..1e9), 0..3),
                or_draw(0.0..1e9),
                prop::option::of(or_draw(0.0..1e9)),
                steps.clone()
            )
                .prop_map(|(rate_per_s, gap, first, steps)| Step::Arrivals(
                    ArrivalsStep {
                        rate_per_s,
                        gap,
                        first,
                        steps
                    }
                )),
            prop::collection::vec(steps.clone(), 0..3)
                .prop_map(|children| Step::Parallel(ParallelStep { children })),
            (
                any::<u32>(),
                any::<u32>(),
                any::<u32>(),
                any::<u32>(),
                map(scalar()),
                prop::option::of(seconds()),
                map(any::<u64>()),
                steps
            )
                .prop_map(
                    |(id, point, repetition, block, factors, until_s, counts, steps)| {
                        let id = TrialId::new(id);
                        Step::Trial(Box::new(TrialStep {
                            id,
                            point,
                            repetition,
                            block,
                            factors,
                            until_s,
                            counts,
                            steps,
                        }))
                    }
                ),
        ]
    })
}

fn draw() -> impl Strategy<Value = Draw> {
    let number = || prop::num::f64::NORMAL;
    let values = || prop::collection::vec(scalar(), 0..3);
    prop_oneof![
        (number(), number()).prop_map(|(low, high)| Draw::Uniform { low, high }),
        number().prop_map(|mean| Draw::Exponential { mean }),
        values().prop_map(|values| Draw::Choice { values }),
        (values(), prop::collection::vec(number(), 0..3))
            .prop_map(|(values, weights)| Draw::Weighted { values, weights }),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    let argument = prop_oneof![
        ".{0,8}".prop_map(Argument::One),
        prop::collection::vec(".{0,8}", 0..3).prop_map(Argument::Group),
    ];
    (
        ".*",
        map(scalar()),
        prop::collection::vec(argument, 0..3),
        seconds(),
        any::<bool>(),
        any::<bool>(),
        via(),
    )
        .prop_map(|(mover, options, argv, timeout_s, capture, proof, via)| {
            let expect = if proof {
                Expect::Destination
            } else {
                Expect::Nothing
            };
            Call {
                requires: vec![mover.clone()],
                local: format!("{mover}{{path}}"),
                mover,
                options,
                argv,
                timeout_s,
                capture,
                expect,
                urls: via.map(|via| ("proxy".into(), via)).into_iter().collect(),
            }
        })
}

fn texts() -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map(".{0,4}", ".*", 0..3)
}

fn rate() -> impl Strategy<Value = Option<f64>> {
    prop::option::of(prop::num::f64::NORMAL)
}

fn lab_host() -> impl Strategy<Value = LabHost> {
    (
        prop::option::of(".*"),
        prop::option::of(prop::collection::vec(any::<u32>(), 0..3)),
        rate(),
        prop::option::of(bytes()),
        texts(),
        texts(),
        prop::collection::vec(".{0,4}", 0..2),
    )
        .prop_map(
            |(site, cpus, cpu_limit_cores, memory_limit_bytes, sysctls, routes, nat)| LabHost {
                cpus,
                cpu_limit_cores,
                memory_limit_bytes,
                congestion_control: "reno".into(),
                sysctls,
                default_device: site.clone(),
                site,
                nat,
                routes,
            },
        )
}

fn storage() -> impl Strategy<Value = StorageSpec> {
    let kind = prop_oneof![
        Just(StorageKind::Directory),
        Just(StorageKind::Tmpfs),
        Just(StorageKind::Disk)
    ];
    (kind, prop::option::of(bytes()), rate(), rate()).prop_map(
        |(kind, size_bytes, read_bytes_per_s, write_bytes_per_s)| StorageSpec {
            kind,
            size_bytes,
            read_bytes_per_s,
            write_bytes_per_s,
        },
    )
}

fn service() -> impl Strategy<Value = Service> {
    let names = || prop::collection::vec(name(), 0..3);
    (
        ".*",
        prop::option::of(name()),
        prop::option::of(name()),
        names(),
        names(),
        map(scalar()),
        prop::collection::vec(any::<u16>(), 0..3),
        map(".*"),
    )
        .prop_map(
            |(kind, host, interface, storages, after, options, ports, service_ports)| Service {
                kind,
                host,
                interface,
                storages,
                options,
                after,
                ports,
                service_ports,
            },
        )
}

fn loss() -> impl Strategy<Value = Loss> {
    let number = || prop::num::f64::NORMAL;
    prop_oneof![
        number().prop_map(|probability| Loss::Independent { probability }),
        (number(), number(), number()).prop_map(|(enter, leave, probability)| Loss::Bursty {
            enter,
            leave,
            probability
        }),
    ]
}

fn network() -> impl Strategy<Value = Network> {
    let interface = (name(), ".*", any::<u32>(), any::<u32>(), any::<bool>()).prop_map(
        |(host, device, address, mtu, offload)| Interface {
            host,
            device,
            address: Ipv4Addr::from(address),
            mtu,
            offload,
        },
    );
    let link = (
        (name(), name()),
        prop::num::f64::NORMAL,
        (seconds(), seconds()),
        bytes(),
        prop::option::of(loss()),
        any::<u32>(),
        any::<bool>(),
    )
        .prop_map(
            |((from, to), number, (delay_s, jitter_s), queue_bytes, loss, overhead_bytes, up)| {
                Link {
                    from,
                    to,
                    rate_bit_per_s: number,
                    delay_s,
                    jitter_s,
                    queue_bytes,
                    loss,
                    reorder_probability: number,
                    overhead_bytes,
                    up,
                }
            },
        );
    let set = (
        rate(),
        prop::option::of(seconds()),
        prop::option::of(bytes()),
        prop::option::of(prop::option::of(loss())),
        any::<Option<bool>>(),
    )
        .prop_map(|(number, time, queue_bytes, loss, up)| LinkSet {
            rate_bit_per_s: number,
            delay_s: time,
            jitter_s: time,
            queue_bytes,
            loss,
            reorder_probability: number,
            up,
        });
    let change =
        (seconds(), name(), set).prop_map(|(time_s, link, set)| Change { time_s, link, set });
    (
        map(interface),
        prop::collection::vec(name(), 0..2),
        map(link),
        map(map(name())),
        prop::collection::vec(change, 0..2),
    )
        .prop_map(|(interfaces, routers, links, routes, changes)| Network {
            interfaces,
            routers,
            links,
            routes,
            changes,
        })
}

pub fn header() -> impl Strategy<Value = Header> {
    let host = (
        prop::option::of(".*"),
        prop::option::of(bytes()),
        prop::option::of(lab_host()),
        prop::option::of(prop::collection::vec(".*", 0..3)),
        prop::option::of(".*"),
        prop::option::of(any::<(u16, u16)>()),
        texts(),
    )
        .prop_map(
            |(ssh, memory_bytes, lab, connect, text, open_ports, environment)| Host {
                ssh,
                memory_bytes,
                lab,
                connect,
                address: text.clone(),
                open_ports: open_ports
                    .map(|(a, b)| PortRange::try_from((a.min(b), a.max(b))).expect("in order")),
                cache: text,
                environment,
            },
        );
    let text = || prop::option::of(".*");
    let spec = prop::option::of(storage());
    let storage_spec = (prop::option::of(name()), ".*", spec, text(), text()).prop_map(
        |(host, path, spec, url, checksum)| Storage {
            existing: url.is_some(),
            host,
            path,
            spec,
            url,
            checksum,
        },
    );
    let group = (any::<std::num::NonZeroU64>(), bytes())
        .prop_map(|(files, size_bytes)| SizeGroup { files, size_bytes });
    let mix = prop::collection::vec(group, 0..4);
    let dataset = (name(), ".*", any::<u64>(), bytes(), any::<u64>(), mix).prop_map(
        |(storage, path, files, size_bytes, seed, mix)| Dataset {
            storage,
            path,
            files,
            size_bytes,
            seed,
            mix,
            names: Vec::new(),
            listed: false,
        },
    );
    let recorded = prop_oneof![Just(Recorded::Each), Just(Recorded::Routes)];
    let measure =
        (prop::option::of(seconds()), recorded).prop_map(|(interval_s, transfers)| Measure {
            interval_s,
            counters: vec![CounterFamily::Cpu, CounterFamily::Tcp],
            transfers,
        });
    let totals = (
        any::<u64>(),
        any::<Option<u64>>(),
        prop::option::of(bytes()),
        map(bytes()),
    )
        .prop_map(|(trials, transfers, bytes, disk_bytes)| Totals {
            trials,
            transfers,
            bytes,
            disk_bytes,
        });
    let names = (
        map(host),
        (
            map(storage_spec),
            map(service()),
            prop::option::of(network()),
        ),
        map(dataset),
        map(call()),
        map(draw()),
        map(any::<u32>()),
    );
    (
        ".*",
        any::<u64>(),
        prop::num::f64::NORMAL,
        names,
        measure,
        (totals, prop::option::of(cost())),
    )
        .prop_map(|(name, seed, scale, names, measure, (totals, cost))| {
            let (hosts, (storages, services, network), datasets, calls, draws, pools) = names;
            let scenario = serde_json::json!({"venturi": 1, "list": [null, 1.5, name]});
            let (format, version) = (Format::default(), Version::default());
            Header {
                format,
                version,
                name,
                seed,
                scale,
                scenario,
                hosts,
                storages,
                services,
                network,
                datasets,
                calls,
                draws,
                pools,
                measure,
                totals,
                cost,
            }
        })
}

fn amount() -> impl Strategy<Value = Option<Amount>> {
    prop::option::of((0.0..1e12_f64).prop_map(|it| Amount::new(it).unwrap()))
}

fn cost() -> impl Strategy<Value = Cost> {
    let mover = (amount(), amount(), prop::option::of(any::<u32>())).prop_map(|it| MoverCost {
        start_s: it.0,
        file_round_trips: it.1,
        pipelining: it.2,
        ..MoverCost::default()
    });
    let rule = (".*", prop::option::of(".*"), map(scalar()), mover).prop_map(
        |(mover, source, options, cost)| MoverRule {
            mover,
            source,
            destination: None,
            options,
            cost,
        },
    );
    let service = amount().prop_map(|auth_core_s| ServiceCost {
        auth_core_s,
        ..ServiceCost::default()
    });
    let storage = amount().prop_map(|seek_s| StorageCost {
        seek_s,
        ..StorageCost::default()
    });
    let host = prop::option::of(prop::num::f64::NORMAL).prop_map(|rtt_exponent| HostCost {
        rtt_exponent,
        ..HostCost::default()
    });
    let movers = prop::collection::vec(rule, 0..3);
    let named = (map(service), map(storage), map(host));
    (movers, named, amount()).prop_map(|(movers, (services, storages, hosts), machine_cores)| {
        Cost {
            movers,
            services,
            storages,
            hosts,
            machine_cores,
        }
    })
}

pub fn actor_line() -> impl Strategy<Value = ActorLine> {
    (name(), name(), prop::collection::vec(step(), 0..4))
        .prop_map(|(actor, host, steps)| ActorLine { actor, host, steps })
}

fn transfer_record() -> impl Strategy<Value = TransferRecord> {
    let plan = (
        prop::option::of(any::<u32>()),
        name(),
        (endpoint(), via(), via()),
        map(scalar()),
    );
    let times = prop::option::of(seconds());
    (
        plan,
        times,
        prop::option::of(bytes()),
        prop::option::of(any::<i32>()),
        prop::option::of(".*"),
    )
        .prop_map(
            |(
                (trial, actor, (endpoint, source_via, destination_via), labels),
                time,
                some_bytes,
                code,
                text,
            )| TransferRecord {
                trial: trial.map(TrialId::new),
                slot: 1,
                call: actor.clone(),
                actor,
                source: endpoint,
                source_via,
                destination: Endpoint::null(),
                destination_via,
                files: 2,
                requested_bytes: Bytes::new(3),
                received_bytes: some_bytes,
                checked_by: some_bytes.map(|_| CheckedBy::Server),
                checksum: text.clone(),
                intended_s: time,
                start_s: time,
                end_s: time,
                duration_s: time,
                outcome: Outcome::Timeout,
                exit_code: code,
                signal: code,
                error: text.clone(),
                user_s: time,
                system_s: None,
                max_rss_bytes: some_bytes,
                minor_faults: Some(1),
                major_faults: None,
                voluntary_switches: Some(2),
                involuntary_switches: None,
                read_call_bytes: some_bytes,
                write_call_bytes: None,
                read_disk_bytes: None,
                write_disk_bytes: some_bytes,
                stdout: text.clone(),
                stderr: text,
                labels,
            },
        )
}

fn other_host() -> impl Strategy<Value = OtherHost> {
    (".*", any::<bool>(), prop::collection::vec(name(), 0..3)).prop_map(
        |(scratch, seen, storages)| OtherHost {
            scratch,
            seen,
            storages,
        },
    )
}

fn service_address() -> impl Strategy<Value = ServiceAddress> {
    (".*", prop::collection::vec(any::<u16>(), 0..3))
        .prop_map(|(address, ports)| ServiceAddress { address, ports })
}

fn sizes() -> impl Strategy<Value = Sizes> {
    let group = (any::<std::num::NonZeroU64>(), bytes())
        .prop_map(|(files, size_bytes)| SizeGroup { files, size_bytes });
    prop::collection::vec(group, 1..4).prop_map(|groups| groups.try_into().expect("not empty"))
}

fn file_set() -> impl Strategy<Value = Option<FileSet>> {
    let set = (any::<u64>(), any::<u64>(), prop::option::of(sizes())).prop_map(
        |(first, files, sizes)| FileSet {
            first,
            files,
            sizes,
        },
    );
    prop::option::of(set)
}

fn removal() -> impl Strategy<Value = Removal> {
    prop_oneof![
        Just(Removal::Keep),
        Just(Removal::Remove),
        Just(Removal::Files),
        Just(Removal::Rejected)
    ]
}

fn operation() -> impl Strategy<Value = FileOperation> {
    let dataset = || {
        (name(), ".*", any::<u64>(), sizes(), any::<u64>()).prop_map(
            |(dataset, directory, seed, sizes, first)| DatasetFiles {
                dataset,
                directory,
                seed,
                sizes,
                first,
                files: 3,
                names: Vec::new(),
            },
        )
    };
    let clear = (".*", file_set(), prop::option::of(".*"), any::<[bool; 3]>());
    let checksum =
        (".*", name(), ".*").prop_map(|(algorithm, source_host, source)| ChecksumCheck {
            algorithm,
            source_host,
            source,
        });
    let checksum = prop::option::of(checksum);
    let checked = (".*", file_set(), bytes(), any::<bool>(), checksum).prop_map(
        |(path, files, requested_bytes, late, checksum)| CheckedDestination {
            path,
            files,
            requested_bytes,
            late,
            checksum,
        },
    );
    let removed =
        (".*", file_set(), removal(), any::<bool>()).prop_map(|(path, files, removal, failed)| {
            RemovedDestination {
                path,
                files,
                removal,
                failed,
            }
        });
    prop_oneof![
        (dataset(), seconds()).prop_map(|(files, stall_timeout_s)| {
            let cache = Cache::Warm;
            FileOperation::Prepare(PrepareOperation {
                files,
                cache,
                stall_timeout_s,
            })
        }),
        (dataset(), seconds()).prop_map(|(files, stall_timeout_s)| {
            FileOperation::DropCaches(DropCachesOperation {
                files,
                stall_timeout_s,
            })
        }),
        clear.prop_map(|(path, files, source, [in_scratch, keep, started])| {
            FileOperation::Clear(ClearOperation {
                path,
                files,
                source,
                in_scratch,
                keep,
                started,
            })
        }),
        (prop::collection::vec(checked, 0..3), seconds()).prop_map(|(destinations, grace_s)| {
            FileOperation::Check(CheckOperation {
                destinations,
                grace_s,
            })
        }),
        prop::collection::vec(removed, 0..3)
            .prop_map(|destinations| FileOperation::Remove(RemoveOperation { destinations })),
        (".*", ".*", dataset(), prop::option::of(".*")).prop_map(
            |(directory, name, set, source)| {
                FileOperation::Link(LinkOperation {
                    directory,
                    name,
                    files: FileSet {
                        first: set.first,
                        files: set.files,
                        sizes: Some(set.sizes),
                    },
                    source,
                })
            }
        ),
    ]
}

fn operation_result() -> impl Strategy<Value = OperationResult> {
    let text = || prop::option::of(".*");
    let state = (bytes(), text(), prop::option::of(seconds()), text(), text()).prop_map(
        |(bytes, lacking, wait_s, differs, checksum)| {
            ReceiverState::Received(ReceivedBytes {
                bytes,
                more: lacking.is_none(),
                lacking,
                differs,
                checksum,
                late: wait_s.map(|wait_s| LateBytes {
                    first_bytes: bytes,
                    wait_s,
                }),
            })
        },
    );
    let state = prop_oneof![state, ".*".prop_map(ReceiverState::Error)];
    let outcome = prop_oneof![
        (any::<bool>(), prop::option::of(".*")).prop_map(|(failed, kind)| {
            let detail = BTreeMap::from([("made".to_owned(), serde_json::json!(3))]);
            OperationOutcome::Prepared(PrepareOutcome {
                event: kind.map(|kind| OperationEvent { kind, detail }),
                failed,
                ..PrepareOutcome::default()
            })
        }),
        (
            removal(),
            prop::option::of(prop::collection::vec(".*", 0..3))
        )
            .prop_map(
                |(removal, siblings)| OperationOutcome::Cleared(ClearOutcome { removal, siblings })
            ),
        prop::collection::vec(state, 0..3)
            .prop_map(|destinations| OperationOutcome::Checked(CheckOutcome { destinations })),
        prop::collection::vec(prop::option::of(".*"), 0..3)
            .prop_map(|errors| OperationOutcome::Removed(RemoveOutcome { errors })),
    ];
    prop_oneof![
        outcome.prop_map(OperationResult::Outcome),
        ".*".prop_map(OperationResult::Error)
    ]
}

pub fn record() -> impl Strategy<Value = Record> {
    let finding = ".*".prop_map(|text| Finding {
        code: text.clone(),
        subject: text.clone(),
        evidence: text.clone(),
        advice: text,
    });
    let properties = || {
        BTreeMap::from([(
            "cpu".to_owned(),
            serde_json::json!({"model": "x", "cores": 4}),
        )])
    };
    let trial = (
        prop::collection::vec(transfer_record(), 0..2),
        prop::collection::vec(finding.clone(), 0..2),
        seconds(),
    );
    prop_oneof![
        any::<u64>().prop_map(move |time| {
            let clock = Clock {
                monotonic_ns: time,
                unix_ns: time,
            };
            Record::Hello(Hello {
                protocol: PROTOCOL,
                engine: "0.1.0".into(),
                pid: 1,
                clock,
                properties: properties(),
            })
        }),
        (map(bytes()), map(Just(vec!["tool".to_owned()]))).prop_map(|(free_bytes, missing)| {
            let memory_bytes = Bytes::new(1);
            Record::Ready(Ready {
                free_bytes,
                missing,
                release: ReleaseMethod::ExecStop,
                memory_bytes: Some(memory_bytes),
                tools: BTreeMap::from([("cp".into(), "cp 9.1".into())]),
                storages: BTreeMap::from([(
                    "disk".into(),
                    BTreeMap::from([("type".into(), "ext4".into())]),
                )]),
            })
        }),
        seconds().prop_map(|time_s| Record::TrialStart(TrialStart {
            trial: TrialId::new(3),
            time_s
        })),
        trial.prop_map(|(transfers, findings, time)| Record::Trial(Box::new(Trial {
            trial: TrialId::new(1),
            actor: "a".into(),
            start_s: time,
            end_s: time,
            outcome: TrialOutcome::Failed,
            cache: Some(CacheState {
                state: "cold".into(),
                method: "m".into(),
                resident_ratio: Some(0.1)
            }),
            transfers,
            findings,
        }))),
        transfer_record().prop_map(|transfer| Record::Transfer(Box::new(transfer))),
        (seconds(), map(prop::num::f64::NORMAL))
            .prop_map(|(time_s, counters)| Record::Sample(Sample { time_s, counters })),
        (seconds(), prop::option::of(bytes()), rate()).prop_map(
            |(time_s, some_bytes, some_rate)| {
                let socket = Socket {
                    local: "10.77.0.1:2811".into(),
                    remote: "10.77.0.2:40000".into(),
                    state: "established".into(),
                    closed: some_rate.is_none(),
                    congestion_control: Some("cubic".into()),
                    cwnd_bytes: some_bytes,
                    rtt_s: Some(time_s),
                    retransmits: Some(1),
                    delivery_bytes_per_s: some_rate,
                    ..Socket::default()
                };
                Record::Sockets(Sockets {
                    time_s,
                    sockets: vec![socket],
                })
            }
        ),
        seconds().prop_map(move |time_s| Record::Event(AgentEvent {
            time_s,
            kind: "k".into(),
            detail: properties()
        })),
        (name(), any::<u64>()).prop_map(|(counter, add)| Record::Signal(Signal { counter, add })),
        finding.prop_map(Record::Finding),
        name().prop_map(|service| Record::TrialSkipped(TrialSkipped {
            trial: TrialId::new(5),
            service
        })),
        (seconds(), name(), any::<u16>(), any::<bool>(), ".*").prop_map(
            |(time_s, service, number, is_status, error)| {
                let reason = if is_status {
                    EndReason::Status(number)
                } else {
                    EndReason::Failures(number.into())
                };
                Record::ServiceEnded(ServiceEnded {
                    time_s,
                    service,
                    reason,
                    error,
                })
            }
        ),
        seconds().prop_map(|time_s| Record::Idle(Idle { time_s })),
        (seconds(), any::<u64>())
            .prop_map(|(time_s, trials)| Record::Done(Done { time_s, trials })),
        (any::<u64>(), name(), operation()).prop_map(|(number, host, operation)| {
            Record::Request(Request {
                number,
                host,
                operation,
            })
        }),
        (any::<bool>(), ".*").prop_map(|(in_use, message)| {
            let kind = in_use.then_some(FatalKind::ScratchInUse);
            Record::Fatal(Fatal { kind, message })
        }),
    ]
}

pub fn command() -> impl Strategy<Value = Command> {
    let start = (
        header(),
        name(),
        any::<u64>(),
        prop::collection::btree_set(any::<u32>().prop_map(TrialId::new), 0..3),
        (
            map(other_host()),
            map(service_address()),
            prop::option::of(seconds()),
        ),
        prop::option::of(texts()),
        any::<bool>(),
        (
            prop::option::of(any::<u32>()),
            prop::collection::btree_set(name(), 0..3),
        ),
    );
    prop_oneof![
        start.prop_map(
            |(
                header,
                host,
                epoch_unix_ns,
                skip,
                (hosts, services, silence_s),
                cgroups,
                stay,
                (server_failures, ended_services),
            )| {
                let (scratch, search) = ("/s".into(), vec!["/bin".into()]);
                Command::Start(Box::new(Start {
                    host,
                    scratch,
                    epoch_unix_ns,
                    header,
                    skip,
                    search,
                    hosts,
                    services,
                    silence_s,
                    work_groups: cgroups
                        .iter()
                        .flat_map(|map| map.values().cloned())
                        .collect(),
                    cgroups,
                    run_directory: stay.then(|| "venturi-run".into()),
                    stay,
                    server_failures,
                    ended_services,
                }))
            }
        ),
        actor_line().prop_map(|line| Command::Actor(ActorCommand { line })),
        (name(), any::<u64>())
            .prop_map(|(counter, value)| Command::Counter(CounterCommand { counter, value })),
        name().prop_map(|service| Command::EndService(EndServiceCommand { service })),
        (any::<u64>(), operation_result())
            .prop_map(|(number, result)| Command::Response(Response { number, result })),
        Just(Command::Heartbeat),
        Just(Command::Go),
        Just(Command::Stop),
    ]
}
