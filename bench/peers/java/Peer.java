import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryOneTime;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.data.Stat;

/** Curator as a racer: a task on each line of the input, an answer on each line of the output. */
public final class Peer {
    static final String DIR = "/curator-bench";
    private static final int PERMITS = 4;
    static final byte[] DATA = "x".repeat(100).getBytes(StandardCharsets.US_ASCII);

    private final String address;
    private final int session;
    private final List<CuratorFramework> clients = new ArrayList<>();
    private final Values values = new Values(this);
    private final Queues queues = new Queues(this);
    private final Caches caches = new Caches(this);
    /** Leads until the process ends. */
    private LeaderLatch leading;
    /** The rounds of double barriers that were given up. */
    private int givenUp;
    /** Threads stay, as they do in an application. */
    private final ExecutorService threads = Executors.newCachedThreadPool(Peer::daemon);

    /** The lap of one client. */
    interface Lap {
        void run() throws Exception;
    }

    interface Lanes {
        Lap lane(int number) throws Exception;
    }

    record Task(String work, int clients, long millis, long laps, boolean heir, int nodes) {
        static Task of(String line) {
            Matcher work = Pattern.compile("\"work\":\"([^\"]*)\"").matcher(line);
            if (!work.find()) {
                throw new IllegalArgumentException("not a task: " + line);
            }
            return new Task(work.group(1), (int) number(line, "clients"),
                    number(line, "millis"), number(line, "laps"), line.contains("\"heir\":true"),
                    (int) number(line, "nodes"));
        }

        /** The same by one client. */
        Task byOne() {
            return new Task(work, 1, millis, laps, heir, nodes);
        }

        private static long number(String line, String name) {
            Matcher number = Pattern.compile("\"" + name + "\":([0-9]+)").matcher(line);
            return number.find() ? Long.parseLong(number.group(1)) : 0;
        }
    }

    private Peer(String address, int session) {
        this.address = address;
        this.session = session;
    }

    public static void main(String[] arguments) throws Exception {
        Peer peer = new Peer(arguments[0], Integer.parseInt(arguments[1]));
        BufferedReader tasks = new BufferedReader(new InputStreamReader(System.in));
        for (String line = tasks.readLine(); line != null; line = tasks.readLine()) {
            System.out.println(peer.answer(line));
        }
        System.exit(0);
    }

    private String answer(String line) {
        try {
            Task task = Task.of(line);
            switch (task.work) {
                case "get-local", "get", "set", "create-delete":
                    return nodes(task);
                case "lock":
                    return locks(task, sessions(1).get(0));
                case "lock-contended":
                    return contended(task);
                case "lock-tasks":
                    return oneProcess(task);
                case "drain":
                    return drain(task);
                case "semaphore":
                    return semaphore(task);
                case "read-write":
                    return readWrite(task);
                case "increment":
                    return values.increment(task, sessions(task.clients));
                case "increment-tasks":
                    return values.increment(task, Collections.nCopies(task.clients, sessions(1).get(0)));
                case "ids":
                    return values.ids(task);
                case "double-barrier":
                    return rounds(task);
                case "queue-take":
                    return queues.taken(task);
                case "queue-ack":
                    return queues.acknowledged(task);
                case "queue-bunches":
                    return queues.inBunches(task);
                case "crew-tasks":
                    return queues.tasks(task);
                case "shared-value":
                    return values.shared(task);
                case "cache-small":
                case "cache-large":
                case "cache-memory":
                    return caches.complete(task);
                case "cache-seen":
                    return caches.seen(task);
                case "cache-changes":
                    return caches.changes(task);
                case "observe":
                    return observe(task);
                case "resign":
                case "resign-late":
                    return resign(task);
                case "lead":
                    return lead();
                case "instance":
                    return caches.instance(task);
                default:
                    return "{\"missing\":\"" + task.work + "\"}";
            }
        } catch (Exception failed) {
            String why = String.valueOf(failed).replaceAll("[^ -~]|[\"\\\\]", " ");
            return "{\"failed\":\"" + why + "\"}";
        }
    }

