#!/usr/bin/env bash
# Runs the fuzz targets of the protocol core and the mover in parallel. Usage: scripts/fuzz.sh [SECONDS [TARGET...]].
# VENTURI_FUZZ_JOBS limits the number of parallel targets. New inputs with more coverage go to target/fuzz/corpus, and failing
# inputs to target/fuzz/failures, each by target. `scripts/fuzz.sh keep [TARGET...]` copies new inputs to fuzz/corpus if they
# reach code that no input there reaches.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
target_dir=${CARGO_TARGET_DIR:-target}
out=$target_dir/fuzz

# Coverage for libFuzzer, and the overflow checks that a release build omits. The crates are safe Rust, so no sanitizer is used.
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
  -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks"
cargo build --quiet --release --config profile.release.lto=false --package venturi-fuzz --features libfuzzer --target-dir "$out/build"
program=$(ls "$out"/build/*/release/fuzz)

keep() { # TARGET
  VENTURI_FUZZ=$1 "$program" -set_cover_merge=1 -use_counters=0 "fuzz/corpus/$1" "$out/corpus/$1" >"$out/$1.log" 2>&1
  echo "$1: $(find "fuzz/corpus/$1" -type f | wc -l) inputs"
}

run() { # TARGET
  local own=$out/corpus/$1 failures=$out/failures/$1
  mkdir -p "$own" "$failures"
  if VENTURI_FUZZ=$1 "$program" -max_total_time="$seconds" -max_len=2048 -rss_limit_mb=1024 -timeout=20 -print_final_stats=1 \
    -artifact_prefix="$failures/" "$own" "fuzz/corpus/$1" >"$out/$1.log" 2>&1; then
    echo "$1: $(awk '/number_of_executed_units/ { print $2 }' "$out/$1.log") inputs in $seconds s, none failed"
  else
    echo "$1: FAILED; input in $failures, end of $out/$1.log:"
    grep -v '^#' "$out/$1.log" | tail -n 30
    return 1
  fi
}
export -f keep run
export out seconds program
[ $# -gt 0 ] || set -- fuzz/corpus/*/
task=run
[ "$seconds" != keep ] || task=keep
printf '%s\n' "$@" | xargs -n 1 basename | xargs -P "${VENTURI_FUZZ_JOBS:-$(nproc)}" -I TARGET bash -c "$task TARGET"
