# shellcheck shell=bash
# What dev/test needs on a machine, and installs where it may.

# The Debian packages, each after the command or the file that shows that it is installed.
packages=(
    cc:build-essential
    git:git
    python3:python3
    shellcheck:shellcheck
    strace:strace
    protoc:protobuf-compiler
    /usr/include/google/protobuf/descriptor.proto:libprotobuf-dev
    javac:default-jdk-headless
    /usr/share/java/zookeeper.jar:libzookeeper-java
    /usr/share/java/slf4j-simple.jar:libslf4j-java
    /usr/share/java/curator-recipes.jar:libcurator-recipes-java
    /usr/share/java/curator-x-discovery.jar:libcurator-discovery-java
    /usr/share/java/jackson-core.jar:libjackson2-core-java
    pip3:python3-pip
    etcd:etcd-server
    etcdctl:etcd-client
)

# The versions of the cargo tools that are installed where there are none.
declare -A tools=(
    [cargo-deny]=0.20.2
    [cargo-mutants]=27.1.0
)

# From PyPI, into target/.
kazoo=2.10.0

die() {
    echo "dev/test: $*" >&2
    exit 2
}

is_there() {
    if [[ $1 == /* ]]; then
        [[ -e $1 ]]
    else
        command -v "$1" >/dev/null
    fi
}

install_packages() {
    local pair missing=() as_root=()
    for pair in "$@"; do
        is_there "${pair%%:*}" || missing+=("${pair#*:}")
    done
    ((${#missing[@]})) || return 0
    local by_hand="apt-get install ${missing[*]}"
    command -v apt-get >/dev/null || die "missing here; on Debian it would be: $by_hand"
    if ((EUID != 0)); then
        sudo -n true 2>/dev/null || die "missing; please run: sudo $by_hand"
        as_root=(sudo -n)
    fi
    echo "installing ${missing[*]}"
    "${as_root[@]}" apt-get update -qq -o DPkg::Lock::Timeout=300
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -qq --yes -o DPkg::Lock::Timeout=300 --no-install-recommends "${missing[@]}" >/dev/null
}

check_rust() {
    local stated found component
    command -v cargo >/dev/null || die "missing: Rust; see https://rustup.rs"
    stated=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    found=$(cargo --version | cut -d' ' -f2)
    printf '%s\n' "$stated" "$found" | sort -CV || die "this needs Rust $stated, and here is $found"
    for component in fmt clippy; do
        cargo "$component" --version >/dev/null 2>&1 ||
            die "missing; please run: rustup component add rustfmt clippy"
    done
}

# A tool that a step needs. Without optimization: that takes a third of the time to build, and it has little to do.
install_tool() {
    local tool=$1
    if ! cargo "${tool#cargo-}" --version >/dev/null 2>&1; then
        echo "installing $tool ${tools[$tool]}, which takes some minutes"
        CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --debug "$tool@${tools[$tool]}"
    fi
}

# The clients of others that share locks with ours in the tests, and are in no Debian package.
install_peers() {
    if [[ ! -e target/kazoo/kazoo-$kazoo.dist-info ]]; then
        echo "installing kazoo $kazoo for the tests"
        pip3 install --quiet --disable-pip-version-check --root-user-action=ignore \
            --upgrade --target target/kazoo "kazoo==$kazoo"
    fi
}

# The servers of the tests: the name of each, the variable that selects one, and its backend. `dev/test` selects the
# newest that Debian has; `dev/test other` runs the machine's own.
servers=(
    zookeeper:SYNOD_ZOOKEEPER:synod-zk
    etcd:SYNOD_ETCD:synod-etcd
)

# Selects the servers for the tests, as far as they can be had, and where the caller has selected none.
select_servers() {
    local each name variable
    for each in "${servers[@]}"; do
        IFS=: read -r name variable _ <<<"$each"
        if [[ ! -v $variable ]] && dev/newer "$name" >/dev/null 2>&1; then
            export "$variable=newer"
        fi
    done
}