    private String nodes(Task task) throws Exception {
        CuratorFramework client = sessions(1).get(0);
        ensure(client, DIR + "/made");
        for (int lane = 0; lane < task.clients; lane++) {
            ensure(client, DIR + "/nodes/" + lane);
        }
        return drive(task, lane -> {
            String node = DIR + "/nodes/" + lane;
            String made = DIR + "/made/" + lane;
            switch (task.work) {
                case "get-local":
                    return () -> client.getData().forPath(node);
                case "get":
                    // The sync is sent in the background, before the read.
                    return () -> {
                        client.sync().forPath(node);
                        client.getData().forPath(node);
                    };
                case "set":
                    return () -> client.setData().forPath(node, DATA);
                default:
                    return () -> {
                        client.create().withMode(CreateMode.EPHEMERAL).forPath(made, DATA);
                        client.delete().forPath(made);
                    };
            }
        });
    }

    private String locks(Task task, CuratorFramework client) throws Exception {
        return drive(task, lane -> {
            InterProcessMutex mutex = new InterProcessMutex(client, DIR + "/locks/" + lane);
            return () -> {
                mutex.acquire();
                mutex.release();
            };
        });
    }

    private String contended(Task task) throws Exception {
        List<CuratorFramework> own = sessions(task.clients);
        AtomicInteger inside = new AtomicInteger();
        return drive(task, lane -> {
            String path = DIR + "/contended/" + task.clients;
            InterProcessMutex mutex = new InterProcessMutex(own.get(lane), path);
            return () -> {
                mutex.acquire();
                alone(inside);
                mutex.release();
            };
        });
    }

    private String oneProcess(Task task) throws Exception {
        AtomicInteger inside = new AtomicInteger();
        InterProcessMutex mutex = new InterProcessMutex(sessions(1).get(0), DIR + "/one-process");
        return drive(task, lane -> () -> {
            mutex.acquire();
            alone(inside);
            mutex.release();
        });
    }

    private String drain(Task task) throws Exception {
        CuratorFramework client = sessions(1).get(0);
        String path = DIR + "/drained";
        List<Long> handOvers = new ArrayList<>();
        long nanos = 0;
        long cpu = 0;
        long rss = 0;
        for (long lap = 0; lap < Math.max(task.laps, 1); lap++) {
            InterProcessMutex first = new InterProcessMutex(client, path);
            first.acquire();
            AtomicInteger inside = new AtomicInteger(1);
            AtomicLong last = new AtomicLong();
            List<Future<Long>> waiters = new ArrayList<>();
            for (int waiter = 0; waiter < task.clients; waiter++) {
                waiters.add(threads.submit(() -> {
                    InterProcessMutex mutex = new InterProcessMutex(client, path);
                    mutex.acquire();
                    alone(inside);
                    long now = System.nanoTime();
                    long waited = now - last.getAndSet(now);
                    mutex.release();
                    return waited;
                }));
            }
            while (children(client, path) <= task.clients) {
                Thread.sleep(10);
            }
            // Candidates set their watches only some time after they join.
            Thread.sleep(200 + task.clients);
            rss = Math.max(rss, rss());
            long cpuBefore = cpu();
            long started = System.nanoTime();
            last.set(started);
            inside.decrementAndGet();
            first.release();
            handOvers.addAll(all(waiters));
            nanos += System.nanoTime() - started;
            cpu += cpu() - cpuBefore;
        }
        return report(handOvers, nanos, cpu, rss);
    }

    private String semaphore(Task task) throws Exception {
        List<CuratorFramework> own = sessions(task.clients);
        AtomicInteger inside = new AtomicInteger();
        return drive(task, lane -> {
            InterProcessSemaphoreV2 semaphore =
                    new InterProcessSemaphoreV2(own.get(lane), DIR + "/semaphore", PERMITS);
            return () -> {
                Lease lease = semaphore.acquire();
                if (inside.incrementAndGet() > PERMITS) {
                    throw new IllegalStateException("more than there are permits");
                }
                Thread.yield();
                inside.decrementAndGet();
                semaphore.returnLease(lease);
            };
        });
    }

