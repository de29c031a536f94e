// A process with locks of Apache Curator, told what to do line by line: `mutex PATH`, `read PATH`, `write PATH`,
// `release`, `permit PATH COUNT`, `return`, `revocable PATH`, `ask TICKET`, `latch PATH ID`, `leave`, `select PATH ID`, `yield`,
// `count PATH TIMES`, `count4 PATH TIMES`, `promoted PATH LOCK TIMES`, `atomic PATH TEXT`, `swap PATH TEXT TEXT`, `wait PATH`, `set PATH`, `lift PATH`, `share PATH FIRST`, `give NUMBER`, `see`,
// `try NUMBER`, `value PATH FIRST`, `text TEXT`, `join PATH NAME DATA`, `members`, `part`. It answers `in` and `out`, a number or a text, each with
// the time (`in @NANOSECONDS`) by the clock that the processes of a machine share, and ends with its input.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicInteger;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicValue;
import org.apache.curator.framework.recipes.atomic.PromotedToLock;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.SharedCountListener;
import org.apache.curator.framework.recipes.shared.SharedCountReader;
import org.apache.curator.framework.recipes.shared.SharedValue;
import org.apache.curator.framework.recipes.shared.SharedValueListener;
import org.apache.curator.framework.recipes.shared.SharedValueReader;
import org.apache.curator.framework.recipes.shared.VersionedValue;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryForever;
import org.apache.curator.retry.RetryNTimes;

