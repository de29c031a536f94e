# shellcheck shell=bash
# The steps of `dev/test quick` and `dev/test`.

# All that the steps build with these has the same features, so that nothing is built twice.
all=(--locked --workspace --all-features)

step_fmt() {
    cargo fmt --all --check
}

step_scripts() {
    local script
    # The files of dev/steps as parts of dev/test.
    shellcheck --external-sources --check-sourced dev/test dev/bench dev/corpus dev/mutants dev/newer \
        dev/profile dev/servers dev/simulate .ci/run
    for script in dev/metadata dev/mutate dev/mutation/*.py dev/run-tests dev/stacks bench/peers/python/peer.py; do
        python3 -c "import ast; ast.parse(open(\"$script\").read())"
    done
}

step_servers() {
    local each name variable absent=0
    for each in "${servers[@]}"; do
        IFS=: read -r name variable _ <<<"$each"
        if [[ ! -v $variable ]] && ! dev/newer "$name"; then
            echo "the tests run on this machine's own $name"
            absent=1
        fi
    done
    ((!absent)) || return "$not_checked"
}

step_clippy() {
    # Of a package that did not change, and depends on none that did, cargo remembers the result.
    cargo clippy "${all[@]}" --all-targets -- -D warnings
}

step_features() {
    check_sets features
}

# Sets of features, by the question to dev/metadata that names them.
check_sets() {
    local arguments sets=0
    while read -r -a arguments; do
        echo "${arguments[*]}"
        # Without the packages around it, which would lend it their features. Those below it have sets of their own.
        cargo clippy --quiet --locked --no-deps "${arguments[@]}" -- -D warnings </dev/null
        sets=$((sets + 1))
    done < <(dev/metadata "$1")
    echo "$sets sets of features"
    ((sets > 0))
}

step_build() {
    dev/run-tests --build
}

step_build-small() {
    dev/run-tests --build --small
}

step_build-plain() {
    dev/run-tests --build --plain
}

step_test() {
    # Not nextest: with a process for each case, each would start servers of its own.
    dev/run-tests --whole
}

step_small() {
    dev/run-tests --small
}

step_plain() {
    dev/run-tests --plain
}

step_examples() {
    cargo test "${all[@]}" --doc --no-fail-fast
}

step_docs() {
    RUSTDOCFLAGS="${RUSTDOCFLAGS:-} -D warnings" cargo doc "${all[@]}" --no-deps
}

step_deny() {
    install_tool cargo-deny
    cargo deny --locked check bans licenses sources
}

step_advisories() {
    install_tool cargo-deny
    if ! timeout 120 cargo deny fetch db; then
        echo "the database of advisories could not be fetched: not checked"
        return "$not_checked"
    fi
    cargo deny --locked check --disable-fetch advisories
}

step_msrv() {
    dev/metadata newer
}

step_mutants() {
    dev/mutants
}

# The simulator as the tests build it, with the crates that compute optimized: no build of its own.
simulator() {
    cargo test "${all[@]}" --quiet --test command --no-run
    synod=${CARGO_TARGET_DIR:-target}/debug/synod
}

# Each commit has seeds of its own, unless some are asked for. Without a repository they are the first again.
fresh_seed() {
    local from=${SYNOD_SEED:-$(git rev-parse --short=10 HEAD 2>/dev/null || echo 0)}
    echo "0x${from#0x}"
}

# Histories and turns are for all workloads together: another recipe makes nothing slower. A limit of turns, and
# not of time, because it is the same on every machine.
step_walk() {
    simulator
    "$synod" sim all --shared --seeds 3200 --turns 4000000 --from "$(fresh_seed)" --keep target/sim
}

step_sim() {
    local from
    simulator
    # Every way with two things that go wrong, in the smallest world: one thread has most of it, beside all others.
    "$synod" sim sweep --faults 2 --seeds 1 --only tickets &
    two_faults=$!
    # However this ends: by the failure of another one, or by a signal. It is no local name, as none is known at the exit.
    trap 'kill "$two_faults" 2>/dev/null || true' EXIT
    "$synod" sim sweep
    # With one in each small world.
    "$synod" sim sweep --faults 1 --seeds 2
    from=$(fresh_seed)
    echo "fresh histories, from seed $from on; again: SYNOD_SEED=$from dev/test sim"
    # What fails is kept: the name of its file, the last line of its output, says the workload, the store, the law and the seed.
    "$synod" sim all --shared --seeds 16000 --turns 32000000 --from "$from" --keep target/sim
    wait "$two_faults"
    trap - EXIT
}