    private String readWrite(Task task) throws Exception {
        List<CuratorFramework> own = sessions(task.clients);
        AtomicInteger readers = new AtomicInteger();
        AtomicInteger inside = new AtomicInteger();
        return drive(task, lane -> {
            InterProcessReadWriteLock lock =
                    new InterProcessReadWriteLock(own.get(lane), DIR + "/read-write");
            int[] laps = {lane};
            return () -> {
                if (laps[0]++ % 10 == 0) {
                    lock.writeLock().acquire();
                    alone(inside);
                    if (readers.get() != 0) {
                        throw new IllegalStateException("a reader and a writer at the same time");
                    }
                    lock.writeLock().release();
                } else {
                    lock.readLock().acquire();
                    readers.incrementAndGet();
                    Thread.yield();
                    if (inside.get() != 0) {
                        throw new IllegalStateException("a writer together with a reader");
                    }
                    readers.decrementAndGet();
                    lock.readLock().release();
                }
            };
        });
    }

    /**
     * A lap is a round of all members. One of Curator's waits for ever if it is notified before it waits, and others have left
     * by then. Such a round is given up after a second, and counts as a lap.
     */
    private String rounds(Task task) throws Exception {
        List<CuratorFramework> own = sessions(task.clients);
        return drive(task.byOne(), lane -> () -> {
            String path = DIR + "/both-" + task.clients + "-" + givenUp;
            List<Future<Void>> all = new ArrayList<>();
            for (CuratorFramework client : own) {
                DistributedDoubleBarrier member = new DistributedDoubleBarrier(client, path, task.clients);
                all.add(threads.submit(() -> {
                    member.enter();
                    member.leave();
                    return null;
                }));
            }
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(1);
            try {
                for (Future<Void> one : all) {
                    one.get(Math.max(1, end - System.nanoTime()), TimeUnit.NANOSECONDS);
                }
            } catch (TimeoutException waits) {
                // What its members leave behind is on a path that is not used again.
                all.forEach(one -> one.cancel(true));
                givenUp++;
            }
        });
    }

    private String observe(Task task) throws Exception {
        List<CuratorFramework> own = sessions(2);
        String node = DIR + "/observed";
        ensure(own.get(0), node);
        Semaphore heard = new Semaphore(0);
        CountDownLatch ready = new CountDownLatch(1);
        CuratorCache cache = CuratorCache.build(own.get(1), node, CuratorCache.Options.SINGLE_NODE_CACHE);
        cache.listenable().addListener(CuratorCacheListener.builder()
                .forChanges((before, after) -> heard.release())
                .forInitialized(ready::countDown)
                .build());
        try (cache) {
            cache.start();
            ready.await();
            return drive(task.byOne(), lane -> () -> {
                own.get(0).setData().inBackground().forPath(node, DATA);
                heard.acquire();
            });
        }
    }

    private String resign(Task task) throws Exception {
        List<CuratorFramework> own = sessions(2);
        String path = DIR + "/leader";
        List<Long> laps = new ArrayList<>();
        LeaderLatch leader = new LeaderLatch(own.get(0), path, "0");
        leader.start();
        leader.await();
        long cpuBefore = cpu();
        long begun = System.nanoTime();
        for (int lap = 1; goesOn(task, laps.size(), begun); lap++) {
            LeaderLatch next = new LeaderLatch(own.get(lap % 2), path, String.valueOf(lap));
            CountDownLatch led = new CountDownLatch(1);
            next.addListener(new LeaderLatchListener() {
                @Override
                public void isLeader() {
                    led.countDown();
                }

                @Override
                public void notLeader() {}
            });
            next.start();
            while (children(own.get(0), path) < 2) {
                Thread.sleep(1);
            }
            Thread.sleep(task.work.equals("resign-late") ? 300 : 5);
            long started = System.nanoTime();
            leader.close();
            led.await();
            laps.add(System.nanoTime() - started);
            leader = next;
        }
        leader.close();
        return report(laps, System.nanoTime() - begun, cpu() - cpuBefore, rss());
    }

