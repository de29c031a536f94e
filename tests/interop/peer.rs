//! [`Peer`]: a process that uses the locks of another library.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use synod_servers::clients::entry::now;
use synod_testkit::limit::waits_for;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// The limit for everything that a peer must eventually do, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A process that executes commands, and reports when it holds the lock. It ends when this is
/// dropped.
#[derive(Debug)]
pub(crate) struct Peer {
    process: Child,
    input: Option<ChildStdin>,
    said: mpsc::UnboundedReceiver<Said>,
    /// `true` if the peer is a shell, which ends with its input, after the programs that it has
    /// started.
    shell: bool,
    /// The last time at which it was known to be excluded.
    excluded: u64,
}

/// One line of a peer.
#[derive(Debug)]
struct Said {
    line: String,
    /// When the peer printed it, by the clock that all processes share: the peer's own reading
    /// (`in @NANOSECONDS`). A shell does not add it, see [`Peer::keeps_silent`]: then it is the
    /// time when the line arrived.
    at: u64,
}

impl Said {
    fn new(line: &str) -> Self {
        let stamped = line.rsplit_once(" @").and_then(|(line, at)| Some((line, at.parse().ok()?)));
        let (line, at) = stamped.unwrap_or_else(|| (line, now()));
        Self { line: line.to_owned(), at }
    }
}

/// Holds a lock of etcdctl until a line names the signal to end it with, and answers each `ping`.
/// When etcdctl has the lock, it prints its key.
const ETCDCTL: &str = r#"
export ETCDCTL_API=3
etcdctl --endpoints "$1" lock --ttl 2 "$2" </dev/null &
while read -r how && [ "$how" = ping ]; do echo pong; done
kill "-${how:-KILL}" $!
wait $! && true
echo out
"#;

/// Campaigns with etcdctl until a line names the signal to end it with, or listens, and answers
/// each `ping`. It prints the key of each leader and its values.
const ELECT: &str = r#"
export ETCDCTL_API=3
server=$1
shift
etcdctl --endpoints "$server" elect "$@" </dev/null &
while read -r how && [ "$how" = ping ]; do echo pong; done
kill "-${how:-KILL}" $!
wait $! && true
echo out
"#;

/// The names of the jars in Debian's packages.
const JARS: [&str; 4] =
    ["curator-recipes", "curator-framework", "curator-client", "curator-x-discovery"];
const MORE_JARS: [&str; 8] = [
    "zookeeper",
    "zookeeper-jute",
    "guava",
    "slf4j-api",
    "slf4j-nop",
    "jackson-core",
    "jackson-databind",
    "jackson-annotations",
];

fn here(file: &str) -> String {
    format!("{}/tests/interop/{file}", env!("CARGO_MANIFEST_DIR"))
}

fn jar(name: &str) -> String {
    format!("/usr/share/java/{name}.jar")
}

/// The directory into which `dev/test` installs it.
fn kazoo() -> String {
    format!("{}/target/kazoo", env!("CARGO_MANIFEST_DIR"))
}

/// The reason why there is no peer of a kind, if there is none.
pub(crate) fn curator_missing() -> Option<String> {
    let missing = JARS.iter().map(|name| jar(name)).find(|jar| !Path::new(jar).exists());
    missing.map(|jar| format!("Curator is not installed: there is no {jar}"))
}

pub(crate) fn kazoo_missing() -> Option<String> {
    let there = Path::new(&kazoo()).join("kazoo").exists();
    (!there).then(|| "kazoo is not installed: dev/test does it".to_owned())
}

pub(crate) fn etcdctl_missing() -> Option<String> {
    let found = Command::new("etcdctl").arg("version").output();
    found.is_err().then(|| "etcdctl is not installed".to_owned())
}

/// The directory of the sources of etcd's client on Debian, for Go without modules.
const GO_PATH: &str = "/usr/share/gocode";

pub(crate) fn go_missing() -> Option<String> {
    if !Path::new(GO_PATH).join("src/go.etcd.io/etcd/clientv3").exists() {
        return Some("etcd's package for Go is not installed: dev/bench does it".to_owned());
    }
    Command::new("go").arg("version").output().is_err().then(|| "Go is not installed".to_owned())
}

/// Returns `true` if the tests with Go must run. Go is large, so a build server does not install
/// it: `dev/test long` does.
pub(crate) fn go_required() -> bool {
    std::env::var_os("SYNOD_GO").is_some()
}

/// The programs in Go, built once.
static GO_STM: LazyLock<PathBuf> = LazyLock::new(|| build_go("stm"));
static GO_ENDPOINTS: LazyLock<PathBuf> = LazyLock::new(|| build_go("endpoints"));
static GO_QUEUE: LazyLock<PathBuf> = LazyLock::new(|| build_go("queue"));

fn build_go(name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("interop-{name}"));
    let mut go = Command::new("go");
    go.envs([("GO111MODULE", "off"), ("GOFLAGS", ""), ("GOPATH", GO_PATH)]);
    let source = here(&format!("{name}.go"));
    run_to_its_end(go.arg("build").arg("-o").args([&program, Path::new(&source)]));
    program
}

/// The classes of the programs in Java, built once: to build one takes five times as long as to
/// start it.
static JAVA: LazyLock<PathBuf> = LazyLock::new(|| {
    let classes = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop-java");
    let mut javac = Command::new("javac");
    javac.args(["-nowarn", "-cp", &class_path(), "-d"]).arg(&classes);
    javac.args(["Curator", "Discovery", "Queues"].map(|name| here(&format!("{name}.java"))));
    run_to_its_end(&mut javac);
    classes
});

