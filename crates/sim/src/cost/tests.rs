//! Tests of formulas against closed forms, published numbers, and small simulations of the
//! processes whose mean they give.

mod caches;
pub(crate) mod che;
mod files;
mod jobs;
mod loss;
mod slow_start;

use super::*;

fn amount(value: f64) -> Option<Amount> {
    Some(Amount::new(value).expect("a test's own number"))
}

fn near(found: f64, expected: f64, tolerance: f64) {
    let error = (found - expected).abs() / expected.abs().max(1e-300);
    assert!(
        error <= tolerance,
        "expected {expected}, found {found} ({error:e} off)"
    );
}

/// Return the time of phases without other load, at most at `rate` bytes a second.
fn time_alone_s(phases: &[TransferPhase], rate: f64) -> f64 {
    let (mut now_s, mut mark_s) = (0.0, 0.0);
    for phase in phases {
        match *phase {
            TransferPhase::Delay { seconds, .. } => now_s += seconds,
            TransferPhase::ClientCpu { core_s, width, .. }
            | TransferPhase::ServerCpu { core_s, width, .. } => {
                now_s += core_s / width;
            }
            TransferPhase::Bytes { bytes, cap, .. } => now_s += bytes / cap.min(rate),
            TransferPhase::Mark => mark_s = now_s,
            TransferPhase::NotBefore { seconds, .. } => now_s = f64::max(now_s, mark_s + seconds),
        }
    }
    now_s
}

const PATH: DataPath = DataPath {
    rtt_s: 0.0,
    window_bytes: 1e12,
    mss_bytes: 1448.0,
    block_bytes: 0.0,
    loss: 0.0,
    pacing_bytes_per_s: f64::INFINITY,
    congestion_control: CongestionControl::Cubic,
    bytes_per_s: f64::INFINITY,
};

/// Return a call between local files, over `PATH`, on one connection.
fn alone<'a>(files: &'a CallFiles, mover: &'a MoverCost, client: &'a HostCost) -> TransferSpec<'a> {
    TransferSpec {
        files,
        mover,
        source: None,
        destination: None,
        client,
        control_rtt_s: 0.0,
        nearer_rtt_s: 0.0,
        path: PATH,
        streams: 1,
        concurrency: Some(1),
        pipelining: None,
        files_per_session: None,
    }
}

#[test]
fn unmeasured_costs_are_named_and_known_costs_are_counted() {
    let mover = MoverCost {
        start_s: amount(0.5),
        start_core_s: amount(0.25),
        ..MoverCost::default()
    };
    let server = ServiceCost {
        auth_core_s: amount(0.15),
        redirect_round_trips: amount(2.0),
        ..ServiceCost::default()
    };
    let client = HostCost::default();
    let phase_plan = TransferSpec {
        source: Some(&server),
        control_rtt_s: 0.1,
        ..alone(&CallFiles::one(0), &mover, &client)
    }
    .phase_plan();
    assert_eq!(
        phase_plan.unknown,
        [
            "session_round_trips of the mover",
            "file_round_trips of the mover"
        ]
    );
    near(
        time_alone_s(&phase_plan.phases, 1e9),
        0.5 + 0.25 + 0.15 + 0.2,
        1e-12,
    );
    let end = EndpointRole::Source;
    let auth = TransferPhase::ServerCpu {
        end,
        core_s: 0.15,
        width: 1.0,
        why: Why::Authentication,
    };
    assert!(phase_plan.phases.contains(&auth));
}

#[test]
fn the_tightest_bottleneck_is_the_cap_and_is_named() {
    let (client, server) = (
        HostCost::default(),
        ServiceCost {
            process_bytes_per_s: amount(90e6),
            ..ServiceCost::default()
        },
    );
    let cap = |streams, loss, in_flight| {
        let mover = MoverCost {
            in_flight_bytes: amount(in_flight),
            ..MoverCost::default()
        };
        let path = DataPath {
            rtt_s: 0.1,
            window_bytes: 1e6,
            loss,
            bytes_per_s: 1e9,
            ..PATH
        };
        let files = CallFiles::one(1);
        TransferSpec {
            source: Some(&server),
            control_rtt_s: 0.1,
            path,
            streams,
            ..alone(&files, &mover, &client)
        }
        .cap()
    };
    assert_eq!(cap(4, 0.0, 1e9), (40e6, TransferLimit::Window));
    assert_eq!(cap(40, 0.0, 1e9), (90e6, TransferLimit::ServerProcess));
    assert_eq!(cap(4, 0.0, 32e5), (32e6, TransferLimit::Ahead));
    let (rate, bottleneck) = cap(4, 1e-4, 1e9);
    // PFTK does not apply to CUBIC, but timeouts do: 187 segments per round trip.
    assert_eq!(bottleneck, TransferLimit::Loss);
    near(rate, 4.0 * 187.4 * 1448.0 / 0.1, 1e-3);
}

