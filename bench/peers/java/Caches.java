import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.cache.ChildData;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.x.discovery.ServiceCache;
import org.apache.curator.x.discovery.ServiceDiscovery;
import org.apache.curator.x.discovery.ServiceDiscoveryBuilder;
import org.apache.curator.x.discovery.ServiceInstance;
import org.apache.curator.x.discovery.details.ServiceCacheListener;

/** Caches of a subtree, and of the instances of a service. */
final class Caches {
    private static final String SERVICE = "bench";

    private final Peer peer;
    /** Is there until the process ends. */
    private ServiceDiscovery<Void> registered;

    private record Seen(long number, long nanos) {}

    Caches(Peer peer) {
        this.peer = peer;
    }

    /** The nodes are those of synod: the data of each begins with its name and the number of a change. */
    private static String dir(Peer.Task task) {
        return "/crowd/" + task.nodes();
    }

    /** Fills a cache again and again. What it lacks when it says that it is initialized is reported. */
    String complete(Peer.Task task) throws Exception {
        CuratorFramework client = peer.sessions(1).get(0);
        long before = settled();
        long grown = 0;
        long least = Long.MAX_VALUE;
        List<Long> laps = new ArrayList<>();
        long cpuBefore = Peer.cpu();
        long begun = System.nanoTime();
        while (Peer.goesOn(task, laps.size(), begun)) {
            long started = System.nanoTime();
            try (CuratorCache cache = started(client, dir(task), null)) {
                laps.add(System.nanoTime() - started);
                if (laps.size() == 1) {
                    grown = Math.max(0, settled() - before);
                }
                least = Math.min(least, own(cache, dir(task)));
            }
        }
        String report = Peer.report(laps, System.nanoTime() - begun, Peer.cpu() - cpuBefore, grown);
        return report.replace("}", ",\"nodes\":" + least + "}");
    }

    /** One session changes a node. A lap is from the call until a listener of the cache of another session gets it. */
    String seen(Peer.Task task) throws Exception {
        List<CuratorFramework> own = peer.sessions(2);
        BlockingQueue<Seen> seen = new LinkedBlockingQueue<>();
        List<Long> laps = new ArrayList<>();
        try (CuratorCache cache = started(own.get(1), dir(task), seen)) {
            long number = cache.stream().mapToLong(Caches::number).max().orElse(0);
            long cpuBefore = Peer.cpu();
            long begun = System.nanoTime();
            while (Peer.goesOn(task, laps.size(), begun)) {
                number++;
                int node = (int) (number * 7919 % task.nodes());
                String name = String.format("n%06d", node);
                String path = dir(task) + String.format("/d%03d/%s", node / 250, name);
                String data = String.format("%s %010d ", name, number);
                byte[] bytes = (data + "x".repeat(100 - data.length())).getBytes(StandardCharsets.US_ASCII);
                long started = System.nanoTime();
                own.get(0).setData().forPath(path, bytes);
                Seen last = seen.take();
                while (last.number() != number) {
                    last = seen.take();
                }
                laps.add(last.nanos() - started);
                Optional<ChildData> cached = cache.get(path);
                if (cached.isEmpty() || number(cached.get()) != number) {
                    throw new IllegalStateException("the event is reported, and the cache has an older node");
                }
            }
            return Peer.report(laps, System.nanoTime() - begun, Peer.cpu() - cpuBefore, Peer.rss());
        }
    }

    /** Follows changes that another process makes. A lap is a change. */
    String changes(Peer.Task task) throws Exception {
        BlockingQueue<Seen> seen = new LinkedBlockingQueue<>();
        try (CuratorCache cache = started(peer.sessions(1).get(0), dir(task), seen)) {
            long first = seen.take().number();
            long last = first;
            long cpuBefore = Peer.cpu();
            long begun = System.nanoTime();
            while (Peer.goesOn(task, (int) (last - first), begun)) {
                last = Math.max(last, seen.take().number());
            }
            long nanos = System.nanoTime() - begun;
            long cpu = Peer.cpu() - cpuBefore;
            int made = (int) (last - first);
            List<Long> laps = new ArrayList<>();
            for (int lap = 0; lap < made; lap++) {
                laps.add(nanos / made);
            }
            return Peer.report(laps, nanos, cpu, Peer.rss());
        }
    }

