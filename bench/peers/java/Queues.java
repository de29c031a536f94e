import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.stream.Stream;
import org.apache.curator.framework.CuratorFramework;
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
                    builder(own.get(lane), consumed, "/acknowledged").lockPath(Peer.DIR + "/acknowledged-locks"));
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
                DistributedQueue<byte[]> queue = queues.start(builder(own.get(lane), consumed, "/bunches-" + lane));
                return () -> {
                    Iterator<byte[]> items = Stream.generate(() -> Peer.DATA).limit(BUNCH).iterator();
                    MultiItem<byte[]> bunch = () -> items.hasNext() ? items.next() : null;
                    queue.putMulti(bunch);
                    consumed.acquire(BUNCH);
                };
            });
        }
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

    private static QueueBuilder<byte[]> builder(CuratorFramework client, Semaphore consumed, String path) {
        QueueConsumer<byte[]> consumer = new QueueConsumer<>() {
            @Override
            public void consumeMessage(byte[] item) {
                consumed.release();
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