public final class Curator {
    public static void main(String[] arguments) throws Exception {
        CuratorFramework client =
            CuratorFrameworkFactory.newClient(arguments[0], 2000, 2000, new RetryForever(100));
        client.start();
        client.blockUntilConnected();
        say("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        InterProcessLock held = null;
        Lease lease = null;
        LeaderLatch latch = null;
        LeaderSelector selector = null;
        GroupMember member = null;
        SharedCount count = null;
        DistributedDoubleBarrier both = null;
        SharedValue value = null;
        VersionedValue<Integer> seen = null;
        CountDownLatch enough = new CountDownLatch(1);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "mutex" -> held = enter(new InterProcessMutex(client, words[1]));
                case "revocable" -> {
                    InterProcessMutex lock = new InterProcessMutex(client, words[1]);
                    lock.makeRevocable(asked -> say("asked"));
                    held = enter(lock);
                }
                case "ask" -> Revoker.attemptRevoke(client, words[1]);
                case "read" -> held = enter(new InterProcessReadWriteLock(client, words[1]).readLock());
                case "write" -> held = enter(new InterProcessReadWriteLock(client, words[1]).writeLock());
                case "release" -> {
                    held.release();
                    say("out");
                }
                case "permit" -> {
                    lease = new InterProcessSemaphoreV2(client, words[1], Integer.parseInt(words[2])).acquire();
                    say("in");
                }
                case "return" -> {
                    lease.close();
                    say("out");
                }
                case "latch" -> {
                    latch = new LeaderLatch(client, words[1], words[2]);
                    latch.start();
                    latch.await();
                    say("in");
                }
                case "select" -> {
                    selector = new LeaderSelector(client, words[1], new LeaderSelectorListenerAdapter() {
                        @Override
                        public void takeLeadership(CuratorFramework led) throws InterruptedException {
                            say("in");
                            enough.await();
                        }
                    });
                    selector.setId(words[2]);
                    selector.start();
                }
                case "yield" -> {
                    enough.countDown();
                    selector.close();
                    say("out");
                }
                case "count" -> {
                    DistributedAtomicLong number = new DistributedAtomicLong(client, words[1], new RetryForever(5));
                    for (int times = Integer.parseInt(words[2]); times > 0; times -= 1) {
                        succeeded(number.increment());
                    }
                    say("" + succeeded(number.get()));
                }
                case "count4" -> {
                    DistributedAtomicInteger number = new DistributedAtomicInteger(client, words[1], new RetryForever(5));
                    for (int times = Integer.parseInt(words[2]); times > 0; times -= 1) {
                        succeeded(number.increment());
                    }
                    say("" + succeeded(number.get()));
                }
                case "promoted" -> {
                    PromotedToLock promoted =
                        PromotedToLock.builder().lockPath(words[2]).retryPolicy(new RetryForever(5)).build();
                    DistributedAtomicLong number =
                        new DistributedAtomicLong(client, words[1], new RetryNTimes(0, 0), promoted);
                    for (int times = Integer.parseInt(words[3]); times > 0; times -= 1) {
                        succeeded(number.increment());
                    }
                    say("" + succeeded(number.get()));
                }
                case "atomic" -> {
                    DistributedAtomicValue text =
                        new DistributedAtomicValue(client, words[1], new RetryForever(5));
                    AtomicValue<byte[]> set = text.trySet(bytes(words[2]));
                    succeeded(set);
                    say(set.preValue() == null ? "none" : text(set.preValue()));
                }
                case "swap" -> {
                    DistributedAtomicValue text =
                        new DistributedAtomicValue(client, words[1], new RetryForever(5));
                    say(text.compareAndSet(bytes(words[2]), bytes(words[3])).succeeded() ? "in" : "out");
                }
                case "wait" -> {
                    new DistributedBarrier(client, words[1]).waitOnBarrier();
                    say("in");
                }
                case "set" -> {
                    new DistributedBarrier(client, words[1]).setBarrier();
                    say("out");
                }
                case "lift" -> {
                    new DistributedBarrier(client, words[1]).removeBarrier();
                    say("in");
                }
                case "both" -> {
                    both = new DistributedDoubleBarrier(client, words[1], Integer.parseInt(words[2]));
                    both.enter();
                    say("in");
                }
                case "leave-both" -> {
                    both.leave();
                    say("out");
                }
                case "share" -> {
                    count = new SharedCount(client, words[1], Integer.parseInt(words[2]));
                    count.addListener(new SharedCountListener() {
                        @Override
                        public void countHasChanged(SharedCountReader reader, int number) {
                            say("" + number);
                        }

                        @Override
                        public void stateChanged(CuratorFramework same, ConnectionState state) {}
                    });
                    count.start();
                    say("" + count.getCount());
                }
                case "give" -> count.setCount(Integer.parseInt(words[1]));
                case "see" -> {
                    seen = count.getVersionedValue();
                    say("" + seen.getValue());
                }
                case "try" -> {
                    if (!count.trySetCount(seen, Integer.parseInt(words[1]))) {
                        say("out");
                    }
                }
                case "value" -> {
                    value = new SharedValue(client, words[1], words[2].getBytes(StandardCharsets.UTF_8));
                    value.getListenable().addListener(new SharedValueListener() {
                        @Override
                        public void valueHasChanged(SharedValueReader reader, byte[] bytes) {
                            say(new String(bytes, StandardCharsets.UTF_8));
                        }

                        @Override
                        public void stateChanged(CuratorFramework same, ConnectionState state) {}
                    });
                    value.start();
                    say(new String(value.getValue(), StandardCharsets.UTF_8));
                }
                case "text" -> value.setValue(words[1].getBytes(StandardCharsets.UTF_8));
                case "join" -> {
                    member = new GroupMember(client, words[1], words[2], words[3].getBytes(StandardCharsets.UTF_8));
                    member.start();
                    say("in");
                }
                case "members" -> say(member.getCurrentMembers().values().stream()
                    .map(data -> new String(data, StandardCharsets.UTF_8)).sorted().collect(Collectors.joining(",")));
                case "part" -> {
                    member.close();
                    say("out");
                }
                case "leave" -> {
                    latch.close();
                    say("out");
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
        client.close();
        System.exit(0);
    }

    private static InterProcessLock enter(InterProcessLock lock) throws Exception {
        lock.acquire();
        say("in");
        return lock;
    }

    private static <T> T succeeded(AtomicValue<T> value) {
        if (!value.succeeded()) {
            throw new IllegalStateException("it did not succeed");
        }
        return value.postValue();
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static void say(String word) {
        // CLOCK_MONOTONIC, on Linux.
        System.out.println(word + " @" + System.nanoTime());
        System.out.flush();
    }
}