    /** Registers an instance until the process ends; or follows the service until no client sees one any more. */
    String instance(Peer.Task task) throws Exception {
        long started = System.nanoTime();
        if (!task.heir()) {
            registered = discovery(peer.sessions(1).get(0));
            try (ServiceCache<Void> cache = registered.serviceCacheBuilder().name(SERVICE).build()) {
                cache.start();
                until(cache, 0);
            }
            registered.registerService(
                    ServiceInstance.<Void>builder().name(SERVICE).address("127.0.0.1").port(1).build());
        } else {
            List<Thread> watchers = new ArrayList<>();
            List<Exception> failed = new ArrayList<>();
            for (CuratorFramework client : peer.sessions(task.clients())) {
                watchers.add(new Thread(() -> {
                    try (ServiceCache<Void> cache = discovery(client).serviceCacheBuilder().name(SERVICE).build()) {
                        cache.start();
                        until(cache, 1);
                        until(cache, 0);
                    } catch (Exception why) {
                        synchronized (failed) {
                            failed.add(why);
                        }
                    }
                }));
            }
            watchers.forEach(Thread::start);
            for (Thread watcher : watchers) {
                watcher.join();
            }
            if (!failed.isEmpty()) {
                throw failed.get(0);
            }
        }
        long took = System.nanoTime() - started;
        return Peer.report(List.of(took), took, 0, Peer.rss());
    }

    private static ServiceDiscovery<Void> discovery(CuratorFramework client) throws Exception {
        ServiceDiscovery<Void> discovery = ServiceDiscoveryBuilder.builder(Void.class)
                .client(client).basePath(Peer.DIR + "/services").build();
        discovery.start();
        return discovery;
    }

    /** Waits until a service has so many instances. */
    private static void until(ServiceCache<Void> cache, int count) throws Exception {
        BlockingQueue<Boolean> changed = new LinkedBlockingQueue<>();
        ServiceCacheListener listener = new ServiceCacheListener() {
            @Override
            public void cacheChanged() {
                changed.add(true);
            }

            @Override
            public void stateChanged(CuratorFramework client, ConnectionState state) {}
        };
        cache.addListener(listener);
        while (cache.getInstances().size() != count) {
            changed.take();
        }
        cache.removeListener(listener);
    }

    private static CuratorCache started(CuratorFramework client, String path, BlockingQueue<Seen> seen)
            throws Exception {
        CountDownLatch ready = new CountDownLatch(1);
        CuratorCache cache = CuratorCache.build(client, path);
        var listener = CuratorCacheListener.builder().forInitialized(ready::countDown);
        if (seen != null) {
            listener.forChanges((before, after) -> seen.add(new Seen(number(after), System.nanoTime())));
        }
        cache.listenable().addListener(listener.build());
        cache.start();
        ready.await();
        return cache;
    }

    /** How many nodes of those that a cache should have it has. It fails if one has the data of another. */
    private static long own(CuratorCache cache, String dir) {
        return cache.stream().filter(it -> it.getPath().matches(dir + "/d[0-9]+/n[0-9]+"))
                .filter(it -> number(it) >= 0).count();
    }

    /** The number of the last change of a node; 0 of a directory. */
    private static long number(ChildData node) {
        String name = node.getPath().substring(node.getPath().lastIndexOf('/') + 1);
        if (!name.startsWith("n")) {
            return 0;
        }
        String[] words = new String(node.getData(), StandardCharsets.US_ASCII).split(" ");
        if (node.getData().length != 100 || words.length != 3 || !words[0].equals(name)) {
            throw new IllegalStateException(node.getPath() + " has other data than its own");
        }
        return Long.parseLong(words[1]);
    }

    /** The memory without what could be collected, in KiB. */
    private static long settled() throws Exception {
        System.gc();
        Thread.sleep(100);
        System.gc();
        return Peer.rss();
    }
}
