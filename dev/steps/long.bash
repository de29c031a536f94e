# shellcheck shell=bash
# The steps that only `dev/test long` runs.

# A share of the time that was given to `dev/test long`, in seconds: a percentage. The other steps have a number of
# programs or seeds, and end by themselves.
share() {
    echo $((long_seconds * $1 / 100))
}

step_each() {
    check_sets each
}

step_crowds() {
    SYNOD_CREW_TASKS=100000 SYNOD_CREW_WORKERS=1000 \
        cargo test --locked --package synod-mem --all-features --test conformance crew_crowd
}

step_other() {
    local each name variable package
    for each in "${servers[@]}"; do
        IFS=: read -r name variable package <<<"$each"
        # An empty variable selects the machine's own. The servers of the other kind run as they are.
        env "$variable=" cargo test --locked --package "$package" --all-features --test conformance one::
        env "$variable=" cargo test --locked --package "$package" --all-features --test quirks
        env "$variable=" cargo test --locked --package synod --all-features --test differential "$name"
        env "$variable=" cargo test --locked --package synod --all-features --test faults "$name"
        env "$variable=" cargo test --locked --package synod --all-features --test interop
    done
}

step_go() {
    install_packages go:golang-go \
        /usr/share/gocode/src/go.etcd.io/etcd/clientv3:golang-etcd-server-dev
    SYNOD_GO=1 cargo test "${all[@]}" --test interop Go
}

step_mistakes() {
    SYNOD_MISTAKES=1 cargo test "${all[@]}" --no-fail-fast --test faults --test storm
}

step_programs() {
    SYNOD_SERVERS=3 SYNOD_PROGRAMS=10000 cargo test "${all[@]}" --test differential
    SYNOD_PROGRAMS=10000 cargo test "${all[@]}" --test wire replay
    SYNOD_LISTING_CACHE=off cargo test "${all[@]}" --test wire one::
}

step_seeds() {
    SYNOD_SEEDS=20000 cargo test "${all[@]}" --test wire soak
    SYNOD_ROUNDS=100000 cargo test "${all[@]}" --test memory
    SYNOD_CUTS=1 cargo test "${all[@]}" --test processes
    SYNOD_KILLS=1000 cargo test "${all[@]}" --test machine
    SYNOD_NODES=1000000 cargo test "${all[@]}" --test quirks a_large_tree
}

step_soak() {
    local minutes
    minutes=$(($(share 30) / 60 / 2 + 1))
    # Both kinds of servers at once, then the wire of ZooKeeper for as long.
    SYNOD_SOAK=$minutes cargo test "${all[@]}" --test faults -- --nocapture
    SYNOD_SOAK=$minutes cargo test "${all[@]}" --test wire soak -- --nocapture
}

step_histories() {
    dev/simulate "$(share 30)s" "$(fresh_seed)"
    "${CARGO_TARGET_DIR:-target}"/release/synod sim sweep --faults 1
}

step_mutate() {
    install_tool cargo-mutants
    dev/mutate "$(share 30)"
}
