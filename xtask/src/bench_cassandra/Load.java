import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.cql.BoundStatement;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.internal.core.specex.ConstantSpeculativeExecutionPolicy;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Phaser;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;

/**
 * Load through the driver for Java with its default policy, directly or through a proxy, a turn at a
 * time. The words are those of sdk/scylla/examples/compare, whose table this one asks for.
 */
public final class Load {
  private final CqlSession session;
  private final PreparedStatement read;
  private final PreparedStatement write;

  /** Where a copy is sent to another node after this time. Statements here may be sent twice. */
  private static final Duration COPY_AFTER = Duration.ofMillis(20);

  private Load(String[] addresses, String dataCenter, String table, boolean isSpeculative) {
    var config =
        DriverConfigLoader.programmaticBuilder()
            .withString(DefaultDriverOption.REQUEST_CONSISTENCY, "ONE")
            .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(5));
    if (isSpeculative) {
      config
          .withBoolean(DefaultDriverOption.REQUEST_DEFAULT_IDEMPOTENCE, true)
          .withClass(
              DefaultDriverOption.SPECULATIVE_EXECUTION_POLICY_CLASS,
              ConstantSpeculativeExecutionPolicy.class)
          .withInt(DefaultDriverOption.SPECULATIVE_EXECUTION_MAX, 2)
          .withDuration(DefaultDriverOption.SPECULATIVE_EXECUTION_DELAY, COPY_AFTER);
    }
    var builder =
        CqlSession.builder().withLocalDatacenter(dataCenter).withConfigLoader(config.build());
    for (String address : addresses) {
      int colon = address.lastIndexOf(':');
      String host = address.substring(0, colon);
      int port = Integer.parseInt(address.substring(colon + 1));
      builder.addContactPoint(new InetSocketAddress(host, port));
    }
    session = builder.build();
    read = session.prepare("select value from " + table + " where id = ?");
    write = session.prepare("insert into " + table + " (id, value) values (?, ?)");
  }

  public static void main(String[] arguments) throws Exception {
    Map<String, String> words = words(arguments);
    Map<String, Load> ways = new HashMap<>();
    for (String name : words.get("ways").split(",")) {
      String[] addresses = words.get(name.equals("proxy") ? "proxy" : "node").split(",");
      String dataCenter = words.getOrDefault("dc", "dc1");
      String table = words.getOrDefault("table", "evenkeel_compare.records");
      ways.put(name, new Load(addresses, dataCenter, table, name.endsWith("-speculative")));
    }
    System.out.println("ready");
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      Map<String, String> all = new HashMap<>(words);
      String[] said = line.split(" ");
      all.putAll(words(Arrays.copyOfRange(said, 1, said.length)));
      System.out.println("turn " + new Turn(ways.get(all.get("way")), all).take());
      System.out.flush();
    }
    System.exit(0);
  }

  private static Map<String, String> words(String[] words) {
    Map<String, String> values = new HashMap<>();
    for (String word : words) {
      int end = word.indexOf('=');
      values.put(word.substring(0, end), word.substring(end + 1));
    }
    return values;
  }

  /** One turn. */
  private static final class Turn {
    private final Load load;
    private final Map<String, String> words;
    private final double rate;
    private final double joining;
    private final double seconds;
    private final double updates;
    private final double[] shares;
    private final byte[] value;
    private final Phaser underWay = new Phaser(1);
    private final AtomicLong errors = new AtomicLong();
    private final AtomicReference<String> error = new AtomicReference<>();
    private final List<List<Long>> halves = List.of(new ArrayList<>(), new ArrayList<>());
    private final List<Long> late = new ArrayList<>();
    private long begin;

    Turn(Load load, Map<String, String> words) {
      this.load = load;
      this.words = words;
      rate = number("rate", 0);
      joining = number("joining", 0);
      seconds = number("seconds", 20);
      updates = number("updates", 0.05);
      value = new byte[(int) number("bytes", 100)];
      shares = new double[(int) number("keys", 10000)];
      double sum = 0;
      for (int rank = 1; rank <= shares.length; rank++) {
        sum += Math.pow(rank, -number("zipf", 0));
        shares[rank - 1] = sum;
      }
      for (int rank = 0; rank < shares.length; rank++) {
        shares[rank] /= sum;
      }
    }

    private double number(String name, double otherwise) {
      String text = words.get(name);
      return text == null ? otherwise : Double.parseDouble(text);
    }

    private static long cpu() {
      var machine = ManagementFactory.getOperatingSystemMXBean();
      return ((com.sun.management.OperatingSystemMXBean) machine).getProcessCpuTime();
    }

    String take() throws InterruptedException {
      long cpu = cpu();
      begin = System.nanoTime();
      int users = (int) number("users", 0);
      Random random = new Random((long) number("seed", 1));
      if (users == 0) {
        sendAll(random);
        underWay.arriveAndAwaitAdvance();
      } else {
        CountDownLatch done = new CountDownLatch(users);
        for (int user = 0; user < users; user++) {
          useAlone(new Random(random.nextLong()), done);
        }
        done.await();
      }
      long elapsed = System.nanoTime() - begin;
      long[] sorted = late.stream().mapToLong(Long::longValue).sorted().toArray();
      int rank = Math.max(0, (int) Math.ceil(sorted.length * 0.999) - 1);
      String answer =
          String.format(
              "errors=%d elapsed_us=%d cpu_us=%d late_us=%d first_us=%s second_us=%s",
              errors.get(), elapsed / 1000, (cpu() - cpu) / 1000,
              sorted.length == 0 ? 0 : sorted[rank], list(halves.get(0)), list(halves.get(1)));
      String first = error.get();
      return first == null ? answer : answer + " error=" + first.replace('\n', ' ');
    }

    private static String list(List<Long> numbers) {
      StringBuilder text = new StringBuilder();
      for (long number : numbers) {
        text.append(text.isEmpty() ? "" : ",").append(number);
      }
      return text.toString();
    }

    private BoundStatement draw(Random random, double share) {
      int found = Arrays.binarySearch(shares, random.nextDouble());
      long key = Math.min(found < 0 ? -found - 1 : found, shares.length - 1);
      return random.nextDouble() < share
          ? load.write.bind(key, ByteBuffer.wrap(value))
          : load.read.bind(key);
    }

    private void sendAll(Random random) {
      double at = 0;
      while (true) {
        double joined = at > seconds / 2 ? joining : 0;
        at -= Math.log(1 - random.nextDouble()) / (rate + joined);
        if (at > seconds) {
          return;
        }
        boolean isJoined = random.nextDouble() * (rate + joined) < joined;
        BoundStatement statement = draw(random, isJoined ? 0.5 : updates);
        long due = begin + (long) (at * 1e9);
        for (long now = System.nanoTime(); now < due; now = System.nanoTime()) {
          LockSupport.parkNanos(due - now);
        }
        late.add((System.nanoTime() - due) / 1000);
        underWay.register();
        ask(statement, due, underWay::arriveAndDeregister);
      }
    }

    private void ask(BoundStatement statement, long due, Runnable then) {
      load.session
          .executeAsync(statement)
          .whenComplete(
              (rows, problem) -> {
                long latency = (System.nanoTime() - due) / 1000;
                if (problem == null) {
                  List<Long> half = halves.get(due - begin > seconds * 5e8 ? 1 : 0);
                  synchronized (half) {
                    half.add(latency);
                  }
                } else {
                  errors.incrementAndGet();
                  error.compareAndSet(null, problem.toString());
                }
                then.run();
              });
    }

    private void useAlone(Random random, CountDownLatch done) {
      long now = System.nanoTime();
      if (now - begin > seconds * 1e9) {
        done.countDown();
        return;
      }
      ask(draw(random, updates), now, () -> useAlone(random, done));
    }
  }
}
