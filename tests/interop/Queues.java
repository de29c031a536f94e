// A process with queues of Curator, told what to do line by line:
//
//   put KIND PATH TEXT PLACE    puts one item; PLACE is its priority, or the milliseconds after which it is to be had
//   put-two PATH TEXT TEXT      puts two items in one node of a DistributedQueue
//   take KIND PATH [LOCKS]      waits for the next item, and answers with it
//
// KIND is `simple`, `items`, `priority` or `delay`. Other answers are `in`.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.queue.DistributedDelayQueue;
import org.apache.curator.framework.recipes.queue.DistributedPriorityQueue;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.MultiItem;
import org.apache.curator.framework.recipes.queue.QueueBase;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryForever;

public final class Queues {
    private static final QueueSerializer<String> TEXT = new QueueSerializer<>() {
        @Override
        public byte[] serialize(String item) {
            return item.getBytes(StandardCharsets.UTF_8);
        }

        @Override
        public String deserialize(byte[] bytes) {
            return new String(bytes, StandardCharsets.UTF_8);
        }
    };

    public static void main(String[] arguments) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(arguments[0], 2000, 2000, new RetryForever(100));
        client.start();
        client.blockUntilConnected();
        say("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "put" -> {
                    put(client, words[1], words[2], words[3], Integer.parseInt(words[4]));
                    say("in");
                }
                case "put-two" -> {
                    DistributedQueue<String> queue = builder(client, null, words[1]).buildQueue();
                    queue.start();
                    Iterator<String> items = List.of(words[2], words[3]).iterator();
                    MultiItem<String> both = () -> items.hasNext() ? items.next() : null;
                    queue.putMulti(both);
                    flushed(queue);
                    say("in");
                }
                case "take" -> say(take(client, words));
                default -> throw new IllegalArgumentException(line);
            }
        }
        client.close();
        System.exit(0);
    }

    private static void put(CuratorFramework client, String kind, String path, String text, int place) throws Exception {
        QueueBuilder<String> builder = builder(client, null, path);
        switch (kind) {
            case "simple" -> new SimpleDistributedQueue(client, path).offer(TEXT.serialize(text));
            case "items" -> {
                DistributedQueue<String> queue = builder.buildQueue();
                queue.start();
                queue.put(text);
                flushed(queue);
            }
            case "priority" -> {
                DistributedPriorityQueue<String> queue = builder.buildPriorityQueue(0);
                queue.start();
                queue.put(text, place);
                flushed(queue);
            }
            case "delay" -> {
                DistributedDelayQueue<String> queue = builder.buildDelayQueue();
                queue.start();
                queue.put(text, System.currentTimeMillis() + place);
                flushed(queue);
            }
            default -> throw new IllegalArgumentException(kind);
        }
    }

    private static void flushed(QueueBase<String> queue) throws Exception {
        if (!queue.flushPuts(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("it was not put");
        }
        queue.close();
    }

    /** A consumer of Curator takes items whether they are wanted or not: it ends with the first one. */
    private static String take(CuratorFramework client, String[] words) throws Exception {
        if (words[1].equals("simple")) {
            return TEXT.deserialize(new SimpleDistributedQueue(client, words[2]).take());
        }
        BlockingQueue<String> had = new LinkedBlockingQueue<>();
        QueueConsumer<String> consumer = new QueueConsumer<>() {
            private boolean full;

            @Override
            public synchronized void consumeMessage(String item) throws Exception {
                if (full) {
                    // With locks it stays in the queue.
                    throw new IllegalStateException("one is enough");
                }
                full = true;
                had.add(item);
            }

            @Override
            public void stateChanged(CuratorFramework same, ConnectionState state) {}
        };
        QueueBuilder<String> builder = builder(client, consumer, words[2]);
        if (words.length > 3) {
            builder = builder.lockPath(words[3]);
        }
        QueueBase<String> queue = switch (words[1]) {
            case "items" -> builder.buildQueue();
            case "priority" -> builder.buildPriorityQueue(0);
            default -> builder.buildDelayQueue();
        };
        queue.start();
        String item = had.take();
        queue.close();
        return item;
    }

    private static QueueBuilder<String> builder(CuratorFramework client, QueueConsumer<String> consumer, String path) {
        return QueueBuilder.builder(client, consumer, TEXT, path);
    }

    private static void say(String word) {
        System.out.println(word + " @" + System.nanoTime());
    }
}
