use proptest::prelude::*;

use super::*;

const N: u32 = 20_000;

/// Tolerances are five standard errors. The streams are fixed, so the tests pass always or never. A
/// correct generator exceeds them with a probability below one in a million.
const STANDARD_ERRORS: f64 = 5.0;

fn numbers(draw: &Draw) -> Vec<f64> {
    let mut stream = DrawStream::new(7, "actor", "stream", "");
    (0..N)
        .map(|_| {
            draw.value(stream.next_bits())
                .as_number()
                .expect("a number")
        })
        .collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / f64::from(N)
}

fn check_close(found: f64, expected: f64, standard_deviation: f64) {
    let tolerance = STANDARD_ERRORS * standard_deviation / f64::from(N).sqrt();
    assert!(
        (found - expected).abs() < tolerance,
        "{found} is not {expected} ± {tolerance}"
    );
}

/// Check the largest distance between the empirical and the given distribution function, times √n.
/// Kolmogorov: it exceeds 2.2 with a probability of 2·exp(−2·2.2²) ≈ 1.3e-4.
fn check_distribution(mut values: Vec<f64>, cumulative: impl Fn(f64) -> f64) {
    values.sort_by(f64::total_cmp);
    let n = f64::from(N);
    let distances = (0..N).zip(&values).map(|(rank, &value)| {
        let expected = cumulative(value);
        (expected - f64::from(rank) / n).max(f64::from(rank + 1) / n - expected)
    });
    let distance = distances.fold(0.0, f64::max) * n.sqrt();
    assert!(distance < 2.2, "{distance}");
}

#[test]
fn uniform_values_match_the_closed_form_of_their_distribution() {
    let values = numbers(&Draw::Uniform {
        low: 10.0,
        high: 70.0,
    });
    assert!(values.iter().all(|value| (10.0..70.0).contains(value)));
    check_close(mean(&values), 40.0, 60.0 / 12_f64.sqrt());
    check_distribution(values, |value| (value - 10.0) / 60.0);
}

#[test]
fn exponential_values_match_the_closed_form_of_their_distribution() {
    let values = numbers(&Draw::Exponential { mean: 5.0 });
    assert!(
        values
            .iter()
            .all(|&value| value >= 0.0 && value.is_finite())
    );
    check_close(mean(&values), 5.0, 5.0);
    check_distribution(values, |value| 1.0 - (-value / 5.0).exp());
}

#[test]
fn choices_are_equally_frequent() {
    let values = numbers(&Draw::Choice {
        values: vec![Scalar::Integer(1), Scalar::Integer(2), Scalar::Integer(4)],
    });
    for expected in [1.0, 2.0, 4.0] {
        let hits: Vec<_> = values
            .iter()
            .map(|&value| f64::from(u8::from(value == expected)))
            .collect();
        check_close(mean(&hits), 1.0 / 3.0, (2.0_f64 / 9.0).sqrt());
    }
}

#[test]
fn weighted_values_follow_their_weights_and_weight_zero_is_never_drawn() {
    let draw = Draw::Weighted {
        values: [0, 1, 2, 3].map(Scalar::Integer).into(),
        weights: vec![0.0, 1.0, 0.0, 4.0],
    };
    let values = numbers(&draw);
    assert!(values.iter().all(|&value| value == 1.0 || value == 3.0));
    let hits: Vec<_> = values
        .iter()
        .map(|&value| f64::from(u8::from(value == 3.0)))
        .collect();
    check_close(mean(&hits), 0.8, 0.4);
}

