import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Stream;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.api.CuratorWatcher;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.MultiItem;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.state.ConnectionState;

/** Queues: items that are taken one by one, consumed under a lock, or consumed in bunches. */
final class Queues {
    private static final int BUNCH = 20;
    private static final String RESULTS = Peer.DIR + "/results";
    private static final String DATA = new String(Peer.DATA, StandardCharsets.US_ASCII);

    private final Peer peer;

    Queues(Peer peer) {
        this.peer = peer;
    }

    String taken(Peer.Task task) throws Exception {
        List<CuratorFramework> own = peer.sessions(task.clients());
        return peer.drive(task, lane -> {
            SimpleDistributedQueue queue = new SimpleDistributedQueue(own.get(lane), Peer.DIR + "/taken");
            return () -> {
                queue.offer(Peer.DATA);
                queue.take();
            };
        });
    }

    /** A lap ends when the consumer of any client has had an item. */
    String acknowledged(Peer.Task task) throws Exception {
        List<CuratorFramework> own = peer.sessions(task.clients());
        Semaphore consumed = new Semaphore(0);
        try (Started queues = new Started()) {
            return peer.drive(task, lane -> {
                DistributedQueue<byte[]> queue = queues.start(
                    builder(own.get(lane), item -> consumed.release(), "/acknowledged").lockPath(Peer.DIR + "/acknowledged-locks"));
                return () -> {
                    queue.put(Peer.DATA);
                    consumed.acquire();
                };
            });
        }
    }

    /** The items of a bunch are in one node. */
    String inBunches(Peer.Task task) throws Exception {
        List<CuratorFramework> own = peer.sessions(task.clients());
        try (Started queues = new Started()) {
            return peer.drive(task, lane -> {
                Semaphore consumed = new Semaphore(0);
                DistributedQueue<byte[]> queue = queues.start(
                    builder(own.get(lane), item -> consumed.release(), "/bunches-" + lane));
                return () -> {
                    Iterator<byte[]> items = Stream.generate(() -> Peer.DATA).limit(BUNCH).iterator();
                    MultiItem<byte[]> bunch = () -> items.hasNext() ? items.next() : null;
                    queue.putMulti(bunch);
                    consumed.acquire(BUNCH);
                };
            });
        }
    }

    /**
     * A task is an item of a queue with a lock path: a number of sixteen digits, and its data. The consumer that has it makes
     * a node with its result, which the submitter reads and deletes.
     */
    String tasks(Peer.Task task) throws Exception {
        List<CuratorFramework> own = peer.sessions(2 * task.clients());
        Peer.ensure(own.get(0), RESULTS);
        String run = UUID.randomUUID().toString();
        AtomicLong numbers = new AtomicLong();
        try (Started queues = new Started()) {
            for (CuratorFramework worker : own.subList(task.clients(), own.size())) {
                queues.start(builder(worker, item -> answer(worker, run, item), "/tasks")
                        .lockPath(Peer.DIR + "/tasks-locks"));
            }
            return peer.drive(task, lane -> {
                CuratorFramework submitter = own.get(lane);
                DistributedQueue<byte[]> queue = queues.start(builder(submitter, null, "/tasks"));
                return () -> {
                    String id = String.format("%016x", numbers.incrementAndGet());
                    CountDownLatch made = new CountDownLatch(1);
                    String result = RESULTS + "/" + run + "-" + id;
                    // The watch is set before the task is there, and fires when the node of the result is made.
                    submitter.checkExists().usingWatcher((CuratorWatcher) event -> made.countDown()).forPath(result);
                    queue.put((id + DATA).getBytes(StandardCharsets.US_ASCII));
                    made.await();
                    if (!Arrays.equals(submitter.getData().forPath(result), Peer.DATA)) {
                        throw new IllegalStateException("a task has another result than its data");
                    }
                    submitter.delete().forPath(result);
                };
            });
        }
    }

    private static void answer(CuratorFramework worker, String run, byte[] item) throws Exception {
        String id = new String(item, 0, 16, StandardCharsets.US_ASCII);
        byte[] result = Arrays.copyOfRange(item, 16, item.length);
        worker.create().forPath(RESULTS + "/" + run + "-" + id, result);
    }

    private interface Consume {
        void item(byte[] item) throws Exception;
    }

    /** The queues of one task. */
    private static final class Started implements AutoCloseable {
        private final List<DistributedQueue<byte[]>> all = new ArrayList<>();

        DistributedQueue<byte[]> start(QueueBuilder<byte[]> builder) throws Exception {
            DistributedQueue<byte[]> queue = builder.buildQueue();
            queue.start();
            all.add(queue);
            return queue;
        }

        @Override
        public void close() throws Exception {
            for (DistributedQueue<byte[]> queue : all) {
                queue.close();
            }
        }
    }

    /** A queue that only puts items if it has nothing that consumes them. */
    private static QueueBuilder<byte[]> builder(CuratorFramework client, Consume consume, String path) {
        QueueConsumer<byte[]> consumer = consume == null ? null : new QueueConsumer<>() {
            @Override
            public void consumeMessage(byte[] item) throws Exception {
                consume.item(item);
            }

            @Override
            public void stateChanged(CuratorFramework client, ConnectionState state) {}
        };
        QueueSerializer<byte[]> plain = new QueueSerializer<>() {
            @Override
            public byte[] serialize(byte[] item) {
                return item;
            }

            @Override
            public byte[] deserialize(byte[] bytes) {
                return bytes;
            }
        };
        return QueueBuilder.builder(client, consumer, plain, Peer.DIR + path);
    }
}