    private String lead() throws Exception {
        long started = System.nanoTime();
        leading = new LeaderLatch(sessions(1).get(0), DIR + "/killed");
        leading.start();
        leading.await();
        long took = System.nanoTime() - started;
        return report(List.of(took), took, 0, rss());
    }

    List<CuratorFramework> sessions(int count) throws Exception {
        while (clients.size() < count) {
            CuratorFramework client =
                    CuratorFrameworkFactory.newClient(address, session, 15_000, new RetryOneTime(100));
            client.start();
            client.blockUntilConnected();
            clients.add(client);
        }
        return clients.subList(0, count);
    }

    static void ensure(CuratorFramework client, String path) throws Exception {
        client.create().orSetData().creatingParentsIfNeeded().forPath(path, DATA);
    }

    private static int children(CuratorFramework client, String path) throws Exception {
        Stat stat = client.checkExists().forPath(path);
        return stat == null ? 0 : stat.getNumChildren();
    }

    private static void alone(AtomicInteger inside) {
        if (inside.incrementAndGet() != 1) {
            throw new IllegalStateException("two hold one lock");
        }
        Thread.yield();
        inside.decrementAndGet();
    }

    String drive(Task task, Lanes lanes) throws Exception {
        List<Lap> ready = new ArrayList<>();
        for (int number = 0; number < task.clients; number++) {
            ready.add(lanes.lane(number));
        }
        List<Callable<List<Long>>> works = new ArrayList<>();
        long begun = System.nanoTime();
        for (Lap lane : ready) {
            works.add(() -> {
                List<Long> laps = new ArrayList<>();
                while (goesOn(task, laps.size(), begun)) {
                    long started = System.nanoTime();
                    lane.run();
                    laps.add(System.nanoTime() - started);
                }
                return laps;
            });
        }
        long cpuBefore = cpu();
        List<Long> laps = new ArrayList<>();
        for (List<Long> own : all(threads.invokeAll(works))) {
            laps.addAll(own);
        }
        return report(laps, System.nanoTime() - begun, cpu() - cpuBefore, rss());
    }

    static boolean goesOn(Task task, int laps, long begun) {
        if (task.laps > 0) {
            return laps < task.laps;
        }
        return laps == 0 || System.nanoTime() - begun < task.millis * 1_000_000;
    }

    private static <T> List<T> all(List<Future<T>> works) throws Exception {
        List<T> done = new ArrayList<>();
        for (Future<T> work : works) {
            try {
                done.add(work.get());
            } catch (ExecutionException failed) {
                throw new Exception(failed.getCause());
            }
        }
        return done;
    }

    static String report(List<Long> laps, long nanos, long cpu, long rss) {
        long[] sorted = laps.stream().mapToLong(Long::longValue).toArray();
        Arrays.sort(sorted);
        return String.format(Locale.ROOT, "{\"laps\":%d,\"micros\":%.3f,\"p50\":%.3f,\"p90\":%.3f,"
                + "\"p99\":%.3f,\"cpu\":%.3f,\"rss\":%d}", sorted.length, nanos / 1e3,
                at(sorted, 50), at(sorted, 90), at(sorted, 99), cpu / 1e3, rss);
    }

    private static double at(long[] sorted, int hundredths) {
        return sorted.length == 0 ? 0 : sorted[(sorted.length - 1) * hundredths / 100] / 1e3;
    }

    static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean)
                ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    static long rss() throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmRSS:")) {
                return Long.parseLong(line.replaceAll("[^0-9]", ""));
            }
        }
        return 0;
    }

    private static Thread daemon(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        return thread;
    }
}
