// A process with the service discovery of Apache Curator, told what to do line by line: `base PATH`, then
// `offer SERVICE ID PORT PAYLOAD`, `change SERVICE ID PORT PAYLOAD`, `withdraw ID`, `list SERVICE`, `follow SERVICE`, `cached`,
// `uri SERVICE ID`. A payload is `none`, `text:TEXT` or `load:WEIGHT`. It answers `in` and `out`, or a list, each with the time
// (`in @NANOSECONDS`) by the clock that the processes of a machine share, and ends with its input.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryForever;
import org.apache.curator.x.discovery.ServiceCache;
import org.apache.curator.x.discovery.ServiceDiscovery;
import org.apache.curator.x.discovery.ServiceDiscoveryBuilder;
import org.apache.curator.x.discovery.ServiceInstance;
import org.apache.curator.x.discovery.UriSpec;
import org.apache.curator.x.discovery.details.JsonInstanceSerializer;

public final class Discovery {
    /** A payload with its class in its JSON. */
    public static final class Load {
        public int weight;
    }

    public static void main(String[] arguments) throws Exception {
        CuratorFramework client =
            CuratorFrameworkFactory.newClient(arguments[0], 2000, 2000, new RetryForever(100));
        client.start();
        client.blockUntilConnected();
        say("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        ServiceDiscovery<Object> discovery = null;
        ServiceCache<Object> cache = null;
        Map<String, ServiceInstance<Object>> offered = new HashMap<>();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "base" -> {
                    discovery = ServiceDiscoveryBuilder.builder(Object.class).client(client).basePath(words[1])
                        .serializer(new JsonInstanceSerializer<>(Object.class)).build();
                    discovery.start();
                    say("in");
                }
                case "offer" -> {
                    ServiceInstance<Object> instance = instance(words);
                    offered.put(words[2], instance);
                    discovery.registerService(instance);
                    say("in");
                }
                case "change" -> {
                    ServiceInstance<Object> instance = instance(words);
                    offered.put(words[2], instance);
                    discovery.updateService(instance);
                    say("in");
                }
                case "withdraw" -> {
                    discovery.unregisterService(offered.remove(words[1]));
                    say("out");
                }
                case "list" -> say(shown(discovery.queryForInstances(words[1])));
                case "follow" -> {
                    cache = discovery.serviceCacheBuilder().name(words[1]).build();
                    cache.start();
                    say("in");
                }
                case "cached" -> say(shown(cache.getInstances()));
                case "uri" -> say(discovery.queryForInstance(words[1], words[2]).buildUriSpec());
                default -> throw new IllegalArgumentException(line);
            }
        }
        client.close();
        System.exit(0);
    }

    private static ServiceInstance<Object> instance(String[] words) throws Exception {
        return ServiceInstance.builder().name(words[1]).id(words[2]).address("10.0.0.8")
            .port(Integer.parseInt(words[3])).payload(payload(words[4])).uriSpec(new UriSpec("{scheme}://{address}:{port}"))
            .build();
    }

    private static Object payload(String word) {
        if (word.startsWith("text:")) {
            return word.substring(5);
        }
        if (word.startsWith("load:")) {
            Load load = new Load();
            load.weight = Integer.parseInt(word.substring(5));
            return load;
        }
        return null;
    }

    private static String shown(Collection<ServiceInstance<Object>> instances) {
        return instances.stream().map(Discovery::shown).sorted().collect(Collectors.joining(","));
    }

    private static String shown(ServiceInstance<Object> instance) {
        Object payload = instance.getPayload();
        String says = payload instanceof Load load ? "load:" + load.weight : payload == null ? "none" : "text:" + payload;
        return instance.getId() + ":" + instance.getPort() + ":" + says + (instance.isEnabled() ? "" : ":disabled");
    }

    private static void say(String word) {
        // CLOCK_MONOTONIC, on Linux.
        System.out.println(word + " @" + System.nanoTime());
        System.out.flush();
    }
}