#[test]
fn the_rate_of_servers_peaks_where_the_scalability_law_predicts() {
    let (sigma, kappa) = (0.05, 0.002);
    let cost = ServiceCost {
        process_bytes_per_s: amount(1e6),
        contention: amount(sigma),
        coherency: amount(kappa),
        ..ServiceCost::default()
    };
    let rates = service_rates(&cost).expect("a rate is given");
    let rates = rates.expect("the processes slow each other down");
    let peak = (0..rates.len())
        .max_by(|&a, &b| rates[a].total_cmp(&rates[b]))
        .expect("some")
        + 1;
    assert_eq!(peak, ((1.0 - sigma) / kappa).sqrt().round() as usize);
    assert_eq!(rates[0], 1e6);
    let apart = ServiceCost {
        contention: None,
        coherency: None,
        ..cost.clone()
    };
    assert_eq!(service_rates(&apart), Ok(None));
    let nameless = ServiceCost {
        process_bytes_per_s: None,
        ..cost
    };
    assert!(service_rates(&nameless).is_err());
}

#[test]
fn a_storage_has_only_one_kind_of_model() {
    let head = StorageCost {
        read_bytes_per_s: amount(200e6),
        seek_s: amount(0.008),
        read_ahead_bytes: amount(1e6),
        ..StorageCost::default()
    };
    let rates = storage_rates(&head, Direction::Read).expect("a head");
    assert_eq!(rates[0], 200e6);
    near(rates[1], 76.9e6, 1e-3);
    let (direction, what) = (Direction::Write, "write_bytes_per_s of a storage");
    assert_eq!(
        storage_rates(&head, direction),
        Err(CostError::Unknown { what })
    );
    let both = StorageCost {
        half_users: amount(3.0),
        ..head
    };
    assert_eq!(
        storage_rates(&both, Direction::Read),
        Err(CostError::Models)
    );
    let plain = StorageCost {
        write_bytes_per_s: amount(5.0),
        ..StorageCost::default()
    };
    assert_eq!(storage_rates(&plain, Direction::Write), Ok(vec![5.0]));
}

#[test]
fn parameters_are_read_from_json_and_unknown_ones_are_rejected() {
    let read = |text| serde_json::from_str::<Costs>(text).map_err(|error| error.to_string());
    let costs = read(
        r#"{"calls": {"get": [{"source": "ftp", "destination": "file", "cost": {"start_s": 0.01, "pipelining": 4}}]}}"#,
    );
    let costs = costs.expect("as written");
    let cost = costs.mover("get", "ftp", "file").expect("is there");
    assert_eq!((cost.start_s, cost.pipelining), (amount(0.01), Some(4)));
    assert!(
        costs.mover("get", "gsiftp", "file").is_none()
            && costs.mover("put", "ftp", "file").is_none()
    );
    for (text, problem) in [
        (r#"{"call": {}}"#, "unknown field `call`"),
        (r#"{"hosts": {"a": {"core": 4}}}"#, "unknown field `core`"),
        (
            r#"{"hosts": {"a": {"cores": -4}}}"#,
            "expected a finite number, 0 or more, found -4",
        ),
        (r#"{"storages": {"a": {"seek_s": "8 ms"}}}"#, "expected f64"),
    ] {
        let found = read(text).expect_err(text);
        assert!(found.contains(problem), "{found}");
    }
}

#[test]
fn scattered_work_has_its_mean_and_deviation_over_many_draws() {
    for (scatter, axis) in [(0.2, 0), (0.58, 0), (0.58, 1)] {
        let factors: Vec<f64> = (0..4000)
            .map(|number| scatter_factor(scatter, number, axis))
            .collect();
        let count = factors.len() as f64;
        let mean = factors.iter().sum::<f64>() / count;
        let variance = factors.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / count;
        near(mean, 1.0, 0.005);
        near(variance.sqrt(), scatter, 0.03);
    }
    assert_eq!(scatter_factor(0.0, 7, 1), 1.0);
}

#[test]
fn few_draws_of_scattered_work_lie_on_both_sides_of_the_median() {
    let log = |number, axis| scatter_factor(0.58, number, axis).ln();
    near(log(0, 0), log(0, 1), 1e-3);
    for few in [3, 5, 7, 10] {
        // Work of shared servers, once as one server and once as two: within a quarter of the
        // standard deviation of the logarithm, 0.54.
        let mean = |axis| {
            (0..few).map(|number| log(number, axis)).sum::<f64>() / f64::from(few) - log(0, 0)
        };
        for off in [mean(0), (mean(0) + mean(1)) / 2.0] {
            assert!(off.abs() < 0.135, "{few} {off}");
        }
    }
    // Two independent logins are both small as often as by chance, but not among the first few.
    let both = (0..8)
        .filter(|&number| (0..2).all(|axis| log(number, axis) - log(0, 0) < -0.36))
        .count();
    assert!(both <= 1, "{both}");
}
