import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.ServerCnxnFactory;
import org.apache.zookeeper.server.ZooKeeperServer;

/** A server that moves the counter of a directory on: for each line "PATH NUMBER" of its input it says "done". */
public final class Counter {
    public static void main(String[] args) throws Exception {
        File home = new File(args[1]);
        ZooKeeperServer server = new ZooKeeperServer(home, home, Integer.parseInt(args[2]));
        InetSocketAddress address = new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0]));
        ServerCnxnFactory connections = ServerCnxnFactory.createFactory(address, 0);
        connections.startup(server);
        System.out.println("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            DataTree tree = server.getZKDatabase().getDataTree();
            tree.setCversionPzxid(words[0], Integer.parseInt(words[1]), tree.lastProcessedZxid);
            System.out.println("done");
        }
        // Whoever started it is gone.
        System.exit(0);
    }
}