#[test]
fn neighbouring_values_and_streams_are_uncorrelated() {
    let unit_numbers = |actor, stream, fiber| -> Vec<f64> {
        let mut stream = DrawStream::new(7, actor, stream, fiber);
        (0..=N).map(|_| unit(stream.next_bits()) - 0.5).collect()
    };
    let first = unit_numbers("a", "s", "");
    let product = |left: &[f64], right: &[f64]| -> Vec<f64> {
        left.iter().zip(right).map(|(x, y)| x * y).collect()
    };
    let n = N as usize;
    check_close(mean(&product(&first[..n], &first[1..])), 0.0, 1.0 / 12.0);
    for other in [
        unit_numbers("b", "s", ""),
        unit_numbers("a", "t", ""),
        unit_numbers("a", "s", "t0000000"),
    ] {
        check_close(mean(&product(&first[..n], &other[..n])), 0.0, 1.0 / 12.0);
    }
}

/// Values from a second implementation of SHA-256 and ChaCha8, written from the documentation and
/// not from this code. A change of these values would change every plan with draws.
#[test]
fn streams_match_an_independent_implementation() {
    let check = |fiber, n, expected| {
        assert_eq!(
            DrawStream::new(1, "client", "size", fiber).nth_bits(n),
            expected
        )
    };
    check("", 0, 0x0dfa_0cf9_da19_30c4);
    check("", 1, 0xa391_536f_d945_8e57);
    check("", 9, 0xb127_ab22_f3e7_521e);
    check("t0000012/3", 0, 0x72bc_f860_a89a_8dd6);
}

#[test]
fn a_draw_without_a_value_is_rejected() {
    let check = |draw: Draw, expected: &str| {
        let error = draw.check("d").unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let one = || vec![Scalar::Integer(1)];
    check(
        Draw::Uniform {
            low: 2.0,
            high: 1.0,
        },
        "low ≤ high",
    );
    check(
        Draw::Uniform {
            low: f64::MIN,
            high: f64::MAX,
        },
        "finite difference",
    );
    check(Draw::Exponential { mean: 0.0 }, "a mean above 0");
    check(Draw::Choice { values: vec![] }, "at least one value");
    check(
        Draw::Weighted {
            values: one(),
            weights: vec![],
        },
        "a weight for each value",
    );
    check(
        Draw::Weighted {
            values: one(),
            weights: vec![0.0],
        },
        "not all of them 0",
    );
    check(
        Draw::Weighted {
            values: one(),
            weights: vec![-1.0],
        },
        "at least 0",
    );
}

proptest! {
    #[test]
    fn the_nth_value_is_the_same_by_steps_and_by_direct_access(seed: u64, actor in ".*", stream in ".*", n in 0_u64..40) {
        let mut walked = DrawStream::new(seed, &actor, &stream, "");
        let last = (0..=n).map(|_| walked.next_bits()).last();
        prop_assert_eq!(last, Some(DrawStream::new(seed, &actor, &stream, "").nth_bits(n)));
    }

    #[test]
    fn names_with_the_same_concatenation_are_different_streams(left in "[ab]{1,4}", right in "[ab]{1,4}") {
        let whole = format!("{left}{right}");
        let apart = DrawStream::new(0, &left, &right, "").next_bits();
        prop_assert_ne!(apart, DrawStream::new(0, &whole, "", "").next_bits());
        prop_assert_ne!(apart, DrawStream::new(0, "", &whole, "").next_bits());
    }

    #[test]
    fn every_valid_draw_returns_a_value_for_any_bits(bits: u64, weights in prop::collection::vec(0.0..1e9, 1..9)) {
        let values: Vec<_> = (0..).map(Scalar::Integer).take(weights.len()).collect();
        let draw = Draw::Weighted { values: values.clone(), weights };
        prop_assume!(draw.check("d").is_ok());
        prop_assert!(values.contains(&draw.value(bits)));
        prop_assert!(values.contains(&draw.value(u64::MAX)));
        let choice = Draw::Choice { values: values.clone() };
        prop_assert!(values.contains(&choice.value(bits)) && values.contains(&choice.value(u64::MAX)));
        let far = Draw::Exponential { mean: 1.0 }.value(u64::MAX).as_number().unwrap();
        prop_assert!(far.is_finite());
    }
}
