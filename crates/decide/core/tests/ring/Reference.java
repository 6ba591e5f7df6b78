import java.io.PrintStream;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;

import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.dht.Murmur3Partitioner;
import org.apache.cassandra.dht.Token;
import org.apache.cassandra.locator.AbstractNetworkTopologySnitch;
import org.apache.cassandra.locator.AbstractReplicationStrategy;
import org.apache.cassandra.locator.InetAddressAndPort;
import org.apache.cassandra.locator.NetworkTopologyStrategy;
import org.apache.cassandra.locator.Replica;
import org.apache.cassandra.locator.SimpleStrategy;
import org.apache.cassandra.locator.TokenMetadata;

/** Asks Cassandra's own classes for tokens of keys and for replicas of random rings. */
public final class Reference
{
    private static final int KEYS = 1_500;
    private static final int RINGS = 1_000;
    private static final int KEYS_OF_RING = 16;

    /** A key whose hash is the least number, made by computing the hash backwards. */
    private static final String HASHES_TO_LEAST = "6695e3c7ba3f086354c52c5bc51e53c3";

    private record Node(char datacenter, char rack, int tokens) {}

    public static void main(String[] args) throws Exception
    {
        DatabaseDescriptor.clientInitialization();
        Murmur3Partitioner partitioner = Murmur3Partitioner.instance;
        DatabaseDescriptor.setPartitionerUnsafe(partitioner);
        Random random = new Random(20_260_822);
        try (PrintStream out = new PrintStream(args[0] + "/tokens.txt", StandardCharsets.UTF_8))
        {
            key(out, partitioner, new BigInteger(HASHES_TO_LEAST, 16).toByteArray());
            for (int number = 0; number < KEYS; number++)
            {
                byte[] key = new byte[random.nextInt(50)];
                random.nextBytes(key);
                key(out, partitioner, key);
            }
        }
        try (PrintStream out = new PrintStream(args[0] + "/rings.txt", StandardCharsets.UTF_8))
        {
            for (int number = 0; number < RINGS; number++)
                ring(out, partitioner, random, number);
        }
        System.exit(0);
    }

    /** A key's bytes in hexadecimal, and its token. */
    private static void key(PrintStream out, Murmur3Partitioner partitioner, byte[] key)
    {
        StringBuilder line = new StringBuilder();
        for (byte each : key)
            line.append(String.format("%02x", each));
        out.append(line).append(' ').append(token(partitioner, key).toString()).append('\n');
    }

    /** One ring: its nodes, its replication, and the replicas of its keys in order. */
    private static void ring(PrintStream out, Murmur3Partitioner partitioner, Random random, int number)
    throws Exception
    {
        int datacenters = 1 + random.nextInt(3);
        int racks = 1 + random.nextInt(4);
        int tokensMax = 1 + random.nextInt(8);
        List<Node> nodes = new ArrayList<>();
        for (int count = 1 + random.nextInt(12); count > 0; count--)
            nodes.add(new Node((char) ('a' + random.nextInt(datacenters)),
                               (char) ('1' + random.nextInt(racks)),
                               1 + random.nextInt(tokensMax)));
        Map<InetAddressAndPort, Integer> places = new HashMap<>();
        TokenMetadata metadata = metadata(partitioner, number, nodes, places);

        StringBuilder line = new StringBuilder();
        for (Node node : nodes)
            line.append(node.datacenter).append(node.rack).append(node.tokens).append(' ');
        AbstractReplicationStrategy strategy = strategy(metadata, datacenters, random, line);
        for (int key = 0; key < KEYS_OF_RING; key++)
        {
            Token token = token(partitioner, text(number + "/key/" + key));
            line.append(' ');
            int count = 0;
            for (Replica replica : strategy.calculateNaturalReplicas(token, metadata))
            {
                line.append(Character.forDigit(places.get(replica.endpoint()), 36));
                count++;
            }
            if (count == 0)
                line.append('-');
        }
        out.append(line).append('\n');
    }

    private static TokenMetadata metadata(Murmur3Partitioner partitioner, int number, List<Node> nodes,
                                          Map<InetAddressAndPort, Integer> places) throws Exception
    {
        for (int place = 0; place < nodes.size(); place++)
            places.put(InetAddressAndPort.getByName("127.0.1." + (place + 1)), place);
        TokenMetadata metadata = new TokenMetadata(new AbstractNetworkTopologySnitch()
        {
            public String getRack(InetAddressAndPort endpoint)
            {
                return String.valueOf(nodes.get(places.get(endpoint)).rack);
            }

            public String getDatacenter(InetAddressAndPort endpoint)
            {
                return String.valueOf(nodes.get(places.get(endpoint)).datacenter);
            }
        });
        for (Map.Entry<InetAddressAndPort, Integer> entry : places.entrySet())
        {
            List<Token> tokens = new ArrayList<>();
            for (int each = 0; each < nodes.get(entry.getValue()).tokens; each++)
                tokens.add(token(partitioner, text(number + "/node/" + entry.getValue() + "/" + each)));
            metadata.updateNormalTokens(tokens, entry.getKey());
        }
        return metadata;
    }

    /** One in four is simple; a data centre may be left out, named without nodes, or have too few. */
    private static AbstractReplicationStrategy strategy(TokenMetadata metadata, int datacenters, Random random,
                                                        StringBuilder line)
    {
        Map<String, String> options = new TreeMap<>();
        if (random.nextInt(4) == 0)
        {
            int replicas = 1 + random.nextInt(5);
            options.put("replication_factor", String.valueOf(replicas));
            line.append('=').append(replicas);
            return new SimpleStrategy("k", metadata, null, options);
        }
        line.append('=');
        for (int datacenter = 0; datacenter < datacenters + 1; datacenter++)
        {
            int replicas = random.nextInt(5);
            String name = String.valueOf((char) ('a' + datacenter));
            if (random.nextInt(5) == 0)
                continue;
            options.put(name, String.valueOf(replicas));
            line.append(name).append(replicas);
        }
        return new NetworkTopologyStrategy("k", metadata, null, options);
    }

    private static Token token(Murmur3Partitioner partitioner, byte[] key)
    {
        return partitioner.getToken(ByteBuffer.wrap(key));
    }

    private static byte[] text(String text)
    {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
