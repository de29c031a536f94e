import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.LongStream;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.CachedAtomicLong;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.shared.SharedValue;
import org.apache.curator.framework.recipes.shared.SharedValueListener;
import org.apache.curator.framework.recipes.shared.SharedValueReader;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;

/** Single values: a counter, unique numbers, and a value with a copy in each client. */
final class Values {
    private static final int BLOCK = 100;

    private final Peer peer;

    private record Seen(String value, long nanos) {}

    private interface Add {
        AtomicValue<Long> once() throws Exception;
    }

    Values(Peer peer) {
        this.peer = peer;
    }

    String increment(Peer.Task task, List<CuratorFramework> clients) throws Exception {
        String path = Peer.DIR + "/counter";
        DistributedAtomicLong first = counter(clients.get(0), path);
        first.initialize(0L);
        long before = first.get().postValue();
        AtomicLong added = new AtomicLong();
        String report = peer.drive(task, lane -> {
            DistributedAtomicLong counter = counter(clients.get(lane), path);
            return () -> {
                untilItSucceeds(counter::increment);
                added.incrementAndGet();
            };
        });
        long sum = first.get().postValue() - before;
        if (sum != added.get()) {
            throw new IllegalStateException(added + " additions were answered, and the sum has " + sum);
        }
        return report;
    }

    String ids(Peer.Task task) throws Exception {
        List<CuratorFramework> own = peer.sessions(task.clients());
        String path = Peer.DIR + "/ids";
        counter(own.get(0), path).initialize(0L);
        List<LongStream.Builder> taken = new ArrayList<>();
        String report = peer.drive(task, lane -> {
            CachedAtomicLong numbers = new CachedAtomicLong(counter(own.get(lane), path), BLOCK);
            LongStream.Builder mine = LongStream.builder();
            taken.add(mine);
            return () -> {
                for (int number = 0; number < BLOCK; number++) {
                    mine.add(untilItSucceeds(numbers::next));
                }
            };
        });
        long[] all = taken.stream().flatMapToLong(LongStream.Builder::build).toArray();
        if (LongStream.of(all).distinct().count() != all.length) {
            throw new IllegalStateException("a number was handed out twice");
        }
        return report;
    }

    /** One session sets the value. A lap is from the call until a listener of another session gets it. */
    String shared(Peer.Task task) throws Exception {
        List<CuratorFramework> own = peer.sessions(2);
        String path = Peer.DIR + "/shared-value";
        BlockingQueue<Seen> seen = new LinkedBlockingQueue<>();
        List<Long> laps = new ArrayList<>();
        try (SharedValue writer = new SharedValue(own.get(0), path, bytes(0));
                SharedValue reader = new SharedValue(own.get(1), path, bytes(0))) {
            reader.getListenable().addListener(new SharedValueListener() {
                @Override
                public void valueHasChanged(SharedValueReader shared, byte[] value) {
                    seen.add(new Seen(text(value), System.nanoTime()));
                }

                @Override
                public void stateChanged(CuratorFramework client, ConnectionState state) {}
            });
            writer.start();
            reader.start();
            long number = Long.parseLong(text(writer.getValue()));
            long cpuBefore = Peer.cpu();
            long begun = System.nanoTime();
            while (Peer.goesOn(task, laps.size(), begun)) {
                number++;
                long started = System.nanoTime();
                writer.setValue(bytes(number));
                Seen last = seen.take();
                while (!last.value().equals(String.valueOf(number))) {
                    last = seen.take();
                }
                laps.add(last.nanos() - started);
            }
            return Peer.report(laps, System.nanoTime() - begun, Peer.cpu() - cpuBefore, Peer.rss());
        }
    }

    private static DistributedAtomicLong counter(CuratorFramework client, String path) {
        // As in Curator's own examples.
        return new DistributedAtomicLong(client, path, new RetryNTimes(10, 10));
    }

    /** An addition that lost too many races is to be repeated. */
    private static long untilItSucceeds(Add add) throws Exception {
        AtomicValue<Long> done = add.once();
        while (!done.succeeded()) {
            done = add.once();
        }
        return done.postValue();
    }

    private static byte[] bytes(long number) {
        return String.valueOf(number).getBytes(StandardCharsets.US_ASCII);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.US_ASCII);
    }
}