fn class_path() -> String {
    let jars: Vec<_> = JARS.iter().chain(&MORE_JARS).map(|name| jar(name)).collect();
    jars.join(":")
}

fn run_to_its_end(compiler: &mut Command) {
    let built = compiler.output().expect("it is installed");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

impl Peer {
    /// A process that uses the transactions of etcd's package for Go.
    pub(crate) async fn go_stm(server: &str) -> Self {
        Self::go(&GO_STM, server).await
    }

    /// A process that uses the naming of etcd's package for Go.
    pub(crate) async fn go_endpoints(server: &str) -> Self {
        Self::go(&GO_ENDPOINTS, server).await
    }

    /// A process that uses the queue of etcd's recipes for Go.
    pub(crate) async fn go_queue(server: &str) -> Self {
        Self::go(&GO_QUEUE, server).await
    }

    async fn go(program: &Path, server: &str) -> Self {
        let mut go = Command::new(program);
        go.arg(server);
        Self::ready(go).await
    }

    /// A process that uses Curator's locks.
    pub(crate) async fn curator(server: &str) -> Self {
        Self::java("Curator", server).await
    }

    /// A process that uses Curator's service discovery.
    pub(crate) async fn curator_discovery(server: &str) -> Self {
        Self::java("Discovery", server).await
    }

    /// A process that uses Curator's queues.
    pub(crate) async fn curator_queues(server: &str) -> Self {
        Self::java("Queues", server).await
    }

    async fn java(program: &str, server: &str) -> Self {
        let classes = format!("{}:{}", JAVA.display(), class_path());
        let mut java = Command::new("java");
        java.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m", "-cp", &classes]);
        java.args([program, server]);
        Self::ready(java).await
    }

    /// A process that uses kazoo's locks.
    pub(crate) async fn kazoo(server: &str) -> Self {
        let mut python = Command::new("python3");
        python.env("PYTHONPATH", kazoo()).args([&here("kazoo_peer.py"), server]);
        Self::ready(python).await
    }

    /// `etcdctl lock NAME`.
    pub(crate) fn etcdctl(server: &str, name: &str) -> Self {
        Self::shell(ETCDCTL, server, &[name])
    }

    /// `etcdctl elect ARGUMENTS`.
    pub(crate) fn etcdctl_elect(server: &str, arguments: &[&str]) -> Self {
        Self::shell(ELECT, server, arguments)
    }

    /// `etcdctl ARGUMENTS`, run to its end with this input. Returns what it prints.
    pub(crate) fn etcdctl_once(server: &str, arguments: &[&str], input: &str) -> String {
        let mut etcdctl = Command::new("etcdctl");
        etcdctl.env("ETCDCTL_API", "3").args(["--endpoints", server]).args(arguments);
        etcdctl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = etcdctl.spawn().expect("it is installed");
        let sent = process.stdin.take().expect("piped").write_all(input.as_bytes());
        sent.expect("it reads its input");
        let output = process.wait_with_output().expect("it ends");
        assert!(output.status.success(), "etcdctl {arguments:?} fails");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn shell(script: &str, server: &str, arguments: &[&str]) -> Self {
        let mut sh = Command::new("sh");
        sh.args(["-c", script, "etcdctl", server]).args(arguments);
        let mut peer = Self::start(sh);
        peer.shell = true;
        peer
    }

    async fn ready(program: Command) -> Self {
        let mut peer = Self::start(program);
        peer.says("ready").await;
        peer
    }

    fn start(mut program: Command) -> Self {
        program.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = program.spawn().expect("it is installed");
        let (tell, said) = mpsc::unbounded_channel();
        let output = process.stdout.take().expect("piped");
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _heard = tell.send(Said::new(&line)).is_ok();
            }
        });
        let input = process.stdin.take();
        Self { process, input, said, shell: false, excluded: 0 }
    }

    pub(crate) fn write_line(&mut self, line: &str) {
        let input = self.input.as_mut().expect("it was not ended");
        writeln!(input, "{line}").expect("it runs");
    }

    /// Waits until the peer prints a line, which must not have happened while it was excluded.
    pub(crate) async fn speaks(&mut self) -> String {
        waits_for("a line of the peer");
        let said = timeout(PATIENCE, self.said.recv()).await;
        let said = said.expect("it says something in time").expect("it runs");
        let early = self.excluded.saturating_sub(said.at);
        assert!(early == 0, "{:?} was said {early} ns before the exclusion ended", said.line);
        said.line
    }

    pub(crate) async fn says(&mut self, word: &str) {
        assert_eq!(self.speaks().await, word);
    }

    /// Checks that the peer is excluded now. Its later lines are checked against this time, so that
    /// a grant that is reported late is also found on a slow machine. The lines of a shell have no
    /// time, but they are in order: it receives a request for a line, which follows all earlier
    /// lines of etcdctl.
    pub(crate) async fn keeps_silent(&mut self) {
        let said = timeout(Duration::from_millis(300), self.said.recv()).await;
        assert!(said.is_err(), "it said {said:?}");
        if self.shell {
            self.write_line("ping");
            self.says("pong").await;
        }
        self.excluded = now();
    }

    /// Kills it as if its machine had been switched off.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("it runs");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.input = None;
        if !self.shell {
            // It may have ended already.
            let _killed = self.process.kill().is_ok();
        }
        let _ended = self.process.wait().is_ok();
    }
}
